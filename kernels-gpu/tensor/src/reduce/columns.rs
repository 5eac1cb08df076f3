//! Sums, products and maxima along columns.
//!
//! ```text
//!   a block:   32 columns' units of 16 bytes  x  8 lanes; a lane takes every 8th row of the chunk, four under way at a time;
//!              fewer columns have more lanes. Then the lanes are combined, the second half with the first, until one is left.
//! ```
//! Where rows do not begin at 16-byte boundaries a unit is one element. What is added to what depends on the
//! shape and on nothing else.

use super::fold::Fold;
use super::number::Reduced;
use crate::access;
use crate::{THREADS, VECTOR_BYTES};
use cuda_std::{kernel, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::grid::begin;
use primitives::op::{Number, Operation};

/// Rows that a thread has under way.
const UNROLL: usize = 4;
/// Most rows of a lane: keeps the chains of additions short.
const LONGEST: u64 = 1024;
/// Least rows of a lane: keeps the results between the launches few.
const SHORTEST: u64 = 16;
/// Units that lie side by side in a block, at most, as a power of two: a warp's.
const WIDEST: u32 = 5;
/// Blocks that a multiprocessor holds at once.
const RESIDENT: u32 = 4;
/// Blocks that the largest devices hold at once, 132 multiprocessors of them. Fewer than a few times as many
/// have to be just as many, or most of the device waits for the last.
const AT_ONCE: u64 = 132 * RESIDENT as u64;
/// Most sums of a thread, and most bytes of them.
const MOST: (usize, usize) = (8, 32);
/// Sums of a block.
const SLOTS: usize = THREADS as usize * MOST.0;

/// Elements of a type that a thread takes: 16 bytes, but no more sums than its registers hold.
pub const fn width_of<T: Reduced>() -> usize {
    let most = MOST.1 / size_of::<T::Number>();
    let width = VECTOR_BYTES / size_of::<T>();
    if width > most { most } else { width }
}

/// How columns are shared among threads.
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
    /// Elements of a unit.
    pub step: u32,
    /// A block has `2^shift` units side by side.
    pub shift: u32,
}

impl Columns {
    /// How `outer` matrices of `rows` by `inner` elements of type `T` at `address` are shared. No side is 0.
    pub const fn new<T: Reduced>(outer: u64, rows: u64, inner: u64, address: u64) -> Self {
        let vectors = address.is_multiple_of(VECTOR_BYTES as u64)
            && (inner * size_of::<T>() as u64).is_multiple_of(VECTOR_BYTES as u64);
        let step = if vectors { width_of::<T>() as u32 } else { 1 };
        let units = inner / step as u64;
        let shift = if units >= 1 << WIDEST { WIDEST } else { units.next_power_of_two().ilog2() };
        let lanes = (THREADS >> shift) as u64;
        let strips = outer * units.div_ceil(1 << shift);
        // Either just what fits at once or several times as much.
        let few = AT_ONCE / strips;
        let wanted = if few >= 4 { few } else { 4 * AT_ONCE / strips };
        let most = rows / (lanes * SHORTEST);
        let least = rows.div_ceil(lanes * LONGEST);
        let chunks = if wanted < most { wanted } else { most };
        let chunks = if chunks < least { least } else { chunks };
        let chunk = rows.div_ceil(chunks);
        Self { outer, rows, inner, chunk, chunks: rows.div_ceil(chunk), step, shift }
    }

    /// Blocks of a chunk of rows.
    const fn strips(&self) -> u64 {
        (self.inner / self.step as u64).div_ceil(1 << self.shift)
    }

    /// Blocks, of [`THREADS`] threads.
    pub const fn blocks(&self) -> u64 {
        self.outer * self.chunks * self.strips()
    }
}

/// `y[outer, chunk, ..]` from the chunk's rows of `x`.
///
/// # Safety
/// As the entries below; `N` is the plan's step, and `slots` is shared memory for [`SLOTS`] numbers.
#[inline(always)]
unsafe fn run<T: Reduced, const N: usize>(
    fold: Fold,
    plan: &Columns,
    divisor: T::Number,
    x: *const T,
    y: *mut T::Number,
    slots: *mut T::Number,
) {
    const { assert!(N <= MOST.0) };
    let shift = plan.shift & 31;
    let (lane, lanes) = (thread::thread_idx_x() >> shift, THREADS >> shift);
    let units = plan.inner / N as u64;
    // Blocks are numbered in 32 bits, so all but the number of units are below that.
    let strips = (units.div_ceil(1 << shift) as u32).max(1);
    let (strip, part) = (thread::block_idx_x() % strips, thread::block_idx_x() / strips);
    let chunks = (plan.chunks as u32).max(1);
    let (outer, chunk) = (u64::from(part / chunks), u64::from(part % chunks));
    let unit = (u64::from(strip) << shift) + u64::from(thread::thread_idx_x() & ((1 << shift) - 1));
    let first = chunk * plan.chunk;
    let rows = if unit < units { plan.chunk.min(plan.rows - first) } else { 0 };
    begin(|| ());
    let mut state: [T::Number; N] = [fold.identity(); N];
    // SAFETY: rows of the chunk and the unit's elements only.
    unsafe {
        let column = (outer * plan.rows + first) * plan.inner + if rows > 0 { unit * N as u64 } else { 0 };
        let column = x.add(column as usize);
        let load = |row: u64| access::load::<T, N>(column.add((row * plan.inner) as usize));
        let mut row = u64::from(lane);
        const { assert!(UNROLL == 4) };
        while row < rows {
            let four = [0, 1, 2, 3].map(|i| row + i * u64::from(lanes));
            // Rows beyond the end read the first of the four again.
            let exists = four.map(|row| row < rows);
            let values = [0, 1, 2, 3].map(|i| load(if exists[i] { four[i] } else { row }));
            state = fold.combine_rows(state, values, exists);
            row += u64::from(lanes) * UNROLL as u64;
        }
        let state = combine_lanes(fold, state, slots, [lane, lanes]);
        if lane == 0 && rows > 0 {
            let result = y.add((u64::from(part) * plan.inner + unit * N as u64) as usize);
            for j in 0..N {
                *result.add(j) = fold.finish(state[j], divisor);
            }
        }
    }
}

/// Combines the states of all lanes in the first.
///
/// # Safety
/// Every thread of the block calls it; `slots` is shared memory for [`SLOTS`] numbers.
#[inline(always)]
unsafe fn combine_lanes<A: Number, const N: usize>(
    fold: Fold,
    mut state: [A; N],
    slots: *mut A,
    [lane, lanes]: [u32; 2],
) -> [A; N] {
    let thread = thread::thread_idx_x() as usize;
    let mut distance = lanes / 2;
    while distance > 0 {
        let away = (THREADS * distance / lanes) as usize;
        // SAFETY: a slot for every sum of every thread, written by it alone, read after a barrier and written
        // again after another.
        unsafe {
            for j in 0..N {
                *slots.add(j * THREADS as usize + thread) = state[j];
            }
            thread::sync_threads();
            if lane < distance {
                for j in 0..N {
                    let other = *slots.add(j * THREADS as usize + thread + away);
                    state[j] = fold.combine(state[j], other);
                }
            }
            thread::sync_threads();
        }
        distance /= 2;
    }
    state
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident as $number:ident;)*) => { $(
        #[doc = concat!("Reduces the chunks of rows of `x`, ", stringify!($ty), ", to `y`, column by column.")]
        ///
        /// # Safety
        /// `x` holds the plan's matrices, for whose address and size it was made, `y` has a row for each
        /// chunk; they do not overlap. Blocks of [`THREADS`] threads, [`Columns::blocks`] of them.
        #[kernel(launch_bounds(THREADS, RESIDENT))]
        pub unsafe fn $name(fold: Fold, plan: Columns, divisor: $number, x: *const $ty, y: *mut $number) {
            // SAFETY: the caller's contract is the same.
            unsafe {
                let slots = shared::generic(shared_array![$number; SLOTS]);
                if plan.step == 1 {
                    run::<$ty, 1>(fold, &plan, divisor, x, y, slots);
                } else {
                    run::<$ty, { width_of::<$ty>() }>(fold, &plan, divisor, x, y, slots);
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
    use super::{Columns, LONGEST};
    use crate::THREADS;
    use crate::reduce::Reduced;
    use half::bf16;

    fn covers<T: Reduced>(outer: u64, rows: u64, inner: u64) {
        let plan = Columns::new::<T>(outer, rows, inner, 256);
        let lanes = u64::from(THREADS >> plan.shift);
        assert!(plan.chunk * plan.chunks >= rows && plan.chunk * (plan.chunks - 1) < rows, "{plan:?}");
        assert!(plan.chunk <= LONGEST * lanes && inner.is_multiple_of(u64::from(plan.step)), "{plan:?}");
        assert!(plan.blocks() < 1 << 31, "{plan:?}");
    }

    #[test]
    fn chunks_cover_rows() {
        for (outer, inner) in [(1, 1), (1, 64), (3, 1000), (100, 7), (1, 1 << 20), (1 << 20, 3)] {
            for rows in [1, 2, 15, 16, 17, 1000, 1024, 1025, 1 << 22] {
                covers::<u8>(outer, rows, inner);
                covers::<bf16>(outer, rows, inner);
                covers::<f32>(outer, rows, inner);
                covers::<f64>(outer, rows, inner);
            }
        }
        // All at once: 16 strips of 33 chunks.
        assert_eq!(Columns::new::<bf16>(1, 1 << 16, 4096, 256).blocks(), 528);
        assert_eq!(Columns::new::<f32>(1, 33, 4096, 256).chunks, 1);
        assert_eq!(Columns::new::<f32>(1, 1 << 20, 4096, 256).step, 4);
        assert_eq!(Columns::new::<f32>(1, 1 << 20, 4096, 4).step, 1);
        assert_eq!(Columns::new::<f32>(1, 1 << 20, 4097, 256).step, 1);
    }
}
