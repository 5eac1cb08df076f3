//! Activation functions and their derivatives, with PyTorch's names: `gelu` uses erf, `gelu_tanh` is its
//! approximation.
//!
//! A [`Precision`] says in which type a function is computed and how exactly:
//!
//! | precision | type | for |
//! |---|---|---|
//! | [`Single`] | f32 | f32 tensors: a few units in the last place for every argument |
//! | [`Reduced`] | f32 | f16 and bf16 tensors: a relative error of at most 2^-16 |
//! | [`Finite`] | f32 | results of norms in f16 and bf16: the same, or less than 2^-119; see [`finite`] |
//! | [`Double`] | f64 | f64 tensors |
//! | [`Fast`] | f32 | epilogues of matrix products: absolute errors beside the error of the product |
//!
//! [`Activation`] names the functions that a fused kernel takes as a run-time parameter.

mod fast;

use crate::math::{double, finite, reduced, single};
use crate::op::larger_f64;
use core::ops::{Add, Div, Mul, Neg, Sub};
use cuda_std::GpuFloat;
use cuda_std::fastmath::{fma, fma_f64, max_nan, rcp_approx};

pub use fast::Fast;

/// How activations are computed: their type and their formulas.
///
/// Derivatives are written once for all precisions. Their errors are a few times those of the functions that
/// they are made of.
pub trait Precision {
    /// The type of arguments and results.
    type Value: GpuFloat
        + Copy
        + PartialOrd
        + Add<Output = Self::Value>
        + Sub<Output = Self::Value>
        + Mul<Output = Self::Value>
        + Div<Output = Self::Value>
        + Neg<Output = Self::Value>;

    /// The nearest value to `x`.
    fn value(x: f64) -> Self::Value;
    /// The nearest f32.
    fn to_f32(x: Self::Value) -> f32;
    /// The larger; NaN if either is.
    fn max(a: Self::Value, b: Self::Value) -> Self::Value;
    /// `a * b + c`, rounded once.
    fn multiply_add(a: Self::Value, b: Self::Value, c: Self::Value) -> Self::Value;
    /// `e^x`.
    fn exp(x: Self::Value) -> Self::Value;
    /// Natural logarithm.
    fn ln(x: Self::Value) -> Self::Value;
    /// `1 / (1 + e^-x)`.
    fn sigmoid(x: Self::Value) -> Self::Value;
    /// Hyperbolic tangent.
    fn tanh(x: Self::Value) -> Self::Value;
    /// `x normal_cdf(x)`, or `x / 2 (1 + erf(x / sqrt 2))` (Hendrycks and Gimpel 2016).
    fn gelu(x: Self::Value) -> Self::Value;
    /// `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    fn gelu_tanh(x: Self::Value) -> Self::Value;
    /// `x sigmoid(x)` (Elfwing et al. 2017).
    fn silu(x: Self::Value) -> Self::Value;
    /// The density of the standard normal distribution.
    fn normal_pdf(x: Self::Value) -> Self::Value;
    /// The cumulative distribution function of the standard normal distribution.
    fn normal_cdf(x: Self::Value) -> Self::Value;

    /// `1 / x` of a normal number; in f32 within one unit of the last place.
    #[inline(always)]
    fn inverse(x: Self::Value) -> Self::Value {
        Self::value(1.0) / x
    }

    /// `max(x, 0)`. NaN stays NaN.
    #[inline(always)]
    fn relu(x: Self::Value) -> Self::Value {
        Self::max(x, Self::value(0.0))
    }

    /// `silu(gate) x` (Shazeer 2020).
    #[inline(always)]
    fn swiglu(gate: Self::Value, x: Self::Value) -> Self::Value {
        Self::silu(gate) * x
    }

    /// Derivative of [`Precision::relu`]: 1 where `x` is positive or NaN, else 0.
    #[inline(always)]
    fn relu_grad(x: Self::Value) -> Self::Value {
        if x <= Self::value(0.0) { Self::value(0.0) } else { Self::value(1.0) }
    }

    /// Derivative of [`Precision::sigmoid`]: `sigmoid(x) sigmoid(-x)`.
    #[inline(always)]
    fn sigmoid_grad(x: Self::Value) -> Self::Value {
        Self::sigmoid(x) * Self::sigmoid(-x)
    }

    /// Derivative of [`Precision::tanh`]: `1 - tanh(x)^2`, computed as `4 sigmoid_grad(2 x)`, which does not
    /// cancel.
    #[inline(always)]
    fn tanh_grad(x: Self::Value) -> Self::Value {
        Self::value(4.0) * Self::sigmoid_grad(x + x)
    }

    /// Derivative of [`Precision::gelu`]: `normal_cdf(x) + x normal_pdf(x)`.
    #[inline(always)]
    fn gelu_grad(x: Self::Value) -> Self::Value {
        let x = bounded::<Self>(x, 40.0);
        Self::normal_cdf(x) + x * Self::normal_pdf(x)
    }

    /// Derivative of [`Precision::gelu_tanh`].
    ///
    /// With `u = 2 sqrt(2 / pi) (x + 0.044715 x^3)` the function is `x sigmoid(u)`, so this is
    /// `sigmoid(u) (1 + x u' sigmoid(-u))`.
    #[inline(always)]
    fn gelu_tanh_grad(x: Self::Value) -> Self::Value {
        let x = bounded::<Self>(x, 40.0);
        let (root, cubic) = (Self::value(TWICE_ROOT), Self::value(CUBIC));
        let square = cubic * x * x;
        let one = Self::value(1.0);
        let u = root * x * (one + square);
        let slope = root * (one + Self::value(3.0) * square);
        Self::sigmoid(u) * (one + x * slope * Self::sigmoid(-u))
    }

    /// Derivative of [`Precision::silu`]: `sigmoid(x) (1 + x sigmoid(-x))`.
    #[inline(always)]
    fn silu_grad(x: Self::Value) -> Self::Value {
        let x = bounded::<Self>(x, 800.0);
        Self::sigmoid(x) * (Self::value(1.0) + x * Self::sigmoid(-x))
    }

    /// Derivatives of [`Precision::swiglu`] by `gate` and by `x`.
    #[inline(always)]
    fn swiglu_grad(gate: Self::Value, x: Self::Value) -> [Self::Value; 2] {
        [Self::silu_grad(gate) * x, Self::silu(gate)]
    }
}

/// The factor of `x^3` in the tanh approximation of GELU.
const CUBIC: f64 = 0.044_715;
/// `2 sqrt(2 / pi)`.
const TWICE_ROOT: f64 = core::f64::consts::FRAC_2_SQRT_PI * core::f64::consts::SQRT_2;

/// `x`, at most `end` in magnitude: beyond it a derivative is 0 or 1, and infinity times 0 would be NaN. NaN
/// stays NaN.
#[inline(always)]
fn bounded<P: Precision + ?Sized>(x: P::Value, end: f64) -> P::Value {
    let (low, high) = (P::value(-end), P::value(end));
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

/// f32, exact to a few units in the last place; see [`single`].
pub enum Single {}
/// f32 with a relative error of at most 2^-16, for results that are rounded to 16 bits; see [`reduced`].
pub enum Reduced {}
/// The same where arguments are results of other functions; see [`finite`].
pub enum Finite {}
/// f64; see [`double`].
pub enum Double {}

/// The functions of an f32 module, whose `normal_cdf_below_0` serves both sides; in braces, those that a
/// module has of its own.
macro_rules! by_f32_module {
    ($($precision:ident: $module:ident $({ $($own:tt)* })?;)*) => { $(
        impl Precision for $precision {
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
                $module::exp(x)
            }
            #[inline(always)]
            fn ln(x: f32) -> f32 {
                $module::ln(x)
            }
            #[inline(always)]
            fn sigmoid(x: f32) -> f32 {
                $module::sigmoid(x)
            }
            #[inline(always)]
            fn tanh(x: f32) -> f32 {
                $module::tanh(x)
            }
            #[inline(always)]
            fn gelu(x: f32) -> f32 {
                $module::gelu(x)
            }
            #[inline(always)]
            fn gelu_tanh(x: f32) -> f32 {
                $module::gelu_tanh(x)
            }
            #[inline(always)]
            fn silu(x: f32) -> f32 {
                $module::silu(x)
            }
            #[inline(always)]
            fn normal_pdf(x: f32) -> f32 {
                ROOT_OF_TWICE_PI as f32 * $module::exp(x * x * -0.5)
            }
            #[inline(always)]
            fn normal_cdf(x: f32) -> f32 {
                let below = $module::normal_cdf_below_0(-x.abs());
                if x > 0.0 { 1.0 - below } else { below }
            }
            $($($own)*)?
        }
    )* };
}

by_f32_module! {
    Single: single;
    Reduced: reduced;
    Finite: finite {
        #[inline(always)]
        fn gelu_grad(x: f32) -> f32 {
            finite::gelu_grad(x)
        }
        #[inline(always)]
        fn gelu_tanh_grad(x: f32) -> f32 {
            finite::gelu_tanh_grad(x)
        }
        #[inline(always)]
        fn sigmoid_grad(x: f32) -> f32 {
            finite::sigmoid_grad(x)
        }
        #[inline(always)]
        fn silu_grad(x: f32) -> f32 {
            finite::silu_grad(x)
        }
    };
}

/// `1 / sqrt(2 pi)`.
const ROOT_OF_TWICE_PI: f64 = core::f64::consts::FRAC_2_SQRT_PI * core::f64::consts::FRAC_1_SQRT_2 / 2.0;

impl Precision for Double {
    type Value = f64;
    #[inline(always)]
    fn value(x: f64) -> f64 {
        x
    }
    #[inline(always)]
    fn to_f32(x: f64) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn max(a: f64, b: f64) -> f64 {
        larger_f64(a, b)
    }
    #[inline(always)]
    fn multiply_add(a: f64, b: f64, c: f64) -> f64 {
        fma_f64(a, b, c)
    }
    #[inline(always)]
    fn exp(x: f64) -> f64 {
        double::exp(x)
    }
    #[inline(always)]
    fn ln(x: f64) -> f64 {
        double::ln(x)
    }
    #[inline(always)]
    fn sigmoid(x: f64) -> f64 {
        double::sigmoid(x)
    }
    #[inline(always)]
    fn tanh(x: f64) -> f64 {
        double::tanh(x)
    }
    #[inline(always)]
    fn gelu(x: f64) -> f64 {
        double::gelu(x)
    }
    #[inline(always)]
    fn gelu_tanh(x: f64) -> f64 {
        double::gelu_tanh(x)
    }
    #[inline(always)]
    fn silu(x: f64) -> f64 {
        double::silu(x)
    }
    #[inline(always)]
    fn normal_pdf(x: f64) -> f64 {
        ROOT_OF_TWICE_PI * double::exp(x * x * -0.5)
    }
    #[inline(always)]
    fn normal_cdf(x: f64) -> f64 {
        0.5 * double::erfc(x * -core::f64::consts::FRAC_1_SQRT_2)
    }
}

/// Code that runs with an activation's function once it is known: see [`Activation::visit`].
pub trait Visitor<V> {
    /// Gets the function. Each activation has its own copy of this body.
    fn visit(self, function: impl Fn(V) -> V + Copy);
}

/// The table of activations. A row: name, PyTorch's name, columns that make one, function.
macro_rules! activations {
    ($($(#[$attribute:meta])* $name:ident: $torch:literal, $columns:literal, $function:expr;)*) => {
        /// An activation as a run-time parameter of a fused kernel.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(u32)]
        pub enum Activation {
            $($(#[$attribute])* $name,)*
        }

        impl Activation {
            /// Every activation.
            pub const ALL: &'static [Activation] = &[$(Activation::$name),*];

            /// The activation with this code (`activation as u32`); [`Activation::None`] for any other
            /// number.
            #[inline(always)]
            pub const fn from_code(code: u32) -> Self {
                $(if code == Activation::$name as u32 {
                    return Activation::$name;
                })*
                Activation::None
            }

            /// PyTorch's name; `none` for [`Activation::None`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(Activation::$name => $torch,)*
                }
            }

            /// Columns of a matrix product that make one column of the result.
            pub const fn columns(self) -> u32 {
                match self {
                    $(Activation::$name => $columns,)*
                }
            }

            /// The function of one value. [`Activation::SwiGlu`] takes two (see [`Precision::swiglu`]): here
            /// it returns `x`.
            #[inline(always)]
            pub fn apply<P: Precision>(self, x: P::Value) -> P::Value {
                match self {
                    $(Activation::$name => $function(x),)*
                }
            }

            /// Hands the function to `visitor`, so that a kernel asks for the activation once and not for
            /// each element.
            #[inline(always)]
            pub fn visit<P: Precision>(self, visitor: impl Visitor<P::Value>) {
                match self {
                    $(Activation::$name => visitor.visit($function),)*
                }
            }
        }
    };
}

activations! {
    /// `x`.
    #[default]
    None: "none", 1, core::convert::identity;
    /// [`Precision::relu`].
    Relu: "relu", 1, P::relu;
    /// [`Precision::gelu`], with erf: PyTorch's default.
    Gelu: "gelu", 1, P::gelu;
    /// [`Precision::gelu_tanh`]: PyTorch's `approximate="tanh"`.
    GeluTanh: "gelu_tanh", 1, P::gelu_tanh;
    /// [`Precision::silu`].
    Silu: "silu", 1, P::silu;
    /// [`Precision::sigmoid`].
    Sigmoid: "sigmoid", 1, P::sigmoid;
    /// [`Precision::swiglu`] of columns `2j` and `2j + 1` gives column `j`: the result has half the columns.
    SwiGlu: "swiglu", 2, core::convert::identity;
}

impl Activation {
    /// Hands the derivative to `visitor`, as [`visit`](Self::visit) does the function. Nothing is handed over
    /// for [`Activation::None`], whose derivative is 1, and for [`Activation::SwiGlu`], which has two
    /// ([`Precision::swiglu_grad`]).
    #[inline(always)]
    pub fn visit_derivative<P: Precision>(self, visitor: impl Visitor<P::Value>) {
        match self {
            Activation::Relu => visitor.visit(P::relu_grad),
            Activation::Gelu => visitor.visit(P::gelu_grad),
            Activation::GeluTanh => visitor.visit(P::gelu_tanh_grad),
            Activation::Silu => visitor.visit(P::silu_grad),
            Activation::Sigmoid => visitor.visit(P::sigmoid_grad),
            Activation::None | Activation::SwiGlu => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Activation;

    #[test]
    fn codes_lead_back_to_their_activations() {
        for &activation in Activation::ALL {
            assert_eq!(Activation::from_code(activation as u32), activation, "{}", activation.name());
        }
        assert_eq!(Activation::from_code(Activation::ALL.len() as u32), Activation::None);
    }
}
