//! Activations in as few instructions as an epilogue can spare: a matrix product's own error is larger.

use super::{CUBIC, Precision, TWICE_ROOT};
use crate::math::single::{ERFC, gated, horner};
use core::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};
use cuda_std::fastmath::{div_approx, ex2_approx, fma, lg2_approx, max_nan, rcp_approx};

/// f32 for epilogues: errors of a few units in the last place of the argument, not of a result near 0.
pub enum Fast {}

impl Precision for Fast {
    type Value = f32;

    #[inline(always)]
    fn value(x: f64) -> f32 {
        x as f32
    }

    #[inline(always)]
    fn to_f32(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn max(a: f32, b: f32) -> f32 {
        max_nan(a, b)
    }

    #[inline(always)]
    fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
        fma(a, b, c)
    }

    #[inline(always)]
    fn inverse(x: f32) -> f32 {
        rcp_approx(x)
    }

    #[inline(always)]
    fn exp(x: f32) -> f32 {
        ex2_approx(x * LOG2_E)
    }

    #[inline(always)]
    fn ln(x: f32) -> f32 {
        LN_2 * lg2_approx(x)
    }

    #[inline(always)]
    fn sigmoid(x: f32) -> f32 {
        rcp_approx(1.0 + ex2_approx(-LOG2_E * x))
    }

    /// `1 - 2 sigmoid(-2 x)`.
    #[inline(always)]
    fn tanh(x: f32) -> f32 {
        fma(-2.0, rcp_approx(1.0 + ex2_approx(2.0 * LOG2_E * x)), 1.0)
    }

    /// About 17 instructions, two of them of the special function unit.
    #[inline(always)]
    fn gelu(x: f32) -> f32 {
        gated(x, -15.0, normal_cdf_below_0)
    }

    /// Since `(1 + tanh u) / 2 = 1 / (1 + exp(-2 u))`, it costs what SiLU does.
    #[inline(always)]
    fn gelu_tanh(x: f32) -> f32 {
        /// Factors of `x` and of `x^3` in the exponent of 2.
        const LINEAR: f32 = -TWICE_ROOT as f32 * LOG2_E;
        const CUBED: f32 = CUBIC as f32 * LINEAR;
        over_one_plus_ex2(x, x * fma(x * x, CUBED, LINEAR))
    }

    #[inline(always)]
    fn silu(x: f32) -> f32 {
        over_one_plus_ex2(x, -LOG2_E * x)
    }

    #[inline(always)]
    fn normal_pdf(x: f32) -> f32 {
        super::ROOT_OF_TWICE_PI as f32 * ex2_approx(x * x * (-0.5 * LOG2_E))
    }

    #[inline(always)]
    fn normal_cdf(x: f32) -> f32 {
        let below = normal_cdf_below_0(max_nan(-x.abs(), -15.0));
        if x > 0.0 { 1.0 - below } else { below }
    }
}

/// `x / (1 + 2^exponent)`.
#[inline(always)]
fn over_one_plus_ex2(x: f32, exponent: f32) -> f32 {
    div_approx(x, 1.0 + ex2_approx(exponent))
}

/// The cumulative distribution function of the standard normal distribution for `x <= 0`: half of `erfc(-x /
/// sqrt 2)`.
#[inline(always)]
fn normal_cdf_below_0(x: f32) -> f32 {
    let t = rcp_approx(fma(x, -0.5 * FRAC_1_SQRT_2, 1.0));
    // The half is a 1 less in the exponent of 2.
    let power = ex2_approx(fma(x * x, -0.5 * LOG2_E, -1.0));
    power * t * horner(&ERFC, t)
}
