//! `fma`, `min`, `max`, and the approximations.

use core::arch::asm;

macro_rules! arithmetic {
    ($($(#[$gate:meta])* $class:ident $ty:ty: $name:ident($($arg:ident),+), $text:literal;)*) => { $(
        $(#[$gate])*
        #[inline(always)]
        pub fn $name($($arg: $ty),+) -> $ty {
            let result: $ty;
            // SAFETY: registers only.
            unsafe {
                asm!($text, out($class) result, $(in($class) $arg),+, options(pure, nomem, nostack, preserves_flags));
            }
            result
        }
    )* };
}

arithmetic! {
    reg32 f32: fma(a, b, c), "fma.rn.f32 {0}, {1}, {2}, {3};";
    reg64 f64: fma_f64(a, b, c), "fma.rn.f64 {0}, {1}, {2}, {3};";
    reg32 f32: min(a, b), "min.f32 {0}, {1}, {2};";
    reg32 f32: max(a, b), "max.f32 {0}, {1}, {2};";
    reg32 f32: min_nan(a, b), "min.NaN.f32 {0}, {1}, {2};";
    reg32 f32: max_nan(a, b), "max.NaN.f32 {0}, {1}, {2};";
    reg32 f32: ex2_approx(x), "ex2.approx.ftz.f32 {0}, {1};";
    reg32 f32: lg2_approx(x), "lg2.approx.ftz.f32 {0}, {1};";
    reg32 f32: rcp_approx(x), "rcp.approx.ftz.f32 {0}, {1};";
    reg32 f32: div_approx(a, b), "div.approx.ftz.f32 {0}, {1}, {2};";
    reg32 f32: rsqrt_approx(x), "rsqrt.approx.ftz.f32 {0}, {1};";
    reg32 f32: sqrt_approx(x), "sqrt.approx.ftz.f32 {0}, {1};";
    reg32 f32: sin_approx(x), "sin.approx.ftz.f32 {0}, {1};";
    reg32 f32: cos_approx(x), "cos.approx.ftz.f32 {0}, {1};";
    reg32 f32: tanh_approx(x), "tanh.approx.f32 {0}, {1};";

    reg32 u32: add_f16x2(a, b), "add.rn.f16x2 {0}, {1}, {2};";
    reg32 u32: sub_f16x2(a, b), "sub.rn.f16x2 {0}, {1}, {2};";
    reg32 u32: mul_f16x2(a, b), "mul.rn.f16x2 {0}, {1}, {2};";
    reg32 u32: fma_f16x2(a, b, c), "fma.rn.f16x2 {0}, {1}, {2}, {3};";
    reg32 u32: min_f16x2(a, b), "min.f16x2 {0}, {1}, {2};";
    reg32 u32: max_f16x2(a, b), "max.f16x2 {0}, {1}, {2};";
    reg32 u32: max_nan_f16x2(a, b), "max.NaN.f16x2 {0}, {1}, {2};";
    reg32 u32: ex2_approx_f16x2(x), "ex2.approx.f16x2 {0}, {1};";
    reg32 u32: tanh_approx_f16x2(x), "tanh.approx.f16x2 {0}, {1};";

    reg32 u32: fma_bf16x2(a, b, c), "fma.rn.bf16x2 {0}, {1}, {2}, {3};";
    reg32 u32: min_bf16x2(a, b), "min.bf16x2 {0}, {1}, {2};";
    reg32 u32: max_bf16x2(a, b), "max.bf16x2 {0}, {1}, {2};";
    reg32 u32: max_nan_bf16x2(a, b), "max.NaN.bf16x2 {0}, {1}, {2};";
}

#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
arithmetic! {
    reg32 u32: add_bf16x2(a, b), "add.rn.bf16x2 {0}, {1}, {2};";
    reg32 u32: sub_bf16x2(a, b), "sub.rn.bf16x2 {0}, {1}, {2};";
    reg32 u32: mul_bf16x2(a, b), "mul.rn.bf16x2 {0}, {1}, {2};";
    reg32 u32: ex2_approx_bf16x2(x), "ex2.approx.ftz.bf16x2 {0}, {1};";
    reg32 u32: tanh_approx_bf16x2(x), "tanh.approx.bf16x2 {0}, {1};";
}

/// Before sm_90 bf16 has `fma` alone; these give the same bits.
#[cfg(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89"))]
mod by_fma {
    use super::fma_bf16x2;

    const ONE: u32 = 0x3f80_3f80;
    const MINUS_ONE: u32 = 0xbf80_bf80;
    /// The neutral term of a sum: +0 would turn a product of -0 into +0.
    const MINUS_ZERO: u32 = 0x8000_8000;

    #[inline(always)]
    pub fn add_bf16x2(a: u32, b: u32) -> u32 {
        fma_bf16x2(a, ONE, b)
    }

    #[inline(always)]
    pub fn sub_bf16x2(a: u32, b: u32) -> u32 {
        fma_bf16x2(b, MINUS_ONE, a)
    }

    #[inline(always)]
    pub fn mul_bf16x2(a: u32, b: u32) -> u32 {
        fma_bf16x2(a, b, MINUS_ZERO)
    }
}
#[cfg(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89"))]
pub use by_fma::{add_bf16x2, mul_bf16x2, sub_bf16x2};
