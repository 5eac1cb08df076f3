//! The running softmax of a thread's two rows, in base 2.

use core::f32::consts::{LN_2, LOG2_E};

use cuda_std::fastmath::{ex2_approx, fma, lg2_approx, max, rcp_approx};
use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use primitives::unroll;

use super::fragments::{Fragment, steps};

/// The lanes that share a row.
const ROW_LANES: u32 = 4;

/// The running maximum of both rows, and this thread's part of their sums.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Largest scores so far, before the scale.
    max: [f32; 2],
    /// Sums of `2^(c (s - max))` of this thread's columns.
    sum: [f32; 2],
    /// `scale log2 e`.
    factor: f32,
}

impl Rows {
    /// Two rows without keys, of scores that are multiplied by `scale`.
    #[inline(always)]
    pub fn new(scale: f32) -> Self {
        Self { max: [f32::NEG_INFINITY; 2], sum: [0.0; 2], factor: scale * LOG2_E }
    }

    /// Makes weights of a block's scores, and adds them to the sums. Returns the factors that results so far
    /// are to be multiplied by.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn push<F: Fragment>(&mut self, scores: &mut F) -> [f32; 2] {
        // SAFETY: the caller's contract.
        let max = unsafe { self.block_max(scores) };
        let mut factors = [0.0; 2];
        let mut offsets = [0.0; 2];
        unroll!(ROW in 0..2, {
            // Infinities have no difference: a row that has seen nothing is measured from 0.
            let base = if max[ROW] == f32::NEG_INFINITY { 0.0 } else { max[ROW] };
            factors[ROW] = ex2_approx((self.max[ROW] - base) * self.factor);
            offsets[ROW] = -base * self.factor;
            self.max[ROW] = max[ROW];
        });
        let x = scores.as_mut();
        // Two sums a row: one would be a chain of additions that wait for each other.
        let mut sums = [0.0; 4];
        unroll!(STEP in 0..32, {
            if STEP < steps::<F>() {
                unroll!(I in 0..4, {
                    let weight = ex2_approx(fma(x[4 * STEP + I], self.factor, offsets[I / 2]));
                    x[4 * STEP + I] = weight;
                    sums[I] += weight;
                });
            }
        });
        unroll!(ROW in 0..2, {
            self.sum[ROW] = fma(self.sum[ROW], factors[ROW], sums[2 * ROW] + sums[2 * ROW + 1]);
        });
        factors
    }

    /// The larger of the maximum so far and a block's, of both rows.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    unsafe fn block_max<F: Fragment>(&self, scores: &F) -> [f32; 2] {
        let x = scores.as_ref();
        let mut most = [self.max[0], self.max[0], self.max[1], self.max[1]];
        unroll!(STEP in 0..32, {
            if STEP < steps::<F>() {
                unroll!(I in 0..4, { most[I] = max(most[I], x[4 * STEP + I]); });
            }
        });
        // SAFETY: the caller's contract.
        unsafe { [row_max(max(most[0], most[1])), row_max(max(most[2], most[3]))] }
    }

    /// Ends the rows: the factors of the results, one over the sums, and the log-sum-exps. A row without keys
    /// has the factor 0 and minus infinity.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn finish(self) -> ([f32; 2], [f32; 2]) {
        let (mut factors, mut logarithms) = ([0.0; 2], [f32::NEG_INFINITY; 2]);
        unroll!(ROW in 0..2, {
            // SAFETY: the caller's contract.
            let sum = unsafe { row_sum(self.sum[ROW]) };
            if sum != 0.0 {
                factors[ROW] = rcp_approx(sum);
                logarithms[ROW] = fma(self.max[ROW], self.factor, lg2_approx(sum)) * LN_2;
            }
        });
        (factors, logarithms)
    }
}

/// The largest of a row's four lanes.
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
unsafe fn row_max(x: f32) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let x = max(x, warp_shuffle_xor(FULL_MASK, x, 1, 32).0);
        max(x, warp_shuffle_xor(FULL_MASK, x, ROW_LANES / 2, 32).0)
    }
}

/// The sum over a row's four lanes.
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
unsafe fn row_sum(x: f32) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let x = x + warp_shuffle_xor(FULL_MASK, x, 1, 32).0;
        x + warp_shuffle_xor(FULL_MASK, x, ROW_LANES / 2, 32).0
    }
}
