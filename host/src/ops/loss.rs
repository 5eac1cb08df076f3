//! Losses of a tensor and its targets, element by element, and of pairs of rows, with their gradients.
//!
//! Cross-entropy of classes is [`CrossEntropy`](super::row::CrossEntropy).
//!
//! ```
//! use ironwarp::ops::loss::{LossFunction, PairLoss, losses};
//! use ironwarp::ops::row::Reduction;
//! use ironwarp::{Device, Tensor};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let x = Tensor::from_slice(&stream, &[2], &[1.0f32, 5.0])?;
//! let target = Tensor::from_slice(&stream, &[2], &[0.0f32, 2.0])?;
//! let mse = PairLoss { function: LossFunction::Mse, reduction: Reduction::Mean };
//! let (loss, dx) = mse.loss_and_gradient(&stream, &x, &target, None)?;
//! assert_eq!((loss.to_vec::<f32>(&stream)?, dx.to_vec::<f32>(&stream)?), (vec![5.0], vec![1.0, 3.0]));
//! assert_eq!(losses(&stream, LossFunction::L1, &x, &target)?.to_vec::<f32>(&stream)?, [1.0, 3.0]);
//! # Ok(())
//! # }
//! ```

use cuda_std::kernel::{Kernel, Ptr, PtrMut, Value};
use half::{bf16, f16};
use primitives::access::VECTOR_BYTES;
use tensor::THREADS;
use tensor::loss::{self as kernel, LossJob, pair_loss_bf16, pair_loss_f16, pair_loss_f32};

use super::dispatch::by_dtype;
use super::elementwise::{contiguous, made, same_dtype};
use super::fill::full;
use super::reduce::{ReduceOp, reduce};
use super::row::{Reduction, scalar};
use crate::error::{Error, Result};
use crate::launch::{LaunchConfig, launch};
use crate::memory::Within;
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};

/// A loss of `x` and a target `t` of the same shape and type, by PyTorch's names; `d = x - t`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossFunction {
    /// `d^2`: `mse_loss`.
    Mse,
    /// `|d|`: `l1_loss`. Its slope is 0 where `d` is.
    L1,
    /// `d^2 / 2` up to `|d| = delta`, beyond it `delta (|d| - delta / 2)`: `huber_loss`.
    Huber {
        /// Where the parabola ends. Positive; 1 is PyTorch's default.
        delta: f64,
    },
    /// `d^2 / (2 beta)` up to `|d| = beta`, beyond it `|d| - beta / 2`: `smooth_l1_loss`.
    SmoothL1 {
        /// Where the parabola ends. Positive; 1 is PyTorch's default, whose 0 is [`LossFunction::L1`].
        beta: f64,
    },
    /// `-w t ln(sigmoid(x)) - (1 - t) ln(1 - sigmoid(x))`: `binary_cross_entropy_with_logits`, right to full
    /// relative accuracy for logits of any size.
    BceWithLogits {
        /// The weight `w` of positives. Not negative; 1 is PyTorch's default.
        pos_weight: f64,
    },
    /// `t (ln t - x)` of log-probabilities `x`, and 0 for `t = 0`: `kl_div`.
    KlDiv {
        /// Targets are log-probabilities too: `e^t (t - x)`, and 0 where `e^t` is.
        log_target: bool,
    },
}

const OPERATION: &str = "pair_loss";

impl LossFunction {
    /// The kernel's function, its parameter, and a factor.
    fn parts(self) -> (kernel::LossFunction, f64, f64) {
        use kernel::LossFunction as Of;
        match self {
            LossFunction::Mse => (Of::Mse, 0.0, 1.0),
            LossFunction::L1 => (Of::L1, 0.0, 1.0),
            LossFunction::Huber { delta } => (Of::Huber, delta, 1.0),
            LossFunction::SmoothL1 { beta } => (Of::Huber, beta, 1.0 / beta),
            LossFunction::BceWithLogits { pos_weight } => (Of::BceWithLogits, pos_weight, 1.0),
            LossFunction::KlDiv { log_target: false } => (Of::KlDiv, 0.0, 1.0),
            LossFunction::KlDiv { log_target: true } => (Of::KlDivOfLogs, 0.0, 1.0),
        }
    }

    fn check(self) -> Result<()> {
        // As f32 it is still so.
        let is_positive = |given: f64| (given as f32).is_normal() && given > 0.0;
        let (argument, given, is_good, wanted, hint) = match self {
            LossFunction::Huber { delta } => {
                ("delta", delta, is_positive(delta), "a positive number of f32", "1 is usual")
            }
            LossFunction::SmoothL1 { beta } => {
                let hint = "1 is usual; for 0 take `LossFunction::L1`";
                ("beta", beta, is_positive(beta), "a positive number of f32", hint)
            }
            LossFunction::BceWithLogits { pos_weight } => {
                let is_good = pos_weight == 0.0 || is_positive(pos_weight);
                ("pos_weight", pos_weight, is_good, "a number of f32, at least 0", "1 weighs all alike")
            }
            LossFunction::Mse | LossFunction::L1 | LossFunction::KlDiv { .. } => return Ok(()),
        };
        if is_good {
            return Ok(());
        }
        let (got, wanted) = (given.to_string(), wanted.to_owned());
        Err(Error::InvalidArgument { operation: OPERATION, argument, got, wanted, hint })
    }
}

/// A loss of all elements, as one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairLoss {
    /// The loss of each.
    pub function: LossFunction,
    /// How they become one. Of no elements the mean is NaN. (PyTorch's `batchmean` is the sum over the length
    /// of the first axis.)
    pub reduction: Reduction,
}

impl PairLoss {
    /// The loss of `x` and `target`, one f32 on the device.
    ///
    /// # Errors
    /// [`TensorError::Shape`] and [`TensorError::DType`] for operands that differ, [`TensorError::DType`] for
    /// other types than f32, f16 and bf16, [`Error::InvalidArgument`] for a width that is not positive or a
    /// weight that is negative, [`Error::DeviceMismatch`], [`Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn loss(&self, stream: &Stream, x: &Tensor, target: &Tensor) -> Result<Tensor> {
        let job = Job::new(stream, self.function, x, target)?;
        self.run(&job, Results::default())
    }

    /// The loss, and its gradient by `x`, of its shape and type and contiguous. `upstream`, one f32 on the
    /// device, multiplies the gradient.
    ///
    /// # Errors
    /// As [`loss`](Self::loss), and [`TensorError::Shape`] and [`TensorError::DType`] for an upstream
    /// gradient that is not one f32.
    #[track_caller]
    pub fn loss_and_gradient(
        &self,
        stream: &Stream,
        x: &Tensor,
        target: &Tensor,
        upstream: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        let job = Job::new(stream, self.function, x, target)?;
        // SAFETY: the launch writes all elements, or fails, and then they go.
        let mut gradient = unsafe { Tensor::uninit(stream, x.shape().clone(), x.dtype())? };
        let to = Some(gradient.view_mut()?);
        let loss = self.run(&job, Results { upstream, gradient: to, ..Results::default() })?;
        Ok((loss, gradient))
    }

    fn run(&self, job: &Job<'_>, results: Results<'_>) -> Result<Tensor> {
        let n = job.x.elements();
        results.upstream.map_or(Ok(()), |upstream| scalar(job.stream, OPERATION, upstream).map(drop))?;
        let share = if self.reduction == Reduction::Mean { 1.0 / n as f64 } else { 1.0 };
        if n == 0 {
            let of_none = if self.reduction == Reduction::Mean { f32::NAN } else { 0.0 };
            return full(job.stream, &[], of_none);
        }
        let shape = Shape::of(OPERATION, &[job.blocks() as usize])?;
        // SAFETY: each block writes its number.
        let mut sums = unsafe { Tensor::uninit(job.stream, shape, DType::F32)? };
        job.run(share, Results { sums: Some(sums.view_mut()?), ..results })?;
        reduce(job.stream, ReduceOp::Sum, &sums, &[0])
    }
}

/// The loss of each element, of the shape and type of `x`, contiguous: PyTorch's `reduction="none"`.
///
/// # Errors
/// As [`PairLoss::loss`].
#[track_caller]
pub fn losses(stream: &Stream, function: LossFunction, x: &Tensor, target: &Tensor) -> Result<Tensor> {
    let job = Job::new(stream, function, x, target)?;
    made(stream, x.shape(), x.dtype(), |to| job.run(1.0, Results { losses: Some(to), ..Results::default() }))
}

/// The gradient of [`losses`] by `x`, from the gradient `dy` by its result, of the same shape and type.
///
/// # Errors
/// As [`PairLoss::loss`], also for `dy`.
#[track_caller]
pub fn losses_backward(
    stream: &Stream,
    function: LossFunction,
    x: &Tensor,
    target: &Tensor,
    dy: &Tensor,
) -> Result<Tensor> {
    let job = Job::new(stream, function, x, target)?;
    alike("dy", dy, x)?;
    let dy = contiguous(stream, dy)?;
    made(stream, x.shape(), x.dtype(), |to| {
        job.run(1.0, Results { dy: Some(&dy), gradient: Some(to), ..Results::default() })
    })
}

/// Has it the shape and the type of `x`?
fn alike(what: &'static str, given: &Tensor, x: &Tensor) -> Result<()> {
    if given.shape() != x.shape() {
        let (got, wanted) = (given.shape().clone(), x.shape().to_string());
        let hint = "each element of x has its own; `broadcast_to` repeats a smaller tensor";
        return Err(TensorError::Shape { operation: OPERATION, what, got, wanted, hint }.into());
    }
    same_dtype(OPERATION, what, x.dtype(), given.dtype())
}

/// A launch reads these beside the operands, and writes these.
#[derive(Default)]
struct Results<'a> {
    upstream: Option<&'a Tensor>,
    dy: Option<&'a Tensor>,
    losses: Option<TensorMut<'a>>,
    gradient: Option<TensorMut<'a>>,
    sums: Option<TensorMut<'a>>,
}

/// Operands that have been checked.
struct Job<'a> {
    stream: &'a Stream,
    function: LossFunction,
    /// Contiguous, as the target.
    x: Tensor,
    target: Tensor,
}

/// Parameters of the kernel of an element type.
type Parameters<T> = (Value<LossJob>, Ptr<T>, Ptr<T>, Ptr<f32>, Ptr<T>, PtrMut<T>, PtrMut<T>, PtrMut<f32>);

impl<'a> Job<'a> {
    fn new(stream: &'a Stream, function: LossFunction, x: &Tensor, target: &Tensor) -> Result<Self> {
        function.check()?;
        alike("target", target, x)?;
        by_dtype!(x.dtype(), (OPERATION, "x", None), {
            F32 => Ok(()),
            F16 => Ok(()),
            BF16 => Ok(()),
        })?;
        stream.same_device("x", x.device())?;
        stream.same_device("target", target.device())?;
        let (x, target) = (contiguous(stream, x)?, contiguous(stream, target)?);
        Ok(Job { stream, function, x, target })
    }

    fn blocks(&self) -> u64 {
        kernel::blocks(self.x.elements() as u64)
    }

    fn run(&self, share: f64, results: Results<'_>) -> Result<()> {
        by_dtype!(self.x.dtype(), (OPERATION, "x", None), {
            F32 => self.launch::<pair_loss_f32, f32>(share, &results),
            F16 => self.launch::<pair_loss_f16, f16>(share, &results),
            BF16 => self.launch::<pair_loss_bf16, bf16>(share, &results),
        })
    }

    fn launch<K, T>(&self, share: f64, results: &Results<'_>) -> Result<()>
    where
        K: Kernel<Params = Parameters<T>>,
    {
        let (stream, n) = (self.stream, self.x.elements() as u64);
        if n == 0 {
            return Ok(());
        }
        let (function, parameter, factor) = self.function.parts();
        let Results { upstream, dy, losses, gradient, sums } = results;
        let written = [losses, gradient].map(|to| to.as_ref().map_or(0, TensorMut::address));
        let read = [Some(&self.x), Some(&self.target), *dy].map(|given| given.map_or(0, Tensor::address));
        let bits = written.into_iter().chain(read).fold(0, |bits, address| bits | address);
        let job = LossJob {
            n,
            function,
            parameter: parameter as f32,
            factor: (factor * share) as f32,
            is_aligned: bits.is_multiple_of(VECTOR_BYTES as u64).into(),
        };
        // More blocks than a grid holds become an error of the launch.
        let blocks = u32::try_from(self.blocks()).unwrap_or(u32::MAX);
        let config = LaunchConfig::new([blocks, 1, 1], [THREADS, 1, 1]).overlapping_previous();
        let upstream = upstream.map(|upstream| scalar(stream, OPERATION, upstream)).transpose()?;
        let dy = dy.map(|dy| dy.read::<T>(stream)).transpose()?;
        let arguments = (
            job,
            self.x.read::<T>(stream)?,
            self.target.read::<T>(stream)?,
            upstream,
            dy,
            write::<T>(stream, losses)?,
            write::<T>(stream, gradient)?,
            write::<f32>(stream, sums)?,
        );
        // SAFETY: all tensors hold the job's elements, contiguous, and the sums a number for each block; what
        // is written is exclusively borrowed.
        unsafe { launch::<K>(stream, config, arguments) }
    }
}

/// A result, for kernels.
fn write<'t, T>(stream: &Stream, to: &'t Option<TensorMut<'_>>) -> Result<Option<Within<'t, T>>> {
    to.as_ref().map(|to| to.write(stream)).transpose()
}
