//! Arithmetic on floats that `core` lacks: [`GpuFloat`] has the methods of `std`'s `f32` and `f64`.
//!
//! Rounding, `sqrt` and `mul_add` are hardware instructions with one rounding. The rest is `libm`, the same
//! code on the device and on the host, so results agree bit for bit; its error is below 1 ulp for most
//! functions. For speed at less precision see [`fastmath`](crate::fastmath).
//!
//! Where `std` is there, as on the host, `x.sin()` calls `std`'s own method and not the trait's. Write
//! `GpuFloat::sin(x)` where the bits matter.

/// The methods of `std`'s floats, for kernels. Implemented by `f32` and `f64`.
pub trait GpuFloat: Copy + PartialOrd + private::Sealed {
    /// Largest integer not above `self`.
    #[must_use]
    fn floor(self) -> Self;
    /// Smallest integer not below `self`.
    #[must_use]
    fn ceil(self) -> Self;
    /// Nearest integer; half-way cases away from zero.
    #[must_use]
    fn round(self) -> Self;
    /// Integer part.
    #[must_use]
    fn trunc(self) -> Self;
    /// `self - self.trunc()`.
    #[must_use]
    fn fract(self) -> Self;
    /// Absolute value.
    #[must_use]
    fn abs(self) -> Self;
    /// 1 with the sign of `self`; NaN for NaN.
    #[must_use]
    fn signum(self) -> Self;
    /// The magnitude of `self` with the sign of `sign`.
    #[must_use]
    fn copysign(self, sign: Self) -> Self;
    /// `self * a + b` with one rounding. PTX `fma.rn`.
    #[must_use]
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// The integer `n` for which `self == n * rhs + self.rem_euclid(rhs)`.
    #[must_use]
    fn div_euclid(self, rhs: Self) -> Self;
    /// Remainder that is not negative, below `rhs.abs()` but for rounding.
    #[must_use]
    fn rem_euclid(self, rhs: Self) -> Self;
    /// `self` to the power of an integer.
    #[must_use]
    fn powi(self, n: i32) -> Self;
    /// `self` to the power of `n`.
    #[must_use]
    fn powf(self, n: Self) -> Self;
    /// Square root; NaN for negative numbers other than -0. PTX `sqrt.rn`.
    #[must_use]
    fn sqrt(self) -> Self;
    /// e to the power of `self`.
    #[must_use]
    fn exp(self) -> Self;
    /// 2 to the power of `self`.
    #[must_use]
    fn exp2(self) -> Self;
    /// Natural logarithm.
    #[must_use]
    fn ln(self) -> Self;
    /// Logarithm to base `base`: `self.ln() / base.ln()`.
    #[must_use]
    fn log(self, base: Self) -> Self;
    /// Logarithm to base 2.
    #[must_use]
    fn log2(self) -> Self;
    /// Logarithm to base 10.
    #[must_use]
    fn log10(self) -> Self;
    /// Cube root.
    #[must_use]
    fn cbrt(self) -> Self;
    /// `sqrt(self * self + other * other)`, without overflow on the way.
    #[must_use]
    fn hypot(self, other: Self) -> Self;
    /// Sine of radians.
    #[must_use]
    fn sin(self) -> Self;
    /// Cosine of radians.
    #[must_use]
    fn cos(self) -> Self;
    /// Tangent of radians.
    #[must_use]
    fn tan(self) -> Self;
    /// Arc sine, in radians; NaN outside of -1 to 1.
    #[must_use]
    fn asin(self) -> Self;
    /// Arc cosine, in radians; NaN outside of -1 to 1.
    #[must_use]
    fn acos(self) -> Self;
    /// Arc tangent, in radians.
    #[must_use]
    fn atan(self) -> Self;
    /// Angle of the point (`other`, `self`), in radians from -pi to pi.
    #[must_use]
    fn atan2(self, other: Self) -> Self;
    /// Sine and cosine of radians.
    #[must_use]
    fn sin_cos(self) -> (Self, Self);
    /// `exp(self) - 1`, precise near 0.
    #[must_use]
    fn exp_m1(self) -> Self;
    /// `ln(1 + self)`, precise near 0.
    #[must_use]
    fn ln_1p(self) -> Self;
    /// Hyperbolic sine.
    #[must_use]
    fn sinh(self) -> Self;
    /// Hyperbolic cosine.
    #[must_use]
    fn cosh(self) -> Self;
    /// Hyperbolic tangent.
    #[must_use]
    fn tanh(self) -> Self;
    /// Inverse hyperbolic sine.
    #[must_use]
    fn asinh(self) -> Self;
    /// Inverse hyperbolic cosine.
    #[must_use]
    fn acosh(self) -> Self;
    /// Inverse hyperbolic tangent.
    #[must_use]
    fn atanh(self) -> Self;
}

mod private {
    /// Keeps the trait to the types here, so that it can grow.
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// Methods that forward to one function of the same arguments.
macro_rules! forward {
    ($ty:ident: $($method:ident($($arg:ident: $arg_ty:ty),*) = $function:path;)*) => {$(
        #[inline]
        fn $method(self $(, $arg: $arg_ty)*) -> $ty {
            $function(self $(, $arg)*)
        }
    )*};
}

/// Functions that the hardware computes with one rounding or none, as the standard library does.
macro_rules! exact {
    ($ty:ident: $($method:ident($($arg:ident),*);)*) => {$(
        #[inline]
        fn $method(self $(, $arg: $ty)*) -> $ty {
            arms! {
                ptx: { core::$ty::math::$method(self $(, $arg)*) }
                sim: { $ty::$method(self $(, $arg)*) }
            }
        }
    )*};
}

macro_rules! gpu_float {
    ($ty:ident, $($libm:tt)*) => {
        impl GpuFloat for $ty {
            exact! { $ty:
                floor();
                ceil();
                round();
                trunc();
                sqrt();
                mul_add(a, b);
            }
            forward! { $ty:
                abs() = $ty::abs;
                signum() = $ty::signum;
                copysign(sign: $ty) = $ty::copysign;
            }
            forward! { $ty: $($libm)* }

            #[inline]
            fn fract(self) -> $ty {
                self - GpuFloat::trunc(self)
            }

            #[inline]
            fn div_euclid(self, rhs: $ty) -> $ty {
                let quotient = GpuFloat::trunc(self / rhs);
                match self % rhs < 0.0 {
                    true if rhs > 0.0 => quotient - 1.0,
                    true => quotient + 1.0,
                    false => quotient,
                }
            }

            #[inline]
            fn rem_euclid(self, rhs: $ty) -> $ty {
                let remainder = self % rhs;
                if remainder < 0.0 { remainder + rhs.abs() } else { remainder }
            }

            #[inline]
            fn powi(self, n: i32) -> $ty {
                let (mut base, mut left, mut result) = (self, n.unsigned_abs(), 1.0);
                while left > 0 {
                    if left & 1 == 1 {
                        result *= base;
                    }
                    base *= base;
                    left >>= 1;
                }
                if n < 0 { 1.0 / result } else { result }
            }

            #[inline]
            fn log(self, base: $ty) -> $ty {
                GpuFloat::ln(self) / GpuFloat::ln(base)
            }

            #[inline]
            fn sin_cos(self) -> ($ty, $ty) {
                (GpuFloat::sin(self), GpuFloat::cos(self))
            }
        }
    };
}

gpu_float! { f32,
    powf(n: f32) = libm::powf;
    exp() = libm::expf;
    exp2() = libm::exp2f;
    ln() = libm::logf;
    log2() = libm::log2f;
    log10() = libm::log10f;
    cbrt() = libm::cbrtf;
    hypot(other: f32) = libm::hypotf;
    sin() = libm::sinf;
    cos() = libm::cosf;
    tan() = libm::tanf;
    asin() = libm::asinf;
    acos() = libm::acosf;
    atan() = libm::atanf;
    atan2(other: f32) = libm::atan2f;
    exp_m1() = libm::expm1f;
    ln_1p() = libm::log1pf;
    sinh() = libm::sinhf;
    cosh() = libm::coshf;
    tanh() = libm::tanhf;
    asinh() = libm::asinhf;
    acosh() = libm::acoshf;
    atanh() = libm::atanhf;
}

gpu_float! { f64,
    powf(n: f64) = libm::pow;
    exp() = libm::exp;
    exp2() = libm::exp2;
    ln() = libm::log;
    log2() = libm::log2;
    log10() = libm::log10;
    cbrt() = libm::cbrt;
    hypot(other: f64) = libm::hypot;
    sin() = libm::sin;
    cos() = libm::cos;
    tan() = libm::tan;
    asin() = libm::asin;
    acos() = libm::acos;
    atan() = libm::atan;
    atan2(other: f64) = libm::atan2;
    exp_m1() = libm::expm1;
    ln_1p() = libm::log1p;
    sinh() = libm::sinh;
    cosh() = libm::cosh;
    tanh() = libm::tanh;
    asinh() = libm::asinh;
    acosh() = libm::acosh;
    atanh() = libm::atanh;
}
