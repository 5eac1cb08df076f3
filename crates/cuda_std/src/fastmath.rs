//! Arithmetic in one instruction: fused multiply-add, the approximations of the special function unit, packed
//! half-precision arithmetic.
//!
//! Plain `a * b + c` stays two instructions and `f32::exp` is a library; these are what kernels use instead.
//!
//! The f32 `_approx` functions treat subnormal inputs as zero and give zero for subnormal results, with the sign kept
//! (all but [`tanh_approx`]). Largest errors on the hardware, by the PTX ISA:
//!
//! | function | error |
//! |---|---|
//! | `ex2_approx` | 2 ulp |
//! | `lg2_approx` | 2^-22: absolute for x in (0.5, 2), else relative |
//! | `rcp_approx` | 1 ulp |
//! | `div_approx` | 2 ulp for divisors of 2^-126 to 2^126 |
//! | `rsqrt_approx` | 2^-22.9 relative |
//! | `sqrt_approx` | 2^-23 relative |
//! | `sin_approx`, `cos_approx` | 2^-20.5 absolute for x in [-2 pi, 2 pi], 2^-14.7 in [-100 pi, 100 pi] |
//! | `tanh_approx` | 2^-11 relative |
//! | `ex2_approx_f16x2`, `ex2_approx_bf16x2` | 2^-9.9, 2^-7 relative |
//! | `tanh_approx_f16x2`, `tanh_approx_bf16x2` | 2^-10.987, 2^-8 absolute; the latter from the nearest bf16 |
//!
//! The executor computes them in full precision and rounds once, so a test that passes only there needs the row above
//! as its tolerance.
//!
//! A packed register is two f16 or two bf16 in a `u32`, element 0 in the low half; see
//! [`num::pack_x2`].

use crate::arch::fastmath as arch;

macro_rules! arithmetic {
    ($($(#[$gate:meta])* $name:ident($($arg:ident),+: $ty:ty), $ptx:literal: $what:literal;)*) => { $(
        $(#[$gate])*
        #[doc = $what]
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[must_use]
        pub fn $name($($arg: $ty),+) -> $ty {
            arch::$name($($arg),+)
        }
    )* };
}

arithmetic! {
    fma(a, b, c: f32), "fma.rn.f32": "`a * b + c`, rounded once.";
    fma_f64(a, b, c: f64), "fma.rn.f64": "`a * b + c`, rounded once.";
    min(a, b: f32), "min.f32": "The smaller; a NaN gives way to a number. -0 is below +0.";
    max(a, b: f32), "max.f32": "The larger; a NaN gives way to a number. -0 is below +0.";
    min_nan(a, b: f32), "min.NaN.f32": "The smaller; NaN if either is NaN.";
    max_nan(a, b: f32), "max.NaN.f32": "The larger; NaN if either is NaN.";
    ex2_approx(x: f32), "ex2.approx.ftz.f32": "`2^x`.";
    lg2_approx(x: f32), "lg2.approx.ftz.f32": "Logarithm to base 2; -infinity for zero, NaN for negative numbers.";
    rcp_approx(x: f32), "rcp.approx.ftz.f32": "`1 / x`.";
    div_approx(a, b: f32), "div.approx.ftz.f32":
        "`a / b`. For finite `b` above 2^126 in magnitude the result is 0 (NaN for infinite `a`).";
    rsqrt_approx(x: f32), "rsqrt.approx.ftz.f32": "`1 / sqrt(x)`; NaN for negative numbers.";
    sqrt_approx(x: f32), "sqrt.approx.ftz.f32": "Square root; NaN for negative numbers.";
    sin_approx(x: f32), "sin.approx.ftz.f32": "Sine of `x` radians.";
    cos_approx(x: f32), "cos.approx.ftz.f32": "Cosine of `x` radians.";
    tanh_approx(x: f32), "tanh.approx.f32": "Hyperbolic tangent.";

    add_f16x2(a, b: u32), "add.rn.f16x2": "`a + b`, two f16.";
    sub_f16x2(a, b: u32), "sub.rn.f16x2": "`a - b`, two f16.";
    mul_f16x2(a, b: u32), "mul.rn.f16x2": "`a * b`, two f16.";
    fma_f16x2(a, b, c: u32), "fma.rn.f16x2": "`a * b + c`, rounded once, two f16.";
    min_f16x2(a, b: u32), "min.f16x2": "The smaller of two f16, twice; a NaN gives way to a number.";
    max_f16x2(a, b: u32), "max.f16x2": "The larger of two f16, twice; a NaN gives way to a number.";
    max_nan_f16x2(a, b: u32), "max.NaN.f16x2": "The larger of two f16, twice; NaN if either is NaN.";
    ex2_approx_f16x2(x: u32), "ex2.approx.f16x2": "`2^x`, two f16. Subnormal numbers are kept.";
    tanh_approx_f16x2(x: u32), "tanh.approx.f16x2": "Hyperbolic tangent, two f16. Subnormal numbers are kept.";

    add_bf16x2(a, b: u32), "add.rn.bf16x2, before sm_90 fma.rn.bf16x2 with a factor of 1": "`a + b`, two bf16.";
    sub_bf16x2(a, b: u32), "sub.rn.bf16x2, before sm_90 fma.rn.bf16x2 with a factor of -1": "`a - b`, two bf16.";
    mul_bf16x2(a, b: u32), "mul.rn.bf16x2, before sm_90 fma.rn.bf16x2 with a term of -0": "`a * b`, two bf16.";
    fma_bf16x2(a, b, c: u32), "fma.rn.bf16x2": "`a * b + c`, rounded once, two bf16.";
    min_bf16x2(a, b: u32), "min.bf16x2": "The smaller of two bf16, twice; a NaN gives way to a number.";
    max_bf16x2(a, b: u32), "max.bf16x2": "The larger of two bf16, twice; a NaN gives way to a number.";
    max_nan_bf16x2(a, b: u32), "max.NaN.bf16x2": "The larger of two bf16, twice; NaN if either is NaN.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
    ex2_approx_bf16x2(x: u32), "ex2.approx.ftz.bf16x2": "`2^x`, two bf16. Needs sm_90.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
    tanh_approx_bf16x2(x: u32), "tanh.approx.bf16x2":
        "Hyperbolic tangent, two bf16. Subnormal numbers are kept. Needs sm_90.";
}
