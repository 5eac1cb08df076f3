//! Single-instruction arithmetic.

use cuda_std::{fastmath, kernel};

use crate::rows::Rows;

/// Rows: fma, min, max, min with NaN, max with NaN, quotient.
///
/// # Safety
/// As many elements in `b` and `c` as in `a`; `out` has seven rows.
#[kernel]
pub unsafe fn fastmath_arithmetic(a: &[f32], b: *const f32, c: *const f32, out: *mut f32) {
    let rows = Rows::new(out, a.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let (a, b, c) = (*a.get_unchecked(i), *b.add(i), *c.add(i));
        rows.set(0, fastmath::fma(a, b, c));
        rows.set(1, fastmath::min(a, b));
        rows.set(2, fastmath::max(a, b));
        rows.set(3, fastmath::min_nan(a, b));
        rows.set(4, fastmath::max_nan(a, b));
        rows.set(5, fastmath::div_approx(a, b));
    }
}

/// Fused multiply-add in f64.
///
/// # Safety
/// As many elements in `b`, `c` and `out` as in `a`.
#[kernel]
pub unsafe fn fastmath_fma_f64(a: &[f64], b: *const f64, c: *const f64, out: *mut f64) {
    let rows = Rows::new(out, a.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe { rows.set(0, fastmath::fma_f64(*a.get_unchecked(i), *b.add(i), *c.add(i))) }
}

/// Rows: 2^x, log2, reciprocal, reciprocal square root, square root, sine, cosine, hyperbolic tangent.
///
/// # Safety
/// `out` has nine rows.
#[kernel]
pub unsafe fn fastmath_approximations(x: &[f32], out: *mut f32) {
    let rows = Rows::new(out, x.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let x = *x.get_unchecked(i);
        rows.set(0, fastmath::ex2_approx(x));
        rows.set(1, fastmath::lg2_approx(x));
        rows.set(2, fastmath::rcp_approx(x));
        rows.set(3, fastmath::rsqrt_approx(x));
        rows.set(4, fastmath::sqrt_approx(x));
        rows.set(5, fastmath::sin_approx(x));
        rows.set(6, fastmath::cos_approx(x));
        rows.set(7, fastmath::tanh_approx(x));
    }
}

/// Packed f16. Rows: sum, difference, product, fma, min, max, max with NaN, 2^a, hyperbolic tangent of a.
///
/// # Safety
/// As many elements in `b` and `c` as in `a`; `out` has eight rows.
#[kernel]
pub unsafe fn fastmath_f16x2(a: &[u32], b: *const u32, c: *const u32, out: *mut u32) {
    let rows = Rows::new(out, a.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let (a, b, c) = (*a.get_unchecked(i), *b.add(i), *c.add(i));
        rows.set(0, fastmath::add_f16x2(a, b));
        rows.set(1, fastmath::sub_f16x2(a, b));
        rows.set(2, fastmath::mul_f16x2(a, b));
        rows.set(3, fastmath::fma_f16x2(a, b, c));
        rows.set(4, fastmath::min_f16x2(a, b));
        rows.set(5, fastmath::max_f16x2(a, b));
        rows.set(6, fastmath::max_nan_f16x2(a, b));
        rows.set(7, fastmath::ex2_approx_f16x2(a));
        rows.set(8, fastmath::tanh_approx_f16x2(a));
    }
}

/// Packed bf16. Rows: sum, difference, product, fma, min, max, max with NaN.
///
/// # Safety
/// As many elements in `b` and `c` as in `a`; `out` has six rows.
#[kernel]
pub unsafe fn fastmath_bf16x2(a: &[u32], b: *const u32, c: *const u32, out: *mut u32) {
    let rows = Rows::new(out, a.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let (a, b, c) = (*a.get_unchecked(i), *b.add(i), *c.add(i));
        rows.set(0, fastmath::add_bf16x2(a, b));
        rows.set(1, fastmath::sub_bf16x2(a, b));
        rows.set(2, fastmath::mul_bf16x2(a, b));
        rows.set(3, fastmath::fma_bf16x2(a, b, c));
        rows.set(4, fastmath::min_bf16x2(a, b));
        rows.set(5, fastmath::max_bf16x2(a, b));
        rows.set(6, fastmath::max_nan_bf16x2(a, b));
    }
}

/// Packed bf16. Rows: 2^x, hyperbolic tangent.
///
/// # Safety
/// `out` has two rows.
#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
#[kernel]
pub unsafe fn fastmath_approximations_bf16x2(x: &[u32], out: *mut u32) {
    let rows = Rows::new(out, x.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let x = *x.get_unchecked(i);
        rows.set(0, fastmath::ex2_approx_bf16x2(x));
        rows.set(1, fastmath::tanh_approx_bf16x2(x));
    }
}
