//! `c = f(a, b)`, element by element.

use crate::THREADS;
use crate::access::{self, width};
use crate::element::{Element, zip};
use crate::place::{Geometry, Item, item_of_thread};
use cuda_std::kernel;
use half::{bf16, f16};

/// The function. On 16-bit floats it is computed in f32 and rounded once. Integer arithmetic wraps around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum BinaryOp {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`. Of integers the quotient toward zero; by 0 it is 0.
    Div,
    /// The smaller; NaN if either is NaN.
    Min,
    /// The larger; NaN if either is NaN.
    Max,
    /// Bitwise and. Integers and bool only, as all that follow.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl BinaryOp {
    /// Every function.
    pub const ALL: [BinaryOp; 9] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Min,
        BinaryOp::Max,
        BinaryOp::And,
        BinaryOp::Or,
        BinaryOp::Xor,
    ];

    /// Does it work on bits, and so not on floats?
    pub const fn is_bitwise(self) -> bool {
        self as u32 >= BinaryOp::And as u32
    }
}

/// A type that binary functions are computed in.
pub trait Binary: Copy {
    /// The function of each pair.
    fn apply<const N: usize>(op: BinaryOp, a: [Self; N], b: [Self; N]) -> [Self; N];
}

macro_rules! float_binary {
    ($($float:ident),*) => { $(
        impl Binary for $float {
            #[inline(always)]
            fn apply<const N: usize>(op: BinaryOp, a: [$float; N], b: [$float; N]) -> [$float; N] {
                match op {
                    BinaryOp::Add => zip(a, b, |a, b| a + b),
                    BinaryOp::Sub => zip(a, b, |a, b| a - b),
                    BinaryOp::Mul => zip(a, b, |a, b| a * b),
                    BinaryOp::Div => zip(a, b, |a, b| a / b),
                    // A NaN on either side makes the comparison false, and the sum NaN.
                    BinaryOp::Min => zip(a, b, |a, b| if a < b { a } else if b <= a { b } else { a + b }),
                    BinaryOp::Max => zip(a, b, |a, b| if a > b { a } else if b >= a { b } else { a + b }),
                    // The host does not ask for them.
                    BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => a,
                }
            }
        }
    )* };
}

float_binary!(f64, f32);

macro_rules! integer_binary {
    ($($int:ident, |$a:ident, $b:ident| $quotient:expr;)*) => { $(
        impl Binary for $int {
            #[inline(always)]
            fn apply<const N: usize>(op: BinaryOp, a: [$int; N], b: [$int; N]) -> [$int; N] {
                match op {
                    BinaryOp::Add => zip(a, b, $int::wrapping_add),
                    BinaryOp::Sub => zip(a, b, $int::wrapping_sub),
                    BinaryOp::Mul => zip(a, b, $int::wrapping_mul),
                    BinaryOp::Div => zip(a, b, |$a, $b| if $b == 0 { 0 } else { $quotient }),
                    BinaryOp::Min => zip(a, b, $int::min),
                    BinaryOp::Max => zip(a, b, $int::max),
                    BinaryOp::And => zip(a, b, |a, b| a & b),
                    BinaryOp::Or => zip(a, b, |a, b| a | b),
                    BinaryOp::Xor => zip(a, b, |a, b| a ^ b),
                }
            }
        }
    )* };
}

integer_binary! {
    i64, |a, b| a.wrapping_div(b);
    i32, |a, b| a.wrapping_div(b);
    u8, |a, b| a / b;
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
        /// The operands hold what the geometry names, aligned as its mode asks for with 16 bytes of elements a thread; each of `a`
        /// and `b` is `c` or does not overlap it, and no two elements of `c` lie at one place. Blocks of [`THREADS`] threads,
        /// [`Geometry::blocks`] of them.
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
