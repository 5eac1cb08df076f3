//! `mma.sync`.
//!
//! The instructions are not `pure`: a call that LLVM moved into a branch would run with part of the warp.

use core::arch::asm;

macro_rules! mma_f32_a4_b2 {
    ($($name:ident, $op:literal;)*) => { $(
        #[inline(always)]
        pub unsafe fn $name(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
            let [mut d0, mut d1, mut d2, mut d3] = c;
            // SAFETY: registers only; the caller vouches for the whole warp being here.
            unsafe {
                asm!(concat!("mma.sync.aligned.", $op,
                        " {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};"),
                    inout(reg32) d0, inout(reg32) d1, inout(reg32) d2, inout(reg32) d3,
                    in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[0], in(reg32) b[1],
                    options(nomem, nostack, preserves_flags));
            }
            [d0, d1, d2, d3]
        }
    )* };
}

mma_f32_a4_b2! {
    m16n8k16_f32_f16, "m16n8k16.row.col.f32.f16.f16.f32";
    m16n8k16_f32_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32";
    m16n8k8_f32_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32";
}

macro_rules! mma_f32_a2_b1 {
    ($($name:ident, $op:literal;)*) => { $(
        #[inline(always)]
        pub unsafe fn $name(a: [u32; 2], b: u32, c: [f32; 4]) -> [f32; 4] {
            let [mut d0, mut d1, mut d2, mut d3] = c;
            // SAFETY: registers only; the caller vouches for the whole warp being here.
            unsafe {
                asm!(concat!("mma.sync.aligned.", $op,
                        " {{{0}, {1}, {2}, {3}}}, {{{4}, {5}}}, {{{6}}}, {{{0}, {1}, {2}, {3}}};"),
                    inout(reg32) d0, inout(reg32) d1, inout(reg32) d2, inout(reg32) d3,
                    in(reg32) a[0], in(reg32) a[1], in(reg32) b, options(nomem, nostack, preserves_flags));
            }
            [d0, d1, d2, d3]
        }
    )* };
}

mma_f32_a2_b1! {
    m16n8k8_f32_f16, "m16n8k8.row.col.f32.f16.f16.f32";
    m16n8k8_f32_bf16, "m16n8k8.row.col.f32.bf16.bf16.f32";
    m16n8k4_f32_tf32, "m16n8k4.row.col.f32.tf32.tf32.f32";
}

#[inline(always)]
pub unsafe fn m16n8k16_f16_f16(a: [u32; 4], b: [u32; 2], c: [u32; 2]) -> [u32; 2] {
    let [mut d0, mut d1] = c;
    // SAFETY: registers only; the caller vouches for the whole warp being here.
    unsafe {
        asm!("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {{{0}, {1}}}, {{{2}, {3}, {4}, {5}}}, {{{6}, {7}}}, {{{0}, {1}}};",
            inout(reg32) d0, inout(reg32) d1, in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3],
            in(reg32) b[0], in(reg32) b[1], options(nomem, nostack, preserves_flags));
    }
    [d0, d1]
}

#[inline(always)]
pub unsafe fn m16n8k8_f16_f16(a: [u32; 2], b: u32, c: [u32; 2]) -> [u32; 2] {
    let [mut d0, mut d1] = c;
    // SAFETY: registers only; the caller vouches for the whole warp being here.
    unsafe {
        asm!("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {{{0}, {1}}}, {{{2}, {3}}}, {{{4}}}, {{{0}, {1}}};",
            inout(reg32) d0, inout(reg32) d1, in(reg32) a[0], in(reg32) a[1], in(reg32) b,
            options(nomem, nostack, preserves_flags));
    }
    [d0, d1]
}
