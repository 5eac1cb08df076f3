//! Packed sequences against the oracle of `reference`.

use crate::attention_case::{Case, Lengths, Lie, Outcome, PLAIN};
use half::{bf16, f16};

const LENGTHS: Lengths = &[[70, 70], [1, 130], [0, 5], [140, 140], [3, 0], [65, 9]];

#[test]
fn sequences_of_all_lengths() -> Outcome {
    for size in [64, 128, 256] {
        Case { packed: Some(LENGTHS), size, ..PLAIN }.check::<bf16>()?;
    }
    Ok(())
}

#[test]
fn masks_begin_anew_in_each() -> Outcome {
    let case = Case { packed: Some(LENGTHS), heads: 2, right: Some(0), ..PLAIN };
    case.check::<bf16>()?;
    Case { top_left: true, left: Some(30), ..case }.check::<f16>()
}

#[test]
fn they_lie_in_any_way() -> Outcome {
    for lie in [Lie::Heads, Lie::OfThree, Lie::Gaps] {
        let case = Case { packed: Some(&[[5, 40], [30, 2]]), heads: 2, kv_heads: 2, size: 40, ..PLAIN };
        Case { lies: [lie; 4], ..case }.check::<f16>()?;
    }
    Ok(())
}

#[test]
fn no_sequences() -> Outcome {
    Case { packed: Some(&[]), ..PLAIN }.check::<bf16>()?;
    Case { packed: Some(&[[0, 0], [0, 4]]), ..PLAIN }.check::<bf16>()
}
