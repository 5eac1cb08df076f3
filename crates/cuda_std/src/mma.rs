//! Warp-wide matrix multiply-accumulate on the tensor cores: `D = A * B + C`, `mma.sync` with row-major A and
//! column-major B.
//!
//! All 32 lanes of a warp call the same function together; each holds a part of every matrix in registers,
//! its *fragment*. With `g = lane / 4` and `t = lane % 4`:
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
//! A range is two 16-bit elements of one `u32` register, the first in the low half. tf32 registers hold an
//! `f32` whose low 13 bits the hardware does not read: round with
//! [`convert::tf32_from_f32`](crate::convert::tf32_from_f32) first.
//!
//! # Accuracy
//! Products are exact. The order and the width of the sum are the hardware's own; the executor adds the
//! products to `C` in f32 in the order of `k`, rounding to nearest each time (once more at the end where D is
//! f16). Results agree bit for bit where every partial sum is exact, else to about `k` roundings.
//!
//! # Safety
//! Every function here: all 32 lanes of the warp are live and reach the same call together. It is in the
//! middle of no branch that parts the warp.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

#[cfg(not(target_arch = "nvptx64"))]
mod executor;
#[cfg(not(target_arch = "nvptx64"))]
use executor::*;

/// One product, by the registers of A, B and of C and D. Not `pure`: a call that LLVM moved into a branch
/// would run with part of the warp.
#[cfg(target_arch = "nvptx64")]
macro_rules! product {
    ($op:literal, 4 2 4: $a:ident $b:ident $c:ident) => {{
        let [mut d0, mut d1, mut d2, mut d3] = $c;
        asm!(concat!("mma.sync.aligned.", $op,
                " {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};"),
            inout(reg32) d0, inout(reg32) d1, inout(reg32) d2, inout(reg32) d3,
            in(reg32) $a[0], in(reg32) $a[1], in(reg32) $a[2], in(reg32) $a[3], in(reg32) $b[0], in(reg32) $b[1],
            options(nomem, nostack, preserves_flags));
        [d0, d1, d2, d3]
    }};
    ($op:literal, 2 1 4: $a:ident $b:ident $c:ident) => {{
        let [mut d0, mut d1, mut d2, mut d3] = $c;
        asm!(concat!("mma.sync.aligned.", $op,
                " {{{0}, {1}, {2}, {3}}}, {{{4}, {5}}}, {{{6}}}, {{{0}, {1}, {2}, {3}}};"),
            inout(reg32) d0, inout(reg32) d1, inout(reg32) d2, inout(reg32) d3,
            in(reg32) $a[0], in(reg32) $a[1], in(reg32) $b, options(nomem, nostack, preserves_flags));
        [d0, d1, d2, d3]
    }};
    ($op:literal, 4 2 2: $a:ident $b:ident $c:ident) => {{
        let [mut d0, mut d1] = $c;
        asm!(concat!("mma.sync.aligned.", $op,
                " {{{0}, {1}}}, {{{2}, {3}, {4}, {5}}}, {{{6}, {7}}}, {{{0}, {1}}};"),
            inout(reg32) d0, inout(reg32) d1, in(reg32) $a[0], in(reg32) $a[1], in(reg32) $a[2], in(reg32) $a[3],
            in(reg32) $b[0], in(reg32) $b[1], options(nomem, nostack, preserves_flags));
        [d0, d1]
    }};
    ($op:literal, 2 1 2: $a:ident $b:ident $c:ident) => {{
        let [mut d0, mut d1] = $c;
        asm!(concat!("mma.sync.aligned.", $op, " {{{0}, {1}}}, {{{2}, {3}}}, {{{4}}}, {{{0}, {1}}};"),
            inout(reg32) d0, inout(reg32) d1, in(reg32) $a[0], in(reg32) $a[1], in(reg32) $b,
            options(nomem, nostack, preserves_flags));
        [d0, d1]
    }};
}

/// Name and fragments, registers of A, B and C, PTX, documentation, and the executor's product.
macro_rules! mma {
    ($(
        $name:ident($a:ident: $a_ty:ty, $b:ident: $b_ty:ty, $c:ident: $c_ty:ty), $na:tt $nb:tt $nc:tt,
        $ptx:literal: $what:literal, $executor:expr;
    )*) => { $(
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
        pub unsafe fn $name($a: $a_ty, $b: $b_ty, $c: $c_ty) -> $c_ty {
            arms! {
                // SAFETY: registers only; the caller vouches for the whole warp being here.
                ptx: { unsafe { product!($ptx, $na $nb $nc: $a $b $c) } }
                sim: { $executor }
            }
        }
    )* };
}

mma! {
    m16n8k16_f32_f16(a: [u32; 4], b: [u32; 2], c: [f32; 4]), 4 2 4, "m16n8k16.row.col.f32.f16.f16.f32":
        "16x8 += 16x16 * 16x8, f16 inputs, f32 sum.",
        packed_16("mma.m16n8k16.f32.f16", widen_f16, a, b, c);
    m16n8k16_f32_bf16(a: [u32; 4], b: [u32; 2], c: [f32; 4]), 4 2 4, "m16n8k16.row.col.f32.bf16.bf16.f32":
        "16x8 += 16x16 * 16x8, bf16 inputs, f32 sum.",
        packed_16("mma.m16n8k16.f32.bf16", widen_bf16, a, b, c);
    m16n8k16_f16_f16(a: [u32; 4], b: [u32; 2], c: [u32; 2]), 4 2 2, "m16n8k16.row.col.f16.f16.f16.f16":
        "16x8 += 16x16 * 16x8, f16 inputs, f16 sum.",
        pack_d(packed_16("mma.m16n8k16.f16.f16", widen_f16, a, b, unpack_c(c)));
    m16n8k8_f32_f16(a: [u32; 2], b: u32, c: [f32; 4]), 2 1 4, "m16n8k8.row.col.f32.f16.f16.f32":
        "16x8 += 16x8 * 8x8, f16 inputs, f32 sum.",
        packed_8("mma.m16n8k8.f32.f16", widen_f16, a, b, c);
    m16n8k8_f32_bf16(a: [u32; 2], b: u32, c: [f32; 4]), 2 1 4, "m16n8k8.row.col.f32.bf16.bf16.f32":
        "16x8 += 16x8 * 8x8, bf16 inputs, f32 sum.",
        packed_8("mma.m16n8k8.f32.bf16", widen_bf16, a, b, c);
    m16n8k8_f16_f16(a: [u32; 2], b: u32, c: [u32; 2]), 2 1 2, "m16n8k8.row.col.f16.f16.f16.f16":
        "16x8 += 16x8 * 8x8, f16 inputs, f16 sum.",
        pack_d(packed_8("mma.m16n8k8.f16.f16", widen_f16, a, b, unpack_c(c)));
    m16n8k8_f32_tf32(a: [u32; 4], b: [u32; 2], c: [f32; 4]), 4 2 4, "m16n8k8.row.col.f32.tf32.tf32.f32":
        "16x8 += 16x8 * 8x8, tf32 inputs, f32 sum.",
        single_8("mma.m16n8k8.f32.tf32", a, b, c);
    m16n8k4_f32_tf32(a: [u32; 2], b: u32, c: [f32; 4]), 2 1 4, "m16n8k4.row.col.f32.tf32.tf32.f32":
        "16x8 += 16x4 * 4x8, tf32 inputs, f32 sum.",
        single_4("mma.m16n8k4.f32.tf32", a, b, c);
}
