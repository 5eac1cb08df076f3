//! Fused functions of rows: softmax, norms. All share one kernel body; [`table`] has what differs.
//!
//! ```text
//!   pass 1: reduce the row to a state (one thread, a warp, or a block a row)
//!   pass 2: write a function of each element, the state, and a weight and a bias that all rows share
//! ```
//! Global memory is read once: pass 2 finds short rows in the L1 cache, and long ones in the shared memory
//! where pass 1 put them. Rows that fit in neither are read twice. Accesses have 16 bytes.
//!
//! A new function is a [`RowFunction`] and a row of the table.

pub mod table;

use cuda_std::shared::dynamic_shared_mem;
use cuda_std::thread;
use primitives::access::{self, VECTOR_BYTES, Words, from_words};
use primitives::activation::Precision;
use primitives::element::Float;
use primitives::op::Operation;
use primitives::row::{self, Mapper, Part, Reader};
use primitives::warp::{Exchange, LANES};
use primitives::{block, grid, warp};

pub use table::RowOp;

/// Most threads of a block.
pub const MAX_THREADS: u32 = 1024;

/// Most threads of a block for elements of `size` bytes: functions of f64 need more registers than 1024
/// threads have.
pub const fn max_threads(size: usize) -> u32 {
    if size == size_of::<f64>() { MAX_THREADS / 2 } else { MAX_THREADS }
}

/// Threads of a block whose rows are shorter than a block.
const SHORT_BLOCK: u32 = 256;
/// Longest rows for a thread alone, elements.
const THREAD_ELEMENTS: u64 = 16;
/// Longest rows for a warp alone, bytes.
const WARP_BYTES: u64 = 4096;
/// Rows that the L1 cache keeps between the passes, bytes, with as many blocks as a multiprocessor has.
const CACHED_BYTES: u64 = 16 << 10;
/// Slots for the states of a block's warps.
const SLOTS: usize = block::slots(MAX_THREADS);
/// Static shared memory of the kernels at most, bytes: it is taken from what rows may have.
const STATIC_BYTES: u64 = 1024;

/// How rows are shared among threads.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Plan {
    /// Rows, one behind the other.
    pub rows: u64,
    /// Elements of a row, fewer than 2^32.
    pub columns: u64,
    /// Threads that share a row: 1, a warp, or a block.
    pub threads: u32,
    /// Threads of a block.
    pub block: u32,
    /// Bytes of dynamic shared memory that keep the row of a block between the passes; 0: none do.
    pub kept: u32,
    /// Added to a variance or a mean square before its root is taken.
    pub eps: f64,
}

impl Plan {
    /// The plan for `rows` of `columns` elements of `size` bytes, on a device whose blocks have up to
    /// `shared` bytes of shared memory.
    pub const fn new(rows: u64, columns: u64, size: usize, shared: u32, eps: f64) -> Self {
        let bytes = columns * size as u64;
        // A thread has four vectors of a row.
        let most = max_threads(size);
        let wanted = (bytes / (VECTOR_BYTES * row::UNROLL) as u64).next_power_of_two();
        let (threads, block) = if columns <= THREAD_ELEMENTS {
            (1, SHORT_BLOCK)
        } else if bytes <= WARP_BYTES {
            (LANES, SHORT_BLOCK)
        } else if wanted >= most as u64 {
            (most, most)
        } else {
            (wanted as u32, wanted as u32)
        };
        // The row lies as it does in global memory, so it may begin anywhere in a vector.
        let room = bytes + VECTOR_BYTES as u64;
        let fits = bytes > CACHED_BYTES && room + STATIC_BYTES <= shared as u64;
        Self { rows, columns, threads, block, kept: if fits { room as u32 } else { 0 }, eps }
    }

    /// Blocks.
    pub const fn blocks(&self) -> u64 {
        self.rows.div_ceil((self.block / self.threads) as u64)
    }
}

/// A function of rows: a reduction of the row, and what an element becomes by its result.
pub trait RowFunction<T: Float> {
    /// What the reduction knows of the elements that it has seen.
    type State: Exchange;
    /// The reduction.
    type Reduce: Reader<T, State = Self::State>;
    /// What elements need of the row.
    type Of: Copy;
    /// The reduction.
    const REDUCE: Self::Reduce;
    /// Whether there may be a weight and a bias.
    const AFFINE: bool;
    /// From the state of a row. `share` is 1 / columns.
    fn of(state: Self::State, share: T::Wide, eps: T::Wide) -> Self::Of;
    /// What an element becomes, before weight and bias.
    fn element(of: Self::Of, x: T::Wide) -> T::Wide;
}

/// Reduces a row as `reduce` does, and keeps a copy of it.
struct Keeping<T, R> {
    reduce: R,
    /// Room for the row, as far into a vector as the row is.
    copy: *mut T,
}

impl<T, R: Copy> Clone for Keeping<T, R> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, R: Copy> Copy for Keeping<T, R> {}

impl<T: Float, R: Reader<T>> Operation<R::State> for Keeping<T, R> {
    #[inline(always)]
    fn identity(self) -> R::State {
        self.reduce.identity()
    }

    #[inline(always)]
    fn combine(self, a: R::State, b: R::State) -> R::State {
        self.reduce.combine(a, b)
    }
}

impl<T: Float, R: Reader<T>> Reader<T> for Keeping<T, R> {
    type State = R::State;

    #[inline(always)]
    fn element(self, state: Self::State, value: T, index: u32) -> Self::State {
        // SAFETY: `copy` has room for the row, of which this thread has the element.
        unsafe { *self.copy.add(index as usize) = value };
        self.reduce.element(state, value, index)
    }

    #[inline(always)]
    fn vector<const N: usize>(self, state: Self::State, words: Words, first: u32) -> Self::State {
        // SAFETY: as above; the vector is aligned here where it is in the row.
        unsafe { access::store(self.copy.add(first as usize), from_words::<T, N>(words)) };
        self.reduce.vector::<N>(state, words, first)
    }
}

/// The second pass over a row.
struct Apply<T: Float, F: RowFunction<T>> {
    of: F::Of,
    /// Null, or a factor a column.
    weight: *const T,
    /// Null, or a term a column.
    bias: *const T,
}

impl<T: Float, F: RowFunction<T>> Mapper<T> for Apply<T, F> {
    #[inline(always)]
    fn apply<const N: usize>(&self, x: [T::Wide; N], first: u32) -> [T::Wide; N] {
        let mut y = core::array::from_fn(|i| F::element(self.of, x[i]));
        // SAFETY: both are readable for a row where they are not null.
        unsafe {
            if F::AFFINE && !self.weight.is_null() {
                let weight = row::shared::<T, N>(self.weight, first);
                y = core::array::from_fn(|i| y[i] * weight[i]);
            }
            if F::AFFINE && !self.bias.is_null() {
                let bias = row::shared::<T, N>(self.bias, first);
                y = core::array::from_fn(|i| y[i] + bias[i]);
            }
        }
        y
    }
}

/// Tensors of a launch.
struct Operands<T> {
    x: *const T,
    weight: *const T,
    bias: *const T,
    y: *mut T,
}

/// The rows of `y` from those of `x`.
///
/// # Safety
/// As the entries of [`table`]. `slots` is shared memory for [`SLOTS`] states.
#[inline(always)]
unsafe fn run<T: Float, F: RowFunction<T>, const N: usize>(
    plan: &Plan,
    operands: Operands<T>,
    slots: *mut F::State,
) {
    let (row, thread) = grid::begin(|| {
        let (threads, thread) = (plan.threads.max(1), thread::thread_idx_x());
        let of_block = u64::from(thread::block_idx_x()) * u64::from(plan.block / threads);
        (of_block + u64::from(thread / threads), thread % threads)
    });
    let exists = row < plan.rows;
    let len = if exists { plan.columns } else { 0 };
    let part = Part { len, thread: thread.into(), threads: plan.threads.into() };
    let start = if exists { (row * plan.columns) as usize } else { 0 };
    let reduce = F::REDUCE;
    // SAFETY: the row is in both tensors; the copy has room for it. The branches are the same for all
    // threads.
    unsafe {
        let (x, y) = (operands.x.add(start), operands.y.add(start));
        let copy = dynamic_shared_mem::<u8>().add(x as usize % VECTOR_BYTES).cast::<T>();
        let from: *const T = if plan.kept > 0 { copy } else { x };
        let state = if plan.kept > 0 {
            row::read::<T, _, N>(Keeping { reduce, copy }, part, x)
        } else {
            row::read::<T, _, N>(reduce, part, x)
        };
        let state = if plan.threads == 1 {
            state
        } else if plan.threads == LANES {
            warp::reduce(reduce, state)
        } else {
            // Its barrier makes the copy visible to the block.
            block::reduce(reduce, state, slots)
        };
        let value = |x| <T::Precision as Precision>::value(x);
        let of = F::of(state, value(1.0) / value(plan.columns as f64), value(plan.eps));
        let Operands { weight, bias, .. } = operands;
        row::map::<T, N>(part, from, y, Apply::<T, F> { of, weight, bias });
    }
}

#[cfg(test)]
mod tests {
    use super::{Plan, STATIC_BYTES, max_threads};

    #[test]
    fn plans_have_whole_warps_and_room() {
        for size in [2, 4, 8] {
            for columns in [0, 1, 16, 17, 600, 1000, 4096, 50_257, 1 << 20] {
                let plan = Plan::new(100, columns, size, 227 << 10, 0.0);
                let Plan { threads, block, kept, .. } = plan;
                assert!(block.is_multiple_of(32) && block <= max_threads(size), "{plan:?}");
                assert!(threads == 1 || threads == 32 || threads == block, "{plan:?}");
                assert!(plan.blocks() * u64::from(block / threads) >= 100, "{plan:?}");
                assert!(kept == 0 || threads == block, "{plan:?}");
                assert!(u64::from(kept) + STATIC_BYTES <= 227 << 10, "{plan:?}");
                assert!(kept == 0 || u64::from(kept) >= columns * size as u64 + 16, "{plan:?}");
            }
        }
        let shifted = Plan::new(1, 50_257, 4, 227 << 10, 1e-5);
        assert!(shifted.kept > 0 && shifted.eps == 1e-5, "a vocabulary's logits stay on the multiprocessor");
    }
}
