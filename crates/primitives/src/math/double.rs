//! Functions of f64, from `libm`.
//!
//! The long ones are functions on the device too, called and not inlined.

use core::f64::consts::FRAC_1_SQRT_2;
use cuda_std::GpuFloat;

/// The nearest integer, ties to even.
#[inline(always)]
pub fn round(x: f64) -> f64 {
    /// From here on every f64 is an integer.
    const INTEGERS: f64 = 4_503_599_627_370_496.0;
    let rounded = x.abs() + INTEGERS - INTEGERS;
    if x.abs() < INTEGERS { rounded.copysign(x) } else { x }
}

/// `e^x`.
#[inline(never)]
pub fn exp(x: f64) -> f64 {
    GpuFloat::exp(x)
}

/// Natural logarithm.
#[inline(never)]
pub fn ln(x: f64) -> f64 {
    GpuFloat::ln(x)
}

/// `x^y`.
#[inline(never)]
pub fn powf(x: f64, y: f64) -> f64 {
    GpuFloat::powf(x, y)
}

/// Hyperbolic tangent.
#[inline(never)]
pub fn tanh(x: f64) -> f64 {
    GpuFloat::tanh(x)
}

/// Error function.
#[inline(never)]
pub fn erf(x: f64) -> f64 {
    libm::erf(x)
}

/// `1 - erf(x)`.
#[inline(never)]
pub fn erfc(x: f64) -> f64 {
    libm::erfc(x)
}

/// `1 / (1 + e^-x)`, to full relative accuracy also where it is near 0.
#[inline(always)]
pub fn sigmoid(x: f64) -> f64 {
    let power = exp(-x.abs());
    let above = 1.0 / (1.0 + power);
    if x < 0.0 { power * above } else { above }
}

/// GELU: `x / 2 (1 + erf(x / sqrt 2))`, to full relative accuracy also in its tail.
#[inline(always)]
pub fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { 0.5 * x * erfc(-x * FRAC_1_SQRT_2) }
}

/// The tanh approximation of [`gelu`]: `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
#[inline(always)]
pub fn gelu_tanh(x: f64) -> f64 {
    const CUBIC: f64 = 0.044_715;
    /// `2 sqrt(2 / pi)`.
    const SCALE: f64 = core::f64::consts::FRAC_2_SQRT_PI * core::f64::consts::SQRT_2;
    if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(SCALE * (x + CUBIC * x * x * x)) }
}

/// SiLU: `x sigmoid(x)`.
#[inline(always)]
pub fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(x) }
}

/// `1 / sqrt(x)`.
#[inline(always)]
pub fn rsqrt(x: f64) -> f64 {
    1.0 / GpuFloat::sqrt(x)
}
