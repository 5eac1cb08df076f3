//! Results and inputs' gradients, by [`conv::gather`].

use conv::gather::{Gather, Tile};
use conv::problem::{Convolution, Pass};
use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};

use crate::error::Result;
use crate::launch::LaunchConfig;
use crate::ops::elementwise::{contiguous, made};
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor, TensorError, TensorMut};

use super::check::{Problem, fits};
use super::depth_to_space::DepthToSpace;
use super::operand::{Kernels, filters_in_units, in_units};
use super::{Algorithm, Fused, MAX_BLOCKS};
use super::{classes, launched, windows};

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
    let (operation, [down, across]) = ("Conv2d::input_gradient", gather.classes());
    if !fits(&[down as usize, across as usize, groups]) {
        return Err(TensorError::TooLarge { operation, shape: problem.x.to_vec() }.into());
    }
    let shape = Shape::of(operation, &problem.x)?;
    made(stream, &shape, gradient.dtype(), |out| {
        run::<T>(stream, algorithm, gather, [&gradient, &filters], None, out)
    })
}

/// A pass that the copy engine can feed, and its kernels.
enum ByWindows {
    Forward(&'static windows::WindowKernels, windows::Pass),
    Backward([classes::ClassKernel; 2], classes::ByClasses),
}

impl ByWindows {
    fn new<T: Kernels>(stream: &Stream, gather: &Gather) -> Option<Self> {
        if gather.pass == Pass::Forward as u32 {
            let pass = windows::Pass::new(stream, gather.problem)?;
            Some(Self::Forward(windows::kernels(T::DTYPE)?, pass))
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
    let tile = match (algorithm, ByWindows::new::<T>(stream, &gather)) {
        (Algorithm::Auto | Algorithm::Windows(_), Some(ByWindows::Forward(kernels, pass))) => {
            let fused = (bias, super::Activation::from_code(gather.activation));
            return pass.run(stream, kernels, algorithm, operands, fused, out.into_view::<T>()?.bytes());
        }
        (Algorithm::Auto | Algorithm::Windows(_), Some(ByWindows::Backward(kernels, classes))) => {
            return classes.run(stream, kernels, algorithm, operands, out.into_view::<T>()?.bytes());
        }
        (Algorithm::Windows(_), None) => return Err(algorithm.refused("Conv2d")),
        (Algorithm::Auto, None) => tile(&gather, stream.device().properties().sm_count),
        (Algorithm::Gather(super::Tile::Wide), _) => Tile::Wide,
        (Algorithm::Gather(super::Tile::Narrow), _) => Tile::Narrow,
    };
    match tile {
        Tile::Wide => launched::<T, T::Wide>(stream, gather, tile, operands, bias, out),
        Tile::Narrow => launched::<T, T::Narrow>(stream, gather, tile, operands, bias, out),
    }
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
