//! Special functions of floats.

use crate::float::GpuFloat;

/// Special functions that CUDA's math library has and `std` has not. Implemented by `f32` and `f64`.
///
/// Computed in double precision where `libm` has no single-precision form, so on the device `f32` is not
/// faster. The same code runs on the host.
pub trait FloatExt: GpuFloat {
    /// Cosine of `self * pi`, exact at multiples of one half.
    #[must_use]
    fn cospi(self) -> Self;
    /// Sine of `self * pi`, exact at multiples of one half.
    #[must_use]
    fn sinpi(self) -> Self;
    /// Sine and cosine of `self * pi`.
    #[must_use]
    fn sincospi(self) -> (Self, Self);
    /// Error function.
    #[must_use]
    fn error_function(self) -> Self;
    /// `1 - error_function`, precise where that is tiny.
    #[must_use]
    fn complementary_error_function(self) -> Self;
    /// The `x` with `x.complementary_error_function() == self`, for `self` from 0 to 2.
    #[must_use]
    fn inv_complementary_error_function(self) -> Self;
    /// `exp(self * self) * complementary_error_function`, without overflow on the way.
    #[must_use]
    fn scaled_complementary_error_function(self) -> Self;
    /// Fraction from 0.5 to 1 (0 for 0) and exponent: `self == fraction * 2^exponent`.
    #[must_use]
    fn frexp(self) -> (Self, i32);
    /// Exponent of `self`, without its bias.
    #[must_use]
    fn unbiased_exp(self) -> i32;
    /// Bessel function of the first kind, order 0.
    #[must_use]
    fn j0(self) -> Self;
    /// Bessel function of the first kind, order 1.
    #[must_use]
    fn j1(self) -> Self;
    /// Bessel function of the first kind, any order.
    #[must_use]
    fn jn(self, order: i32) -> Self;
    /// Bessel function of the second kind, order 0.
    #[must_use]
    fn y0(self) -> Self;
    /// Bessel function of the second kind, order 1.
    #[must_use]
    fn y1(self) -> Self;
    /// Bessel function of the second kind, any order.
    #[must_use]
    fn yn(self, order: i32) -> Self;
    /// `self * 2^exp`.
    #[must_use]
    fn ldexp(self, exp: i32) -> Self;
    /// `self * 2^exp`; the same as [`ldexp`](Self::ldexp).
    #[must_use]
    fn scale_by_n(self, exp: i32) -> Self {
        self.ldexp(exp)
    }
    /// Gamma function.
    #[must_use]
    fn gamma(self) -> Self;
    /// Natural logarithm of the absolute value of the gamma function.
    #[must_use]
    fn log_gamma(self) -> Self;
    /// `ln(1 + self)`, precise near 0.
    #[must_use]
    fn log1p(self) -> Self {
        GpuFloat::ln_1p(self)
    }
    /// Cumulative distribution function of the standard normal distribution.
    #[must_use]
    fn norm_cdf(self) -> Self;
    /// Inverse of [`norm_cdf`](Self::norm_cdf), for `self` from 0 to 1.
    #[must_use]
    fn inv_norm_cdf(self) -> Self;
    /// `1 / cbrt(self)`.
    #[must_use]
    fn rcbrt(self) -> Self;
    /// `self` held between 0 and 1; NaN becomes 0. PTX `.sat`.
    #[must_use]
    fn saturate(self) -> Self;
}

impl FloatExt for f64 {
    fn cospi(self) -> f64 {
        // Half a turn further the cosine is the sine; the shift is exact after the reduction to one turn.
        (reduce_turn(self).abs() + 0.5).sinpi_reduced()
    }

    fn sinpi(self) -> f64 {
        reduce_turn(self).sinpi_reduced()
    }

    fn sincospi(self) -> (f64, f64) {
        (self.sinpi(), self.cospi())
    }

    fn error_function(self) -> f64 {
        libm::erf(self)
    }

    fn complementary_error_function(self) -> f64 {
        libm::erfc(self)
    }

    fn inv_complementary_error_function(self) -> f64 {
        inv_erfc(self)
    }

    fn scaled_complementary_error_function(self) -> f64 {
        scaled_erfc(self)
    }

    fn frexp(self) -> (f64, i32) {
        libm::frexp(self)
    }

    fn unbiased_exp(self) -> i32 {
        libm::ilogb(self)
    }

    fn j0(self) -> f64 {
        libm::j0(self)
    }

    fn j1(self) -> f64 {
        libm::j1(self)
    }

    fn jn(self, order: i32) -> f64 {
        libm::jn(order, self)
    }

    fn y0(self) -> f64 {
        libm::y0(self)
    }

    fn y1(self) -> f64 {
        libm::y1(self)
    }

    fn yn(self, order: i32) -> f64 {
        libm::yn(order, self)
    }

    fn ldexp(self, exp: i32) -> f64 {
        libm::ldexp(self, exp)
    }

    fn gamma(self) -> f64 {
        libm::tgamma(self)
    }

    fn log_gamma(self) -> f64 {
        libm::lgamma(self)
    }

    fn norm_cdf(self) -> f64 {
        0.5 * libm::erfc(-self * core::f64::consts::FRAC_1_SQRT_2)
    }

    fn inv_norm_cdf(self) -> f64 {
        -core::f64::consts::SQRT_2 * inv_erfc(2.0 * self)
    }

    fn rcbrt(self) -> f64 {
        1.0 / libm::cbrt(self)
    }

    fn saturate(self) -> f64 {
        if self > 0.0 { self.min(1.0) } else { 0.0 }
    }
}

/// Methods of `f32` by way of `f64`.
macro_rules! by_double {
    ($($method:ident($($arg:ident: $arg_ty:ty),*);)*) => {$(
        fn $method(self $(, $arg: $arg_ty)*) -> f32 {
            FloatExt::$method(self as f64 $(, $arg)*) as f32
        }
    )*};
}

impl FloatExt for f32 {
    by_double! {
        cospi();
        sinpi();
        inv_complementary_error_function();
        scaled_complementary_error_function();
        norm_cdf();
        inv_norm_cdf();
        rcbrt();
        jn(order: i32);
        yn(order: i32);
        j0();
        j1();
        y0();
        y1();
    }

    fn sincospi(self) -> (f32, f32) {
        (self.sinpi(), self.cospi())
    }

    fn error_function(self) -> f32 {
        libm::erff(self)
    }

    fn complementary_error_function(self) -> f32 {
        libm::erfcf(self)
    }

    fn frexp(self) -> (f32, i32) {
        libm::frexpf(self)
    }

    fn unbiased_exp(self) -> i32 {
        libm::ilogbf(self)
    }

    fn ldexp(self, exp: i32) -> f32 {
        libm::ldexpf(self, exp)
    }

    fn gamma(self) -> f32 {
        libm::tgammaf(self)
    }

    fn log_gamma(self) -> f32 {
        libm::lgammaf(self)
    }

    fn saturate(self) -> f32 {
        if self > 0.0 { self.min(1.0) } else { 0.0 }
    }
}

/// `x` reduced to one turn of `sinpi`, from -1 to 1; exact.
fn reduce_turn(x: f64) -> f64 {
    x - 2.0 * GpuFloat::round(x * 0.5)
}

trait SinPiReduced {
    /// Sine of `self * pi` for `self` from -1.5 to 1.5.
    fn sinpi_reduced(self) -> Self;
}

impl SinPiReduced for f64 {
    fn sinpi_reduced(self) -> f64 {
        // Folded into a quarter turn around 0, where both ends are exact.
        let folded = if self > 0.5 {
            1.0 - self
        } else if self < -0.5 {
            -1.0 - self
        } else {
            self
        };
        let pi = core::f64::consts::PI;
        if folded.abs() <= 0.25 {
            libm::sin(folded * pi)
        } else {
            GpuFloat::copysign(libm::cos((0.5 - folded.abs()) * pi), folded)
        }
    }
}

/// Where the continued fraction of [`scaled_erfc`] takes over from the product, which would lose precision to
/// cancellation in the exponent, and at last overflow.
const SCALED_ERFC_TAIL: f64 = 5.0;

fn scaled_erfc(x: f64) -> f64 {
    if x < SCALED_ERFC_TAIL {
        return libm::exp(x * x) * libm::erfc(x);
    }
    // x + (1/2)/(x + 1/(x + (3/2)/(x + ..))), from the inside out; so many terms are exact to the last bit
    // from 5 on.
    const TERMS: u32 = 60;
    let mut tail = x;
    for k in (1..=TERMS).rev() {
        tail = x + 0.5 * k as f64 / tail;
    }
    0.5 * core::f64::consts::FRAC_2_SQRT_PI / tail
}

/// Inverse of `erfc`, by Newton's method with the second derivative (Halley) from an estimate.
fn inv_erfc(y: f64) -> f64 {
    if !(0.0..=2.0).contains(&y) {
        return f64::NAN;
    }
    if y == 0.0 || y == 2.0 {
        return if y == 0.0 { f64::INFINITY } else { f64::NEG_INFINITY };
    }
    // By symmetry, so that the tail is always the small side.
    let small = y.min(2.0 - y);
    // The normal quantile's estimate of Abramowitz and Stegun, 26.2.23: off by less than 5e-4.
    let t = GpuFloat::sqrt(-2.0 * (libm::log(small) - core::f64::consts::LN_2));
    let numerator = 2.515517 + t * (0.802853 + t * 0.010328);
    let denominator = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    let mut x = (t - numerator / denominator) * core::f64::consts::FRAC_1_SQRT_2;
    // Each step triples the number of right digits.
    for _ in 0..3 {
        // The error relative to the slope, with both scaled by exp(x * x) so that neither underflows; one
        // exponential of the sum, because exp(x * x) alone overflows for the smallest numbers.
        let error = scaled_erfc(x) - libm::exp(x * x + libm::log(small));
        let step = error / core::f64::consts::FRAC_2_SQRT_PI;
        x += step / (1.0 + x * step);
    }
    if y <= 1.0 { x } else { -x }
}
