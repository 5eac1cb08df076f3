//! Optimisers: a step updates all parameters of a model in one launch, and never waits.
//!
//! An optimiser owns its state on the device: moments, master weights, the number of steps. The caller owns
//! parameters and gradients, and passes them to each step in the same order. Kernels read the learning rate,
//! the number of steps and the gradients' norm from device memory. So a graph can capture a step
//! ([`crate::graph`]). Its replays count further steps, clip by the norm of their gradients, and use the
//! learning rate that was set last.
//!
//! ```
//! use ironwarp::ops::optim::{AdamW, AdamWConfig, GradientNorm, NormConfig};
//! use ironwarp::{Device, Tensor};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let mut w = Tensor::from_slice(&stream, &[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
//! let mut b = Tensor::from_slice(&stream, &[2], &[0.5f32, -0.5])?;
//! let config = AdamWConfig { learning_rate: 0.1, weight_decay: 0.0, ..AdamWConfig::default() };
//! let mut adamw = AdamW::new(&stream, &[w.view_mut()?, b.view_mut()?], config)?;
//! let mut norm = GradientNorm::new(&stream, NormConfig { max_norm: Some(1.0), ..NormConfig::default() })?;
//!
//! let dw = Tensor::from_slice(&stream, &[2, 2], &[3.0f32, 0.0, 0.0, 0.0])?;
//! let db = Tensor::from_slice(&stream, &[2], &[0.0f32, -4.0])?;
//! let gradients = [&dw, &db];
//! norm.measure(&stream, &gradients, None)?;
//! adamw.step(&stream, &mut [w.view_mut()?, b.view_mut()?], &gradients, Some(&norm))?;
//! assert_eq!(norm.value(&stream)?, 5.0);
//! // The first step of Adam is as long as the learning rate, whatever the gradient.
//! assert!((b.to_vec::<f32>(&stream)?[1] + 0.4).abs() < 1e-5);
//! # Ok(())
//! # }
//! ```
//!
//! | parameters | gradients | what keeps small updates |
//! |---|---|---|
//! | f32 | f32, or bf16 | the parameters |
//! | bf16, f16 | their type, or f32 | [`StateConfig::master`]: weights in f32 beside them |
//! | bf16 | bf16 or f32 | [`StateConfig::stochastic`]: random rounding, right on average |

mod adafactor;
mod adamw;
mod lion;
mod loss_scale;
mod muon;
mod norm;
mod optimizer;
mod parameters;
mod sgd;
mod table;

pub use adafactor::{Adafactor, AdafactorConfig, FactoredRule};
pub use adamw::{AdamW, AdamWConfig};
pub use lion::{Lion, LionConfig};
pub use loss_scale::{LossScale, LossScaleConfig};
pub use muon::{Muon, MuonConfig, MuonScale};
pub use norm::{GradientNorm, NormConfig};
pub use optimizer::{Optimizer, Rule, StateConfig};
pub use sgd::{Sgd, SgdConfig};

use crate::error::{Error, Result};

/// `value` when `fits`; else the error of the argument.
fn checked(
    operation: &'static str,
    argument: &'static str,
    value: f64,
    fits: bool,
    wanted: &str,
    hint: &'static str,
) -> Result<f64> {
    if fits {
        return Ok(value);
    }
    let (got, wanted) = (value.to_string(), wanted.to_owned());
    Err(Error::InvalidArgument { operation, argument, got, wanted, hint })
}

/// A number that is not negative, and finite in f32, as which kernels take it.
fn not_negative(operation: &'static str, argument: &'static str, value: f64) -> Result<f64> {
    let fits = (value as f32).is_finite() && value >= 0.0;
    checked(
        operation,
        argument,
        value,
        fits,
        "a finite number of f32, at least 0",
        "check the schedule's arithmetic",
    )
}

/// A decay rate, of at least 0 and below 1 in f32, as which kernels take it.
fn decay_rate(operation: &'static str, argument: &'static str, value: f64) -> Result<f64> {
    let fits = value >= 0.0 && (value as f32) < 1.0;
    checked(
        operation,
        argument,
        value,
        fits,
        "at least 0, and below 1 in f32",
        "0.9 keeps nine tenths a step",
    )
}
