//! Functions of rows.

use super::stream_of;
use crate::error::Result;
use crate::ops::activation::{ActivationFunction, GateOrder, gated};
use crate::ops::loss::{LossFunction, PairLoss};
use crate::ops::row as ops;
use crate::ops::row::{BatchNorm, ChannelAffine, CosineEmbedding, FixedStatistics, GroupNorm, Reduction};
use crate::tensor::{DType, Dim, Named, Tensor, dim};

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

    /// A norm of the last dimension with what is fused to it, an activation among that: [`ops::Norm::run`].
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn fused_norm(&self, norm: ops::Norm<'_>) -> Result<Tensor> {
        Ok(norm.run(&stream_of(self)?, &self.floats()?)?.y)
    }

    /// The norm of `self + residual`, and that sum, in one launch: what stands between two blocks of a
    /// transformer. [`ops::Norm::add_and_run`] keeps what the gradient needs.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn fused_add_norm(&self, residual: &Tensor, norm: ops::Norm<'_>) -> Result<(Tensor, Tensor)> {
        let stream = stream_of(self)?;
        let (x, residual) = (self.floats()?, residual.floats()?);
        let ops::Normed { y, sum, .. } = norm.add_and_run(&stream, &x, &residual, false)?;
        // There is a sum, since there is a residual.
        let sum = sum.map_or_else(|| x.add(&residual), Ok)?;
        Ok((y, sum))
    }

    /// The mean cross-entropy of these logits, along the last dimension, and `targets`, the numbers of their
    /// classes (i64 or i32, -100 for rows that do not count). Another number that is no class makes it NaN.
    /// [`ops::CrossEntropy`] has the gradient too.
    ///
    /// # Errors
    /// As [`ops::CrossEntropy::loss`].
    #[track_caller]
    pub fn cross_entropy(&self, targets: &Tensor) -> Result<Tensor> {
        Ok(ops::CrossEntropy::default().loss(&stream_of(self)?, self, targets)?.value)
    }

    /// The mean cross-entropy of these logits, along the last dimension, and `probabilities` of their
    /// classes, of the same shape and type: `F.cross_entropy` with a target of probabilities.
    /// [`ops::CrossEntropy::loss_and_gradient_of_probabilities`] has the gradient too, smoothing, z-loss and
    /// a soft cap.
    ///
    /// # Errors
    /// As [`ops::CrossEntropy::loss_of_probabilities`].
    #[track_caller]
    pub fn cross_entropy_of_probabilities(&self, probabilities: &Tensor) -> Result<Tensor> {
        let loss = ops::CrossEntropy::default();
        Ok(loss.loss_of_probabilities(&stream_of(self)?, self, probabilities)?.value)
    }

    /// The mean cross-entropy of a last layer without a bias: of the logits `self weight^T`, of which only
    /// some rows are in memory at a time. `self` is `[.., inputs]`, `weight` `[classes, inputs]`, and
    /// `targets` as in [`Tensor::cross_entropy`]. [`ops::LinearCrossEntropy`] has the gradients too.
    ///
    /// # Errors
    /// As [`ops::LinearCrossEntropy::loss`].
    #[track_caller]
    pub fn linear_cross_entropy(&self, weight: &Tensor, targets: &Tensor) -> Result<Tensor> {
        Ok(ops::LinearCrossEntropy::default().loss(&stream_of(self)?, self, weight, targets)?.value)
    }

    /// Each image's channels, the second dimension, normalised in `groups` of neighbours over all positions,
    /// times `weight`, plus `bias` (`&w` or `None`): [`ops::GroupNorm`], which has the gradients too.
    ///
    /// # Errors
    /// As [`ops::GroupNorm::run`].
    #[track_caller]
    pub fn group_norm<'a>(
        &self,
        groups: usize,
        weight: impl Into<Option<&'a Tensor>>,
        bias: impl Into<Option<&'a Tensor>>,
        eps: f64,
    ) -> Result<Tensor> {
        let affine = ChannelAffine { weight: weight.into(), bias: bias.into(), eps, ..Default::default() };
        Ok(GroupNorm { groups, affine }.run(&stream_of(self)?, self)?.y)
    }

    /// Each channel, of the second dimension, normalised by a given `mean` and `variance`, times `weight`,
    /// plus `bias`: batch norm in inference. [`ops::BatchNorm`] has training and the gradients.
    ///
    /// # Errors
    /// As [`ops::BatchNorm::infer`].
    #[track_caller]
    pub fn batch_norm<'a>(
        &self,
        mean: &Tensor,
        variance: &Tensor,
        weight: impl Into<Option<&'a Tensor>>,
        bias: impl Into<Option<&'a Tensor>>,
        eps: f64,
    ) -> Result<Tensor> {
        let affine = ChannelAffine { weight: weight.into(), bias: bias.into(), eps, ..Default::default() };
        BatchNorm { affine }.infer(&stream_of(self)?, self, FixedStatistics { mean, variance })
    }

    /// The mean of `(x - target)^2`. [`PairLoss`] has the gradients of this loss and of the next ones, and
    /// their sums.
    ///
    /// # Errors
    /// As [`PairLoss::loss`].
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor) -> Result<Tensor> {
        self.mean_loss(LossFunction::Mse, target)
    }

    /// The mean of `|x - target|`.
    ///
    /// # Errors
    /// As [`PairLoss::loss`].
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor) -> Result<Tensor> {
        self.mean_loss(LossFunction::L1, target)
    }

    /// The mean Huber loss: [`LossFunction::Huber`].
    ///
    /// # Errors
    /// As [`PairLoss::loss`].
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f64) -> Result<Tensor> {
        self.mean_loss(LossFunction::Huber { delta }, target)
    }

    /// The mean smooth L1 loss: [`LossFunction::SmoothL1`].
    ///
    /// # Errors
    /// As [`PairLoss::loss`].
    #[track_caller]
    pub fn smooth_l1_loss(&self, target: &Tensor, beta: f64) -> Result<Tensor> {
        self.mean_loss(LossFunction::SmoothL1 { beta }, target)
    }

    /// The mean binary cross-entropy of these logits: [`LossFunction::BceWithLogits`] with all alike.
    ///
    /// # Errors
    /// As [`PairLoss::loss`].
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(&self, target: &Tensor) -> Result<Tensor> {
        self.mean_loss(LossFunction::BceWithLogits { pos_weight: 1.0 }, target)
    }

    /// The mean Kullback-Leibler divergence of these log-probabilities: [`LossFunction::KlDiv`].
    ///
    /// # Errors
    /// As [`PairLoss::loss`].
    #[track_caller]
    pub fn kl_div(&self, target: &Tensor, log_target: bool) -> Result<Tensor> {
        self.mean_loss(LossFunction::KlDiv { log_target }, target)
    }

    /// The mean cosine embedding loss of these rows and those of `other`, whose labels are 1 or -1, without a
    /// margin: [`CosineEmbedding`], which has the gradients too.
    ///
    /// # Errors
    /// As [`CosineEmbedding::loss`].
    #[track_caller]
    pub fn cosine_embedding_loss(&self, other: &Tensor, labels: &Tensor) -> Result<Tensor> {
        Ok(CosineEmbedding::default().loss(&stream_of(self)?, self, other, labels)?.value)
    }

    /// `silu(gate) value`, where gates are the first half of the last dimension and values the second:
    /// [`gated`].
    ///
    /// # Errors
    /// As [`gated`].
    #[track_caller]
    pub fn swiglu(&self) -> Result<Tensor> {
        gated(&stream_of(self)?, ActivationFunction::Silu, GateOrder::Halves, self).named("swiglu")
    }

    /// `gelu(gate) value`, likewise.
    ///
    /// # Errors
    /// As [`gated`].
    #[track_caller]
    pub fn geglu(&self) -> Result<Tensor> {
        gated(&stream_of(self)?, ActivationFunction::Gelu, GateOrder::Halves, self).named("geglu")
    }

    #[track_caller]
    fn mean_loss(&self, function: LossFunction, target: &Tensor) -> Result<Tensor> {
        PairLoss { function, reduction: Reduction::Mean }.loss(&stream_of(self)?, self, target)
    }

    #[track_caller]
    fn floats(&self) -> Result<Tensor> {
        if self.dtype().is_float() { Ok(self.clone()) } else { self.to(DType::F32) }
    }
}
