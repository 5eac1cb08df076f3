//! Functions for 16-bit floats, computed in f32 with a relative error of at most 2^-16 over the whole range
//! of f32.
//!
//! That adds a sixteenth to the error of rounding to f16.
//!
//! A kernel at the speed of memory leaves an element about thirty instructions and one special function unit
//! operation. So these functions omit the corrections that [`single`] makes. They too compute `e^x` as the
//! square of `e^(x / 2)`: bf16 has the range of f32, and the hardware flushes subnormal powers.

use super::single::{self, horner};
use core::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LOG2_E, SQRT_2};
use cuda_std::fastmath::{ex2_approx, fma, max_nan, rcp_approx, rsqrt_approx};

pub use super::power::reduced as powf;
pub use single::{ln, round, sin_plus_quarters};

/// `log2(e) / 2`: `e^(x / 2)` is `2^(HALF x)`.
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
    let far = fma(-2.0, sigmoid_below_0(x.abs() * -2.0), 1.0).copysign(x);
    if x.abs() < 0.5 { near } else { far }
}

/// Error function: its series near 0, else by [`normal_cdf_below_0`].
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
    let far = fma(-2.0, normal_cdf_below_0(x.abs() * -SQRT_2), 1.0).copysign(x);
    if x.abs() < 0.5 { near } else { far }
}

/// `1 / (1 + e^-x)`, to full relative accuracy also where it is near 0.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let power = exp(-x.abs());
    let above = rcp_approx(1.0 + power);
    if x < 0.0 { power * above } else { above }
}

/// [`sigmoid`] for `x <= 0`.
#[inline(always)]
fn sigmoid_below_0(x: f32) -> f32 {
    let power = exp(x);
    power * rcp_approx(1.0 + power)
}

/// `x / (1 + 2^exponent)`, from the exponent less [`SHIFT`].
#[inline(always)]
fn gated(x: f32, exponent: f32) -> f32 {
    (x * SCALE) * rcp_approx(ex2_approx(exponent) + SCALE)
}

/// Numerator and denominator have a factor of `2^-SHIFT`: so subnormal results need no subnormal inverse,
/// which the hardware flushes.
const SHIFT: f32 = 14.0;
/// That factor.
const SCALE: f32 = 1.0 / 16_384.0;

/// `1 / sqrt(2 pi)`, over the factor of a lifted power.
pub(super) const DENSITY: f32 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5 * LIFTED;
/// Brings back what is lifted.
const LIFTED: f32 = 1.0 / 256.0;

/// The cumulative distribution function of the standard normal distribution for `x <= 0`.
#[inline(always)]
pub fn normal_cdf_below_0(x: f32) -> f32 {
    let [cdf, _] = cdf_and_power(x);
    cdf
}

/// [`normal_cdf_below_0`], and `e^(-x^2 / 2)` times `2^8`.
///
/// `e^(-x^2 / 2) t P(t)` with `t = 1 / (1 - 0.3 x)` and a polynomial `P` fitted to `-14.6 <= x <= 0`. The
/// largest relative error is 9e-6. Far below that range the result is 0.
#[inline(always)]
pub(super) fn cdf_and_power(x: f32) -> [f32; 2] {
    const FIT: [f32; 6] = [
        -0.076_622_76 * LIFTED,
        0.214_616_5 * LIFTED,
        -0.015_334_14 * LIFTED,
        0.143_332_92 * LIFTED,
        0.113_957_79 * LIFTED,
        0.120_054_19 * LIFTED,
    ];
    let t = rcp_approx(fma(x, -0.3, 1.0));
    // The factor of `2^8` keeps the power of a result that is subnormal above what the hardware flushes.
    let power = ex2_approx(fma(x * x, -HALF, 8.0));
    [power * (t * horner(&FIT, t)), power]
}

/// GELU: `x / 2 (1 + erf(x / sqrt 2))`, to full relative accuracy also in its tail.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    single::gated(x, -15.0, normal_cdf_below_0)
}

/// The tanh approximation of [`gelu`], as [`single::gelu_tanh`].
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    const LINEAR: f32 = -single::TWICE_ROOT * LOG2_E;
    // Below it the result is 0; of minus infinity it would be NaN.
    let x = max_nan(x, -12.0);
    gated(x, fma(x, fma(LINEAR * single::CUBIC, x * x, LINEAR), -SHIFT))
}

/// SiLU: `x sigmoid(x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    let x = max_nan(x, -128.0);
    gated(x, fma(x, -LOG2_E, -SHIFT))
}

/// `1 / sqrt(x)`.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    /// Brings subnormal numbers into the normal range, and the root of it.
    const LIFT: f32 = 16_777_216.0;
    const ROOT: f32 = 4096.0;
    let is_subnormal = x < f32::MIN_POSITIVE;
    let root = rsqrt_approx(if is_subnormal { x * LIFT } else { x });
    if is_subnormal { root * ROOT } else { root }
}
