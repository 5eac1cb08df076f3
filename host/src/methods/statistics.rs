//! Statistics that are several launches: variances, deviations, logarithms of sums of exponentials.

use crate::error::{Error, Result};
use crate::tensor::{DType, Dim, Named, Tensor, TensorError, dim};

/// Statistics along the dimensions `dims`, which may be counted from the end; with none named, along all.
/// 16-bit floats are computed in f32 and rounded once. Each writes a tensor of the input's size, in the type
/// that it is computed in, on the way; of 16-bit floats it writes two.
///
/// The errors of all of them: [`TensorError::Axes`] for a dimension that is not there or named twice;
/// [`TensorError::DType`] for types that are no floats, and 8-bit floats; [`TensorError::Empty`] for no
/// elements, [`Error::OutOfMemory`], or the driver's error.
impl Tensor {
    /// The variance along `dims`, which are removed: the squared distances from the mean, added up and
    /// divided by the number of elements less `correction`. PyTorch's correction is 1 by default.
    ///
    /// # Errors
    /// See the head of this block; [`Error::InvalidArgument`] for a correction that leaves nothing to divide
    /// by.
    #[track_caller]
    pub fn var<D: Dim>(&self, dims: &[D], correction: usize) -> Result<Tensor> {
        removed(self.deviation("var", dims, correction)?.square()?, dims)?.to(self.dtype())
    }

    /// As [`Tensor::var`]; `dims` stay with size 1.
    ///
    /// # Errors
    /// As [`Tensor::var`].
    #[track_caller]
    pub fn var_keepdim<D: Dim>(&self, dims: &[D], correction: usize) -> Result<Tensor> {
        self.deviation("var_keepdim", dims, correction)?.square()?.to(self.dtype())
    }

    /// The square root of [`Tensor::var`].
    ///
    /// # Errors
    /// As [`Tensor::var`].
    #[track_caller]
    pub fn std<D: Dim>(&self, dims: &[D], correction: usize) -> Result<Tensor> {
        removed(self.deviation("std", dims, correction)?, dims)?.to(self.dtype())
    }

    /// As [`Tensor::std`]; `dims` stay with size 1.
    ///
    /// # Errors
    /// As [`Tensor::var`].
    #[track_caller]
    pub fn std_keepdim<D: Dim>(&self, dims: &[D], correction: usize) -> Result<Tensor> {
        self.deviation("std_keepdim", dims, correction)?.to(self.dtype())
    }

    /// `log(sum(exp(x)))` along `dims`, which are removed. It overflows only where its value does.
    ///
    /// # Errors
    /// See the head of this block.
    #[track_caller]
    pub fn logsumexp<D: Dim>(&self, dims: &[D]) -> Result<Tensor> {
        removed(self.log_sum_exp("logsumexp", dims)?, dims)?.to(self.dtype())
    }

    /// As [`Tensor::logsumexp`]; `dims` stay with size 1.
    ///
    /// # Errors
    /// As [`Tensor::logsumexp`].
    #[track_caller]
    pub fn logsumexp_keepdim<D: Dim>(&self, dims: &[D]) -> Result<Tensor> {
        self.log_sum_exp("logsumexp_keepdim", dims)?.to(self.dtype())
    }

    /// The standard deviation, in the type that it is computed in; `dims` stay with size 1.
    #[track_caller]
    fn deviation<D: Dim>(&self, operation: &'static str, dims: &[D], correction: usize) -> Result<Tensor> {
        let x = self.wide(operation)?;
        let axes = reduced_axes(operation, dims, x.rank())?;
        let count: usize = axes.iter().map(|&axis| x.shape()[axis]).product();
        if count > 0 && correction >= count {
            return Err(Error::InvalidArgument {
                operation,
                argument: "correction",
                got: correction.to_string(),
                wanted: format!("less than {count}, the number of elements along the dimensions"),
                hint: "a correction of 0 gives the variance of these elements alone",
            });
        }
        let distances = x.sub(&x.mean_keepdim(&axes).named(operation)?)?;
        distances.norm_keepdim(&axes)?.mul((count.saturating_sub(correction) as f64).sqrt().recip())
    }

    /// The logarithm in the type that it is computed in; `dims` stay with size 1.
    #[track_caller]
    fn log_sum_exp<D: Dim>(&self, operation: &'static str, dims: &[D]) -> Result<Tensor> {
        let x = self.wide(operation)?;
        let axes = reduced_axes(operation, dims, x.rank())?;
        let largest = x.amax_keepdim(&axes).named(operation)?;
        // Without a finite one the exponentials of the elements themselves are 0, infinite or NaN.
        let shift = largest.where_(&largest.isfinite()?, 0.0)?;
        let mut exponentials = x.sub(&shift)?;
        exponentials.exp_()?;
        exponentials.sum_keepdim(&axes)?.log()?.add(&shift)
    }

    /// The tensor in the float type that it is computed in.
    #[track_caller]
    fn wide(&self, operation: &'static str) -> Result<Tensor> {
        match self.dtype() {
            DType::F64 | DType::F32 => Ok(self.clone()),
            DType::F16 | DType::BF16 => self.to(DType::F32),
            got => {
                let (what, wanted) = ("the tensor", "f64, f32, f16 or bf16".to_owned());
                let hint = "convert it with `to` first";
                Err(TensorError::DType { operation, what, got, wanted, hint }.into())
            }
        }
    }
}

/// The dimensions that a reduction along `dims` removes.
fn reduced_axes<D: Dim>(operation: &'static str, dims: &[D], rank: usize) -> Result<Vec<usize>> {
    if dims.is_empty() { Ok((0..rank).collect()) } else { dim::axes(operation, dims, rank, "at most once") }
}

/// Without the dimensions `dims`, all of size 1.
fn removed<D: Dim>(x: Tensor, dims: &[D]) -> Result<Tensor> {
    let mut axes = reduced_axes("squeeze", dims, x.rank())?;
    // From the back on, so that those in front keep their numbers.
    axes.sort_unstable();
    axes.iter().rev().try_fold(x, |x, &axis| x.squeeze(axis))
}
