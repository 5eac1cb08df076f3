//! The types that reductions are computed in.

use crate::access::{Words, from_words};
use crate::element::Element;
use cuda_std::warp::WarpShuffleValue;
use cuda_std::{convert, fastmath};
use half::{bf16, f16};

/// A type that sums, products and maxima are computed in.
pub trait Number: Copy + PartialOrd + WarpShuffleValue {
    /// Changes no sum.
    const ZERO: Self;
    /// Changes no product.
    const ONE: Self;
    /// Changes no maximum.
    const LOWEST: Self;
    /// Integers wrap around.
    fn plus(self, other: Self) -> Self;
    /// Integers wrap around.
    fn times(self, other: Self) -> Self;
    /// NaN if either is; +0 is above -0.
    fn larger(self, other: Self) -> Self;
    /// The number as far below as this one is above: turns the order around, and back. Of integers `-1 - x`, which has no overflow.
    fn flip(self) -> Self;
    /// Square root; of integers nothing.
    fn root(self) -> Self;
    /// Quotient; of integers nothing.
    fn over(self, divisor: Self) -> Self;
    /// Is it no number?
    fn is_nan(self) -> bool;
}

macro_rules! float {
    ($float:ident, $larger:expr) => {
        impl Number for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LOWEST: Self = $float::NEG_INFINITY;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                $larger(self, other)
            }
            #[inline(always)]
            fn flip(self) -> Self {
                -self
            }
            #[inline(always)]
            fn root(self) -> Self {
                cuda_std::GpuFloat::sqrt(self)
            }
            #[inline(always)]
            fn over(self, divisor: Self) -> Self {
                self / divisor
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    };
}

float!(f32, fastmath::max_nan);
float!(f64, larger_f64);

/// The larger; NaN if either is; +0 is above -0.
#[inline(always)]
fn larger_f64(a: f64, b: f64) -> f64 {
    if a > b {
        a
    } else if b > a {
        b
    } else if a == b {
        // Zeros of two signs: the positive one has fewer bits set.
        f64::from_bits(a.to_bits() & b.to_bits())
    } else {
        a + b
    }
}

impl Number for i64 {
    const ZERO: Self = 0;
    const ONE: Self = 1;
    const LOWEST: Self = i64::MIN;
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        self.max(other)
    }
    #[inline(always)]
    fn flip(self) -> Self {
        !self
    }
    #[inline(always)]
    fn root(self) -> Self {
        self
    }
    #[inline(always)]
    fn over(self, _: Self) -> Self {
        self
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
}

/// A number as a word.
pub trait Bits {
    /// Its bits.
    fn to_word(self) -> u64;
    /// The number with these bits.
    fn from_word(word: u64) -> Self;
}

impl Bits for f32 {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.to_bits().into()
    }
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        f32::from_bits(word as u32)
    }
}

impl Bits for f64 {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        f64::from_bits(word)
    }
}

impl Bits for i64 {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.cast_unsigned()
    }
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        word.cast_signed()
    }
}

/// An element type that reductions know.
pub trait Reduced: Element {
    /// The type that it is reduced in.
    type Number: Number;
    /// The same values, exactly.
    fn numbers<const N: usize>(values: [Self; N]) -> [Self::Number; N];
    /// The largest of a unit of `N` elements, or, when `flipped`, of what they are turned around.
    #[inline(always)]
    fn largest<const N: usize>(unit: Words, flipped: bool) -> Self::Number {
        let keys = Self::numbers(from_words::<Self, N>(unit)).map(|x| if flipped { x.flip() } else { x });
        tree(keys, Number::larger)
    }
}

macro_rules! reduced {
    ($($ty:ident as $number:ident, |$values:ident| $numbers:expr $(, $larger:path, $apart:path)?;)*) => { $(
        impl Reduced for $ty {
            type Number = $number;
            #[inline(always)]
            fn numbers<const N: usize>($values: [Self; N]) -> [$number; N] {
                $numbers
            }
            $(
                // Two at a time, so that loads of further units find registers.
                #[inline(always)]
                fn largest<const N: usize>(unit: Words, flipped: bool) -> $number {
                    let signs = if flipped { 0x8000_8000 } else { 0 };
                    let [low, high] = $apart(tree(unit.map(|pair| pair ^ signs), $larger));
                    low.larger(high)
                }
            )?
        }
    )* };
}

reduced! {
    f64 as f64, |values| values;
    f32 as f32, |values| values;
    f16 as f32, |values| f16::widen(values), fastmath::max_nan_f16x2, convert::f16x2_to_f32;
    bf16 as f32, |values| bf16::widen(values), fastmath::max_nan_bf16x2, convert::bf16x2_to_f32;
    i64 as i64, |values| values;
    i32 as i64, |values| values.map(i64::from);
    u8 as i64, |values| values.map(i64::from);
}

/// Combines the second half of an array's elements with the first. Written out, so that every index is a constant.
macro_rules! halve {
    ($values:ident, $combine:ident, $half:literal: $($i:literal)*) => {
        $( $values[$i] = $combine($values[$i], $values[$i + $half]); )*
    };
}

/// All of an array into one, by a tree.
#[inline(always)]
pub fn tree<A: Copy, const N: usize>(mut values: [A; N], combine: impl Fn(A, A) -> A) -> A {
    const { assert!(N.is_power_of_two() && N <= 16) };
    if N >= 16 {
        halve!(values, combine, 8: 0 1 2 3 4 5 6 7);
    }
    if N >= 8 {
        halve!(values, combine, 4: 0 1 2 3);
    }
    if N >= 4 {
        halve!(values, combine, 2: 0 1);
    }
    if N >= 2 { combine(values[0], values[1]) } else { values[0] }
}
