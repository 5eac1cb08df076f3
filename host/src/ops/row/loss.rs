//! Cross-entropy of logits and classes.

use std::ops::RangeInclusive;

use half::{bf16, f16};
use primitives::warp::LANES;
use rows::finish::{LOSS_THREADS, add_losses, count_targets, share_rows};
use rows::kernels;
use rows::loss::CrossEntropyArgs;
use rows::sm90::kernels as held;
use rows::soft_cap::{CappedCrossEntropyArgs, SoftCap};

use super::launch::{Job, as_rows, launched};
use super::{argument, last_columns};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceBuffer, Within};
use crate::ops::elementwise::{contiguous, made};
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

/// Cross-entropy of rows of logits and the numbers of their classes, or the probabilities of all classes:
/// PyTorch's `torch.nn.functional.cross_entropy`.
///
/// A target that is no class (and not ignored) makes its row's loss and gradient NaN, since nothing waits for
/// the device to ask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Rows with this target count for nothing. PyTorch's default is -100. Probabilities ignore no row.
    pub ignored: i64,
    /// The share of the target distribution that is spread evenly over all classes, from 0 to 1.
    pub smoothing: f64,
    /// Factor of the squared log-sum-exp that is added to each row's loss (Chowdhery et al. 2022). Not
    /// negative.
    pub z_loss: f64,
    /// A soft cap `c`: each logit is replaced by `c tanh(logit / c)` first, and gradients pass through that
    /// (Gemma 2: Gemma Team 2024, section 2). From 1e-30 to 1e30. An infinite logit becomes the cap, so a
    /// minus infinity no longer hides a class.
    pub soft_cap: Option<f64>,
    /// How the losses of rows become one.
    pub reduction: Reduction,
}

impl Default for CrossEntropy {
    /// Plain, the mean, with PyTorch's ignored target.
    fn default() -> Self {
        CrossEntropy {
            ignored: -100,
            smoothing: 0.0,
            z_loss: 0.0,
            soft_cap: None,
            reduction: Reduction::Mean,
        }
    }
}

/// A loss and what it is made of, all in f32 on the device.
#[derive(Debug)]
pub struct Loss {
    /// The loss, of no dimension.
    pub value: Tensor,
    /// The loss of each row; 0 of ignored ones.
    pub of_rows: Tensor,
    /// `ln(sum of e^x)` of each row; of capped logits, where they are capped.
    pub log_sum_exps: Tensor,
}

impl CrossEntropy {
    /// The loss of `logits`, whose last axis are the classes; `targets`, i64 or i32, has the other axes.
    ///
    /// # Errors
    /// [`TensorError::Axis`] for a number, [`TensorError::DType`] for logits of other types than f32, f16 and
    /// bf16 and for targets that are not integers, [`TensorError::Shape`], [`TensorError::Empty`] for rows
    /// without classes, [`TensorError::TooLarge`] for 2^32 of them or more,
    /// [`crate::Error::InvalidArgument`] for a smoothing that is not from 0 to 1, for a factor that is
    /// negative or not finite and for a cap that is not from 1e-30 to 1e30,
    /// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn loss(&self, stream: &Stream, logits: &Tensor, targets: &Tensor) -> Result<Loss> {
        let columns = last_columns(OPERATION, logits)?;
        let rows = as_rows(stream, logits, columns)?;
        let job =
            Job { stream, columns, shared: 0, inputs: [Some(&rows), None, None], outputs: [None, None] };
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
        let (logits, columns) = rows_in_place(logits)?;
        let job = Job { stream, columns, shared: 0, inputs: [None; 3], outputs: [Some(logits), None] };
        self.run(&job, &shape, dtype, targets, upstream)
    }

    pub(super) fn check(&self, operation: &'static str) -> Result<()> {
        if !(0.0..=1.0).contains(&self.smoothing) {
            let (got, wanted) = (self.smoothing.to_string(), "from 0 to 1".to_owned());
            return Err(argument(operation, "smoothing", got, wanted, "0.1 is usual; 0 smooths nothing"));
        }
        // Kernels take it in f32.
        if !((self.z_loss as f32).is_finite() && self.z_loss >= 0.0) {
            let (got, wanted) = (self.z_loss.to_string(), "a finite f32, at least 0".to_owned());
            return Err(argument(operation, "z_loss", got, wanted, "1e-4 is usual; 0 adds nothing"));
        }
        if let Some(cap) = self.soft_cap.filter(|cap| !CAPS.contains(cap)) {
            let (got, wanted) = (cap.to_string(), format!("from {:e} to {:e}", CAPS.start(), CAPS.end()));
            return Err(argument(operation, "soft_cap", got, wanted, "30 is Gemma 2's; None caps nothing"));
        }
        Ok(())
    }

    /// The cap, for kernels.
    pub(super) fn cap(&self) -> Option<SoftCap> {
        self.soft_cap.map(|cap| SoftCap { cap: cap as f32, inverse: (1.0 / cap) as f32 })
    }

    fn run(
        &self,
        job: &Job<'_>,
        shape: &Shape,
        dtype: DType,
        targets: &Tensor,
        upstream: Option<&Tensor>,
    ) -> Result<Loss> {
        let mut rows = Rows::begin(job.stream, OPERATION, self, shape, targets, upstream)?;
        rows.part(job, dtype, 0)?;
        rows.end()
    }
}

pub(super) const OPERATION: &str = "cross_entropy";

/// Caps of which f32 holds the inverse too.
const CAPS: RangeInclusive<f64> = 1e-30..=1e30;

/// Logits that are written over as rows, and how many classes they have.
pub(super) fn rows_in_place(logits: TensorMut<'_>) -> Result<(TensorMut<'_>, usize)> {
    let shape = logits.shape().clone();
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
    Ok((logits, columns))
}

/// The numbers of all rows, which launches write, and those that make one loss of them.
pub(super) struct Numbers<'a> {
    stream: &'a Stream,
    /// Sides of the results.
    sides: Vec<usize>,
    /// The factor of the gradients, and the share of each loss.
    pub scale: DeviceBuffer<f32>,
    /// Of one axis, as the next.
    pub of_rows: Tensor,
    pub log_sum_exps: Tensor,
}

impl<'a> Numbers<'a> {
    /// Those of logits of the shape.
    ///
    /// # Safety
    /// Launches write the numbers of all rows, or one fails, and then they go.
    pub unsafe fn new(stream: &'a Stream, logits: &Shape, scale: DeviceBuffer<f32>) -> Result<Self> {
        let sides = &logits.sides()[..logits.rank() - 1];
        let rows = sides.iter().product::<usize>();
        // SAFETY: the caller's promise.
        let new = || unsafe { Tensor::uninit(stream, Shape::new(&[rows])?, DType::F32) };
        Ok(Numbers { stream, sides: sides.to_vec(), scale, of_rows: new()?, log_sum_exps: new()? })
    }

    /// Queues the sum of all losses.
    pub fn end(self) -> Result<Loss> {
        let value = add(self.stream, &self.of_rows, &self.scale)?;
        let of_rows = self.of_rows.view_as(&self.sides)?;
        Ok(Loss { value, of_rows, log_sum_exps: self.log_sum_exps.view_as(&self.sides)? })
    }
}

/// The numbers of all rows while a loss is computed, which may come part by part.
pub(super) struct Rows<'a> {
    operation: &'static str,
    loss: &'a CrossEntropy,
    /// Of one axis.
    targets: Tensor,
    numbers: Numbers<'a>,
}

impl<'a> Rows<'a> {
    /// Checks the loss and its targets, for logits of the shape, and queues the count of the targets.
    pub fn begin(
        stream: &'a Stream,
        operation: &'static str,
        loss: &'a CrossEntropy,
        logits: &Shape,
        targets: &Tensor,
        upstream: Option<&Tensor>,
    ) -> Result<Self> {
        loss.check(operation)?;
        of_each_row(operation, "targets", targets, logits)?;
        let targets = contiguous(stream, targets)?.view_as(&[targets.elements()])?;
        let scale = count(stream, operation, &targets, loss.ignored, loss.reduction, upstream)?;
        // SAFETY: the launches of all parts write the numbers of all rows.
        let numbers = unsafe { Numbers::new(stream, logits, scale)? };
        Ok(Rows { operation, loss, targets, numbers })
    }

    /// Queues the rows of a job, of which `first` come before.
    pub fn part(&mut self, job: &Job<'_>, dtype: DType, first: usize) -> Result<()> {
        let Numbers { stream, scale, of_rows, log_sum_exps, .. } = &mut self.numbers;
        let (stream, operation) = (*stream, self.operation);
        let rows = first..first + job.rows() as usize;
        let targets = self.targets.slice(0, rows.clone())?;
        let Targets { wide, narrow } = Targets::new(stream, operation, &targets)?;
        let losses = of_rows.view_mut()?.slice(0, rows.clone())?;
        let sums = log_sum_exps.view_mut()?.slice(0, rows)?;
        let function = CrossEntropyArgs {
            wide_targets: wide,
            targets: narrow,
            scale: scale.view().within(),
            losses: losses.write::<f32>(stream)?,
            log_sum_exps: sums.write::<f32>(stream)?,
            ignored: self.loss.ignored,
            smoothing: self.loss.smoothing as f32,
            z_loss: self.loss.z_loss as f32,
            has_gradient: job.outputs[0].is_some().into(),
            rest: 0,
        };
        let Some(cap) = self.loss.cap() else {
            // SAFETY: a target of each row, and a place for each row's numbers; nothing overlaps.
            return unsafe {
                launched!(job, function.pass(), dtype, operation, {
                    F32(f32) => kernels::cross_entropy_f32, held::cross_entropy_held_f32;
                    F16(f16) => kernels::cross_entropy_f16, held::cross_entropy_held_f16;
                    BF16(bf16) => kernels::cross_entropy_bf16, held::cross_entropy_held_bf16;
                })
            };
        };
        let function = CappedCrossEntropyArgs { of: function.pass(), cap };
        // SAFETY: as above.
        unsafe {
            launched!(job, function.pass(), dtype, operation, {
                F32(f32) => kernels::cross_entropy_capped_f32, held::cross_entropy_capped_held_f32;
                F16(f16) => kernels::cross_entropy_capped_f16, held::cross_entropy_capped_held_f16;
                BF16(bf16) => kernels::cross_entropy_capped_bf16, held::cross_entropy_capped_held_bf16;
            })
        }
    }

    /// Queues the sum of all losses.
    pub fn end(self) -> Result<Loss> {
        self.numbers.end()
    }
}

/// Has `given` the axes of `rows` but for the last one, which has elements?
pub(super) fn of_each_row(
    operation: &'static str,
    what: &'static str,
    given: &Tensor,
    rows: &Shape,
) -> Result<()> {
    let (sides, columns) = (&rows.sides()[..rows.rank() - 1], rows[rows.rank() - 1]);
    if given.shape().sides() != sides {
        let (got, wanted) = (given.shape().clone(), format!("{sides:?}, one for each row"));
        let hint = "a row is along the last axis";
        return Err(TensorError::Shape { operation, what, got, wanted, hint }.into());
    }
    if columns == 0 && given.elements() > 0 {
        return Err(TensorError::Empty { operation, shape: rows.clone() }.into());
    }
    Ok(())
}

/// Queues the count of targets that are not ignored: two numbers, the factor of gradients, which `upstream`
/// multiplies, and the share of each loss.
pub(super) fn count(
    stream: &Stream,
    operation: &'static str,
    targets: &Tensor,
    ignored: i64,
    reduction: Reduction,
    upstream: Option<&Tensor>,
) -> Result<DeviceBuffer<f32>> {
    let Targets { wide, narrow } = Targets::new(stream, operation, targets)?;
    let upstream = upstream.map(|upstream| scalar(stream, operation, upstream)).transpose()?;
    // SAFETY: the launch below writes both, or fails, and then they go.
    let scale = unsafe { DeviceBuffer::<f32>::uninit(stream, 2)? };
    let (rows, is_mean) = (targets.elements() as u64, u32::from(reduction == Reduction::Mean));
    let arguments = (wide, narrow, rows, ignored, is_mean, upstream, scale.view().within());
    // SAFETY: one of both targets has one of each row; two numbers for the scale.
    unsafe { launch::<count_targets>(stream, one_block(LOSS_THREADS), arguments)? };
    Ok(scale)
}

/// Queues the two numbers of [`count`] for `rows` rows that all count.
pub(super) fn share(
    stream: &Stream,
    operation: &'static str,
    rows: u64,
    reduction: Reduction,
    upstream: Option<&Tensor>,
) -> Result<DeviceBuffer<f32>> {
    let upstream = upstream.map(|upstream| scalar(stream, operation, upstream)).transpose()?;
    // SAFETY: the launch below writes both, or fails, and then they go.
    let scale = unsafe { DeviceBuffer::<f32>::uninit(stream, 2)? };
    let arguments = (rows, u32::from(reduction == Reduction::Mean), upstream, scale.view().within());
    // SAFETY: two numbers for the scale.
    unsafe { launch::<share_rows>(stream, one_block(LANES), arguments)? };
    Ok(scale)
}

/// Queues the sum of the losses of rows, times the share of each.
pub(super) fn add(stream: &Stream, of_rows: &Tensor, scale: &DeviceBuffer<f32>) -> Result<Tensor> {
    made(stream, &Shape::new(&[])?, DType::F32, |value| {
        let (losses, to) = (of_rows.read::<f32>(stream)?, value.write::<f32>(stream)?);
        let arguments = (losses, of_rows.elements() as u64, scale.view().within(), to);
        // SAFETY: a loss of each row; a place for the sum.
        unsafe { launch::<add_losses>(stream, one_block(LOSS_THREADS), arguments) }
    })
}

/// The launch of a loss's numbers.
fn one_block(threads: u32) -> LaunchConfig {
    LaunchConfig::new([1, 1, 1], [threads, 1, 1]).overlapping_previous()
}

/// Classes of rows, of one of two types.
pub(super) struct Targets<'t> {
    pub wide: Option<Within<'t, i64>>,
    pub narrow: Option<Within<'t, i32>>,
}

impl<'t> Targets<'t> {
    pub fn new(stream: &Stream, operation: &'static str, targets: &'t Tensor) -> Result<Self> {
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
                let (what, wanted, hint) = ("targets", "i64 or i32".to_owned(), "convert them first (`to`)");
                Err(TensorError::DType { operation, what, got, wanted, hint }.into())
            }
        }
    }
}

/// The address of one f32.
pub(in crate::ops) fn scalar<'t>(
    stream: &Stream,
    operation: &'static str,
    upstream: &'t Tensor,
) -> Result<Within<'t, f32>> {
    let what = "upstream";
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
