//! Lion.

use half::bf16;
use optim::rules::{lion_bf16, lion_f32};

use super::decay_rate;
use super::optimizer::{Numbers, Optimizer, Rule, StateConfig, Update};
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::TensorMut;

/// The numbers of [`Lion`]. The default is the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LionConfig {
    /// Length of a step: of each weight.
    pub learning_rate: f64,
    /// Decay rates of the average for the direction, and of the one that is kept.
    pub betas: [f64; 2],
    /// The part of a weight that a step takes away, over the learning rate.
    pub weight_decay: f64,
    /// How the average and the weights are kept.
    pub state: StateConfig,
}

impl Default for LionConfig {
    fn default() -> Self {
        let state = StateConfig::default();
        LionConfig { learning_rate: 1e-4, betas: [0.9, 0.99], weight_decay: 0.0, state }
    }
}

/// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023):
///
/// ```text
/// w = w - lr decay w - lr sign(beta1 m + (1 - beta1) g)
/// m = beta2 m + (1 - beta2) g
/// ```
pub type Lion = Optimizer<optim::rules::Lion>;

impl Rule for optim::rules::Lion {
    const NAME: &'static str = "Lion";

    fn moments(&self) -> usize {
        1
    }

    fn queue(&mut self, update: Update<'_>) -> Result<()> {
        // SAFETY: the types of the moments that are kept.
        unsafe {
            if update.has_short_moments {
                update.launch::<lion_bf16, _, bf16>(*self)
            } else {
                update.launch::<lion_f32, _, f32>(*self)
            }
        }
    }
}

impl Lion {
    /// An optimiser for `params`, f32, bf16 or f16, contiguous. Its state is allocated here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a number of the configuration outside of
    /// its range, [`TensorError::DType`](crate::TensorError::DType),
    /// [`TensorError::NotContiguous`](crate::TensorError::NotContiguous),
    /// [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or the driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, params: &[TensorMut<'_>], config: LionConfig) -> Result<Self> {
        for beta in config.betas {
            decay_rate("Lion", "betas", beta)?;
        }
        let LionConfig { learning_rate, betas, weight_decay, state } = config;
        let rule = optim::rules::Lion { rates: betas.map(|beta| (1.0 - beta) as f32) };
        // No bias is corrected.
        let numbers = Numbers { betas: [0.0; 2], learning_rate, weight_decay };
        Optimizer::made(stream, params, rule, numbers, state)
    }
}
