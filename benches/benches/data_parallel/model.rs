//! Transformer blocks in bf16, with written gradients: `h = x + attention(norm(x))`, then
//! `y = h + feed-forward(norm(h))`.

use half::bf16;
use ironwarp::ops::activation::{ActivationFunction, activation_backward};
use ironwarp::ops::attention::{Attention, Backward, Forward, Gradients, Heads, HeadsMut, Mask};
use ironwarp::ops::convert::convert;
use ironwarp::ops::gemm::{Activation, Matmul, Matrix, MatrixMut};
use ironwarp::ops::row::{Norm, NormBackward, NormGradients, NormKind};
use ironwarp::parallel::{Communicator, GradientBuckets};
use ironwarp::tensor::DType;
use ironwarp::{Result, Stream, Tensor};
use testkit::{Family, input};

const EPS: f64 = 1e-5;

/// The size of a model, and of a device's batch.
#[derive(Clone, Copy)]
pub struct Size {
    pub blocks: usize,
    pub sequences: usize,
    /// Tokens of a sequence.
    pub tokens: usize,
    pub heads: usize,
    /// Width of a head.
    pub head: usize,
    pub hidden: usize,
}

impl Size {
    pub fn width(self) -> usize {
        self.heads * self.head
    }

    /// Rows of all sequences.
    pub fn rows(self) -> usize {
        self.sequences * self.tokens
    }

    /// Sides of the parameters of a block, in the order of [`Parameters`].
    fn sides(self) -> [Vec<usize>; PARAMETERS] {
        let (width, hidden) = (self.width(), self.hidden);
        [
            vec![hidden, width],
            vec![width, hidden],
            vec![width],
            vec![width, width],
            vec![width, 3 * width],
            vec![width],
        ]
    }

    /// Operations of a forward pass: in products with weights, and in attention, half of whose pairs count.
    fn forward_operations(self) -> [u64; 2] {
        let weights = self.width() * (4 * self.width() + 2 * self.hidden);
        [2 * weights, 2 * self.tokens * self.width()]
            .map(|of_row| (self.blocks * self.rows() * of_row) as u64)
    }

    /// Operations of a forward pass.
    pub fn operations(self) -> u64 {
        self.forward_operations().iter().sum()
    }

    /// Operations of a step: backward there are two products for each, and five for attention's two.
    pub fn training_operations(self) -> u64 {
        let [products, attention] = self.forward_operations();
        3 * products + attention * 7 / 2
    }
}

/// Parameters of a block.
const PARAMETERS: usize = 6;

/// The parameters of a block, in the order in which the backward pass finishes their gradients: down, up, the
/// second norm, out, qkv, the first norm. Matrices are `[inputs, outputs]`.
type Parameters = [Tensor; PARAMETERS];

pub struct Model {
    pub size: Size,
    /// The last block first, as gradients come.
    blocks: Vec<Parameters>,
}

/// The tensors that a block's backward pass needs. Rows of tokens, but for `qkv` and `sums`.
pub struct Kept {
    x: Tensor,
    moments: Tensor,
    normed: Tensor,
    /// `[sequences, tokens, 3 heads, head]`.
    qkv: Tensor,
    mixed: Tensor,
    sums: Tensor,
    h: Tensor,
    second_moments: Tensor,
    second_normed: Tensor,
    before: Tensor,
    hidden: Tensor,
}

/// Normal numbers, of which a part is drawn: that takes time.
pub fn numbers(seed: u64, count: usize) -> impl Iterator<Item = f32> {
    input::<f32>(Family::Normal, seed, count.min(100_003)).into_iter().cycle().take(count)
}

fn norm(weight: &Tensor) -> Norm<'_> {
    let (kind, activation) = (NormKind::Layer, Activation::None);
    Norm { kind, weight: Some(weight), bias: None, eps: EPS, activation }
}

/// The gradients by a norm's input, of which `residual` is a part, and by its weight.
fn norm_backward(
    stream: &Stream,
    [x, dy, moments]: [&Tensor; 3],
    weight: &Tensor,
    residual: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let backward = NormBackward { residual: Some(residual), ..norm(weight).backward(x, dy, moments) };
    let NormGradients { x, weight, .. } = backward.run(stream)?;
    Ok((x, weight.expect("asked for")))
}

/// Where gradients go: each to its bucket, whose sum is queued with the last one.
pub struct Sink<'a> {
    pub rank: &'a mut Communicator,
    pub buckets: &'a mut GradientBuckets,
    /// The next gradient.
    next: usize,
}

impl<'a> Sink<'a> {
    pub fn new(rank: &'a mut Communicator, buckets: &'a mut GradientBuckets) -> Self {
        Sink { rank, buckets, next: 0 }
    }

    /// The next gradient is `a^T b`.
    fn product(&mut self, stream: &Stream, a: &Tensor, b: &Tensor) -> Result<()> {
        let into = MatrixMut::new::<f32>(self.buckets.gradient_mut(self.next)?, a.shape()[1], b.shape()[1]);
        Matmul::new(Matrix::of(a)?.transposed(), Matrix::of(b)?, into).run(stream)?;
        self.ready()
    }

    fn copy(&mut self, stream: &Stream, gradient: &Tensor) -> Result<()> {
        let gradient = convert(stream, gradient, DType::F32)?;
        self.buckets.gradient_mut(self.next)?.copy_from_device(stream, gradient.as_view()?)?;
        self.ready()
    }

    fn ready(&mut self) -> Result<()> {
        self.buckets.ready(self.rank, self.next)?;
        self.next += 1;
        Ok(())
    }
}

impl Model {
    pub fn new(stream: &Stream, size: Size) -> Result<Self> {
        let parameter = |seed: u64, sides: &Vec<usize>| {
            let count = sides.iter().product();
            let values: Vec<bf16> = match sides[..] {
                // So that the residuals stay small.
                [from, _] => {
                    let scale = 0.5 / (from as f32).sqrt();
                    numbers(seed, count).map(|w| bf16::from_f32(w * scale)).collect()
                }
                _ => vec![bf16::ONE; count],
            };
            Tensor::from_slice(stream, sides, &values)
        };
        let block = |number: usize| -> Result<Parameters> {
            let seed = (PARAMETERS * number) as u64;
            let all: Vec<Tensor> = (seed..)
                .zip(&size.sides())
                .map(|(seed, sides)| parameter(seed, sides))
                .collect::<Result<_>>()?;
            Ok(all.try_into().expect("as many as there are sides"))
        };
        Ok(Model { size, blocks: (0..size.blocks).map(block).collect::<Result<_>>()? })
    }

    /// In the order of their gradients.
    pub fn parameters(&self) -> impl Iterator<Item = &Tensor> {
        self.blocks.iter().flatten()
    }

    pub fn parameters_mut(&mut self) -> impl Iterator<Item = &mut Tensor> {
        self.blocks.iter_mut().flatten()
    }

    /// The result for rows `x`; `keep` gets what the backward pass needs, the first block's first.
    pub fn forward(&self, stream: &Stream, x: &Tensor, mut keep: impl FnMut(Kept)) -> Result<Tensor> {
        let mut x = x.view_as(x.shape().sides())?;
        for block in self.blocks.iter().rev() {
            let (y, kept) = self.block(stream, block, x)?;
            keep(kept);
            x = y;
        }
        Ok(x)
    }

    fn block(&self, stream: &Stream, parameters: &Parameters, x: Tensor) -> Result<(Tensor, Kept)> {
        let [down, up, norm2, out, qkv, norm1] = parameters;
        let first = norm(norm1).run_for_gradient(stream, &x)?;
        let Size { sequences, tokens, heads, head, .. } = self.size;
        let qkv = first.y.matmul(qkv)?.view_as(&[sequences, tokens, 3 * heads, head])?;
        let (mixed, sums) = self.attend(stream, &qkv)?;
        let second = norm(norm2).add_and_run(stream, &x, &mixed.matmul(out)?, true)?;
        let before = second.y.matmul(up)?;
        let hidden = before.gelu_tanh()?;
        let h = second.sum.expect("of the residual");
        let y = h.add(&hidden.matmul(down)?)?;
        let moments = |moments: Option<Tensor>| moments.expect("asked for");
        let kept = Kept {
            x,
            moments: moments(first.moments),
            normed: first.y,
            qkv,
            mixed,
            sums,
            h,
            second_moments: moments(second.moments),
            second_normed: second.y,
            before,
            hidden,
        };
        Ok((y, kept))
    }

    /// Queries, keys and values.
    fn parts(&self, qkv: &Tensor) -> Result<[Tensor; 3]> {
        let heads = self.size.heads;
        let part = |number: usize| qkv.slice(2, number * heads..(number + 1) * heads);
        Ok([part(0)?, part(1)?, part(2)?])
    }

    /// Rows of the heads' results, and the logarithms of sums that the backward pass takes.
    fn attend(&self, stream: &Stream, qkv: &Tensor) -> Result<(Tensor, Tensor)> {
        let Size { sequences, tokens, heads, head, .. } = self.size;
        let mut mixed = Tensor::zeros(stream, &[sequences, tokens, heads, head], DType::BF16)?;
        let mut sums = Tensor::zeros(stream, &[sequences, heads, tokens], DType::F32)?;
        let [q, k, v] = self.parts(qkv)?;
        Attention::new(Heads::of(&q)?, Heads::of(&k)?, Heads::of(&v)?, HeadsMut::of(mixed.view_mut()?)?)
            .mask(Mask::CAUSAL)
            .log_sum_exp(sums.view_mut()?.into_view::<f32>()?)
            .run(stream)?;
        Ok((mixed.view_as(&[self.size.rows(), self.size.width()])?, sums))
    }

    /// The gradient by the rows of queries, keys and values.
    fn attend_backward(&self, stream: &Stream, kept: &Kept, dmixed: &Tensor) -> Result<Tensor> {
        let Size { sequences, tokens, heads, head, .. } = self.size;
        let mut dqkv = Tensor::zeros(stream, kept.qkv.shape().sides(), DType::BF16)?;
        let rows = [sequences, tokens, heads, head];
        let (mixed, dmixed) = (kept.mixed.view_as(&rows)?, dmixed.view_as(&rows)?);
        let [q, k, v] = self.parts(&kept.qkv)?;
        {
            let [queries, rest] = HeadsMut::of(dqkv.view_mut()?)?.split_heads(heads)?;
            let [keys, values] = rest.split_heads(heads)?;
            let forward = Forward {
                queries: Heads::of(&q)?,
                keys: Heads::of(&k)?,
                values: Heads::of(&v)?,
                output: Heads::of(&mixed)?,
                log_sum_exp: kept.sums.as_view()?,
            };
            Backward::new(forward, Heads::of(&dmixed)?, Gradients { queries, keys, values })
                .mask(Mask::CAUSAL)
                .run(stream)?;
        }
        dqkv.view_as(&[self.size.rows(), 3 * self.size.width()])
    }

    /// Gives all gradients to the sink, from that of the result.
    pub fn backward(&self, stream: &Stream, kept: Vec<Kept>, dy: Tensor, sink: &mut Sink<'_>) -> Result<()> {
        let mut all = self.blocks.iter().zip(kept.into_iter().rev());
        all.try_fold(dy, |dy, (block, kept)| self.block_backward(stream, block, &kept, &dy, sink)).map(drop)
    }

    /// The gradient by a block's input.
    fn block_backward(
        &self,
        stream: &Stream,
        parameters: &Parameters,
        kept: &Kept,
        dy: &Tensor,
        sink: &mut Sink<'_>,
    ) -> Result<Tensor> {
        let [down, up, norm2, out, qkv, norm1] = parameters;
        sink.product(stream, &kept.hidden, dy)?;
        let dhidden = dy.matmul(&down.t()?)?;
        let dbefore = activation_backward(stream, ActivationFunction::GeluTanh, &kept.before, &dhidden)?;
        sink.product(stream, &kept.second_normed, &dbefore)?;
        let dnormed = dbefore.matmul(&up.t()?)?;
        let (dh, dnorm2) = norm_backward(stream, [&kept.h, &dnormed, &kept.second_moments], norm2, dy)?;
        sink.copy(stream, &dnorm2)?;
        sink.product(stream, &kept.mixed, &dh)?;
        let dqkv = self.attend_backward(stream, kept, &dh.matmul(&out.t()?)?)?;
        sink.product(stream, &kept.normed, &dqkv)?;
        let dnormed = dqkv.matmul(&qkv.t()?)?;
        let (dx, dnorm1) = norm_backward(stream, [&kept.x, &dnormed, &kept.moments], norm1, &dh)?;
        sink.copy(stream, &dnorm1)?;
        Ok(dx)
    }
}
