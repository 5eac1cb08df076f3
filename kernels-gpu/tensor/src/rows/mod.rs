//! Fused functions of rows: softmax, norms. All share one kernel body; [`table`] has what differs.
//!
//! ```text
//!   pass 1: reduce the row to a state (one thread, a warp, or a block a row)
//!   pass 2: write a function of each element, the state, and a weight and a bias that all rows share
//! ```
//! Pass 2 finds short rows in the L1 cache and long ones in the L2 cache. Accesses have 16 bytes.
//!
//! A new function is a [`RowFunction`] and a row of the table.

pub mod table;

use cuda_std::thread;
use primitives::access::VECTOR_BYTES;
use primitives::activation::Precision;
use primitives::element::Float;
use primitives::row::{self, Mapper, Part, Reader};
use primitives::warp::{Exchange, LANES};
use primitives::{block, grid, warp};

pub use table::RowOp;

/// Most threads of a block.
pub const MAX_THREADS: u32 = 512;

/// Most threads of a block for elements of `size` bytes: functions of f64 need more registers than 512
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
/// Slots for the states of a block's warps.
const SLOTS: usize = block::slots(MAX_THREADS);

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
    /// Added to a variance or a mean square before its root is taken.
    pub eps: f64,
}

impl Plan {
    /// The plan for `rows` of `columns` elements of `size` bytes.
    pub const fn new(rows: u64, columns: u64, size: usize, eps: f64) -> Self {
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
        Self { rows, columns, threads, block, eps }
    }

    /// Blocks.
    pub const fn blocks(&self) -> u64 {
        self.rows.div_ceil((self.block / self.threads) as u64)
    }
}

/// A function of rows: a reduction of the row, and what an element becomes by its result.
pub trait RowFunction<T: Float> {
    /// The reduction's state over the elements so far.
    type State: Exchange;
    /// The reduction.
    type Reduce: Reader<T, State = Self::State>;
    /// The row's numbers that each element needs.
    type Of: Copy;
    /// The reduction.
    const REDUCE: Self::Reduce;
    /// Whether there may be a weight and a bias.
    const AFFINE: bool;
    /// From the state of a row. `share` is 1 / columns.
    fn of(state: Self::State, share: T::Wide, eps: T::Wide) -> Self::Of;
    /// The result for an element, before weight and bias.
    fn element(of: Self::Of, x: T::Wide) -> T::Wide;
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
    // SAFETY: the row is in both tensors. The branches are the same for all threads.
    unsafe {
        let (x, y) = (operands.x.add(start), operands.y.add(start));
        let state = row::read::<T, _, N>(reduce, part, x);
        let state = if plan.threads == 1 {
            state
        } else if plan.threads == LANES {
            warp::reduce(reduce, state)
        } else {
            block::reduce(reduce, state, slots)
        };
        let value = |x| <T::Precision as Precision>::value(x);
        let of = F::of(state, value(1.0) / value(plan.columns as f64), value(plan.eps));
        let Operands { weight, bias, .. } = operands;
        row::map::<T, N>(part, x, y, Apply::<T, F> { of, weight, bias });
    }
}

#[cfg(test)]
mod tests {
    use super::{Plan, max_threads};

    #[test]
    fn plans_have_whole_warps_and_blocks_for_all_rows() {
        for size in [2, 4, 8] {
            for columns in [0, 1, 16, 17, 600, 1000, 4096, 50_257, 1 << 20] {
                let plan = Plan::new(100, columns, size, 0.0);
                let Plan { threads, block, .. } = plan;
                assert!(block.is_multiple_of(32) && block <= max_threads(size), "{plan:?}");
                assert!(threads == 1 || threads == 32 || threads == block, "{plan:?}");
                assert!(plan.blocks() * u64::from(block / threads) >= 100, "{plan:?}");
            }
        }
        assert_eq!(Plan::new(1, 50_257, 4, 1e-5).eps, 1e-5);
    }
}
