//! A score function of one's own, compiled into attention.

use attention::score::{Position, Real, ScoreFunction};
use cuda_std::prelude::*;

/// Queries see every `step`-th key of their own block of positions; scores fall with the distance.
#[repr(C)]
#[derive(Clone, Copy, KernelArgs)]
pub struct Local {
    /// How much the score falls with each key.
    pub slope: f32,
    /// Positions of a block.
    pub block: u32,
    /// Distance of the keys that are seen.
    pub step: u32,
}

impl ScoreFunction for Local {
    fn score<N: Real>(&self, score: N, at: Position) -> N {
        score.add_product(-self.slope, at.distance.abs())
    }

    fn mask(&self, at: Position) -> bool {
        // Not 0, or the division would have to be able to panic, and nothing in the kernel would overlap.
        let (block, step) = (self.block.max(1), self.step.max(1));
        at.query / block == at.key / block && (at.query + at.key).is_multiple_of(step)
    }
}

attention::score_kernels! {
    Local:
    #[kernel] fn local_lists;
    #[kernel] fn local_bf16_64: Bf16Head64Low;
    #[kernel] fn local_bf16_128: Bf16Head128;
    #[kernel] fn local_bf16_192_128: Bf16Head192Values128;
    backward:
    #[kernel] fn local_backward_bf16_64: Bf16Head64;
    #[kernel] fn local_backward_bf16_128: Bf16Head128;
}
