//! Full precision, rounded once; subnormal numbers flushed where the instruction says `.ftz`.

use half::{bf16, f16};
use num::{Packed2, pack_x2, unpack_x2};

use super::convert::{bf16_from_f32, f16_from_f32};

pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

pub fn fma_f64(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

pub fn min(a: f32, b: f32) -> f32 {
    // `f32::min` leaves the order of the zeros open.
    if a == b { f32::from_bits(a.to_bits() | b.to_bits()) } else { a.min(b) }
}

pub fn max(a: f32, b: f32) -> f32 {
    if a == b { f32::from_bits(a.to_bits() & b.to_bits()) } else { a.max(b) }
}

/// The NaN that f32 arithmetic of the GPU gives.
const CANONICAL_NAN: f32 = f32::from_bits(0x7fff_ffff);

pub fn min_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { CANONICAL_NAN } else { min(a, b) }
}

pub fn max_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() { CANONICAL_NAN } else { max(a, b) }
}

/// Zero with the sign of `x` in place of a subnormal number.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// Computes in f64, rounds to f32, flushes on both sides.
fn approximate(x: f32, f: fn(f64) -> f64) -> f32 {
    flush(f(f64::from(flush(x))) as f32)
}

pub fn ex2_approx(x: f32) -> f32 {
    approximate(x, f64::exp2)
}

pub fn lg2_approx(x: f32) -> f32 {
    approximate(x, f64::log2)
}

pub fn rcp_approx(x: f32) -> f32 {
    approximate(x, f64::recip)
}

pub fn div_approx(a: f32, b: f32) -> f32 {
    // The hardware multiplies by the reciprocal, which is flushed to zero for the largest divisors.
    const LARGEST_DIVISOR: f32 = f32::from_bits(0x7e80_0000);
    let (a, b) = (flush(a), flush(b));
    if b.abs() > LARGEST_DIVISOR && b.is_finite() {
        return a * 0f32.copysign(b);
    }
    flush(a / b)
}

pub fn rsqrt_approx(x: f32) -> f32 {
    approximate(x, |x| x.sqrt().recip())
}

pub fn sqrt_approx(x: f32) -> f32 {
    approximate(x, f64::sqrt)
}

pub fn sin_approx(x: f32) -> f32 {
    approximate(x, f64::sin)
}

pub fn cos_approx(x: f32) -> f32 {
    approximate(x, f64::cos)
}

pub fn tanh_approx(x: f32) -> f32 {
    f64::from(x).tanh() as f32
}

/// `a * b + c` as an f32 of which a further rounding to at most 16 bits gives the correctly rounded result.
///
/// Rounds to odd: a result that is not exact has its last bit set, so it is never taken for a tie.
fn fma_to_odd(a: f32, b: f32, c: f32) -> f32 {
    // Exact: 24 and 24 bits fit in 53.
    let product = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = product + c;
    if !sum.is_finite() || sum == 0.0 {
        return sum as f32;
    }
    // What the sum lost, exactly (Knuth's two-sum).
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
trait Half: Packed2 {
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

fn map1<T: Half>(x: u32, f: impl Fn(f32) -> f32) -> u32 {
    pack_x2(unpack_x2::<T>(x).map(|x| T::round(f(x.widen()))))
}

fn map3<T: Half>(a: u32, b: u32, c: u32, f: impl Fn(f32, f32, f32) -> f32) -> u32 {
    let (a, b, c) = (unpack_x2::<T>(a), unpack_x2::<T>(b), unpack_x2::<T>(c));
    pack_x2([0, 1].map(|i| T::round(f(a[i].widen(), b[i].widen(), c[i].widen()))))
}

macro_rules! packed {
    ($ty:ty: $add:ident, $sub:ident, $mul:ident, $fma:ident, $min:ident, $max:ident, $max_nan:ident, $tanh:ident) => {
        pub fn $add(a: u32, b: u32) -> u32 {
            map3::<$ty>(a, b, b, |a, b, _| fma_to_odd(a, 1.0, b))
        }

        pub fn $sub(a: u32, b: u32) -> u32 {
            map3::<$ty>(a, b, b, |a, b, _| fma_to_odd(b, -1.0, a))
        }

        pub fn $mul(a: u32, b: u32) -> u32 {
            map3::<$ty>(a, b, b, |a, b, _| fma_to_odd(a, b, -0.0))
        }

        pub fn $fma(a: u32, b: u32, c: u32) -> u32 {
            map3::<$ty>(a, b, c, fma_to_odd)
        }

        pub fn $min(a: u32, b: u32) -> u32 {
            map3::<$ty>(a, b, b, |a, b, _| min(a, b))
        }

        pub fn $max(a: u32, b: u32) -> u32 {
            map3::<$ty>(a, b, b, |a, b, _| max(a, b))
        }

        pub fn $max_nan(a: u32, b: u32) -> u32 {
            map3::<$ty>(a, b, b, |a, b, _| max_nan(a, b))
        }

        pub fn $tanh(x: u32) -> u32 {
            map1::<$ty>(x, f32::tanh)
        }
    };
}

packed!(
    f16: add_f16x2, sub_f16x2, mul_f16x2, fma_f16x2, min_f16x2, max_f16x2, max_nan_f16x2, tanh_approx_f16x2
);
packed!(
    bf16: add_bf16x2, sub_bf16x2, mul_bf16x2, fma_bf16x2, min_bf16x2, max_bf16x2, max_nan_bf16x2, tanh_approx_bf16x2
);

pub fn ex2_approx_f16x2(x: u32) -> u32 {
    map1::<f16>(x, f32::exp2)
}

pub fn ex2_approx_bf16x2(x: u32) -> u32 {
    // bf16 has f32's exponents, so flushing the f32 flushes the bf16.
    map1::<bf16>(x, ex2_approx)
}
