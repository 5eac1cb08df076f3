//! [`reduced`](super::reduced) in fewer instructions, for activations of what other functions made.
//!
//! A gate's inverse that is subnormal is 0 here, so results whose size is below `2^-126 |x|` are 0. Of minus
//! infinity these gates are NaN, infinity times 0, as PyTorch's are. Their derivatives are NaN of either
//! infinity, that of [`gelu_tanh`] beyond 2^119, and 0 below `2^-118`. Tensors of any numbers go by
//! `reduced`.

use super::reduced::{DENSITY, cdf_and_power};
use super::single::{CUBIC, TWICE_ROOT};
use core::f32::consts::LOG2_E;
use cuda_std::fastmath::{ex2_approx, fma, fma_negated, min, rcp_approx};

pub use super::reduced::{exp, gelu, ln, normal_cdf_below_0, sigmoid, tanh};

/// `x / (1 + 2^exponent)`: four instructions.
#[inline(always)]
fn gated(x: f32, exponent: f32) -> f32 {
    x * rcp_approx(1.0 + ex2_approx(exponent))
}

/// The tanh approximation of [`gelu`] in seven instructions, as [`single::gelu_tanh`](super::single).
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    const LINEAR: f32 = -TWICE_ROOT * LOG2_E;
    gated(x, x * fma(LINEAR * CUBIC, x * x, LINEAR))
}

/// SiLU, `x sigmoid(x)`, in five instructions.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    gated(x, x * -LOG2_E)
}

/// `s (1 + slope (1 - s))`, the derivative of `x s` with `s = 1 / (1 + 2^exponent)`, of which `slope` is `x`
/// times the derivative of `-exponent ln 2`: five instructions. `1 - s` has an error of `2^-22`, but is 0
/// where the power is lost beside 1, as the hardware's inverse of 1 is 1: a large slope counts nothing there.
#[inline(always)]
fn gated_grad(exponent: f32, slope: f32) -> f32 {
    let s = rcp_approx(1.0 + ex2_approx(exponent));
    fma(s, fma_negated(slope, s, slope), s)
}

/// Beyond the root of it the derivative of [`gelu_tanh`] is 0 or 1, and a cube would overflow.
const SQUARE: f32 = 1600.0;

/// The derivative of [`gelu_tanh`] in eleven instructions.
#[inline(always)]
pub fn gelu_tanh_grad(x: f32) -> f32 {
    const LINEAR: f32 = -TWICE_ROOT * LOG2_E;
    // Of NaN it is the bound, but `x` is NaN beside it.
    let square = min(x * x, SQUARE);
    let slope = x * fma(3.0 * CUBIC * TWICE_ROOT, square, TWICE_ROOT);
    gated_grad(x * fma(LINEAR * CUBIC, square, LINEAR), slope)
}

/// The derivative of [`silu`] in six instructions.
#[inline(always)]
pub fn silu_grad(x: f32) -> f32 {
    gated_grad(x * -LOG2_E, x)
}

/// The derivative of [`sigmoid`] in six instructions, `p / (1 + p)^2` with `p = e^-|x|`.
#[inline(always)]
pub fn sigmoid_grad(x: f32) -> f32 {
    let power = ex2_approx(x.abs() * -LOG2_E);
    let inverse = rcp_approx(1.0 + power);
    power * inverse * inverse
}

/// The derivative of [`gelu`] in 18 instructions: one power of 2 serves the distribution and its density.
#[inline(always)]
pub fn gelu_grad(x: f32) -> f32 {
    let [below, power] = cdf_and_power(-x.abs());
    let cdf = if x > 0.0 { 1.0 - below } else { below };
    fma(x * DENSITY, power, cdf)
}
