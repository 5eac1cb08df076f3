//! Convolutions by windows in tiles of 256 x 128, in parts of k, by turned filters, and over tensors that get
//! room first. Where the device has no windows, gathers do the same.

use crate::common::{Outcome, stream};
use crate::ops_conv::{BY_WINDOWS, Tested, check, check_by, conv, op, operands};
use half::{bf16, f16};
use ironwarp::ops::conv::{Activation, Algorithm, Conv2d, Fused};
use ironwarp::{Stream, Tensor};
use reference::conv::Conv;
use reference::matmul;
use testkit::{Family, compare, input};

/// This algorithm, or what a device without windows has.
pub fn of_device(stream: &Stream, algorithm: Algorithm) -> Algorithm {
    if stream.device().arch().major == 9 { algorithm } else { Algorithm::Auto }
}

#[test]
fn tall_tiles_and_parts_agree() -> Outcome {
    let stream = stream()?;
    // Whole, with a last part of fewer stages, and of a stage each.
    let parts = [1, 2, 5, 100].map(Algorithm::WindowsInParts);
    for (i, case) in BY_WINDOWS.iter().enumerate() {
        forward::<bf16>(&stream, case, Family::Normal, of_device(&stream, parts[i % parts.len()]), None)?;
        let tall = of_device(&stream, Algorithm::TallWindows);
        forward::<f16>(&stream, case, Family::SmallIntegers, tall, None)?;
    }
    // Gradients too: both tensors are large.
    for (i, algorithm) in parts.into_iter().chain([Algorithm::TallWindows]).enumerate() {
        let algorithm = of_device(&stream, algorithm);
        check_by::<bf16>(&stream, &BY_WINDOWS[0], Family::Normal, i as u64, algorithm)?;
    }
    Ok(())
}

/// Compares results with the oracle's: with a bias and an activation behind it, or without both.
pub fn forward<T: Tested>(
    stream: &Stream,
    case: &Conv,
    family: Family,
    algorithm: Algorithm,
    behind_bias: Option<Activation>,
) -> Outcome {
    let sides = case.sides();
    let [x, filters, _] = operands::<T>(case, family, 7);
    let bias = input::<T>(Family::Normal, 9, sides[1][0]);
    let on = |i: usize, numbers: &[T]| Tensor::from_slice(stream, &sides[i], numbers);
    let on_bias = Tensor::from_slice(stream, &[bias.len()], &bias)?;
    let (fused, bias, activation) = match behind_bias {
        Some(activation) => {
            let named = matmul::Activation::named(activation.name());
            (Fused { bias: Some(&on_bias), activation }, Some(&bias[..]), named)
        }
        None => (Fused::default(), None, matmul::Activation::Identity),
    };
    let op = Conv2d { algorithm, ..op(case) };
    let y = op.forward(stream, &on(0, &x)?, &on(1, &filters)?, fused)?;
    let want = case.forward(&x, &filters, bias, activation);
    let limit = T::tolerance(case.height.filter * case.width.filter * case.channels);
    let what = format!("y {} {algorithm:?} {case:?}", T::DTYPE);
    compare::rounded(&what, &y.to_vec::<T>(stream)?, &want.value, &want.magnitude, &sides[2], limit)?;
    Ok(())
}

#[test]
fn bias_and_activation_follow_the_sum_of_parts() -> Outcome {
    let stream = stream()?;
    // Neighbours one by one, and by vectors.
    for (case, parts) in [(BY_WINDOWS[0], 4), (conv([12, 1, 40, 136], [17, 3, 1, 1, 1], [9, 3, 1, 1, 1]), 3)]
    {
        let sides = case.sides();
        let [x, filters, _] = operands::<bf16>(&case, Family::Normal, 3);
        let bias = input::<bf16>(Family::Normal, 9, sides[1][0]);
        let on = |i: usize, numbers: &[bf16]| Tensor::from_slice(&stream, &sides[i], numbers);
        let (on_x, on_filters) = (on(0, &x)?, on(1, &filters)?);
        let on_bias = Tensor::from_slice(&stream, &[bias.len()], &bias)?;
        let algorithm = of_device(&stream, Algorithm::WindowsInParts(parts));
        for activation in [Activation::None, Activation::Gelu] {
            let fused = Fused { bias: Some(&on_bias), activation };
            let op = Conv2d { algorithm, ..op(&case) };
            let y = op.forward(&stream, &on_x, &on_filters, fused)?.to_vec::<bf16>(&stream)?;
            let want = case.forward(&x, &filters, Some(&bias), matmul::Activation::named(activation.name()));
            let limit = bf16::tolerance(case.height.filter * case.width.filter * case.channels);
            let what = format!("{} {case:?}", activation.name());
            compare::rounded(&what, &y, &want.value, &want.magnitude, &sides[2], limit)?;
        }
    }
    Ok(())
}

#[test]
fn tensors_that_get_room_agree() -> Outcome {
    let stream = stream()?;
    for case in [
        conv([1, 1, 128, 16], [6, 3, 1, 1, 1], [7, 3, 1, 1, 1]),
        conv([2, 1, 40, 264], [5, 5, 1, 2, 1], [8, 3, 1, 1, 1]),
    ] {
        check::<bf16>(&stream, &case, Family::Normal, 1)?;
        check::<f16>(&stream, &case, Family::SmallIntegers, 2)?;
    }
    Ok(())
}

#[test]
fn stages_behind_the_last_tap_meet_nothing() -> Outcome {
    let stream = stream()?;
    // Nine stages in two parts of five: the tenth would meet a position that has no number.
    let case = conv([1, 1, 64, 64], [32, 3, 1, 1, 1], [33, 3, 1, 1, 1]);
    let sides = case.sides();
    let [mut x, filters, _] = operands::<bf16>(&case, Family::Normal, 5);
    let [_, height, width, channels] = sides[0];
    for row in height / 2..height {
        let first = row * width * channels;
        x[first..first + width * channels].fill(bf16::NAN);
    }
    let on = |i: usize, numbers: &[bf16]| Tensor::from_slice(&stream, &sides[i], numbers);
    let algorithm = of_device(&stream, Algorithm::WindowsInParts(2));
    let op = Conv2d { algorithm, ..op(&case) };
    let y = op.forward(&stream, &on(0, &x)?, &on(1, &filters)?, Fused::default())?.to_vec::<bf16>(&stream)?;
    // The row before the first one without numbers meets it.
    let finite = (height / 2 - 1) * width * sides[2][3];
    assert!(y[..finite].iter().all(|y| y.is_finite()), "a window above met what it has not");
    assert!(y[finite..].iter().all(|y| y.is_nan()), "a window below lost what it has");
    Ok(())
}
