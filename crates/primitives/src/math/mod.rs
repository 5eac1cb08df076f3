//! Elementary functions of floats in three precisions.
//!
//! | module | type | error |
//! |---|---|---|
//! | [`single`] | f32 | a few units in the last place |
//! | [`reduced`] | f32, for results that are rounded to f16 or bf16 | at most 2^-16, relative |
//! | [`finite`] | the same, of what is not minus infinity | the same, or less than 2^-119 |
//! | [`double`] | f64 | that of `libm` |
//!
//! All but [`finite`] keep special values and subnormal numbers. Activations in these precisions, and one for
//! epilogues, are in [`crate::activation`].

pub mod double;
pub mod finite;
mod power;
pub mod reduced;
pub mod single;

use crate::activation::{Double, Finite, Precision, Reduced, Single};

/// Elementary functions beside those of [`Precision`], in the precisions of tensors.
pub trait Elementary: Precision {
    /// How activations are computed of what a norm makes. That is minus infinity only by overflow, or by a
    /// weight or a bias that is.
    type OfNorms: Precision<Value = Self::Value>;

    /// `1 / sqrt(x)`.
    fn rsqrt(x: Self::Value) -> Self::Value;
    /// The nearest integer, ties to even.
    fn round(x: Self::Value) -> Self::Value;
    /// Error function.
    fn erf(x: Self::Value) -> Self::Value;
    /// `x^y`, with C's special values.
    fn powf(x: Self::Value, y: Self::Value) -> Self::Value;
    /// `sin(x + quarter pi / 2)`. [`Double`] has no such function: NaN.
    fn sin_plus_quarters(x: Self::Value, quarter: i32) -> Self::Value;
}

macro_rules! elementary {
    ($($precision:ident as $value:ident: $module:ident, $of_norms:ident, $sin:expr;)*) => { $(
        impl Elementary for $precision {
            type OfNorms = $of_norms;
            #[inline(always)]
            fn rsqrt(x: $value) -> $value {
                $module::rsqrt(x)
            }
            #[inline(always)]
            fn round(x: $value) -> $value {
                $module::round(x)
            }
            #[inline(always)]
            fn erf(x: $value) -> $value {
                $module::erf(x)
            }
            #[inline(always)]
            fn powf(x: $value, y: $value) -> $value {
                $module::powf(x, y)
            }
            #[inline(always)]
            fn sin_plus_quarters(x: $value, quarter: i32) -> $value {
                $sin(x, quarter)
            }
        }
    )* };
}

elementary! {
    Single as f32: single, Single, single::sin_plus_quarters;
    Reduced as f32: reduced, Finite, reduced::sin_plus_quarters;
    Double as f64: double, Double, |_, _| f64::NAN;
}
