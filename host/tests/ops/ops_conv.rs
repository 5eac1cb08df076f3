//! Convolutions and their gradients against the oracle: every kind of shape that PyTorch takes. On whichever
//! driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::bytemuck::Pod;
use ironwarp::ops::conv::{Activation, Algorithm, Conv2d, Fused, Tile};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Stream, Tensor};
use reference::conv::{Axis, Conv};
use reference::matmul;
use std::error::Error as StdError;
use testkit::{Family, Tolerance, compare, input, tolerance};

/// Input, filter, stride, padding, dilation.
pub type Numbers = [usize; 5];

const fn axis([input, filter, stride, padding, dilation]: Numbers) -> Axis {
    Axis { input, filter, stride, padding, dilation }
}

/// Images, groups, channels and filters of a group, and both axes.
pub const fn conv([images, groups, channels, filters]: [usize; 4], height: Numbers, width: Numbers) -> Conv {
    Conv { images, groups, channels, filters, height: axis(height), width: axis(width) }
}

const CASES: &[Conv] = &[
    // As networks have them: 3 x 3, with stride, a stem of 7 x 7 over 3 channels, 1 x 1 with stride.
    conv([1, 1, 64, 64], [9, 3, 1, 1, 1], [15, 3, 1, 1, 1]),
    conv([2, 1, 16, 136], [8, 3, 2, 1, 1], [8, 3, 2, 1, 1]),
    conv([1, 1, 3, 8], [17, 7, 2, 3, 1], [15, 7, 2, 3, 1]),
    conv([2, 1, 40, 72], [5, 1, 2, 0, 1], [6, 1, 2, 0, 1]),
    // A product of matrices.
    conv([2, 1, 24, 16], [5, 1, 1, 0, 1], [3, 1, 1, 0, 1]),
    // Images of one position, and filters larger than the image.
    conv([3, 1, 8, 8], [1, 1, 1, 0, 1], [1, 3, 1, 1, 1]),
    conv([1, 1, 8, 16], [2, 5, 1, 2, 1], [1, 7, 2, 3, 1]),
    // Strides beyond the filter: positions that no window has. Padding beyond the filter: windows of zeros.
    conv([1, 1, 8, 8], [11, 2, 5, 0, 1], [10, 1, 3, 0, 1]),
    conv([1, 1, 8, 8], [3, 2, 2, 4, 1], [4, 1, 2, 3, 1]),
    // Dilation, alone and with strides that share a factor with it or not.
    conv([1, 1, 16, 8], [12, 3, 1, 2, 2], [13, 3, 1, 3, 3]),
    conv([1, 1, 8, 24], [14, 3, 2, 2, 2], [15, 3, 2, 3, 3]),
    conv([1, 1, 8, 8], [17, 2, 4, 1, 6], [19, 3, 6, 0, 4]),
    // Groups: each channel for itself, a few, and several filters a channel.
    conv([2, 24, 1, 1], [6, 3, 1, 1, 1], [7, 3, 2, 1, 1]),
    conv([1, 3, 8, 16], [6, 3, 1, 1, 1], [5, 2, 1, 0, 1]),
    conv([1, 5, 1, 3], [5, 3, 1, 1, 1], [4, 1, 1, 0, 1]),
    // Channels and filters that are no whole units; one of each.
    conv([2, 1, 1, 1], [6, 3, 1, 1, 1], [6, 3, 1, 1, 1]),
    conv([1, 1, 5, 11], [7, 2, 1, 1, 1], [6, 3, 1, 0, 1]),
    conv([1, 2, 3, 5], [4, 3, 2, 1, 1], [9, 3, 1, 1, 1]),
    conv([1, 1, 33, 130], [4, 2, 1, 0, 1], [4, 2, 1, 0, 1]),
    // One axis, as `conv1d` has it.
    conv([2, 1, 16, 8], [1, 1, 1, 0, 1], [40, 5, 2, 2, 1]),
    // More than a tile of rows, of columns, and of k; several parts of positions.
    conv([3, 1, 8, 200], [11, 2, 1, 0, 1], [12, 1, 1, 0, 1]),
    conv([1, 1, 72, 8], [3, 3, 1, 1, 1], [3, 3, 1, 1, 1]),
    // Products of the positions that are read: sides that strides divide and others, gaps along one axis.
    conv([3, 1, 3, 16], [7, 1, 2, 0, 1], [6, 1, 3, 0, 1]),
    conv([2, 1, 13, 24], [5, 1, 1, 0, 1], [8, 1, 2, 0, 2]),
];

/// Inputs' gradients of few channels with strides, all classes in one product: as a stem has it, strides that
/// differ, beyond the filter and the padding, and those that leave positions out.
const FEW_CHANNELS: &[Conv] = &[
    conv([1, 1, 3, 64], [66, 7, 2, 3, 1], [64, 7, 2, 3, 1]),
    conv([2, 1, 2, 16], [12, 3, 2, 1, 1], [9, 3, 3, 1, 1]),
    conv([1, 1, 1, 8], [12, 2, 4, 0, 1], [10, 5, 1, 4, 1]),
    conv([2, 1, 2, 40], [8, 3, 4, 5, 1], [12, 4, 2, 0, 1]),
];

/// Tensors that Hopper's copy engine reads by windows: 64 channels, others, fewer; with stride, padding and
/// dilations that differ along the axes; windows that go on in the next image within a tile; a rest of
/// columns.
pub const BY_WINDOWS: &[Conv] = &[
    conv([1, 1, 64, 64], [32, 3, 1, 1, 1], [33, 3, 1, 1, 1]),
    conv([1, 1, 64, 136], [37, 3, 2, 1, 1], [35, 5, 3, 2, 1]),
    conv([3, 1, 128, 64], [13, 2, 1, 0, 1], [17, 3, 1, 2, 2]),
    conv([2, 1, 40, 72], [29, 3, 1, 2, 3], [31, 1, 1, 0, 1]),
    conv([2, 1, 192, 40], [15, 1, 2, 0, 1], [17, 1, 2, 0, 1]),
    // Filters' gradients in one part, of several tiles.
    conv([1, 1, 256, 136], [17, 3, 2, 1, 1], [19, 2, 2, 1, 1]),
];

/// Inputs' gradients with strides, by classes of positions: even and odd sides, both strides or one, few
/// columns, one and several tiles of them, classes without taps, dilations with a factor of the stride.
const BY_CLASSES: &[Conv] = &[
    conv([2, 1, 8, 64], [41, 3, 2, 1, 1], [50, 3, 2, 1, 1]),
    conv([2, 1, 200, 64], [42, 1, 2, 0, 1], [49, 1, 2, 0, 1]),
    conv([1, 1, 3, 64], [65, 7, 2, 3, 1], [66, 7, 2, 3, 1]),
    conv([1, 1, 72, 40], [83, 3, 2, 2, 2], [82, 2, 2, 1, 3]),
    conv([3, 1, 16, 128], [20, 2, 1, 1, 1], [30, 5, 2, 0, 1]),
    // The last windows leave positions of the input out.
    conv([5, 1, 16, 64], [24, 3, 2, 0, 1], [42, 2, 2, 0, 1]),
];

/// 128 taps for each channel, and 129.
const MOST_TAPS: Conv = conv([1, 8, 1, 1], [9, 8, 1, 3, 1], [18, 16, 1, 7, 1]);
const TOO_MANY_TAPS: Conv = conv([1, 8, 1, 1], [4, 3, 1, 1, 1], [44, 43, 1, 4, 1]);

/// A filter for each channel: taps three at a time and one by one, strips that end within the row, strides,
/// dilations, padding beyond the filter, more channels than a block has, and channels one by one.
const DEPTHWISE: &[Conv] = &[
    conv([2, 40, 1, 1], [9, 3, 1, 1, 1], [13, 3, 1, 1, 1]),
    conv([1, 16, 1, 1], [9, 7, 1, 3, 1], [10, 7, 1, 3, 1]),
    conv([2, 8, 1, 1], [11, 5, 2, 2, 1], [12, 3, 2, 1, 1]),
    conv([1, 200, 1, 1], [6, 2, 1, 0, 1], [5, 4, 1, 2, 1]),
    conv([2, 3, 1, 1], [10, 3, 1, 2, 2], [11, 3, 3, 1, 2]),
    conv([1, 16, 1, 1], [3, 2, 2, 4, 1], [4, 1, 2, 3, 1]),
    conv([3, 37, 1, 1], [8, 3, 1, 1, 1], [7, 5, 1, 2, 1]),
    conv([1, 8, 1, 1], [4, 1, 1, 0, 1], [5, 1, 3, 0, 1]),
    // Filters that slide, all three sizes by 1 and by 2: sides and paddings that differ, padding beyond the
    // filter, filters larger than the image, pairs of channels that fill no block, and one pair.
    conv([1, 16, 1, 1], [9, 5, 1, 2, 1], [10, 5, 1, 2, 1]),
    conv([2, 130, 1, 1], [10, 3, 2, 1, 1], [11, 3, 2, 0, 1]),
    conv([2, 10, 1, 1], [11, 5, 2, 2, 1], [14, 5, 2, 2, 1]),
    conv([1, 6, 1, 1], [12, 7, 2, 3, 1], [9, 7, 2, 1, 1]),
    conv([3, 34, 1, 1], [4, 3, 1, 4, 1], [5, 3, 1, 3, 1]),
    conv([1, 2, 1, 1], [3, 7, 1, 3, 1], [2, 7, 1, 3, 1]),
    // As many taps as such kernels take.
    MOST_TAPS,
    // The largest strides there are.
    conv([1, 8, 1, 1], [5, 2, 1 << 29, 0, 1], [6, 3, (1 << 30) - 1, 1, 1]),
];

/// Groups of few channels, as many filters: each number of channels, slabs of 16, 32 and 64 that channels
/// fill or not, strides, dilations, both or one axis, tiles that end within the image, classes without taps,
/// padding beyond the filter, and filters with too many taps for those kernels.
const GROUPED: &[Conv] = &[
    conv([2, 32, 4, 4], [9, 3, 1, 1, 1], [15, 3, 1, 1, 1]),
    conv([1, 3, 8, 8], [14, 3, 2, 1, 1], [13, 3, 2, 1, 1]),
    conv([3, 12, 2, 2], [7, 3, 1, 1, 1], [6, 2, 1, 0, 1]),
    conv([1, 5, 16, 16], [8, 3, 1, 2, 2], [11, 3, 3, 1, 1]),
    conv([2, 4, 4, 4], [1, 1, 1, 0, 1], [300, 5, 1, 2, 1]),
    conv([1, 2, 8, 8], [9, 1, 2, 0, 1], [8, 1, 3, 0, 1]),
    conv([1, 24, 2, 2], [4, 2, 1, 3, 1], [5, 4, 2, 4, 3]),
    conv([5, 1, 16, 16], [33, 3, 1, 1, 1], [19, 3, 1, 1, 1]),
    conv([1, 6, 4, 4], [8, 5, 1, 2, 1], [9, 3, 1, 1, 1]),
    // Positions that make the tile's last product whole meet no zeros of a padding.
    conv([1, 4, 4, 4], [7, 3, 1, 0, 1], [9, 3, 1, 0, 1]),
];

pub fn op(case: &Conv) -> Conv2d {
    let both = |of: fn(&Axis) -> usize| [of(&case.height), of(&case.width)];
    Conv2d {
        stride: both(|axis| axis.stride),
        padding: both(|axis| axis.padding),
        dilation: both(|axis| axis.dilation),
        groups: case.groups,
        algorithm: Algorithm::Auto,
    }
}

/// An element type, and what sums of its products may be off by.
pub trait Tested: Element + testkit::Element + Pod + Into<f64> + Sync {
    fn tolerance(terms: usize) -> Tolerance;
}

macro_rules! tested {
    ($($ty:ty: $row:ident;)*) => { $(
        impl Tested for $ty {
            fn tolerance(terms: usize) -> Tolerance {
                tolerance::$row.for_terms(terms)
            }
        }
    )* };
}

tested! { f16: GEMM_TENSOR; bf16: GEMM_TENSOR; f32: GEMM_TENSOR_TF32; }

/// The operands of a case: input, filters, gradient of the result.
pub fn operands<T: Tested>(case: &Conv, family: Family, seed: u64) -> [Vec<T>; 3] {
    let lengths = case.sides().map(|sides| sides.iter().product::<usize>());
    [0, 1, 2].map(|i| input::<T>(family, seed + i as u64, lengths[i]))
}

/// All three results of a case.
pub fn check<T: Tested>(stream: &Stream, case: &Conv, family: Family, seed: u64) -> Outcome {
    check_by::<T>(stream, case, family, seed, Algorithm::Auto)
}

/// The same, by an algorithm.
pub fn check_by<T: Tested>(
    stream: &Stream,
    case: &Conv,
    family: Family,
    seed: u64,
    algorithm: Algorithm,
) -> Outcome {
    let sides = case.sides();
    let host = operands::<T>(case, family, seed);
    let [x, filters, gradient] = &host;
    let held = |i: usize| Tensor::from_slice(stream, &sides[i], &host[i]);
    let (on_x, on_filters, on_gradient) = (held(0)?, held(1)?, held(2)?);
    let op = Conv2d { algorithm, ..op(case) };
    let taps = case.height.filter * case.width.filter;
    let what = |name: &str| format!("{name} {} {family:?} {algorithm:?} {case:?}", T::DTYPE);

    let y = op.forward(stream, &on_x, &on_filters, Fused::default())?;
    assert_eq!(y.shape().sides(), sides[2]);
    let want = case.forward(x, filters, None, matmul::Activation::Identity);
    let limit = T::tolerance(taps * case.channels);
    compare::rounded(&what("y"), &y.to_vec::<T>(stream)?, &want.value, &want.magnitude, &sides[2], limit)?;

    let dx = op.input_gradient(stream, &on_gradient, &on_filters, [case.height.input, case.width.input])?;
    assert_eq!(dx.shape().sides(), sides[0]);
    let want = case.input_gradient(gradient, filters);
    let limit = T::tolerance(taps * case.filters);
    compare::rounded(&what("dx"), &dx.to_vec::<T>(stream)?, &want.value, &want.magnitude, &sides[0], limit)?;

    let dw = op.filter_gradient(stream, &on_x, &on_gradient, [case.height.filter, case.width.filter])?;
    assert_eq!(dw.shape().sides(), sides[1]);
    let want = case.filter_gradient(x, gradient);
    let limit = T::tolerance(sides[2][..3].iter().product());
    compare::rounded(&what("dw"), &dw.to_vec::<T>(stream)?, &want.value, &want.magnitude, &sides[1], limit)?;
    Ok(())
}

#[test]
fn results_and_gradients_agree_in_bf16() -> Outcome {
    let stream = stream()?;
    CASES.iter().enumerate().try_for_each(|(i, case)| check::<bf16>(&stream, case, Family::Normal, i as u64))
}

#[test]
fn results_and_gradients_agree_in_f16() -> Outcome {
    let stream = stream()?;
    CASES.iter().enumerate().try_for_each(|(i, case)| check::<f16>(&stream, case, Family::Uniform, i as u64))
}

#[test]
fn results_and_gradients_agree_in_f32() -> Outcome {
    let stream = stream()?;
    CASES.iter().enumerate().try_for_each(|(i, case)| check::<f32>(&stream, case, Family::Normal, i as u64))
}

#[test]
fn every_algorithm_agrees() -> Outcome {
    let stream = stream()?;
    for algorithm in Algorithm::ALL {
        let by_windows = !matches!(algorithm, Algorithm::Auto | Algorithm::Gather(_));
        if by_windows && stream.device().arch().major != 9 {
            continue;
        }
        check_by::<bf16>(&stream, &BY_WINDOWS[0], Family::Normal, 1, algorithm)?;
        if !by_windows {
            // Columns of more than one tile, and strides.
            check_by::<f16>(&stream, &CASES[1], Family::Normal, 2, algorithm)?;
            check_by::<f32>(&stream, &CASES[20], Family::Normal, 3, algorithm)?;
        }
    }
    Ok(())
}

#[test]
fn windows_of_the_copy_engine_agree() -> Outcome {
    let stream = stream()?;
    for (i, case) in BY_WINDOWS.iter().enumerate() {
        check::<bf16>(&stream, case, Family::Normal, i as u64)?;
        check::<f16>(&stream, case, Family::SmallIntegers, i as u64)?;
    }
    Ok(())
}

#[test]
fn gradients_of_few_channels_with_strides_agree() -> Outcome {
    let stream = stream()?;
    for (i, case) in FEW_CHANNELS.iter().enumerate() {
        check::<bf16>(&stream, case, Family::Normal, i as u64)?;
        check::<f16>(&stream, case, Family::SmallIntegers, i as u64)?;
        check::<f32>(&stream, case, Family::Normal, i as u64)?;
    }
    Ok(())
}

#[test]
fn inputs_gradients_by_classes_agree() -> Outcome {
    let stream = stream()?;
    let has_windows = stream.device().arch().major == 9;
    for (i, case) in BY_CLASSES.iter().enumerate() {
        for tile in [Tile::Wide, Tile::Narrow] {
            let algorithm = if has_windows { Algorithm::Windows(tile) } else { Algorithm::Gather(tile) };
            let op = Conv2d { algorithm, ..op(case) };
            // Types in turns: they differ by an instruction.
            if (i % 2 == 0) == (tile == Tile::Wide) {
                input_gradient::<bf16>(&stream, case, op, Family::Normal, i as u64)?;
            } else {
                input_gradient::<f16>(&stream, case, op, Family::SmallIntegers, i as u64)?;
            }
        }
    }
    Ok(())
}

/// The gradient of the input alone.
pub fn input_gradient<T: Tested>(
    stream: &Stream,
    case: &Conv,
    op: Conv2d,
    family: Family,
    seed: u64,
) -> Outcome {
    let sides = case.sides();
    let [_, filters, gradient] = operands::<T>(case, family, seed);
    let held = |i: usize, numbers: &[T]| Tensor::from_slice(stream, &sides[i], numbers);
    let of_input = [case.height.input, case.width.input];
    let dx = op.input_gradient(stream, &held(2, &gradient)?, &held(1, &filters)?, of_input)?;
    let want = case.input_gradient(&gradient, &filters);
    let limit = T::tolerance(case.height.filter * case.width.filter * case.filters);
    let what = format!("dx {} {:?} {case:?}", T::DTYPE, op.algorithm);
    compare::rounded(&what, &dx.to_vec::<T>(stream)?, &want.value, &want.magnitude, &sides[0], limit)?;
    Ok(())
}

#[test]
fn a_filter_for_each_channel_agrees() -> Outcome {
    let stream = stream()?;
    for (i, case) in DEPTHWISE.iter().enumerate() {
        check::<bf16>(&stream, case, Family::Normal, i as u64)?;
        check::<f16>(&stream, case, Family::SmallIntegers, i as u64)?;
        check::<f32>(&stream, case, Family::Normal, i as u64)?;
    }
    Ok(())
}

#[test]
fn groups_of_few_channels_agree() -> Outcome {
    let stream = stream()?;
    for (i, case) in GROUPED.iter().enumerate() {
        check::<bf16>(&stream, case, Family::Normal, i as u64)?;
        check::<f16>(&stream, case, Family::SmallIntegers, i as u64)?;
    }
    Ok(())
}

#[test]
fn only_kernels_of_a_filter_for_each_channel_use_all_bits_of_f32() -> Outcome {
    let stream = stream()?;
    for (case, has_all_bits) in [(DEPTHWISE[0], true), (MOST_TAPS, true), (TOO_MANY_TAPS, false)] {
        let (sides, host) = (case.sides(), operands::<f32>(&case, Family::Normal, 9));
        let [x, filters, gradient] = &host;
        let held = |i: usize| Tensor::from_slice(&stream, &sides[i], &host[i]);
        let (on_x, on_filters, on_gradient) = (held(0)?, held(1)?, held(2)?);
        let of_input = [case.height.input, case.width.input];
        let taps = case.height.filter * case.width.filter;
        let op = op(&case);
        let results = [
            (
                op.forward(&stream, &on_x, &on_filters, Fused::default())?,
                case.forward(x, filters, None, matmul::Activation::Identity),
                taps,
            ),
            (
                op.input_gradient(&stream, &on_gradient, &on_filters, of_input)?,
                case.input_gradient(gradient, filters),
                taps,
            ),
            (
                op.filter_gradient(&stream, &on_x, &on_gradient, [sides[1][1], sides[1][2]])?,
                case.filter_gradient(x, gradient),
                sides[2][..3].iter().product(),
            ),
        ];
        for (i, (got, want, terms)) in results.into_iter().enumerate() {
            let (got, sides) = (got.to_vec::<f32>(&stream)?, [sides[2], sides[0], sides[1]][i]);
            let agrees = |limit| compare::rounded("f32", &got, &want.value, &want.magnitude, &sides, limit);
            agrees(f32::tolerance(terms))?;
            // Tensor cores drop some.
            let in_all_bits = agrees(tolerance::GEMM_F32.for_terms(terms));
            assert_eq!(in_all_bits.is_ok(), has_all_bits, "result {i} of {case:?}: {in_all_bits:?}");
        }
    }
    Ok(())
}

#[test]
fn filters_gradients_end_within_a_tile() -> Outcome {
    let stream = stream()?;
    let has_windows = stream.device().arch().major == 9;
    // 136 filters, of tiles of 128, by 256 columns, of tiles of 192 or 128; the last columns of a tile are
    // those of no tap, 508 positions down.
    let case = conv([1, 1, 64, 136], [129, 2, 8, 127, 254], [17, 2, 1, 0, 1]);
    let sides = case.sides();
    let [x, _, gradient] = operands::<bf16>(&case, Family::Normal, 11);
    let (on_x, on_gradient) =
        (Tensor::from_slice(&stream, &sides[0], &x)?, Tensor::from_slice(&stream, &sides[2], &gradient)?);
    let want = case.filter_gradient(&x, &gradient);
    let limit = bf16::tolerance(sides[2][..3].iter().product());
    for tile in [Tile::Wide, Tile::Narrow] {
        let algorithm = if has_windows { Algorithm::Windows(tile) } else { Algorithm::Gather(tile) };
        let op = Conv2d { algorithm, ..op(&case) };
        let dw = op.filter_gradient(&stream, &on_x, &on_gradient, [2, 2])?.to_vec::<bf16>(&stream)?;
        compare::rounded(&format!("{tile:?}"), &dw, &want.value, &want.magnitude, &sides[1], limit)?;
    }
    Ok(())
}

#[test]
fn hostile_numbers_agree() -> Outcome {
    let stream = stream()?;
    for case in [CASES[1], CASES[10], DEPTHWISE[0], GROUPED[0]] {
        for family in [Family::SmallIntegers, Family::Cancelling, Family::Subnormal] {
            check::<bf16>(&stream, &case, family, 7)?;
        }
        check::<f32>(&stream, &case, Family::SmallIntegers, 8)?;
    }
    Ok(())
}

#[test]
fn bias_and_activation_come_last() -> Outcome {
    let stream = stream()?;
    // By the gather, with a rest of columns, as a product of matrices, and by the copy engine's windows.
    for case in [CASES[1], CASES[16], CASES[4], BY_WINDOWS[1], DEPTHWISE[2], DEPTHWISE[6], GROUPED[1]] {
        let sides = case.sides();
        let [x, filters, _] = operands::<bf16>(&case, Family::Normal, 3);
        let bias = input::<bf16>(Family::Normal, 9, sides[1][0]);
        let (on_x, on_filters) =
            (Tensor::from_slice(&stream, &sides[0], &x)?, Tensor::from_slice(&stream, &sides[1], &filters)?);
        let on_bias = Tensor::from_slice(&stream, &[bias.len()], &bias)?;
        for &activation in Activation::ALL.iter().filter(|activation| activation.columns() == 1) {
            let fused = Fused { bias: Some(&on_bias), activation };
            let y = op(&case).forward(&stream, &on_x, &on_filters, fused)?.to_vec::<bf16>(&stream)?;
            let named = matmul::Activation::named(activation.name());
            let want = case.forward(&x, &filters, Some(&bias), named);
            let what = format!("{} {case:?}", activation.name());
            let terms = case.height.filter * case.width.filter * case.channels;
            let limit = bf16::tolerance(terms);
            compare::rounded(&what, &y, &want.value, &want.magnitude, &sides[2], limit)?;
        }
    }
    Ok(())
}

#[test]
fn special_numbers_stay_in_their_windows() -> Outcome {
    let stream = stream()?;
    let others = [BY_WINDOWS[2], DEPTHWISE[0], DEPTHWISE[2]];
    let grouped = [0, 1, 2, 3, 9].map(|i| GROUPED[i]);
    let cases = [CASES[0], CASES[1], CASES[10], CASES[16]].into_iter().chain(others).chain(grouped);
    cases.chain(FEW_CHANNELS.iter().copied()).try_for_each(|case| check_special::<bf16>(&stream, case))?;
    check_special::<f16>(&stream, FEW_CHANNELS[1])?;
    check_special::<f32>(&stream, FEW_CHANNELS[0])
}

/// NaN and infinities in some places come into those results whose sums have them.
fn check_special<T: Tested>(stream: &Stream, case: Conv) -> Outcome {
    let sides = case.sides();
    let [mut x, filters, mut gradient] = operands::<T>(&case, Family::Uniform, 5);
    let places = [0, x.len() / 2 + 1, x.len() - 1];
    for (i, value) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().enumerate() {
        testkit::spot_special(&mut x, &[places[i]], value);
        testkit::spot_special(&mut gradient, &[places[i] % sides[2].iter().product::<usize>()], value);
    }
    let tensor = |i: usize, data: &[T]| Tensor::from_slice(stream, &sides[i], data);
    let (on_x, on_filters, on_gradient) = (tensor(0, &x)?, tensor(1, &filters)?, tensor(2, &gradient)?);
    let (op, of_input) = (op(&case), [case.height.input, case.width.input]);
    let y = op.forward(stream, &on_x, &on_filters, Fused::default())?;
    let dx = op.input_gradient(stream, &on_gradient, &on_filters, of_input)?;
    let dw = op.filter_gradient(stream, &on_x, &on_gradient, [sides[1][1], sides[1][2]])?;
    let wanted = [
        ("y", y, case.forward(&x, &filters, None, matmul::Activation::Identity).value),
        ("dx", dx, case.input_gradient(&gradient, &filters).value),
        ("dw", dw, case.filter_gradient(&x, &gradient).value),
    ];
    for (name, got, want) in wanted {
        let got = got.to_vec::<T>(stream)?;
        assert!(name == "dw" || got.iter().any(|v| v.to_f64().is_finite()), "{name}: {case:?}");
        for (at, (got, want)) in got.iter().zip(&want).enumerate() {
            let got = got.to_f64();
            assert_eq!(got.is_nan(), want.is_nan(), "{name}[{at}] {case:?}: {got} {want}");
            assert_eq!(got.is_finite(), want.is_finite(), "{name}[{at}] {case:?}: {got} {want}");
        }
    }
    Ok(())
}

#[test]
fn nothing_gives_nothing_and_no_channels_the_bias() -> Outcome {
    let stream = stream()?;
    let op = Conv2d { padding: [1, 1], ..Conv2d::default() };
    let tensor = |sides: &[usize]| Tensor::zeros(&stream, sides, DType::BF16);
    let (none, filters) = (tensor(&[0, 5, 5, 8])?, tensor(&[16, 3, 3, 8])?);
    let y = op.forward(&stream, &none, &filters, Fused::default())?;
    assert_eq!(y.shape().sides(), [0, 5, 5, 16]);
    assert_eq!(op.input_gradient(&stream, &y, &filters, [5, 5])?.shape().sides(), [0, 5, 5, 8]);
    let dw = op.filter_gradient(&stream, &none, &y, [3, 3])?;
    assert!(dw.to_vec::<bf16>(&stream)?.iter().all(|&v| v == bf16::ZERO));
    // Without filters or channels there is nothing to sum.
    assert_eq!(
        op.forward(&stream, &tensor(&[2, 5, 5, 8])?, &tensor(&[0, 3, 3, 8])?, Fused::default())?.elements(),
        0
    );
    let bias = Tensor::from_slice(&stream, &[2], &[1.5, -2.0].map(bf16::from_f32))?;
    let fused = Fused { bias: Some(&bias), activation: Activation::None };
    let y = op.forward(&stream, &tensor(&[1, 2, 2, 0])?, &tensor(&[2, 3, 3, 0])?, fused)?;
    let want = [1.5, -2.0, 1.5, -2.0, 1.5, -2.0, 1.5, -2.0].map(bf16::from_f32);
    assert_eq!(y.to_vec::<bf16>(&stream)?, want);
    // An image without positions, of which padding makes one.
    let y = op.forward(&stream, &tensor(&[1, 1, 1, 8])?, &filters, Fused::default())?;
    assert_eq!(y.shape().sides(), [1, 1, 1, 16]);
    let op = Conv2d { padding: [2, 2], ..Conv2d::default() };
    let y = op.forward(&stream, &tensor(&[1, 0, 0, 8])?, &filters, Fused::default())?;
    assert_eq!(y.shape().sides(), [1, 2, 2, 16]);
    assert!(y.to_vec::<bf16>(&stream)?.iter().all(|&v| v == bf16::ZERO));
    // So many channels that windows of the copy engine would be faster.
    let y = op.forward(&stream, &tensor(&[1, 0, 0, 512])?, &tensor(&[64, 3, 3, 512])?, Fused::default())?;
    assert_eq!(y.to_vec::<bf16>(&stream)?, [bf16::ZERO; 4 * 64]);
    Ok(())
}

#[test]
fn the_same_bits_in_every_run_and_from_every_layout() -> Outcome {
    let stream = stream()?;
    let runs = if stream.device().is_software() { 3 } else { 100 };
    [CASES[1], DEPTHWISE[0], GROUPED[0]].iter().try_for_each(|case| same_bits(&stream, case, runs))
}

fn same_bits(stream: &Stream, case: &Conv, runs: u32) -> Outcome {
    let sides = case.sides();
    let host = operands::<bf16>(case, Family::HugeTiny, 1);
    let results = |turned: bool| -> Result<Vec<Vec<bf16>>, Box<dyn StdError>> {
        let tensor = |i: usize| -> Result<Tensor, Error> {
            let tensor = Tensor::from_slice(stream, &sides[i], &host[i])?;
            if !turned {
                return Ok(tensor);
            }
            // The same elements, with the channels outermost in memory.
            let outside = tensor.permute(&[3, 0, 1, 2])?.to_vec::<bf16>(stream)?;
            let [a, b, c, d] = sides[i];
            Tensor::from_slice(stream, &[d, a, b, c], &outside)?.permute(&[1, 2, 3, 0])
        };
        let (x, filters, gradient) = (tensor(0)?, tensor(1)?, tensor(2)?);
        let op = op(case);
        let of_input = [case.height.input, case.width.input];
        Ok(vec![
            op.forward(stream, &x, &filters, Fused::default())?.to_vec::<bf16>(stream)?,
            op.input_gradient(stream, &gradient, &filters, of_input)?.to_vec::<bf16>(stream)?,
            op.filter_gradient(stream, &x, &gradient, [sides[1][1], sides[1][2]])?.to_vec::<bf16>(stream)?,
        ])
    };
    let first = results(false)?;
    for run in 0..runs {
        for (got, want) in results(run % 2 == 0)?.iter().zip(&first) {
            compare::bitwise_equal("again", got, want)?;
        }
    }
    Ok(())
}

#[test]
fn methods_take_torch_shapes() -> Outcome {
    let stream = stream()?;
    let case = CASES[1];
    let sides = case.sides();
    let [x, filters, _] = operands::<bf16>(&case, Family::Normal, 4);
    let (on_x, on_filters) =
        (Tensor::from_slice(&stream, &sides[0], &x)?, Tensor::from_slice(&stream, &sides[1], &filters)?);
    let want = op(&case).forward(&stream, &on_x, &on_filters, Fused::default())?.to_vec::<bf16>(&stream)?;
    let (x, weight) = (on_x.permute(&[0, 3, 1, 2])?, on_filters.permute(&[0, 3, 1, 2])?);
    for (x, weight) in [(x.clone(), weight.clone()), (x.contiguous()?, weight.contiguous()?)] {
        let y = x.conv2d(&weight, None, op(&case))?;
        assert_eq!(y.shape().sides(), [sides[2][0], sides[2][3], sides[2][1], sides[2][2]]);
        let y = y.permute(&[0, 2, 3, 1])?;
        assert!(y.is_contiguous());
        compare::bitwise_equal("conv2d", &y.to_vec::<bf16>(&stream)?, &want)?;
    }
    // [1, 2, 6] by [3, 2, 2] with a bias: small integers, by hand.
    let whole = |sides: &[usize], numbers: &[i8]| {
        let numbers: Vec<bf16> = numbers.iter().map(|&number| bf16::from_f32(number.into())).collect();
        Tensor::from_slice(&stream, sides, &numbers)
    };
    let x = whole(&[1, 2, 6], &[1, 2, 3, 4, 5, 6, 0, 1, 0, 1, 0, 1])?;
    let weight = whole(&[3, 2, 2], &[1, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1])?;
    let conv = Conv2d { stride: [1, 2], padding: [0, 1], ..Conv2d::default() };
    let y = x.conv1d(&weight, Some(&whole(&[3], &[0, 10, -1])?), conv)?;
    assert_eq!(y.shape().sides(), [1, 3, 4]);
    let want = [0, 2, 4, 6, 11, 14, 16, 11, 0, 5, 9, 6].map(|number: i8| bf16::from_f32(number.into()));
    assert_eq!(y.contiguous()?.to_vec::<bf16>(&stream)?, want);
    let error = x.conv1d(&weight, None, Conv2d { padding: [1, 1], ..conv }).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "padding", .. }), "{error}");
    assert!(
        x.conv2d(&weight, None, conv).unwrap_err().to_string().contains("[images, channels, height, width]")
    );
    Ok(())
}
