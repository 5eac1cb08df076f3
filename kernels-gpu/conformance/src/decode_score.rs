//! A score function of one's own, compiled into decode attention.

use attention::score::{Position, Real, ScoreFunction};
use cuda_std::prelude::*;

/// Scores fall with the distance, and each place adds a number of its own. Queries see the first keys, and
/// every `step`-th key of the others.
#[repr(C)]
#[derive(Clone, Copy, KernelArgs)]
pub struct Fade {
    /// How much the score falls with each key, for each head of queries.
    pub slopes: *const f32,
    /// For each query of each sequence the numbers of the keys.
    pub biases: *const f32,
    /// Queries of a sequence.
    pub queries: u32,
    /// Numbers of a query.
    pub keys: u32,
    /// The first keys: so many.
    pub first: u32,
    /// Distance of the others; they are not the same in each sequence, nor for each query.
    pub step: u32,
}

impl ScoreFunction for Fade {
    fn score<N: Real>(&self, score: N, at: Position) -> N {
        let row = u64::from(at.batch) * u64::from(self.queries) + u64::from(at.query);
        let place = row * u64::from(self.keys) + u64::from(at.key);
        // SAFETY: whoever launches the kernel passes a slope for each head, and a number for each place.
        let (slope, bias) = unsafe { (*self.slopes.add(at.head as usize), *self.biases.add(place as usize)) };
        score.add_product(-slope, at.distance.abs()) + bias
    }

    fn mask(&self, at: Position) -> bool {
        // Not 0, or the division would have to be able to panic.
        let step = self.step.max(1);
        at.key < self.first || (at.batch + at.query + at.key).is_multiple_of(step)
    }
}

attention::decode_score_kernels! {
    Fade:
    #[kernel] fn fade_decode_bf16_64: Bf16Head64;
    #[kernel] fn fade_decode_bf16_256: Bf16Head256;
    #[kernel] fn fade_decode_f16_128: F16Head128;
    e4m3:
    #[kernel] fn fade_decode_bf16_e4m3_128: Bf16E4m3Head128;
    #[kernel] fn fade_decode_f16_e4m3_64: F16E4m3Head64;
}
