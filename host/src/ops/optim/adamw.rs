//! AdamW.

use half::bf16;
use optim::rules::{AdamW as Rule, adamw_bf16, adamw_f32};

use super::norm::GradientNorm;
use super::optimizer::{Kind, Optimizer, StateConfig};
use super::{decay_rate, not_negative};
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::{Tensor, TensorMut};

/// The numbers of [`AdamW`]. The default is PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    /// Length of a step.
    pub learning_rate: f64,
    /// Decay rates of the averages of gradients and of their squares.
    pub betas: [f64; 2],
    /// Added to the root of the average square.
    pub eps: f64,
    /// The part of a weight that a step takes away, over the learning rate.
    pub weight_decay: f64,
    /// How the averages and the weights are kept.
    pub state: StateConfig,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        AdamWConfig {
            learning_rate: 1e-3,
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 1e-2,
            state: StateConfig::default(),
        }
    }
}

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019), as `torch.optim.AdamW` computes it:
///
/// ```text
/// m = beta1 m + (1 - beta1) g                  m' = m / (1 - beta1^t)
/// v = beta2 v + (1 - beta2) g^2                v' = v / (1 - beta2^t)
/// w = w - lr decay w - lr m' / (sqrt(v') + eps)
/// ```
#[derive(Debug)]
pub struct AdamW {
    rule: Rule,
    shared: Optimizer,
}

impl AdamW {
    /// An optimiser for `params`, f32, bf16 or f16, contiguous. Its state is allocated here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a number of the configuration outside of
    /// its range, [`TensorError::DType`](crate::TensorError::DType),
    /// [`TensorError::NotContiguous`](crate::TensorError::NotContiguous),
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, params: &[TensorMut<'_>], config: AdamWConfig) -> Result<Self> {
        let operation = "AdamW::new";
        for beta in config.betas {
            decay_rate(operation, "betas", beta)?;
        }
        not_negative(operation, "eps", config.eps)?;
        let rule = Rule { rates: config.betas.map(|beta| (1.0 - beta) as f32), eps: config.eps as f32 };
        let AdamWConfig { learning_rate, betas, weight_decay, .. } = config;
        let kind = Kind { operation: "AdamW", moments: 2, betas, learning_rate, weight_decay };
        Ok(AdamW { rule, shared: Optimizer::new(stream, params, kind, config.state)? })
    }

    /// Queues a step: updates `params` in place from `grads`, which have their shapes and their types, or are
    /// f32. All are contiguous, and in the order that the optimiser was made with.
    ///
    /// With a `norm`, gradients are multiplied by its factor, and nothing is updated when it says to skip.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for another number of tensors than the
    /// optimiser was made with, [`TensorError::Shape`](crate::TensorError::Shape),
    /// [`TensorError::DType`](crate::TensorError::DType),
    /// [`TensorError::NotContiguous`](crate::TensorError::NotContiguous),
    /// [`TensorError::Shared`](crate::TensorError::Shared) while tensors of its state are kept,
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch), or the driver's error.
    #[track_caller]
    pub fn step(
        &mut self,
        stream: &Stream,
        params: &mut [TensorMut<'_>],
        grads: &[&Tensor],
        norm: Option<&GradientNorm>,
    ) -> Result<()> {
        let (shared, rule) = (&mut self.shared, self.rule);
        if shared.has_short_moments() {
            shared.step::<adamw_bf16, _, bf16>(stream, rule, params, grads, norm)
        } else {
            shared.step::<adamw_f32, _, f32>(stream, rule, params, grads, norm)
        }
    }

    /// Queues a new learning rate: for the steps, and the replays of captured ones, that are queued later.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a negative, infinite or NaN one,
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch), or the driver's error.
    #[track_caller]
    pub fn set_learning_rate(&mut self, stream: &Stream, learning_rate: f64) -> Result<()> {
        self.shared.set_learning_rate(stream, learning_rate)
    }

    /// Steps done; waits for them.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch), or the driver's error.
    pub fn steps(&self, stream: &Stream) -> Result<u64> {
        Ok(self.shared.counts(stream)?[0])
    }

    /// Steps skipped because the gradients' norm was not finite; waits for them.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch), or the driver's error.
    pub fn skipped(&self, stream: &Stream) -> Result<u64> {
        Ok(self.shared.counts(stream)?[1])
    }

    /// The f32 weights of a parameter, when there are any. Drop the tensor before the next step.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a parameter that there is not.
    pub fn master(&self, parameter: usize) -> Result<Option<Tensor>> {
        self.shared.state(None, parameter)
    }

    /// The average of a parameter's gradients. Drop the tensor before the next step.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a parameter that there is not.
    pub fn exp_avg(&self, parameter: usize) -> Result<Option<Tensor>> {
        self.shared.state(Some(0), parameter)
    }

    /// The average of the squares of a parameter's gradients. Drop the tensor before the next step.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a parameter that there is not.
    pub fn exp_avg_sq(&self, parameter: usize) -> Result<Option<Tensor>> {
        self.shared.state(Some(1), parameter)
    }
}
