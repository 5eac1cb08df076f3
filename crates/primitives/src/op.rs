//! Operators and values of reductions and scans: operations with an identity, numbers, and values with their
//! places.

use crate::warp::{Exchange, From};
use cuda_std::fastmath;

/// An associative operation with an identity. It may hold run-time parameters.
pub trait Operation<S>: Copy {
    /// Combined with any value it gives that value.
    fn identity(self) -> S;
    /// Two values combined. Reductions may exchange `a` and `b`, scans keep their order.
    fn combine(self, a: S, b: S) -> S;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident: $identity:expr, $combine:expr;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl<N: Number> Operation<N> for $name {
            #[inline(always)]
            fn identity(self) -> N {
                $identity
            }
            #[inline(always)]
            fn combine(self, a: N, b: N) -> N {
                $combine(a, b)
            }
        }
    )* };
}

operations! {
    /// The sum. Integers wrap around.
    Sum: N::ZERO, N::plus;
    /// The product. Integers wrap around.
    Product: N::ONE, N::times;
    /// The larger; NaN if either is.
    Max: N::LOWEST, N::larger;
    /// The smaller; NaN if either is.
    Min: N::LOWEST.reversed(), |a: N, b: N| a.reversed().larger(b.reversed()).reversed();
}

/// A number and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Indexed<N> {
    /// The number.
    pub value: N,
    /// Its place.
    pub index: u32,
}

impl<N: Number> Indexed<N> {
    /// Loses against everything: the identity of [`ArgMax`].
    pub const NONE: Self = Indexed { value: N::LOWEST, index: u32::MAX };
}

impl<N: Exchange> Exchange for Indexed<N> {
    #[inline(always)]
    unsafe fn exchange(self, from: From) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Indexed { value: self.value.exchange(from), index: self.index.exchange(from) } }
    }
}

/// The larger of two [`Indexed`] numbers; a NaN counts as larger than every number; of equal ones the one
/// with the lower index.
#[derive(Clone, Copy, Debug)]
pub struct ArgMax;

impl<N: Number> Operation<Indexed<N>> for ArgMax {
    #[inline(always)]
    fn identity(self) -> Indexed<N> {
        Indexed::NONE
    }

    #[inline(always)]
    fn combine(self, a: Indexed<N>, b: Indexed<N>) -> Indexed<N> {
        let (a_nan, b_nan) = (a.value.is_nan(), b.value.is_nan());
        let same = if a_nan || b_nan { a_nan == b_nan } else { a.value == b.value };
        let above = if a_nan || b_nan { b_nan } else { b.value > a.value };
        let better = if same { b.index < a.index } else { above };
        if better { b } else { a }
    }
}

/// A type that sums, products and extremes are computed in.
pub trait Number: Copy + PartialOrd {
    /// The identity of sums.
    const ZERO: Self;
    /// The identity of products.
    const ONE: Self;
    /// The identity of maxima.
    const LOWEST: Self;
    /// Integers wrap around.
    fn plus(self, other: Self) -> Self;
    /// Integers wrap around.
    fn times(self, other: Self) -> Self;
    /// NaN if either is; +0 is above -0.
    fn larger(self, other: Self) -> Self;
    /// Reverses the order of numbers, and restores it when applied again: `-x`, for integers `-1 - x`, which
    /// cannot overflow.
    fn reversed(self) -> Self;
    /// Square root. Integers stay as they are.
    fn root(self) -> Self;
    /// Quotient. Integers stay as they are.
    fn over(self, divisor: Self) -> Self;
    /// Is it NaN?
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
            fn reversed(self) -> Self {
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
pub(crate) fn larger_f64(a: f64, b: f64) -> f64 {
    if a > b {
        a
    } else if b > a {
        b
    } else if a == b {
        // Of zeros with two signs the positive one has fewer bits set.
        f64::from_bits(a.to_bits() & b.to_bits())
    } else {
        a + b
    }
}

macro_rules! integer {
    ($integer:ident) => {
        impl Number for $integer {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = $integer::MIN;
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
            fn reversed(self) -> Self {
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
    };
}

integer!(i64);
integer!(i32);

/// Combines the elements of an array's second half with those of the first. Written out: every index is a
/// constant.
macro_rules! halve {
    ($values:ident, $combine:ident, $half:literal: $($i:literal)*) => {
        $( $values[$i] = $combine($values[$i], $values[$i + $half]); )*
    };
}

/// Combines all elements of an array by a binary tree. Its length is a power of two up to 16.
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
