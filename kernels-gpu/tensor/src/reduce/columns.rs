//! Sums, products and maxima along columns.
//!
//! A thread takes 16 bytes of a row and goes down its chunk of rows, four under way at a time. Where rows do not begin at 16-byte
//! boundaries a thread takes one element.

use super::fold::Fold;
use super::number::Reduced;
use crate::access;
use crate::{THREADS, VECTOR_BYTES};
use cuda_std::{kernel, thread};
use half::{bf16, f16};

/// Rows that a thread has under way.
const UNROLL: usize = 4;
/// Most rows of a chunk: keeps the chains of additions short.
const LONGEST: u64 = 1024;
/// Least rows of a chunk: keeps the results between the launches few.
const SHORTEST: u64 = 16;
/// Threads that keep every device busy.
const ENOUGH: u64 = 1 << 18;

/// Elements of `size` bytes that a thread takes: 16 bytes, but no more sums than its registers hold.
const fn width_of(size: usize) -> usize {
    /// Most sums of a thread.
    const MOST: usize = 8;
    if VECTOR_BYTES / size > MOST { MOST } else { VECTOR_BYTES / size }
}

/// How columns are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Columns {
    /// Matrices, one behind the other.
    pub outer: u64,
    /// Rows of each.
    pub rows: u64,
    /// Elements of a row.
    pub inner: u64,
    /// Rows of a chunk; the last one may have fewer.
    pub chunk: u64,
    /// Chunks of a matrix.
    pub chunks: u64,
    /// Elements of a row that a thread takes.
    pub step: u64,
}

impl Columns {
    /// How `outer` matrices of `rows` by `inner` elements of `size` bytes at `address` are dealt out. No side is 0.
    pub const fn new(outer: u64, rows: u64, inner: u64, size: usize, address: u64) -> Self {
        let vectors = address.is_multiple_of(VECTOR_BYTES as u64)
            && (inner * size as u64).is_multiple_of(VECTOR_BYTES as u64);
        let step = if vectors { width_of(size) as u64 } else { 1 };
        let threads = outer * (inner / step);
        let mut chunks = ENOUGH.div_ceil(threads);
        if chunks > rows.div_ceil(SHORTEST) {
            chunks = rows.div_ceil(SHORTEST);
        }
        if chunks < rows.div_ceil(LONGEST) {
            chunks = rows.div_ceil(LONGEST);
        }
        let chunk = rows.div_ceil(chunks);
        Self { outer, rows, inner, chunk, chunks: rows.div_ceil(chunk), step }
    }

    /// Blocks, of [`THREADS`] threads.
    pub const fn blocks(&self) -> u64 {
        (self.outer * self.chunks * (self.inner / self.step)).div_ceil(THREADS as u64)
    }
}

/// `y[outer, chunk, ..]` from the chunk's rows of `x`.
///
/// # Safety
/// As the entries below; `N` is the plan's step.
#[inline(always)]
unsafe fn run<T: Reduced, const N: usize>(
    fold: Fold,
    plan: &Columns,
    divisor: T::Number,
    x: *const T,
    y: *mut T::Number,
) {
    let number = u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x());
    let units = (plan.inner / N as u64).max(1);
    let (strip, unit) = (number / units, number % units);
    let chunks = plan.chunks.max(1);
    let (outer, chunk) = (strip / chunks, strip % chunks);
    if outer >= plan.outer {
        return;
    }
    let first = chunk * plan.chunk;
    let rows = plan.chunk.min(plan.rows - first);
    let mut state = [fold.identity::<T::Number>(); N];
    // SAFETY: rows of the chunk and the unit's elements only.
    unsafe {
        let column = x.add(((outer * plan.rows + first) * plan.inner + unit * N as u64) as usize);
        let load =
            |row: u64| fold.map(T::numbers(access::load::<T, N>(column.add((row * plan.inner) as usize))));
        let mut row = 0;
        while row + UNROLL as u64 <= rows {
            const { assert!(UNROLL == 4) };
            state = fold.combine_rows(state, [0, 1, 2, 3].map(|i| load(row + i)));
            row += UNROLL as u64;
        }
        while row < rows {
            // Nothing changes nothing.
            let nothing = [fold.identity(); N];
            state = fold.combine_rows(state, [load(row), nothing, nothing, nothing]);
            row += 1;
        }
        let result = y.add((strip * plan.inner + unit * N as u64) as usize);
        for j in 0..N {
            *result.add(j) = fold.finish(state[j], divisor);
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident as $number:ident;)*) => { $(
        #[doc = concat!("Reduces the chunks of rows of `x`, ", stringify!($ty), ", to `y`, column by column.")]
        ///
        /// # Safety
        /// `x` holds the plan's matrices, for whose address and size it was made, `y` has a row for each chunk; they do not overlap.
        /// Blocks of [`THREADS`] threads, [`Columns::blocks`] of them.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(fold: Fold, plan: Columns, divisor: $number, x: *const $ty, y: *mut $number) {
            // SAFETY: the caller's contract is the same.
            unsafe {
                if plan.step == 1 {
                    run::<$ty, 1>(fold, &plan, divisor, x, y);
                } else {
                    run::<$ty, { width_of(size_of::<$ty>()) }>(fold, &plan, divisor, x, y);
                }
            }
        }
    )* };
}

entries! {
    fold_columns_f64: f64 as f64;
    fold_columns_f32: f32 as f32;
    fold_columns_f16: f16 as f32;
    fold_columns_bf16: bf16 as f32;
    fold_columns_i64: i64 as i64;
    fold_columns_i32: i32 as i64;
    fold_columns_u8: u8 as i64;
}

#[cfg(test)]
mod tests {
    use super::Columns;

    #[test]
    fn chunks_cover_rows() {
        for (outer, inner) in [(1, 1), (1, 64), (3, 1000), (100, 7), (1, 1 << 20), (1 << 20, 3)] {
            for rows in [1, 2, 15, 16, 17, 1000, 1024, 1025, 1 << 22] {
                for size in [1, 2, 4, 8] {
                    let plan = Columns::new(outer, rows, inner, size, 256);
                    assert!(
                        plan.chunk * plan.chunks >= rows && plan.chunk * (plan.chunks - 1) < rows,
                        "{plan:?}"
                    );
                    assert!(plan.chunk <= 1024 && inner % plan.step == 0, "{plan:?}");
                }
            }
        }
        assert_eq!(Columns::new(1, 1 << 20, 4096, 4, 256).step, 4);
        assert_eq!(Columns::new(1, 1 << 20, 4096, 4, 4).step, 1);
        assert_eq!(Columns::new(1, 1 << 20, 4097, 4, 256).step, 1);
    }
}
