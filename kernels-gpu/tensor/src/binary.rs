//! `c = f(a, b)`, element by element.

use crate::THREADS;
use crate::access::{self, width};
use crate::element::{Element, zip};
use crate::integer::Integer;
use crate::place::{Geometry, Item, item_of_thread};
use core::ops::{Add, Div, Mul, Sub};
use cuda_std::kernel;
use half::{bf16, f16};

/// The table of functions. A row: name, its formula for floats where it has one, and its formula for
/// integers.
///
/// Enum, lists and the dispatch by element type follow from the rows.
macro_rules! functions {
    (
        numbers { $($(#[$number_doc:meta])* $number:ident, $of_float:expr, $of_integer:expr;)* }
        bits { $($(#[$bits_doc:meta])* $bits:ident, $of_bits:expr;)* }
    ) => {
        /// The function. On 16-bit floats it is computed in f32 and rounded once. Integer arithmetic wraps
        /// around.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum BinaryOp {
            $($(#[$number_doc])* $number,)*
            $($(#[$bits_doc])* $bits,)*
        }

        impl BinaryOp {
            /// Every function.
            pub const ALL: &'static [BinaryOp] = &[$(BinaryOp::$number,)* $(BinaryOp::$bits,)*];

            /// Does it work on bits: of integers and bools, not of floats?
            pub const fn is_bitwise(self) -> bool {
                matches!(self, $(BinaryOp::$bits)|*)
            }
        }

        #[inline(always)]
        fn of_floats<A: Real, const N: usize>(op: BinaryOp, a: [A; N], b: [A; N]) -> [A; N] {
            match op {
                $(BinaryOp::$number => zip(a, b, $of_float),)*
                // The host does not ask for them.
                $(BinaryOp::$bits)|* => a,
            }
        }

        #[inline(always)]
        fn of_integers<A: Integer, const N: usize>(op: BinaryOp, a: [A; N], b: [A; N]) -> [A; N] {
            match op {
                $(BinaryOp::$number => zip(a, b, $of_integer),)*
                $(BinaryOp::$bits => zip(a, b, $of_bits),)*
            }
        }
    };
}

functions! {
    numbers {
        /// `a + b`.
        Add, |a, b| a + b, |a, b| a.wrapping_add(b);
        /// `a - b`.
        Sub, |a, b| a - b, |a, b| a.wrapping_sub(b);
        /// `a * b`.
        Mul, |a, b| a * b, |a, b| a.wrapping_mul(b);
        /// `a / b`. Of integers the quotient toward zero; by 0 it is 0.
        Div, |a, b| a / b, |a, b| if b == A::default() { b } else { a.wrapping_div(b) };
        // A NaN on either side makes both comparisons false, and the sum is NaN.
        /// The smaller; NaN if either is NaN.
        Min, |a, b| if a < b { a } else if b <= a { b } else { a + b }, |a, b| a.min(b);
        /// The larger; NaN if either is NaN.
        Max, |a, b| if a > b { a } else if b >= a { b } else { a + b }, |a, b| a.max(b);
    }
    bits {
        /// Bitwise and. Integers and bool only.
        And, |a, b| a & b;
        /// Bitwise or. Integers and bool only.
        Or, |a, b| a | b;
        /// Bitwise exclusive or. Integers and bool only.
        Xor, |a, b| a ^ b;
    }
}

/// A float that the formulas are computed in.
trait Real:
    Copy + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
}

impl Real for f64 {}
impl Real for f32 {}

/// A type that binary functions are computed in.
pub trait Binary: Copy {
    /// The function of each pair.
    fn apply<const N: usize>(op: BinaryOp, a: [Self; N], b: [Self; N]) -> [Self; N];
}

macro_rules! computed_in {
    ($($ty:ident by $functions:ident;)*) => { $(
        impl Binary for $ty {
            #[inline(always)]
            fn apply<const N: usize>(op: BinaryOp, a: [$ty; N], b: [$ty; N]) -> [$ty; N] {
                $functions(op, a, b)
            }
        }
    )* };
}

computed_in! {
    f64 by of_floats;
    f32 by of_floats;
    i64 by of_integers;
    i32 by of_integers;
    u8 by of_integers;
}

/// `c = f(a, b)`.
///
/// # Safety
/// As the entries below, with `N` elements a thread.
#[inline(always)]
unsafe fn run<T: Element<Wide: Binary>, const N: usize>(
    op: BinaryOp,
    geometry: &Geometry<3>,
    a: *const T,
    b: *const T,
    c: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let item: Option<Item<'_, 3, N>> = item_of_thread(geometry);
        if let Some(item) = item {
            let [a, b] = item.fetch(0, [a, b]).map(|values| T::widen(access::from_wide(values)));
            item.store(2, c, T::narrow(T::Wide::apply(op, a, b)));
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("`c = f(a, b)` for ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// The operands hold what the geometry names, aligned as its mode asks for with 16 bytes of elements
        /// a thread; each of `a` and `b` is `c` or does not overlap it, and no two elements of `c` lie at one
        /// place. Blocks of [`THREADS`] threads, [`Geometry::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(op: BinaryOp, geometry: Geometry<3>, a: *const $ty, b: *const $ty, c: *mut $ty) {
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, { width(size_of::<$ty>(), size_of::<$ty>()) }>(op, &geometry, a, b, c) }
        }
    )* };
}

entries! {
    binary_f64: f64;
    binary_f32: f32;
    binary_f16: f16;
    binary_bf16: bf16;
    binary_i64: i64;
    binary_i32: i32;
    binary_u8: u8;
}
