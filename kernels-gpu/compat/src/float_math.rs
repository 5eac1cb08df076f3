//! Functions of floats through the `GpuFloat` trait.

use cuda_std::GpuFloat;
use cuda_std::prelude::*;

/// The tanh form of GELU.
fn gelu_of(x: f32) -> f32 {
    let inner = 0.797_884_6 * (x + 0.044_715 * GpuFloat::powi(x, 3));
    0.5 * x * (1.0 + GpuFloat::tanh(inner))
}

#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn gelu(x: &[f32], y: *mut f32) {
    let i = thread::index_1d() as usize;
    if i < x.len() {
        // SAFETY: `y` is as long as `x`, and every thread has its own element.
        unsafe { *y.add(i) = gelu_of(x[i]) };
    }
}

/// Many functions in double precision: each thread writes eight results for its input.
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn norms(x: &[f64], y: *mut [f64; 8]) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    let v = x[i];
    let (sin, cos) = GpuFloat::sin_cos(v);
    let out = [
        GpuFloat::sqrt(GpuFloat::abs(v)),
        GpuFloat::floor(v),
        GpuFloat::round(v),
        GpuFloat::mul_add(v, 2.0, 1.0),
        GpuFloat::hypot(sin, cos),
        GpuFloat::exp(GpuFloat::ln(GpuFloat::abs(v))),
        GpuFloat::rem_euclid(v, 3.0),
        GpuFloat::atan2(v, 1.0),
    ];
    // SAFETY: `y` is as long as `x`, and every thread has its own element.
    unsafe { *y.add(i) = out };
}
