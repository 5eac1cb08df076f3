//! Products of vectors, matrices and batches of them.

use super::stream_of;
use crate::error::Result;
use crate::ops::elementwise::{self, made};
use crate::ops::gemm::{Matmul, Matrix, MatrixMut};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError};

impl Tensor {
    /// The matrix product, as `torch.matmul` has it:
    ///
    /// | `self` | `other` | result |
    /// |---|---|---|
    /// | `[k]` | `[k]` | `[]`, the dot product |
    /// | `[m, k]` | `[k]` | `[m]` |
    /// | `[k]` | `[k, n]` | `[n]` |
    /// | `[m, k]` | `[k, n]` | `[m, n]` |
    /// | `[.., m, k]` | `[.., k, n]` | `[.., m, n]`, the batches broadcast |
    ///
    /// f32, f16 and bf16; both operands of one type, which the result has too. Sums are f32. Operands may
    /// have any strides. A batch whose strides do not make one step is copied first.
    /// [`crate::ops::gemm::Matmul`] has epilogues, other precisions, 8-bit floats and tuning.
    ///
    /// # Errors
    /// [`TensorError::DType`]; [`TensorError::Shape`] when the inner sides differ or an operand has no
    /// dimension, [`TensorError::Broadcast`] when the batches do not broadcast,
    /// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let operation = "matmul";
        let has = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        for (what, tensor) in [("self", self), ("other", other)] {
            if !has(tensor.dtype()) || tensor.dtype() != self.dtype() {
                let got = tensor.dtype();
                let wanted =
                    if has(self.dtype()) { self.dtype().to_string() } else { "f32, f16 or bf16".to_owned() };
                let hint = "both operands have one type: convert one with `to`";
                return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
            }
            if tensor.rank() == 0 {
                return Err(misfit(what, tensor, "at least one dimension".to_owned()));
            }
        }
        let a = if self.rank() == 1 { self.unsqueeze(0)? } else { self.clone() };
        let b = if other.rank() == 1 { other.unsqueeze(1)? } else { other.clone() };
        let (a_batch, [m, k]) = parts(&a);
        let (b_batch, [inner, n]) = parts(&b);
        if inner != k {
            return Err(misfit(
                "other",
                other,
                format!("{k} places along the dimension that is summed over"),
            ));
        }
        let batch =
            Shape::of(operation, a_batch)?.broadcast_in(operation, &Shape::of(operation, b_batch)?)?;
        let stream = stream_of(self)?;
        let (a, b) = (batched(&stream, &a, &batch)?, batched(&stream, &b, &batch)?);
        let shape = Shape::of(operation, &[batch.elements(), m, n])?;
        let product = made(&stream, &shape, self.dtype(), |out| {
            Matmul::new(Matrix::of(&a)?, Matrix::of(&b)?, MatrixMut::of(out)?).run(&stream)
        })?;
        let mut sides = batch.to_vec();
        sides.extend((self.rank() > 1).then_some(m));
        sides.extend((other.rank() > 1).then_some(n));
        product.view_as(&sides)
    }
}

/// The sides of the batch, and those of each matrix.
fn parts(x: &Tensor) -> (&[usize], [usize; 2]) {
    let sides = x.shape().sides();
    let (batch, matrix) = sides.split_at(sides.len() - 2);
    (batch, [matrix[0], matrix[1]])
}

/// The matrices of `x`, repeated to the batch, along one dimension; a copy where its strides do not make one
/// step.
#[track_caller]
fn batched(stream: &Stream, x: &Tensor, batch: &Shape) -> Result<Tensor> {
    let (_, matrix) = parts(x);
    let sides = [batch.sides(), &matrix].concat();
    elementwise::reshape(stream, &x.broadcast_to(&sides)?, &[batch.elements(), matrix[0], matrix[1]])
}

fn misfit(what: &'static str, got: &Tensor, wanted: String) -> crate::Error {
    let hint = "`[.., m, k]` times `[.., k, n]`: `transpose(-2, -1)` exchanges the last two dimensions";
    TensorError::Shape { operation: "matmul", what, got: got.shape().clone(), wanted, hint }.into()
}
