//! Where the largest or the smallest element of a row stands.
//!
//! The first of several; a NaN counts as beyond every number. A long row's chunks give a candidate each, of which a second launch takes
//! the best, reading the candidates' elements again.

use super::number::{Number, Reduced, tree};
use super::rows::{Reducer, Rows, absorb, from_lane, gather};
use crate::THREADS;
use crate::access::width;
use crate::reduce::fold::Words;
use cuda_std::kernel;
use half::{bf16, f16};

/// Which element is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Extreme {
    /// The largest.
    Largest,
    /// The smallest.
    Smallest,
}

/// An element that is the best so far, and its number in the chunk.
#[derive(Clone, Copy)]
pub struct Best<A> {
    key: A,
    number: u32,
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
}

impl Extreme {
    /// What is compared: larger is better.
    #[inline(always)]
    fn key<A: Number>(self, value: A) -> A {
        if self == Extreme::Smallest { value.flip() } else { value }
    }
}

impl<T: Reduced<Number: Words>> Reducer<T> for Extreme {
    type State = Best<T::Number>;

    #[inline(always)]
    fn start(self) -> Self::State {
        Best::NONE
    }

    #[inline(always)]
    fn absorb<const N: usize>(self, state: Self::State, values: [T; N], first: u32) -> Self::State {
        let keys = T::numbers(values).map(|value| self.key(value));
        let each =
            core::array::from_fn::<_, N, _>(|j| Best { key: keys[j], number: first.wrapping_add(j as u32) });
        state.or(tree(each, Best::or))
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
        Best { key: Words::from_word(words[0]), number: words[1] as u32 }
    }
}

/// `y[row, chunk]`: the place in the row of the chunk's extreme element. With `candidates`, of the best of the row's candidates.
///
/// # Safety
/// As the entries below.
#[inline(always)]
unsafe fn run<T: Reduced<Number: Words>, const N: usize>(
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
            let state = absorb::<T, Extreme, N>(
                extreme,
                &chunk,
                row.add(if chunk.len == 0 { 0 } else { chunk.start as usize }),
            );
            if let Some(best) = gather::<T, Extreme>(extreme, &chunk, state) {
                *y.add(chunk.number as usize) = (chunk.start + u64::from(best.number)).cast_signed();
            }
            return;
        }
        let candidates = candidates.add(if chunk.len == 0 { 0 } else { (chunk.row * plan.columns) as usize });
        let mut state = Best::NONE;
        let mut number = chunk.lane();
        while number < chunk.len {
            let value = *row.add(*candidates.add(number as usize) as usize);
            state = extreme.absorb(state, [value], number as u32);
            number += chunk.group();
        }
        if let Some(best) = gather::<T, Extreme>(extreme, &chunk, state) {
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
