//! The executor's rounding in a given direction: the processor rounds to nearest, and exact arithmetic says
//! on which side of that the true value lies.

use std::cmp::Ordering;

/// Where a result that is not exact goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Down,
    Nearest,
    Up,
    Zero,
}

/// A float and its neighbours.
pub trait Neighbours: Copy + Into<f64> {
    fn above(self) -> Self;
    fn below(self) -> Self;
    const NEGATIVE_ZERO: Self;
}

macro_rules! neighbours {
    ($($ty:ident)*) => {$(
        impl Neighbours for $ty {
            fn above(self) -> $ty {
                self.next_up()
            }
            fn below(self) -> $ty {
                self.next_down()
            }
            const NEGATIVE_ZERO: $ty = -0.0;
        }
    )*};
}

neighbours!(f32 f64);

/// The exact value, the sum of all `a * b` of `terms` over `divisor`, rounded in a direction; `nearest` is
/// that value to nearest.
pub fn directed<T: Neighbours, W: Copy + Into<f64>>(
    nearest: T,
    terms: &[(W, W)],
    divisor: W,
    direction: Direction,
) -> T {
    let (result, divisor): (f64, f64) = (nearest.into(), divisor.into());
    let terms: Vec<(f64, f64)> = terms.iter().map(|&(a, b)| (a.into(), b.into())).collect();
    let finite = terms.iter().all(|(a, b)| a.is_finite() && b.is_finite()) && divisor.is_finite();
    if direction == Direction::Nearest
        || result.is_nan()
        || !finite
        || (result.is_infinite() && divisor == 0.0)
    {
        return nearest;
    }
    let side = if result.is_infinite() {
        // Too large for the format, and yet finite.
        0.0.partial_cmp(&result).unwrap_or(Ordering::Equal)
    } else {
        let beside = sign_of_sum(terms.iter().copied().chain([(-result, divisor)]));
        if divisor < 0.0 { beside.reverse() } else { beside }
    };
    let signs: Vec<bool> = terms.iter().map(|(a, b)| (a * b).is_sign_negative()).collect();
    if side == Ordering::Equal {
        // Numbers that cancel give +0, but -0 when rounding goes down.
        let cancels = result == 0.0 && signs.contains(&true) && signs.contains(&false);
        return if cancels && direction == Direction::Down { T::NEGATIVE_ZERO } else { nearest };
    }
    // A result of 0 has the sign of what it was rounded from.
    let down = direction == Direction::Down || (direction == Direction::Zero && !result.is_sign_negative());
    match side {
        Ordering::Less if down => nearest.below(),
        Ordering::Greater if !down => nearest.above(),
        _ => nearest,
    }
}

/// Words of a sum of products of two f64: bit 0 counts 2^-2148, the product of the smallest numbers.
const WORDS: usize = 66;

/// The sign of the sum of products, exact.
fn sign_of_sum(terms: impl Iterator<Item = (f64, f64)>) -> Ordering {
    let (mut positive, mut negative) = ([0u64; WORDS], [0u64; WORDS]);
    for (a, b) in terms {
        let ((a, at), (b, bt)) = (parts(a), parts(b));
        let (sum, shift) = (if a.0 == b.0 { &mut positive } else { &mut negative }, at + bt);
        let product = u128::from(a.1) * u128::from(b.1);
        let (word, bits) = (shift / 64, shift % 64);
        let low = product << bits;
        let high = if bits == 0 { 0 } else { (product >> (128 - bits)) as u64 };
        let mut carry = 0u128;
        let pieces = [low as u64, (low >> 64) as u64, high].into_iter().chain(std::iter::repeat(0));
        for (place, piece) in sum[word..].iter_mut().zip(pieces) {
            let total = u128::from(*place) + u128::from(piece) + carry;
            *place = total as u64;
            carry = total >> 64;
        }
    }
    positive.iter().rev().cmp(negative.iter().rev())
}

/// Sign and mantissa, and the exponent counted from the smallest number's: `x = m * 2^(e - 1074)`.
fn parts(x: f64) -> ((bool, u64), usize) {
    const MANTISSA: u32 = f64::MANTISSA_DIGITS - 1;
    let bits = x.to_bits();
    let (exponent, fraction) = ((bits >> MANTISSA) as usize & 0x7ff, bits & ((1 << MANTISSA) - 1));
    let mantissa = if exponent == 0 { fraction } else { fraction | 1 << MANTISSA };
    ((x.is_sign_negative(), mantissa), exponent.max(1) - 1)
}
