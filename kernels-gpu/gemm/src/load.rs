//! Copies of operand tiles from global to shared memory for [`crate::gemm_f32`].
//!
//! `A` is stored by columns (`[k][row]`), because the threads read neighbouring rows of one column at a time; each element is
//! copied on its own, which does the transposing and asks for no alignment. `B` is stored as it lies (`[k][column]`), 16 bytes at a
//! time when its rows are aligned. What lies outside of the matrices becomes 0.

use crate::gemm_f32::{A_PITCH, BLOCK_K, BLOCK_M, BLOCK_N, Problem, Stage, THREADS};
use core::mem::offset_of;
use cuda_std::{async_copy, thread};
use layout::UNIT_BYTES;

/// Bytes of an element.
const ELEMENT: u32 = size_of::<f32>() as u32;
/// Elements of a 16-byte copy.
const VECTOR: u32 = UNIT_BYTES / ELEMENT;
/// Neighbouring elements of a row of `A` that neighbouring threads copy: one 32-byte sector, and with four rows a warp no two lanes
/// store to the same bank.
const A_RUN: u32 = 8;
/// Rows of `A` that the block copies at a time.
const A_ROWS: u32 = THREADS / A_RUN;
/// 16-byte units of a row of `B`.
const B_UNITS: u32 = BLOCK_N / VECTOR;
/// Rows of `B` that the block copies at a time, by units.
const B_ROWS: u32 = THREADS / B_UNITS;

/// What the copies of one block have in common.
#[derive(Clone, Copy)]
pub(crate) struct Loader {
    pub problem: Problem,
    /// First row of the block in `A`.
    pub row: u32,
    /// First column of the block in `B`.
    pub column: u32,
    /// No row or column of the block lies outside of the matrices.
    pub interior: bool,
    /// Rows of `B` are aligned to 16 bytes.
    pub b_units: bool,
}

impl Loader {
    /// Starts the copies of the tiles that begin at column `k` of `A`, row `k` of `B`.
    ///
    /// # Safety
    /// `stage` is the shared address of a [`Stage`] that no thread uses; `k < problem.k`.
    #[inline(always)]
    pub unsafe fn start(self, stage: u32, k: u32) {
        const { assert!(BLOCK_K.is_multiple_of(A_RUN) && BLOCK_M.is_multiple_of(A_ROWS)) };
        const { assert!(BLOCK_K.is_multiple_of(B_ROWS) && THREADS == BLOCK_N) };
        let whole = self.interior && self.problem.k - k >= BLOCK_K;
        let a = stage + offset_of!(Stage, a) as u32;
        let b = stage + offset_of!(Stage, b) as u32;
        // SAFETY: the whole forms are for tiles inside the matrices, the others guard each copy.
        unsafe {
            if whole {
                self.a_whole(a, k);
            } else {
                self.a_guarded(a, k);
            }
            match (self.b_units, whole) {
                (true, true) => self.b_whole(b, k),
                (true, false) => self.b_guarded::<VECTOR>(b, k),
                (false, _) => self.b_guarded::<1>(b, k),
            }
        }
    }

    #[inline(always)]
    unsafe fn a_whole(self, tile: u32, k: u32) {
        let (run, first) = (thread::thread_idx_x() % A_RUN, thread::thread_idx_x() / A_RUN);
        let stride = self.problem.k as usize;
        let to = tile + (run * A_PITCH + first) * ELEMENT;
        // SAFETY: inside A, by the caller's word.
        unsafe {
            let from = self.problem.a.add((self.row + first) as usize * stride + (k + run) as usize);
            for i in 0..BLOCK_M / A_ROWS {
                let row = from.add((i * A_ROWS) as usize * stride);
                for j in 0..BLOCK_K / A_RUN {
                    let to = to + (j * A_RUN * A_PITCH + i * A_ROWS) * ELEMENT;
                    async_copy::copy_ca::<ELEMENT, f32>(to, row.add((j * A_RUN) as usize));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn a_guarded(self, tile: u32, k: u32) {
        let Problem { m, k: length, a, .. } = self.problem;
        let (run, first) = (thread::thread_idx_x() % A_RUN, thread::thread_idx_x() / A_RUN);
        let mut copy = 0;
        while copy < BLOCK_M / A_ROWS * (BLOCK_K / A_RUN) {
            let row = first + copy % (BLOCK_M / A_ROWS) * A_ROWS;
            let column = run + copy / (BLOCK_M / A_ROWS) * A_RUN;
            let inside = self.row + row < m && k + column < length;
            let place = (self.row + row) as usize * length as usize + (k + column) as usize;
            // SAFETY: guarded; outside, nothing is read.
            unsafe { copy_or_zero::<ELEMENT>(tile + (column * A_PITCH + row) * ELEMENT, a, place, inside) };
            copy += 1;
        }
    }

    #[inline(always)]
    unsafe fn b_whole(self, tile: u32, k: u32) {
        let (unit, first) = (thread::thread_idx_x() % B_UNITS, thread::thread_idx_x() / B_UNITS);
        let stride = self.problem.n as usize;
        let to = tile + (first * BLOCK_N + unit * VECTOR) * ELEMENT;
        // SAFETY: inside B, by the caller's word, and aligned.
        unsafe {
            let from =
                self.problem.b.add((k + first) as usize * stride + (self.column + unit * VECTOR) as usize);
            for i in 0..BLOCK_K / B_ROWS {
                let row = from.add((i * B_ROWS) as usize * stride);
                async_copy::copy_cg(to + i * B_ROWS * BLOCK_N * ELEMENT, row);
            }
        }
    }

    /// Copies `WIDTH` elements at a time; rows are a multiple of that long.
    #[inline(always)]
    unsafe fn b_guarded<const WIDTH: u32>(self, tile: u32, k: u32) {
        let Problem { n: length, k: rows, b, .. } = self.problem;
        let units = BLOCK_N / WIDTH;
        let column = thread::thread_idx_x() % units * WIDTH;
        let mut row = thread::thread_idx_x() / units;
        while row < BLOCK_K {
            let inside = k + row < rows && self.column + column < length;
            let place = (k + row) as usize * length as usize + (self.column + column) as usize;
            let to = tile + (row * BLOCK_N + column) * ELEMENT;
            // SAFETY: guarded; outside, nothing is read.
            unsafe {
                if WIDTH == VECTOR {
                    copy_or_zero::<UNIT_BYTES>(to, b, place, inside);
                } else {
                    copy_or_zero::<ELEMENT>(to, b, place, inside);
                }
            }
            row += THREADS / units;
        }
    }
}

/// Starts a copy of `BYTES` bytes from element `place` of `from`, or of zeros.
#[inline(always)]
unsafe fn copy_or_zero<const BYTES: u32>(to: u32, from: *const f32, place: usize, inside: bool) {
    let (place, bytes) = if inside { (place, BYTES) } else { (0, 0) };
    // SAFETY: inside, the caller vouches for the place; else no byte is read.
    unsafe { async_copy::copy_ca_zfill::<BYTES, f32>(to, from.add(place), bytes) };
}
