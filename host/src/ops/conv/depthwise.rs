//! Convolutions of groups of one channel and one filter, by [`conv::depthwise`].

use conv::depthwise::weight::{DepthwiseWeights, SHARED_BYTES};
use conv::depthwise::{Depthwise, MOST_TAPS, THREADS};
use conv::gather::Gather;
use conv::problem::Pass;

use crate::error::Result;
use crate::launch::LaunchConfig;
use crate::memory::DeviceBuffer;
use crate::ops::elementwise::{contiguous, made};
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor, TensorMut};

use super::check::Problem;
use super::operand::{Kernels, aligned};
use super::weight::{MAX_PARTS, add_parts, parts_of};
use super::{Activation, Algorithm, Fused, launched, sliding};
use crate::config::MAX_BLOCKS;

/// Strips that a thread computes, one after the other: so many share what a block brings of the filters.
const STRIPS: u64 = 4;
/// Bytes side by side of a position that a block reads, from the least that fill sectors on.
const SLAB_BYTES: std::ops::RangeInclusive<usize> = 64..=256;

/// Whether these kernels compute it.
pub(super) fn computes(algorithm: Algorithm, problem: &Problem) -> bool {
    let shape = &problem.shape;
    let taps = u64::from(shape.height.filter) * u64::from(shape.width.filter);
    let has_elements = [problem.x, problem.y].iter().all(|sides| sides.iter().all(|&side| side > 0));
    algorithm == Algorithm::Auto
        && shape.channels == 1
        && shape.filters == 1
        && taps <= MOST_TAPS.into()
        && shape.height.classes() * shape.width.classes() <= MAX_BLOCKS
        && has_elements
}

/// Units side by side of a block of so many threads: those that leave the fewest threads without work.
pub(super) fn units(channels: u32, unit: u32, element_bytes: usize, threads: u32) -> u32 {
    let [least, most] = [SLAB_BYTES.start(), SLAB_BYTES.end()]
        .map(|bytes| (bytes / (unit as usize * element_bytes)).min(channels.div_ceil(unit) as usize) as u32);
    let busy = |&units: &u32| {
        let of_channels = f64::from(channels) / f64::from(channels.next_multiple_of(units * unit));
        (of_channels * f64::from(threads / units * units) * 1e6) as u64
    };
    (least.max(1)..=most.max(1)).max_by_key(busy).unwrap_or(1)
}

/// How it is cut, of operands that lie dense at whole units of 16 bytes.
fn cut<T: Kernels>(gather: Gather) -> Depthwise {
    let channels = gather.problem.groups;
    let unit = if (channels as usize).is_multiple_of(T::UNIT) { T::UNIT as u32 } else { 1 };
    Depthwise { gather, units: units(channels, unit, size_of::<T>(), THREADS), unit }
}

fn of(problem: &Problem, pass: Pass, fused: &Fused<'_>) -> Gather {
    Gather {
        problem: problem.shape,
        columns: 1,
        pass: pass as u32,
        activation: fused.activation as u32,
        has_bias: fused.bias.is_some().into(),
    }
}

#[track_caller]
pub(super) fn forward<T: Kernels>(
    stream: &Stream,
    problem: &Problem,
    x: &Tensor,
    filters: &Tensor,
    fused: Fused<'_>,
) -> Result<Tensor> {
    let shape = Shape::of("Conv2d::forward", &problem.y)?;
    let bias = fused.bias.map(|bias| contiguous(stream, bias)).transpose()?;
    let gather = of(problem, Pass::Forward, &fused);
    made(stream, &shape, x.dtype(), |out| run::<T>(stream, gather, [x, filters], bias.as_ref(), out))
}

#[track_caller]
pub(super) fn input_gradient<T: Kernels>(
    stream: &Stream,
    problem: &Problem,
    gradient: &Tensor,
    filters: &Tensor,
) -> Result<Tensor> {
    let shape = Shape::of("Conv2d::input_gradient", &problem.x)?;
    let plain = Fused { bias: None, activation: Activation::None };
    let gather = of(problem, Pass::Backward, &plain);
    made(stream, &shape, gradient.dtype(), |out| run::<T>(stream, gather, [gradient, filters], None, out))
}

fn run<T: Kernels>(
    stream: &Stream,
    gather: Gather,
    [read, filters]: [&Tensor; 2],
    bias: Option<&Tensor>,
    out: TensorMut<'_>,
) -> Result<()> {
    let (read, filters) = (aligned(stream, read)?, contiguous(stream, filters)?);
    if let Some(plan) = sliding::Plan::new(stream, T::DTYPE, gather) {
        return plan.forward(stream, [&read, &filters], bias, out);
    }
    let depthwise = cut::<T>(gather);
    let [down, across] = gather.classes();
    let rows = depthwise.strips().div_ceil(u64::from(depthwise.lines()) * STRIPS).clamp(1, MAX_BLOCKS.into());
    let config = LaunchConfig::new([depthwise.slabs(), rows as u32, down * across], [THREADS, 1, 1])
        .with_shared(depthwise.shared_bytes());
    // SAFETY: the operands have the sides that the problem says, and elements; what is read lies at whole
    // units where channels are some, as does the result, which was just made; the bias has a number for each
    // channel; grid, block and shared memory are the kernel's.
    unsafe {
        launched::gathers::<_, T, T::Depthwise>(stream, config, depthwise, [&read, &filters], bias, out)
    }
}

#[track_caller]
pub(super) fn filter_gradient<T: Kernels>(
    stream: &Stream,
    problem: &Problem,
    x: &Tensor,
    gradient: &Tensor,
) -> Result<Tensor> {
    let shape = Shape::of("Conv2d::filter_gradient", &problem.filters)?;
    let (x, gradient) = (aligned(stream, x)?, aligned(stream, gradient)?);
    let gather = of(problem, Pass::Forward, &Fused::default());
    if let Some(plan) = sliding::Plan::new(stream, T::DTYPE, gather) {
        return made(stream, &shape, x.dtype(), |out| {
            let (sums, parts) = plan.filter_gradient(stream, [&x, &gradient])?;
            add_parts::<T>(stream, parts_of::<T>(problem, &problem.shape, parts), &sums, None, out)
        });
    }
    let depthwise = cut::<T>(gather);
    let whole = DepthwiseWeights { depthwise, part: 1 };
    let strips = depthwise.strips() as u32;
    // As many blocks as run at once, one a multiprocessor: a block more would double the time. And no part
    // without work for a block.
    let others = u64::from(depthwise.slabs()) * u64::from(whole.squares());
    let blocks = (u64::from(stream.device().properties().sm_count) / others) as u32;
    let parts = blocks.min(MAX_PARTS).min(strips.div_ceil(depthwise.lines())).max(1);
    let weights = DepthwiseWeights { part: strips.div_ceil(parts), ..whole };
    let count = (weights.sums() as usize).saturating_mul(weights.parts() as usize);
    made(stream, &shape, x.dtype(), |out| {
        // SAFETY: the first launch writes all of it, the second reads it.
        let sums = unsafe { DeviceBuffer::<f32>::uninit(stream, count)? };
        let grid = [depthwise.slabs(), weights.parts(), weights.squares()];
        let config = LaunchConfig::new(grid, [THREADS, 1, 1]).with_shared(SHARED_BYTES);
        // SAFETY: the operands have the sides that the problem says, and elements, and lie at whole units
        // where channels are some; the sums are as long as their parts; grid, block and shared memory are the
        // kernel's.
        unsafe {
            launched::sums::<_, T, T::DepthwiseWeight>(stream, config, weights, [&x, &gradient], &sums)?;
        }
        add_parts::<T>(stream, parts_of::<T>(problem, &problem.shape, weights.parts()), &sums, None, out)
    })
}
