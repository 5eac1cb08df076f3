//! Arithmetic in one instruction: fused multiply-add, the approximations of the special function unit, packed
//! half-precision arithmetic.
//!
//! Plain `a * b + c` stays two instructions and `f32::exp` is a library; these are what kernels use instead.
//!
//! The f32 `_approx` functions treat subnormal inputs as zero and give zero for subnormal results, with the
//! sign kept (all but [`tanh_approx`]). Largest errors on the hardware, by the PTX ISA:
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
//! The executor computes them in full precision and rounds once, so a test that passes only there needs the
//! row above as its tolerance.
//!
//! A packed register is two f16 or two bf16 in a `u32`, element 0 in the low half; see [`num::pack_x2`].

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

#[cfg(not(all(target_arch = "nvptx64", target_feature = "compute_80")))]
use crate::convert;
#[cfg(not(target_arch = "nvptx64"))]
use half::{bf16, f16};

/// The NaN that arithmetic gives.
#[cfg(not(all(target_arch = "nvptx64", target_feature = "compute_80")))]
const CANONICAL_NAN: f32 = f32::from_bits(0x7fff_ffff);

#[cfg(not(target_arch = "nvptx64"))]
mod executor;
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use executor::flush;
#[cfg(not(target_arch = "nvptx64"))]
use executor::*;

/// The text of an instruction's operands.
#[cfg(target_arch = "nvptx64")]
macro_rules! operands {
    ($a:ident) => {
        " {0}, {1};"
    };
    ($a:ident, $b:ident) => {
        " {0}, {1}, {2};"
    };
    ($a:ident, $b:ident, $c:ident) => {
        " {0}, {1}, {2}, {3};"
    };
}

/// The architectures that have the instruction; then for each its name, arguments and type, class of the
/// registers, PTX, documentation, and the executor's value, which is that of other architectures too.
macro_rules! arithmetic {
    ($native:meta; $(
        $(#[$gate:meta])*
        $name:ident($($arg:ident),+: $ty:ty), $class:ident $ptx:literal: $what:literal,
        $executor:expr;
    )*) => { $(
        $(#[$gate])*
        #[doc = $what]
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[must_use]
        pub fn $name($($arg: $ty),+) -> $ty {
            arms! {
                ptx: {
                    #[cfg($native)]
                    {
                        let result: $ty;
                        // SAFETY: registers only.
                        unsafe {
                            asm!(concat!($ptx, operands!($($arg),+)), out($class) result, $(in($class) $arg),+,
                                options(pure, nomem, nostack, preserves_flags));
                        }
                        result
                    }
                    #[cfg(not($native))]
                    {
                        $executor
                    }
                }
                sim: { $executor }
            }
        }
    )* };
}

arithmetic! {
    target_arch = "nvptx64";

    fma(a, b, c: f32), reg32 "fma.rn.f32":
        "`a * b + c`, rounded once.",
        a.mul_add(b, c);
    fma_f64(a, b, c: f64), reg64 "fma.rn.f64":
        "`a * b + c`, rounded once.",
        a.mul_add(b, c);
    min(a, b: f32), reg32 "min.f32":
        "The smaller; a NaN gives way to a number. -0 is below +0.",
        {
            // `f32::min` leaves the order of the zeros open.
            if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { a.min(b) }
        };
    max(a, b: f32), reg32 "max.f32":
        "The larger; a NaN gives way to a number. -0 is below +0.",
        if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { a.max(b) };
    ex2_approx(x: f32), reg32 "ex2.approx.ftz.f32":
        "`2^x`.",
        approximate(x, f64::exp2);
    lg2_approx(x: f32), reg32 "lg2.approx.ftz.f32":
        "Logarithm to base 2; -infinity for zero, NaN for negative numbers.",
        approximate(x, f64::log2);
    rcp_approx(x: f32), reg32 "rcp.approx.ftz.f32":
        "`1 / x`.",
        approximate(x, f64::recip);
    div_approx(a, b: f32), reg32 "div.approx.ftz.f32":
        "`a / b`. For finite `b` above 2^126 in magnitude the result is 0 (NaN for infinite `a`).",
        divide(a, b);
    rsqrt_approx(x: f32), reg32 "rsqrt.approx.ftz.f32":
        "`1 / sqrt(x)`; NaN for negative numbers.",
        approximate(x, |x| x.sqrt().recip());
    sqrt_approx(x: f32), reg32 "sqrt.approx.ftz.f32":
        "Square root; NaN for negative numbers.",
        approximate(x, f64::sqrt);
    sin_approx(x: f32), reg32 "sin.approx.ftz.f32":
        "Sine of `x` radians.",
        approximate(x, f64::sin);
    cos_approx(x: f32), reg32 "cos.approx.ftz.f32":
        "Cosine of `x` radians.",
        approximate(x, f64::cos);
    tanh_approx(x: f32), reg32 "tanh.approx.f32":
        "Hyperbolic tangent.",
        f64::from(x).tanh() as f32;

    add_f16x2(a, b: u32), reg32 "add.rn.f16x2":
        "`a + b`, two f16.",
        map3::<f16>(a, b, b, |a, b, _| fma_to_odd(a, 1.0, b));
    sub_f16x2(a, b: u32), reg32 "sub.rn.f16x2":
        "`a - b`, two f16.",
        map3::<f16>(a, b, b, |a, b, _| fma_to_odd(b, -1.0, a));
    mul_f16x2(a, b: u32), reg32 "mul.rn.f16x2":
        "`a * b`, two f16.",
        map3::<f16>(a, b, b, |a, b, _| fma_to_odd(a, b, -0.0));
    fma_f16x2(a, b, c: u32), reg32 "fma.rn.f16x2":
        "`a * b + c`, rounded once, two f16.",
        map3::<f16>(a, b, c, fma_to_odd);
    ex2_approx_f16x2(x: u32), reg32 "ex2.approx.f16x2":
        "`2^x`, two f16. Subnormal numbers are kept.",
        map1::<f16>(x, f32::exp2);
    tanh_approx_f16x2(x: u32), reg32 "tanh.approx.f16x2":
        "Hyperbolic tangent, two f16. Subnormal numbers are kept.",
        map1::<f16>(x, f32::tanh);

    fma_bf16x2(a, b, c: u32), reg32 "fma.rn.bf16x2":
        "`a * b + c`, rounded once, two bf16.",
        map3::<bf16>(a, b, c, fma_to_odd);
    min_bf16x2(a, b: u32), reg32 "min.bf16x2":
        "The smaller of two bf16, twice; a NaN gives way to a number.",
        map3::<bf16>(a, b, b, |a, b, _| min(a, b));
    max_bf16x2(a, b: u32), reg32 "max.bf16x2":
        "The larger of two bf16, twice; a NaN gives way to a number.",
        map3::<bf16>(a, b, b, |a, b, _| max(a, b));
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
    ex2_approx_bf16x2(x: u32), reg32 "ex2.approx.ftz.bf16x2":
        "`2^x`, two bf16. Needs sm_90.",
        {
            // bf16 has f32's exponents, so flushing the f32 flushes the bf16.
            map1::<bf16>(x, ex2_approx)
        };
    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
    tanh_approx_bf16x2(x: u32), reg32 "tanh.approx.bf16x2":
        "Hyperbolic tangent, two bf16. Subnormal numbers are kept. Needs sm_90.",
        map1::<bf16>(x, f32::tanh);
}

arithmetic! {
    target_feature = "compute_80";

    min_nan(a, b: f32), reg32 "min.NaN.f32":
        "The smaller; NaN if either is NaN.",
        if a.is_nan() || b.is_nan() { CANONICAL_NAN } else { min(a, b) };
    max_nan(a, b: f32), reg32 "max.NaN.f32":
        "The larger; NaN if either is NaN.",
        if a.is_nan() || b.is_nan() { CANONICAL_NAN } else { max(a, b) };
    min_f16x2(a, b: u32), reg32 "min.f16x2":
        "The smaller of two f16, twice; a NaN gives way to a number.",
        {
            let ([a, c], [b, d]) = (convert::f16x2_to_f32(a), convert::f16x2_to_f32(b));
            convert::f16x2_from_f32(min(a, b), min(c, d))
        };
    max_f16x2(a, b: u32), reg32 "max.f16x2":
        "The larger of two f16, twice; a NaN gives way to a number.",
        {
            let ([a, c], [b, d]) = (convert::f16x2_to_f32(a), convert::f16x2_to_f32(b));
            convert::f16x2_from_f32(max(a, b), max(c, d))
        };
    max_nan_f16x2(a, b: u32), reg32 "max.NaN.f16x2":
        "The larger of two f16, twice; NaN if either is NaN.",
        {
            let ([a, c], [b, d]) = (convert::f16x2_to_f32(a), convert::f16x2_to_f32(b));
            convert::f16x2_from_f32(max_nan(a, b), max_nan(c, d))
        };
    max_nan_bf16x2(a, b: u32), reg32 "max.NaN.bf16x2":
        "The larger of two bf16, twice; NaN if either is NaN.",
        {
            let ([a, c], [b, d]) = (convert::bf16x2_to_f32(a), convert::bf16x2_to_f32(b));
            convert::bf16x2_from_f32(max_nan(a, b), max_nan(c, d))
        };
}

/// `c - a * b`, rounded once: one instruction, where a product that the compiler negates is two.
///
/// # PTX
/// `neg.f32`, `fma.rn.f32`
#[inline(always)]
#[must_use]
pub fn fma_negated(a: f32, b: f32, c: f32) -> f32 {
    arms! {
        ptx: {
            let result: f32;
            // SAFETY: registers only.
            unsafe {
                asm!("{{ .reg .f32 negated;", "neg.f32 negated, {a};",
                    "fma.rn.f32 {result}, negated, {b}, {c}; }}",
                    a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, result = out(reg32) result,
                    options(pure, nomem, nostack, preserves_flags));
            }
            result
        }
        sim: { (-a).mul_add(b, c) }
    }
}

/// Before sm_90 bf16 has `fma` alone, which gives the same bits.
macro_rules! by_fma {
    ($(
        $name:ident($a:ident, $b:ident), $ptx:literal, $how:literal, $fma:expr, $what:literal,
        $executor:expr;
    )*) => { $(
        #[doc = $what]
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, ", before sm_90 fma.rn.bf16x2 with ", $how, "`")]
        #[inline(always)]
        #[must_use]
        pub fn $name($a: u32, $b: u32) -> u32 {
            arms! {
                ptx: {
                    #[cfg(not(any(not(target_arch = "nvptx64"), target_feature = "compute_90")))]
                    {
                        $fma
                    }
                    #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
                    {
                        let result: u32;
                        // SAFETY: registers only.
                        unsafe {
                            asm!(concat!($ptx, operands!($a, $b)), out(reg32) result, in(reg32) $a, in(reg32) $b,
                                options(pure, nomem, nostack, preserves_flags));
                        }
                        result
                    }
                }
                sim: { $executor }
            }
        }
    )* };
}

by_fma! {
    add_bf16x2(a, b), "add.rn.bf16x2", "a factor of 1", fma_bf16x2(a, 0x3f80_3f80, b), "`a + b`, two bf16.",
        map3::<bf16>(a, b, b, |a, b, _| fma_to_odd(a, 1.0, b));
    sub_bf16x2(a, b), "sub.rn.bf16x2", "a factor of -1", fma_bf16x2(b, 0xbf80_bf80, a), "`a - b`, two bf16.",
        map3::<bf16>(a, b, b, |a, b, _| fma_to_odd(b, -1.0, a));
    // The neutral term of a sum: +0 would turn a product of -0 into +0.
    mul_bf16x2(a, b), "mul.rn.bf16x2", "a term of -0", fma_bf16x2(a, b, 0x8000_8000), "`a * b`, two bf16.",
        map3::<bf16>(a, b, b, |a, b, _| fma_to_odd(a, b, -0.0));
}
