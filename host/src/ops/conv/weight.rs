//! Filters' gradients, by [`conv::weight`].

use conv::problem::Convolution;
use conv::weight::{POSITIONS, Parts, SUM_SHARED_BYTES, SUM_THREADS, Tile, Weights, conv_sum_parts};
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::DeviceBuffer;
use crate::ops::elementwise::made;
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor, TensorError, TensorMut};

use super::check::Problem;
use super::operand::{Kernels, in_units};
use super::windows::{self, Target};
use super::{Algorithm, launched};

/// Parts of the positions, at most.
pub(super) const MAX_PARTS: u32 = 512;
/// Microseconds of a piece of [`POSITIONS`] positions of a block with 128 filters, when two share a
/// multiprocessor, and of one with 64 (H200, of 35 drawn at random).
const TILES: [(Tile, f64); 2] = [(Tile::Tall, 1.75), (Tile::Flat, 1.08)];
/// Microseconds that a byte of the sums takes to memory and back, and the launch that adds them.
const BYTE_US: f64 = 2.0 / 4e6;
const ADD_US: f64 = 3.0;

#[track_caller]
pub(super) fn filter_gradient<T: Kernels>(
    stream: &Stream,
    algorithm: Algorithm,
    problem: &Problem,
    x: &Tensor,
    gradient: &Tensor,
) -> Result<Tensor> {
    let operation = "Conv2d::filter_gradient";
    let groups = problem.shape.groups as usize;
    let (x, gradient) = (in_units::<T>(stream, x, groups)?, in_units::<T>(stream, gradient, groups)?);
    let shape = Shape::of(operation, &problem.filters)?;
    if problem.shape.outputs() == 0 || shape.elements() == 0 {
        stream.same_device("x", x.device())?;
        stream.same_device("the gradient", gradient.device())?;
        return Tensor::zeros(stream, &problem.filters, x.dtype());
    }
    if u32::try_from(shape.elements()).is_err() {
        return Err(TensorError::TooLarge { operation, shape: problem.filters.to_vec() }.into());
    }
    made(stream, &shape, x.dtype(), |out| {
        let [channels, filters] =
            [problem.shape.channels, problem.shape.filters].map(|side| side.next_multiple_of(T::UNIT as u32));
        let padded = Convolution { channels, filters, ..problem.shape };
        let tiles: &[(Tile, f64)] = match algorithm {
            Algorithm::Gather(super::Tile::Wide) => &TILES[..1],
            Algorithm::Gather(super::Tile::Narrow) => &TILES[1..],
            _ => &TILES,
        };
        let plan = Plan::new(padded, tiles, stream.device().properties().sm_count);
        let windows = windows::kernels(T::DTYPE).and_then(|kernels| {
            let parts = windows::Parts::new(stream, padded, algorithm, kernels, add_us, MAX_PARTS)?;
            Some((kernels, parts))
        });
        let by_windows = match algorithm {
            Algorithm::Auto => windows.filter(|(_, parts)| parts.time_us < plan.time_us),
            Algorithm::Gather(_) => None,
            _ => Some(windows.ok_or_else(|| algorithm.refused(operation))?),
        };
        let operands = [&x, &gradient];
        if let Some((kernels, parts)) = by_windows
            && parts.count() == 1
            && parts.summed() == problem.shape
        {
            let target = Target::Result(out.into_view::<T>()?.bytes());
            return parts.run(stream, kernels, operands, target);
        }
        let (of_part, parts) =
            by_windows.map_or((padded, plan.weights.parts()), |(_, parts)| (parts.summed(), parts.count()));
        let sums = Weights { problem: of_part, part: POSITIONS }.sums();
        let count = (sums as usize).saturating_mul(parts as usize);
        // SAFETY: the first launch writes all of it, the second reads it.
        let sums = unsafe { DeviceBuffer::<f32>::uninit(stream, count)? };
        match (by_windows, plan.tile) {
            (Some((kernels, parts)), _) => parts.run(stream, kernels, operands, Target::Sums(&sums))?,
            (None, Tile::Tall) => sum::<T, T::Tall>(stream, &plan, operands, &sums)?,
            (None, Tile::Flat) => sum::<T, T::Flat>(stream, &plan, operands, &sums)?,
        }
        add_parts::<T>(stream, parts_of::<T>(problem, &of_part, parts), &sums, None, out)
    })
}

/// Microseconds until so many bytes of sums are written, read and added.
pub(super) fn add_us(bytes: f64) -> f64 {
    bytes * BYTE_US + ADD_US
}

/// How the sums are cut.
struct Plan {
    tile: Tile,
    weights: Weights,
    /// Estimated microseconds.
    time_us: f64,
}

impl Plan {
    /// The tile of these and the parts that are estimated to take the least time on so many multiprocessors.
    fn new(problem: Convolution, tiles: &[(Tile, f64)], multiprocessors: u32) -> Self {
        let resident = 2 * u64::from(multiprocessors.max(1));
        let positions = problem.outputs();
        let weights = Weights { problem, part: POSITIONS };
        let mut best = Self { tile: Tile::Tall, weights, time_us: f64::INFINITY };
        for &(tile, piece_us) in tiles {
            for count in 1..=MAX_PARTS.min(positions.div_ceil(POSITIONS)) {
                let part = positions.div_ceil(count).next_multiple_of(POSITIONS);
                let weights = Weights { problem, part };
                let parts = u64::from(weights.parts());
                let waves = (weights.blocks(tile) * u64::from(problem.groups) * parts).div_ceil(resident);
                let pieces = waves * u64::from(part / POSITIONS);
                let bytes = (parts * weights.sums()) as f64 * size_of::<f32>() as f64;
                let time_us = pieces as f64 * piece_us + add_us(bytes);
                if time_us < best.time_us {
                    best = Self { tile, weights, time_us };
                }
            }
        }
        best
    }
}

fn sum<T: Kernels, K>(
    stream: &Stream,
    &Plan { tile, weights, .. }: &Plan,
    operands: [&Tensor; 2],
    sums: &DeviceBuffer<f32>,
) -> Result<()>
where
    K: Kernel<Params = (Value<Weights>, Ptr<T>, Ptr<T>, PtrMut<f32>)>,
{
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(weights.blocks(tile)).unwrap_or(u32::MAX);
    let grid = [blocks, weights.parts(), weights.problem.groups.min(u16::MAX.into())];
    let config = LaunchConfig::new(grid, [Tile::THREADS, 1, 1]).with_shared(tile.shared_bytes());
    // SAFETY: the operands have the sides that the problem says, in whole units, aligned; the sums are as
    // long as their parts; grid, block and shared memory are the kernel's.
    unsafe { launched::sums::<_, T, K>(stream, config, weights, operands, sums) }
}

/// The parts of a problem's sums, of channels and filters as `of_part` has them.
pub(super) fn parts_of<T: Kernels>(problem: &Problem, of_part: &Convolution, parts: u32) -> Parts {
    let of_result = problem.shape;
    Parts {
        sums: Weights { problem: *of_part, part: POSITIONS }.sums(),
        parts,
        stored: T::STORED as u32,
        activation: super::Activation::None as u32,
        groups: of_result.groups,
        filters: [of_result.filters, of_part.filters],
        taps: of_result.height.filter * of_result.width.filter,
        channels: [of_result.channels, of_part.channels],
    }
}

pub(super) fn add_parts<T: Kernels>(
    stream: &Stream,
    parts: Parts,
    sums: &DeviceBuffer<f32>,
    bias: Option<&Tensor>,
    out: TensorMut<'_>,
) -> Result<()> {
    let blocks = parts.blocks() as u32;
    let config = LaunchConfig::new([blocks, 1, 1], [SUM_THREADS, 1, 1])
        .with_shared(SUM_SHARED_BYTES)
        .overlapping_previous();
    let (out, bias) = (out.write::<u8>(stream)?, bias.map(Tensor::span_bytes).transpose()?);
    // SAFETY: the sums have all parts; the bias has a number for each channel; the result has those elements
    // of that type, fewer than 2^32, and is exclusively borrowed; all begin at whole vectors; grid, block and
    // shared memory are the kernel's.
    unsafe { launch::<conv_sum_parts>(stream, config, (parts, sums.view().within(), bias, out)) }
}
