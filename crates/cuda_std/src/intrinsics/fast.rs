//! Functions of f32 by the special function unit.

use core::f32::consts::{LN_2, LOG2_10, LOG2_E, LOG10_2};

use super::put;
use crate::fastmath::{cos_approx, div_approx, ex2_approx, lg2_approx, sin_approx};

functions! { "Always safe to call; `unsafe` as in Rust-CUDA."
    fast_cosf(x: f32) -> f32, "Error: that of [`cos_approx`].", "Cosine of radians.", cos_approx(x);
    fast_exp10f(x: f32) -> f32, "Error: 2 ulp and `3 * |x|` more.", "10 to the power of `x`.", ex2_approx(x * LOG2_10);
    fast_expf(x: f32) -> f32, "Error: 2 ulp and `2 * |x|` more.", "e to the power of `x`.", ex2_approx(x * LOG2_E);
    fast_fdividef(x: f32, y: f32) -> f32, "Error: that of [`div_approx`].", "`x / y`.", div_approx(x, y);
    fast_log10f(x: f32) -> f32, "Error: 2^-22, absolute for `x` from 0.5 to 2, else relative; and 2 ulp.",
        "Logarithm to base 10.", lg2_approx(x) * LOG10_2;
    fast_log2f(x: f32) -> f32, "Error: that of [`lg2_approx`].", "Logarithm to base 2.", lg2_approx(x);
    fast_logf(x: f32) -> f32, "Error: 2^-22, absolute for `x` from 0.5 to 2, else relative; and 2 ulp.",
        "Natural logarithm.", lg2_approx(x) * LN_2;
    fast_powf(x: f32, y: f32) -> f32,
        "Error: 2 ulp, and `3 * |y * log2(x)|` more; near `x == 1` the absolute error of the logarithm counts `y` times.",
        "`x` to the power of `y`; NaN for negative `x`.", ex2_approx(y * lg2_approx(x));
    fast_sinf(x: f32) -> f32, "Error: that of [`sin_approx`].", "Sine of radians.", sin_approx(x);
    fast_tanf(x: f32) -> f32, "Error: those of [`sin_approx`] and [`cos_approx`], the latter divided by it.",
        "Tangent of radians.", div_approx(sin_approx(x), cos_approx(x));
}

functions! { "Both pointers are valid for writes."
    fast_sincosf(x: f32, sptr: *mut f32, cptr: *mut f32) -> (), "Error: those of [`sin_approx`] and [`cos_approx`].",
        "Sine and cosine of radians.",
        // SAFETY: the caller's promise.
        unsafe {
            put(sptr, sin_approx(x));
            put(cptr, cos_approx(x));
        };
}
