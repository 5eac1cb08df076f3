//! One over the norm of every row: `cosine_norms_f16`, `cosine_norms_bf16`.
//!
//! `[n, dim]` row-major in, f32 `[n]` out; 0 for zero rows, NaN for rows with a NaN, 0 for rows with an
//! infinity (and, in bf16, for rows whose squares leave the range of f32). A stream of rows like
//! [`crate::stream`]'s, with the same sums in the same order, so that both find the same norms bit for bit.

use crate::half::{Access, Aligned, Half, Unaligned, bf16, f16, is_aligned};
use crate::list::dynamic_shared_address;
use crate::rows::{Chunk, Consumer, DEPTHS, Lane, Matrix, ROWS, Ring, Squares};
use cuda_std::{kernel, thread, vector};
use primitives::unroll;

/// Warps of a block.
pub const WARPS: u32 = 4;
/// Threads of a block.
pub const THREADS: u32 = WARPS * 32;
/// Rows that a block works on at a time.
pub const ROWS_PER_BLOCK: u32 = WARPS * ROWS;
/// Blocks that a multiprocessor holds.
pub const BLOCKS_PER_SM: u32 = 2;
/// Dynamic shared memory of a block.
pub const SHARED_BYTES: u32 = Ring::bytes(WARPS, DEPTHS.0);

/// Inverse norms of f16 rows; see the module.
///
/// # Safety
/// `rows` is `[n, dim]` with `n, dim >= 1` and nothing writes it; `out` is `[n]`; blocks of [`THREADS`]
/// threads with [`SHARED_BYTES`] of dynamic shared memory.
#[kernel(launch_bounds(THREADS, BLOCKS_PER_SM))]
pub unsafe fn cosine_norms_f16(rows: *const f16, n: u32, dim: u32, out: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { norms(Matrix { base: rows, n, dim }, out) }
}

/// Inverse norms of bf16 rows; see the module.
///
/// # Safety
/// As [`cosine_norms_f16()`].
#[kernel(launch_bounds(THREADS, BLOCKS_PER_SM))]
pub unsafe fn cosine_norms_bf16(rows: *const bf16, n: u32, dim: u32, out: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe { norms(Matrix { base: rows, n, dim }, out) }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn norms<T: Half>(rows: Matrix<T>, out: *mut f32) {
    // SAFETY: the caller's contract; `Aligned` only where it holds.
    unsafe {
        if is_aligned(rows.base, rows.dim) {
            norms_by::<T, Aligned>(rows, out)
        } else {
            norms_by::<T, Unaligned>(rows, out)
        }
    }
}

/// # Safety
/// As the kernels; `A` fits the rows.
#[inline(always)]
unsafe fn norms_by<T: Half, A: Access>(rows: Matrix<T>, out: *mut f32) {
    let warp = thread::thread_idx_x() / 32;
    let ring = Ring::of(dynamic_shared_address(), warp, DEPTHS.0);
    let (first, stride) = (thread::block_idx_x() * WARPS + warp, thread::grid_dim_x() * WARPS);
    let mut norms = Norms { rows, out, lane: Lane::this(), squares: Squares::ZERO };
    // SAFETY: the caller's contract; the whole warp takes the same way.
    unsafe { rows.stream::<A>(first, stride, norms.lane, ring, &mut norms) }
}

struct Norms<T> {
    rows: Matrix<T>,
    out: *mut f32,
    lane: Lane,
    squares: Squares,
}

impl<T: Half> Consumer for Norms<T> {
    #[inline(always)]
    unsafe fn chunk(&mut self, rows: &Chunk, _: u32) {
        unroll!(step in 0..4, {
            // SAFETY: the caller's contract.
            unsafe {
                self.squares.add::<T>(rows.a(step, 0));
                self.squares.add::<T>(rows.a(step, 1));
            }
        });
    }

    #[inline(always)]
    unsafe fn finish(&mut self, block: u32) {
        // SAFETY: the caller's contract; `row` is one of the matrix.
        unsafe {
            let [upper, lower] = self.squares.inverse_norms(self.lane);
            // Members 0 and 1 write the two rows of their group.
            let row = block * ROWS + self.lane.group + self.lane.member * (ROWS / 2);
            if self.lane.member < 2 && row < self.rows.n {
                vector::store(self.out.add(row as usize), if self.lane.member == 0 { upper } else { lower });
            }
        }
        self.squares = Squares::ZERO;
    }
}
