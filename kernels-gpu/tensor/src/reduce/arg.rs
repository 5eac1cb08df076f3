//! Where the largest or the smallest element of a row stands.
//!
//! The first of several; a NaN counts as beyond every number. On its way along a row a thread keeps the best element and the number of
//! the 16 bytes that it was in, which costs little more than a maximum; which of them it was is looked up once for a chunk, when all of its threads have
//! been compared. A long row's chunks give a candidate each, of which a second launch takes the best, reading the candidates' elements again.

use super::number::{Bits, Number, Reduced};
use super::rows::{Reducer, Rows, absorb, from_lane, gather};
use crate::access::{Words, width};
use crate::{THREADS, begin};
use cuda_std::kernel;
use half::{bf16, f16};

/// Units that are worth a thread: to find whose element is best takes as long as some units do.
pub const SHARE: u64 = 16;
/// Blocks of a multiprocessor at once. Left to itself, the assembler saves registers until loads wait for one another.
const RESIDENT: u32 = 4;

/// Which element is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Extreme {
    /// The largest.
    Largest,
    /// The smallest.
    Smallest,
}

/// The best element so far.
#[derive(Clone, Copy)]
pub struct Best<A> {
    key: A,
    /// Its number in the chunk, or that of its unit's first element.
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
    type State = Best<T::Number>;

    #[inline(always)]
    fn start(self) -> Best<T::Number> {
        Best::NONE
    }

    #[inline(always)]
    fn absorb_one(self, best: Best<T::Number>, value: T, number: u32) -> Best<T::Number> {
        let [key] = T::numbers([value]);
        best.or(Best { key: self.key(key), number })
    }

    #[inline(always)]
    fn absorb<const N: usize>(self, best: Best<T::Number>, unit: Words, first: u32) -> Best<T::Number> {
        let key = T::largest::<N>(unit, self == Extreme::Smallest);
        if best.is_below(key) { Best { key, number: first } } else { best }
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

/// The number of the best of a chunk's `len` elements, which is in the unit that begins there or stands alone.
///
/// # Safety
/// `elements` holds the chunk.
#[inline(always)]
unsafe fn find<T: Reduced, const N: usize>(
    extreme: Extreme,
    best: Best<T::Number>,
    len: u64,
    elements: *const T,
) -> u32 {
    if best.is_lowest() {
        return 0;
    }
    let mut number = best.number;
    // Backwards, so that the first of several is left; what stands alone has been found before anything behind it is looked at.
    for j in (0..N as u32).rev() {
        let place = u64::from(best.number) + u64::from(j);
        // SAFETY: an element of the chunk.
        let [value] = T::numbers([unsafe { *elements.add(if place < len { place as usize } else { 0 }) }]);
        if place < len && best.has(extreme.key(value)) {
            number = place as u32;
        }
    }
    number
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
    let chunk = begin(|| plan.chunk());
    // SAFETY: the caller's promise; every chunk that exists has one thread that writes its result.
    unsafe {
        let row = x.add(if chunk.len == 0 { 0 } else { (chunk.row * columns) as usize });
        if candidates.is_null() {
            let elements = row.add(if chunk.len == 0 { 0 } else { chunk.start as usize });
            let state = absorb::<T, Extreme, N>(extreme, &chunk, elements);
            if let Some(best) = gather::<T, Extreme>(extreme, &chunk, state) {
                let number = find::<T, N>(extreme, best, chunk.len, elements);
                *y.add(chunk.number as usize) = (chunk.start + u64::from(number)).cast_signed();
            }
            return;
        }
        let candidates = candidates.add(if chunk.len == 0 { 0 } else { (chunk.row * plan.columns) as usize });
        let mut best = Reducer::<T>::start(extreme);
        let mut number = chunk.lane();
        while number < chunk.len {
            let value = *row.add(*candidates.add(number as usize) as usize);
            best = extreme.absorb_one(best, value, number as u32);
            number += chunk.group();
        }
        // Candidates come alone.
        if let Some(best) = gather::<T, Extreme>(extreme, &chunk, best) {
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
        #[kernel(launch_bounds(THREADS, RESIDENT))]
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
