//! [`reduced`](super::reduced) in fewer instructions, for activations of what other functions made.
//!
//! A gate's inverse that is subnormal is 0 here, so results whose size is below `2^-126 |x|` are 0. Of minus
//! infinity these gates are NaN, infinity times 0, as PyTorch's are. Tensors of any numbers go by `reduced`.

use super::single::{CUBIC, TWICE_ROOT};
use core::f32::consts::LOG2_E;
use cuda_std::fastmath::{ex2_approx, fma, rcp_approx};

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
