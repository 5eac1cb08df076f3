//! Multi-head attention of a layer: projections, attention, and what is added behind it.

use crate::error::Result;
use crate::ops::elementwise::{contiguous, made};
use crate::ops::gemm::{Matmul, Matrix, MatrixMut};
use crate::stream::Stream;
use crate::tensor::{Shape, Tensor};

use super::OPERATION;
use super::check::invalid;
use super::tensor::{Options, attention};

/// `x weight^T + bias`, as `torch.nn.Linear` has it: a weight `[outputs, inputs]`, and a number for each
/// output.
#[derive(Debug, Clone, Copy)]
pub struct Projection<'a> {
    /// `[outputs, inputs]`.
    pub weight: &'a Tensor,
    /// `[outputs]`.
    pub bias: Option<&'a Tensor>,
}

/// `residual + out(attention(qkv(x)))` of tokens `[batch, rows, inputs]`. Built up, then [`MultiHead::run`].
///
/// One product makes queries, keys and values with their biases, in rows of `heads` queries, `kv_heads` keys
/// and as many values. Attention reads them where they lie. A last product adds its bias and the residual as
/// it stores.
#[derive(Debug, Clone, Copy)]
#[must_use = "attention is computed by `run`"]
pub struct MultiHead<'a> {
    input: &'a Tensor,
    qkv: Projection<'a>,
    out: Projection<'a>,
    heads: [usize; 2],
    residual: Option<&'a Tensor>,
    options: Options,
}

impl<'a> MultiHead<'a> {
    /// Of `heads` heads of queries, which share `kv_heads` heads of keys in groups. `qkv` has `(heads + 2
    /// kv_heads) head size` outputs, and `out` takes `heads head size`; all tensors are of one type, bf16 or
    /// f16.
    pub fn new(
        input: &'a Tensor,
        qkv: Projection<'a>,
        out: Projection<'a>,
        heads: usize,
        kv_heads: usize,
    ) -> Self {
        MultiHead { input, qkv, out, heads: [heads, kv_heads], residual: None, options: Options::default() }
    }

    /// The mask, and the factor of the scores.
    pub fn options(self, options: Options) -> Self {
        MultiHead { options, ..self }
    }

    /// A tensor of the result's shape that is added to it.
    pub fn residual(self, residual: &'a Tensor) -> Self {
        MultiHead { residual: Some(residual), ..self }
    }

    /// Queues both products and attention, and gives `[batch, rows, outputs]`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes do not fit together; else as
    /// [`Matmul::run`] and [`attention()`].
    #[track_caller]
    pub fn run(self, stream: &Stream) -> Result<Tensor> {
        let Sides { batch, rows, inputs, size, outputs } = self.sides()?;
        let ([heads, kv_heads], tokens) = (self.heads, batch * rows);
        let x = contiguous(stream, self.input)?.view_as(&[tokens, inputs])?;
        let all = project(stream, &x, self.qkv, None)?.view_as(&[batch, rows, heads + 2 * kv_heads, size])?;
        let part = |first, heads| all.narrow(2, first, heads);
        let (q, k, v) = (part(0, heads)?, part(heads, kv_heads)?, part(heads + kv_heads, kv_heads)?);
        let mixed = attention(stream, &q, &k, &v, self.options)?.view_as(&[tokens, heads * size])?;
        let residual =
            self.residual.map(|x| contiguous(stream, x)?.view_as(&[tokens, outputs])).transpose()?;
        project(stream, &mixed, self.out, residual.as_ref())?.view_as(&[batch, rows, outputs])
    }

    fn sides(&self) -> Result<Sides> {
        let &[batch, rows, inputs] = self.input.shape().sides() else {
            let hint = "`unsqueeze(0)` makes a batch of one sequence";
            return Err(misfit("the input", self.input, "[batch, rows, inputs]".to_owned(), hint));
        };
        let [heads, kv_heads] = self.heads;
        if heads == 0 || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            let hint = "each head of keys has as many heads of queries";
            let wanted = "a positive multiple of the heads of keys".to_owned();
            return Err(invalid("the heads", format!("{heads} on {kv_heads}"), wanted, hint));
        }
        let all = heads + 2 * kv_heads;
        let hint = "a weight is [outputs, inputs], as that of `torch.nn.Linear`";
        let size = match *self.qkv.weight.shape().sides() {
            [outputs, of] if of == inputs && outputs > 0 && outputs.is_multiple_of(all) => outputs / all,
            _ => {
                let wanted = format!("[a multiple of {all}, {inputs}]");
                return Err(misfit("the weight of queries, keys and values", self.qkv.weight, wanted, hint));
            }
        };
        let outputs = match *self.out.weight.shape().sides() {
            [outputs, of] if of == heads * size => outputs,
            _ => {
                let wanted = format!("[outputs, {}]", heads * size);
                return Err(misfit("the weight of the output", self.out.weight, wanted, hint));
            }
        };
        let sides = Sides { batch, rows, inputs, size, outputs };
        let biases = [
            ("the bias of queries, keys and values", self.qkv.bias, vec![all * size]),
            ("the bias of the output", self.out.bias, vec![outputs]),
            ("the residual", self.residual, vec![batch, rows, outputs]),
        ];
        for (argument, tensor, wanted) in biases {
            if let Some(tensor) = tensor.filter(|tensor| tensor.shape().sides() != wanted) {
                let hint = "it is added element by element, without broadcasting";
                return Err(misfit(argument, tensor, format!("{wanted:?}"), hint));
            }
        }
        Ok(sides)
    }
}

/// Sides of the operands.
struct Sides {
    batch: usize,
    rows: usize,
    inputs: usize,
    /// Of a head.
    size: usize,
    outputs: usize,
}

fn misfit(argument: &'static str, tensor: &Tensor, wanted: String, hint: &'static str) -> crate::Error {
    invalid(argument, format!("{:?}", tensor.shape().sides()), wanted, hint)
}

/// `x weight^T + bias + residual`, of rows.
#[track_caller]
fn project(stream: &Stream, x: &Tensor, of: Projection<'_>, residual: Option<&Tensor>) -> Result<Tensor> {
    let bias = of.bias.map(|bias| contiguous(stream, bias)).transpose()?;
    let shape = Shape::of(OPERATION, &[x.shape().sides()[0], of.weight.shape().sides()[0]])?;
    made(stream, &shape, x.dtype(), |out| {
        let weight = Matrix::of(of.weight)?.transposed();
        let product = Matmul::new(Matrix::of(x)?, weight, MatrixMut::of(out)?);
        let product = match &bias {
            Some(bias) => product.bias_of(bias)?,
            None => product,
        };
        let product = match residual {
            Some(residual) => product.residual(Matrix::of(residual)?),
            None => product,
        };
        product.run(stream)
    })
}
