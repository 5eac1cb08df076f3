//! Functions of both widths that return one value.

use core::f64::consts::FRAC_2_SQRT_PI;

use super::{TiesEven, single_libm};
use crate::float::GpuFloat;
use crate::float_ext::FloatExt;

both_widths! { "Always safe to call; `unsafe` as in Rust-CUDA."
    acos(x: F) -> F, "Error: 2 ulp.", "Arc cosine, in radians; NaN outside of -1 to 1.", GpuFloat::acos(x);
    acosh(x: F) -> F, "Error: 3 ulp.", "Inverse hyperbolic cosine; NaN below 1.", GpuFloat::acosh(x);
    asin(x: F) -> F, "Error: 2 ulp.", "Arc sine, in radians; NaN outside of -1 to 1.", GpuFloat::asin(x);
    asinh(x: F) -> F, "Error: 3 ulp.", "Inverse hyperbolic sine.", GpuFloat::asinh(x);
    atan(x: F) -> F, "Error: 2 ulp.", "Arc tangent, in radians.", GpuFloat::atan(x);
    atan2(x: F, y: F) -> F, "Error: 2 ulp.",
        "Angle of the point (`y`, `x`), in radians from -pi to pi: the first argument is the ordinate.",
        GpuFloat::atan2(x, y);
    atanh(x: F) -> F, "Error: 3 ulp.", "Inverse hyperbolic tangent.", GpuFloat::atanh(x);
    cbrt(x: F) -> F, "Error: 1 ulp.", "Cube root.", GpuFloat::cbrt(x);
    ceil(x: F) -> F, "", "Smallest integer not below `x`.", GpuFloat::ceil(x);
    copysign(x: F, y: F) -> F, "", "The magnitude of `x` with the sign of `y`.", GpuFloat::copysign(x, y);
    cos(x: F) -> F, "Error: 1 ulp.", "Cosine of radians.", GpuFloat::cos(x);
    cosh(x: F) -> F, "Error: 3 ulp.", "Hyperbolic cosine.", GpuFloat::cosh(x);
    cospi(x: F) -> F, "Error: 2 ulp.", "Cosine of `x * pi`.", FloatExt::cospi(x);
    erf(x: F) -> F, "Error: 2 ulp.", "Error function.", FloatExt::error_function(x);
    erfc(x: F) -> F, "Error: 5 ulp.", "`1 - erf(x)`, precise where that is tiny.",
        FloatExt::complementary_error_function(x);
    erfcinv(x: F) -> F, "Error of f32: 1 ulp; of f64: 8 ulp, and 2^-52 absolutely.", "The `y` with `erfc(y) == x`, for `x` from 0 to 2.",
        FloatExt::inv_complementary_error_function(x);
    erfcx(x: F) -> F, "Error of f32: 1 ulp; of f64: 8 ulp, and below 5 `x * x` more.", "`exp(x * x) * erfc(x)`, without overflow on the way.",
        FloatExt::scaled_complementary_error_function(x);
    erfinv(x: F) -> F, "Error of f32: 1 ulp; of f64: 8 ulp.", "The `y` with `erf(y) == x`, for `x` from -1 to 1.",
        inv_erf(x as f64) as F;
    exp(x: F) -> F, "Error: 1 ulp.", "e to the power of `x`.", GpuFloat::exp(x);
    exp2(x: F) -> F, "Error: 1 ulp.", "2 to the power of `x`.", GpuFloat::exp2(x);
    exp10(x: F) -> F, "Error: 2 ulp.", "10 to the power of `x`.", m::exp10(x);
    expm1(x: F) -> F, "Error: 1 ulp.", "`exp(x) - 1`, precise near 0.", GpuFloat::exp_m1(x);
    fabs(x: F) -> F, "", "Absolute value.", GpuFloat::abs(x);
    fdim(x: F, y: F) -> F, "", "`x - y`, or 0 if that is negative.", m::fdim(x, y);
    floor(x: F) -> F, "", "Largest integer not above `x`.", GpuFloat::floor(x);
    fma(x: F, y: F, z: F) -> F, "", "`x * y + z`, rounded once. PTX `fma.rn`.", GpuFloat::mul_add(x, y, z);
    // `F::max` leaves the order of the zeros open.
    fmax(x: F, y: F) -> F, "", "The larger; a NaN gives way to a number. -0 is below +0.",
        if x == y { F::from_bits(x.to_bits() & y.to_bits()) } else { x.max(y) };
    fmin(x: F, y: F) -> F, "", "The smaller; a NaN gives way to a number. -0 is below +0.",
        if x == y { F::from_bits(x.to_bits() | y.to_bits()) } else { x.min(y) };
    fmod(x: F, y: F) -> F, "", "Remainder of `x / y`, with the sign of `x`.", m::fmod(x, y);
    hypot(x: F, y: F) -> F, "Error: 1 ulp.", "`sqrt(x * x + y * y)`, without overflow on the way.",
        GpuFloat::hypot(x, y);
    ilogb(x: F) -> i32, "", "Exponent of `x`, without its bias; `i32::MIN` for 0 and NaN, `i32::MAX` for infinities.",
        FloatExt::unbiased_exp(x);
    j0(x: F) -> F, "Error of f32: 1 ulp; of f64: 2^-46 absolutely; `x` up to 30.",
        "Bessel function of the first kind, order 0.", FloatExt::j0(x);
    j1(x: F) -> F, "Error of f32: 1 ulp; of f64: 2^-46 absolutely; `x` up to 30.",
        "Bessel function of the first kind, order 1.", FloatExt::j1(x);
    jn(n: i32, x: F) -> F, "Error of f32: 1 ulp; of f64: 2^-46 absolutely; `x` up to 30.",
        "Bessel function of the first kind, order `n`; NaN for negative orders.",
        if n < 0 { F::NAN } else { FloatExt::jn(x, n) };
    ldexp(x: F, y: i32) -> F, "", "`x * 2^y`.", FloatExt::ldexp(x, y);
    lgamma(x: F) -> F, "Error: 5 ulp for `x` above 3; nearer to the zeros, and below, as much absolutely.",
        "Natural logarithm of the absolute value of the gamma function.", FloatExt::log_gamma(x);
    llrint(x: F) -> i64, "", "Nearest integer; half-way cases to the even one. Out of range gives the nearest end, NaN 0.",
        x.ties_even() as i64;
    llround(x: F) -> i64, "", "Nearest integer; half-way cases away from 0. Out of range gives the nearest end, NaN 0.",
        GpuFloat::round(x) as i64;
    log(x: F) -> F, "Error: 1 ulp.", "Natural logarithm.", GpuFloat::ln(x);
    log10(x: F) -> F, "Error: 2 ulp.", "Logarithm to base 10.", GpuFloat::log10(x);
    log1p(x: F) -> F, "Error: 2 ulp.", "`log(1 + x)`, precise near 0.", GpuFloat::ln_1p(x);
    log2(x: F) -> F, "Error: 2 ulp.", "Logarithm to base 2.", GpuFloat::log2(x);
    logb(x: F) -> F, "", "Exponent of `x`, without its bias, as a float; -infinity for 0, infinity for infinities.",
        if x == 0.0 || !x.is_finite() { GpuFloat::ln(x.abs()) } else { FloatExt::unbiased_exp(x) as F };
    nan(tagp: *mut i8) -> F, "", "A NaN, the same for every `tagp`, which is not read.",
        { let _ = tagp; F::NAN };
    nearbyint(x: F) -> F, "", "Nearest integer; half-way cases to the even one.", x.ties_even();
    nextafter(x: F, y: F) -> F, "", "The next number behind `x` on the way to `y`.", m::nextafter(x, y);
    normcdf(x: F) -> F, "Error of f32: 1 ulp; of f64: 2 ulp and `x * x` more for negative `x`.",
        "Cumulative distribution function of the standard normal distribution.", FloatExt::norm_cdf(x);
    normcdfinv(x: F) -> F, "Error of f32: 1 ulp; of f64: 8 ulp, and 2^-51 absolutely.",
        "Inverse of `normcdf`, for `x` from 0 to 1.", FloatExt::inv_norm_cdf(x);
    pow(x: F, y: F) -> F, "Error: 1 ulp.", "`x` to the power of `y`.", GpuFloat::powf(x, y);
    powi(x: F, y: i32) -> F, "Error: 1 ulp.", "`x` to the power of an integer.",
        libm::pow(x as f64, y as f64) as F;
    rcbrt(x: F) -> F, "Error: 2 ulp.", "`1 / cbrt(x)`.", FloatExt::rcbrt(x);
    remainder(x: F, y: F) -> F, "", "`x - n * y` for the integer `n` nearest to `x / y`; half-way cases to the even one.",
        m::remainder(x, y);
    rint(x: F) -> F, "", "Nearest integer; half-way cases to the even one.", x.ties_even();
    round(x: F) -> F, "", "Nearest integer; half-way cases away from 0.", GpuFloat::round(x);
    rsqrt(x: F) -> F, "Error: 1 ulp.",
        "`1 / sqrt(x)`, by a root and a division. [`rsqrt_approx`](crate::fastmath::rsqrt_approx) is faster.",
        1.0 / GpuFloat::sqrt(x);
    scalbn(x: F, y: i32) -> F, "", "`x * 2^y`.", FloatExt::ldexp(x, y);
    sin(x: F) -> F, "Error: 1 ulp.", "Sine of radians.", GpuFloat::sin(x);
    sinh(x: F) -> F, "Error: 3 ulp.", "Hyperbolic sine.", GpuFloat::sinh(x);
    sinpi(x: F) -> F, "Error: 2 ulp.", "Sine of `x * pi`.", FloatExt::sinpi(x);
    sqrt(x: F) -> F, "", "Square root; NaN for negative numbers other than -0. PTX `sqrt.rn`.", GpuFloat::sqrt(x);
    tan(x: F) -> F, "Error: 2 ulp.", "Tangent of radians.", GpuFloat::tan(x);
    tanh(x: F) -> F, "Error: 3 ulp.", "Hyperbolic tangent.", GpuFloat::tanh(x);
    tgamma(x: F) -> F, "Error: 10 ulp.", "Gamma function.", FloatExt::gamma(x);
    trunc(x: F) -> F, "", "Integer part.", GpuFloat::trunc(x);
    y0(x: F) -> F, "Error of f32: 1 ulp; of f64: 2^-46 absolutely; `x` from 0.5 to 30.",
        "Bessel function of the second kind, order 0.", FloatExt::y0(x);
    y1(x: F) -> F, "Error of f32: 1 ulp; of f64: 2^-46 absolutely; `x` from 0.5 to 30.",
        "Bessel function of the second kind, order 1.", FloatExt::y1(x);
    yn(n: i32, x: F) -> F, "Error of f32: 1 ulp; of f64: 2^-46 absolutely; `x` from `n` to 30.",
        "Bessel function of the second kind, order `n`; NaN for negative orders.",
        if n < 0 { F::NAN } else { FloatExt::yn(x, n) };
}

/// Below this, `erfinv(y)` is `sqrt(pi) / 2 * y` but for a part in 2^21.
const NEARLY_LINEAR: f64 = 1e-3;

/// Inverse of the error function.
fn inv_erf(y: f64) -> f64 {
    if y == 0.0 {
        return y;
    }
    if y.abs() > 0.5 {
        // The difference is exact.
        return GpuFloat::copysign((1.0 - y.abs()).inv_complementary_error_function(), y);
    }
    // Right to an ulp of 1, or to a part in 2^21: a step of Newton's makes it right to an ulp of its own.
    let x = if y.abs() < NEARLY_LINEAR {
        y / FRAC_2_SQRT_PI
    } else {
        (1.0 - y).inv_complementary_error_function()
    };
    x + (y - libm::erf(x)) * libm::exp(x * x) / FRAC_2_SQRT_PI
}
