//! Powers with C's special values: `|x|^y = 2^(y log2 |x|)`, and a sign.
//!
//! | | `log2 m`, `m` from `sqrt(1/2)` to `sqrt 2` | digits |
//! |---|---|---|
//! | [`single`] | `2 artanh((m - 1) / (m + 1)) / ln 2`, as a sum of two f32 | some 30 bits |
//! | [`reduced`] | a polynomial | 23 bits |
//!
//! The exponent multiplies the logarithm's error, by up to 2^7. Kernels that called `libm` took 1.9 times as
//! long in f32 and 3.7 times in bf16 (H200, `benches/NOTES.md`).

use core::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};
use cuda_std::fastmath::{ex2_approx, fma, max_nan, min_nan, rcp_approx};

use super::single::{MANTISSA_BITS, ROUNDER, horner, power_of_two};

/// `x^y`, to two units in the last place, and powers that are small integers exactly.
#[inline(always)]
pub fn single(x: f32, y: f32) -> f32 {
    /// The result is 0 or infinity there.
    const END: f32 = 252.0;
    let [log, rest] = log2_in_two(x.abs());
    let product = y * log;
    let exponent = max_nan(min_nan(product, END), -END);
    let rest = fma(y, rest, fma(y, log, -product));
    let rest = if exponent.abs() < END { rest } else { 0.0 };
    special(x, y, exp2(exponent, rest))
}

/// `2^(exponent + rest)` for an exponent of at most 252 in magnitude, and less of a rest than a unit in its
/// last place.
#[inline(always)]
fn exp2(exponent: f32, rest: f32) -> f32 {
    /// `(2^f - 1) / f` at Chebyshev's nodes; the largest relative error of `2^f` is 2^-28.7.
    const FIT: [f32; 7] =
        [1.529_732_4e-5, 1.546_144_5e-4, 1.333_350_2e-3, 9.618_057e-3, 0.055_504_11, 0.240_226_5, LN_2];
    let counted = exponent + ROUNDER;
    let whole = counted.to_bits().wrapping_sub(ROUNDER.to_bits()).cast_signed();
    let f = (exponent - (counted - ROUNDER)) + rest;
    // In two factors: each is a normal number or 0, and the last multiplication rounds a subnormal result.
    let half = whole >> 1;
    fma(f, horner(&FIT, f), 1.0) * power_of_two(half) * power_of_two(whole.wrapping_sub(half))
}

/// `x^y` for results that are rounded to 16 bits: a relative error of at most 2^-16.
#[inline(always)]
pub fn reduced(x: f32, y: f32) -> f32 {
    let power = ex2_approx(0.5 * (y * log2(x.abs())));
    special(x, y, power * power)
}

/// The power of `|x|`, with the sign of that of `x`, and the cases that no logarithm tells of.
#[inline(always)]
fn special(x: f32, y: f32, power: f32) -> f32 {
    let (is_integer, is_odd) = parity(y);
    let is_negative = x.is_sign_negative();
    // `|` and `&` everywhere: a branch would part an element's instructions from the next one's.
    let is_one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (y.abs() == f32::INFINITY));
    // Zeros and infinities have powers that are not integers, of either sign.
    let has_none = !is_integer & (x < 0.0) & (x > f32::NEG_INFINITY);
    let signed = if is_negative & is_odd { -power } else { power };
    let kept = if has_none { f32::NAN } else { signed };
    if is_one { 1.0 } else { kept }
}

/// Whether it is an integer, and an odd one. NaN is said to be an even one.
#[inline(always)]
fn parity(y: f32) -> (bool, bool) {
    /// From here on every f32 is an integer; from its double on an even one.
    const INTEGERS: f32 = 8_388_608.0;
    let magnitude = y.abs();
    let has_bits = magnitude < INTEGERS;
    // The last bit is that of the nearest integer.
    let nearest = if has_bits { magnitude + INTEGERS } else { magnitude };
    let is_integer = !has_bits | (nearest - INTEGERS == magnitude);
    let is_odd = is_integer & (magnitude < 2.0 * INTEGERS) & (nearest.to_bits() & 1 == 1);
    (is_integer, is_odd)
}

/// `x = 2^e m` with `m` from `sqrt(1/2)` to `sqrt 2`, of a positive finite number: `m - 1` and `e`.
#[inline(always)]
fn parts(x: f32) -> (f32, f32) {
    /// Brings subnormal numbers into the normal range.
    const LIFT: i32 = 24;
    let (lifted, down) = if x < f32::MIN_POSITIVE { (x * power_of_two(LIFT), LIFT) } else { (x, 0) };
    let field = lifted.to_bits().wrapping_sub(FRAC_1_SQRT_2.to_bits()).cast_signed() >> MANTISSA_BITS;
    let m = f32::from_bits(lifted.to_bits().wrapping_sub((field << MANTISSA_BITS).cast_unsigned()));
    let counted = ROUNDER.to_bits().cast_signed().wrapping_add(field.wrapping_sub(down));
    (m - 1.0, f32::from_bits(counted.cast_unsigned()) - ROUNDER)
}

/// `log` where `x` is positive and finite; else the logarithm of 0, infinity or NaN.
#[inline(always)]
fn log_or_special(x: f32, log: f32) -> f32 {
    let beyond = if x == 0.0 { f32::NEG_INFINITY } else { x };
    if (x > 0.0) & (x < f32::INFINITY) { log } else { beyond }
}

/// `log2 x` for `x` that is not negative.
#[inline(always)]
fn log2(x: f32) -> f32 {
    /// `log2(1 + f) / f` at Chebyshev's nodes; the largest relative error is 2^-24.5.
    const FIT: [f32; 9] = [
        0.123_109_68,
        -0.205_861_88,
        0.216_078_22,
        -0.239_169_88,
        0.287_903_25,
        -0.360_693_28,
        0.480_910_75,
        -0.721_347_45,
        LOG2_E,
    ];
    let (f, e) = parts(x);
    log_or_special(x, fma(f, horner(&FIT, f), e))
}

/// The same as a sum of two numbers, the second one below a unit in the last place of the first.
#[inline(always)]
fn log2_in_two(x: f32) -> [f32; 2] {
    /// `2 / ln 2` in two parts.
    const FACTOR: f64 = 2.0 / core::f64::consts::LN_2;
    const HIGH: f32 = FACTOR as f32;
    const LOW: f32 = (FACTOR - HIGH as f64) as f32;
    let (f, e) = parts(x);
    let inverse = rcp_approx(f + 2.0);
    let q = f * inverse;
    // Of `f / (f + 2)`, `q` lacks the remainder, which is exact, over the divisor.
    let missing = inverse * fma(-q, f, fma(-2.0, q, f));
    let z = q * q;
    let series = horner(&[1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0], z);
    // The series' first term, q, is the only one that needs more than an f32's digits.
    let others = fma(q, z * series, fma(missing, z, missing));
    let sum = q + others;
    let lost = others - (sum - q);
    let product = sum * HIGH;
    let lost = fma(lost, HIGH, fma(sum, LOW, fma(sum, HIGH, -product)));
    let log = e + product;
    let rest = ((e - log) + product) + lost;
    [log_or_special(x, log), rest]
}

#[cfg(test)]
mod tests {
    use super::{reduced, single};

    /// Bases and exponents of all magnitudes whose powers are f32.
    fn pairs() -> impl Iterator<Item = (f32, f32)> {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / f64::from(1u32 << 31)
        };
        (0..400_000).map(move |i| {
            let wide = [0.01, 1.0, 20.0, 148.0][i % 4];
            let x = ((random() * 2.0 - 1.0) * wide).exp2() as f32;
            // An exponent of 2 of up to 148 for the result.
            let y = ((random() * 2.0 - 1.0) * 148.0 / f64::from(x).log2()) as f32;
            (x, y)
        })
    }

    /// The largest relative error, of results that are no subnormal numbers.
    fn worst(power: fn(f32, f32) -> f32) -> f64 {
        let error = |(x, y): (f32, f32)| {
            let want = f64::from(x).powf(f64::from(y));
            let is_normal = want.abs() > 1e-37 && want.abs() < 3e38;
            if is_normal { (f64::from(power(x, y)) / want - 1.0).abs() } else { 0.0 }
        };
        pairs().map(error).fold(0.0, f64::max)
    }

    #[test]
    fn powers_are_as_exact_as_they_say() {
        let units = worst(single) * f64::from(1u32 << 24);
        assert!(units < 4.0, "{units} half units in the last place");
        let parts = worst(reduced) * 65_536.0;
        assert!(parts < 1.0, "{parts} / 2^16");
    }

    #[test]
    fn small_powers_are_exact() {
        for (base, exponent) in (2..=9).flat_map(|base| (-3..=5).map(move |exponent| (base, exponent))) {
            let (x, y) = (base as f32, exponent as f32);
            assert_eq!([single(x, y), single(-x, y)], [x, -x].map(|x| x.powi(exponent)), "{x} ^ {y}");
        }
    }

    /// All pairs of corners, and exponents around 2^23 and 2^24, where f32 ends to have odd numbers.
    #[test]
    fn special_values_are_those_of_c() {
        let own =
            [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 1e-40, 1e30, f32::INFINITY, f32::NAN, 8_388_607.0, 8_388_609.0];
        let own = own.into_iter().chain([16_777_214.0, 16_777_215.0, 16_777_216.0, 4_194_303.5, 3e9]);
        let corners: Vec<f32> = own.flat_map(|v| [v, -v]).collect();
        for (&x, &y) in corners.iter().flat_map(|x| corners.iter().map(move |y| (x, y))) {
            let want = x.powf(y);
            for got in [single(x, y), reduced(x, y)] {
                let is_alike = got.is_nan() && want.is_nan()
                    || got == want && got.is_sign_negative() == want.is_sign_negative()
                    || (got - want).abs() <= want.abs() * 1.6e-5 + f32::from_bits(1);
                assert!(is_alike, "{x} ^ {y}: {got}, not {want}");
            }
        }
    }
}
