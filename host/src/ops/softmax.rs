//! Softmax and its logarithm along a dimension, for f64, f32, f16 and bf16.
//!
//! The maximum is subtracted first, so no exponential overflows. 16-bit floats are computed in f32 and
//! rounded once. A NaN or a positive infinity makes its row NaN, and so do minus infinities alone, as in
//! PyTorch. The last dimension of a contiguous tensor is taken where it is; for others the tensor is copied
//! into that order and back.
//!
//! One block takes a long row, so few rows leave most of the device idle.

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use tensor::softmax::{Plan, softmax_bf16, softmax_f16, softmax_f32, softmax_f64};

use super::elementwise::{contiguous, made};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::{DType, Dim, Shape, Tensor, TensorError};

/// `e^x / sum of e^x` along `axis`, of the shape and type of `x`, contiguous.
///
/// # Errors
/// [`TensorError::Axis`], [`TensorError::DType`] for integers, bool and 8-bit floats,
/// [`TensorError::TooLarge`] for a row of 2^32 elements or more, [`crate::Error::DeviceMismatch`],
/// [`crate::Error::OutOfMemory`], or the driver's error.
pub fn softmax(stream: &Stream, x: &Tensor, axis: usize) -> Result<Tensor> {
    along(stream, "softmax", x, axis, false)
}

/// `ln(softmax(x))`, computed as `x - max - ln(sum)`, which loses nothing to small probabilities.
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax(stream: &Stream, x: &Tensor, axis: usize) -> Result<Tensor> {
    along(stream, "log_softmax", x, axis, true)
}

fn along(stream: &Stream, operation: &'static str, x: &Tensor, axis: usize, log: bool) -> Result<Tensor> {
    let rank = x.rank();
    if axis >= rank {
        return Err(TensorError::Axis { operation, axis: axis.given(), rank }.into());
    }
    if u32::try_from(x.shape()[axis]).is_err() {
        return Err(TensorError::TooLarge { operation, shape: x.shape().to_vec() }.into());
    }
    let rows = contiguous(stream, &x.transpose(axis, rank - 1)?)?;
    let job = Job { stream, rows: &rows, log };
    let y = made(stream, rows.shape(), x.dtype(), |out| match x.dtype() {
        DType::F64 => job.run::<softmax_f64, f64>(out),
        DType::F32 => job.run::<softmax_f32, f32>(out),
        DType::F16 => job.run::<softmax_f16, f16>(out),
        DType::BF16 => job.run::<softmax_bf16, bf16>(out),
        got => {
            let wanted = "f64, f32, f16 or bf16".to_owned();
            let hint = "convert the operand first (`to`)";
            Err(TensorError::DType { operation, what: "x", got, wanted, hint }.into())
        }
    })?;
    contiguous(stream, &y.transpose(axis, rank - 1)?)
}

struct Job<'a> {
    stream: &'a Stream,
    /// Contiguous; the last axis is a row.
    rows: &'a Tensor,
    log: bool,
}

impl Job<'_> {
    fn run<K, T>(&self, out: crate::TensorMut<'_>) -> Result<()>
    where
        K: Kernel<Params = (Value<Plan>, Ptr<T>, PtrMut<T>)>,
    {
        if self.rows.is_empty() {
            return Ok(());
        }
        let shape: &Shape = self.rows.shape();
        let columns = shape[self.rows.rank() - 1];
        let shared = self.stream.device().properties().shared_per_block_optin;
        let rows = (self.rows.elements() / columns) as u64;
        let plan = Plan::new(rows, columns as u64, size_of::<T>(), shared, self.log);
        // More blocks than a grid holds become an error of the launch.
        let blocks = u32::try_from(plan.blocks()).unwrap_or(u32::MAX);
        let config = LaunchConfig::new([blocks, 1, 1], [plan.block, 1, 1])
            .with_shared(plan.kept)
            .overlapping_previous();
        let (x, y) = (self.rows.read::<T>(self.stream)?, out.write::<T>(self.stream)?);
        // SAFETY: both hold the rows; y is exclusively borrowed; the configuration is the plan's.
        unsafe { launch::<K>(self.stream, config, (plan, x, y)) }
    }
}
