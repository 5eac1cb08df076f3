//! Stochastic gradient descent.

use half::bf16;
use optim::rules::{Descent, Sgd as Rule, sgd, sgd_momentum_bf16, sgd_momentum_f32};

use super::norm::GradientNorm;
use super::not_negative;
use super::optimizer::{Kind, Optimizer, StateConfig};
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::{Tensor, TensorMut};

/// The numbers of [`Sgd`]. The default is PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SgdConfig {
    /// Length of a step.
    pub learning_rate: f64,
    /// Factor of the momentum; 0: nothing is kept.
    pub momentum: f64,
    /// Take Nesterov's momentum.
    pub nesterov: bool,
    /// Factor of the weight in what is added to its gradient.
    pub weight_decay: f64,
    /// How the momentum and the weights are kept.
    pub state: StateConfig,
}

impl Default for SgdConfig {
    fn default() -> Self {
        let state = StateConfig::default();
        SgdConfig { learning_rate: 1e-3, momentum: 0.0, nesterov: false, weight_decay: 0.0, state }
    }
}

/// Stochastic gradient descent, as `torch.optim.SGD` computes it, dampening 0:
///
/// ```text
/// g = g + decay w
/// b = momentum b + g
/// w = w - lr b                   with Nesterov's: w - lr (g + momentum b)
/// ```
#[derive(Debug)]
pub struct Sgd {
    rule: Rule,
    shared: Optimizer,
}

impl Sgd {
    /// An optimiser for `params`, f32, bf16 or f16, contiguous. Its state is allocated here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a number of the configuration outside of
    /// its range, [`TensorError::DType`](crate::TensorError::DType),
    /// [`TensorError::NotContiguous`](crate::TensorError::NotContiguous),
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, params: &[TensorMut<'_>], config: SgdConfig) -> Result<Self> {
        not_negative("Sgd::new", "momentum", config.momentum)?;
        let rule = Rule { momentum: config.momentum as f32, nesterov: config.nesterov.into() };
        let SgdConfig { learning_rate, weight_decay, .. } = config;
        let moments = usize::from(config.momentum != 0.0);
        // No bias is corrected.
        let kind = Kind { operation: "Sgd", moments, betas: [0.0; 2], learning_rate, weight_decay };
        Ok(Sgd { rule, shared: Optimizer::new(stream, params, kind, config.state)? })
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
        if rule.momentum == 0.0 {
            shared.step::<sgd, _, f32>(stream, Descent, params, grads, norm)
        } else if shared.has_short_moments() {
            shared.step::<sgd_momentum_bf16, _, bf16>(stream, rule, params, grads, norm)
        } else {
            shared.step::<sgd_momentum_f32, _, f32>(stream, rule, params, grads, norm)
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

    /// The momentum of a parameter; `None` for a momentum of 0. Drop the tensor before the next step.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a parameter that there is not.
    pub fn momentum_buffer(&self, parameter: usize) -> Result<Option<Tensor>> {
        self.shared.state(Some(0), parameter)
    }
}
