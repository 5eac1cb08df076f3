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
        let operands = [("self", self), ("other", other)];
        one_type("matmul", operands)?;
        if let Some((what, tensor)) = operands.into_iter().find(|(_, tensor)| tensor.rank() == 0) {
            return Err(misfit(what, tensor, "at least one dimension".to_owned()));
        }
        let a = if self.rank() == 1 { self.unsqueeze(0)? } else { self.clone() };
        let b = if other.rank() == 1 { other.unsqueeze(1)? } else { other.clone() };
        let (a_batch, [m, k]) = parts(&a);
        let (b_batch, [inner, n]) = parts(&b);
        if inner != k {
            return Err(misfit(
                "other",
                other,
                format!(
                    "{k} places along the dimension that is summed over: self has shape {}",
                    self.shape()
                ),
            ));
        }
        let batch = Shape::of("matmul", a_batch)?.broadcast_in("matmul", &Shape::of("matmul", b_batch)?)?;
        let stream = stream_of(self)?;
        let (a, b) = (batched(&stream, &a, &batch)?, batched(&stream, &b, &batch)?);
        let shape = Shape::of("matmul", &[batch.elements(), m, n])?;
        let product = made(&stream, &shape, self.dtype(), |out| {
            Matmul::new(Matrix::of(&a)?, Matrix::of(&b)?, MatrixMut::of(out)?).run(&stream)
        })?;
        let mut sides = batch.to_vec();
        sides.extend((self.rank() > 1).then_some(m));
        sides.extend((other.rank() > 1).then_some(n));
        product.view_as(&sides)
    }

    /// `self weight^T + bias`, as `torch.nn.functional.linear` has it: `[.., outputs]` of `self`, `[..,
    /// inputs]`, and `weight`, `[outputs, inputs]`. The kernel adds the bias (`&b` or `None`), one number an
    /// output.
    /// Types and strides as for [`Tensor::matmul`]; [`crate::ops::gemm::activated`] has activations and what
    /// their gradients need.
    ///
    /// # Errors
    /// As [`Tensor::matmul`], and [`TensorError::Shape`] for a bias of another length.
    #[track_caller]
    pub fn linear<'a>(&self, weight: &Tensor, bias: impl Into<Option<&'a Tensor>>) -> Result<Tensor> {
        let (operation, bias) = ("linear", bias.into());
        one_type(operation, [("self", self), ("weight", weight)])?;
        let shape = |what, tensor: &Tensor, wanted: String| {
            let (got, hint) = (tensor.shape().clone(), "`[.., inputs]`, `[outputs, inputs]` and `[outputs]`");
            crate::Error::from(TensorError::Shape { operation, what, got, wanted, hint })
        };
        let Some((&inputs, outer)) = self.shape().sides().split_last() else {
            return Err(shape("self", self, "at least one dimension".to_owned()));
        };
        let outputs = match *weight.shape().sides() {
            [outputs, of_each] if of_each == inputs => outputs,
            _ => return Err(shape("weight", weight, format!("[outputs, {inputs}]"))),
        };
        if let Some(bias) = bias {
            one_type(operation, [("self", self), ("bias", bias)])?;
            if bias.shape().sides() != [outputs] {
                return Err(shape("bias", bias, format!("[{outputs}]")));
            }
        }
        let stream = stream_of(self)?;
        let rows = outer.iter().product();
        let x = elementwise::reshape(&stream, self, &[rows, inputs])?;
        let bias = bias.map(|bias| elementwise::contiguous(&stream, bias)).transpose()?;
        let product = made(&stream, &Shape::of(operation, &[rows, outputs])?, self.dtype(), |out| {
            let product = Matmul::new(Matrix::of(&x)?, Matrix::of(weight)?.transposed(), MatrixMut::of(out)?);
            match &bias {
                Some(bias) => product.bias_of(bias)?.run(&stream),
                None => product.run(&stream),
            }
        })?;
        product.view_as(&[outer, &[outputs]].concat())
    }
}

/// Both operands have one type, and products have it.
#[track_caller]
fn one_type(operation: &'static str, operands: [(&'static str, &Tensor); 2]) -> Result<()> {
    let has = |dtype: DType| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let first = operands[0].1.dtype();
    for (what, tensor) in operands {
        let got = tensor.dtype();
        if !has(got) || got != first {
            let (wanted, hint) = if has(first) {
                (first.to_string(), "all operands have one type: convert one with `to`")
            } else {
                (
                    "f32, f16 or bf16".to_owned(),
                    "no kernel multiplies matrices of this type: convert both with `to`",
                )
            };
            return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
        }
    }
    Ok(())
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
