//! The gradients of a layer.

use half::{bf16, f16};

use crate::error::Result;
use crate::ops::elementwise::{contiguous, made};
use crate::ops::fill::full;
use crate::ops::gemm::{Matmul, Matrix, MatrixMut};
use crate::ops::rotary::rotary_backward_in_place;
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorMut};

use super::super::OPERATION;
use super::super::backward::{Backward, Forward, Gradients};
use super::super::check::invalid;
use super::super::heads::{Heads, HeadsMut};
use super::{Dropout, MultiHead, Projection, Recorded, Sides};

/// The gradients of a [`Projection`]: tensors, or where they go.
#[derive(Debug)]
pub struct ProjectionGradients<T> {
    /// `[outputs, inputs]`.
    pub weight: T,
    /// `[outputs]`.
    pub bias: Option<T>,
}

/// The gradients of a layer: tensors, or where they go. That of the residual is the result's own.
#[derive(Debug)]
pub struct MultiHeadGradients<T> {
    /// `[batch, rows, inputs]`, without what reaches the input by the residual.
    pub input: T,
    /// Of queries, keys and values.
    pub qkv: ProjectionGradients<T>,
    /// Of the output.
    pub out: ProjectionGradients<T>,
}

/// The gradients of [`MultiHead`]. Made by [`MultiHead::backward`], then run.
///
/// The gradient of attention's result is a product, and so are those of weights; a bias' is a product with
/// ones. All sums are f32, and rounded once to where they go. [`Backward`] writes those of queries, keys and
/// values where they lay packed, and queries and keys turn back in place.
///
/// # Memory
/// While it runs it takes the gradients of queries, keys and values and of attention's result, each as large
/// as what [`Recorded`] has of them, what [`Backward::run`] says, and an element for each token. As the
/// forward pass it copies what is not contiguous.
#[derive(Debug, Clone, Copy)]
#[must_use = "gradients are computed by `run`"]
pub struct MultiHeadBackward<'a> {
    layer: MultiHead<'a>,
    recorded: &'a Recorded,
    gradient: &'a Tensor,
    is_deterministic: bool,
}

impl<'a> MultiHeadBackward<'a> {
    pub(super) fn new(layer: MultiHead<'a>, recorded: &'a Recorded, gradient: &'a Tensor) -> Self {
        MultiHeadBackward { layer, recorded, gradient, is_deterministic: false }
    }

    /// Whether all gradients are to be the same bits in every run, as [`Backward::deterministic`].
    pub fn deterministic(self, is_deterministic: bool) -> Self {
        MultiHeadBackward { is_deterministic, ..self }
    }

    /// Queues the backward pass, and gives gradients of the operands' type: of the biases that there are.
    ///
    /// # Errors
    /// As [`run_into`](MultiHeadBackward::run_into).
    #[track_caller]
    pub fn run(self, stream: &Stream) -> Result<MultiHeadGradients<Tensor>> {
        self.layer.sides()?;
        // SAFETY: elements are bf16 or f16, which have no invalid values, and each is written, or the call
        // fails.
        let like =
            |tensor: &Tensor| unsafe { Tensor::uninit(stream, tensor.shape().clone(), tensor.dtype()) };
        let of = |projection: Projection<'_>| -> Result<_> {
            let bias = projection.bias.map(like).transpose()?;
            Ok(ProjectionGradients { weight: like(projection.weight)?, bias })
        };
        let MultiHead { input, qkv, out, .. } = self.layer;
        let mut gradients = MultiHeadGradients { input: like(input)?, qkv: of(qkv)?, out: of(out)? };
        self.run_into(stream, gradients.view_mut()?)?;
        Ok(gradients)
    }

    /// The same, written to where the caller says: the gradient of the input of its type; of weights and
    /// biases of that type or f32. A bias without a place gets no gradient.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes or types do not fit, what was
    /// recorded is of a layer of other sides, or there is a place for the gradient of a bias that the layer
    /// does not have; else as [`MultiHead::run`] and [`Backward::run`].
    #[track_caller]
    pub fn run_into(self, stream: &Stream, into: MultiHeadGradients<TensorMut<'_>>) -> Result<()> {
        self.queue(stream, into, 0.0)
    }

    /// The same, but for weights and biases, whose gradients are added to what is there: of the parts of a
    /// batch, in f32.
    ///
    /// # Errors
    /// As [`run_into`](MultiHeadBackward::run_into).
    #[track_caller]
    pub fn add_into(self, stream: &Stream, into: MultiHeadGradients<TensorMut<'_>>) -> Result<()> {
        self.queue(stream, into, 1.0)
    }

    /// Queues everything; gradients of parameters are added to so much of what is there.
    #[track_caller]
    fn queue(self, stream: &Stream, into: MultiHeadGradients<TensorMut<'_>>, beta: f32) -> Result<()> {
        let MultiHeadBackward { layer, recorded, gradient, .. } = self;
        let sides = layer.sides()?;
        self.check(&sides, &into)?;
        let MultiHeadGradients { input, qkv, out } = into;
        let tokens = sides.tokens();
        let of_result = contiguous(stream, gradient)?.view_as(&[tokens, sides.outputs])?;
        let has_bias = qkv.bias.is_some() || out.bias.is_some();
        let ones = has_bias.then(|| ones(stream, tokens, gradient.dtype())).transpose()?;
        let parameters = Parameters { stream, ones: ones.as_ref(), beta };
        parameters.run(&of_result, &recorded.mixed, out)?;
        let of_packed = {
            let shape = Shape::of(OPERATION, &[tokens, layer.heads[0] * sides.size])?;
            let of_mixed = made(stream, &shape, gradient.dtype(), |to| {
                back(stream, &of_result, layer.out, MatrixMut::of(to)?)
            })?;
            self.of_attention(stream, &sides, &of_mixed)?
        };
        let of_packed = of_packed.view_as(&[tokens, layer.packed_heads() * sides.size])?;
        parameters.run(&of_packed, &layer.tokens(stream, &sides)?, qkv)?;
        back(stream, &of_packed, layer.qkv, MatrixMut::of(input.reshape(&[tokens, sides.inputs])?)?)
    }

    /// The gradients of the rows that the first product made, `[batch, rows, heads + 2 kv_heads, head size]`,
    /// from those of attention's result.
    #[track_caller]
    fn of_attention(&self, stream: &Stream, sides: &Sides, of_mixed: &Tensor) -> Result<Tensor> {
        let MultiHeadBackward { layer, recorded, .. } = *self;
        let [heads, kv_heads] = layer.heads;
        let shape = [sides.batch, sides.rows, heads, sides.size];
        let (mixed, of_mixed) = (recorded.mixed.view_as(&shape)?, of_mixed.view_as(&shape)?);
        let [q, k, v] = layer.parts(&recorded.qkv)?;
        let packed = Shape::of(OPERATION, &sides.packed(layer.heads))?;
        let mut all = layer.written(stream, &packed, of_mixed.dtype(), |to| {
            let [queries, rest] = HeadsMut::of(to)?.split_heads(heads)?;
            let [keys, values] = rest.split_heads(kv_heads)?;
            let forward = Forward {
                queries: Heads::of(&q)?,
                keys: Heads::of(&k)?,
                values: Heads::of(&v)?,
                output: Heads::of(&mixed)?,
                log_sum_exp: recorded.log_sum_exp.as_view()?,
            };
            let gradients = Gradients { queries, keys, values };
            let backward = Backward::new(forward, Heads::of(&of_mixed)?, gradients)
                .mask(layer.options.mask)
                .deterministic(self.is_deterministic);
            let backward = layer.options.scale.into_iter().fold(backward, Backward::scale);
            let backward = layer.packed.into_iter().fold(backward, Backward::packed);
            match layer.dropout {
                Some(Dropout { probability, generator, call }) => {
                    backward.dropout(probability, generator, call)?.run(stream)
                }
                None => backward.run(stream),
            }
        })?;
        if let Some((embedding, positions)) = layer.rotary {
            let mut turning = all.view_mut()?.slice(2, ..heads + kv_heads)?;
            rotary_backward_in_place(stream, &mut turning, embedding, positions)?;
        }
        Ok(all)
    }

    fn check(&self, sides: &Sides, into: &MultiHeadGradients<TensorMut<'_>>) -> Result<()> {
        let MultiHeadBackward { layer, recorded, gradient, .. } = *self;
        let (own, sums) = (layer.input.dtype(), [layer.input.dtype(), DType::F32]);
        let Sides { batch, rows, inputs, outputs, .. } = *sides;
        let hint = "the gradient of a tensor has its shape";
        let result = [batch, rows, outputs];
        expect("the gradient of the result", gradient.shape(), gradient.dtype(), &result, &[own], hint)?;
        let kept = &recorded.qkv;
        let hint = "keep what `record` gave for this layer and these operands";
        let packed = sides.packed(layer.heads);
        expect("what was recorded", kept.shape(), kept.dtype(), &packed, &[own], hint)?;
        let hint = "the gradient of a tensor has its shape; those of weights and biases may be f32";
        let (to, wanted) = (&into.input, [batch, rows, inputs]);
        expect("the gradient of the input", to.shape(), to.dtype(), &wanted, &[own], hint)?;
        let qkv =
            ["the weight's gradient of queries, keys and values", "the bias' of queries, keys and values"];
        let out = ["the weight's gradient of the output", "the bias' of the output"];
        for (names, of, to) in [(qkv, layer.qkv, &into.qkv), (out, layer.out, &into.out)] {
            let (weight, sides) = (&to.weight, of.weight.shape().sides());
            expect(names[0], weight.shape(), weight.dtype(), sides, &sums, hint)?;
            let Some(to) = &to.bias else { continue };
            let Some(bias) = of.bias else {
                let (got, wanted) = ("a place for it".to_owned(), "none: there is no such bias".to_owned());
                return Err(invalid(names[1], got, wanted, "leave it out, or give the layer the bias"));
            };
            expect(names[1], to.shape(), to.dtype(), bias.shape().sides(), &sums, hint)?;
        }
        Ok(())
    }
}

impl ProjectionGradients<Tensor> {
    /// Places for the gradients.
    ///
    /// # Errors
    /// As [`Tensor::view_mut`].
    pub fn view_mut(&mut self) -> Result<ProjectionGradients<TensorMut<'_>>> {
        let bias = self.bias.as_mut().map(Tensor::view_mut).transpose()?;
        Ok(ProjectionGradients { weight: self.weight.view_mut()?, bias })
    }
}

impl MultiHeadGradients<Tensor> {
    /// Places for the gradients: for [`MultiHeadBackward::run_into`] and [`MultiHeadBackward::add_into`].
    ///
    /// # Errors
    /// As [`Tensor::view_mut`].
    pub fn view_mut(&mut self) -> Result<MultiHeadGradients<TensorMut<'_>>> {
        let (qkv, out) = (self.qkv.view_mut()?, self.out.view_mut()?);
        Ok(MultiHeadGradients { input: self.input.view_mut()?, qkv, out })
    }
}

/// How the gradients of weights and biases are computed.
#[derive(Clone, Copy)]
struct Parameters<'a> {
    stream: &'a Stream,
    /// `[1, tokens]`, where a bias gets a gradient.
    ones: Option<&'a Tensor>,
    /// Factor of what is there.
    beta: f32,
}

impl Parameters<'_> {
    /// Those of a projection of `x`, from the gradient of its result: rows of tokens.
    fn run(&self, gradient: &Tensor, x: &Tensor, into: ProjectionGradients<TensorMut<'_>>) -> Result<()> {
        let ProjectionGradients { weight, bias } = into;
        let of_rows = Matrix::of(gradient)?;
        let product = Matmul::new(of_rows.transposed(), Matrix::of(x)?, MatrixMut::of(weight)?);
        product.beta(self.beta).run(self.stream)?;
        let Some((bias, ones)) = bias.zip(self.ones) else { return Ok(()) };
        let outputs = bias.layout().elements();
        let sums = MatrixMut::of(bias.reshape(&[1, outputs])?)?;
        Matmul::new(Matrix::of(ones)?, of_rows, sums).beta(self.beta).run(self.stream)
    }
}

/// The gradient of a projection's operand, from that of its result: rows of tokens.
fn back(stream: &Stream, gradient: &Tensor, of: Projection<'_>, to: MatrixMut<'_>) -> Result<()> {
    Matmul::new(Matrix::of(gradient)?, Matrix::of(of.weight)?, to).run(stream)
}

/// A row of ones. Its memory is filled in whole words, which a capture can record.
#[track_caller]
fn ones(stream: &Stream, tokens: usize, dtype: DType) -> Result<Tensor> {
    const WORD: usize = size_of::<u64>() / size_of::<f16>();
    let shape = [1, tokens.next_multiple_of(WORD)];
    let filled = match dtype {
        DType::F16 => full(stream, &shape, f16::ONE)?,
        _ => full(stream, &shape, bf16::ONE)?,
    };
    filled.narrow(1, 0, tokens)
}

fn expect(
    argument: &'static str,
    shape: &Shape,
    dtype: DType,
    sides: &[usize],
    types: &[DType],
    hint: &'static str,
) -> Result<()> {
    if shape.sides() == sides && types.contains(&dtype) {
        return Ok(());
    }
    let types: Vec<String> = types.iter().map(DType::to_string).collect();
    let (got, wanted) =
        (format!("{:?} of {dtype}", shape.sides()), format!("{sides:?} of {}", types.join(" or ")));
    Err(invalid(argument, got, wanted, hint))
}
