//! A network of two layers.

use std::ops::Range;

use ironwarp::{Result, Stream, Tensor};

use crate::Model;
use crate::numbers::numbers;

const INPUTS: usize = 24;
const HIDDEN: usize = 48;
const OUTPUTS: usize = 3;

pub struct Mlp {
    /// The shard: inputs, and what is to be learnt of them.
    inputs: Tensor,
    targets: Tensor,
    weights: [Tensor; 2],
}

impl Model for Mlp {
    const NAME: &'static str = "network";
    const SAMPLES: usize = 61;
    const STEPS: usize = 8;
    const RATE: f32 = 0.4;

    fn new(stream: &Stream, samples: Range<usize>, seed: u64) -> Result<Self> {
        let inputs = numbers(1, Self::SAMPLES * INPUTS, 1.0);
        let target = |row: &[f32]| [row[0] * row[1], row[2].max(row[3]), row[4] - row[5] * row[6]];
        let targets: Vec<f32> = inputs.chunks(INPUTS).flat_map(target).collect();
        let part = |values: &[f32], width: usize| {
            let mine = &values[samples.start * width..samples.end * width];
            Tensor::from_slice(stream, &[samples.len(), width], mine)
        };
        let weight = |seed, from: usize, to: usize| {
            Tensor::from_slice(stream, &[from, to], &numbers(seed, from * to, 0.3))
        };
        Ok(Mlp {
            inputs: part(&inputs, INPUTS)?,
            targets: part(&targets, OUTPUTS)?,
            weights: [weight(seed, INPUTS, HIDDEN)?, weight(seed + 50, HIDDEN, OUTPUTS)?],
        })
    }

    fn parameters(&mut self) -> Vec<(&'static str, &mut Tensor)> {
        let [first, second] = &mut self.weights;
        vec![("second", second), ("first", first)]
    }

    fn step(&self, ready: &mut dyn FnMut(usize, &Tensor) -> Result<()>) -> Result<[Tensor; 2]> {
        let ([w1, w2], x) = (&self.weights, &self.inputs);
        let hidden = x.matmul(w1)?.relu()?;
        let error = hidden.matmul(w2)?.sub(&self.targets)?;
        // Divided by the whole batch, so gradients of uneven shards add up.
        let dy = error.mul(2.0 / (Self::SAMPLES * OUTPUTS) as f32)?;
        ready(0, &hidden.t()?.matmul(&dy)?)?;
        let dh = dy.matmul(&w2.t()?)?.mul(&hidden.sign()?)?;
        ready(1, &x.t()?.matmul(&dh)?)?;
        Ok([error.mul(&error)?.mul(1.0 / OUTPUTS as f32)?.sum_all()?, error.abs()?.amax_all()?])
    }
}
