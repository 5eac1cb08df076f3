//! Fused functions of rows, for f64, f32, f16 and bf16: softmax, and what [`RowOp`] lists beside it.
//!
//! 16-bit floats are computed in f32 and rounded once. Sums are of the same precision; a mean square of
//! values beyond 1.8e19 is infinite in f32, as in PyTorch. The last dimension of a contiguous tensor is taken
//! where it is; for others the tensor is copied into that order and back.
//!
//! [`row()`] takes the function as a value. The functions with a name are each a line over it, and check what
//! it checks. A new one is a row of the kernels' table, a row of `launched` and such a line.
//!
//! One block takes a long row, so few rows leave most of the device idle.

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use tensor::rows::{Plan, table};

pub use tensor::rows::RowOp;

use super::elementwise::{contiguous, made};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::{DType, Dim, Tensor, TensorError, TensorMut, dim};

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

/// The kernels of each function.
macro_rules! launched {
    ($($op:ident: $f64:ident, $f32:ident, $f16:ident, $bf16:ident;)*) => {
        /// Queues the kernel of the function and the type.
        fn launched(op: RowOp, job: &Job, out: TensorMut<'_>) -> Result<()> {
            match (op, out.dtype()) {
                $(
                    (RowOp::$op, DType::F64) => job.run::<table::$f64, f64>(out),
                    (RowOp::$op, DType::F32) => job.run::<table::$f32, f32>(out),
                    (RowOp::$op, DType::F16) => job.run::<table::$f16, f16>(out),
                    (RowOp::$op, DType::BF16) => job.run::<table::$bf16, bf16>(out),
                )*
                (_, got) => {
                    let (operation, wanted) = (op.name(), "f64, f32, f16 or bf16".to_owned());
                    let hint = "convert the operand first (`to`)";
                    Err(TensorError::DType { operation, what: "x", got, wanted, hint }.into())
                }
            }
        }
    };
}

launched! {
    Softmax: softmax_f64, softmax_f32, softmax_f16, softmax_bf16;
    LogSoftmax: log_softmax_f64, log_softmax_f32, log_softmax_f16, log_softmax_bf16;
    RmsNorm: rms_norm_f64, rms_norm_f32, rms_norm_f16, rms_norm_bf16;
    LayerNorm: layer_norm_f64, layer_norm_f32, layer_norm_f16, layer_norm_bf16;
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
    if axis >= rank {
        return Err(TensorError::Axis { operation, axis: axis.given(), rank }.into());
    }
    let columns = x.shape()[axis];
    if u32::try_from(columns).is_err() {
        return Err(TensorError::TooLarge { operation, shape: x.shape().to_vec() }.into());
    }
    if affine.eps.is_nan() || affine.eps < 0.0 {
        let wanted = "0 or more".to_owned();
        let hint = "PyTorch's default for layer norms is 1e-5";
        return Err(argument(operation, "eps", affine.eps.to_string(), wanted, hint));
    }
    let prepared = |what: &'static str, given: Option<&Tensor>| {
        given.map(|given| shared_by_rows(stream, op, what, given, x, columns)).transpose()
    };
    let (weight, bias) = (prepared("weight", affine.weight)?, prepared("bias", affine.bias)?);
    let rows = contiguous(stream, &x.transpose(axis, rank - 1)?)?;
    let job = Job { stream, rows: &rows, columns, weight, bias, eps: affine.eps };
    let y = made(stream, rows.shape(), x.dtype(), |out| launched(op, &job, out))?;
    contiguous(stream, &y.transpose(axis, rank - 1)?)
}

/// A weight or a bias, checked and contiguous.
fn shared_by_rows(
    stream: &Stream,
    op: RowOp,
    what: &'static str,
    given: &Tensor,
    x: &Tensor,
    columns: usize,
) -> Result<Tensor> {
    let operation = op.name();
    if !op.is_norm() {
        let (got, wanted) = (format!("of shape {}", given.shape()), "none".to_owned());
        return Err(argument(operation, what, got, wanted, "multiply and add after the call"));
    }
    if given.shape().sides() != [columns] {
        let (got, wanted) = (given.shape().clone(), format!("[{columns}], one for each element of a row"));
        let hint = "take the row's part of it, or flatten it (`reshape`)";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    }
    if given.dtype() != x.dtype() {
        let (got, wanted) = (given.dtype(), format!("{} as x", x.dtype()));
        let hint = "convert it first (`to`)";
        return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
    }
    contiguous(stream, given)
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

struct Job<'a> {
    stream: &'a Stream,
    /// Contiguous; the last axis is a row.
    rows: &'a Tensor,
    columns: usize,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
    eps: f64,
}

impl Job<'_> {
    fn run<K, T>(&self, out: TensorMut<'_>) -> Result<()>
    where
        T: crate::tensor::Element,
        K: Kernel<Params = (Value<Plan>, Ptr<T>, Ptr<T>, Ptr<T>, PtrMut<T>)>,
    {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = (self.rows.elements() / self.columns) as u64;
        let plan = Plan::new(rows, self.columns as u64, size_of::<T>(), self.eps);
        // More blocks than a grid holds become an error of the launch.
        let blocks = u32::try_from(plan.blocks()).unwrap_or(u32::MAX);
        let config = LaunchConfig::new([blocks, 1, 1], [plan.block, 1, 1]).overlapping_previous();
        let weight = self.weight.as_ref().map(|weight| weight.read::<T>(self.stream)).transpose()?;
        let bias = self.bias.as_ref().map(|bias| bias.read::<T>(self.stream)).transpose()?;
        let (x, y) = (self.rows.read::<T>(self.stream)?, out.write::<T>(self.stream)?);
        // SAFETY: x and y hold the rows, weight and bias one row where there are any; y is exclusively
        // borrowed; the configuration is the plan's.
        unsafe { launch::<K>(self.stream, config, (plan, x, weight, bias, y)) }
    }
}
