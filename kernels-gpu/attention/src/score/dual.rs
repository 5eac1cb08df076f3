//! A number with its derivative by the score.

use core::ops::{Add, Mul, Neg, Sub};

use super::{Real, Scaled};

/// A number and its derivative by the score (forward mode). Factors that all scores have stay apart in both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dual {
    value: Scaled,
    derivative: Scaled,
}

impl Dual {
    /// The score itself.
    #[inline(always)]
    #[must_use]
    pub const fn score(score: Scaled) -> Self {
        Self { value: score, derivative: Scaled::score(1.0, 1.0) }
    }

    /// The number, and its derivative.
    #[inline(always)]
    #[must_use]
    pub const fn parts(self) -> [Scaled; 2] {
        [self.value, self.derivative]
    }

    /// A function of it, by value and derivative there.
    #[inline(always)]
    fn map(self, value: f32, derivative: f32) -> Self {
        let derivative = self.derivative * Scaled::constant(derivative);
        Self { value: Scaled::constant(value), derivative }
    }
}

impl Add for Dual {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Self { value: self.value + other.value, derivative: self.derivative + other.derivative }
    }
}

impl Sub for Dual {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Self { value: self.value - other.value, derivative: self.derivative - other.derivative }
    }
}

impl Mul for Dual {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        let derivative = self.value * other.derivative + self.derivative * other.value;
        Self { value: self.value * other.value, derivative }
    }
}

impl Neg for Dual {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self { value: -self.value, derivative: -self.derivative }
    }
}

impl Add<f32> for Dual {
    type Output = Self;
    #[inline(always)]
    fn add(self, other: f32) -> Self {
        Self { value: self.value + other, ..self }
    }
}

impl Sub<f32> for Dual {
    type Output = Self;
    #[inline(always)]
    fn sub(self, other: f32) -> Self {
        Self { value: self.value - other, ..self }
    }
}

impl Mul<f32> for Dual {
    type Output = Self;
    #[inline(always)]
    fn mul(self, other: f32) -> Self {
        Self { value: self.value * other, derivative: self.derivative * other }
    }
}

impl Real for Dual {
    #[inline(always)]
    fn constant(value: f32) -> Self {
        Self { value: Scaled::constant(value), derivative: Scaled::constant(0.0) }
    }
    #[inline(always)]
    fn value(self) -> f32 {
        self.value.value()
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
        let value = Real::exp(self.value());
        self.map(value, value)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        let value = self.value();
        self.map(Real::ln(value), Real::recip(value))
    }
    #[inline(always)]
    fn recip(self) -> Self {
        let value = Real::recip(self.value());
        self.map(value, -value * value)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        let value = Real::sqrt(self.value());
        self.map(value, 0.5 * Real::recip(value))
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        let value = Real::tanh(self.value());
        self.map(value, Real::mul_add(-value, value, 1.0))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        let value = self.value();
        let sign = if value < 0.0 { -1.0 } else { 1.0 };
        self.map(Real::abs(value), sign)
    }
}
