//! Convolutions: every kernel, by the algorithms that ask for them. Pooling.

use super::{Outcome, Stop};
use half::{bf16, f16};
use ironwarp::bytemuck::{self, Pod};
use ironwarp::ops::conv::{Activation, Algorithm, Conv2d, Fused, Tile};
use ironwarp::ops::pool::Pool2d;
use ironwarp::tensor::Element;
use ironwarp::{Stream, Tensor};
use testkit::{Family, input};

/// Images that windows can be read of, and filters: several tiles of rows, rests of rows and columns.
const X: [usize; 4] = [1, 33, 32, 64];
const FILTERS: [usize; 4] = [72, 3, 1, 64];

pub fn stops() -> Vec<Stop> {
    let mut stops = Vec::new();
    for algorithm in Algorithm::ALL {
        stops.push(stop::<bf16>(algorithm));
        stops.push(stop::<f16>(algorithm));
        if matches!(algorithm, Algorithm::Gather(_)) {
            stops.push(stop::<f32>(algorithm));
        }
    }
    // Units of channels, and channels one by one.
    for channels in [16, 3] {
        stops.push(in_groups::<bf16>([channels, 1], [3, 4]));
        stops.push(in_groups::<f16>([channels, 1], [3, 4]));
        stops.push(in_groups::<f32>([channels, 1], [3, 4]));
        stops.push(pool::<bf16>(channels));
        stops.push(pool::<f16>(channels));
        stops.push(pool::<f32>(channels));
    }
    // Filters that slide.
    for taps in [3, 5, 7] {
        stops.push(in_groups::<bf16>([16, 1], [taps; 2]));
        stops.push(in_groups::<f16>([16, 1], [taps; 2]));
    }
    // Groups of few channels, in slabs of 64 and 16, of which channels leave a part.
    for groups in [[36, 2], [20, 4], [1, 8], [3, 16]] {
        stops.push(in_groups::<bf16>(groups, [3, 3]));
        stops.push(in_groups::<f16>(groups, [3, 3]));
    }
    for channels in [16, 24] {
        for algorithm in [Algorithm::TallWindows, Algorithm::Windows(Tile::Wide)] {
            stops.push(several_taps::<bf16>(channels, algorithm));
            stops.push(several_taps::<f16>(channels, algorithm));
        }
    }
    stops.push(few_channels::<bf16>());
    stops.push(few_channels::<f16>());
    stops.push(few_channels::<f32>());
    stops
}

/// Results by stages of several taps.
fn several_taps<T: Element + testkit::Element + Pod>(channels: usize, algorithm: Algorithm) -> Stop {
    Stop::new(format!("several taps of {channels} channels, {}, {algorithm:?}", T::DTYPE), move |stream| {
        if stream.device().arch().major != 9 {
            return Ok(Vec::new());
        }
        let upload = |seed: u64, sides: &[usize]| {
            Tensor::from_slice(stream, sides, &input::<T>(Family::Normal, seed, sides.iter().product()))
        };
        let (x, filters) = (upload(1, &[2, 53, 54, channels])?, upload(2, &[40, 3, 1, channels])?);
        let conv = Conv2d { padding: [1, 0], stride: [2, 1], algorithm, ..Conv2d::default() };
        let y = conv.forward(stream, &x, &filters, Fused::default())?;
        Ok(bytemuck::cast_slice(&y.to_vec::<T>(stream)?).to_vec())
    })
}

/// The input's gradient with strides, of a stem.
fn few_channels<T: Element + testkit::Element + Pod>() -> Stop {
    Stop::new(format!("3 channels by 2, {}", T::DTYPE), |stream| {
        let upload = |seed: u64, sides: &[usize]| {
            Tensor::from_slice(stream, sides, &input::<T>(Family::Normal, seed, sides.iter().product()))
        };
        let (gradient, filters) = (upload(1, &[2, 9, 7, 8])?, upload(2, &[8, 7, 5, 3])?);
        let conv = Conv2d { padding: [3, 2], stride: [2; 2], ..Conv2d::default() };
        let dx = conv.input_gradient(stream, &gradient, &filters, [18, 14])?;
        Ok(bytemuck::cast_slice(&dx.to_vec::<T>(stream)?).to_vec())
    })
}

fn pool<T: Element + testkit::Element + Pod>(channels: usize) -> Stop {
    Stop::new(format!("pooling, {}, {channels} channels", T::DTYPE), move |stream| {
        let sides = [2, 9, 11, channels];
        let x = input::<T>(Family::Normal, 4, sides.iter().product());
        let x = Tensor::from_slice(stream, &sides, &x)?;
        let op = Pool2d { stride: [2, 1], padding: [1, 1], ..Pool2d::new([3, 3]) };
        let (y, places) = op.max(stream, &x)?;
        let dx = op.max_gradient(stream, &y, &places, [9, 11])?;
        let mean = op.average(stream, &x, false)?;
        let of_mean = op.average_gradient(stream, &mean, [9, 11], false)?;
        let mut bytes = bytemuck::cast_slice(&places.to_vec::<i32>(stream)?).to_vec();
        for tensor in [y, dx, mean, of_mean] {
            bytes.extend_from_slice(bytemuck::cast_slice(&tensor.to_vec::<T>(stream)?));
        }
        Ok(bytes)
    })
}

/// Groups of so many channels and filters, with strides and without: of one, taps three at a time and one by
/// one.
fn in_groups<T: Element + testkit::Element + Pod>([groups, of_group]: [usize; 2], taps: [usize; 2]) -> Stop {
    let what = format!("{groups} groups of {of_group} channels, {}, {taps:?} taps", T::DTYPE);
    Stop::new(what, move |stream| {
        let channels = groups * of_group;
        let sides = [[2, 9, 11, channels], [channels, taps[0], taps[1], of_group]];
        let upload = |seed: u64, sides: &[usize]| {
            Tensor::from_slice(stream, sides, &input::<T>(Family::Normal, seed, sides.iter().product()))
        };
        let (x, filters, bias) = (upload(1, &sides[0])?, upload(2, &sides[1])?, upload(3, &[channels])?);
        let mut bytes = Vec::new();
        for stride in [1, 2] {
            let conv = Conv2d { padding: [1, 2], stride: [stride; 2], groups, ..Conv2d::default() };
            let fused = Fused { bias: Some(&bias), activation: Activation::Silu };
            let y = conv.forward(stream, &x, &filters, fused)?;
            let dx = conv.input_gradient(stream, &y, &filters, [9, 11])?;
            let dw = conv.filter_gradient(stream, &x, &y, taps)?;
            for tensor in [y, dx, dw] {
                bytes.extend_from_slice(bytemuck::cast_slice(&tensor.to_vec::<T>(stream)?));
            }
        }
        Ok(bytes)
    })
}

fn stop<T: Element + testkit::Element + Pod>(algorithm: Algorithm) -> Stop {
    Stop::new(format!("convolution and gradients, {}, {algorithm:?}", T::DTYPE), move |stream| {
        all::<T>(stream, algorithm)
    })
}

/// A result with bias and activation, and both gradients.
fn all<T: Element + testkit::Element + Pod>(stream: &Stream, algorithm: Algorithm) -> Outcome<Vec<u8>> {
    // Windows need compute capability 9.0, and are left out elsewhere.
    let has_windows = stream.device().arch().major == 9;
    if matches!(algorithm, Algorithm::Windows(_)) && !has_windows {
        return Ok(Vec::new());
    }
    let upload = |seed: u64, sides: &[usize]| {
        Tensor::from_slice(stream, sides, &input::<T>(Family::Normal, seed, sides.iter().product()))
    };
    let (x, filters, bias) = (upload(1, &X)?, upload(2, &FILTERS)?, upload(3, &FILTERS[..1])?);
    let conv = Conv2d { padding: [1, 0], algorithm, ..Conv2d::default() };
    let y = conv.forward(stream, &x, &filters, Fused { bias: Some(&bias), activation: Activation::Silu })?;
    let dx = conv.input_gradient(stream, &y, &filters, [X[1], X[2]])?;
    let dw = conv.filter_gradient(stream, &x, &y, [FILTERS[1], FILTERS[2]])?;
    let mut bytes = Vec::new();
    for tensor in [y, dx, dw] {
        bytes.extend_from_slice(bytemuck::cast_slice(&tensor.to_vec::<T>(stream)?));
    }
    Ok(bytes)
}
