//! Inputs' gradients where ways to them meet: all classes by turned filters, and zeros between windows.

use crate::common::{Outcome, stream};
use crate::ops_conv::{conv, input_gradient, op, operands};
use half::{bf16, f16};
use ironwarp::Tensor;
use testkit::Family;

/// All classes in one product of many filters, by turned filters: the windows that it has follow from no
/// padding that is alike on both sides.
#[test]
fn gradients_of_few_channels_and_many_filters_agree() -> Outcome {
    let stream = stream()?;
    // A tile of rows, and so much of k that parts of it pay on a device of two multiprocessors too.
    let of_4 = conv([1, 1, 4, 1024], [16, 7, 2, 3, 1], [28, 7, 2, 3, 1]);
    let of_2 = conv([1, 1, 2, 4096], [8, 3, 2, 1, 1], [28, 3, 2, 1, 1]);
    input_gradient::<bf16>(&stream, &of_4, op(&of_4), Family::Normal, 1)?;
    input_gradient::<f16>(&stream, &of_2, op(&of_2), Family::SmallIntegers, 2)
}

/// Those of filters come into all gradients whose sums have them, by every way.
#[test]
fn special_numbers_of_filters_reach_inputs_gradients() -> Outcome {
    let stream = stream()?;
    // By windows of taps, classes, a filter for each channel, groups, and all classes in one product.
    for case in [
        conv([1, 1, 64, 64], [9, 3, 1, 1, 1], [15, 3, 1, 1, 1]),
        conv([2, 1, 16, 136], [8, 3, 2, 1, 1], [8, 3, 2, 1, 1]),
        conv([2, 40, 1, 1], [9, 3, 1, 1, 1], [13, 3, 1, 1, 1]),
        conv([2, 32, 4, 4], [9, 3, 1, 1, 1], [15, 3, 1, 1, 1]),
        conv([2, 1, 2, 16], [12, 3, 2, 1, 1], [9, 3, 3, 1, 1]),
    ] {
        let sides = case.sides();
        let [_, mut filters, gradient] = operands::<bf16>(&case, Family::Uniform, 5);
        let last = filters.len() - 1;
        testkit::spot_special(&mut filters, &[last], f64::NAN);
        let tensor = |i: usize, data: &[bf16]| Tensor::from_slice(&stream, &sides[i], data);
        let of_input = [case.height.input, case.width.input];
        let dx =
            op(&case).input_gradient(&stream, &tensor(2, &gradient)?, &tensor(1, &filters)?, of_input)?;
        let (dx, want) = (dx.to_vec::<bf16>(&stream)?, case.input_gradient(&gradient, &filters).value);
        assert!(want.iter().any(|v| v.is_nan()) && dx.iter().any(|v| v.is_finite()), "{case:?}");
        // Zeros may meet them too.
        let lost = dx.iter().zip(&want).position(|(got, want)| want.is_nan() && !got.is_nan());
        assert_eq!(lost, None, "{case:?}");
    }
    Ok(())
}
