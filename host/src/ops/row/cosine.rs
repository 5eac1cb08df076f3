//! The cosine embedding loss.

use half::{bf16, f16};
use rows::cosine::CosineEmbeddingArgs;
use rows::kernels;

use super::launch::{Job, as_rows, launched};
use super::loss::{Targets, add, count, of_each_row};
use super::{Reduction, alike, argument, last_columns};
use crate::error::Result;
use crate::ops::elementwise::{contiguous, made};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorMut};

/// The loss of pairs of rows that are to point the same way, or not: PyTorch's
/// `torch.nn.functional.cosine_embedding_loss`.
///
/// Rows with the label 1 cost `1 - cos(a, b)`, those with -1 `max(0, cos(a, b) - margin)`. Another label
/// makes its row's loss and gradients NaN, since nothing waits for the device to ask. A row of zeros has the
/// cosine 0. Squares add up in f32: lengths beyond 1.8e19 are infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CosineEmbedding {
    /// The cosine from which on rows that are to differ cost something, from -1 to 1; 0 is PyTorch's default.
    pub margin: f64,
    /// How the losses of rows become one.
    pub reduction: Reduction,
}

/// A loss and what it is made of, in f32 on the device.
#[derive(Debug)]
pub struct CosineLoss {
    /// The loss, of no dimension; NaN for the mean of no rows.
    pub value: Tensor,
    /// The loss of each row.
    pub of_rows: Tensor,
}

const OPERATION: &str = "cosine_embedding";

impl CosineEmbedding {
    /// The loss of `a` and `b`, of one shape and type, whose rows are along the last axis; `labels`, i64 or
    /// i32, has the other axes.
    ///
    /// # Errors
    /// [`crate::TensorError::Axis`] for a number, [`crate::TensorError::Shape`] and
    /// [`crate::TensorError::DType`] for operands that do not fit, or are of other types than f32, f16 and
    /// bf16,
    /// [`crate::TensorError::Empty`] for rows without elements, [`crate::TensorError::TooLarge`] for 2^32 of
    /// them or more, [`crate::Error::InvalidArgument`] for a margin that is not from -1 to 1,
    /// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn loss(&self, stream: &Stream, a: &Tensor, b: &Tensor, labels: &Tensor) -> Result<CosineLoss> {
        self.run(stream, [a, b], labels, None, [None, None])
    }

    /// The loss, and its gradients by `a` and `b`, contiguous. `upstream`, one f32 on the device, multiplies
    /// them.
    ///
    /// # Errors
    /// As [`loss`](Self::loss).
    #[track_caller]
    pub fn loss_and_gradients(
        &self,
        stream: &Stream,
        a: &Tensor,
        b: &Tensor,
        labels: &Tensor,
        upstream: Option<&Tensor>,
    ) -> Result<(CosineLoss, [Tensor; 2])> {
        // SAFETY: the launch writes all elements of both, or fails, and then they go.
        let new = || unsafe { Tensor::uninit(stream, a.shape().clone(), a.dtype()) };
        let (mut of_a, mut of_b) = (new()?, new()?);
        let outputs = [Some(of_a.view_mut()?), Some(of_b.view_mut()?)];
        let loss = self.run(stream, [a, b], labels, upstream, outputs)?;
        Ok((loss, [of_a, of_b]))
    }

    #[track_caller]
    fn run(
        &self,
        stream: &Stream,
        [a, b]: [&Tensor; 2],
        labels: &Tensor,
        upstream: Option<&Tensor>,
        outputs: [Option<TensorMut<'_>>; 2],
    ) -> Result<CosineLoss> {
        let columns = last_columns(OPERATION, a)?;
        alike(OPERATION, "b", b, a)?;
        of_each_row(OPERATION, "labels", labels, a.shape())?;
        if !(-1.0..=1.0).contains(&self.margin) {
            let (got, wanted) = (self.margin.to_string(), "from -1 to 1".to_owned());
            return Err(argument(OPERATION, "margin", got, wanted, "0 is usual: it is a cosine"));
        }
        let labels = &contiguous(stream, labels)?;
        let scale = count(stream, OPERATION, labels, NONE_IGNORED, self.reduction, upstream)?;
        let (rows, has_gradient) = ([a, b].map(|x| as_rows(stream, x, columns)), outputs[0].is_some());
        let [a, b] = rows;
        let (a, b) = (a?, b?);
        let inputs = [Some(&a), Some(&b), None];
        let job = Job { stream, columns, shared: 0, inputs, outputs };
        let of_rows = made(stream, &Shape::of(OPERATION, labels.shape().sides())?, DType::F32, |losses| {
            let Targets { wide, narrow } = Targets::new(stream, OPERATION, labels)?;
            let function = CosineEmbeddingArgs {
                wide_labels: wide,
                labels: narrow,
                scale: scale.view().within(),
                losses: losses.write::<f32>(stream)?,
                margin: self.margin as f32,
                has_gradient: has_gradient.into(),
            };
            // SAFETY: a label of each row, and a place for its loss; all tensors have the same rows.
            unsafe {
                launched!(job, function.pass(), a.dtype(), OPERATION, {
                    F32(f32) => kernels::cosine_embedding_f32;
                    F16(f16) => kernels::cosine_embedding_f16;
                    BF16(bf16) => kernels::cosine_embedding_bf16;
                })
            }
        })?;
        Ok(CosineLoss { value: add(stream, &of_rows, &scale)?, of_rows })
    }
}

/// No label means that its row does not count. This one, as others but 1 and -1, makes the loss NaN.
const NONE_IGNORED: i64 = i64::MIN;
