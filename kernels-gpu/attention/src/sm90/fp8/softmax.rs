//! The running softmax of a thread's two rows, in base 2, of scores whose factor differs from block to block.

use cuda_std::fastmath::{ex2_approx, fma, max};
use primitives::unroll;

use crate::softmax::{Scores, Total, base, row_maxima, row_sum, steps};

/// Base-2 logarithm of the factor of weights.
const WEIGHT_EXPONENT: f32 = 8.0;
/// One over that factor.
pub(super) const WEIGHT_UNIT: f32 = 1.0 / 256.0;

/// The f32 above the product of a score and its factor, which was rounded: exponents, whose products are
/// exact, stay below it. Weights above 1 would be less in e4m3, whose largest number is 448, than in sums.
/// (Minus infinity becomes no number, which gives way.)
#[inline(always)]
fn above(product: f32) -> f32 {
    fma(product.abs(), 0.75 * f32::EPSILON, product)
}

/// The running maximum of both rows, and this thread's part of their sums.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Largest scores so far, in base 2, or the number above.
    max: [f32; 2],
    /// Sums of this thread's weights.
    sum: [f32; 2],
}

impl Rows {
    /// Two rows without keys.
    pub const NONE: Self = Self { max: [f32::NEG_INFINITY; 2], sum: [0.0; 2] };

    /// Makes weights, times 2^8, of a block's scores, which are in base 2 with `factor`, and adds them to the
    /// sums: at most 2^8. Returns the factors that results so far are to be multiplied by.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn push<S: Scores>(&mut self, scores: &mut S, factor: f32) -> [f32; 2] {
        // SAFETY: the caller's contract.
        let most = unsafe { row_maxima(scores, [f32::NEG_INFINITY; 2]) };
        let x = scores.as_mut();
        let (mut factors, mut offsets) = ([0.0; 2], [0.0; 2]);
        unroll!(ROW in 0..2, {
            let most = max(self.max[ROW], above(most[ROW] * factor));
            factors[ROW] = ex2_approx(self.max[ROW] - base(most));
            offsets[ROW] = WEIGHT_EXPONENT - base(most);
            self.max[ROW] = most;
        });
        // Two sums a row: one would be a chain of additions that wait for each other.
        let mut sums = [0.0; 4];
        unroll!(STEP in 0..32, {
            if STEP < steps::<S>() {
                unroll!(I in 0..4, {
                    let weight = ex2_approx(fma(x[4 * STEP + I], factor, offsets[I / 2]));
                    x[4 * STEP + I] = weight;
                    sums[I] = if STEP == 0 { weight } else { sums[I] + weight };
                });
            }
        });
        unroll!(ROW in 0..2, {
            self.sum[ROW] = fma(self.sum[ROW], factors[ROW], sums[2 * ROW] + sums[2 * ROW + 1]);
        });
        factors
    }

    /// Ends the rows: the factors of the results, and the log-sum-exps, as [`Total::finish`] says.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn finish(self, sink: Option<f32>) -> ([f32; 2], [f32; 2]) {
        let (mut factors, mut logarithms) = ([0.0; 2], [0.0; 2]);
        unroll!(ROW in 0..2, {
            // SAFETY: the caller's contract.
            let sum = unsafe { row_sum(self.sum[ROW]) } * WEIGHT_UNIT;
            // Maxima are in base 2 already.
            (factors[ROW], logarithms[ROW]) = Total { max: self.max[ROW], sum }.finish(1.0, sink);
        });
        (factors, logarithms)
    }
}
