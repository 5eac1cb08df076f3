//! Integers as the tables of functions use them: arithmetic wraps around.

use core::ops::{BitAnd, BitOr, BitXor};

/// An integer of any width and sign.
pub(crate) trait Integer:
    Copy + Ord + Default + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    fn wrapping_add(self, other: Self) -> Self;
    fn wrapping_sub(self, other: Self) -> Self;
    fn wrapping_mul(self, other: Self) -> Self;
    fn wrapping_div(self, divisor: Self) -> Self;
}

/// A signed integer.
pub(crate) trait Signed: Integer {
    fn wrapping_neg(self) -> Self;
    fn wrapping_abs(self) -> Self;
    fn signum(self) -> Self;
}

/// Implements a trait by the methods of the same names that the types have.
macro_rules! by_own_methods {
    ($trait:ident for $($int:ident)*: $methods:tt) => { $( by_own_methods!(@ $trait $int $methods); )* };
    (@ $trait:ident $int:ident { $($method:ident($($other:ident)?);)* }) => {
        impl $trait for $int { $(
            #[inline(always)]
            fn $method(self $(, $other: Self)?) -> Self {
                $int::$method(self $(, $other)?)
            }
        )* }
    };
}

by_own_methods! { Integer for i64 i32 u8: {
    wrapping_add(other); wrapping_sub(other); wrapping_mul(other); wrapping_div(divisor);
} }
by_own_methods! { Signed for i64 i32: { wrapping_neg(); wrapping_abs(); signum(); } }
