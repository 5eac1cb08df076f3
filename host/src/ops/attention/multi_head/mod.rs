//! Multi-head attention of a layer: projections, attention, and what is added behind it.

mod backward;

use crate::error::Result;
use crate::ops::dropout::Generator;
use crate::ops::elementwise::{contiguous, made};
use crate::ops::gemm::{Matmul, Matrix, MatrixMut};
use crate::ops::rotary::{Positions, Rotary, rotary_in_place};
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorMut};

use super::OPERATION;
use super::check::invalid;
use super::heads::{Heads, HeadsMut};
use super::op::{Attention, Packed};
use super::tensor::Options;

pub use backward::{MultiHeadBackward, MultiHeadGradients, ProjectionGradients};

/// `x weight^T + bias`, as `torch.nn.Linear` has it: a weight `[outputs, inputs]` of any strides, and a
/// number for each output, which is copied if it is not contiguous.
#[derive(Debug, Clone, Copy)]
pub struct Projection<'a> {
    /// `[outputs, inputs]`.
    pub weight: &'a Tensor,
    /// `[outputs]`.
    pub bias: Option<&'a Tensor>,
}

/// `residual + out(attention(qkv(x)))` of tokens `[batch, rows, inputs]`. Built up, then [`MultiHead::run`];
/// or [`MultiHead::record`] and [`MultiHead::backward`] in training.
///
/// One product makes queries, keys and values with their biases, in rows of `heads` queries, `kv_heads` keys
/// and as many values. Queries and keys turn where they lie ([`MultiHead::rotary`]), and attention reads them
/// there. A last product adds its bias and the residual as it stores.
///
/// # Memory
/// Beside the result [`run`](MultiHead::run) takes the rows of queries, keys and values and those of
/// attention's result while it runs; of [`record`](MultiHead::record) these are what is kept
/// ([`Recorded::bytes`]). An input or a residual that is not contiguous is copied. Products may take memory
/// of their own ([`Matmul::explain`]). A captured graph keeps all of it, and its replays allocate nothing.
#[derive(Debug, Clone, Copy)]
#[must_use = "attention is computed by `run`"]
pub struct MultiHead<'a> {
    input: &'a Tensor,
    qkv: Projection<'a>,
    out: Projection<'a>,
    heads: [usize; 2],
    residual: Option<&'a Tensor>,
    options: Options,
    rotary: Option<(Rotary<'a>, Positions<'a>)>,
    packed: Option<Packed<'a>>,
    dropout: Option<Dropout<'a>>,
}

/// Dropout of weights.
#[derive(Debug, Clone, Copy)]
struct Dropout<'a> {
    probability: f64,
    generator: &'a Generator,
    call: u32,
}

/// Tensors that [`MultiHead::record`] keeps for [`MultiHead::backward`].
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Queries, keys and values as attention took them, `[batch, rows, heads + 2 kv_heads, head size]`.
    qkv: Tensor,
    /// Attention's result, `[tokens, heads * head size]`.
    mixed: Tensor,
    /// `[batch, heads, rows]`, or `[heads, rows]` of packed sequences.
    log_sum_exp: Tensor,
}

impl Recorded {
    /// Bytes of device memory: of each token those of its queries, keys and values, of attention's result,
    /// and 4 for each head.
    pub fn bytes(&self) -> usize {
        let Recorded { qkv, mixed, log_sum_exp } = self;
        [qkv, mixed, log_sum_exp].into_iter().map(|kept| kept.elements() * kept.dtype().size()).sum()
    }
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
        let (residual, rotary, packed, dropout) = (None, None, None, None);
        let (heads, options) = ([heads, kv_heads], Options::default());
        MultiHead { input, qkv, out, heads, residual, options, rotary, packed, dropout }
    }

    /// The mask, and the factor of the scores.
    pub fn options(self, options: Options) -> Self {
        MultiHead { options, ..self }
    }

    /// A tensor of the result's shape that is added to it. Its gradient is that of the result.
    pub fn residual(self, residual: &'a Tensor) -> Self {
        MultiHead { residual: Some(residual), ..self }
    }

    /// Rotary position embedding of queries and keys; values stay as they are. Tokens of packed sequences
    /// have positions of their own ([`Positions::Of`]).
    pub fn rotary(self, embedding: Rotary<'a>, positions: Positions<'a>) -> Self {
        MultiHead { rotary: Some((embedding, positions)), ..self }
    }

    /// For packed sequences, whose queries and keys begin at the same tokens; the batch of the input is then
    /// 1. Tokens that belong to no sequence count as zeros behind attention.
    pub fn packed(self, packed: Packed<'a>) -> Self {
        MultiHead { packed: Some(packed), ..self }
    }

    /// Drops weights of attention, as [`Attention::dropout`].
    pub fn dropout(self, probability: f64, generator: &'a Generator, call: u32) -> Self {
        MultiHead { dropout: Some(Dropout { probability, generator, call }), ..self }
    }

    /// Queues the products and attention, and gives `[batch, rows, outputs]`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes or types do not fit together;
    /// else as [`Matmul::run`], [`rotary_in_place`], [`Attention::dropout`] and [`Attention::run`].
    #[track_caller]
    pub fn run(self, stream: &Stream) -> Result<Tensor> {
        let sides = self.sides()?;
        let qkv = self.queries_keys_values(stream, &sides)?;
        let mixed = self.mix(stream, &sides, &qkv, None)?;
        self.result(stream, &sides, &mixed)
    }

    /// The same, with what the backward pass needs.
    ///
    /// # Errors
    /// As [`MultiHead::run`].
    #[track_caller]
    pub fn record(self, stream: &Stream) -> Result<(Tensor, Recorded)> {
        let sides = self.sides()?;
        let qkv = self.queries_keys_values(stream, &sides)?;
        let shape = Shape::of(OPERATION, &[sides.batch, self.heads[0], sides.rows])?;
        // SAFETY: f32 has no invalid values; attention writes those of all rows of sequences.
        let mut log_sum_exp = unsafe { Tensor::uninit(stream, shape, DType::F32)? };
        let mixed = self.mix(stream, &sides, &qkv, Some(log_sum_exp.view_mut()?))?;
        Ok((self.result(stream, &sides, &mixed)?, Recorded { qkv, mixed, log_sum_exp }))
    }

    /// The gradients of [`record`](MultiHead::record), from that of its result, `[batch, rows, outputs]`:
    /// of the same layer and the same operands.
    pub fn backward(self, recorded: &'a Recorded, gradient: &'a Tensor) -> MultiHeadBackward<'a> {
        MultiHeadBackward::new(self, recorded, gradient)
    }

    /// The rows that attention reads.
    #[track_caller]
    fn queries_keys_values(&self, stream: &Stream, sides: &Sides) -> Result<Tensor> {
        let x = self.tokens(stream, sides)?;
        let mut all = project(stream, &x, self.qkv, None)?.view_as(&sides.packed(self.heads))?;
        if let Some((embedding, positions)) = self.rotary {
            let mut turning = all.view_mut()?.slice(2, ..self.heads[0] + self.heads[1])?;
            rotary_in_place(stream, &mut turning, embedding, positions)?;
        }
        Ok(all)
    }

    /// Attention's result, `[tokens, heads * head size]`.
    #[track_caller]
    fn mix(
        &self,
        stream: &Stream,
        sides: &Sides,
        qkv: &Tensor,
        sums: Option<TensorMut<'_>>,
    ) -> Result<Tensor> {
        let [q, k, v] = self.parts(qkv)?;
        let shape = Shape::of(OPERATION, &[sides.batch, sides.rows, self.heads[0], sides.size])?;
        let mixed = self.written(stream, &shape, qkv.dtype(), |out| {
            let (q, k, v) = (Heads::of(&q)?, Heads::of(&k)?, Heads::of(&v)?);
            let attention = Attention::new(q, k, v, HeadsMut::of(out)?).mask(self.options.mask);
            let attention = self.options.scale.into_iter().fold(attention, Attention::scale);
            let attention = self.packed.into_iter().fold(attention, Attention::packed);
            let attention = match sums {
                Some(sums) => attention.log_sum_exp(sums.into_view::<f32>()?),
                None => attention,
            };
            match self.dropout {
                Some(Dropout { probability, generator, call }) => {
                    attention.dropout(probability, generator, call)?.run(stream)
                }
                None => attention.run(stream),
            }
        })?;
        mixed.view_as(&[sides.tokens(), self.heads[0] * sides.size])
    }

    #[track_caller]
    fn result(&self, stream: &Stream, sides: &Sides, mixed: &Tensor) -> Result<Tensor> {
        let shape = [sides.tokens(), sides.outputs];
        let residual = self.residual.map(|x| contiguous(stream, x)?.view_as(&shape)).transpose()?;
        let result = project(stream, mixed, self.out, residual.as_ref())?;
        result.view_as(&[sides.batch, sides.rows, sides.outputs])
    }

    /// The input, `[tokens, inputs]`.
    #[track_caller]
    fn tokens(&self, stream: &Stream, sides: &Sides) -> Result<Tensor> {
        contiguous(stream, self.input)?.view_as(&[sides.tokens(), sides.inputs])
    }

    /// Queries, keys and values of packed rows.
    fn parts(&self, qkv: &Tensor) -> Result<[Tensor; 3]> {
        let [heads, kv_heads] = self.heads;
        let part = |first, heads| qkv.narrow(2, first, heads);
        Ok([part(0, heads)?, part(heads, kv_heads)?, part(heads + kv_heads, kv_heads)?])
    }

    /// A new tensor that `write` writes, but for rows that belong to no packed sequence, which are zeros.
    #[track_caller]
    fn written(
        &self,
        stream: &Stream,
        shape: &Shape,
        dtype: DType,
        write: impl FnOnce(TensorMut<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        if self.packed.is_none() {
            return made(stream, shape, dtype, write);
        }
        let mut zeros = Tensor::zeros(stream, shape.sides(), dtype)?;
        write(zeros.view_mut()?)?;
        Ok(zeros)
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
        if batch.checked_mul(rows).is_none() {
            let hint = "split the batch and call once for each part";
            return Err(misfit("the input", self.input, "fewer than 2^64 tokens".to_owned(), hint));
        }
        // No weight has as many rows as do not fit.
        let all = heads.saturating_add(kv_heads.saturating_mul(2));
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
        self.check_types()?;
        self.check_sums(&sides)?;
        Ok(sides)
    }

    /// Biases and the residual fit.
    fn check_sums(&self, sides: &Sides) -> Result<()> {
        let Sides { batch, rows, size, outputs, .. } = *sides;
        let added = [
            ("the bias of queries, keys and values", self.qkv.bias, vec![self.packed_heads() * size]),
            ("the bias of the output", self.out.bias, vec![outputs]),
            ("the residual", self.residual, vec![batch, rows, outputs]),
        ];
        for (argument, tensor, wanted) in added {
            if let Some(tensor) = tensor.filter(|tensor| tensor.shape().sides() != wanted) {
                let hint = "it is added element by element, without broadcasting";
                return Err(misfit(argument, tensor, format!("{wanted:?}"), hint));
            }
        }
        Ok(())
    }

    fn check_types(&self) -> Result<()> {
        let wanted = self.input.dtype();
        if !matches!(wanted, DType::BF16 | DType::F16) {
            let hint = "convert it first (`to`)";
            return Err(invalid("the input", format!("of {wanted}"), "bf16 or f16".to_owned(), hint));
        }
        let others = [
            ("the weight of queries, keys and values", Some(self.qkv.weight)),
            ("the weight of the output", Some(self.out.weight)),
            ("the bias of queries, keys and values", self.qkv.bias),
            ("the bias of the output", self.out.bias),
            ("the residual", self.residual),
        ];
        for (argument, tensor) in others {
            if let Some(got) = tensor.map(Tensor::dtype).filter(|&got| got != wanted) {
                let hint = "all tensors of a layer have one type: convert one with `to`";
                return Err(invalid(argument, format!("of {got}"), format!("{wanted}, as the input"), hint));
            }
        }
        Ok(())
    }

    /// Heads of a packed row.
    fn packed_heads(&self) -> usize {
        self.heads[0] + 2 * self.heads[1]
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

impl Sides {
    fn tokens(&self) -> usize {
        self.batch * self.rows
    }

    /// Of queries, keys and values in one tensor.
    fn packed(&self, [heads, kv_heads]: [usize; 2]) -> [usize; 4] {
        [self.batch, self.rows, heads + 2 * kv_heads, self.size]
    }
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
