//! Convolutions of 9 to 32 channels by windows, several taps a stage. Where the device has no windows,
//! gathers do the same.

use crate::common::{Outcome, stream};
use crate::ops_conv::{Tested, conv, op, operands};
use crate::ops_conv_parts::{self, of_device};
use half::{bf16, f16};
use ironwarp::ops::conv::{Activation, Algorithm, Conv2d, Fused, Tile};
use ironwarp::{Stream, Tensor};
use reference::conv::Conv;
use testkit::{Family, compare};

/// As many channels as a tap has, and fewer, also in units that are no whole; stages that end within the taps
/// and with them, lines that end within a stage; strides, padding and dilations that differ along the axes;
/// few filters, several tiles of them, and a rest.
const FEW: &[Conv] = &[
    conv([1, 1, 16, 72], [65, 3, 1, 1, 1], [66, 3, 1, 1, 1]),
    conv([2, 1, 24, 40], [53, 3, 2, 1, 1], [55, 3, 2, 1, 1]),
    conv([3, 1, 32, 264], [27, 3, 1, 1, 1], [28, 5, 3, 2, 1]),
    conv([1, 1, 13, 136], [70, 2, 2, 0, 3], [66, 2, 1, 3, 2]),
    conv([2, 1, 21, 16], [53, 1, 1, 0, 1], [56, 7, 2, 5, 1]),
    conv([5, 1, 16, 8], [33, 5, 2, 2, 1], [27, 1, 1, 0, 1]),
];

/// Few filters, for inputs' gradients without strides: results of turned filters.
const FEW_FILTERS: &[Conv] = &[
    conv([1, 1, 72, 16], [65, 3, 1, 1, 1], [66, 3, 1, 1, 1]),
    conv([2, 1, 40, 24], [53, 2, 1, 0, 1], [55, 3, 1, 2, 2]),
    conv([3, 1, 264, 32], [27, 5, 1, 2, 1], [28, 1, 1, 0, 1]),
];

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TallWindows,
    Algorithm::Windows(Tile::Narrow),
    Algorithm::Auto,
    Algorithm::WindowsInParts(2),
    Algorithm::WindowsInParts(100),
];

fn forward<T: Tested>(stream: &Stream, case: &Conv, family: Family, algorithm: Algorithm) -> Outcome {
    ops_conv_parts::forward::<T>(stream, case, family, algorithm, Some(Activation::Relu))
}

#[test]
fn results_of_few_channels_agree() -> Outcome {
    let stream = stream()?;
    for (i, case) in FEW.iter().enumerate() {
        for (j, algorithm) in ALGORITHMS.into_iter().enumerate() {
            let algorithm = of_device(&stream, algorithm);
            // Types in turns: they differ by an instruction.
            if (i + j) % 2 == 0 {
                forward::<bf16>(&stream, case, Family::Normal, algorithm)?;
            } else {
                forward::<f16>(&stream, case, Family::SmallIntegers, algorithm)?;
            }
        }
    }
    Ok(())
}

#[test]
fn inputs_gradients_of_few_filters_agree() -> Outcome {
    let stream = stream()?;
    for case in FEW_FILTERS {
        for algorithm in [Algorithm::TallWindows, Algorithm::WindowsInParts(3), Algorithm::Auto] {
            let sides = case.sides();
            let [_, filters, gradient] = operands::<bf16>(case, Family::Normal, 4);
            let held = |i: usize, numbers: &[bf16]| Tensor::from_slice(&stream, &sides[i], numbers);
            let op = Conv2d { algorithm: of_device(&stream, algorithm), ..op(case) };
            let of_input = [case.height.input, case.width.input];
            let dx = op.input_gradient(&stream, &held(2, &gradient)?, &held(1, &filters)?, of_input)?;
            let want = case.input_gradient(&gradient, &filters);
            let limit = bf16::tolerance(case.height.filter * case.width.filter * case.filters);
            let (what, dx) = (format!("dx {algorithm:?} {case:?}"), dx.to_vec::<bf16>(&stream)?);
            compare::rounded(&what, &dx, &want.value, &want.magnitude, &sides[0], limit)?;
        }
    }
    Ok(())
}

#[test]
fn taps_behind_the_last_one_meet_nothing() -> Outcome {
    let stream = stream()?;
    // Nine taps of 16 channels in stages of four: the last stage has one. Channels behind the tensor's last
    // one are the next position's in memory.
    for case in [FEW[0], conv([1, 1, 24, 16], [53, 3, 1, 1, 1], [55, 3, 1, 1, 1])] {
        let sides = case.sides();
        let [mut x, filters, _] = operands::<bf16>(&case, Family::Normal, 5);
        let [_, height, width, channels] = sides[0];
        x[height / 2 * width * channels..].fill(bf16::NAN);
        let on = |i: usize, numbers: &[bf16]| Tensor::from_slice(&stream, &sides[i], numbers);
        for algorithm in [Algorithm::Windows(Tile::Wide), Algorithm::TallWindows] {
            let op = Conv2d { algorithm: of_device(&stream, algorithm), ..op(&case) };
            let y = op.forward(&stream, &on(0, &x)?, &on(1, &filters)?, Fused::default())?;
            let y = y.to_vec::<bf16>(&stream)?;
            // The row before the first one without numbers meets it.
            let finite = (height / 2 - 1) * width * sides[2][3];
            assert!(y[..finite].iter().all(|y| y.is_finite()), "a window above met what it has not");
            assert!(y[finite..].iter().all(|y| y.is_nan()), "a window below lost what it has");
        }
    }
    Ok(())
}
