//! `GpuFloat` and `FloatExt` in both widths, and half precision.
#![allow(unsafe_op_in_unsafe_fn)]

use cuda_std::prelude::*;
use cuda_std::{FloatExt, GpuFloat};

fn rounded<T: GpuFloat>(x: T, y: T) -> [T; 10] {
    [
        x.floor(),
        x.ceil(),
        x.round(),
        x.trunc(),
        x.fract(),
        x.abs(),
        x.signum(),
        x.copysign(y),
        x.div_euclid(y),
        x.rem_euclid(y),
    ]
}

fn powers<T: GpuFloat>(x: T, y: T) -> [T; 10] {
    [
        x.mul_add(y, x),
        x.powi(3),
        x.powf(y),
        x.sqrt(),
        x.exp(),
        x.exp2(),
        x.cbrt(),
        x.hypot(y),
        x.exp_m1(),
        x.log(y),
    ]
}

fn logarithms<T: GpuFloat>(x: T) -> [T; 4] {
    [x.ln(), x.log2(), x.log10(), x.ln_1p()]
}

fn angles<T: GpuFloat>(x: T, y: T) -> [T; 9] {
    let (sin, cos) = x.sin_cos();
    [x.sin(), x.cos(), x.tan(), x.asin(), x.acos(), x.atan(), x.atan2(y), sin, cos]
}

fn hyperbolic<T: GpuFloat>(x: T) -> [T; 6] {
    [x.sinh(), x.cosh(), x.tanh(), x.asinh(), (x.cosh()).acosh(), x.atanh()]
}

/// A kernel that writes what a function makes of two numbers.
macro_rules! of_two {
    ($($name:ident $function:ident $ty:ty, $count:literal;)*) => {$(
        #[kernel]
        #[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
        pub unsafe fn $name(x: &[$ty], y: $ty, out: *mut [$ty; $count]) {
            let i = thread::index_1d() as usize;
            if i < x.len() {
                *out.add(i) = $function(x[i], y);
            }
        }
    )*};
}

macro_rules! of_one {
    ($($name:ident $function:ident $ty:ty, $count:literal;)*) => {$(
        #[kernel]
        #[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
        pub unsafe fn $name(x: &[$ty], out: *mut [$ty; $count]) {
            let i = thread::index_1d() as usize;
            if i < x.len() {
                *out.add(i) = $function(x[i]);
            }
        }
    )*};
}

of_two! {
    rounded_f32 rounded f32, 10;
    rounded_f64 rounded f64, 10;
    powers_f32 powers f32, 10;
    powers_f64 powers f64, 10;
    angles_f32 angles f32, 9;
    angles_f64 angles f64, 9;
}

of_one! {
    logarithms_f32 logarithms f32, 4;
    logarithms_f64 logarithms f64, 4;
    hyperbolic_f32 hyperbolic f32, 6;
    hyperbolic_f64 hyperbolic f64, 6;
    error_functions_f32 error_functions f32, 6;
    error_functions_f64 error_functions f64, 6;
    turns_and_parts_f32 turns_and_parts f32, 10;
    bessel_and_gamma_f64 bessel_and_gamma f64, 8;
}

fn error_functions<T: FloatExt>(x: T) -> [T; 6] {
    [
        x.error_function(),
        x.complementary_error_function(),
        x.scaled_complementary_error_function(),
        x.inv_complementary_error_function(),
        x.norm_cdf(),
        x.inv_norm_cdf(),
    ]
}

fn turns_and_parts<T: FloatExt>(x: T) -> [T; 10] {
    let (sin, cos) = x.sincospi();
    let (fraction, exponent) = x.frexp();
    [
        x.sinpi(),
        x.cospi(),
        sin,
        cos,
        fraction.ldexp(exponent),
        fraction.scale_by_n(x.unbiased_exp()),
        x.log1p(),
        x.rcbrt(),
        x.saturate(),
        fraction,
    ]
}

fn bessel_and_gamma<T: FloatExt>(x: T) -> [T; 8] {
    [x.j0(), x.j1(), x.jn(2), x.y0(), x.y1(), x.yn(2), x.gamma(), x.log_gamma()]
}

/// A dot product in half precision: products and sums are rounded to f32.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn half_products(a: &[f16], b: &[bf16], out: *mut f32) {
    let i = thread::index_1d() as usize;
    if i < a.len() {
        *out.add(i) = a[i].to_f32() * f32::from(b[i]) + cuda_std::half::f16::from_f32(0.5).to_f32();
    }
}

/// Steps until a point of the plane leaves the circle of radius 2.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn mandelbrot(width: u32, height: u32, most: u32, out: *mut u32) {
    let at = thread::index_2d();
    if at.x >= width || at.y >= height {
        return;
    }
    let re = at.x as f32 / width as f32 * 3.0 - 2.0;
    let im = at.y as f32 / height as f32 * 2.0 - 1.0;
    let (mut x, mut y, mut steps) = (0.0f32, 0.0f32, 0);
    while steps < most && x * x + y * y <= 4.0 {
        (x, y) = (x * x - y * y + re, 2.0 * x * y + im);
        steps += 1;
    }
    *out.add((at.y * width + at.x) as usize) = steps;
}

/// The price of a European call.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn black_scholes(
    spot: &[f64],
    strike: f64,
    rate: f64,
    volatility: f64,
    years: f64,
    out: *mut f64,
) {
    let i = thread::index_1d() as usize;
    if i >= spot.len() {
        return;
    }
    let spread = volatility * GpuFloat::sqrt(years);
    let d1 = (GpuFloat::ln(spot[i] / strike) + (rate + volatility * volatility / 2.0) * years) / spread;
    let discount = GpuFloat::exp(-rate * years);
    *out.add(i) = spot[i] * d1.norm_cdf() - strike * discount * (d1 - spread).norm_cdf();
}

/// Instructions of sm_80; before it, the same bits by arithmetic.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn halves_and_nans(x: &[f32], out: *mut [u32; 4]) {
    let i = thread::index_1d() as usize;
    if i < x.len() {
        let x = x[i];
        *out.add(i) = [
            cuda_std::convert::bf16_from_f32(x).to_bits().into(),
            cuda_std::convert::f16x2_from_f32(x, -x),
            cuda_std::fastmath::max_nan(x, 1.0).to_bits(),
            cuda_std::fastmath::min_nan(x, 1.0).to_bits(),
        ];
    }
}
