//! Cross-entropy of logits and classes.

use half::{bf16, f16};
use rows::finish::{LOSS_THREADS, add_losses, count_targets};
use rows::kernels;
use rows::loss::CrossEntropyArgs;
use rows::sm90::kernels as ring;

use super::launch::{Job, as_rows, launched};
use super::{argument, columns};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, Within};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};

/// How the losses of rows become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum over the number of rows that are not ignored; NaN if there is none.
    #[default]
    Mean,
    /// Their sum.
    Sum,
}

/// Cross-entropy of rows of logits and the numbers of their classes: PyTorch's
/// `torch.nn.functional.cross_entropy`.
///
/// A target that is no class (and not ignored) makes its row's loss and gradient NaN, since nothing waits for
/// the device to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Rows with this target count for nothing. PyTorch's default is -100.
    pub ignored: i64,
    /// The share of the target distribution that is spread evenly over all classes, from 0 to 1.
    pub smoothing: f64,
    /// Factor of the squared log-sum-exp that is added to each row's loss (Chowdhery et al. 2022). Not
    /// negative.
    pub z_loss: f64,
    /// How the losses of rows become one.
    pub reduction: Reduction,
}

impl Default for CrossEntropy {
    /// Plain, the mean, with PyTorch's ignored target.
    fn default() -> Self {
        CrossEntropy { ignored: -100, smoothing: 0.0, z_loss: 0.0, reduction: Reduction::Mean }
    }
}

/// A loss and what it is made of, all in f32 on the device.
#[derive(Debug)]
pub struct Loss {
    /// The loss, of no dimension.
    pub value: Tensor,
    /// The loss of each row; 0 of ignored ones.
    pub of_rows: Tensor,
    /// `ln(sum of e^x)` of each row.
    pub log_sum_exps: Tensor,
}

impl CrossEntropy {
    /// The loss of `logits`, whose last axis are the classes; `targets`, i64 or i32, has the other axes.
    ///
    /// # Errors
    /// [`TensorError::Axis`] for a number, [`TensorError::DType`] for logits of other types than f32, f16 and
    /// bf16 and for targets that are not integers, [`TensorError::Shape`], [`TensorError::TooLarge`] for 2^32
    /// classes or more, [`crate::Error::InvalidArgument`] for a smoothing that is not from 0 to 1 and for a
    /// factor that is negative or not finite, [`crate::Error::DeviceMismatch`],
    /// [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn loss(&self, stream: &Stream, logits: &Tensor, targets: &Tensor) -> Result<Loss> {
        let columns = columns(OPERATION, logits, logits.rank().wrapping_sub(1))?;
        let rows = as_rows(stream, logits, columns)?;
        let job =
            Job { stream, columns, shares: false, inputs: [Some(&rows), None, None], outputs: [None, None] };
        self.run(&job, logits.shape(), logits.dtype(), targets, None)
    }

    /// The loss, and its gradient, which is written over the logits: contiguous, or with rows apart.
    /// `upstream`, one f32 on the device, multiplies the gradient.
    ///
    /// # Errors
    /// As [`loss`](Self::loss), [`TensorError::NotContiguous`] for logits whose rows are not a fixed distance
    /// apart, and [`crate::Error::InvalidArgument`] where the classes of a row are not beside each other.
    #[track_caller]
    pub fn loss_and_gradient(
        &self,
        stream: &Stream,
        logits: TensorMut<'_>,
        targets: &Tensor,
        upstream: Option<&Tensor>,
    ) -> Result<Loss> {
        let (shape, dtype) = (logits.shape().clone(), logits.dtype());
        let rank = shape.rank();
        if rank == 0 {
            return Err(TensorError::Axis { operation: OPERATION, axis: -1, rank }.into());
        }
        let columns = shape[rank - 1];
        if u32::try_from(columns).is_err() {
            return Err(TensorError::TooLarge { operation: OPERATION, shape: shape.to_vec() }.into());
        }
        let rows = shape.elements() / columns.max(1);
        let logits = logits.reshape(&[rows, columns])?;
        if columns > 1 && logits.layout().strides()[1] != 1 {
            return Err(argument(
                OPERATION,
                "logits",
                "classes apart from each other".to_owned(),
                "the classes of a row beside each other".to_owned(),
                "make them contiguous first",
            ));
        }
        let job = Job { stream, columns, shares: false, inputs: [None; 3], outputs: [Some(logits), None] };
        self.run(&job, &shape, dtype, targets, upstream)
    }

    fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.smoothing) {
            let (got, wanted) = (self.smoothing.to_string(), "from 0 to 1".to_owned());
            return Err(argument(OPERATION, "smoothing", got, wanted, "0.1 is usual; 0 smooths nothing"));
        }
        if !(self.z_loss.is_finite() && self.z_loss >= 0.0) {
            let (got, wanted) = (self.z_loss.to_string(), "a finite number, at least 0".to_owned());
            return Err(argument(OPERATION, "z_loss", got, wanted, "1e-4 is usual; 0 adds nothing"));
        }
        Ok(())
    }

    fn run(
        &self,
        job: &Job<'_>,
        shape: &Shape,
        dtype: DType,
        targets: &Tensor,
        upstream: Option<&Tensor>,
    ) -> Result<Loss> {
        self.check()?;
        let (stream, rows) = (job.stream, shape.elements() / job.columns.max(1));
        let classes = Targets::new(stream, shape, targets)?;
        let upstream = upstream.map(|upstream| scalar(stream, upstream)).transpose()?;
        // SAFETY: the launches below write all of them, or fail, and then they go.
        let (mut of_rows, mut log_sum_exps, mut value, scale) = unsafe {
            let sides = &shape.sides()[..shape.rank() - 1];
            let new = |sides: &[usize]| Tensor::uninit(stream, Shape::new(sides)?, DType::F32);
            (new(sides)?, new(sides)?, new(&[])?, DeviceBuffer::<f32>::uninit(stream, 2)?)
        };
        let one = LaunchConfig::new([1, 1, 1], [LOSS_THREADS, 1, 1]).overlapping_previous();
        let scale = scale.view().within();
        let is_mean = u32::from(self.reduction == Reduction::Mean);
        let (wide, narrow) = (classes.wide, classes.narrow);
        let arguments = (wide, narrow, rows as u64, self.ignored, is_mean, upstream, scale);
        // SAFETY: one of both targets has one of each row; two numbers for the scale.
        unsafe { launch::<count_targets>(stream, one, arguments)? };
        {
            let (losses, sums) = (of_rows.view_mut()?, log_sum_exps.view_mut()?);
            let function = CrossEntropyArgs {
                wide_targets: wide,
                targets: narrow,
                scale,
                losses: losses.write::<f32>(stream)?,
                log_sum_exps: sums.write::<f32>(stream)?,
                ignored: self.ignored,
                smoothing: self.smoothing as f32,
                z_loss: self.z_loss as f32,
                has_gradient: job.outputs[0].is_some().into(),
                rest: 0,
            };
            // SAFETY: a target of each row, and a place for each row's numbers; nothing overlaps.
            unsafe {
                launched!(job, function.pass(), dtype, OPERATION, {
                    F32(f32) => kernels::cross_entropy_f32, ring::cross_entropy_ring_f32;
                    F16(f16) => kernels::cross_entropy_f16, ring::cross_entropy_ring_f16;
                    BF16(bf16) => kernels::cross_entropy_bf16, ring::cross_entropy_ring_bf16;
                })?;
            }
        }
        let (losses, to) = (of_rows.read::<f32>(stream)?, value.view_mut()?);
        let arguments = (losses, rows as u64, scale, to.write::<f32>(stream)?);
        // SAFETY: a loss of each row; a place for the sum.
        unsafe { launch::<add_losses>(stream, one, arguments)? };
        drop(to);
        Ok(Loss { value, of_rows, log_sum_exps })
    }
}

const OPERATION: &str = "cross_entropy";

/// Classes of rows, of one of two types.
struct Targets<'t> {
    wide: Option<Within<'t, i64>>,
    narrow: Option<Within<'t, i32>>,
}

impl<'t> Targets<'t> {
    fn new(stream: &Stream, logits: &Shape, targets: &'t Tensor) -> Result<Self> {
        let (operation, what) = (OPERATION, "targets");
        let sides = &logits.sides()[..logits.rank() - 1];
        if targets.shape().sides() != sides {
            let (got, wanted) = (targets.shape().clone(), format!("{sides:?}, one for each row of logits"));
            let hint = "the last axis of the logits are the classes";
            return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
        }
        match targets.dtype() {
            DType::I64 => {
                targets.as_view::<i64>()?;
                Ok(Targets { wide: Some(targets.read(stream)?), narrow: None })
            }
            DType::I32 => {
                targets.as_view::<i32>()?;
                Ok(Targets { wide: None, narrow: Some(targets.read(stream)?) })
            }
            got => {
                let (wanted, hint) = ("i64 or i32".to_owned(), "convert them first (`to`)");
                Err(TensorError::DType { operation, what, got, wanted, hint }.into())
            }
        }
    }
}

/// The address of one f32.
fn scalar<'t>(stream: &Stream, upstream: &'t Tensor) -> Result<Within<'t, f32>> {
    let (operation, what) = (OPERATION, "upstream");
    if upstream.dtype() != DType::F32 {
        let (got, wanted, hint) = (upstream.dtype(), "f32".to_owned(), "convert it first (`to`)");
        return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
    }
    if upstream.elements() != 1 {
        let (got, wanted) = (upstream.shape().clone(), "one element".to_owned());
        let hint = "the loss is one number, and so is the gradient by it";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    }
    upstream.read(stream)
}
