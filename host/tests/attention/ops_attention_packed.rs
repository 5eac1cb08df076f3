//! Packed sequences against the oracle of `reference`.

use crate::attention_case::{Case, Lengths, Lie, Outcome, PLAIN, device, is_hopper};
use half::{bf16, f16};
use ironwarp::DeviceBuffer;
use ironwarp::ops::attention::{Attention, Heads, HeadsMut, Packed};

const LENGTHS: Lengths = &[[70, 70], [1, 130], [0, 5], [140, 140], [3, 0], [65, 9]];

#[test]
fn sequences_of_all_lengths() -> Outcome {
    for size in [64, 128, 200, 256] {
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

/// Row numbers that lead out of the tensors, or fall: the checker would see an access outside.
#[test]
fn wrong_row_numbers_do_no_harm() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let sides = [1, 80, 1, 64];
    let x = DeviceBuffer::<bf16>::zeroed(&stream, 80 * 64)?;
    let queries = DeviceBuffer::from_slice(&stream, &[-5, 3, 1000, 2, i32::MIN])?;
    let keys = DeviceBuffer::from_slice(&stream, &[70, i32::MIN, i32::MAX, 81, 90])?;
    let mut out = DeviceBuffer::<bf16>::from_slice(&stream, &[bf16::ONE; 80 * 64])?;
    let mut sums = DeviceBuffer::<f32>::zeroed(&stream, 80)?;
    let heads = |x| Heads::new::<bf16>(x, sides);
    Attention::new(heads(&x), heads(&x), heads(&x), HeadsMut::new::<bf16>(&mut out, sides))
        .log_sum_exp(&mut sums)
        .packed(Packed::new(&queries, &keys, 80, 80))
        .run(&stream)?;
    // Three rows, and all others, of a sequence each: one without keys, one with all of them.
    let sums = sums.to_vec(&stream)?;
    assert!(sums[..3].iter().all(|sum| *sum == f32::NEG_INFINITY), "{sums:?}");
    assert!(sums[3..].iter().all(|sum| (sum - 80f32.ln()).abs() < 1e-5), "{sums:?}");
    assert!(out.to_vec(&stream)?.iter().all(|value| *value == bf16::ZERO));
    Ok(())
}
