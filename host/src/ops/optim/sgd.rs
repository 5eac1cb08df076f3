//! Stochastic gradient descent.

use half::bf16;
use optim::rules::{Descent, sgd, sgd_momentum_bf16, sgd_momentum_f32};

use super::not_negative;
use super::optimizer::{Numbers, Optimizer, Rule, StateConfig, Update};
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::TensorMut;

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
pub type Sgd = Optimizer<optim::rules::Sgd>;

impl Rule for optim::rules::Sgd {
    const NAME: &'static str = "Sgd";

    fn moments(&self) -> usize {
        usize::from(self.momentum != 0.0)
    }

    fn queue(&mut self, update: Update<'_>) -> Result<()> {
        // SAFETY: the types of the moments that are kept; without momentum there are none.
        unsafe {
            if self.momentum == 0.0 {
                update.launch::<sgd, _, f32>(Descent::default())
            } else if update.has_short_moments {
                update.launch::<sgd_momentum_bf16, _, bf16>(*self)
            } else {
                update.launch::<sgd_momentum_f32, _, f32>(*self)
            }
        }
    }
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
        let momentum = not_negative("Sgd", "momentum", config.momentum)? as f32;
        let SgdConfig { learning_rate, nesterov, weight_decay, state, .. } = config;
        let rule = optim::rules::Sgd { momentum, nesterov: nesterov.into() };
        // No bias is corrected.
        let numbers = Numbers { betas: [0.0; 2], learning_rate, weight_decay };
        Optimizer::made(stream, params, rule, numbers, state)
    }
}
