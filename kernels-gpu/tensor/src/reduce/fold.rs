//! Sums, products and maxima.

use super::number::{Bits, Number, Reduced, tree};
use super::rows::{Reducer, Rows, absorb, from_lane, gather};
use crate::access::{Words, from_words, width};
use crate::{THREADS, begin};
use cuda_std::kernel;
use half::{bf16, f16};

/// What elements count as, and how two become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Their sum.
    Sum,
    /// The sum of their squares.
    Squares,
    /// Their product.
    Product,
    /// The larger; NaN if either is; +0 is above -0.
    Largest,
    /// The larger of the numbers as far below: the maximum becomes the minimum.
    Flipped,
}

impl Kind {
    /// How results of chunks go on: they have been squared or turned around.
    pub const fn again(self) -> Self {
        match self {
            Kind::Sum | Kind::Squares => Kind::Sum,
            Kind::Product => Kind::Product,
            Kind::Largest | Kind::Flipped => Kind::Largest,
        }
    }
}

/// What becomes of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Finish {
    /// Nothing.
    Nothing,
    /// Turned around again.
    Flip,
    /// Divided by a number.
    Divide,
    /// Its square root.
    Root,
}

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Fold {
    /// What elements count as, and how two become one.
    pub kind: Kind,
    /// What becomes of the result.
    pub finish: Finish,
}

/// Evaluates `$body` with the reduction's function of an element and of two: a switch around all of it, so that elements are taken
/// apart where they are used.
macro_rules! by_kind {
    ($kind:expr, $number:ty, |$map:ident, $combine:ident| $body:expr) => {{
        let itself = |x: $number| x;
        match $kind {
            Kind::Sum => by_kind!(@ $map = itself, $combine = <$number>::plus, $body),
            Kind::Squares => by_kind!(@ $map = |x: $number| x.times(x), $combine = <$number>::plus, $body),
            Kind::Product => by_kind!(@ $map = itself, $combine = <$number>::times, $body),
            Kind::Largest => by_kind!(@ $map = itself, $combine = <$number>::larger, $body),
            Kind::Flipped => by_kind!(@ $map = <$number>::flip, $combine = <$number>::larger, $body),
        }
    }};
    (@ $map:ident = $of_one:expr, $combine:ident = $of_two:expr, $body:expr) => {{
        let ($map, $combine) = ($of_one, $of_two);
        $body
    }};
}

impl Fold {
    #[inline(always)]
    pub(super) fn identity<A: Number>(self) -> A {
        match self.kind {
            Kind::Sum | Kind::Squares => A::ZERO,
            Kind::Product => A::ONE,
            Kind::Largest | Kind::Flipped => A::LOWEST,
        }
    }

    /// Both of what elements were counted as.
    #[inline(always)]
    pub(super) fn combine<A: Number>(self, a: A, b: A) -> A {
        match self.kind {
            Kind::Sum | Kind::Squares => a.plus(b),
            Kind::Product => a.times(b),
            Kind::Largest | Kind::Flipped => a.larger(b),
        }
    }

    /// Each of `state` with that of four rows, of which those count for which `there` says so.
    #[inline(always)]
    pub(super) fn combine_rows<T: Reduced, const N: usize>(
        self,
        state: [T::Number; N],
        rows: [[T; N]; 4],
        there: [bool; 4],
    ) -> [T::Number; N] {
        let nothing = self.identity::<T::Number>();
        by_kind!(self.kind, T::Number, |map, combine| {
            let count = |i: usize| T::numbers(rows[i]).map(|x| if there[i] { map(x) } else { nothing });
            let rows = four([count(0), count(1), count(2), count(3)], combine);
            core::array::from_fn(|j| combine(state[j], rows[j]))
        })
    }

    #[inline(always)]
    pub(super) fn finish<A: Number>(self, value: A, divisor: A) -> A {
        match self.finish {
            Finish::Nothing => value,
            Finish::Flip => value.flip(),
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

impl<T: Reduced<Number: Bits>> Reducer<T> for Fold {
    type State = T::Number;

    #[inline(always)]
    fn start(self) -> T::Number {
        self.identity()
    }

    #[inline(always)]
    fn absorb_one(self, state: T::Number, value: T, _: u32) -> T::Number {
        let [number] = T::numbers([value]);
        by_kind!(self.kind, T::Number, |map, combine| combine(state, map(number)))
    }

    #[inline(always)]
    fn absorb<const N: usize>(self, state: T::Number, unit: Words, _: u32) -> T::Number {
        by_kind!(self.kind, T::Number, |map, combine| {
            combine(state, tree(T::numbers(from_words::<T, N>(unit)).map(map), combine))
        })
    }

    #[inline(always)]
    fn absorb_four<const N: usize>(self, state: T::Number, units: [Words; 4], _: [u32; 4]) -> T::Number {
        by_kind!(self.kind, T::Number, |map, combine| {
            let each = four(units.map(|unit| T::numbers(from_words::<T, N>(unit)).map(map)), combine);
            combine(state, tree(each, combine))
        })
    }

    #[inline(always)]
    fn merge(self, a: T::Number, b: T::Number) -> T::Number {
        self.combine(a, b)
    }

    #[inline(always)]
    unsafe fn exchange(self, state: T::Number, distance: u32) -> T::Number {
        // SAFETY: the caller's promise.
        unsafe { from_lane(state, distance) }
    }

    #[inline(always)]
    fn to_words(state: T::Number) -> [u64; 2] {
        [state.to_word(), 0]
    }

    #[inline(always)]
    fn from_words(words: [u64; 2]) -> T::Number {
        Bits::from_word(words[0])
    }
}

/// `y[row, chunk]` from the row's chunk of `x`.
///
/// # Safety
/// As the entries below.
#[inline(always)]
unsafe fn run<T: Reduced<Number: Bits>, const N: usize>(
    fold: Fold,
    plan: &Rows,
    divisor: T::Number,
    x: *const T,
    y: *mut T::Number,
) {
    let chunk = begin(|| plan.chunk());
    let start = if chunk.len == 0 { 0 } else { chunk.row * plan.columns + chunk.start };
    // SAFETY: the caller's promise; every chunk that exists has one thread that writes its result.
    unsafe {
        let state = absorb::<T, Fold, N>(fold, &chunk, x.add(start as usize));
        if let Some(value) = gather::<T, Fold>(fold, &chunk, state) {
            *y.add(chunk.number as usize) = fold.finish(value, divisor);
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident as $number:ident;)*) => { $(
        #[doc = concat!("Reduces the chunks of rows of `x`, ", stringify!($ty), ", to `y`.")]
        ///
        /// # Safety
        /// `x` holds the plan's rows, one behind the other, `y` has a place for each chunk; they do not overlap. Blocks of
        /// [`THREADS`] threads, [`Rows::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(fold: Fold, plan: Rows, divisor: $number, x: *const $ty, y: *mut $number) {
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, { width(size_of::<$ty>(), size_of::<$ty>()) }>(fold, &plan, divisor, x, y) }
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
