//! Warp-wide moves of 8x8 matrices of 16-bit elements between shared memory and `mma` fragments: `ldmatrix`, `stmatrix`.
//!
//! An 8x8 matrix is 8 rows of 16 bytes. The rows may lie anywhere in shared memory, 16-byte aligned: lane `8 m + r`
//! gives the 32-bit shared address of row `r` of matrix `m` (`_x1` looks at lanes 0 to 7, `_x2` at 0 to 15, `_x4` at
//! all; other lanes' addresses are ignored). Register `m` of lane `l` is then the elements `2 (l % 4)` and
//! `2 (l % 4) + 1` of row `l / 4` of matrix `m`, the first in the low half. With `_trans` the matrix is transposed on
//! the way: elements `(2 (l % 4), l / 4)` and `(2 (l % 4) + 1, l / 4)`, as `(row, column)` in memory.
//!
//! That is the layout of A in `mma` when memory is row-major, and of B when memory is column-major (or row-major and
//! `_trans`).
//!
//! # Safety
//! Every function here: all 32 lanes of the warp are live and reach the same call together; each address that counts
//! is 16-byte aligned and its 16 bytes lie in this block's shared memory, without a race.

use crate::arch::matrix as arch;

macro_rules! ldmatrix {
    ($($name:ident -> $ret:ty, $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        ///
        /// # Safety
        /// The whole warp calls this together with valid row addresses; see the module.
        ///
        /// # PTX
        #[doc = concat!("`ldmatrix.sync.aligned.m8n8.", $ptx, "`")]
        #[inline(always)]
        #[track_caller]
        #[must_use]
        pub unsafe fn $name(row: u32) -> $ret {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$name(row) }
        }
    )* };
}

ldmatrix! {
    ldmatrix_x1 -> u32, "x1.shared.b16": "Loads one matrix.";
    ldmatrix_x2 -> [u32; 2], "x2.shared.b16": "Loads two matrices.";
    ldmatrix_x4 -> [u32; 4], "x4.shared.b16": "Loads four matrices.";
    ldmatrix_x1_trans -> u32, "x1.trans.shared.b16": "Loads one matrix, transposed.";
    ldmatrix_x2_trans -> [u32; 2], "x2.trans.shared.b16": "Loads two matrices, each transposed.";
    ldmatrix_x4_trans -> [u32; 4], "x4.trans.shared.b16": "Loads four matrices, each transposed.";
}

macro_rules! stmatrix {
    ($($name:ident($registers:ty), $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        /// Needs sm_90.
        ///
        /// # Safety
        /// The whole warp calls this together with valid row addresses; see the module.
        ///
        /// # PTX
        #[doc = concat!("`stmatrix.sync.aligned.m8n8.", $ptx, "`")]
        #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(row: u32, registers: $registers) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$name(row, registers) }
        }
    )* };
}

stmatrix! {
    stmatrix_x1(u32), "x1.shared.b16": "Stores one matrix.";
    stmatrix_x2([u32; 2]), "x2.shared.b16": "Stores two matrices.";
    stmatrix_x4([u32; 4]), "x4.shared.b16": "Stores four matrices.";
    stmatrix_x1_trans(u32), "x1.trans.shared.b16": "Stores one matrix, transposed.";
    stmatrix_x2_trans([u32; 2]), "x2.trans.shared.b16": "Stores two matrices, each transposed.";
    stmatrix_x4_trans([u32; 4]), "x4.trans.shared.b16": "Stores four matrices, each transposed.";
}
