//! The running softmax of a thread's two rows, in base 2.

use core::f32::consts::{LN_2, LOG2_E};

use cuda_std::fastmath::{ex2_approx, fma, lg2_approx, max, rcp_approx};
use cuda_std::misc::{max3, min3};
use cuda_std::warp::{FULL_MASK, warp_shuffle_xor, warp_vote_any};
use primitives::unroll;

/// The lanes that share a row.
const ROW_LANES: u32 = 4;

/// A thread's scores: of two rows, 8 apart, the columns `8 j + 2 q` and `8 j + 2 q + 1` with `q = lane % 4`,
/// as tensor cores sum them. Four numbers for each `j`, two of them a row; up to 256 columns.
pub trait Scores: AsRef<[f32]> + AsMut<[f32]> {}

impl<S: AsRef<[f32]> + AsMut<[f32]>> Scores for S {}

/// Steps of 8 columns of an array of scores.
#[inline(always)]
pub(crate) const fn steps<S: Scores>() -> usize {
    size_of::<S>() / size_of::<[f32; 4]>()
}

/// The factor of scores with which exponentials have base 2.
#[inline(always)]
#[must_use]
pub const fn factor(scale: f32) -> f32 {
    scale * LOG2_E
}

/// The numbers of a row, or of a part of its keys; those of all parts give the row's.
#[derive(Clone, Copy, Debug)]
pub struct Total {
    /// The largest score, before the scale.
    pub max: f32,
    /// The sum of `2^(c (s - max))`.
    pub sum: f32,
}

impl Total {
    /// Of no keys.
    pub const NONE: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };

    /// The factor of this part's sums in a row whose largest score is `max`.
    #[inline(always)]
    #[must_use]
    pub fn weight(self, max: f32, factor: f32) -> f32 {
        ex2_approx((self.max - base(max)) * factor)
    }

    /// The factor of the results, one over the sum, and the log-sum-exp. A row without keys has the factor 0
    /// and minus infinity. With a sink there is one more key, of that score and a value of zero.
    #[inline(always)]
    #[must_use]
    pub fn finish(self, factor: f32, sink: Option<f32>) -> (f32, f32) {
        if let Some(sink) = sink {
            // In base 2. Of minus infinity alone nothing comes but a row without keys.
            let (keys, sink) = (self.max * factor, sink * LOG2_E);
            let most = base(max(keys, sink));
            let weight = ex2_approx(keys - most);
            let sum = fma(self.sum, weight, ex2_approx(sink - most));
            return if sum == 0.0 {
                (0.0, f32::NEG_INFINITY)
            } else {
                (weight * rcp_approx(sum), (most + lg2_approx(sum)) * LN_2)
            };
        }
        if self.sum == 0.0 {
            return (0.0, f32::NEG_INFINITY);
        }
        (rcp_approx(self.sum), fma(self.max, factor, lg2_approx(self.sum)) * LN_2)
    }
}

/// Where a row's scores are measured from. Infinities have no difference: a row that has seen nothing is
/// measured from 0.
#[inline(always)]
pub(crate) fn base(max: f32) -> f32 {
    if max == f32::NEG_INFINITY { 0.0 } else { max }
}

/// The sink of a head of queries, if there are sinks.
///
/// # Safety
/// `sinks` is null, or has a number for the head.
#[inline(always)]
#[must_use]
pub unsafe fn sink_of(sinks: *const f32, head: u32) -> Option<f32> {
    // SAFETY: the caller's word.
    if sinks.is_null() { None } else { Some(unsafe { *sinks.add(head as usize) }) }
}

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
        Self { max: [f32::NEG_INFINITY; 2], sum: [0.0; 2], factor: factor(scale) }
    }

    /// Makes weights of a block's scores, and adds them to the sums. Returns the factors that results so far
    /// are to be multiplied by.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn push<S: Scores>(&mut self, scores: &mut S) -> [f32; 2] {
        // SAFETY: the caller's contract.
        let max = unsafe { row_maxima(scores, self.max) };
        let mut factors = [0.0; 2];
        let mut offsets = [0.0; 2];
        unroll!(ROW in 0..2, {
            let base = base(max[ROW]);
            factors[ROW] = ex2_approx((self.max[ROW] - base) * self.factor);
            offsets[ROW] = -base * self.factor;
            self.max[ROW] = max[ROW];
        });
        let x = scores.as_mut();
        // Two sums a row: one would be a chain of additions that wait for each other.
        let mut sums = [0.0; 4];
        unroll!(STEP in 0..32, {
            if STEP < steps::<S>() {
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

    /// Measures later scores of both rows from another place: so far they were less by so much.
    #[inline(always)]
    pub fn shift(&mut self, by: [f32; 2]) {
        unroll!(ROW in 0..2, { self.max[ROW] += by[ROW]; });
    }

    /// The largest scores of the rows, and the sums of their weights, which all lanes of a row get.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn totals(self) -> [Total; 2] {
        let mut totals = [Total::NONE; 2];
        unroll!(ROW in 0..2, {
            // SAFETY: the caller's contract.
            totals[ROW] = Total { max: self.max[ROW], sum: unsafe { row_sum(self.sum[ROW]) } };
        });
        totals
    }

    /// Ends the rows: the factors of the results, one over the sums, and the log-sum-exps, as
    /// [`Total::finish`] says.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn finish(self, sink: Option<f32>) -> ([f32; 2], [f32; 2]) {
        let (mut factors, mut logarithms) = ([0.0; 2], [0.0; 2]);
        unroll!(ROW in 0..2, {
            // SAFETY: the caller's contract.
            let total = Total { max: self.max[ROW], sum: unsafe { row_sum(self.sum[ROW]) } };
            (factors[ROW], logarithms[ROW]) = total.finish(self.factor, sink);
        });
        (factors, logarithms)
    }
}

/// Multiplies each of the thread's two rows by its factor.
#[inline(always)]
pub(crate) fn scale_rows<R: AsMut<[f32]>>(result: &mut R, factors: [f32; 2]) {
    let values = result.as_mut();
    unroll!(STEP in 0..32, {
        if STEP < size_of::<R>() / size_of::<[f32; 4]>() {
            unroll!(I in 0..4, { values[4 * STEP + I] *= factors[I / 2]; });
        }
    });
}

/// The largest scores of both rows, and of those so far.
///
/// They are compared as integers: Hopper compares three of these at once. Integers have the order of numbers,
/// but negative ones the other way round, so where a thread's numbers all are, the least one is looked for.
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
pub(crate) unsafe fn row_maxima<S: Scores>(scores: &S, so_far: [f32; 2]) -> [f32; 2] {
    let so_far = so_far.map(|x| x.to_bits().cast_signed());
    let mut most = extremes(scores, so_far, max3);
    // SAFETY: the caller's contract.
    unsafe {
        if warp_vote_any(FULL_MASK, most[0] < 0 || most[1] < 0) {
            let least = extremes(scores, so_far, min3);
            unroll!(ROW in 0..2, {
                if most[ROW] < 0 {
                    most[ROW] = least[ROW];
                }
            });
        }
        most.map(|bits| row_max(f32::from_bits(bits.cast_unsigned())))
    }
}

/// The extremes of the bits of this thread's scores and of those so far, of both rows.
#[inline(always)]
fn extremes<S: Scores>(scores: &S, so_far: [i32; 2], of: impl Fn(i32, i32, i32) -> i32) -> [i32; 2] {
    const { assert!(steps::<S>().is_multiple_of(2), "two at a time") };
    let x = scores.as_ref();
    let bits = |at: usize| x[at].to_bits().cast_signed();
    // Four a row: one would be a chain of comparisons that wait for each other.
    let mut most = [0, 0, 1, 1, 0, 0, 1, 1].map(|row: usize| so_far[row]);
    unroll!(PAIR in 0..16, {
        if 2 * PAIR < steps::<S>() {
            unroll!(I in 0..4, {
                let (chain, first) = (PAIR % 2 * 4 + I, 8 * PAIR + I);
                most[chain] = of(most[chain], bits(first), bits(first + 4));
            });
        }
    });
    [0, 2].map(|at: usize| of(of(most[at], most[at + 1], most[at + 4]), most[at + 5], most[at + 5]))
}

/// The largest of a row's four lanes.
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
pub(crate) unsafe fn row_max(x: f32) -> f32 {
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
pub(crate) unsafe fn row_sum(x: f32) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let x = x + warp_shuffle_xor(FULL_MASK, x, 1, 32).0;
        x + warp_shuffle_xor(FULL_MASK, x, ROW_LANES / 2, 32).0
    }
}
