//! `C = alpha A B + beta C` in f32, for row-major `A: [m, k]`, `B: [k, n]`, `C: [m, n]` of any size, without tensor cores.
//!
//! ```text
//!             B tile  BLOCK_K x BLOCK_N                 a block: 4 warps, 2 x 2, each 64 x 64 of C
//!            +------------------------+                 a warp:  8 x 4 lanes (interleaved), each 8 x 16 of C
//!            +-----------+------------+                 a lane:  rows in 2 groups of 4, 32 apart,
//!   A tile   |  warp 0   |  warp 1    |                          columns in 4 groups of 4, 16 apart
//!  BLOCK_M x +-----------+------------+
//!  BLOCK_K   |  warp 2   |  warp 3    |
//!            +-----------+------------+
//!
//!   copies    | tile 0 |  tile 1      |  tile 2      |  tile 3 ..        cp.async into two stages
//!   compute            |S  tile 0     |S  tile 1     |S  tile 2 ..       S: wait for the copies, one barrier
//! ```
//! The barrier that publishes a tile also tells that all threads have left the other stage, so the next copies start there at once
//! and have a whole tile's arithmetic (16 x 128 multiply-adds a thread) to arrive. For each of the 16 columns of the tile a thread
//! reads 8 values of `A` and 16 of `B`, six 16-byte loads without bank conflicts for 128 multiply-adds, one column ahead.
//! 8 x 16 accumulators a thread rather than 8 x 8: shared memory would else be as busy as the arithmetic.
//!
//! Each element of `C` is one chain of fused multiply-adds over k in ascending order, whatever the shape: results are bitwise
//! repeatable, and do not depend on alignment.
//!
//! With `beta` 0, `C` is not read. `k` may be 0.
//!
//! Limits: [`tiles`]`(m, n) < 2^31`, sides below [`MAX_SIDE`], `C` overlaps neither `A` nor `B`; blocks of [`THREADS`] threads.

use crate::load::Loader;
use crate::unroll::unrolled;
use core::mem::offset_of;
use cuda_std::{async_copy, fastmath, kernel, shared, shared_array, thread, vector};
use layout::{UNIT_BYTES, grouped_tile, interleaved_lane};

/// Rows of `C` that a block computes.
pub const BLOCK_M: u32 = 128;
/// Columns of `C` that a block computes.
pub const BLOCK_N: u32 = 128;
/// Columns of `A` that are in shared memory at a time.
pub const BLOCK_K: u32 = 16;
/// Threads of a block.
pub const THREADS: u32 = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
/// Largest `m`, `n` or `k`: leaves room to round up to whole tiles in 32 bits.
pub const MAX_SIDE: u32 = u32::MAX - 2 * BLOCK_M;
/// Distance between columns of the `A` tile: the padding spreads a column's copies over the banks.
pub(crate) const A_PITCH: u32 = BLOCK_M + VECTOR;

/// Rows of `C` of a thread.
const THREAD_M: u32 = 8;
/// Columns of `C` of a thread.
const THREAD_N: u32 = 16;
/// Rows and columns of `C` of a warp.
const WARP_TILE: u32 = 64;
/// Warps beside each other in a block.
const WARP_COLUMNS: u32 = BLOCK_N / WARP_TILE;
/// Lanes of a warp.
const LANES: u32 = 32;
/// Elements of a 16-byte access.
const VECTOR: u32 = UNIT_BYTES / size_of::<f32>() as u32;
/// Rows between a thread's groups of four: 8 lanes, 4 rows each.
const ROW_GROUP: u32 = 8 * VECTOR;
/// Columns between a thread's groups of four: 4 lanes, 4 columns each.
const COLUMN_GROUP: u32 = 4 * VECTOR;
/// Tiles in shared memory: one being computed with, one arriving.
const STAGES: usize = 2;
/// Blocks that fit a multiprocessor at once, so that one computes while the other waits; bounds the registers at 255.
const MIN_BLOCKS: u32 = 2;
/// Rows of blocks of a band.
const BAND: u32 = 16;
/// Columns of the tile between two jumps of the inner loop.
const STEPS: u32 = 8;

/// Shared memory of a tile.
#[repr(C, align(16))]
pub(crate) struct Stage {
    pub a: [[f32; A_PITCH as usize]; BLOCK_K as usize],
    pub b: [[f32; BLOCK_N as usize]; BLOCK_K as usize],
}

/// Shape and operands.
#[derive(Clone, Copy)]
pub(crate) struct Problem {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: *const f32,
    pub b: *const f32,
}

/// A thread's part of `C`.
type Accumulators = [[f32; THREAD_N as usize]; THREAD_M as usize];

/// A thread's part of a column of the `A` tile and of a row of the `B` tile, by groups of four.
#[derive(Clone, Copy)]
struct Fragment {
    a: [[f32; 4]; 2],
    b: [[f32; 4]; 4],
}

/// Where a thread's part of the block's tile begins.
#[derive(Clone, Copy)]
struct Corner {
    row: u32,
    column: u32,
}

/// Blocks for an `m x n` result.
pub const fn tiles(m: u32, n: u32) -> u64 {
    m.div_ceil(BLOCK_M) as u64 * n.div_ceil(BLOCK_N) as u64
}

/// `C = alpha A B + beta C`.
///
/// # Safety
/// `a` holds `m * k` elements, `b` `k * n`, and `c` is valid for reads and writes of `m * n` and overlaps neither. Sides at most
/// [`MAX_SIDE`]; [`tiles`] blocks of [`THREADS`] threads.
#[kernel(launch_bounds(THREADS, MIN_BLOCKS))]
pub unsafe fn gemm_f32(m: u32, n: u32, k: u32, alpha: f32, a: &[f32], b: &[f32], beta: f32, c: *mut f32) {
    const { assert!(BLOCK_M.is_multiple_of(WARP_TILE) && BLOCK_N.is_multiple_of(WARP_TILE)) };
    const { assert!(BLOCK_M / WARP_TILE * WARP_COLUMNS * LANES == THREADS) };
    const { assert!(THREAD_M == 2 * VECTOR && THREAD_N == 4 * VECTOR && ROW_GROUP * 2 == WARP_TILE) };
    const { assert!(COLUMN_GROUP * 4 == WARP_TILE && BLOCK_K.is_multiple_of(STEPS)) };
    const { assert!(size_of::<Stage>() * STAGES <= 48 << 10) };

    let (tile_row, tile_column) =
        grouped_tile(thread::block_idx_x(), m.div_ceil(BLOCK_M), n.div_ceil(BLOCK_N), BAND);
    let (row, column) = (tile_row * BLOCK_M, tile_column * BLOCK_N);
    let problem = Problem { m, n, k, a: a.as_ptr(), b: b.as_ptr() };
    let loader = Loader {
        problem,
        row,
        column,
        interior: row + BLOCK_M <= m && column + BLOCK_N <= n,
        b_units: has_units(problem.b, n),
    };
    let corner = Corner::of_thread();
    // SAFETY: the caller's word for the operands; the loader and the epilogue guard what lies outside of them.
    unsafe {
        let accumulators = multiply(loader, corner);
        let corner = Corner { row: row + corner.row, column: column + corner.column };
        store(problem, corner, accumulators, alpha, beta, c);
    }
}

/// Whether rows of `length` elements can be accessed 16 bytes at a time.
#[inline(always)]
fn has_units(pointer: *const f32, length: u32) -> bool {
    length.is_multiple_of(VECTOR) && (pointer as usize).is_multiple_of(UNIT_BYTES as usize)
}

impl Corner {
    #[inline(always)]
    fn of_thread() -> Self {
        let thread = thread::thread_idx_x();
        let warp = thread / LANES;
        let (lane_row, lane_column) = interleaved_lane(thread % LANES);
        Self {
            row: warp / WARP_COLUMNS * WARP_TILE + lane_row * VECTOR,
            column: warp % WARP_COLUMNS * WARP_TILE + lane_column * VECTOR,
        }
    }
}

/// The main loop: this thread's part of `A B`.
#[inline(always)]
unsafe fn multiply(loader: Loader, corner: Corner) -> Accumulators {
    let k = loader.problem.k;
    let stages = shared::address_of(shared_array![Stage; STAGES]);
    let toggle = stages ^ (stages + size_of::<Stage>() as u32);
    // SAFETY: all-zero bytes are f32 zeros. (An array expression would be filled by a loop, in local memory.)
    let mut accumulators: Accumulators = unsafe { core::mem::zeroed() };
    let mut stage = stages;
    let mut start = 0;
    // SAFETY: a stage is written between the barrier after its last use and the wait and barrier before its next.
    unsafe {
        if k > 0 {
            loader.start(stage, 0);
        }
        while start < k {
            async_copy::wait_all();
            thread::sync_threads();
            start += BLOCK_K;
            if start < k {
                loader.start(stage ^ toggle, start);
            }
            multiply_tile(&mut accumulators, stage, corner);
            stage ^= toggle;
        }
    }
    accumulators
}

/// Adds the product of a stage's tiles.
#[inline(always)]
unsafe fn multiply_tile(accumulators: &mut Accumulators, stage: u32, corner: Corner) {
    let element = size_of::<f32>() as u32;
    let mut a = stage + offset_of!(Stage, a) as u32 + corner.row * element;
    let mut b = stage + offset_of!(Stage, b) as u32 + corner.column * element;
    let mut step = 0;
    while step < BLOCK_K {
        // SAFETY: STEPS columns from here are in the stage.
        let mut fragment = unsafe { Fragment::load(a, b, 0) };
        unrolled!(AHEAD in [1 2 3 4 5 6 7] {
            // SAFETY: as above.
            let next = unsafe { Fragment::load(a, b, AHEAD as u32) };
            fragment.multiply(accumulators);
            fragment = next;
        });
        fragment.multiply(accumulators);
        a += STEPS * A_PITCH * element;
        b += STEPS * BLOCK_N * element;
        step += STEPS;
    }
}

impl Fragment {
    /// The fragment `step` columns after the one at `a` and `b`.
    #[inline(always)]
    unsafe fn load(a: u32, b: u32, step: u32) -> Self {
        let element = size_of::<f32>() as u32;
        let a = a + step * A_PITCH * element;
        let b = b + step * BLOCK_N * element;
        // SAFETY: the caller's word.
        unsafe {
            Self {
                a: [0, 1].map(|group| vector::load_shared_v4(a + group * ROW_GROUP * element)),
                b: [0, 1, 2, 3].map(|group| vector::load_shared_v4(b + group * COLUMN_GROUP * element)),
            }
        }
    }

    /// Adds the outer product.
    #[inline(always)]
    fn multiply(&self, accumulators: &mut Accumulators) {
        unrolled!(ROW in [0 1 2 3 4 5 6 7] {
            let a = self.a[ROW / 4][ROW % 4];
            unrolled!(COLUMN in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
                let old = accumulators[ROW][COLUMN];
                accumulators[ROW][COLUMN] = fastmath::fma(a, self.b[COLUMN / 4][COLUMN % 4], old);
            });
        });
    }
}

/// The epilogue: writes this thread's part of `C`, which begins at `corner`.
#[inline(always)]
unsafe fn store(problem: Problem, corner: Corner, values: Accumulators, alpha: f32, beta: f32, c: *mut f32) {
    let units = has_units(c, problem.n);
    unrolled!(ROW in [0 1 2 3 4 5 6 7] {
        let row = corner.row + ROW as u32 / 4 * ROW_GROUP + ROW as u32 % 4;
        unrolled!(GROUP in [0 1 2 3] {
            let column = corner.column + GROUP as u32 * COLUMN_GROUP;
            let at = 4 * GROUP;
            let values = [0, 1, 2, 3].map(|i| values[ROW][at + i]);
            if row < problem.m && column < problem.n {
                // SAFETY: guarded.
                unsafe {
                    let to = c.add(row as usize * problem.n as usize + column as usize);
                    if units {
                        store_unit(to, values, alpha, beta);
                    } else {
                        store_elements(to, values, problem.n - column, alpha, beta);
                    }
                }
            }
        });
    });
}

#[inline(always)]
unsafe fn store_unit(to: *mut f32, values: [f32; 4], alpha: f32, beta: f32) {
    // SAFETY: the caller has an aligned unit inside C.
    unsafe {
        let old: [f32; 4] = if beta == 0.0 { [0.0; 4] } else { vector::load_v4(to.cast_const()) };
        vector::store_v4(to, [0, 1, 2, 3].map(|i| scale(values[i], old[i], alpha, beta)));
    }
}

/// The first `left` of the four values.
#[inline(always)]
unsafe fn store_elements(to: *mut f32, values: [f32; 4], left: u32, alpha: f32, beta: f32) {
    unrolled!(I in [0 1 2 3] {
        if (I as u32) < left {
            // SAFETY: the caller has `left` elements inside C.
            unsafe {
                let to = to.add(I);
                let old = if beta == 0.0 { 0.0 } else { *to };
                *to = scale(values[I], old, alpha, beta);
            }
        }
    });
}

#[inline(always)]
fn scale(value: f32, old: f32, alpha: f32, beta: f32) -> f32 {
    if beta == 0.0 { alpha * value } else { fastmath::fma(alpha, value, beta * old) }
}

#[cfg(test)]
mod tests {
    use super::{A_PITCH, LANES, VECTOR, interleaved_lane};
    use layout::banks::{wavefronts_4, wavefronts_16};

    #[test]
    fn fragments_and_copies_are_free_of_conflicts() {
        for quarter in 0..4 {
            let lane = |index: usize| interleaved_lane(quarter * 8 + index as u32);
            let a: [u32; 8] = std::array::from_fn(|index| lane(index).0 * VECTOR * 4);
            let b: [u32; 8] = std::array::from_fn(|index| lane(index).1 * VECTOR * 4);
            assert_eq!((wavefronts_16(&a), wavefronts_16(&b)), (1, 1));
        }
        let copies: [u32; LANES as usize] =
            std::array::from_fn(|lane| (lane as u32 % 8 * A_PITCH + lane as u32 / 8) * 4);
        assert_eq!(wavefronts_4(&copies), 1);
    }
}
