//! Accumulators of `wgmma` as what they mean here: scores, weights and results of a consumer's 64 queries.
//!
//! A thread has two rows, 8 apart, and of each the columns `8 j + 2 q` and `8 j + 2 q + 1` with
//! `q = lane % 4`; see [`cuda_std::wgmma`].

use cuda_std::matrix;
use cuda_std::wgmma::{self, Accumulator};
use layout::wgmma::{K_BYTES, Swizzle, advance, descriptor};
use primitives::tma::LINE_BYTES;
use primitives::unroll;
use primitives::wgmma::Element16;

use super::config::{BOX_COLUMNS, Config};

/// A thread's part of 64 rows.
pub trait Fragment: Accumulator + Copy + AsRef<[f32]> + AsMut<[f32]> {}

impl<Acc: Accumulator + Copy + AsRef<[f32]> + AsMut<[f32]>> Fragment for Acc {}

/// All zero. (Not a loop: the compiler would keep the numbers in memory.)
#[inline(always)]
pub fn zero<F: Fragment>() -> F {
    // SAFETY: accumulators are arrays of f32, for which all bits zero is a value.
    unsafe { core::mem::zeroed() }
}

/// Steps of 8 columns of a fragment.
#[inline(always)]
pub const fn steps<F: Fragment>() -> usize {
    (F::N / 8) as usize
}

/// Columns that one instruction of `P V` takes: 16.
const STEP_COLUMNS: u32 = 16;
/// Most of these steps.
const MAX_STEPS: usize = 16;

/// The weights of a block of keys as the left operand of `P V`: four registers a step of 16 keys.
#[derive(Clone, Copy)]
pub struct Weights([[u32; 4]; MAX_STEPS]);

impl Weights {
    /// No weights.
    #[inline(always)]
    pub const fn zero() -> Self {
        Self([[0; 4]; MAX_STEPS])
    }

    /// Keeps the compiler from moving writes of the registers behind this place.
    #[inline(always)]
    pub fn fence<C: Config>(&mut self) {
        unroll!(STEP in 0..16, {
            if STEP < (C::BLOCK_N / STEP_COLUMNS) as usize {
                wgmma::fence_operand(&mut self.0[STEP]);
            }
        });
    }

    /// Rounds the weights to the element type.
    #[inline(always)]
    pub fn set<C: Config>(&mut self, p: &C::Scores) {
        let p = p.as_ref();
        unroll!(STEP in 0..16, {
            if STEP < (C::BLOCK_N / STEP_COLUMNS) as usize {
                unroll!(PAIR in 0..4, {
                    let first = 8 * STEP + 2 * PAIR;
                    self.0[STEP][PAIR] = C::Element::pack(p[first], p[first + 1]);
                });
            }
        });
    }
}

/// Starts `S = Q K^T`, of the queries and the keys that begin at these shared addresses.
///
/// # Safety
/// As for [`wgmma::mma`]; both have been copied by maps with boxes as [`super::instances`] says.
#[inline(always)]
pub unsafe fn multiply_scores<C: Config>(scores: &mut C::Scores, queries: u32, keys: u32) {
    let start = descriptor(0, LINE_BYTES, Swizzle::B128.period(), Swizzle::B128);
    let (queries, keys) = (advance(start, queries), advance(start, keys));
    const BOX_STEPS: usize = (LINE_BYTES / K_BYTES) as usize;
    unroll!(STEP in 0..16, {
        if STEP < C::BOXES as usize * BOX_STEPS {
            let (piece, inside) = ((STEP / BOX_STEPS) as u32, (STEP % BOX_STEPS) as u32 * K_BYTES);
            let a = advance(queries, piece * C::QUERY_BOX + inside);
            let b = advance(keys, piece * C::KEY_BOX + inside);
            // SAFETY: the caller's contract; inside of both tiles.
            unsafe { wgmma::mma::<C::Element, C::Element, C::Scores, 0, 0>(scores, a, b, STEP != 0) }
        }
    });
}

/// Starts `O = P V`, or `O += P V` with `accumulate`, of the values that begin at this shared address.
///
/// # Safety
/// As for [`wgmma::mma_ra`]; as [`multiply_scores`].
#[inline(always)]
pub unsafe fn multiply_values<C: Config>(
    result: &mut C::Result,
    weights: &Weights,
    values: u32,
    accumulate: bool,
) {
    let start = descriptor(0, C::KEY_BOX, Swizzle::B128.period(), Swizzle::B128);
    let values = advance(start, values);
    unroll!(STEP in 0..16, {
        if STEP < (C::BLOCK_N / STEP_COLUMNS) as usize {
            let b = advance(values, STEP as u32 * STEP_COLUMNS * LINE_BYTES);
            let first = STEP != 0 || accumulate;
            // SAFETY: the caller's contract; inside of the tile.
            unsafe {
                wgmma::mma_ra::<C::Element, C::Element, C::Result, 1>(result, &weights.0[STEP], b, first);
            }
        }
    });
}

/// Multiplies each of the thread's two rows by its factor.
#[inline(always)]
pub fn scale_rows<F: Fragment>(fragment: &mut F, factors: [f32; 2]) {
    let values = fragment.as_mut();
    unroll!(STEP in 0..32, {
        if STEP < steps::<F>() {
            unroll!(I in 0..4, { values[4 * STEP + I] *= factors[I / 2]; });
        }
    });
}

/// Writes a consumer's results to shared memory, as the copy engine takes them: boxes of 64 columns, with a
/// swizzle of 128 bytes.
///
/// # Safety
/// The whole warp calls it, `thread` being the number in the warpgroup; nothing reads or writes the boxes.
#[inline(always)]
pub unsafe fn write_result<C: Config>(result: &C::Result, to: u32, thread: u32) {
    let values = result.as_ref();
    let (lane, warp) = (thread % 32, thread / 32);
    // Matrices: rows 0.., rows 8.., then 8 columns on.
    let row = warp * 16 + lane % 16;
    let line = to + row * LINE_BYTES;
    let (unit, flip) = (lane / 16, row % 8);
    unroll!(STEP in 0..16, {
        if STEP < steps::<C::Result>() / 2 {
            let pair = |index: usize| C::Element::pack(values[index], values[index + 1]);
            let registers = [pair(8 * STEP), pair(8 * STEP + 2), pair(8 * STEP + 4), pair(8 * STEP + 6)];
            let column = STEP as u32 * STEP_COLUMNS;
            let unit = unit + column % BOX_COLUMNS / 8;
            let address = line + column / BOX_COLUMNS * C::QUERY_BOX + (unit ^ flip) * layout::UNIT_BYTES;
            // SAFETY: the caller's word; a line of a box.
            unsafe { matrix::stmatrix_x4(address, registers) }
        }
    });
}
