//! Functions of both widths that write a result through a pointer.

use super::{put, single_libm};
use crate::float::GpuFloat;
use crate::float_ext::FloatExt;

both_widths! { "The pointers are valid for writes."
    frexp(x: F, b: *mut i32) -> F, "",
        "Fraction from 0.5 to 1 (0 for 0); its exponent goes to `b`: `x == fraction * 2^exponent`.",
        {
            let (fraction, exponent) = FloatExt::frexp(x);
            // SAFETY: the caller's promise.
            unsafe { put(b, exponent) };
            fraction
        };
    modf(x: F, b: *mut F) -> F, "", "Part behind the point; the integer part goes to `b`. Both have the sign of `x`.",
        {
            let (fraction, integer) = m::modf(x);
            // SAFETY: the caller's promise.
            unsafe { put(b, integer) };
            fraction
        };
    remquo(x: F, y: F, c: *mut i32) -> F, "",
        "As `remainder`; the low bits of the integer `n`, at least three, go to `c` with its sign.",
        {
            let (remainder, quotient) = m::remquo(x, y);
            // SAFETY: the caller's promise.
            unsafe { put(c, quotient) };
            remainder
        };
    sincos(x: F, sptr: *mut F, cptr: *mut F) -> (), "Error: 1 ulp.", "Sine and cosine of radians.",
        // SAFETY: the caller's promise.
        unsafe {
            put(sptr, GpuFloat::sin(x));
            put(cptr, GpuFloat::cos(x));
        };
    sincospi(x: F, sptr: *mut F, cptr: *mut F) -> (), "Error: 2 ulp.", "Sine and cosine of `x * pi`.",
        // SAFETY: the caller's promise.
        unsafe {
            put(sptr, FloatExt::sinpi(x));
            put(cptr, FloatExt::cospi(x));
        };
}
