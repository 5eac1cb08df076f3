//! AdamW.

use half::bf16;
use optim::rules::{adamw_bf16, adamw_f32};

use super::optimizer::{Numbers, Optimizer, Rule, StateConfig, Update};
use super::{decay_rate, not_negative};
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::TensorMut;

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
pub type AdamW = Optimizer<optim::rules::AdamW>;

impl Rule for optim::rules::AdamW {
    const NAME: &'static str = "AdamW";

    fn moments(&self) -> usize {
        2
    }

    fn queue(&mut self, update: Update<'_>) -> Result<()> {
        // SAFETY: the types of the moments that are kept.
        unsafe {
            if update.has_short_moments {
                update.launch::<adamw_bf16, _, bf16>(*self)
            } else {
                update.launch::<adamw_f32, _, f32>(*self)
            }
        }
    }
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
        for beta in config.betas {
            decay_rate("AdamW", "betas", beta)?;
        }
        let eps = not_negative("AdamW", "eps", config.eps)? as f32;
        let AdamWConfig { learning_rate, betas, weight_decay, state, .. } = config;
        let rule = optim::rules::AdamW { rates: betas.map(|beta| (1.0 - beta) as f32), eps };
        let numbers = Numbers { betas, learning_rate, weight_decay };
        Optimizer::made(stream, params, rule, numbers, state)
    }
}
