//! Convolutions of 1 x 1 without gaps: products of matrices whose rows are positions.

use conv::problem::Convolution;

use crate::error::Result;
use crate::ops::elementwise::{contiguous, made, reshape};
use crate::ops::gemm::{Matmul, Matrix, MatrixMut, Precision};
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor};

use super::Fused;
use super::check::Problem;
use super::operand::Kernels;

/// The matrix of a tensor's last axis by all others.
#[track_caller]
fn matrix(stream: &Stream, tensor: &Tensor, sides: [usize; 4]) -> Result<Tensor> {
    let [a, b, c, columns] = sides;
    reshape(stream, tensor, &[a * b * c, columns])
}

#[track_caller]
pub(super) fn forward<T: Kernels>(
    stream: &Stream,
    problem: &Problem,
    x: &Tensor,
    filters: &Tensor,
    fused: Fused<'_>,
) -> Result<Tensor> {
    let bias = fused.bias.map(|bias| contiguous(stream, bias)).transpose()?;
    let (a, b) = (matrix(stream, x, problem.x)?, matrix(stream, filters, problem.filters)?.t()?);
    let fused = Fused { bias: bias.as_ref(), ..fused };
    product::<T>(stream, "Conv2d::forward", [&a, &b], problem.y, fused)
}

/// Whether it is of 1 x 1 with gaps, without padding, and of channels in no whole units: positions are copied
/// anyway, and those that are read are fewer.
pub(super) fn skips<T: Kernels>(problem: &Problem) -> bool {
    let Convolution { groups, channels, height, width, .. } = problem.shape;
    let axes = [height, width];
    groups == 1
        && !channels.is_multiple_of(T::UNIT as u32)
        && axes.iter().all(|axis| axis.filter == 1 && axis.padding == 0)
        && axes.iter().any(|axis| axis.stride > 1)
}

/// [`forward`] of the positions that it reads, of one that [`skips`] others.
#[track_caller]
pub(super) fn forward_of_read<T: Kernels>(
    stream: &Stream,
    problem: &Problem,
    x: &Tensor,
    filters: &Tensor,
    fused: Fused<'_>,
) -> Result<Tensor> {
    let [down, across] = [problem.shape.height, problem.shape.width].map(|axis| axis.stride as usize);
    let ([images, height, width, _], [.., channels]) = (problem.y, problem.x);
    let read = x.slice_by(1, .., down)?.slice_by(2, .., across)?;
    let of_read = Problem { x: [images, height, width, channels], ..*problem };
    forward::<T>(stream, &of_read, &read, filters, fused)
}

#[track_caller]
pub(super) fn input_gradient<T: Kernels>(
    stream: &Stream,
    problem: &Problem,
    gradient: &Tensor,
    filters: &Tensor,
) -> Result<Tensor> {
    let (a, b) = (matrix(stream, gradient, problem.y)?, matrix(stream, filters, problem.filters)?);
    product::<T>(stream, "Conv2d::input_gradient", [&a, &b], problem.x, Fused::default())
}

#[track_caller]
pub(super) fn filter_gradient<T: Kernels>(
    stream: &Stream,
    problem: &Problem,
    x: &Tensor,
    gradient: &Tensor,
) -> Result<Tensor> {
    let (a, b) = (matrix(stream, gradient, problem.y)?.t()?, matrix(stream, x, problem.x)?);
    product::<T>(stream, "Conv2d::filter_gradient", [&a, &b], problem.filters, Fused::default())
}

/// The product of two matrices as a tensor of these sides. The bias is contiguous.
#[track_caller]
fn product<T: Kernels>(
    stream: &Stream,
    operation: &'static str,
    [a, b]: [&Tensor; 2],
    sides: [usize; 4],
    fused: Fused<'_>,
) -> Result<Tensor> {
    let shape = Shape::of(operation, &sides)?;
    made(stream, &shape, a.dtype(), |out| {
        let out = out.reshape(&[sides[0] * sides[1] * sides[2], sides[3]])?;
        let product = Matmul::new(Matrix::of(a)?, Matrix::of(b)?, MatrixMut::of(out)?);
        let product = product.precision(Precision::Tf32).activation(fused.activation);
        match fused.bias {
            Some(bias) => product.bias(bias.as_view::<T>()?).run(stream),
            None => product.run(stream),
        }
    })
}
