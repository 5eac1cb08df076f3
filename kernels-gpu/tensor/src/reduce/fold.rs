//! Sums, products and maxima.

use super::number::{Number, Reduced, tree};
use super::rows::{Reducer, Rows, absorb, from_lane, gather};
use crate::THREADS;
use crate::access::width;
use cuda_std::kernel;
use half::{bf16, f16};

/// How two become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Combine {
    /// Their sum.
    Add,
    /// Their product.
    Multiply,
    /// The larger; NaN if either is; +0 is above -0.
    Max,
}

/// What an element counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Map {
    /// Itself.
    Itself,
    /// The number as far below: the maximum becomes the minimum.
    Flipped,
    /// Its square.
    Square,
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
    /// What an element counts as.
    pub map: Map,
    /// How two become one.
    pub combine: Combine,
    /// What becomes of the result.
    pub finish: Finish,
}

impl Fold {
    #[inline(always)]
    pub(super) fn map<A: Number, const N: usize>(self, values: [A; N]) -> [A; N] {
        match self.map {
            Map::Itself => values,
            Map::Flipped => values.map(A::flip),
            Map::Square => values.map(|x| x.times(x)),
        }
    }

    #[inline(always)]
    pub(super) fn identity<A: Number>(self) -> A {
        match self.combine {
            Combine::Add => A::ZERO,
            Combine::Multiply => A::ONE,
            Combine::Max => A::LOWEST,
        }
    }

    #[inline(always)]
    pub(super) fn combine<A: Number>(self, a: A, b: A) -> A {
        match self.combine {
            Combine::Add => a.plus(b),
            Combine::Multiply => a.times(b),
            Combine::Max => a.larger(b),
        }
    }

    /// Each of `state` with those of four rows; one switch for all.
    #[inline(always)]
    pub(super) fn combine_rows<A: Number, const N: usize>(self, state: [A; N], rows: [[A; N]; 4]) -> [A; N] {
        match self.combine {
            Combine::Add => each_with_four(state, rows, A::plus),
            Combine::Multiply => each_with_four(state, rows, A::times),
            Combine::Max => each_with_four(state, rows, A::larger),
        }
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

#[inline(always)]
fn each_with_four<A: Copy, const N: usize>(
    state: [A; N],
    [a, b, c, d]: [[A; N]; 4],
    f: impl Fn(A, A) -> A,
) -> [A; N] {
    core::array::from_fn(|j| f(state[j], f(f(a[j], b[j]), f(c[j], d[j]))))
}

impl<T: Reduced<Number: Words>> Reducer<T> for Fold {
    type State = T::Number;

    #[inline(always)]
    fn start(self) -> T::Number {
        self.identity()
    }

    #[inline(always)]
    fn absorb<const N: usize>(self, state: T::Number, values: [T; N], _: u32) -> T::Number {
        let values = self.map(T::numbers(values));
        // One switch for all.
        match self.combine {
            Combine::Add => state.plus(tree(values, Number::plus)),
            Combine::Multiply => state.times(tree(values, Number::times)),
            Combine::Max => state.larger(tree(values, Number::larger)),
        }
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
        Words::from_word(words[0])
    }
}

/// A number as a word.
pub trait Words {
    /// Its bits.
    fn to_word(self) -> u64;
    /// The number with these bits.
    fn from_word(word: u64) -> Self;
}

impl Words for f32 {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.to_bits().into()
    }
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        f32::from_bits(word as u32)
    }
}

impl Words for f64 {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        f64::from_bits(word)
    }
}

impl Words for i64 {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.cast_unsigned()
    }
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        word.cast_signed()
    }
}

/// `y[row, chunk]` from the row's chunk of `x`.
///
/// # Safety
/// As the entries below.
#[inline(always)]
unsafe fn run<T: Reduced<Number: Words>, const N: usize>(
    fold: Fold,
    plan: &Rows,
    divisor: T::Number,
    x: *const T,
    y: *mut T::Number,
) {
    let chunk = plan.chunk();
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
