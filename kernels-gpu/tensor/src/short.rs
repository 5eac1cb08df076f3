//! Functions for 16-bit floats, computed in f32 to a part in 2^16 over the whole range of f32: what rounding to f16 leaves of that
//! error is a 16th of its own.
//!
//! At the speed of memory a multiprocessor meets four elements a clock, which leaves some thirty instructions for each, and four
//! of the special functions. Where [`math`] corrects what an argument lost to rounding, these do not. Powers are squares of half
//! powers here too: bf16 has the range of f32, and the hardware's powers flush subnormal numbers.

use crate::math::{self, horner};
use core::f32::consts::{LOG2_E, SQRT_2};
use cuda_std::fastmath::{ex2_approx, fma, rcp_approx};

pub use math::{ln, round, rsqrt, sin_quarters_on};

/// `log2(e) / 2`: what a half power of e is as a power of 2.
const HALF: f32 = 0.5 * LOG2_E;

/// `e^x`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let power = ex2_approx(x * HALF);
    power * power
}

/// Hyperbolic tangent: its series near 0, else by `e^(-2 |x|)`.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    /// Coefficients of x^9 down to x^3.
    const SERIES: [f32; 4] = [
        (62.0 / 2_835.0f64) as f32,
        (-17.0 / 315.0f64) as f32,
        (2.0 / 15.0f64) as f32,
        (-1.0 / 3.0f64) as f32,
    ];
    let z = x * x;
    let near = fma(horner(&SERIES, z) * z, x, x);
    let far = fma(-2.0, falling_sigmoid(x.abs() * -2.0), 1.0).copysign(x);
    if x.abs() < 0.5 { near } else { far }
}

/// Error function: its series near 0, else by [`normal_share`].
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    /// `2 / sqrt(pi)` over `n! (2 n + 1)`, signs alternating, for n = 4 down to 0.
    const SERIES: [f32; 5] = {
        const FACTOR: f64 = core::f64::consts::FRAC_2_SQRT_PI;
        [
            (FACTOR / 216.0) as f32,
            (-FACTOR / 42.0) as f32,
            (FACTOR / 10.0) as f32,
            (-FACTOR / 3.0) as f32,
            FACTOR as f32,
        ]
    };
    let z = x * x;
    let near = horner(&SERIES, z) * x;
    let far = fma(-2.0, normal_share(x.abs() * -SQRT_2), 1.0).copysign(x);
    if x.abs() < 0.5 { near } else { far }
}

/// `1 / (1 + e^-x)`, with all digits on both sides.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let power = exp(-x.abs());
    let above = rcp_approx(1.0 + power);
    if x < 0.0 { power * above } else { above }
}

/// [`sigmoid`] of what is not above 0.
#[inline(always)]
fn falling_sigmoid(x: f32) -> f32 {
    half_power_sigmoid(x * HALF)
}

/// `sigmoid(x)` for `x` not above 0, from `x log2(e) / 2`.
#[inline(always)]
fn half_power_sigmoid(half: f32) -> f32 {
    let power = ex2_approx(half);
    let power = power * power;
    power * rcp_approx(1.0 + power)
}

/// The share of the normal distribution below `x`, not above 0: `e^(-x^2 / 2) t P(t)` with `t = 1 / (1 - 0.3 x)` and a polynomial `P`
/// fitted to `-14.6 <= x <= 0` (greatest relative error 9e-6, far beyond it none that is not 0).
#[inline(always)]
fn normal_share(x: f32) -> f32 {
    const FIT: [f32; 6] =
        [-0.076_622_76, 0.214_616_5, -0.015_334_14, 0.143_332_92, 0.113_957_79, 0.120_054_19];
    let t = rcp_approx(fma(x, -0.3, 1.0));
    let fit = horner(&FIT, t);
    let power = ex2_approx((x * x) * (-0.5 * HALF));
    power * power * (t * fit)
}

/// `x` times the share of the normal distribution below `x`: `x / 2 (1 + erf(x / sqrt 2))`, with all digits as it vanishes.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    math::share_of(x, -15.0, normal_share)
}

/// The usual approximation of [`gelu`]: `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`, as `x sigmoid(2 ..)`.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    const LINEAR: f32 = math::TWICE_ROOT * HALF;
    math::share_of(x, -12.0, |x| half_power_sigmoid(x * fma(LINEAR * math::CUBIC, x * x, LINEAR)))
}

/// `x sigmoid(x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    math::share_of(x, -128.0, falling_sigmoid)
}
