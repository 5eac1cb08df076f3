//! The element types, and how their values are combined.
//!
//! Floats of fewer than 32 bits are combined in f32 and rounded once, to nearest. Sums of integers wrap
//! around. The larger or smaller of a NaN and anything is a NaN.

use cuda_std::convert;
use cuda_std::vector::Plain;
use half::{bf16, f16};
use num::{E4M3, E5M2};
use primitives::element::map;
use primitives::op::Number;
use primitives::unroll;

/// The element types, as kernels get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the documentation.
pub enum Format {
    F32,
    F64,
    F16,
    Bf16,
    E4m3,
    E5m2,
    I32,
    I64,
    U8,
}

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // The names are the documentation.
pub enum Operator {
    Sum,
    /// The sum, divided by the number of ranks; floats only.
    Mean,
    Max,
    Min,
}

/// An element type.
pub trait Addend: Plain {
    /// The type that it is combined in.
    type Wide: Number;
    /// Zero.
    const ZERO: Self;

    /// The same values, exactly.
    fn widen<const N: usize>(values: [Self; N]) -> [Self::Wide; N];
    /// The nearest values.
    fn narrow<const N: usize>(values: [Self::Wide; N]) -> [Self; N];
    /// The number of ranks, to divide by.
    fn wide(ranks: u32) -> Self::Wide;
}

macro_rules! addend {
    ($($ty:ty as $wide:ty = $zero:expr, |$values:ident| $widen:expr, $narrow:expr;)*) => { $(
        impl Addend for $ty {
            type Wide = $wide;
            const ZERO: Self = $zero;
            #[inline(always)]
            fn widen<const N: usize>($values: [Self; N]) -> [$wide; N] {
                $widen
            }
            #[inline(always)]
            fn narrow<const N: usize>($values: [$wide; N]) -> [Self; N] {
                $narrow
            }
            #[inline(always)]
            fn wide(ranks: u32) -> $wide {
                ranks as $wide
            }
        }
    )* };
}

addend! {
    f32 as f32 = 0.0, |x| x, x;
    f64 as f64 = 0.0, |x| x, x;
    f16 as f32 = f16::ZERO, |x| map(x, convert::f16_to_f32), convert::from_f32(x);
    bf16 as f32 = bf16::ZERO, |x| map(x, convert::bf16_to_f32), convert::from_f32(x);
    E4M3 as f32 = E4M3::from_bits(0), |x| fp8::widen(x), fp8::narrow(x);
    E5M2 as f32 = E5M2::from_bits(0), |x| fp8::widen(x), fp8::narrow(x);
    i64 as i64 = 0, |x| x, x;
    i32 as i32 = 0, |x| x, x;
    u8 as i32 = 0, |x| map(x, i32::from), map(x, |x| x as u8);
}

/// 8-bit floats by one instruction for a pair. Sixteen of them are too many for loops over pairs to be
/// unrolled.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
mod fp8 {
    use cuda_std::convert::{self, SmallFloat};
    use primitives::element::map;

    #[inline(always)]
    pub fn widen<T: SmallFloat, const N: usize>(x: [T; N]) -> [f32; N] {
        map(x, |x| convert::to_f32([x])[0])
    }

    #[inline(always)]
    pub fn narrow<T: SmallFloat, const N: usize>(x: [f32; N]) -> [T; N] {
        map(x, |x| convert::from_f32([x])[0])
    }
}

/// 8-bit floats before sm_89, by integer arithmetic: a function each, since the code is long.
#[cfg(not(any(not(target_arch = "nvptx64"), target_feature = "compute_89")))]
mod fp8 {
    use num::{E4M3, E5M2};
    use primitives::element::map;

    pub trait Small: Copy {
        fn wide(self) -> f32;
        fn of(x: f32) -> Self;
    }

    macro_rules! small {
        ($($ty:ident),*) => { $(
            impl Small for $ty {
                #[inline(never)]
                fn wide(self) -> f32 {
                    self.to_f32()
                }
                #[inline(never)]
                fn of(x: f32) -> Self {
                    Self::from_f32(x)
                }
            }
        )* };
    }

    small!(E4M3, E5M2);

    #[inline(always)]
    pub fn widen<T: Small, const N: usize>(x: [T; N]) -> [f32; N] {
        map(x, T::wide)
    }

    #[inline(always)]
    pub fn narrow<T: Small, const N: usize>(x: [f32; N]) -> [T; N] {
        map(x, T::of)
    }
}

/// Bytes of half a unit.
pub const HALF_BYTES: usize = 8;

/// The elements in half a unit.
#[inline(always)]
pub fn from_half<T: Addend, const N: usize>(words: [u32; 2]) -> [T; N] {
    const { assert!(N * size_of::<T>() == HALF_BYTES) };
    // SAFETY: as many bytes, and every bit pattern is an element.
    unsafe { core::ptr::read_unaligned((&raw const words).cast()) }
}

/// Half a unit of elements.
#[inline(always)]
pub fn to_half<T: Addend, const N: usize>(elements: [T; N]) -> [u32; 2] {
    const { assert!(N * size_of::<T>() == HALF_BYTES) };
    // SAFETY: as many bytes, and every bit pattern is a word.
    unsafe { core::ptr::read_unaligned((&raw const elements).cast()) }
}

/// Combines the values of two ranks.
#[inline(always)]
pub fn combine<W: Number, const N: usize>(operator: Operator, mut a: [W; N], b: [W; N]) -> [W; N] {
    match operator {
        Operator::Sum | Operator::Mean => each(&mut a, |i, a| a.plus(b[i])),
        Operator::Max => each(&mut a, |i, a| a.larger(b[i])),
        Operator::Min => each(&mut a, |i, a| a.reversed().larger(b[i].reversed()).reversed()),
    }
    a
}

/// Replaces each of up to 8 values by a function of its place and itself; every index is a constant.
#[inline(always)]
fn each<W: Copy, const N: usize>(values: &mut [W; N], f: impl Fn(usize, W) -> W) {
    const { assert!(N <= HALF_BYTES) };
    unroll!(i in 0..8, {
        if i < N {
            values[i] = f(i, values[i]);
        }
    });
}

/// Rounds what all ranks together give.
#[inline(always)]
pub fn finish<T: Addend, const N: usize>(operator: Operator, mut values: [T::Wide; N], ranks: u32) -> [T; N] {
    if matches!(operator, Operator::Mean) {
        let count = T::wide(ranks);
        if ranks.is_power_of_two() {
            // The reciprocal is exact, so products have the bits of quotients, which take many instructions.
            let part = T::Wide::ONE.over(count);
            each(&mut values, |_, value| value.times(part));
        } else {
            each(&mut values, |_, value| value.over(count));
        }
    }
    T::narrow(values)
}

/// Runs a function generic over the element type and the number of elements in so many bytes.
#[macro_export]
macro_rules! by_format {
    ($format:expr, $bytes:literal, $run:ident ( $($argument:expr),* $(,)? )) => {
        match $format {
            $crate::number::Format::F32 => $run::<f32, { $bytes / 4 }>($($argument),*),
            $crate::number::Format::F64 => $run::<f64, { $bytes / 8 }>($($argument),*),
            $crate::number::Format::F16 => $run::<half::f16, { $bytes / 2 }>($($argument),*),
            $crate::number::Format::Bf16 => $run::<half::bf16, { $bytes / 2 }>($($argument),*),
            $crate::number::Format::E4m3 => $run::<num::E4M3, $bytes>($($argument),*),
            $crate::number::Format::E5m2 => $run::<num::E5M2, $bytes>($($argument),*),
            $crate::number::Format::I32 => $run::<i32, { $bytes / 4 }>($($argument),*),
            $crate::number::Format::I64 => $run::<i64, { $bytes / 8 }>($($argument),*),
            $crate::number::Format::U8 => $run::<u8, $bytes>($($argument),*),
        }
    };
}
