//! Warp-wide matrix multiply-accumulate on the tensor cores: `D = A * B + C`, `mma.sync` with row-major A and
//! column-major B.
//!
//! All 32 lanes of a warp call the same function together; each holds a part of every matrix in registers, its
//! *fragment*. With `g = lane / 4` and `t = lane % 4`:
//!
//! ```text
//! A, 16-bit, m16n8k16: [ (g, 2t..2t+2), (g+8, 2t..2t+2), (g, 2t+8..2t+10), (g+8, 2t+8..2t+10) ]   (row, k)
//! B, 16-bit, m16n8k16: [ (2t..2t+2, g), (2t+8..2t+10, g) ]                                        (k, column)
//! A, 16-bit, m16n8k8 : [ (g, 2t..2t+2), (g+8, 2t..2t+2) ]
//! B, 16-bit, m16n8k8 :   (2t..2t+2, g)
//! A, tf32,   m16n8k8 : [ (g, t), (g+8, t), (g, t+4), (g+8, t+4) ]
//! B, tf32,   m16n8k8 : [ (t, g), (t+4, g) ]
//! A, tf32,   m16n8k4 : [ (g, t), (g+8, t) ]
//! B, tf32,   m16n8k4 :   (t, g)
//! C and D, f32       : [ (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1) ]                              (row, column)
//! C and D, f16       : [ (g, 2t..2t+2), (g+8, 2t..2t+2) ]
//! ```
//!
//! A range is two 16-bit elements of one `u32` register, the first in the low half. tf32 registers hold an `f32`
//! whose low 13 bits the hardware does not read: round with [`convert::tf32_from_f32`](crate::convert::tf32_from_f32) first.
//!
//! # Accuracy
//! Products are exact. The order and the width of the sum are the hardware's own; the executor adds the products to
//! `C` in f32 in the order of `k`, rounding to nearest each time (once more at the end where D is f16). Results agree
//! bit for bit where every partial sum is exact, else to about `k` roundings.
//!
//! # Safety
//! Every function here: all 32 lanes of the warp are live and reach the same call together. It is in the middle of no
//! branch that parts the warp.

use crate::arch::mma as arch;

macro_rules! mma {
    ($($name:ident($a:ty, $b:ty, $c:ty), $ptx:literal: $what:literal;)*) => { $(
        #[doc = $what]
        ///
        /// # Safety
        /// The whole warp calls this together; see the module.
        ///
        /// # PTX
        #[doc = concat!("`mma.sync.aligned.", $ptx, "`")]
        #[inline(always)]
        #[track_caller]
        #[must_use]
        pub unsafe fn $name(a: $a, b: $b, c: $c) -> $c {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { arch::$name(a, b, c) }
        }
    )* };
}

mma! {
    m16n8k16_f32_f16([u32; 4], [u32; 2], [f32; 4]), "m16n8k16.row.col.f32.f16.f16.f32":
        "16x8 += 16x16 * 16x8, f16 inputs, f32 sum.";
    m16n8k16_f32_bf16([u32; 4], [u32; 2], [f32; 4]), "m16n8k16.row.col.f32.bf16.bf16.f32":
        "16x8 += 16x16 * 16x8, bf16 inputs, f32 sum.";
    m16n8k16_f16_f16([u32; 4], [u32; 2], [u32; 2]), "m16n8k16.row.col.f16.f16.f16.f16":
        "16x8 += 16x16 * 16x8, f16 inputs, f16 sum.";
    m16n8k8_f32_f16([u32; 2], u32, [f32; 4]), "m16n8k8.row.col.f32.f16.f16.f32":
        "16x8 += 16x8 * 8x8, f16 inputs, f32 sum.";
    m16n8k8_f32_bf16([u32; 2], u32, [f32; 4]), "m16n8k8.row.col.f32.bf16.bf16.f32":
        "16x8 += 16x8 * 8x8, bf16 inputs, f32 sum.";
    m16n8k8_f16_f16([u32; 2], u32, [u32; 2]), "m16n8k8.row.col.f16.f16.f16.f16":
        "16x8 += 16x8 * 8x8, f16 inputs, f16 sum.";
    m16n8k8_f32_tf32([u32; 4], [u32; 2], [f32; 4]), "m16n8k8.row.col.f32.tf32.tf32.f32":
        "16x8 += 16x8 * 8x8, tf32 inputs, f32 sum.";
    m16n8k4_f32_tf32([u32; 2], u32, [f32; 4]), "m16n8k4.row.col.f32.tf32.tf32.f32":
        "16x8 += 16x4 * 4x8, tf32 inputs, f32 sum.";
}
