//! Warp-wide moves of 8x8 matrices of 16-bit elements between shared memory and `mma` fragments: `ldmatrix`,
//! `stmatrix`.
//!
//! An 8x8 matrix is 8 rows of 16 bytes. The rows may lie anywhere in shared memory, 16-byte aligned: lane `8
//! m + r` gives the 32-bit shared address of row `r` of matrix `m` (`_x1` looks at lanes 0 to 7, `_x2` at 0
//! to 15, `_x4` at all; other lanes' addresses are ignored). Register `m` of lane `l` is then the elements `2
//! (l % 4)` and `2 (l % 4) + 1` of row `l / 4` of matrix `m`, the first in the low half. With `_trans` the
//! matrix is transposed on the way: elements `(2 (l % 4), l / 4)` and `(2 (l % 4) + 1, l / 4)`, as `(row,
//! column)` in memory.
//!
//! That is the layout of A in `mma` when memory is row-major, and of B when memory is column-major (or
//! row-major and `_trans`).
//!
//! # Safety
//! Every function here: all 32 lanes of the warp are live and reach the same call together; each address that
//! counts is 16-byte aligned and its 16 bytes lie in this block's shared memory, without a race.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

#[cfg(not(target_arch = "nvptx64"))]
mod executor;
#[cfg(not(target_arch = "nvptx64"))]
use executor::Order;

/// Name, result and what it is made of, the registers, PTX, the executor's order, documentation.
macro_rules! ldmatrix {
    ($(
        $name:ident -> $ret:ty = $result:expr, [$first:ident $($rest:ident)*], $ptx:literal, $order:ident: $what:literal;
    )*) => { $(
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
            // SAFETY: the caller vouches for the addresses and for the whole warp being here.
            unsafe {
                arms! {
                    ptx: {
                        let $first: u32;
                        $(let $rest: u32;)*
                        asm!(
                            concat!("ldmatrix.sync.aligned.m8n8.", $ptx,
                                " {{{", stringify!($first), "}" $(, ", {", stringify!($rest), "}")*, "}}, [{row}];"),
                            $first = out(reg32) $first, $($rest = out(reg32) $rest,)*
                            row = in(reg32) row, options(readonly, nostack, preserves_flags)
                        );
                        $result
                    }
                    sim: {
                        let [$first $(, $rest)*] = executor::ldmatrix(stringify!($name), row, Order::$order);
                        $result
                    }
                }
            }
        }
    )* };
}

ldmatrix! {
    ldmatrix_x1 -> u32 = a, [a], "x1.shared.b16", AsStored: "Loads one matrix.";
    ldmatrix_x2 -> [u32; 2] = [a, b], [a b], "x2.shared.b16", AsStored: "Loads two matrices.";
    ldmatrix_x4 -> [u32; 4] = [a, b, c, d], [a b c d], "x4.shared.b16", AsStored: "Loads four matrices.";
    ldmatrix_x1_trans -> u32 = a, [a], "x1.trans.shared.b16", Transposed: "Loads one matrix, transposed.";
    ldmatrix_x2_trans -> [u32; 2] = [a, b], [a b], "x2.trans.shared.b16", Transposed: "Loads two matrices, each transposed.";
    ldmatrix_x4_trans -> [u32; 4] = [a, b, c, d], [a b c d], "x4.trans.shared.b16", Transposed: "Loads four matrices, each transposed.";
}

/// Name, value and the registers it is made of, PTX, the executor's order, documentation.
macro_rules! stmatrix {
    ($(
        $name:ident($ty:ty = $value:pat), [$first:ident $($rest:ident)*], $ptx:literal, $order:ident: $what:literal;
    )*) => { $(
        #[doc = $what]
        /// Needs sm_90.
        ///
        /// # Safety
        /// The whole warp calls this together with valid row addresses; see the module.
        ///
        /// # PTX
        #[doc = concat!("`stmatrix.sync.aligned.m8n8.", $ptx, "`")]
        #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(row: u32, registers: $ty) {
            let $value = registers;
            // SAFETY: the caller vouches for the addresses and for the whole warp being here.
            unsafe {
                arms! {
                    ptx: {
                        asm!(
                            concat!("stmatrix.sync.aligned.m8n8.", $ptx,
                                " [{row}], {{{", stringify!($first), "}" $(, ", {", stringify!($rest), "}")*, "}};"),
                            row = in(reg32) row, $first = in(reg32) $first, $($rest = in(reg32) $rest,)*
                            options(nostack, preserves_flags)
                        )
                    }
                    sim: { executor::stmatrix(stringify!($name), row, [$first $(, $rest)*], Order::$order) }
                }
            }
        }
    )* };
}

stmatrix! {
    stmatrix_x1(u32 = a), [a], "x1.shared.b16", AsStored: "Stores one matrix.";
    stmatrix_x2([u32; 2] = [a, b]), [a b], "x2.shared.b16", AsStored: "Stores two matrices.";
    stmatrix_x4([u32; 4] = [a, b, c, d]), [a b c d], "x4.shared.b16", AsStored: "Stores four matrices.";
    stmatrix_x1_trans(u32 = a), [a], "x1.trans.shared.b16", Transposed: "Stores one matrix, transposed.";
    stmatrix_x2_trans([u32; 2] = [a, b]), [a b], "x2.trans.shared.b16", Transposed: "Stores two matrices, each transposed.";
    stmatrix_x4_trans([u32; 4] = [a, b, c, d]), [a b c d], "x4.trans.shared.b16", Transposed: "Stores four matrices, each transposed.";
}
