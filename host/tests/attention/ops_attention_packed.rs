//! Packed sequences against the oracle of `reference`.

use crate::attention_case::{Case, Lengths, Lie, Outcome, PLAIN, device, has_plain};
use half::{bf16, f16};
use ironwarp::DeviceBuffer;
use ironwarp::ops::attention::{Attention, Config, Heads, HeadsMut, Packed, candidates};

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

/// Sequences end with the longest one that was told: rows behind it, which hold no numbers here, are not
/// seen and get no results.
#[test]
pub fn too_short_lengths() -> Outcome {
    // The last one has no rows of others behind it.
    const LONG: Lengths = &[[150, 270], [5, 9], [270, 150]];
    // In a tile, between tiles of all kernels, and no rows at all of one side.
    const TOLD: [[usize; 2]; 7] = [[5, 9], [64, 128], [70, 200], [300, 60], [60, 300], [0, 9], [5, 0]];
    for (at, told) in TOLD.into_iter().enumerate() {
        let [size, next] = [at, at + 1].map(|at| [64, 128, 256][at % 3]);
        let case = Case { packed: Some(LONG), told: Some(told), heads: 2, size, ..PLAIN };
        case.check::<bf16>()?;
        Case { right: Some(0), left: Some(100), size: next, ..case }.check::<f16>()?;
    }
    Ok(())
}

/// Row numbers that lead out of the tensors, or fall: the checker would see an access outside.
#[test]
pub fn wrong_row_numbers_do_no_harm() -> Outcome {
    if !has_plain()? {
        return Ok(());
    }
    let stream = device()?.stream()?;
    let sides = [1, 80, 1, 64];
    let x = DeviceBuffer::<bf16>::zeroed(&stream, 80 * 64)?;
    let queries = DeviceBuffer::from_slice(&stream, &[-5, 3, 1000, 2, i32::MIN])?;
    let keys = DeviceBuffer::from_slice(&stream, &[70, i32::MIN, i32::MAX, 81, 90])?;
    let heads = |x| Heads::new::<bf16>(x, sides);
    let by = |config: Option<&Config>| -> Outcome<(Vec<bf16>, Vec<f32>, Vec<Config>)> {
        let mut out = DeviceBuffer::<bf16>::from_slice(&stream, &[bf16::ONE; 80 * 64])?;
        let mut sums = DeviceBuffer::<f32>::zeroed(&stream, 80)?;
        let out_heads = HeadsMut::new::<bf16>(&mut out, sides);
        let attention = Attention::new(heads(&x), heads(&x), heads(&x), out_heads)
            .log_sum_exp(&mut sums)
            .packed(Packed::new(&queries, &keys, 80, 80));
        let all = candidates(&attention.problem()?, stream.device());
        match config {
            Some(config) => attention.run_with(&stream, config)?,
            None => attention.run(&stream)?,
        }
        Ok((out.to_vec(&stream)?, sums.to_vec(&stream)?, all.into_iter().map(|one| one.config).collect()))
    };
    let check = |out: &[bf16], sums: &[f32]| {
        // Three rows, and all others, of a sequence each: one without keys, one with all of them.
        assert!(sums[..3].iter().all(|sum| *sum == f32::NEG_INFINITY), "{sums:?}");
        assert!(sums[3..].iter().all(|sum| (sum - 80f32.ln()).abs() < 1e-5), "{sums:?}");
        assert!(out.iter().all(|value| *value == bf16::ZERO));
    };
    let (out, sums, configs) = by(None)?;
    check(&out, &sums);
    for config in configs {
        let (out, sums, _) = by(Some(&config))?;
        check(&out, &sums);
    }
    Ok(())
}
