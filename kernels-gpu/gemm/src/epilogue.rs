//! What becomes of a sum of products, in one meaning for all kernels of the family:
//!
//! ```text
//! v = alpha * scale_a * scale_b * sum + beta * old C + bias[column]     the old C is not read when beta is 0, nor for SwiGLU
//! v = activation(v)
//! v = v + residual[row, column]
//! amax = max |v| over the result, NaN if there is one
//! C = scale_c * v, rounded to C's type                                   scale_c where a kernel takes one
//! ```
//! All in f32. Results beyond the range of f16 become infinity, those beyond an 8-bit type's its largest number.

use cuda_std::fastmath::{div_approx, ex2_approx, fma, max_nan};

/// The activation functions, as kernels' parameters name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
pub enum Activation {
    /// `v`.
    #[default]
    None = 0,
    /// `max(v, 0)`.
    Relu = 1,
    /// `v (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))) / 2` (Hendrycks and Gimpel 2016).
    Gelu = 2,
    /// `v / (1 + exp(-v))` (Elfwing et al. 2017).
    Silu = 3,
    /// Of columns `2j` and `2j + 1`, `silu(v[2j]) * v[2j + 1]` becomes column `j`: C has half the columns (Shazeer 2020).
    SwiGlu = 4,
}

impl Activation {
    /// The function with this code; [`Activation::None`] for codes that there are not.
    #[inline(always)]
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Relu,
            2 => Self::Gelu,
            3 => Self::Silu,
            4 => Self::SwiGlu,
            _ => Self::None,
        }
    }

    /// Columns of the product that make one column of C.
    pub const fn columns(self) -> u32 {
        match self {
            Self::SwiGlu => 2,
            _ => 1,
        }
    }

    /// The function of one value; of SwiGLU, which takes two, see [`swiglu`].
    #[inline(always)]
    pub fn apply(self, v: f32) -> f32 {
        match self {
            Self::None | Self::SwiGlu => v,
            Self::Relu => relu(v),
            Self::Gelu => gelu(v),
            Self::Silu => silu(v),
        }
    }
}

/// `max(v, 0)`; NaN stays.
#[inline(always)]
pub fn relu(v: f32) -> f32 {
    max_nan(v, 0.0)
}

/// [`Activation::Silu`].
#[inline(always)]
pub fn silu(v: f32) -> f32 {
    v_over_one_plus_ex2(v, -core::f32::consts::LOG2_E * v)
}

/// [`Activation::Gelu`]. Since `(1 + tanh u) / 2 = 1 / (1 + exp(-2 u))`, it costs what [`silu`] does.
#[inline(always)]
pub fn gelu(v: f32) -> f32 {
    /// `-2 sqrt(2 / pi)` in the exponent of 2, and that times 0.044715.
    const LINEAR: f32 = -1.595_769 * core::f32::consts::LOG2_E;
    const CUBIC: f32 = 0.044_715 * LINEAR;
    v_over_one_plus_ex2(v, v * fma(v * v, CUBIC, LINEAR))
}

/// [`Activation::SwiGlu`] of a pair of columns.
#[inline(always)]
pub fn swiglu(gate: f32, v: f32) -> f32 {
    silu(gate) * v
}

/// `v / (1 + 2^x)`.
#[inline(always)]
fn v_over_one_plus_ex2(v: f32, x: f32) -> f32 {
    div_approx(v, 1.0 + ex2_approx(x))
}
