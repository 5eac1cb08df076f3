//! Element types and the types that they are computed in.

use crate::access::{Plain, Words};
use crate::activation::{Double, Precision, Reduced, Single};
use crate::math::Elementary;
use crate::warp::Exchange;
use cuda_std::convert;
use half::{bf16, f16};

/// An element type with arithmetic.
pub trait Element: Plain + 'static {
    /// The type that it is computed in: f32 for 16-bit floats, its own for others.
    type Wide: Copy;
    /// Zero.
    const ZERO: Self;
    /// The same values, exactly.
    fn widen<const N: usize>(values: [Self; N]) -> [Self::Wide; N];
    /// The nearest values, ties to even.
    fn narrow<const N: usize>(values: [Self::Wide; N]) -> [Self; N];

    /// Applies a function to 16-bit elements, one pair after the other; `None` for other elements.
    ///
    /// It is for long functions, which leave no registers for eight numbers at a time.
    #[inline(always)]
    fn map_pairs(_: Words, _: impl Fn([Self::Wide; 2]) -> [Self::Wide; 2]) -> Option<Words> {
        None
    }
}

/// A float element type.
pub trait Float: Element<Wide = <Self::Precision as Precision>::Value> {
    /// How its functions are computed.
    type Precision: Elementary<Value: Exchange>;
    /// Whether it has numbers as large, and as small, as those it is computed in.
    const IS_WIDE_RANGING: bool;
}

/// A float element type that is computed in f32.
pub trait InF32: Float<Precision: Precision<Value = f32>> {}

impl<T: Float<Precision: Precision<Value = f32>>> InF32 for T {}

macro_rules! floats {
    ($($ty:ty: $precision:ident, $is_wide_ranging:literal;)*) => { $(
        impl Float for $ty {
            type Precision = $precision;
            const IS_WIDE_RANGING: bool = $is_wide_ranging;
        }
    )* };
}

floats! { f64: Double, true; f32: Single, true; f16: Reduced, false; bf16: Reduced, true; }

macro_rules! own_type {
    ($($ty:ty = $zero:literal),*) => { $(
        impl Element for $ty {
            type Wide = $ty;
            const ZERO: Self = $zero;
            #[inline(always)]
            fn widen<const N: usize>(values: [Self; N]) -> [Self; N] {
                values
            }
            #[inline(always)]
            fn narrow<const N: usize>(values: [Self; N]) -> [Self; N] {
                values
            }
        }
    )* };
}

own_type!(f64 = 0.0, f32 = 0.0, i64 = 0, i32 = 0, u8 = 0);

/// Two at a time: one instruction rounds a pair.
macro_rules! by_pairs {
    ($ty:ident, $widen:path, $narrow:path) => {
        impl Element for $ty {
            type Wide = f32;
            const ZERO: Self = $ty::ZERO;
            #[inline(always)]
            fn widen<const N: usize>(values: [Self; N]) -> [f32; N] {
                map(values, $widen)
            }
            #[inline(always)]
            fn narrow<const N: usize>(values: [f32; N]) -> [Self; N] {
                convert::from_f32(values)
            }
            #[inline(always)]
            fn map_pairs(mut words: Words, f: impl Fn([f32; 2]) -> [f32; 2]) -> Option<Words> {
                for _ in 0..words.len() {
                    // Words move up, so that every index is a constant.
                    let [first, a, b, c] = words;
                    let pair = [first as u16, (first >> u16::BITS) as u16].map($ty::from_bits);
                    let [low, high] = f(pair.map($widen));
                    words = [a, b, c, $narrow(low, high)];
                }
                Some(words)
            }
        }
    };
}

by_pairs!(f16, convert::f16_to_f32, convert::f16x2_from_f32);
by_pairs!(bf16, convert::bf16_to_f32, convert::bf16x2_from_f32);

/// `x.map(f)`, always inlined and unrolled. At most 16 elements, at least one.
///
/// The compiler calls the standard library's `map` where the function is long, with the arrays in local
/// memory.
#[inline(always)]
pub fn map<A: Copy, B: Copy, const N: usize>(x: [A; N], f: impl Fn(A) -> B) -> [B; N] {
    const { assert!(N >= 1 && N <= 16) };
    let mut y = [f(x[0]); N];
    /// Written out, so that every index is a constant.
    macro_rules! each {
        ($($i:literal)*) => { $( if $i < N { y[$i] = f(x[$i]); } )* };
    }
    each!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    y
}

/// Applies a function to the elements of two arrays.
#[inline(always)]
pub fn zip<A: Copy, B: Copy, R, const N: usize>(a: [A; N], b: [B; N], f: impl Fn(A, B) -> R) -> [R; N] {
    core::array::from_fn(|i| f(a[i], b[i]))
}
