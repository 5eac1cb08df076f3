//! Functions by their names in libdevice, against `std` in f64 and against integrals.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, FRAC_PI_2, LN_10, LOG2_10, LOG2_E, PI};

use cuda_std::intrinsics as nv;
use testkit::tolerance::{
    INTRINSIC_BESSEL_F64, INTRINSIC_F32, INTRINSIC_F64, INTRINSIC_FAST, INTRINSIC_SPECIAL_F32,
    INTRINSIC_SPECIAL_F64, Row,
};

/// The integral from `a` to `b`, by the tanh-sinh rule: right to about 1e-15 of the largest value.
fn integral(a: f64, b: f64, f: impl Fn(f64) -> f64) -> f64 {
    const STEPS: i32 = 400;
    let h = 3.4 / f64::from(STEPS);
    let term = |i: i32| {
        let t = f64::from(i) * h;
        let inner = FRAC_PI_2 * t.sinh();
        let weight = FRAC_PI_2 * t.cosh() / inner.cosh().powi(2);
        // Measured from the nearer end, so that places next to it stay apart.
        let from_end = (b - a) / (1.0 + (2.0 * inner.abs()).exp());
        weight * f(if i < 0 { a + from_end } else { b - from_end })
    };
    (-STEPS..=STEPS).map(term).sum::<f64>() * h * (b - a) / 2.0
}

fn erfcx(x: f64) -> f64 {
    FRAC_2_SQRT_PI * integral(0.0, 7.0, |t| (-t * (t + 2.0 * x)).exp())
}

fn erfc(x: f64) -> f64 {
    if x < 0.0 { 2.0 - erfc(-x) } else { (-x * x).exp() * erfcx(x) }
}

/// A sum of positive terms.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Integrals of DLMF 10.9.2 and 10.9.7.
fn bessel_j(n: i32, x: f64) -> f64 {
    integral(0.0, PI, |t| (f64::from(n) * t - x * t.sin()).cos()) / PI
}

fn bessel_y(n: i32, x: f64) -> f64 {
    let order = f64::from(n);
    let sign = if n % 2 == 0 { 1.0 } else { -1.0 };
    let waves = integral(0.0, PI, |t| (x * t.sin() - order * t).sin());
    let tail = |t: f64| ((order * t).exp() + sign * (-order * t).exp()) * (-x * t.sinh()).exp();
    (waves - integral(0.0, 7.0, tail)) / PI
}

/// DLMF 5.2.1, for 1 and above.
fn gamma(x: f64) -> f64 {
    integral(0.0, 120.0, |t| ((x - 1.0) * t.ln() - t).exp())
}

/// `count` numbers from `a` to `b`, both included, that f32 has.
fn between(a: f64, b: f64, count: u32) -> impl Iterator<Item = f64> {
    (0..=count).map(move |i| f64::from((a + (b - a) * f64::from(i) / f64::from(count)) as f32))
}

fn assert_close(name: &str, at: &[f64], got: f64, want: f64, row: &Row) {
    let allowed = row.tolerance().allowed(want.abs());
    let close = (got - want).abs() <= allowed || got == want || (got.is_nan() && want.is_nan());
    assert!(close, "{name}{at:?} = {got:e}, wanted {want:e}; allowed {allowed:e} ({})", row.name);
}

/// Functions of one argument, both widths: where, the oracle, and the tolerances.
macro_rules! close {
    ($($double:ident $single:ident $places:expr, $oracle:expr, $row64:ident $row32:ident;)*) => {$(
        for x in $places {
            let want: f64 = $oracle(x);
            // SAFETY: nothing is asked.
            let (double, single) = unsafe { (nv::$double(x), nv::$single(x as f32)) };
            assert_close(stringify!($double), &[x], double, want, &$row64);
            assert_close(stringify!($single), &[x], f64::from(single), want, &$row32);
        }
    )*};
}

#[test]
fn functions_that_std_has() {
    let wide = || between(-80.0, 80.0, 999);
    close! {
        acos acosf between(-1.0, 1.0, 999), f64::acos, INTRINSIC_F64 INTRINSIC_F32;
        acosh acoshf between(1.0, 90.0, 999), f64::acosh, INTRINSIC_F64 INTRINSIC_F32;
        asin asinf between(-1.0, 1.0, 999), f64::asin, INTRINSIC_F64 INTRINSIC_F32;
        asinh asinhf wide(), f64::asinh, INTRINSIC_F64 INTRINSIC_F32;
        atan atanf wide(), f64::atan, INTRINSIC_F64 INTRINSIC_F32;
        atanh atanhf between(-0.9, 0.9, 999), f64::atanh, INTRINSIC_F64 INTRINSIC_F32;
        cbrt cbrtf wide(), f64::cbrt, INTRINSIC_F64 INTRINSIC_F32;
        cos cosf wide(), f64::cos, INTRINSIC_F64 INTRINSIC_F32;
        cosh coshf wide(), f64::cosh, INTRINSIC_F64 INTRINSIC_F32;
        exp expf wide(), f64::exp, INTRINSIC_F64 INTRINSIC_F32;
        exp2 exp2f wide(), f64::exp2, INTRINSIC_F64 INTRINSIC_F32;
        exp10 exp10f between(-30.0, 30.0, 999), |x| 10f64.powf(x), INTRINSIC_F64 INTRINSIC_F32;
        expm1 expm1f between(-2.0, 20.0, 999), f64::exp_m1, INTRINSIC_F64 INTRINSIC_F32;
        log logf between(0.01, 90.0, 999), f64::ln, INTRINSIC_F64 INTRINSIC_F32;
        log10 log10f between(0.01, 90.0, 999), f64::log10, INTRINSIC_F64 INTRINSIC_F32;
        log1p log1pf between(-0.9, 9.0, 999), f64::ln_1p, INTRINSIC_F64 INTRINSIC_F32;
        log2 log2f between(0.01, 90.0, 999), f64::log2, INTRINSIC_F64 INTRINSIC_F32;
        rcbrt rcbrtf between(0.1, 90.0, 999), |x: f64| 1.0 / x.cbrt(), INTRINSIC_F64 INTRINSIC_F32;
        rsqrt rsqrtf between(0.1, 90.0, 999), |x: f64| 1.0 / x.sqrt(), INTRINSIC_F64 INTRINSIC_F32;
        sin sinf wide(), f64::sin, INTRINSIC_F64 INTRINSIC_F32;
        sinh sinhf wide(), f64::sinh, INTRINSIC_F64 INTRINSIC_F32;
        tan tanf wide(), f64::tan, INTRINSIC_F64 INTRINSIC_F32;
        tanh tanhf wide(), f64::tanh, INTRINSIC_F64 INTRINSIC_F32;
    }
}

#[test]
fn functions_that_std_lacks() {
    // Both are exact but for the product: folded into a quarter of a turn, where sine and cosine are steep.
    let sinpi = |x: f64| {
        let rest = x - 2.0 * (x / 2.0).round();
        let folded = if rest.abs() > 0.5 { rest.signum() - rest } else { rest };
        (folded * PI).sin()
    };
    close! {
        sinpi sinpif between(-9.0, 9.0, 999), sinpi, INTRINSIC_SPECIAL_F64 INTRINSIC_SPECIAL_F32;
        cospi cospif between(0.0, 9.0, 999), |x| sinpi(x + 0.5), INTRINSIC_SPECIAL_F64 INTRINSIC_SPECIAL_F32;
        erf erff between(-3.0, 3.0, 400), erf, INTRINSIC_SPECIAL_F64 INTRINSIC_SPECIAL_F32;
        erfc erfcf between(-3.0, 9.0, 400), erfc, INTRINSIC_SPECIAL_F64 INTRINSIC_SPECIAL_F32;
        erfcx erfcxf between(0.0, 20.0, 400), erfcx, INTRINSIC_SPECIAL_F64 INTRINSIC_SPECIAL_F32;
        normcdf normcdff between(-6.0, 6.0, 400), |x: f64| 0.5 * erfc(-x * FRAC_1_SQRT_2),
            INTRINSIC_SPECIAL_F64 INTRINSIC_SPECIAL_F32;
        tgamma tgammaf between(1.0, 20.0, 200), gamma, INTRINSIC_SPECIAL_F64 INTRINSIC_SPECIAL_F32;
        lgamma lgammaf between(3.0, 20.0, 200), |x| gamma(x).ln(), INTRINSIC_SPECIAL_F64 INTRINSIC_SPECIAL_F32;
        j0 j0f between(0.0, 30.0, 200), |x| bessel_j(0, x), INTRINSIC_BESSEL_F64 INTRINSIC_SPECIAL_F32;
        j1 j1f between(0.0, 30.0, 200), |x| bessel_j(1, x), INTRINSIC_BESSEL_F64 INTRINSIC_SPECIAL_F32;
        y0 y0f between(0.5, 30.0, 200), |x| bessel_y(0, x), INTRINSIC_BESSEL_F64 INTRINSIC_SPECIAL_F32;
        y1 y1f between(0.5, 30.0, 200), |x| bessel_y(1, x), INTRINSIC_BESSEL_F64 INTRINSIC_SPECIAL_F32;
    }
    for (n, x) in (0..6).flat_map(|n| between(6.0, 30.0, 40).map(move |x| (n, x))) {
        // SAFETY: nothing is asked.
        let (j, y) = unsafe {
            ([nv::jn(n, x), nv::jnf(n, x as f32) as f64], [nv::yn(n, x), nv::ynf(n, x as f32) as f64])
        };
        for (got, want) in [(j, bessel_j(n, x)), (y, bessel_y(n, x))] {
            assert_close("bessel", &[f64::from(n), x], got[0], want, &INTRINSIC_BESSEL_F64);
            assert_close("bessel", &[f64::from(n), x], got[1], want, &INTRINSIC_SPECIAL_F32);
        }
    }
    // SAFETY: nothing is asked.
    unsafe {
        assert!(
            nv::jn(-1, 1.0).is_nan() && nv::ynf(-2, 1.0).is_nan() && nv::nan(std::ptr::null_mut()).is_nan()
        );
    }
}

#[test]
fn inverses_of_the_error_function() {
    // From a place to the one where the error function is `y` exactly, along the slope: in a tail the
    // complement tells more.
    let solved = |x: f64, y: f64| {
        let beside = if y > 0.5 { (1.0 - y) - erfc(x) } else { erf(x) - y };
        x - beside / (FRAC_2_SQRT_PI * (-x * x).exp())
    };
    for y in between(-0.5, 0.999, 500).chain([1e-3f32, -1e-10, 1e-30].map(f64::from)) {
        // SAFETY: nothing is asked.
        let (inverse, single, complement, normal) = unsafe {
            (nv::erfinv(y), nv::erfinvf(y as f32), nv::erfcinv(1.0 - y), nv::normcdfinv(0.5 + y / 2.0))
        };
        assert_close("erfinv", &[y], inverse, solved(inverse, y), &INTRINSIC_SPECIAL_F64);
        assert_close("erfinvf", &[y], f64::from(single), solved(inverse, y), &INTRINSIC_SPECIAL_F32);
        let argument = 1.0 - (1.0 - y);
        assert_close("erfcinv", &[1.0 - y], complement, solved(complement, argument), &INTRINSIC_SPECIAL_F64);
        let (half, argument) = (normal * FRAC_1_SQRT_2, 2.0 * (0.5 + y / 2.0) - 1.0);
        let exact = solved(half, argument) / FRAC_1_SQRT_2;
        assert_close("normcdfinv", &[y], normal, exact, &INTRINSIC_SPECIAL_F64);
    }
    // SAFETY: nothing is asked.
    unsafe {
        assert_eq!((nv::erfinv(1.0), nv::erfinvf(-1.0)), (f64::INFINITY, f32::NEG_INFINITY));
        assert!(nv::erfinv(1.1).is_nan() && nv::erfinv(-0.0).is_sign_negative());
        assert!(
            (nv::normcdfinvf(0.975) - 1.959_964).abs() < 1e-6
                && (nv::erfcinvf(0.5) - 0.476_936_3).abs() < 1e-7
        );
    }
}

#[test]
fn functions_of_two_and_three() {
    for (x, y) in between(0.1, 9.0, 40).flat_map(|x| between(-5.0, 5.0, 30).map(move |y| (x, y))) {
        let (a, b) = (x as f32, y as f32);
        // SAFETY: nothing is asked.
        let results = unsafe {
            [
                ("atan2", nv::atan2(x, y), nv::atan2f(a, b), x.atan2(y)),
                ("hypot", nv::hypot(x, y), nv::hypotf(a, b), x.hypot(y)),
                ("pow", nv::pow(x, y), nv::powf(a, b), x.powf(y)),
                ("powi", nv::powi(x, y as i32), nv::powif(a, y as i32), x.powf(y.trunc())),
            ]
        };
        for (name, double, single, want) in results {
            assert_close(name, &[x, y], double, want, &INTRINSIC_F64);
            assert_close(name, &[x, y], f64::from(single), want, &INTRINSIC_F32);
        }
        // SAFETY: nothing is asked.
        unsafe {
            assert_eq!(nv::fmod(y, x), y % x);
            assert_eq!(nv::fmodf(b, a), b % a);
            assert_eq!(nv::fdim(x, y), (x - y).max(0.0));
            assert_eq!(nv::fdimf(a, b), (a - b).max(0.0));
            assert_eq!((nv::fmax(x, y), nv::fmin(x, y)), (x.max(y), x.min(y)));
            assert_eq!((nv::fmaxf(a, b), nv::fminf(a, b)), (a.max(b), a.min(b)));
            assert_eq!((nv::copysign(x, y), nv::copysignf(a, b)), (x.copysign(y), a.copysign(b)));
            assert_eq!((nv::fma(x, y, x), nv::fmaf(a, b, a)), (x.mul_add(y, x), a.mul_add(b, a)));
            let n = (y / x).round_ties_even();
            // The quotient is far from a half here, and the remainder exact.
            assert_eq!(nv::remainder(y, x), (-n).mul_add(x, y));
            let (mut quotient, mut single) = (0, 0);
            assert_eq!(nv::remquo(y, x, &mut quotient), nv::remainder(y, x));
            assert_eq!(nv::remquof(b, a, &mut single), nv::remainderf(b, a));
            assert_eq!((quotient & 7, single), (n as i32 & 7, quotient));
        }
    }
    // SAFETY: nothing is asked.
    unsafe {
        assert!(nv::fmax(-0.0, 0.0).is_sign_positive() && nv::fminf(0.0, -0.0).is_sign_negative());
        assert_eq!((nv::fmax(f64::NAN, 1.0), nv::fmin(1.0, f64::NAN)), (1.0, 1.0));
        assert_eq!((nv::fmod(1e300, 3.0), nv::fmodf(1e30, 7.0)), (1e300 % 3.0, 1e30 % 7.0));
        assert_eq!((nv::nextafter(1.0, 2.0), nv::nextafterf(1.0, 0.0)), (1f64.next_up(), 1f32.next_down()));
    }
}

#[test]
fn whole_numbers_and_parts() {
    let halves = (-40..40).map(|i| f64::from(i) * 0.25).chain([1e15 + 0.5, -1e30, 1e-30]);
    for x in halves {
        let single = x as f32;
        let (mut exponent, mut whole, mut exponents, mut wholes) = (0, 0.0, 0, 0.0f32);
        let (mut s, mut c) = (0.0, 0.0);
        let (mut ss, mut cs) = (0.0f32, 0.0f32);
        // SAFETY: the pointers are those of variables.
        unsafe {
            assert_eq!([nv::rint(x), nv::nearbyint(x)], [x.round_ties_even(); 2]);
            assert_eq!([nv::rintf(single), nv::nearbyintf(single)], [single.round_ties_even(); 2]);
            assert_eq!(
                [nv::floor(x), nv::ceil(x), nv::trunc(x), nv::round(x)],
                [x.floor(), x.ceil(), x.trunc(), x.round()]
            );
            assert_eq!(
                [nv::floorf(single), nv::ceilf(single), nv::truncf(single), nv::roundf(single)],
                [single.floor(), single.ceil(), single.trunc(), single.round()]
            );
            assert_eq!([nv::llrint(x), nv::llround(x)], [x.round_ties_even() as i64, x.round() as i64]);
            assert_eq!(
                [nv::llrintf(single), nv::llroundf(single)],
                [single.round_ties_even() as i64, single.round() as i64]
            );
            assert_eq!((nv::fabs(x), nv::fabsf(single)), (x.abs(), single.abs()));
            assert_eq!((nv::sqrt(x.abs()), nv::sqrtf(single.abs())), (x.abs().sqrt(), single.abs().sqrt()));

            let (m, ms) = (nv::frexp(x, &mut exponent), nv::frexpf(single, &mut exponents));
            assert!(x == 0.0 || (0.5..1.0).contains(&m.abs()));
            assert_eq!((nv::ldexp(m, exponent), nv::scalbn(m, exponent)), (x, x));
            assert_eq!((nv::ldexpf(ms, exponents), nv::scalbnf(ms, exponents)), (single, single));
            if x != 0.0 {
                assert_eq!((nv::ilogb(x), nv::logb(x)), (exponent - 1, f64::from(exponent - 1)));
            }
            assert_eq!((nv::modf(x, &mut whole) + whole, whole), (x, x.trunc()));
            assert_eq!((nv::modff(single, &mut wholes) + wholes, wholes), (single, single.trunc()));
            nv::sincos(x, &mut s, &mut c);
            assert_eq!((s, c), (nv::sin(x), nv::cos(x)));
            nv::sincosf(single, &mut ss, &mut cs);
            assert_eq!((ss, cs), (nv::sinf(single), nv::cosf(single)));
            nv::sincospi(x, &mut s, &mut c);
            assert_eq!((s, c), (nv::sinpi(x), nv::cospi(x)));
            nv::sincospif(single, &mut ss, &mut cs);
            assert_eq!((ss, cs), (nv::sinpif(single), nv::cospif(single)));
        }
    }
    // SAFETY: nothing is asked.
    unsafe {
        assert_eq!((nv::logbf(0.0), nv::logb(f64::NEG_INFINITY)), (f32::NEG_INFINITY, f64::INFINITY));
        assert_eq!([nv::ilogbf(8.0), nv::ilogb(0.0), nv::ilogbf(f32::INFINITY)], [3, i32::MIN, i32::MAX]);
        assert_eq!([nv::saturatef(-1.0), nv::saturatef(0.5), nv::saturatef(f32::NAN)], [0.0, 0.5, 0.0]);
    }
}

#[test]
fn fast_functions() {
    for x in between(0.05, 20.0, 400) {
        let single = x as f32;
        let (mut s, mut c) = (0.0, 0.0);
        // SAFETY: the pointers are those of variables.
        let results = unsafe {
            nv::fast_sincosf(single, &mut s, &mut c);
            [
                ("fast_expf", nv::fast_expf(single), x.exp(), x * LOG2_E),
                ("fast_exp10f", nv::fast_exp10f(single), 10f64.powf(x), x * LOG2_10),
                ("fast_logf", nv::fast_logf(single), x.ln(), 1.0),
                ("fast_log2f", nv::fast_log2f(single), x.log2(), 1.0),
                ("fast_log10f", nv::fast_log10f(single), x.ln() / LN_10, 1.0),
                ("fast_powf", nv::fast_powf(single, 1.5), x.powf(1.5), 1.5 * x.log2().abs()),
                ("fast_fdividef", nv::fast_fdividef(single, 3.0), x / 3.0, 1.0),
                ("fast_sinf", nv::fast_sinf(single), x.sin(), 1.0),
                ("fast_cosf", nv::fast_cosf(single), x.cos(), 1.0),
                ("fast_tanf", nv::fast_tanf(single), x.tan(), 1.0),
                ("fast_sincosf", s, x.sin(), 1.0),
                ("fast_sincosf", c, x.cos(), 1.0),
            ]
        };
        for (name, got, want, exponent) in results {
            let allowed = INTRINSIC_FAST.tolerance().allowed(want.abs()) * exponent.max(1.0);
            assert!((f64::from(got) - want).abs() <= allowed, "{name}({x}) = {got}, wanted {want}");
        }
    }
}

#[test]
fn integers_and_bits() {
    let corners = [0, 1, -1, 2, 7, -8, 0x1234_5678, 0x00ff_ffff, 0x0180_0000, i32::MAX, i32::MIN];
    for (x, y) in corners.into_iter().flat_map(|x| corners.map(|y| (x, y))) {
        let (wide_x, wide_y) = (i64::from(x) << 31 | 5, i64::from(y).wrapping_mul(0x1_0000_0007));
        let (ux, uy) = (x as u32, y as u32);
        let low = |x: i32| i64::from(x << 8 >> 8);
        // SAFETY: nothing is asked.
        unsafe {
            assert_eq!((nv::max(x, y), nv::min(x, y)), (x.max(y), x.min(y)));
            assert_eq!((nv::umax(x, y) as u32, nv::umin(x, y) as u32), (ux.max(uy), ux.min(uy)));
            assert_eq!(
                (nv::llmax(wide_x, wide_y), nv::llmin(wide_x, wide_y)),
                (wide_x.max(wide_y), wide_x.min(wide_y))
            );
            let (a, b) = (wide_x as u64, wide_y as u64);
            assert_eq!(
                (nv::ullmax(wide_x, wide_y) as u64, nv::ullmin(wide_x, wide_y) as u64),
                (a.max(b), a.min(b))
            );
            assert_eq!(i64::from(nv::hadd(x, y)), (i64::from(x) + i64::from(y)).div_euclid(2));
            assert_eq!(i64::from(nv::rhadd(x, y)), (i64::from(x) + i64::from(y) + 1).div_euclid(2));
            assert_eq!(nv::uhadd(x, y) as u32 as u64, (u64::from(ux) + u64::from(uy)) / 2);
            assert_eq!(nv::urhadd(x, y) as u32 as u64, (u64::from(ux) + u64::from(uy)).div_ceil(2));
            assert_eq!(nv::mul24(x, y), (low(x) * low(y)) as i32);
            assert_eq!(nv::umul24(x, y), (u64::from(ux & 0xff_ffff) * u64::from(uy & 0xff_ffff)) as i32);
            assert_eq!(nv::mulhi(x, y), ((i64::from(x) * i64::from(y)) >> 32) as i32);
            assert_eq!(nv::umulhi(x, y), ((u64::from(ux) * u64::from(uy)) >> 32) as i32);
            assert_eq!(nv::mul64hi(wide_x, wide_y), ((i128::from(wide_x) * i128::from(wide_y)) >> 64) as i64);
            assert_eq!(nv::umul64hi(wide_x, wide_y) as u64, ((u128::from(a) * u128::from(b)) >> 64) as u64);
            assert_eq!(nv::sad(x, y, 9) as u32, ((i64::from(x) - i64::from(y)).unsigned_abs() + 9) as u32);
            assert_eq!(nv::usad(x, y, 9) as u32, ((i64::from(ux) - i64::from(uy)).unsigned_abs() + 9) as u32);
            assert_eq!((nv::abs(x), nv::llabs(wide_x)), (x.wrapping_abs(), wide_x.abs()));
            assert_eq!((nv::brev(x), nv::brevll(wide_x)), (x.reverse_bits(), wide_x.reverse_bits()));
            assert_eq!(
                (nv::clz(x) as u32, nv::clzll(wide_x) as u32),
                (x.leading_zeros(), wide_x.leading_zeros())
            );
            assert_eq!(
                (nv::popc(x) as u32, nv::popcll(wide_x) as u32),
                (x.count_ones(), wide_x.count_ones())
            );
            let first = |word: i64| (0..64).find(|bit| word >> bit & 1 == 1).map_or(0, |bit| bit + 1);
            assert_eq!((nv::ffs(x), nv::ffsll(wide_y)), (first(i64::from(ux)), first(wide_y)));
            assert_eq!(nv::hiloint2double(x, y).to_bits(), u64::from(ux) << 32 | u64::from(uy));
            assert_eq!(
                (nv::double2hiint(nv::hiloint2double(x & 0xfffff, y)), nv::double2loint(f64::from_bits(a))),
                (x & 0xfffff, a as i32)
            );
            assert_eq!((nv::int2double_rn(x), nv::uint2double_rn(x)), (f64::from(x), f64::from(ux)));
        }
    }
    // SAFETY: nothing is asked.
    unsafe {
        assert_eq!(nv::byte_perm(0x3322_1100, 0x7766_5544, 0x7250), 0x7722_5500);
        assert_eq!(nv::byte_perm(0x3322_1100, 0x7766_5544, 0xfad8u32 as i32), 0x7722_5500);
        assert_eq!(
            (nv::float_as_int(-1.0), nv::int_as_float(0x3f80_0000)),
            ((-1.0f32).to_bits().cast_signed(), 1.0)
        );
        assert_eq!(nv::longlong_as_double(nv::double_as_longlong(0.1)), 0.1);
        assert_eq!((nv::float2half_rn(1.5), nv::half2float(0x3e00)), (0x3e00, 1.5));
        for (x, [finite, infinite, nan, negative]) in [
            (1.0, [1, 0, 0, 0]),
            (f64::NEG_INFINITY, [0, 1, 0, 1]),
            (f64::NAN, [0, 0, 1, 0]),
            (-0.0, [1, 0, 0, 1]),
        ] {
            assert_eq!(
                [nv::isfinited(x), nv::isinfd(x), nv::isnand(x), nv::signbitd(x)],
                [finite, infinite, nan, negative]
            );
            let x = x as f32;
            assert_eq!(
                [nv::finitef(x), nv::isinff(x), nv::isnanf(x), nv::signbitf(x)],
                [finite, infinite, nan, negative]
            );
        }
    }
}
