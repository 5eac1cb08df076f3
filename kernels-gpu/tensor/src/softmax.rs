//! Softmax and its logarithm along rows.
//!
//! ```text
//!   pass 1: read the row -> running maximum and sum of exponentials (one thread, a warp, or a block a row)
//!   pass 2: write e^(x - max) / sum, or x - max - ln(sum)
//! ```
//! Global memory is read once: pass 2 finds short rows in the L1 cache, and long ones in the shared memory
//! where pass 1 put them. Rows that fit in neither are read twice.

use cuda_std::shared::dynamic_shared_mem;
use cuda_std::{kernel, shared_array, thread};
use half::{bf16, f16};
use primitives::access::{self, VECTOR_BYTES, Words, from_words, width};
use primitives::activation::Precision;
use primitives::element::Float;
use primitives::op::Operation;
use primitives::row::{self, Part, Reader};
use primitives::softmax::{Online, Softmax};
use primitives::warp::LANES;
use primitives::{block, grid, warp};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// 1 for the logarithm of the softmax, else 0.
    pub log: u32,
}

impl Plan {
    /// The plan for `rows` of `columns` elements of `size` bytes, on a device whose blocks have up to
    /// `shared` bytes of shared memory.
    pub const fn new(rows: u64, columns: u64, size: usize, shared: u32, log: bool) -> Self {
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
        Self { rows, columns, threads, block, kept: if fits { room as u32 } else { 0 }, log: log as u32 }
    }

    /// Blocks.
    pub const fn blocks(&self) -> u64 {
        self.rows.div_ceil((self.block / self.threads) as u64)
    }
}

/// Reads a row as [`Online`] does, and keeps a copy of it.
struct Keeping<T: Float> {
    online: Online<T::Precision>,
    /// Room for the row, as far into a vector as the row is.
    copy: *mut T,
}

impl<T: Float> Clone for Keeping<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Float> Copy for Keeping<T> {}

impl<T: Float> Operation<Softmax<T::Precision>> for Keeping<T> {
    #[inline(always)]
    fn identity(self) -> Softmax<T::Precision> {
        self.online.identity()
    }

    #[inline(always)]
    fn combine(self, a: Softmax<T::Precision>, b: Softmax<T::Precision>) -> Softmax<T::Precision> {
        self.online.combine(a, b)
    }
}

impl<T: Float> Reader<T> for Keeping<T> {
    type State = Softmax<T::Precision>;

    #[inline(always)]
    fn element(self, state: Self::State, value: T, index: u32) -> Self::State {
        // SAFETY: `copy` has room for the row, of which this thread has the element.
        unsafe { *self.copy.add(index as usize) = value };
        self.online.element(state, value, index)
    }

    #[inline(always)]
    fn vector<const N: usize>(self, state: Self::State, words: Words, first: u32) -> Self::State {
        // SAFETY: as above; the vector is aligned here where it is in the row.
        unsafe { access::store(self.copy.add(first as usize), from_words::<T, N>(words)) };
        Reader::<T>::vector::<N>(self.online, state, words, first)
    }
}

/// The rows of `y` from those of `x`.
///
/// # Safety
/// As the entries below. `slots` is shared memory for [`SLOTS`] states.
#[inline(always)]
unsafe fn run<T: Float, const N: usize>(
    plan: &Plan,
    x: *const T,
    y: *mut T,
    slots: *mut Softmax<T::Precision>,
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
    let online = Online::<T::Precision>::NEW;
    // SAFETY: the row is in both tensors; the copy has room for it. The branches are the same for all
    // threads.
    unsafe {
        let (x, y) = (x.add(start), y.add(start));
        let copy = dynamic_shared_mem::<u8>().add(x as usize % VECTOR_BYTES).cast::<T>();
        let from: *const T = if plan.kept > 0 { copy } else { x };
        let state = if plan.kept > 0 {
            row::read::<T, _, N>(Keeping { online, copy }, part, x)
        } else {
            row::read::<T, _, N>(online, part, x)
        };
        let state = if plan.threads == 1 {
            state
        } else if plan.threads == LANES {
            warp::reduce(online, state)
        } else {
            // Its barrier makes the copy visible to the block.
            block::reduce(online, state, slots)
        };
        if plan.log > 0 {
            let sum = T::Precision::ln(state.sum);
            row::map::<T, N>(part, from, y, |x, _| (x - state.max) - sum);
        } else {
            let factor = state.inverse_sum();
            row::map::<T, N>(part, from, y, |x, _| state.weight(x) * factor);
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("The softmax of rows of ", stringify!($ty), ", or its logarithm.")]
        ///
        /// # Safety
        /// `x` and `y` hold the plan's rows, one behind the other, and do not overlap. As many blocks,
        /// threads and bytes of dynamic shared memory as the plan says.
        #[kernel(launch_bounds(max_threads(size_of::<$ty>())))]
        pub unsafe fn $name(plan: Plan, x: *const $ty, y: *mut $ty) {
            let slots = shared_array![Softmax<<$ty as Float>::Precision>; SLOTS];
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, { width(size_of::<$ty>(), size_of::<$ty>()) }>(&plan, x, y, slots) }
        }
    )* };
}

entries! {
    softmax_f64: f64;
    softmax_f32: f32;
    softmax_f16: f16;
    softmax_bf16: bf16;
}

#[cfg(test)]
mod tests {
    use super::{Plan, STATIC_BYTES, max_threads};

    #[test]
    fn plans_have_whole_warps_and_room() {
        for size in [2, 4, 8] {
            for columns in [0, 1, 16, 17, 600, 1000, 4096, 50_257, 1 << 20] {
                let plan = Plan::new(100, columns, size, 227 << 10, false);
                let Plan { threads, block, kept, .. } = plan;
                assert!(block.is_multiple_of(32) && block <= max_threads(size), "{plan:?}");
                assert!(threads == 1 || threads == 32 || threads == block, "{plan:?}");
                assert!(plan.blocks() * u64::from(block / threads) >= 100, "{plan:?}");
                assert!(kept == 0 || threads == block, "{plan:?}");
                assert!(u64::from(kept) + STATIC_BYTES <= 227 << 10, "{plan:?}");
                assert!(kept == 0 || u64::from(kept) >= columns * size as u64 + 16, "{plan:?}");
            }
        }
        let shifted = Plan::new(1, 50_257, 4, 227 << 10, true);
        assert!(shifted.kept > 0 && shifted.log == 1, "a vocabulary's logits stay on the multiprocessor");
    }
}
