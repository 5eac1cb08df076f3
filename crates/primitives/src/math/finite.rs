//! [`reduced`](super::reduced) in fewer instructions, for activations of what other functions made.
//!
//! A gate's inverse that is subnormal is 0 here, so results whose size is below `2^-126 |x|` are 0. Of minus
//! infinity these gates are NaN, infinity times 0, as PyTorch's are. Derivatives have the limits of those in
//! `reduced`; below `2^-118` they are 0. Tensors of any numbers go by `reduced`.

use super::single::{CUBIC, TWICE_ROOT};
use core::f32::consts::LOG2_E;
use cuda_std::fastmath::{ex2_approx, fma, max_nan, rcp_approx};

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
    fma(s, fma(-slope, s, slope), s)
}

/// `x`, at most `end` in magnitude: beyond it a derivative is 0 or 1. NaN stays NaN.
#[inline(always)]
fn bounded(x: f32, end: f32) -> f32 {
    -max_nan(-max_nan(x, -end), -end)
}

/// The derivative of [`gelu_tanh`] in twelve instructions.
#[inline(always)]
pub fn gelu_tanh_grad(x: f32) -> f32 {
    const LINEAR: f32 = -TWICE_ROOT * LOG2_E;
    let x = bounded(x, 40.0);
    let square = x * x;
    let slope = x * fma(3.0 * CUBIC * TWICE_ROOT, square, TWICE_ROOT);
    gated_grad(x * fma(LINEAR * CUBIC, square, LINEAR), slope)
}

/// The derivative of [`silu`] in eight instructions.
#[inline(always)]
pub fn silu_grad(x: f32) -> f32 {
    let x = bounded(x, 800.0);
    gated_grad(x * -LOG2_E, x)
}
