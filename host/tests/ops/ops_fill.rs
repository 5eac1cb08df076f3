//! Constants, progressions and random numbers. On whichever driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::fill::{arange, fill, full, normal, uniform};
use ironwarp::tensor::Element;
use ironwarp::{DType, Stream, Tensor, TensorError};
use num::E4M3;
use testkit::{Tolerance, compare};

fn constant<T: Element + PartialEq + std::fmt::Debug>(stream: &Stream, value: T) -> Outcome {
    for shape in [&[][..], &[0], &[1], &[7], &[8], &[33, 3], &[4096]] {
        let x = full(stream, shape, value)?;
        let got = x.to_vec::<T>(stream)?;
        assert!(
            got.len() == shape.iter().product::<usize>() && got.iter().all(|v| *v == value),
            "{shape:?}: {got:?}"
        );
    }
    Ok(())
}

#[test]
fn constants_of_every_size() -> Outcome {
    let stream = stream()?;
    constant(&stream, -1.25e300f64)?;
    constant(&stream, 1.5f32)?;
    constant(&stream, f16::from_f32(-2.5))?;
    constant(&stream, bf16::from_f32(3e38))?;
    constant(&stream, E4M3::from_f32(448.0))?;
    constant(&stream, i64::MIN + 1)?;
    constant(&stream, -7i32)?;
    constant(&stream, 200u8)?;
    constant(&stream, true)
}

#[test]
fn parts_are_filled_and_nothing_else() -> Outcome {
    let stream = stream()?;
    for (start, end) in [(0, 16), (1, 9), (4, 12), (8, 8), (8, 16), (3, 4)] {
        let mut x = Tensor::zeros(&stream, &[2, 16], DType::U8)?;
        fill(&stream, x.view_mut()?.slice(1, start..end)?, 9u8)?;
        let row: Vec<u8> = (0..16).map(|i| if (start..end).contains(&i) { 9 } else { 0 }).collect();
        assert_eq!(x.to_vec::<u8>(&stream)?, row.repeat(2), "{start}..{end}");
    }
    let mut x = Tensor::zeros(&stream, &[4], DType::F32)?;
    let error = fill(&stream, x.view_mut()?, 1i32).unwrap_err();
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { .. })), "{error:?}");
    assert!(arange(&stream, 0.0, 1.0, usize::MAX, DType::U8).is_err());
    Ok(())
}

#[test]
fn progressions() -> Outcome {
    let stream = stream()?;
    for n in [0, 1, 4, 5, 1023, 1024, 5001] {
        let got = arange(&stream, 0.5, 0.1, n, DType::F64)?.to_vec::<f64>(&stream)?;
        // Rounded once: a fused multiplication and addition.
        let want: Vec<f64> = (0..n).map(|i| 0.1f64.mul_add(i as f64, 0.5)).collect();
        compare::bitwise_equal("arange", &got, &want)?;
        let got = arange(&stream, -3.0, 2.0, n, DType::I32)?.to_vec::<i32>(&stream)?;
        assert_eq!(got, (0..n as i32).map(|i| 2 * i - 3).collect::<Vec<_>>());
    }
    let want: Vec<f64> =
        (0..300).map(|i| reference::elementwise::SmallFloat::BF16.nearest(f64::from(i))).collect();
    let got = arange(&stream, 0.0, 1.0, 300, DType::BF16)?.to_vec::<bf16>(&stream)?;
    compare::elementwise("arange", &got, &want, &[300], Tolerance::EXACT)?;
    let bytes = arange(&stream, 250.0, 1.0, 10, DType::U8)?.to_vec::<u8>(&stream)?;
    assert_eq!(bytes, [250, 251, 252, 253, 254, 255, 0, 1, 2, 3]);
    Ok(())
}

/// Four words of Philox4x32-10 with every product in 64 bits, straight from the paper's definition.
fn philox(seed: u64, block: u64) -> [u32; 4] {
    let (mut key, mut state) =
        ([seed as u32, (seed >> 32) as u32], [block as u32, (block >> 32) as u32, 0u32, 0u32]);
    for _ in 0..10 {
        let p = 0xd251_1f53u64 * u64::from(state[0]);
        let q = 0xcd9e_8d57u64 * u64::from(state[2]);
        let (p_high, p_low, q_high, q_low) = ((p >> 32) as u32, p as u32, (q >> 32) as u32, q as u32);
        state = [q_high ^ state[1] ^ key[0], q_low, p_high ^ state[3] ^ key[1], p_low];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    state
}

#[test]
fn random_numbers_are_those_of_the_generator() -> Outcome {
    let (stream, seed, n) = (stream()?, 0x1234_5678_9abc_def0, 20_483);
    let words: Vec<u32> = (0..n as u64).map(|i| philox(seed, i / 4)[(i % 4) as usize]).collect();
    let unit = |word: u32| f64::from(word >> 8) / f64::from(1u32 << 24);
    let want: Vec<f64> = words.iter().map(|&word| 3.0 * unit(word) - 1.0).collect();
    let got = uniform(&stream, &[n], -1.0, 2.0, seed)?.to_vec::<f32>(&stream)?;
    compare::elementwise("uniform", &got, &want, &[n], testkit::tolerance::ARITHMETIC_F32.tolerance())?;
    assert!(got.iter().all(|v| (-1.0..2.0).contains(v)));

    let want: Vec<f64> = (0..n)
        .map(|i| {
            let (a, b) = (unit(words[i / 2 * 2]), unit(philox(seed, i as u64 / 4)[i % 4 / 2 * 2 + 1]));
            let (radius, angle) = ((-2.0 * (1.0 - a).ln()).sqrt(), std::f64::consts::TAU * b);
            if i % 2 == 0 { radius * angle.cos() } else { radius * angle.sin() }
        })
        .collect();
    let got = normal(&stream, &[n], 0.0, 1.0, seed)?.to_vec::<f32>(&stream)?;
    compare::elementwise("normal", &got, &want, &[n], testkit::tolerance::RANDOM_NORMAL.tolerance())?;

    let again = uniform(&stream, &[10], -1.0, 2.0, seed)?.to_vec::<f32>(&stream)?;
    compare::bitwise_equal(
        "a shorter one begins alike",
        &again,
        &uniform(&stream, &[n], -1.0, 2.0, seed)?.to_vec::<f32>(&stream)?[..10],
    )?;
    let other = uniform(&stream, &[10], -1.0, 2.0, seed + 1)?.to_vec::<f32>(&stream)?;
    assert!(compare::bitwise_equal("another seed", &again, &other).is_err());
    // A range so narrow that rounding would reach its end.
    let narrow = uniform(&stream, &[2000], 1.0, 1.0f32.next_up(), 1)?.to_vec::<f32>(&stream)?;
    assert!(narrow.iter().all(|&v| v == 1.0));
    Ok(())
}
