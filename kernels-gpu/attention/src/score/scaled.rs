//! A score and the scale that it still lacks.

use core::ops::{Add, Mul, Neg, Sub};

use cuda_std::fastmath::fma;

use super::Real;

/// The product of a number and a factor that all scores have. Most functions begin with a product or a sum:
/// that takes the factor along, so that scores need no multiplication before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled {
    number: f32,
    factor: f32,
}

impl Scaled {
    /// The score `sum * scale`.
    #[inline(always)]
    #[must_use]
    pub const fn score(sum: f32, scale: f32) -> Self {
        Self { number: sum, factor: scale }
    }

    /// A function of its value.
    #[inline(always)]
    fn map(self, function: impl FnOnce(f32) -> f32) -> Self {
        Self::constant(function(self.value()))
    }
}

impl Add for Scaled {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self + other.value()
    }
}

impl Sub for Scaled {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self - other.value()
    }
}

impl Mul for Scaled {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self { number: self.number * other.number, factor: self.factor * other.factor }
    }
}

impl Neg for Scaled {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self { factor: -self.factor, ..self }
    }
}

impl Add<f32> for Scaled {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: f32) -> Self {
        Self::constant(fma(self.number, self.factor, other))
    }
}

impl Sub<f32> for Scaled {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: f32) -> Self {
        self + -other
    }
}

impl Mul<f32> for Scaled {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: f32) -> Self {
        Self { factor: self.factor * other, ..self }
    }
}

impl Real for Scaled {
    #[inline(always)]
    fn constant(value: f32) -> Self {
        Self { number: value, factor: 1.0 }
    }
    #[inline(always)]
    fn value(self) -> f32 {
        self.number * self.factor
    }
    #[inline(always)]
    fn mul_add(self, factor: f32, addend: f32) -> Self {
        self * factor + addend
    }
    #[inline(always)]
    fn add_product(self, a: f32, b: f32) -> Self {
        self + a * b
    }
    #[inline(always)]
    fn exp(self) -> Self {
        self.map(Real::exp)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        self.map(Real::ln)
    }
    #[inline(always)]
    fn recip(self) -> Self {
        self.map(Real::recip)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.map(Real::sqrt)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        self.map(Real::tanh)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.map(Real::abs)
    }
}
