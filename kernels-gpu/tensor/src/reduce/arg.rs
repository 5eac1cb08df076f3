//! Where the largest or the smallest element of a row stands.
//!
//! Of several it is the first; a NaN counts as beyond every number. A thread keeps the best element and the
//! index of the vector that it was in, which costs little more than a maximum. When all threads of a chunk
//! are compared, one of them looks up which element of the vector it was. Each chunk of a long row gives a
//! candidate. A second launch reads the candidates' elements and takes the best.

use super::number::Reduced;
use super::rows::{Rows, WARPS, combine};
use crate::THREADS;
use crate::access::{Words, width};
use cuda_std::{kernel, shared, shared_array};
use half::{bf16, f16};
use primitives::grid::begin;
use primitives::op::{ArgMax, Indexed, Number, Operation};
use primitives::row::{Reader, read};

/// Vectors that are worth a thread: to compare threads takes as long as to read some vectors.
pub const SHARE: u64 = 16;
/// Blocks of a multiprocessor at once. Without it ptxas saves registers until loads wait for one another.
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

impl Extreme {
    /// The number that is compared: larger is better.
    #[inline(always)]
    fn key<A: Number>(self, value: A) -> A {
        if self == Extreme::Smallest { value.reversed() } else { value }
    }
}

impl<A: Number> Operation<Indexed<A>> for Extreme {
    #[inline(always)]
    fn identity(self) -> Indexed<A> {
        ArgMax.identity()
    }

    #[inline(always)]
    fn combine(self, a: Indexed<A>, b: Indexed<A>) -> Indexed<A> {
        ArgMax.combine(a, b)
    }
}

impl<T: Reduced> Reader<T> for Extreme {
    /// The best key, and the index of its element or of its vector's first element.
    type State = Indexed<T::Number>;

    #[inline(always)]
    fn element(self, best: Self::State, value: T, index: u32) -> Self::State {
        let [value] = T::numbers([value]);
        ArgMax.combine(best, Indexed { value: self.key(value), index })
    }

    #[inline(always)]
    fn vector<const N: usize>(self, best: Self::State, words: Words, first: u32) -> Self::State {
        let value = T::largest::<N>(words, self == Extreme::Smallest);
        if is_above(value, best.value) { Indexed { value, index: first } } else { best }
    }
}

/// Is a later key better than the best so far? NaN is better than every number.
#[inline(always)]
fn is_above<A: Number>(key: A, best: A) -> bool {
    (key > best || key.is_nan()) && !best.is_nan()
}

/// The index of the best of a chunk's `len` elements, which lies in the vector that begins at `best.index` or
/// stands alone.
///
/// # Safety
/// `elements` holds the chunk.
#[inline(always)]
unsafe fn find<T: Reduced, const N: usize>(
    extreme: Extreme,
    best: Indexed<T::Number>,
    len: u64,
    elements: *const T,
) -> u32 {
    // No element is above the lowest number there is. The first one is then as good as any.
    if best.value == T::Number::LOWEST {
        return 0;
    }
    let mut index = best.index;
    // Backwards, so that the first of several is left. An element that stands alone comes last, before all
    // behind it.
    for j in (0..N as u32).rev() {
        let place = u64::from(best.index) + u64::from(j);
        // SAFETY: an element of the chunk.
        let [value] = T::numbers([unsafe { *elements.add(if place < len { place as usize } else { 0 }) }]);
        let key = extreme.key(value);
        if place < len && (key == best.value || key.is_nan() && best.value.is_nan()) {
            index = place as u32;
        }
    }
    index
}

/// `y[row, chunk]`: the place in the row of the chunk's extreme element. With `candidates`, of the best of
/// the row's candidates.
///
/// # Safety
/// As the entries below; `slots` is shared memory for a candidate a warp.
#[inline(always)]
unsafe fn run<T: Reduced, const N: usize>(
    extreme: Extreme,
    plan: &Rows,
    columns: u64,
    x: *const T,
    candidates: *const i64,
    y: *mut i64,
    slots: *mut Indexed<T::Number>,
) {
    let chunk = begin(|| plan.chunk());
    // SAFETY: the caller's promise; every chunk that exists has one thread that writes its result.
    unsafe {
        let row = x.add(if chunk.len == 0 { 0 } else { (chunk.row * columns) as usize });
        if candidates.is_null() {
            let elements = row.add(if chunk.len == 0 { 0 } else { chunk.start as usize });
            let state = read::<T, Extreme, N>(extreme, chunk.part(), elements);
            let best = combine(extreme, &chunk, state, slots);
            if chunk.is_written_here() {
                let index = find::<T, N>(extreme, best, chunk.len, elements);
                *y.add(chunk.index as usize) = (chunk.start + u64::from(index)).cast_signed();
            }
            return;
        }
        let candidates = candidates.add(if chunk.len == 0 { 0 } else { (chunk.row * plan.columns) as usize });
        let mut best = extreme.identity();
        let mut candidate = chunk.thread;
        while candidate < chunk.len {
            let value = *row.add(*candidates.add(candidate as usize) as usize);
            best = extreme.element(best, value, candidate as u32);
            candidate += chunk.threads;
        }
        let best = combine(extreme, &chunk, best, slots);
        if chunk.is_written_here() {
            *y.add(chunk.index as usize) = *candidates.add(best.index as usize);
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident as $number:ident;)*) => { $(
        #[doc = concat!("The places of the extreme elements of rows of ", stringify!($ty), ".")]
        ///
        /// `columns` is the length of a row of `x`; the plan's, with `candidates`, is their number.
        ///
        /// # Safety
        /// `x` holds the plan's rows, none of them empty, one behind the other; `candidates` is null or has
        /// `plan.columns` places within each row; `y` has a place for each chunk and overlaps neither. Blocks
        /// of [`THREADS`] threads, [`Rows::blocks`] of them.
        #[kernel(launch_bounds(THREADS, RESIDENT))]
        pub unsafe fn $name(extreme: Extreme, plan: Rows, columns: u64, x: *const $ty, candidates: *const i64, y: *mut i64) {
            // SAFETY: the caller's contract is the same.
            unsafe {
                let slots = shared::generic(shared_array![Indexed<$number>; WARPS]);
                run::<$ty, { width(size_of::<$ty>(), size_of::<$ty>()) }>(extreme, &plan, columns, x, candidates, y, slots)
            }
        }
    )* };
}

entries! {
    arg_rows_f64: f64 as f64;
    arg_rows_f32: f32 as f32;
    arg_rows_f16: f16 as f32;
    arg_rows_bf16: bf16 as f32;
    arg_rows_i64: i64 as i64;
    arg_rows_i32: i32 as i64;
    arg_rows_u8: u8 as i64;
}
