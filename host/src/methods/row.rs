//! Functions of rows.

use super::stream_of;
use crate::error::Result;
use crate::ops::row as ops;
use crate::tensor::{DType, Dim, Tensor, dim};

/// Fused functions along a dimension. Integers and bools are converted to f32.
impl Tensor {
    /// `e^x / sum of e^x` along `dim`.
    ///
    /// # Errors
    /// [`crate::TensorError::Axis`], [`crate::TensorError::DType`] for 8-bit floats,
    /// [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn softmax(&self, dim: impl Dim) -> Result<Tensor> {
        ops::softmax(&stream_of(self)?, &self.floats()?, dim::axis("softmax", dim, self.rank())?)
    }

    /// The logarithm of [`Tensor::softmax`], exact also for small probabilities.
    ///
    /// # Errors
    /// As [`Tensor::softmax`].
    #[track_caller]
    pub fn log_softmax(&self, dim: impl Dim) -> Result<Tensor> {
        ops::log_softmax(&stream_of(self)?, &self.floats()?, dim::axis("log_softmax", dim, self.rank())?)
    }

    /// `x / sqrt(mean of x^2 + eps)` along the last dimension, times `weight` (`&w` or `None`), which has its
    /// length: [`ops::rms_norm`].
    ///
    /// # Errors
    /// As [`ops::row()`].
    #[track_caller]
    pub fn rms_norm<'a>(&self, weight: impl Into<Option<&'a Tensor>>, eps: f64) -> Result<Tensor> {
        ops::rms_norm(&stream_of(self)?, &self.floats()?, weight.into(), eps)
    }

    /// `(x - mean) / sqrt(variance + eps)` along the last dimension, times `weight`, plus `bias` (`&w` or
    /// `None`), which have its length: [`ops::layer_norm`].
    ///
    /// # Errors
    /// As [`ops::row()`].
    #[track_caller]
    pub fn layer_norm<'a>(
        &self,
        weight: impl Into<Option<&'a Tensor>>,
        bias: impl Into<Option<&'a Tensor>>,
        eps: f64,
    ) -> Result<Tensor> {
        ops::layer_norm(&stream_of(self)?, &self.floats()?, weight.into(), bias.into(), eps)
    }

    /// The mean cross-entropy of these logits, along the last dimension, and `targets`, the numbers of their
    /// classes (i64 or i32, -100 for rows that do not count). [`ops::CrossEntropy`] has the gradient too.
    ///
    /// # Errors
    /// As [`ops::CrossEntropy::loss`].
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor) -> Result<Tensor> {
        Ok(ops::CrossEntropy::default().loss(&stream_of(self)?, self, targets)?.value)
    }

    #[track_caller]
    fn floats(&self) -> Result<Tensor> {
        if self.dtype().is_float() { Ok(self.clone()) } else { self.to(DType::F32) }
    }
}
