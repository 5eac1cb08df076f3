//! A transformer block: `h = x + attention(norm(x))`, `y = h + feed-forward(norm(h))`.

use std::ops::Range;

use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{Norm, NormBackward, NormKind, softmax_backward};
use ironwarp::{Result, Stream, Tensor};

use crate::Model;
use crate::numbers::numbers;

/// Tokens of a sequence.
const TOKENS: usize = 8;
const WIDTH: usize = 16;
const HEADS: usize = 2;
const HEAD: usize = WIDTH / HEADS;
const HIDDEN: usize = 32;
const EPS: f64 = 1e-5;

/// The parameters, in the order in which the backward pass finishes their gradients.
const NAMES: [&str; 6] = ["down", "up", "second norm", "out", "qkv", "first norm"];

pub struct Block {
    stream: Stream,
    sequences: usize,
    /// Rows of tokens, those of one sequence behind the other.
    inputs: Tensor,
    targets: Tensor,
    /// Minus infinity above the diagonal: a token sees none that comes later.
    mask: Tensor,
    /// As [`NAMES`].
    parameters: [Tensor; 6],
}

/// The parts of attention that the backward pass needs.
struct Attended {
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    weights: Tensor,
    /// Rows of tokens, the heads beside each other.
    result: Tensor,
}

impl Block {
    fn layer_norm(weight: &Tensor) -> Norm<'_> {
        let (kind, activation) = (NormKind::Layer, Activation::None);
        Norm { kind, weight: Some(weight), bias: None, eps: EPS, activation }
    }

    fn norm(&self, x: &Tensor, weight: &Tensor) -> Result<(Tensor, Tensor)> {
        let normed = Self::layer_norm(weight).run_for_gradient(&self.stream, x)?;
        Ok((normed.y, normed.moments.expect("asked for")))
    }

    /// The gradient by a norm's input, of which `residual` is a part, and the one by its weight.
    fn norm_backward(
        &self,
        x: &Tensor,
        dy: &Tensor,
        moments: &Tensor,
        weight: &Tensor,
        residual: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let norm = Self::layer_norm(weight);
        let backward = NormBackward { residual: Some(residual), ..norm.backward(x, dy, moments) };
        let gradients = backward.run(&self.stream)?;
        Ok((gradients.x, gradients.weight.expect("asked for")))
    }

    /// Rows of tokens to `[sequences, heads, tokens, head]`.
    fn to_heads(&self, rows: &Tensor) -> Result<Tensor> {
        rows.reshape(&[self.sequences, TOKENS, HEADS, HEAD])?.transpose(1, 2)?.contiguous()
    }

    fn to_rows(&self, heads: &Tensor) -> Result<Tensor> {
        heads.transpose(1, 2)?.reshape(&[self.sequences * TOKENS, WIDTH])
    }

    fn attend(&self, qkv: &Tensor) -> Result<Attended> {
        let part = |number: usize| self.to_heads(&qkv.slice(1, number * WIDTH..(number + 1) * WIDTH)?);
        let (queries, keys, values) = (part(0)?, part(1)?, part(2)?);
        let scores = queries.matmul(&keys.transpose(2, 3)?)?.mul((HEAD as f32).sqrt().recip())?;
        let weights = scores.add(&self.mask)?.softmax(-1)?;
        let result = self.to_rows(&weights.matmul(&values)?)?;
        Ok(Attended { queries, keys, values, weights, result })
    }

    /// The gradient by the rows of queries, keys and values.
    fn attend_backward(&self, of: &Attended, dresult: &Tensor) -> Result<Tensor> {
        let d = self.to_heads(dresult)?;
        let dvalues = of.weights.transpose(2, 3)?.matmul(&d)?;
        let dweights = d.matmul(&of.values.transpose(2, 3)?)?;
        let dscores = softmax_backward(&self.stream, &of.weights, &dweights, 3)?;
        let dscores = dscores.mul((HEAD as f32).sqrt().recip())?;
        let (dqueries, dkeys) = (dscores.matmul(&of.keys)?, dscores.transpose(2, 3)?.matmul(&of.queries)?);
        let rows = [dqueries, dkeys, dvalues].map(|heads| self.to_rows(&heads));
        let [q, k, v] = rows;
        Tensor::cat(&[&q?, &k?, &v?], 1)
    }
}

impl Model for Block {
    const NAME: &'static str = "transformer block";
    const SAMPLES: usize = 7;
    const STEPS: usize = 3;
    const RATE: f32 = 0.5;

    fn new(stream: &Stream, samples: Range<usize>, seed: u64) -> Result<Self> {
        let row = TOKENS * WIDTH;
        let inputs = numbers(2, Self::SAMPLES * row, 1.0);
        // To be learnt: the mean of a sequence's tokens so far.
        let target = |sequence: &[f32]| {
            let mean = |place: usize| {
                let (token, column) = (place / WIDTH, place % WIDTH);
                sequence.iter().skip(column).step_by(WIDTH).take(token + 1).sum::<f32>() / (token + 1) as f32
            };
            (0..row).map(mean).collect::<Vec<f32>>()
        };
        let targets: Vec<f32> = inputs.chunks(row).flat_map(target).collect();
        let part = |values: &[f32]| {
            let mine = &values[samples.start * row..samples.end * row];
            Tensor::from_slice(stream, &[samples.len() * TOKENS, WIDTH], mine)
        };
        let weight = |number: u64, from: usize, to: usize| {
            let scale = (3.0 / from as f32).sqrt();
            Tensor::from_slice(stream, &[from, to], &numbers(seed + 50 * number, from * to, scale))
        };
        let ones = || Tensor::from_slice(stream, &[WIDTH], &[1.0f32; WIDTH]);
        let masked = |place: usize| if place % TOKENS > place / TOKENS { f32::NEG_INFINITY } else { 0.0 };
        let mask: Vec<f32> = (0..TOKENS * TOKENS).map(masked).collect();
        Ok(Block {
            stream: stream.clone(),
            sequences: samples.len(),
            inputs: part(&inputs)?,
            targets: part(&targets)?,
            mask: Tensor::from_slice(stream, &[TOKENS, TOKENS], &mask)?,
            parameters: [
                weight(0, HIDDEN, WIDTH)?,
                weight(1, WIDTH, HIDDEN)?,
                ones()?,
                weight(2, WIDTH, WIDTH)?,
                weight(3, WIDTH, 3 * WIDTH)?,
                ones()?,
            ],
        })
    }

    fn parameters(&mut self) -> Vec<(&'static str, &mut Tensor)> {
        NAMES.into_iter().zip(&mut self.parameters).collect()
    }

    fn step(&self, ready: &mut dyn FnMut(usize, &Tensor) -> Result<()>) -> Result<[Tensor; 2]> {
        let ([down, up, norm2, out, qkv, norm1], x) = (&self.parameters, &self.inputs);
        let (n1, moments1) = self.norm(x, norm1)?;
        let attended = self.attend(&n1.matmul(qkv)?)?;
        let h = x.add(&attended.result.matmul(out)?)?;
        let (n2, moments2) = self.norm(&h, norm2)?;
        let hidden = n2.matmul(up)?.relu()?;
        let error = h.add(&hidden.matmul(down)?)?.sub(&self.targets)?;

        let dy = error.mul(2.0 / (Self::SAMPLES * TOKENS * WIDTH) as f32)?;
        ready(0, &hidden.t()?.matmul(&dy)?)?;
        let dhidden = dy.matmul(&down.t()?)?.mul(&hidden.sign()?)?;
        ready(1, &n2.t()?.matmul(&dhidden)?)?;
        let (dh, dnorm2) = self.norm_backward(&h, &dhidden.matmul(&up.t()?)?, &moments2, norm2, &dy)?;
        ready(2, &dnorm2)?;
        ready(3, &attended.result.t()?.matmul(&dh)?)?;
        let dqkv = self.attend_backward(&attended, &dh.matmul(&out.t()?)?)?;
        ready(4, &n1.t()?.matmul(&dqkv)?)?;
        let (_, dnorm1) = self.norm_backward(x, &dqkv.matmul(&qkv.t()?)?, &moments1, norm1, &dh)?;
        ready(5, &dnorm1)?;
        let loss = error.mul(&error)?.mul(1.0 / (TOKENS * WIDTH) as f32)?.sum_all()?;
        Ok([loss, error.abs()?.amax_all()?])
    }
}
