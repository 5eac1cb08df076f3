//! Sums, products and maxima along rows.

use super::number::Reduced;
use super::rows::{Rows, WARPS, combine};
use crate::THREADS;
use crate::access::{Words, from_words, width};
use cuda_std::{kernel, shared, shared_array};
use half::{bf16, f16};
use primitives::element::map as each;
use primitives::grid::begin;
use primitives::op::{Number, Operation, tree};
use primitives::row::{Reader, read};

/// The contribution of an element, and how two contributions combine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The sum.
    Sum,
    /// The sum of squares.
    Squares,
    /// The product.
    Product,
    /// The larger; NaN if either is; +0 is above -0.
    Max,
    /// The larger of the elements' [`Number::reversed`]: the minimum, once it is reversed back.
    MaxOfReversed,
}

impl Kind {
    /// How the results of chunks combine: they are squared or reversed already.
    pub const fn of_results(self) -> Self {
        match self {
            Kind::Sum | Kind::Squares => Kind::Sum,
            Kind::Product => Kind::Product,
            Kind::Max | Kind::MaxOfReversed => Kind::Max,
        }
    }
}

/// The last step of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Finish {
    /// The result as it is.
    Nothing,
    /// [`Number::reversed`].
    Reverse,
    /// The quotient by the launch's divisor.
    Divide,
    /// The square root.
    Root,
}

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fold {
    /// The contribution of an element, and how two contributions combine.
    pub kind: Kind,
    /// The last step.
    pub finish: Finish,
}

/// Evaluates `$body` with the reduction's functions of one element and of two contributions.
///
/// The switch lies around the whole body, so that vectors are unpacked where they are used.
macro_rules! by_kind {
    ($kind:expr, $number:ty, |$map:ident, $combine:ident| $body:expr) => {{
        let itself = |x: $number| x;
        match $kind {
            Kind::Sum => by_kind!(@ $map = itself, $combine = <$number>::plus, $body),
            Kind::Squares => by_kind!(@ $map = |x: $number| x.times(x), $combine = <$number>::plus, $body),
            Kind::Product => by_kind!(@ $map = itself, $combine = <$number>::times, $body),
            Kind::Max => by_kind!(@ $map = itself, $combine = <$number>::larger, $body),
            Kind::MaxOfReversed => by_kind!(@ $map = <$number>::reversed, $combine = <$number>::larger, $body),
        }
    }};
    (@ $map:ident = $of_one:expr, $combine:ident = $of_two:expr, $body:expr) => {{
        let ($map, $combine) = ($of_one, $of_two);
        $body
    }};
}

impl<A: Number> Operation<A> for Fold {
    #[inline(always)]
    fn identity(self) -> A {
        match self.kind {
            Kind::Sum | Kind::Squares => A::ZERO,
            Kind::Product => A::ONE,
            Kind::Max | Kind::MaxOfReversed => A::LOWEST,
        }
    }

    #[inline(always)]
    fn combine(self, a: A, b: A) -> A {
        match self.kind {
            Kind::Sum | Kind::Squares => a.plus(b),
            Kind::Product => a.times(b),
            Kind::Max | Kind::MaxOfReversed => a.larger(b),
        }
    }
}

impl Fold {
    /// Combines each of `state` with the elements of four rows, without those rows that `exists` excludes.
    #[inline(always)]
    pub(super) fn combine_rows<T: Reduced, const N: usize>(
        self,
        state: [T::Number; N],
        rows: [[T; N]; 4],
        exists: [bool; 4],
    ) -> [T::Number; N] {
        let nothing: T::Number = self.identity();
        by_kind!(self.kind, T::Number, |map, combine| {
            let row = |i: usize| each(T::numbers(rows[i]), |x| if exists[i] { map(x) } else { nothing });
            let rows = four([row(0), row(1), row(2), row(3)], combine);
            core::array::from_fn(|j| combine(state[j], rows[j]))
        })
    }

    #[inline(always)]
    pub(super) fn finish<A: Number>(self, value: A, divisor: A) -> A {
        match self.finish {
            Finish::Nothing => value,
            Finish::Reverse => value.reversed(),
            Finish::Divide => value.over(divisor),
            Finish::Root => value.root(),
        }
    }
}

/// Four arrays, element by element.
#[inline(always)]
fn four<A: Copy, const N: usize>([a, b, c, d]: [[A; N]; 4], f: impl Fn(A, A) -> A) -> [A; N] {
    core::array::from_fn(|j| f(f(a[j], b[j]), f(c[j], d[j])))
}

impl<T: Reduced> Reader<T> for Fold {
    type State = T::Number;

    #[inline(always)]
    fn element(self, state: T::Number, value: T, _: u32) -> T::Number {
        let [number] = T::numbers([value]);
        by_kind!(self.kind, T::Number, |map, combine| combine(state, map(number)))
    }

    #[inline(always)]
    fn vector<const N: usize>(self, state: T::Number, words: Words, _: u32) -> T::Number {
        by_kind!(self.kind, T::Number, |map, combine| {
            combine(state, tree(each(T::numbers(from_words::<T, N>(words)), map), combine))
        })
    }

    #[inline(always)]
    fn four_vectors<const N: usize>(self, state: T::Number, words: [Words; 4], _: [u32; 4]) -> T::Number {
        by_kind!(self.kind, T::Number, |map, combine| {
            let sums = four(words.map(|words| each(T::numbers(from_words::<T, N>(words)), map)), combine);
            combine(state, tree(sums, combine))
        })
    }
}

/// `y[row, chunk]` from the row's chunk of `x`.
///
/// # Safety
/// As the entries below; `slots` is shared memory for a number a warp.
#[inline(always)]
unsafe fn run<T: Reduced, const N: usize>(
    fold: Fold,
    plan: &Rows,
    divisor: T::Number,
    x: *const T,
    y: *mut T::Number,
    slots: *mut T::Number,
) {
    let chunk = begin(|| plan.chunk());
    let start = if chunk.len == 0 { 0 } else { chunk.row * plan.columns + chunk.start };
    // SAFETY: the caller's promise; every chunk that exists has one thread that writes its result.
    unsafe {
        let state = read::<T, Fold, N>(fold, chunk.part(), x.add(start as usize));
        let value = combine(fold, &chunk, state, slots);
        if chunk.is_written_here() {
            *y.add(chunk.index as usize) = fold.finish(value, divisor);
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident as $number:ident;)*) => { $(
        #[doc = concat!("Reduces the chunks of rows of `x`, ", stringify!($ty), ", to `y`.")]
        ///
        /// # Safety
        /// `x` holds the plan's rows, one behind the other, `y` has an element for each chunk; they do not
        /// overlap. Blocks of [`THREADS`] threads, [`Rows::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(fold: Fold, plan: Rows, divisor: $number, x: *const $ty, y: *mut $number) {
            // SAFETY: the caller's contract is the same.
            unsafe {
                let slots = shared::generic(shared_array![$number; WARPS]);
                run::<$ty, { width(size_of::<$ty>(), size_of::<$ty>()) }>(fold, &plan, divisor, x, y, slots)
            }
        }
    )* };
}

entries! {
    fold_rows_f64: f64 as f64;
    fold_rows_f32: f32 as f32;
    fold_rows_f16: f16 as f32;
    fold_rows_bf16: bf16 as f32;
    fold_rows_i64: i64 as i64;
    fold_rows_i32: i32 as i64;
    fold_rows_u8: u8 as i64;
}
