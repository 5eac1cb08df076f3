//! Fused functions of rows, for f64, f32, f16 and bf16: softmax, and what [`RowOp`] lists beside it.
//!
//! 16-bit floats are computed in f32 and rounded once. Sums have the same precision; a mean square of values
//! beyond 1.8e19 is infinite in f32, as in PyTorch. The last dimension of a contiguous tensor is read where
//! it lies. For other dimensions the tensor is copied into that order and back.
//!
//! [`row()`] takes the function as a value. Functions with a name call it.
//!
//! A long row is the work of one block, so few rows leave most of the device idle.

mod channels;
mod cosine;
mod differentiable;
mod function;
mod launch;
mod linear_loss;
mod loss;
mod loss_of_probabilities;
mod norm;
mod norm_backward;
mod norm_of_dropout;
mod norm_to_e4m3;
mod normable;

use half::{bf16, f16};
use primitives::activation::Activation;
use rows::kernels;
use rows::sm90::kernels as held;
use rows::softmax::{SoftmaxArgs, SoftmaxBackwardArgs};

use super::elementwise::{contiguous, made};
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::{Dim, Tensor, TensorError, dim};
use launch::{Job, launched};

pub use channels::{
    BatchNorm, ChannelAffine, ChannelAxis, ChannelNormed, FixedStatistics, GroupNorm, RunningStatistics,
};
pub use cosine::{CosineEmbedding, CosineLoss};
pub use function::{RowKernel, run_function, run_function_held};
pub(super) use launch::as_rows;
pub use linear_loss::{LinearCrossEntropy, LinearLoss};
pub(super) use loss::scalar;
pub use loss::{CrossEntropy, Loss, Reduction};
pub use norm::{Norm, NormKind, Normed};
pub(crate) use norm::{check_eps, check_shared};
pub use norm_backward::{NormBackward, NormGradients};
pub use norm_of_dropout::NormOfDropout;
pub use norm_to_e4m3::{NormOfDropoutToE4m3, NormToE4m3};

/// A function of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOp {
    /// `e^x / sum of e^x`.
    Softmax,
    /// `x - max - ln(sum of e^(x - max))`.
    LogSoftmax,
    /// `x / sqrt(mean of x^2 + eps)`, times a weight, plus a bias.
    RmsNorm,
    /// `(x - mean) / sqrt(variance + eps)`, times a weight, plus a bias.
    LayerNorm,
}

impl RowOp {
    /// Every function.
    pub const ALL: &[RowOp] = &[RowOp::Softmax, RowOp::LogSoftmax, RowOp::RmsNorm, RowOp::LayerNorm];

    /// Its name, which is PyTorch's in `torch.nn.functional`.
    pub const fn name(self) -> &'static str {
        match self {
            RowOp::Softmax => "softmax",
            RowOp::LogSoftmax => "log_softmax",
            RowOp::RmsNorm => NormKind::Rms.name(),
            RowOp::LayerNorm => NormKind::Layer.name(),
        }
    }

    /// Whether it takes a weight, a bias and an epsilon.
    pub const fn is_norm(self) -> bool {
        matches!(self, RowOp::RmsNorm | RowOp::LayerNorm)
    }
}

/// The inputs of norms beside the tensor. Other functions take the default: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Affine<'a> {
    /// A factor a column: of one dimension, as long as a row, of the tensor's type.
    pub weight: Option<&'a Tensor>,
    /// A term a column, after the factor, of the same shape and type.
    pub bias: Option<&'a Tensor>,
    /// Added to the variance or the mean square before the root. Not negative.
    pub eps: f64,
}

/// The softmax along `axis`, `e^x / sum of e^x`, of the shape and type of `x`, contiguous.
///
/// The maximum is subtracted first, so no exponential overflows. A NaN or a positive infinity makes its row
/// NaN, and so do minus infinities alone, as in PyTorch.
///
/// # Errors
/// As [`row()`].
#[track_caller]
pub fn softmax(stream: &Stream, x: &Tensor, axis: usize) -> Result<Tensor> {
    row(stream, RowOp::Softmax, x, axis, Affine::default())
}

/// `ln(softmax(x))`, computed as `x - max - ln(sum)`, which loses nothing to small probabilities.
///
/// # Errors
/// As [`row()`].
#[track_caller]
pub fn log_softmax(stream: &Stream, x: &Tensor, axis: usize) -> Result<Tensor> {
    row(stream, RowOp::LogSoftmax, x, axis, Affine::default())
}

/// `x / sqrt(mean of x^2 + eps)` along the last axis, times `weight` (Zhang and Sennrich 2019): PyTorch's
/// `torch.nn.functional.rms_norm`, rounded once. Its epsilon is the type's machine epsilon when none is
/// given; this one has no default.
///
/// # Errors
/// As [`row()`].
#[track_caller]
pub fn rms_norm(stream: &Stream, x: &Tensor, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
    let affine = Affine { weight, bias: None, eps };
    row(stream, RowOp::RmsNorm, x, last("rms_norm", x)?, affine)
}

/// `(x - mean) / sqrt(variance + eps)` along the last axis, times `weight`, plus `bias` (Ba et al. 2016):
/// PyTorch's `torch.nn.functional.layer_norm`. The variance is the population's, in one pass (Welford 1962).
///
/// # Errors
/// As [`row()`].
#[track_caller]
pub fn layer_norm(
    stream: &Stream,
    x: &Tensor,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    row(stream, RowOp::LayerNorm, x, last("layer_norm", x)?, Affine { weight, bias, eps })
}

/// The last axis.
fn last(operation: &'static str, x: &Tensor) -> Result<usize> {
    dim::axis(operation, -1isize, x.rank())
}

/// `op` along `axis`, of the shape and type of `x`, contiguous.
///
/// # Errors
/// [`TensorError::Axis`], [`TensorError::DType`] for integers, bool and 8-bit floats and for a weight or bias
/// of another type, [`TensorError::Shape`] for one of another shape than a row's,
/// [`crate::Error::InvalidArgument`] for one where the function takes none, and for an epsilon that is
/// negative or NaN, [`TensorError::TooLarge`] for a row of 2^32 elements or more,
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn row(stream: &Stream, op: RowOp, x: &Tensor, axis: usize, affine: Affine<'_>) -> Result<Tensor> {
    let (operation, rank) = (op.name(), x.rank());
    columns(operation, x, axis)?;
    let rows = x.transpose(axis, rank - 1)?;
    let kind = match op {
        RowOp::LayerNorm => Some(NormKind::Layer),
        RowOp::RmsNorm => Some(NormKind::Rms),
        RowOp::Softmax | RowOp::LogSoftmax => None,
    };
    let y = match kind {
        Some(kind) => {
            let Affine { weight, bias, eps } = affine;
            let norm = Norm { kind, weight, bias, eps, activation: Activation::None };
            norm.run(stream, &rows)?.y
        }
        None => {
            none_given(operation, affine)?;
            softmax_of_rows(stream, op, &rows)?
        }
    };
    contiguous(stream, &y.transpose(axis, rank - 1)?)
}

/// The gradient of [`softmax`] by its input, from its result `y` and the gradient by that: `y (dy - sum of y
/// dy)`.
///
/// # Errors
/// As [`row()`], [`TensorError::DType`] for f64 too, and [`TensorError::Shape`] for a gradient of another
/// shape.
#[track_caller]
pub fn softmax_backward(stream: &Stream, y: &Tensor, dy: &Tensor, axis: usize) -> Result<Tensor> {
    backward(stream, "softmax_backward", y, dy, axis, 0)
}

/// The gradient of [`log_softmax`] by its input, from its result `y` and the gradient by that: `dy - e^y sum
/// of dy`.
///
/// # Errors
/// As [`softmax_backward`].
#[track_caller]
pub fn log_softmax_backward(stream: &Stream, y: &Tensor, dy: &Tensor, axis: usize) -> Result<Tensor> {
    backward(stream, "log_softmax_backward", y, dy, axis, 1)
}

/// Elements along an axis.
pub(crate) fn columns(operation: &'static str, x: &Tensor, axis: usize) -> Result<usize> {
    let rank = x.rank();
    if axis >= rank {
        return Err(TensorError::Axis { operation, axis: axis.given(), rank }.into());
    }
    let columns = x.shape()[axis];
    if u32::try_from(columns).is_err() {
        return Err(TensorError::TooLarge { operation, shape: x.shape().to_vec() }.into());
    }
    Ok(columns)
}

/// Elements along the last axis.
pub(crate) fn last_columns(operation: &'static str, x: &Tensor) -> Result<usize> {
    columns(operation, x, dim::axis(operation, -1, x.rank())?)
}

#[track_caller]
fn softmax_of_rows(stream: &Stream, op: RowOp, x: &Tensor) -> Result<Tensor> {
    let operation = op.name();
    let columns = columns(operation, x, x.rank() - 1)?;
    made(stream, x.shape(), x.dtype(), |y| {
        let rows = as_rows(stream, x, columns)?;
        let job =
            Job { stream, columns, shared: 0, inputs: [Some(&rows), None, None], outputs: [Some(y), None] };
        let function = SoftmaxArgs { is_log: (op == RowOp::LogSoftmax).into() }.pass();
        // SAFETY: x and y have the same rows.
        unsafe {
            launched!(job, function, x.dtype(), operation, {
                F64(f64) => kernels::softmax_f64;
                F32(f32) => kernels::softmax_f32, held::softmax_held_f32;
                F16(f16) => kernels::softmax_f16, held::softmax_held_f16;
                BF16(bf16) => kernels::softmax_bf16, held::softmax_held_bf16;
            })
        }
    })
}

#[track_caller]
fn backward(
    stream: &Stream,
    operation: &'static str,
    y: &Tensor,
    dy: &Tensor,
    axis: usize,
    is_log: u32,
) -> Result<Tensor> {
    let columns = columns(operation, y, axis)?;
    alike(operation, "dy", dy, y)?;
    let (y, dy) = (y.transpose(axis, y.rank() - 1)?, dy.transpose(axis, y.rank() - 1)?);
    let dx = made(stream, y.shape(), y.dtype(), |dx| {
        let rows = [as_rows(stream, &y, columns)?, as_rows(stream, &dy, columns)?];
        let inputs = [Some(&rows[0]), Some(&rows[1]), None];
        let job = Job { stream, columns, shared: 0, inputs, outputs: [Some(dx), None] };
        let function = SoftmaxBackwardArgs { is_log }.pass();
        // SAFETY: all three have the same rows.
        unsafe {
            launched!(job, function, y.dtype(), operation, {
                F32(f32) => kernels::softmax_backward_f32, held::softmax_backward_held_f32;
                F16(f16) => kernels::softmax_backward_f16, held::softmax_backward_held_f16;
                BF16(bf16) => kernels::softmax_backward_bf16, held::softmax_backward_held_bf16;
            })
        }
    })?;
    contiguous(stream, &dx.transpose(axis, dx.rank() - 1)?)
}

/// Checks that a tensor has the shape and the type of another.
pub(crate) fn alike(
    operation: &'static str,
    what: &'static str,
    given: &Tensor,
    like: &Tensor,
) -> Result<()> {
    if given.shape() != like.shape() {
        let (got, wanted) = (given.shape().clone(), like.shape().to_string());
        let hint = "it has an element for each element";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    }
    same_type(operation, what, given, like)
}

fn same_type(operation: &'static str, what: &'static str, given: &Tensor, like: &Tensor) -> Result<()> {
    if given.dtype() != like.dtype() {
        let (got, wanted) = (given.dtype(), format!("{} as x", like.dtype()));
        let hint = "convert it first (`to`)";
        return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
    }
    Ok(())
}

/// Softmax takes nothing beside the tensor.
fn none_given(operation: &'static str, affine: Affine<'_>) -> Result<()> {
    norm::check_eps(operation, affine.eps)?;
    for (what, given) in [("weight", affine.weight), ("bias", affine.bias)] {
        if let Some(given) = given {
            let (got, wanted) = (format!("of shape {}", given.shape()), "none".to_owned());
            return Err(argument(operation, what, got, wanted, "multiply and add after the call"));
        }
    }
    Ok(())
}

fn argument(
    operation: &'static str,
    argument: &'static str,
    got: String,
    wanted: String,
    hint: &'static str,
) -> crate::Error {
    crate::Error::InvalidArgument { operation, argument, got, wanted, hint }
}
