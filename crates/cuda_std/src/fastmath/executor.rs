//! The executor's arithmetic: full precision, rounded once; subnormal numbers flushed where the instruction
//! says `.ftz`.

use half::{bf16, f16};
use num::{Packed2, pack_x2, unpack_x2};

use crate::convert::{bf16_from_f32, f16_from_f32};

/// Zero with the sign of `x` in place of a subnormal number.
pub(crate) fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// Computes in f64, rounds to f32, flushes on both sides.
pub(super) fn approximate(x: f32, f: fn(f64) -> f64) -> f32 {
    flush(f(f64::from(flush(x))) as f32)
}

/// `a * b + c` as an f32 of which a further rounding to at most 16 bits gives the correctly rounded result.
///
/// Rounds to odd: a result that is not exact has its last bit set, so it is never taken for a tie.
pub(super) fn fma_to_odd(a: f32, b: f32, c: f32) -> f32 {
    // Exact: 24 and 24 bits fit in 53.
    let product = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = product + c;
    if !sum.is_finite() || sum == 0.0 {
        return sum as f32;
    }
    // The exact rounding error of the sum (Knuth's two-sum).
    let from_c = sum - product;
    let lost = (product - (sum - from_c)) + (c - from_c);
    let nearest = sum as f32;
    if !nearest.is_finite() {
        return nearest;
    }
    let excess = (f64::from(nearest) - sum) - lost;
    if excess == 0.0 || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // An even neighbour was chosen; the odd one lies on the other side of the exact value.
    let rounded_away = nearest != 0.0 && (excess > 0.0) == (nearest > 0.0);
    let magnitude = nearest.abs().to_bits();
    f32::from_bits(if rounded_away { magnitude - 1 } else { magnitude + 1 }).copysign(sum as f32)
}

/// A 16-bit float that the packed functions work on.
pub(super) trait Half: Packed2 {
    fn widen(self) -> f32;
    fn round(x: f32) -> Self;
}

impl Half for f16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn round(x: f32) -> Self {
        f16_from_f32(x)
    }
}

impl Half for bf16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }
    fn round(x: f32) -> Self {
        bf16_from_f32(x)
    }
}

pub(super) fn map1<T: Half>(x: u32, f: impl Fn(f32) -> f32) -> u32 {
    pack_x2(unpack_x2::<T>(x).map(|x| T::round(f(x.widen()))))
}

pub(super) fn map3<T: Half>(a: u32, b: u32, c: u32, f: impl Fn(f32, f32, f32) -> f32) -> u32 {
    let (a, b, c) = (unpack_x2::<T>(a), unpack_x2::<T>(b), unpack_x2::<T>(c));
    pack_x2([0, 1].map(|i| T::round(f(a[i].widen(), b[i].widen(), c[i].widen()))))
}

/// `a / b`, as the hardware computes it.
pub(super) fn divide(a: f32, b: f32) -> f32 {
    // The hardware multiplies by the reciprocal, which is flushed to zero for the largest divisors.
    const LARGEST_DIVISOR: f32 = f32::from_bits(0x7e80_0000);
    let (a, b) = (flush(a), flush(b));
    if b.abs() > LARGEST_DIVISOR && b.is_finite() {
        return a * 0f32.copysign(b);
    }
    flush(a / b)
}
