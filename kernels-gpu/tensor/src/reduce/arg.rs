//! Where the largest or the smallest element of a row stands.
//!
//! The first of several; a NaN counts as beyond every number. On its way along a row a thread keeps the best element and the 16 bytes
//! it was in, which costs little more than a maximum; which of them it was is looked up once, at the end. A long row's chunks give a candidate each, of which a second launch takes
//! the best, reading the candidates' elements again.

use super::number::{Bits, Number, Reduced, tree};
use super::rows::{Reducer, Rows, absorb, from_lane, gather};
use crate::THREADS;
use crate::access::{Words, from_words, repeat, width};
use cuda_std::kernel;
use half::{bf16, f16};

/// Units that are worth a thread: to settle where its best element is, and whose is best, takes as long as some units do.
pub const SHARE: u64 = 32;

/// Which element is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Extreme {
    /// The largest.
    Largest,
    /// The smallest.
    Smallest,
}

/// The best element so far, and its number in the chunk.
#[derive(Clone, Copy)]
pub struct Best<A> {
    key: A,
    number: u32,
}

/// The best element of a thread so far, and the unit that it is in.
#[derive(Clone, Copy)]
pub struct Seen<A> {
    best: Best<A>,
    /// Every element of it is the best when that came alone.
    unit: Words,
}

impl<A: Number> Best<A> {
    /// Nothing: any element is better.
    const NONE: Self = Best { key: A::LOWEST, number: u32::MAX };

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        let (a, b) = (self.key.is_nan(), other.key.is_nan());
        let same = if a || b { a == b } else { self.key == other.key };
        let above = if a || b { b } else { other.key > self.key };
        let better = if same { other.number < self.number } else { above };
        if better { other } else { self }
    }

    /// Is an element that comes behind it better? Of the lowest numbers none is: see [`Best::is_lowest`].
    #[inline(always)]
    fn is_below(self, key: A) -> bool {
        (key > self.key || key.is_nan()) && !self.key.is_nan()
    }

    /// Is no element above the lowest number there is? The first one is then as good as any.
    #[inline(always)]
    fn is_lowest(self) -> bool {
        self.key == A::LOWEST
    }

    #[inline(always)]
    fn has(self, key: A) -> bool {
        key == self.key || key.is_nan() && self.key.is_nan()
    }
}

impl Extreme {
    /// What is compared: larger is better.
    #[inline(always)]
    fn key<A: Number>(self, value: A) -> A {
        if self == Extreme::Smallest { value.flip() } else { value }
    }
}

impl<T: Reduced<Number: Bits>> Reducer<T> for Extreme {
    type Running = Seen<T::Number>;
    type State = Best<T::Number>;

    #[inline(always)]
    fn start(self) -> Seen<T::Number> {
        Seen { best: Best::NONE, unit: Words::default() }
    }

    #[inline(always)]
    fn absorb_one(self, seen: Seen<T::Number>, value: T, number: u32) -> Seen<T::Number> {
        let [key] = T::numbers([value]);
        let best = seen.best.or(Best { key: self.key(key), number });
        Seen { best, unit: if best.number == number { repeat(value) } else { seen.unit } }
    }

    #[inline(always)]
    fn absorb<const N: usize>(self, seen: Seen<T::Number>, unit: Words, first: u32) -> Seen<T::Number> {
        let keys = T::numbers(from_words::<T, N>(unit)).map(|value| self.key(value));
        let key = tree(keys, Number::larger);
        if seen.best.is_below(key) { Seen { best: Best { key, number: first }, unit } } else { seen }
    }

    #[inline(always)]
    fn settle<const N: usize>(self, Seen { best, unit }: Seen<T::Number>) -> Best<T::Number> {
        let keys = T::numbers(from_words::<T, N>(unit)).map(|value| self.key(value));
        let mut number = best.number;
        for j in (0..N).rev() {
            if best.has(keys[j]) {
                number = best.number.wrapping_add(j as u32);
            }
        }
        Best { key: best.key, number }
    }

    #[inline(always)]
    fn merge(self, a: Self::State, b: Self::State) -> Self::State {
        a.or(b)
    }

    #[inline(always)]
    unsafe fn exchange(self, state: Self::State, distance: u32) -> Self::State {
        // SAFETY: the caller's promise.
        unsafe { Best { key: from_lane(state.key, distance), number: from_lane(state.number, distance) } }
    }

    #[inline(always)]
    fn to_words(state: Self::State) -> [u64; 2] {
        [state.key.to_word(), state.number.into()]
    }

    #[inline(always)]
    fn from_words(words: [u64; 2]) -> Self::State {
        Best { key: Bits::from_word(words[0]), number: words[1] as u32 }
    }
}

/// `y[row, chunk]`: the place in the row of the chunk's extreme element. With `candidates`, of the best of the row's candidates.
///
/// # Safety
/// As the entries below.
#[inline(always)]
unsafe fn run<T: Reduced<Number: Bits>, const N: usize>(
    extreme: Extreme,
    plan: &Rows,
    columns: u64,
    x: *const T,
    candidates: *const i64,
    y: *mut i64,
) {
    let chunk = plan.chunk();
    // SAFETY: the caller's promise; every chunk that exists has one thread that writes its result.
    unsafe {
        let row = x.add(if chunk.len == 0 { 0 } else { (chunk.row * columns) as usize });
        if candidates.is_null() {
            let elements = row.add(if chunk.len == 0 { 0 } else { chunk.start as usize });
            let state = absorb::<T, Extreme, N>(extreme, &chunk, elements);
            if let Some(best) = gather::<T, Extreme>(extreme, &chunk, state) {
                let number = if best.is_lowest() { 0 } else { best.number };
                *y.add(chunk.number as usize) = (chunk.start + u64::from(number)).cast_signed();
            }
            return;
        }
        let candidates = candidates.add(if chunk.len == 0 { 0 } else { (chunk.row * plan.columns) as usize });
        let mut seen = Reducer::<T>::start(extreme);
        let mut number = chunk.lane();
        while number < chunk.len {
            let value = *row.add(*candidates.add(number as usize) as usize);
            seen = extreme.absorb_one(seen, value, number as u32);
            number += chunk.group();
        }
        // Candidates come alone.
        if let Some(best) = gather::<T, Extreme>(extreme, &chunk, seen.best) {
            *y.add(chunk.number as usize) = *candidates.add(best.number as usize);
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("The places of the extreme elements of rows of ", stringify!($ty), ".")]
        ///
        /// `columns` is the length of a row of `x`; the plan's, with `candidates`, is their number.
        ///
        /// # Safety
        /// `x` holds the plan's rows, none of them empty, one behind the other; `candidates` is null or has `plan.columns` places
        /// within each row; `y` has a place for each chunk and overlaps neither. Blocks of [`THREADS`] threads, [`Rows::blocks`] of
        /// them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(extreme: Extreme, plan: Rows, columns: u64, x: *const $ty, candidates: *const i64, y: *mut i64) {
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, { width(size_of::<$ty>(), size_of::<$ty>()) }>(extreme, &plan, columns, x, candidates, y) }
        }
    )* };
}

entries! {
    arg_rows_f64: f64;
    arg_rows_f32: f32;
    arg_rows_f16: f16;
    arg_rows_bf16: bf16;
    arg_rows_i64: i64;
    arg_rows_i32: i32;
    arg_rows_u8: u8;
}
