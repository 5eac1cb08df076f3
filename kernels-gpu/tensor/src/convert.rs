//! `y = x` in another element type, both dense.
//!
//! | to | from a float | from an integer or bool |
//! |---|---|---|
//! | float | the nearest value, ties to even, rounded once; beyond the range infinity, of the 8-bit floats the largest number; NaN stays NaN | as from a float |
//! | integer | toward zero; out of range the nearest end, NaN 0 | the low bits: wraps around |
//! | bool | is it not 0? NaN is true | is it not 0? |
//!
//! Numbers of 64 bits reach the small floats by way of an f32 rounded *to odd*: toward zero, with the last
//! bit set when anything was cut off. What is rounded again, to fewer digits, then sees that it was not
//! exact, so the result is that of one rounding (Boldo and Melquiond, "When double rounding is odd", 2005).

use crate::access::{self, width};
use crate::{LANES, THREADS, VECTOR_BYTES};
use cuda_std::{convert, kernel, thread};
use half::{bf16, f16};
use num::{E4M3, E5M2};
use primitives::fp8;
use primitives::grid::begin;

/// The element type to convert to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Target {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The high half of an f32.
    Bf16,
    /// OCP E4M3.
    E4m3,
    /// OCP E5M2.
    E5m2,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 8-bit integer.
    U8,
    /// A byte that is 0 or 1.
    Bool,
}

/// A byte that is 0 or 1; no `bool`, so that reading another value is no undefined behaviour.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Truth(u8);

/// A type that can be made from the three types that hold all others exactly.
trait To: Copy {
    fn from_f32<const N: usize>(x: [f32; N]) -> [Self; N];
    fn from_f64<const N: usize>(x: [f64; N]) -> [Self; N];
    fn from_i64<const N: usize>(x: [i64; N]) -> [Self; N];
}

/// A type that converts by way of the least of the three that holds it exactly.
trait From: Copy {
    const ZERO: Self;
    fn convert<D: To, const N: usize>(x: [Self; N]) -> [D; N];
}

/// Targets for which Rust's `as` does what the table says.
macro_rules! by_as {
    ($($ty:ident),*) => { $(
        impl To for $ty {
            #[inline(always)]
            fn from_f32<const N: usize>(x: [f32; N]) -> [Self; N] {
                x.map(|x| x as $ty)
            }
            #[inline(always)]
            fn from_f64<const N: usize>(x: [f64; N]) -> [Self; N] {
                x.map(|x| x as $ty)
            }
            #[inline(always)]
            fn from_i64<const N: usize>(x: [i64; N]) -> [Self; N] {
                x.map(|x| x as $ty)
            }
        }
    )* };
}

by_as!(f64, f32, i64, i32, u8);

impl To for Truth {
    #[inline(always)]
    fn from_f32<const N: usize>(x: [f32; N]) -> [Self; N] {
        x.map(|x| Truth(u8::from(x != 0.0)))
    }
    #[inline(always)]
    fn from_f64<const N: usize>(x: [f64; N]) -> [Self; N] {
        x.map(|x| Truth(u8::from(x != 0.0)))
    }
    #[inline(always)]
    fn from_i64<const N: usize>(x: [i64; N]) -> [Self; N] {
        x.map(|x| Truth(u8::from(x != 0)))
    }
}

/// Small floats: a function that rounds two f32 and packs them.
macro_rules! small_float {
    ($ty:ident, $bits:ident, $pair:path) => {
        impl To for $ty {
            #[inline(always)]
            fn from_f32<const N: usize>(x: [f32; N]) -> [Self; N] {
                const { assert!(N % 2 == 0) };
                core::array::from_fn(|i| {
                    // Both halves of a pair ask for the same conversion, which the compiler makes once.
                    let pair = $pair(x[i & !1], x[i | 1]);
                    $ty::from_bits((pair >> ($bits::BITS * (i as u32 & 1))) as $bits)
                })
            }
            #[inline(always)]
            fn from_f64<const N: usize>(x: [f64; N]) -> [Self; N] {
                <Self as To>::from_f32(x.map(odd_from_f64))
            }
            #[inline(always)]
            fn from_i64<const N: usize>(x: [i64; N]) -> [Self; N] {
                <Self as To>::from_f32(x.map(odd_from_i64))
            }
        }
    };
}

small_float!(f16, u16, convert::f16x2_from_f32);
small_float!(bf16, u16, convert::bf16x2_from_f32);
small_float!(E4M3, u8, fp8::e4m3_pair);
small_float!(E5M2, u8, fp8::e5m2_pair);

/// The nearest e4m3, as the table says; an even number of them.
#[inline(always)]
pub(crate) fn e4m3<const N: usize>(x: [f32; N]) -> [E4M3; N] {
    To::from_f32(x)
}

/// To f32, rounded to odd: rounded again to a smaller float it is `x` rounded once.
#[inline(always)]
pub fn odd_from_f64(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || x.is_nan() {
        return nearest;
    }
    // One step toward zero where rounding went away from it: from infinity to the largest number.
    let toward_zero = nearest.to_bits() - u32::from(back.abs() > x.abs());
    f32::from_bits(toward_zero | 1)
}

/// To f32, rounded to odd.
#[inline(always)]
fn odd_from_i64(x: i64) -> f32 {
    /// Digits of an f32.
    const DIGITS: u32 = 24;
    let magnitude = x.unsigned_abs();
    let excess = (u64::BITS - magnitude.leading_zeros()).saturating_sub(DIGITS);
    let kept = magnitude >> excess;
    let lost = u64::from(kept << excess != magnitude);
    // Fewer than 25 digits, and a power of two: both exact.
    let value = (kept | lost) as u32 as f32 * (1u64 << excess) as f32;
    if x < 0 { -value } else { value }
}

macro_rules! source {
    ($($ty:ident = $zero:expr, $from:ident, $widen:expr;)*) => { $(
        impl From for $ty {
            const ZERO: Self = $zero;
            #[inline(always)]
            fn convert<D: To, const N: usize>(x: [Self; N]) -> [D; N] {
                D::$from(x.map($widen))
            }
        }
    )* };
}

source! {
    f64 = 0.0, from_f64, |x| x;
    f32 = 0.0, from_f32, |x| x;
    f16 = f16::ZERO, from_f32, convert::f16_to_f32;
    bf16 = bf16::ZERO, from_f32, convert::bf16_to_f32;
    E4M3 = E4M3::from_bits(0), from_f32, fp8::from_e4m3;
    E5M2 = E5M2::from_bits(0), from_f32, fp8::from_e5m2;
    i64 = 0, from_i64, |x| x;
    i32 = 0, from_i64, i64::from;
    u8 = 0, from_f32, f32::from;
    Truth = Truth(0), from_f32, |x: Truth| f32::from(x.0);
}

/// Units of a thread, all under way before the first is converted.
pub const UNITS: u32 = 2;

/// Blocks for `n` elements of these sizes: for the whole units, and at least one, for elements that make
/// none.
pub const fn blocks(n: u64, size: usize, other: usize) -> u64 {
    let blocks = (n / width(size, other) as u64).div_ceil(THREADS as u64 * UNITS as u64);
    if blocks == 0 { 1 } else { blocks }
}

/// `n` elements of `x` to `y`.
///
/// # Safety
/// `units_of_thread` is [`UNITS`]. Both hold `n` elements and do not overlap. Blocks of [`THREADS`] threads,
/// [`blocks`] of them.
#[inline(always)]
unsafe fn run<S: From, D: To, const N: usize>(units_of_thread: u32, n: u64, x: *const S, y: *mut D) {
    const { assert!(UNITS == 2) };
    let block = u64::from(thread::block_idx_x());
    let aligned = (x as usize | y as usize).is_multiple_of(VECTOR_BYTES);
    let units = if aligned { n / N as u64 } else { 0 };
    // SAFETY: they hold n elements.
    unsafe { one_by_one(units * N as u64, n, x, y) };
    let mut unit = block * u64::from(THREADS * units_of_thread) + u64::from(thread::thread_idx_x());
    // SAFETY: guarded by n; what is aligned at its start is so at every N-th element.
    unsafe {
        let load = |unit: u64| {
            if unit < units {
                access::load_wide::<S, N>(x.add(unit as usize * N))
            } else {
                Default::default()
            }
        };
        let (mut next, last) = (load(unit), load(unit + u64::from(THREADS)));
        // A loop of a length that the compiler does not know, so that the conversion is in the code once.
        for _ in 0..units_of_thread {
            if unit < units {
                access::store(y.add(unit as usize * N), S::convert::<D, N>(access::from_wide::<S, N>(next)));
            }
            next = last;
            unit += u64::from(THREADS);
        }
    }
}

/// Those from `start` on one by one, neighbours by neighbouring threads: what makes no whole unit, which is
/// all of them when the operands are not aligned.
///
/// # Safety
/// Both hold `n` elements and do not overlap.
#[inline(always)]
unsafe fn one_by_one<S: From, D: To>(start: u64, n: u64, x: *const S, y: *mut D) {
    let chunk = u64::from(THREADS) * LANES as u64;
    let lane = |i: usize| i as u32 * THREADS;
    let mut place = start + u64::from(thread::block_idx_x()) * chunk + u64::from(thread::thread_idx_x());
    while place < n {
        let left = (n - place).min(chunk) as u32;
        // SAFETY: guarded by n.
        unsafe {
            let (x, y) = (x.add(place as usize), y.add(place as usize));
            let values =
                core::array::from_fn(|i| if lane(i) < left { *x.add(lane(i) as usize) } else { S::ZERO });
            let values = S::convert::<D, LANES>(values);
            for i in 0..LANES {
                if lane(i) < left {
                    *y.add(lane(i) as usize) = values[i];
                }
            }
        }
        place += chunk * u64::from(thread::grid_dim_x());
    }
}

/// An entry point for each element type to convert from.
macro_rules! entries {
    ($($name:ident: $ty:ident, $stored:ident;)*) => { $(
        #[doc = concat!("`n` elements of `x`, ", stringify!($ty), ", to `y`, whose elements are of type `to`.")]
        ///
        /// # Safety
        /// `units` is [`UNITS`]. Both hold `n` elements and do not overlap. Blocks of [`THREADS`] threads,
        /// [`blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(to: Target, units: u32, n: u64, x: *const $stored, y: *mut u8) {
            let x = begin(|| x.cast::<$ty>());
            // SAFETY: the caller's contract is the same.
            unsafe {
                match to {
                    Target::F64 => run::<$ty, f64, { width(size_of::<$ty>(), 8) }>(units, n, x, y.cast()),
                    Target::F32 => run::<$ty, f32, { width(size_of::<$ty>(), 4) }>(units, n, x, y.cast()),
                    Target::F16 => run::<$ty, f16, { width(size_of::<$ty>(), 2) }>(units, n, x, y.cast()),
                    Target::Bf16 => run::<$ty, bf16, { width(size_of::<$ty>(), 2) }>(units, n, x, y.cast()),
                    Target::E4m3 => run::<$ty, E4M3, { width(size_of::<$ty>(), 1) }>(units, n, x, y.cast()),
                    Target::E5m2 => run::<$ty, E5M2, { width(size_of::<$ty>(), 1) }>(units, n, x, y.cast()),
                    Target::I64 => run::<$ty, i64, { width(size_of::<$ty>(), 8) }>(units, n, x, y.cast()),
                    Target::I32 => run::<$ty, i32, { width(size_of::<$ty>(), 4) }>(units, n, x, y.cast()),
                    Target::U8 => run::<$ty, u8, { width(size_of::<$ty>(), 1) }>(units, n, x, y.cast()),
                    Target::Bool => run::<$ty, Truth, { width(size_of::<$ty>(), 1) }>(units, n, x, y.cast()),
                }
            }
        }
    )* };
}

entries! {
    convert_f64: f64, f64;
    convert_f32: f32, f32;
    convert_f16: f16, f16;
    convert_bf16: bf16, bf16;
    convert_e4m3: E4M3, E4M3;
    convert_e5m2: E5M2, E5M2;
    convert_i64: i64, i64;
    convert_i32: i32, i32;
    convert_u8: u8, u8;
    convert_bool: Truth, u8;
}
