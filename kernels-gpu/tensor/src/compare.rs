//! `c = a < b` and its like, element by element: 1 where it holds, else 0.

use crate::THREADS;
use crate::access::{self, width};
use crate::element::{Element, zip};
use crate::place::{Geometry, Item, item_of_thread};
use cuda_std::kernel;
use half::{bf16, f16};

/// The table of comparisons. A row: name and formula. Enum, list and dispatch follow from the rows.
macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $formula:expr;)*) => {
        /// The comparison. With a NaN all but [`CompareOp::Ne`] are false.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum CompareOp {
            $($(#[$doc])* $name,)*
        }

        impl CompareOp {
            /// Every comparison.
            pub const ALL: &'static [CompareOp] = &[$(CompareOp::$name),*];
        }

        #[inline(always)]
        fn apply<T: Copy + PartialOrd, const N: usize>(op: CompareOp, a: [T; N], b: [T; N]) -> [u8; N] {
            /// Gives the closures their types.
            #[inline(always)]
            fn each<T: Copy, const N: usize>(a: [T; N], b: [T; N], f: impl Fn(T, T) -> bool) -> [u8; N] {
                zip(a, b, |a, b| u8::from(f(a, b)))
            }
            match op {
                $(CompareOp::$name => each(a, b, $formula),)*
            }
        }
    };
}

comparisons! {
    /// `a == b`.
    Eq, |a, b| a == b;
    /// `a != b`.
    Ne, |a, b| a != b;
    /// `a < b`.
    Lt, |a, b| a < b;
    /// `a <= b`.
    Le, |a, b| a <= b;
    /// `a > b`.
    Gt, |a, b| a > b;
    /// `a >= b`.
    Ge, |a, b| a >= b;
}

/// `c = a < b` and its like.
///
/// # Safety
/// As the entries below, with `N` elements a thread.
#[inline(always)]
unsafe fn run<T: Element<Wide: PartialOrd>, const N: usize>(
    op: CompareOp,
    geometry: &Geometry<3>,
    a: *const T,
    b: *const T,
    c: *mut u8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let item: Option<Item<'_, 3, N>> = item_of_thread(geometry);
        if let Some(item) = item {
            let [a, b] = item.fetch(0, [a, b]).map(|values| T::widen(access::from_wide(values)));
            item.store(2, c, apply(op, a, b));
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("`c = a < b` and its like for ", stringify!($ty), ".")]
        ///
        /// # Safety
        /// The operands hold what the geometry names, aligned as its mode asks for with as many elements a
        /// thread as [`width`] says for the element and a byte; `c` overlaps neither `a` nor `b`, and no two
        /// elements of `c` lie at one place. Blocks of [`THREADS`] threads, [`Geometry::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(op: CompareOp, geometry: Geometry<3>, a: *const $ty, b: *const $ty, c: *mut u8) {
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, { width(size_of::<$ty>(), 1) }>(op, &geometry, a, b, c) }
        }
    )* };
}

entries! {
    compare_f64: f64;
    compare_f32: f32;
    compare_f16: f16;
    compare_bf16: bf16;
    compare_i64: i64;
    compare_i32: i32;
    compare_u8: u8;
}
