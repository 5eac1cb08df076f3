//! Cross-entropy of logits and probabilities of their classes.

use half::{bf16, f16};
use rows::kernels;
use rows::loss_of_probabilities::ProbabilityCrossEntropyArgs;
use rows::sm90::kernels as held;
use rows::soft_cap::SoftCap;

use super::launch::{Job, as_rows, launched};
use super::loss::{Numbers, OPERATION, rows_in_place, share};
use super::{CrossEntropy, Loss, last_columns};
use crate::error::Result;
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};

impl CrossEntropy {
    /// The loss of `logits`, whose last axis are the classes, and `probabilities` of their shape and type:
    /// `-sum of y ln(softmax(x))` for each row, and PyTorch's `cross_entropy` with such a target. The mean is
    /// over all rows; no row is ignored, but one of zeros costs nothing without smoothing and z-loss.
    ///
    /// Rows need not sum up to 1. Without smoothing, a class of probability 0 adds nothing, also where its
    /// logit is minus infinity, which makes PyTorch's loss NaN. With smoothing each class has a share, so
    /// such a logit makes the loss infinite.
    ///
    /// # Errors
    /// As [`loss`](Self::loss), with [`TensorError::Shape`] and [`TensorError::DType`] for probabilities that
    /// are not as the logits.
    #[track_caller]
    pub fn loss_of_probabilities(
        &self,
        stream: &Stream,
        logits: &Tensor,
        probabilities: &Tensor,
    ) -> Result<Loss> {
        let columns = last_columns(OPERATION, logits)?;
        let (shape, dtype) = (logits.shape(), logits.dtype());
        self.fits(probabilities, shape, dtype)?;
        let rows = [as_rows(stream, logits, columns)?, as_rows(stream, probabilities, columns)?];
        let inputs = [Some(&rows[0]), Some(&rows[1]), None];
        let job = Job { stream, columns, shared: 0, inputs, outputs: [None, None] };
        self.of_probabilities(&job, shape, dtype, None)
    }

    /// The loss, and its gradient by the logits, which is written over them: contiguous, or with rows apart.
    /// `upstream`, one f32 on the device, multiplies the gradient.
    ///
    /// # Errors
    /// As [`loss_of_probabilities`](Self::loss_of_probabilities) and as
    /// [`loss_and_gradient`](Self::loss_and_gradient).
    #[track_caller]
    pub fn loss_and_gradient_of_probabilities(
        &self,
        stream: &Stream,
        logits: TensorMut<'_>,
        probabilities: &Tensor,
        upstream: Option<&Tensor>,
    ) -> Result<Loss> {
        let (shape, dtype) = (logits.shape().clone(), logits.dtype());
        let (logits, columns) = rows_in_place(logits)?;
        self.fits(probabilities, &shape, dtype)?;
        let probabilities = as_rows(stream, probabilities, columns)?;
        let inputs = [None, Some(&probabilities), None];
        let job = Job { stream, columns, shared: 0, inputs, outputs: [Some(logits), None] };
        self.of_probabilities(&job, &shape, dtype, upstream)
    }

    /// Checks the loss, and the probabilities for logits of this shape and type.
    fn fits(&self, probabilities: &Tensor, logits: &Shape, dtype: DType) -> Result<()> {
        self.check(OPERATION)?;
        let what = "probabilities";
        if probabilities.shape() != logits {
            let (got, wanted) = (probabilities.shape().clone(), logits.to_string());
            let hint = "each logit has a probability; numbers of classes are the targets of `loss`";
            return Err(TensorError::Shape { operation: OPERATION, what, got, wanted, hint }.into());
        }
        if probabilities.dtype() != dtype {
            let (got, wanted) = (probabilities.dtype(), format!("{dtype} as the logits"));
            let hint = "convert them first (`to`)";
            return Err(TensorError::DType { operation: OPERATION, what, got, wanted, hint }.into());
        }
        let (columns, rows) = (logits[logits.rank() - 1], &logits.sides()[..logits.rank() - 1]);
        if columns == 0 && !rows.contains(&0) {
            return Err(TensorError::Empty { operation: OPERATION, shape: logits.clone() }.into());
        }
        Ok(())
    }

    fn of_probabilities(
        &self,
        job: &Job<'_>,
        shape: &Shape,
        dtype: DType,
        upstream: Option<&Tensor>,
    ) -> Result<Loss> {
        let (stream, columns) = (job.stream, job.columns);
        let scale = share(stream, OPERATION, job.rows(), self.reduction, upstream)?;
        // SAFETY: the launch below writes the numbers of all rows.
        let mut numbers = unsafe { Numbers::new(stream, shape, scale)? };
        let Numbers { scale, of_rows, log_sum_exps, .. } = &mut numbers;
        let (losses, sums) = (of_rows.view_mut()?, log_sum_exps.view_mut()?);
        let function = ProbabilityCrossEntropyArgs {
            scale: scale.view().within(),
            losses: losses.write::<f32>(stream)?,
            log_sum_exps: sums.write::<f32>(stream)?,
            cap: self.cap().unwrap_or(SoftCap { cap: 0.0, inverse: 0.0 }),
            smoothing: self.smoothing as f32,
            share: (self.smoothing / columns as f64) as f32,
            z_loss: self.z_loss as f32,
            has_gradient: job.outputs[0].is_some().into(),
        };
        // SAFETY: probabilities of each row of logits, and a place for each row's numbers; nothing overlaps.
        unsafe {
            launched!(job, function.pass(), dtype, OPERATION, {
                F32(f32) => kernels::cross_entropy_probabilities_f32, held::cross_entropy_probabilities_held_f32;
                F16(f16) => kernels::cross_entropy_probabilities_f16, held::cross_entropy_probabilities_held_f16;
                BF16(bf16) => kernels::cross_entropy_probabilities_bf16, held::cross_entropy_probabilities_held_bf16;
            })?;
        }
        numbers.end()
    }
}
