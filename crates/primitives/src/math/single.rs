//! Functions of f32, exact to a few units in the last place for every argument, subnormal numbers included.
//!
//! `libm` is as exact and many times slower. The hardware's approximations flush subnormal numbers to zero
//! and lose digits near zeros.

use core::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};
use cuda_std::GpuFloat;
use cuda_std::fastmath::{ex2_approx, fma, max, max_nan, min_nan, rcp_approx};

pub use super::power::single as powf;

/// Adding and subtracting it leaves the nearest integer, ties to even, of numbers below 2^22. The last bits
/// of the sum count integers.
pub(super) const ROUNDER: f32 = 12_582_912.0;
/// Bits of the mantissa.
pub(super) const MANTISSA_BITS: u32 = 23;
/// Exponent of 1 as it is stored.
const BIAS: i32 = 127;

/// The nearest integer, ties to even.
#[inline(always)]
pub fn round(x: f32) -> f32 {
    /// From here on every f32 is an integer.
    const INTEGERS: f32 = 8_388_608.0;
    let rounded = x.abs() + INTEGERS - INTEGERS;
    if x.abs() < INTEGERS { rounded.copysign(x) } else { x }
}

/// A polynomial in `x`, the coefficient of its highest power first.
#[inline(always)]
pub fn horner<const N: usize>(coefficients: &[f32; N], x: f32) -> f32 {
    let mut sum = coefficients[0];
    for i in 1..N {
        sum = fma(sum, x, coefficients[i]);
    }
    sum
}

/// `2^n` for `-126 <= n <= 127`.
#[inline(always)]
pub(super) fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + BIAS) as u32) << MANTISSA_BITS)
}

/// `e^x`, computed as the square of `e^(x / 2)`.
///
/// `e^(x / 2)` is never subnormal, so the hardware flushes nothing. The last multiplication rounds a
/// subnormal result.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Beyond it the result is infinity.
    const END: f32 = 90.0;
    exp_below_90(min_nan(x, END))
}

/// [`exp`] of numbers that are not above 90.
#[inline(always)]
fn exp_below_90(x: f32) -> f32 {
    /// Below it the result is 0.
    const START: f32 = -105.0;
    /// `2 ln 2` in two parts.
    const HIGH: f32 = 2.0 * LN_2;
    const LOW: f32 = (2.0 * (core::f64::consts::LN_2 - LN_2 as f64)) as f32;
    let x = max_nan(x, START);
    let half = x * (0.5 * LOG2_E);
    // The rounding error of the exponent, as an exponent of e. It is so small that e^rest is 1 + rest.
    let rest = fma(half, -LOW, fma(half, -HIGH, x));
    let power = ex2_approx(half);
    power * fma(power, rest, power)
}

/// Natural logarithm: `e ln 2 + ln m` with `m` from `sqrt(1/2)` to `sqrt 2`.
///
/// `ln m = 2 artanh((m - 1) / (m + 1))` comes from its series.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    /// Brings subnormal numbers into the normal range.
    const LIFT: i32 = 24;
    let (lifted, down) = if x < f32::MIN_POSITIVE { (x * power_of_two(LIFT), LIFT) } else { (x, 0) };
    // Subtracting the bits of sqrt(1/2) makes the exponent's field that of m's range.
    let field = lifted.to_bits().wrapping_sub(FRAC_1_SQRT_2.to_bits()).cast_signed() >> MANTISSA_BITS;
    let m = f32::from_bits(lifted.to_bits().wrapping_sub((field << MANTISSA_BITS).cast_unsigned()));
    let s = (m - 1.0) * rcp_approx(m + 1.0);
    let z = s * s;
    let series = horner(&[2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0], z);
    // The series' first term, 2 s, is the only one that needs all of its digits.
    let result = fma((field - down) as f32, LN_2, fma(s * z, series, 2.0 * s));
    if x > 0.0 && x < f32::INFINITY {
        result
    } else if x == 0.0 {
        f32::NEG_INFINITY
    } else if x < 0.0 {
        f32::NAN
    } else {
        x
    }
}

/// Hyperbolic tangent: its series near 0, else by `e^(2 |x|)`.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    /// Coefficients of x^15 down to x^3.
    const SERIES: [f32; 7] = [
        (-929_569.0 / 638_512_875.0f64) as f32,
        (21_844.0 / 6_081_075.0f64) as f32,
        (-1_382.0 / 155_925.0f64) as f32,
        (62.0 / 2_835.0f64) as f32,
        (-17.0 / 315.0f64) as f32,
        (2.0 / 15.0f64) as f32,
        (-1.0 / 3.0f64) as f32,
    ];
    let magnitude = x.abs();
    if magnitude < 0.5 {
        let z = x * x;
        let sum = horner(&SERIES, z);
        return fma(sum * z, x, x);
    }
    let result = fma(-2.0, rcp_approx(exp(2.0 * magnitude) + 1.0), 1.0);
    result.copysign(x)
}

/// `1 / (1 + e^-x)`, to full relative accuracy also where it is near 0.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    let power = exp_below_90(-x.abs());
    let above = rcp_approx(1.0 + power);
    if x < 0.0 { power * above } else { above }
}

/// `x s(x)` for a function `s` with `s(x) + s(-x) = 1`, to full relative accuracy also where `s(x)` is near
/// 0.
///
/// Computed as `max(x, 0) - |x| s(-|x|)`. `below` is `s` for arguments that are not positive. Arguments below
/// `start` are taken as `start`, where `x s(x)` rounds to 0: for minus infinity the product would be NaN.
#[inline(always)]
pub fn gated(x: f32, start: f32, below: impl Fn(f32) -> f32) -> f32 {
    // An instruction takes the magnitude or the negative of an operand at no cost.
    let magnitude = min_nan(x.abs(), -start);
    fma(-magnitude, below(-magnitude), max(x, 0.0))
}

/// Coefficients of the polynomial `P` of [`erfc`], the highest power first.
///
/// `erfc(z) = e^(-z^2) t P(t)` with `t = 2 / (2 + z)`. `P` is fitted to `0 <= z <= 10.2`; its largest
/// relative error is 1.3e-7.
pub(crate) const ERFC: [f32; 9] = [
    -0.059_842_702,
    0.288_369_8,
    -0.495_058_24,
    0.286_999_55,
    -0.032_689_158,
    0.205_189_35,
    0.242_494_26,
    0.282_454_97,
    0.282_082_17,
];

/// `1 - erf(z + low)` for `z >= 0` and a `low` smaller than the last digit of `z`, by [`ERFC`].
#[inline(always)]
fn erfc(z: f32, low: f32) -> f32 {
    /// Beyond it the result is 0.
    const END: f32 = 10.2;
    let z = min_nan(z, END);
    let t = rcp_approx(fma(z, 0.5, 1.0));
    let fit = horner(&ERFC, t);
    let square = z * z;
    // Where e^(-z^2) is small, its relative error is z^2 times that of z.
    let lost = fma(2.0 * z, low, fma(z, z, -square));
    let power = exp_below_90(-square);
    fma(power, -lost, power) * t * fit
}

/// Error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    /// `2 / sqrt(pi)` over `n! (2 n + 1)`, signs alternating, for n = 6 down to 0.
    const SERIES: [f32; 7] = {
        const FACTOR: f64 = core::f64::consts::FRAC_2_SQRT_PI;
        [
            (FACTOR / 9360.0) as f32,
            (-FACTOR / 1320.0) as f32,
            (FACTOR / 216.0) as f32,
            (-FACTOR / 42.0) as f32,
            (FACTOR / 10.0) as f32,
            (-FACTOR / 3.0) as f32,
            FACTOR as f32,
        ]
    };
    let magnitude = x.abs();
    if magnitude < 0.5 {
        let z = x * x;
        return horner(&SERIES, z) * x;
    }
    (1.0 - erfc(magnitude, 0.0)).copysign(x)
}

/// The cumulative distribution function of the standard normal distribution for `x <= 0`: `(1 + erf(x / sqrt
/// 2)) / 2`.
#[inline(always)]
pub fn normal_cdf_below_0(x: f32) -> f32 {
    /// The digits of `1 / sqrt 2` beyond f32.
    const LOW: f32 = 1.210_161_8e-8;
    let z = x * -FRAC_1_SQRT_2;
    0.5 * erfc(z, fma(x, -LOW, fma(x, -FRAC_1_SQRT_2, -z)))
}

/// GELU: `x / 2 (1 + erf(x / sqrt 2))`, to full relative accuracy also in its tail.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    gated(x, -15.0, normal_cdf_below_0)
}

/// The factor of `x^3` in [`gelu_tanh`].
pub const CUBIC: f32 = 0.044_715;
/// `2 sqrt(2 / pi)`.
pub const TWICE_ROOT: f32 = (core::f64::consts::FRAC_2_SQRT_PI * core::f64::consts::SQRT_2) as f32;

/// The tanh approximation of [`gelu`]: `x / 2 (1 + tanh(u))` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`.
///
/// Computed as `x sigmoid(2 u)`, which is the same.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    gated(x, -12.0, |x| sigmoid_below_0(TWICE_ROOT * fma(CUBIC * x * x, x, x)))
}

/// SiLU: `x sigmoid(x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    gated(x, -128.0, sigmoid_below_0)
}

/// [`sigmoid`] for `x <= 0`.
#[inline(always)]
fn sigmoid_below_0(x: f32) -> f32 {
    let power = exp_below_90(x);
    power * rcp_approx(1.0 + power)
}

/// `sin(x + quarter pi / 2)`: the sine of radians for `quarter` 0, the cosine for 1.
#[inline(always)]
pub fn sin_plus_quarters(x: f32, quarter: i32) -> f32 {
    /// Coefficients of r^11 down to r^3 of the sine, and of r^12 down to 1 of the cosine.
    const SIN: [f32; 5] = [
        (-1.0 / 39_916_800.0f64) as f32,
        (1.0 / 362_880.0f64) as f32,
        (-1.0 / 5_040.0f64) as f32,
        (1.0 / 120.0f64) as f32,
        (-1.0 / 6.0f64) as f32,
    ];
    const COS: [f32; 7] = [
        (1.0 / 479_001_600.0f64) as f32,
        (-1.0 / 3_628_800.0f64) as f32,
        (1.0 / 40_320.0f64) as f32,
        (-1.0 / 720.0f64) as f32,
        (1.0 / 24.0f64) as f32,
        -0.5,
        1.0,
    ];
    let (turn, r) = quarters(x);
    let turn = turn.wrapping_add(quarter);
    let z = r * r;
    let sin = fma(horner(&SIN, z) * z, r, r);
    let cos = horner(&COS, z);
    let value = if turn & 1 == 0 { sin } else { cos };
    if turn & 2 == 0 { value } else { -value }
}

/// `x` as a number of quarter turns (modulo 4) and a rest of at most an eighth turn, in radians.
///
/// The rest is NaN where `x` is not finite.
#[inline(always)]
fn quarters(x: f32) -> (i32, f32) {
    /// Below it three parts of pi / 2, whose products are exact, suffice.
    const NEAR: f32 = 20_000.0;
    /// `pi / 2` as a sum. The first two parts have few digits.
    const PARTS: [f32; 3] = [1.570_312_5, 4.837_513e-4, 7.549_79e-8];
    if x.abs() < NEAR {
        let n = fma(x, core::f32::consts::FRAC_2_PI, ROUNDER) - ROUNDER;
        let rest = fma(n, -PARTS[2], fma(n, -PARTS[1], fma(n, -PARTS[0], x)));
        return (n as i32, rest);
    }
    if !x.is_finite() {
        return (0, f32::NAN);
    }
    far_quarters(x)
}

/// [`quarters`] for large `x`, by the method of Payne and Hanek: multiplies the mantissa by the bits of `2 /
/// pi` that matter.
///
/// It is not inlined, since it is long and seldom needed.
#[inline(never)]
fn far_quarters(x: f32) -> (i32, f32) {
    /// A word of zeros, then the digits of `2 / pi` after the point.
    const TWO_OVER_PI: [u32; 8] =
        [0, 0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041, 0xfe51_63ab];
    let bits = x.to_bits();
    let mantissa = u64::from(bits & ((1 << MANTISSA_BITS) - 1) | 1 << MANTISSA_BITS);
    let exponent = (bits >> MANTISSA_BITS & 0xff) as i32 - BIAS - MANTISSA_BITS as i32;
    // Bits of weight 4 and more give whole turns. The first bit that is kept has weight 2.
    let first = (u32::BITS as i32 + exponent - 2).cast_unsigned();
    let word = |i: u32| {
        let at = (first / u32::BITS + i) as usize;
        let digits = |at: usize| u64::from(TWO_OVER_PI.get(at).copied().unwrap_or(0));
        ((digits(at) << u32::BITS | digits(at + 1)) >> (u32::BITS - first % u32::BITS)) as u32
    };
    // The product modulo 4: 2 bits before the point, 94 behind.
    let low = mantissa * u64::from(word(2));
    let middle = mantissa * u64::from(word(1)) + (low >> u32::BITS);
    let high = (mantissa as u32).wrapping_mul(word(0)).wrapping_add((middle >> u32::BITS) as u32);
    let turns = u64::from(high) << u32::BITS | middle & u64::from(u32::MAX);
    let fraction = turns << 2 | (low & u64::from(u32::MAX)) >> 30;
    // As a signed number the fraction is the distance from the nearest quarter.
    let turn = (turns >> 62) as i32 + (fraction >> 63) as i32;
    let rest =
        fraction.cast_signed() as f32 * (core::f64::consts::FRAC_PI_2 / 18_446_744_073_709_551_616.0) as f32;
    if x < 0.0 { (-turn, -rest) } else { (turn, rest) }
}

/// `1 / sqrt(x)`.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    1.0 / GpuFloat::sqrt(x)
}
