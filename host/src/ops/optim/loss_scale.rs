//! The factor of a loss, which changes by itself.

use optim::loss_scale::{Change, update_loss_scale};
use optim::step::Norm;

use super::{GradientNorm, checked};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::Within;
use crate::stream::Stream;
use crate::tensor::{DType, Named, Tensor, TensorMut};

/// How a [`LossScale`] begins and changes. The default is that of `torch.amp.GradScaler`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaleConfig {
    /// The first scale.
    pub initial: f64,
    /// The factor of the scale after [`interval`](Self::interval) steps in a row with finite gradients.
    pub growth: f64,
    /// The factor of the scale after a step whose gradients are not finite.
    pub backoff: f64,
    /// Steps with finite gradients before the scale grows.
    pub interval: u32,
}

impl Default for LossScaleConfig {
    /// 65536; times 2 after 2000 steps, half after a step that is not finite.
    fn default() -> Self {
        LossScaleConfig { initial: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000 }
    }
}

/// Dynamic loss scaling: one f32 on the device, by which a program multiplies its loss, so that small
/// gradients in f16 do not become zeros. It changes on the device and nothing waits, so a graph can capture
/// it with the step.
///
/// ```
/// use ironwarp::ops::optim::{AdamW, AdamWConfig, GradientNorm, LossScale, LossScaleConfig, NormConfig};
/// use ironwarp::{DType, Device, Tensor};
///
/// # fn main() -> ironwarp::Result<()> {
/// let stream = Device::open(0)?.stream()?;
/// let mut w = Tensor::from_slice(&stream, &[2], &[1.0f32, 2.0])?;
/// let mut adamw = AdamW::new(&stream, &[w.view_mut()?], AdamWConfig::default())?;
/// let mut norm = GradientNorm::new(&stream, NormConfig::default())?;
/// let mut scale = LossScale::new(&stream, LossScaleConfig::default())?;
///
/// // A small gradient of the loss: 2^-26 is 0 in f16, and 2^-10 is not.
/// let of_loss = Tensor::from_slice(&stream, &[2], &[0.0f32, 1.0 / 67_108_864.0])?;
/// let gradient = of_loss.mul(scale.tensor())?.to(DType::F16)?;
/// norm.measure(&stream, &[&gradient], Some(scale.tensor()))?;
/// adamw.step(&stream, &mut [w.view_mut()?], &[&gradient.to(DType::F32)?], Some(&norm))?;
/// scale.update(&stream, &norm)?;
/// assert_eq!((norm.value(&stream)?, scale.value(&stream)?), (1.0 / 67_108_864.0, 65536.0));
/// # Ok(())
/// # }
/// ```
pub struct LossScale {
    change: Change,
    scale: Tensor,
    /// Finite norms in a row; a u32's bits.
    finite: Tensor,
}

/// Names of the state.
const SCALE: &str = "scale";
const FINITE: &str = "finite";

impl LossScale {
    /// A scale, before its first step.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for a first scale that is no normal f32 above 0, a growth below 1, a
    /// backoff that is not between 0 and 1, or an interval of 0; [`crate::Error::OutOfMemory`], or the
    /// driver's error.
    #[track_caller]
    pub fn new(stream: &Stream, config: LossScaleConfig) -> Result<Self> {
        let operation = "LossScale::new";
        let LossScaleConfig { initial, growth, backoff, interval } = config;
        let is_scale = (initial as f32).is_normal() && initial > 0.0;
        let hint = "65536 is usual";
        checked(operation, "initial", initial, is_scale, "a normal number of f32 above 0", hint)?;
        let grows = (growth as f32).is_finite() && growth >= 1.0;
        checked(operation, "growth", growth, grows, "a number of f32, at least 1", "2 is usual")?;
        let shrinks = backoff as f32 > 0.0 && (backoff as f32) < 1.0;
        checked(operation, "backoff", backoff, shrinks, "above 0 and below 1", "0.5 is usual")?;
        let hint = "2000 is usual";
        checked(operation, "interval", interval.into(), interval > 0, "at least 1", hint)?;
        let change = Change { growth: growth as f32, backoff: backoff as f32, interval };
        let scale = Tensor::from_slice(stream, &[1], &[initial as f32])?;
        Ok(LossScale { change, scale, finite: Tensor::zeros(stream, &[1], DType::I32)? })
    }

    /// The scale, `[1]` in f32 on the device: a factor of the loss, or of its gradient, and the argument of
    /// [`GradientNorm::measure`]. Drop clones of the tensor before the next update.
    pub fn tensor(&self) -> &Tensor {
        &self.scale
    }

    /// Queues the change of the scale by the norm of the gradients that it was in, after the step that took
    /// the norm.
    ///
    /// A norm that is not finite as an f32 makes the scale smaller by the backoff, but not less than the
    /// smallest normal f32. After as many finite ones in a row as the interval it grows, unless it would be
    /// infinite. A step that was skipped for its factor alone counts as one with a finite norm.
    ///
    /// # Errors
    /// [`TensorError::Shared`](crate::TensorError::Shared) while a clone of the tensor lives,
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    #[track_caller]
    pub fn update(&mut self, stream: &Stream, norm: &GradientNorm) -> Result<()> {
        let operation = "LossScale::update";
        let scale = self.scale.view_mut().named(operation)?;
        let finite = self.finite.view_mut().named(operation)?;
        let (scale, finite) = (scale.write::<f32>(stream)?, finite.write::<u32>(stream)?);
        let norm: Within<'_, Norm> = norm.result();
        let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]).overlapping_previous();
        // SAFETY: one record each; the scale and the count are exclusively borrowed.
        unsafe { launch::<update_loss_scale>(stream, config, (self.change, norm, scale, finite)) }
    }

    /// The scale, on the host; waits for it.
    ///
    /// # Errors
    /// [`crate::Error::DeviceMismatch`], or the driver's error.
    pub fn value(&self, stream: &Stream) -> Result<f32> {
        self.scale.item_on(stream)
    }

    /// The scale and the finite steps since it changed last, by name: for a checkpoint.
    pub fn state(&self) -> Vec<(String, Tensor)> {
        [(SCALE, &self.scale), (FINITE, &self.finite)]
            .map(|(name, tensor)| (name.to_owned(), tensor.clone()))
            .into()
    }

    /// Takes over the [`state`](Self::state) of another one: `read` writes the tensor of a name. The numbers
    /// are taken as they are.
    ///
    /// # Errors
    /// As `read`; [`TensorError::Shared`](crate::TensorError::Shared) while tensors of the state are kept.
    pub fn restore(&mut self, mut read: impl FnMut(&str, TensorMut<'_>) -> Result<()>) -> Result<()> {
        read(SCALE, self.scale.view_mut()?)?;
        read(FINITE, self.finite.view_mut()?)
    }
}

impl std::fmt::Debug for LossScale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LossScale({:?})", self.change)
    }
}
