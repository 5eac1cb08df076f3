//! Results and inputs' gradients, by [`conv::gather`].

use conv::gather::{Gather, Tile};
use conv::problem::{Convolution, Pass};
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};

use crate::error::Result;
use crate::launch::LaunchConfig;
use crate::memory::DeviceBuffer;
use crate::ops::elementwise::{contiguous, made};
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor, TensorError, TensorMut};

use super::check::{Problem, fits};
use super::depth_to_space::DepthToSpace;
use super::operand::{Kernels, filters_in_units, in_units};
use super::turned::Turned;
use super::weight::add_parts;
use super::windows::Target;
use super::{Algorithm, Fused};
use super::{classes, launched, windows};
use crate::config::MAX_BLOCKS;

#[track_caller]
pub(super) fn forward<T: Kernels>(
    stream: &Stream,
    algorithm: Algorithm,
    problem: &Problem,
    x: &Tensor,
    filters: &Tensor,
    fused: Fused<'_>,
) -> Result<Tensor> {
    let groups = problem.shape.groups as usize;
    let (x, filters) = (in_units::<T>(stream, x, groups)?, in_units::<T>(stream, filters, 1)?);
    let bias = fused.bias.map(|bias| contiguous(stream, bias)).transpose()?;
    let channels = problem.shape.channels.next_multiple_of(T::UNIT as u32);
    let gather = Gather {
        problem: Convolution { channels, ..problem.shape },
        columns: problem.shape.filters,
        pass: Pass::Forward as u32,
        activation: fused.activation as u32,
        has_bias: bias.is_some().into(),
    };
    let shape = Shape::of("Conv2d::forward", &problem.y)?;
    made(stream, &shape, x.dtype(), |out| {
        run::<T>(stream, algorithm, gather, [&x, &filters], bias.as_ref(), out)
    })
}

#[track_caller]
pub(super) fn input_gradient<T: Kernels>(
    stream: &Stream,
    algorithm: Algorithm,
    problem: &Problem,
    gradient: &Tensor,
    filters: &Tensor,
) -> Result<Tensor> {
    if let Some(by_classes) = DepthToSpace::new(algorithm, problem) {
        let padded = by_classes.filters(stream, filters, T::DTYPE)?;
        let mut side_by_side =
            input_gradient::<T>(stream, algorithm, &by_classes.problem, gradient, &padded)?;
        by_classes.mend::<T>(stream, problem, [gradient, filters], &mut side_by_side)?;
        return by_classes.to_space(stream, &side_by_side);
    }
    let groups = problem.shape.groups as usize;
    let gradient = in_units::<T>(stream, gradient, groups)?;
    let filters = filters_in_units::<T>(stream, filters, groups)?;
    let [channels, of_group] =
        [problem.shape.channels, problem.shape.filters].map(|side| side.next_multiple_of(T::UNIT as u32));
    let gather = Gather {
        problem: Convolution { channels, filters: of_group, ..problem.shape },
        columns: problem.shape.channels,
        pass: Pass::Backward as u32,
        activation: super::Activation::None as u32,
        has_bias: 0,
    };
    if let Some(turned) = Turned::new::<T>(stream, algorithm, &gather) {
        return turned.run::<T>(stream, problem, [&gradient, &filters]);
    }
    let (operation, [down, across]) = ("Conv2d::input_gradient", gather.classes());
    if !fits(&[down as usize, across as usize, groups]) {
        return Err(TensorError::TooLarge { operation, shape: problem.x.to_vec() }.into());
    }
    let shape = Shape::of(operation, &problem.x)?;
    made(stream, &shape, gradient.dtype(), |out| {
        run::<T>(stream, algorithm, gather, [&gradient, &filters], None, out)
    })
}

/// Microseconds of a block of a gather, and of an element of k, where few blocks run (H200).
const TILE_US: f64 = 4.2;
const STEP_US: f64 = 0.014;
/// Where multiprocessors have two blocks, this many times as long: 57.2 us for 81 x 45 x 45 x 16 to 88,
/// 66.4 for 10 x 86 x 86 x 24 to 216, 77.8 for 3 x 157 x 157 x 16 to 376, 3 x 3 (H200).
const SHARED: f64 = 1.8;
/// Microseconds until a small tensor has room to be read by windows, or filters have channels of zeros: two
/// small launches. Not timed alone.
const ROOM_US: f64 = 4.0;

/// Microseconds of the copies that windows want.
pub(super) fn copies_us(pass: &windows::Pass) -> f64 {
    [!pass.is_large(), pass.pads()].map(|copies| if copies { ROOM_US } else { 0.0 }).iter().sum()
}

/// A pass that the copy engine can feed, and its kernels.
enum ByWindows {
    Forward(&'static windows::WindowKernels, windows::Pass),
    Backward([classes::ClassKernel; 2], classes::ByClasses),
}

impl ByWindows {
    fn new<T: Kernels>(stream: &Stream, algorithm: Algorithm, gather: &Gather) -> Option<Self> {
        if gather.pass == Pass::Forward as u32 {
            let (kernels, pass) = (windows::kernels(T::DTYPE)?, windows::Pass::new(stream, gather.problem)?);
            let is_faster = || {
                let cut = pass.cut(stream, kernels, Algorithm::Auto);
                algorithm == Algorithm::Auto && copies_us(&pass) + cut.time_us < time_us(stream, gather)
            };
            let is_asked_for = algorithm != Algorithm::Auto && pass.is_large();
            (is_asked_for || pass.is_large() && !pass.pads() || is_faster())
                .then_some(Self::Forward(kernels, pass))
        } else {
            let classes = classes::ByClasses::new(stream, gather.problem, gather.columns)?;
            Some(Self::Backward(classes::kernels(T::DTYPE)?, classes))
        }
    }
}

fn run<T: Kernels>(
    stream: &Stream,
    algorithm: Algorithm,
    gather: Gather,
    operands: [&Tensor; 2],
    bias: Option<&Tensor>,
    out: TensorMut<'_>,
) -> Result<()> {
    if out.shape().elements() == 0 {
        return operands.iter().try_for_each(|operand| stream.same_device("an operand", operand.device()));
    }
    let takes_windows = |asked: Algorithm| asked == Algorithm::Auto || asked.is_by_windows();
    let tile = match (algorithm, ByWindows::new::<T>(stream, algorithm, &gather)) {
        (asked, Some(ByWindows::Forward(kernels, pass))) if takes_windows(asked) => {
            let fused = (bias, super::Activation::from_code(gather.activation));
            return by_windows::<T>(stream, kernels, (pass, algorithm), operands, fused, out);
        }
        (asked, Some(ByWindows::Backward(kernels, classes))) if takes_windows(asked) => {
            return classes.run(stream, kernels, algorithm, operands, out.into_view::<T>()?.bytes());
        }
        (Algorithm::Gather(super::Tile::Wide), _) => Tile::Wide,
        (Algorithm::Gather(super::Tile::Narrow), _) => Tile::Narrow,
        (Algorithm::Auto, _) => tile(&gather, stream.device().properties().sm_count),
        _ => return Err(algorithm.refused("Conv2d")),
    };
    match tile {
        Tile::Wide => launched::<T, T::Wide>(stream, gather, tile, operands, bias, out),
        Tile::Narrow => launched::<T, T::Narrow>(stream, gather, tile, operands, bias, out),
    }
}

/// Microseconds of a gather on this device, estimated.
pub(super) fn time_us(stream: &Stream, gather: &Gather) -> f64 {
    let multiprocessors = stream.device().properties().sm_count;
    let tile = tile(gather, multiprocessors);
    let blocks = gather.blocks(tile) * gather.products();
    let waves = blocks.div_ceil(2 * u64::from(multiprocessors.max(1))) as f64;
    let axes = [gather.problem.height, gather.problem.width];
    let taps = axes.map(|axis| f64::from(axis.filter)).iter().product::<f64>();
    let depth = match gather.pass == Pass::Forward as u32 {
        true => gather.problem.channels,
        false => gather.problem.filters,
    };
    let shared = if blocks > u64::from(multiprocessors) { SHARED } else { 1.0 };
    waves * shared * (TILE_US + STEP_US * taps * f64::from(depth))
}

/// A result by windows, in parts of k where that is estimated to be faster.
pub(super) fn by_windows<T: Kernels>(
    stream: &Stream,
    kernels: &windows::WindowKernels,
    (pass, algorithm): (windows::Pass, Algorithm),
    operands: [&Tensor; 2],
    (bias, activation): (Option<&Tensor>, super::Activation),
    out: TensorMut<'_>,
) -> Result<()> {
    let cut = pass.cut(stream, kernels, algorithm);
    let room = if pass.is_large() { None } else { Some(pass.with_room(stream, operands[0])?) };
    let padded = if pass.pads_these(operands[1]) { Some(pass.padded(stream, operands[1])?) } else { None };
    let operands = [room.as_ref().unwrap_or(operands[0]), padded.as_ref().unwrap_or(operands[1])];
    if cut.parts == 1 {
        let target = Target::Result(out.into_view::<T>()?.bytes());
        return pass.run(stream, kernels, &cut, operands, (bias, activation), target);
    }
    let parts = pass.parts(cut.parts, T::STORED, activation);
    let count = (parts.sums as usize).saturating_mul(cut.parts as usize);
    // SAFETY: the first launch writes all of it, the second reads it.
    let sums = unsafe { DeviceBuffer::<f32>::uninit(stream, count)? };
    let plain = (None, super::Activation::None);
    pass.run(stream, kernels, &cut, operands, plain, Target::Sums(&sums))?;
    add_parts::<T>(stream, parts, &sums, bias, out)
}

/// The tile whose waves of blocks take the least time on so many multiprocessors.
fn tile(gather: &Gather, multiprocessors: u32) -> Tile {
    let time = |tile: &Tile| {
        let blocks = gather.blocks(*tile) * gather.products();
        // Narrow tiles move half as many bytes again for the same products.
        let cost = if *tile == Tile::Wide { 8 } else { 5 };
        blocks.div_ceil(2 * u64::from(multiprocessors.max(1))) * cost
    };
    if time(&Tile::Narrow) < time(&Tile::Wide) { Tile::Narrow } else { Tile::Wide }
}

fn launched<T: Kernels, K>(
    stream: &Stream,
    gather: Gather,
    tile: Tile,
    operands: [&Tensor; 2],
    bias: Option<&Tensor>,
    out: TensorMut<'_>,
) -> Result<()>
where
    K: Kernel<Params = (Value<Gather>, Ptr<T>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
{
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(gather.blocks(tile)).unwrap_or(u32::MAX);
    let grid = [blocks, 1, gather.products().min(MAX_BLOCKS.into()) as u32];
    let config = LaunchConfig::new(grid, [Tile::THREADS, 1, 1]).with_shared(tile.shared_bytes());
    // SAFETY: the operands have the sides that the problem says, in whole units, aligned; the bias a number
    // for each filter; grid, block and shared memory are the kernel's.
    unsafe { launched::gathers::<_, T, K>(stream, config, gather, operands, bias, out) }
}
