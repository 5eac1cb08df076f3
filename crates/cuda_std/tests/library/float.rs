//! `GpuFloat` against `std`, and at the values where such functions go wrong.

use cuda_std::GpuFloat;

/// Values around every corner of both formats, and ordinary ones between.
fn values() -> impl Iterator<Item = f64> + Clone {
    let corners = [
        0.0,
        0.5,
        1.0,
        1.5,
        2.5,
        0.49999999999999994,
        4503599627370497.5,
        8388608.5,
        1e-40,
        1e-310,
        1e38,
        1e300,
    ];
    let special = [f64::INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE];
    let between = (1..200).map(|i| i as f64 * 0.173);
    corners.into_iter().chain(special).chain(between).flat_map(|v| [v, -v])
}

/// Distance in steps of the format; NaN is equal to NaN.
fn steps_32(a: f32, b: f32) -> u64 {
    let order = |x: f32| {
        if x.is_sign_negative() { -((x.to_bits() & 0x7fff_ffff) as i64) } else { x.to_bits() as i64 }
    };
    if a.is_nan() && b.is_nan() { 0 } else { order(a).abs_diff(order(b)) }
}

fn steps_64(a: f64, b: f64) -> u64 {
    let order =
        |x: f64| if x.is_sign_negative() { -((x.to_bits() & !(1 << 63)) as i64) } else { x.to_bits() as i64 };
    if a.is_nan() && b.is_nan() { 0 } else { order(a).abs_diff(order(b)) }
}

/// Checks methods of one argument, in both formats, to a number of steps.
macro_rules! agree {
    ($($method:ident within $steps:literal;)*) => {$({
        for v in values() {
            let (got, want) = (GpuFloat::$method(v), f64::$method(v));
            assert!(steps_64(got, want) <= $steps, "f64::{}({v:e}) = {got:e}, std says {want:e}", stringify!($method));
            let v = v as f32;
            let (got, want) = (GpuFloat::$method(v), f32::$method(v));
            assert!(steps_32(got, want) <= $steps, "f32::{}({v:e}) = {got:e}, std says {want:e}", stringify!($method));
        }
    })*};
}

#[test]
fn exact_functions_are_exact() {
    agree! {
        floor within 0; ceil within 0; round within 0; trunc within 0; fract within 0;
        abs within 0; signum within 0; sqrt within 0;
    }
}

#[test]
fn other_functions_are_close() {
    agree! {
        exp within 2; exp2 within 2; ln within 2; log2 within 2; log10 within 2; cbrt within 1;
        sin within 2; cos within 2; tan within 2; asin within 2; acos within 2; atan within 2;
        exp_m1 within 2; ln_1p within 2; sinh within 3; cosh within 3; tanh within 3;
    }
}

#[test]
fn functions_of_two_arguments() {
    for (a, b) in values().flat_map(|a| values().map(move |b| (a, b))) {
        let checks = [
            ("copysign", GpuFloat::copysign(a, b), a.copysign(b), 0),
            ("mul_add", GpuFloat::mul_add(a, b, 0.3), a.mul_add(b, 0.3), 0),
            ("div_euclid", GpuFloat::div_euclid(a, b), a.div_euclid(b), 0),
            ("rem_euclid", GpuFloat::rem_euclid(a, b), a.rem_euclid(b), 0),
            ("powf", GpuFloat::powf(a, b), a.powf(b), 2),
            ("hypot", GpuFloat::hypot(a, b), a.hypot(b), 1),
            ("atan2", GpuFloat::atan2(a, b), a.atan2(b), 2),
        ];
        for (name, got, want, steps) in checks {
            assert!(steps_64(got, want) <= steps, "{name}({a:e}, {b:e}) = {got:e}, std says {want:e}");
        }
    }
}

#[test]
fn integer_powers() {
    for n in [0, 1, 2, 3, 7, 10, -1, -2, -5] {
        for v in [2.0f64, -2.0, 0.5, 1.0, -1.0] {
            assert_eq!(GpuFloat::powi(v, n), v.powf(n as f64), "{v} to the {n}");
        }
    }
    assert_eq!(GpuFloat::powi(1.0f32, i32::MIN), 1.0);
    assert_eq!(GpuFloat::powi(0.0f64, -1), f64::INFINITY);
    assert_eq!(GpuFloat::log(8.0f64, 2.0), 3.0);
    assert_eq!(GpuFloat::sin_cos(0.25f32), (GpuFloat::sin(0.25f32), GpuFloat::cos(0.25f32)));
}

/// `std` computes these from logarithms, which overflows near the largest number: here the way back is the
/// measure.
#[test]
fn inverse_hyperbolic_functions_invert() {
    let close = |a: f64, b: f64, tolerance: f64| (a - b).abs() <= tolerance * b.abs().max(1.0);
    for v in values().filter(|v| v.abs() < 300.0) {
        assert!(
            close(GpuFloat::sinh(GpuFloat::asinh(v)), v, 2e-15 * v.abs().max(1.0).ln().max(1.0)),
            "asinh({v:e})"
        );
        let tanh = GpuFloat::tanh(v.clamp(-3.0, 3.0));
        assert!(close(GpuFloat::atanh(tanh), v.clamp(-3.0, 3.0), 1e-13), "atanh({tanh:e})");
        let (single, double) = (GpuFloat::asinh(v as f32), GpuFloat::asinh(v as f32 as f64));
        assert!(steps_32(single, double as f32) <= 2, "asinh({v:e})");
        if v >= 1.0 {
            assert!(close(GpuFloat::cosh(GpuFloat::acosh(v)), v, 2e-15 * v.ln().max(1.0)), "acosh({v:e})");
            let (single, double) = (GpuFloat::acosh(v as f32), GpuFloat::acosh(v as f32 as f64));
            assert!(steps_32(single, double as f32) <= 2, "acosh({v:e})");
        }
    }
    assert!(GpuFloat::asinh(f64::MAX) < 711.0);
    assert!(GpuFloat::acosh(0.5f64).is_nan() && GpuFloat::atanh(2.0f32).is_nan());
    assert_eq!(GpuFloat::atanh(1.0f64), f64::INFINITY);
}
