//! Atomic operations, and fences together with them.

use core::sync::atomic::Ordering;

use cuda_std::atomic::{AtomicF32, AtomicF64, BlockAtomicF32, intrinsics, mid};
use cuda_std::{kernel, shared_array, thread};

/// Bins of [`atomic_histogram()`].
pub const BINS: usize = 64;

/// Counts values modulo [`BINS`]: first per block in shared memory, then for all blocks in global memory.
///
/// # Safety
/// Blocks of at least [`BINS`] threads; `bins` holds [`BINS`] words, zero before.
#[kernel]
pub unsafe fn atomic_histogram(x: &[u32], bins: *mut u32) {
    let local = shared_array![u32; BINS];
    let t = thread::thread_idx_x() as usize;
    let i = thread::index_1d() as usize;
    // SAFETY: bins are below `BINS`; barriers separate the plain accesses from the atomic ones.
    unsafe {
        if t < BINS {
            local.add(t).write(0);
        }
        thread::sync_threads();
        if i < x.len() {
            let bin = *x.get_unchecked(i) as usize % BINS;
            mid::atomic_fetch_add_u32_block(local.add(bin), Ordering::Relaxed, 1);
        }
        thread::sync_threads();
        if t < BINS {
            mid::atomic_fetch_add_u32_device(bins.add(t), Ordering::Relaxed, *local.add(t));
        }
    }
}

/// Words that [`atomic_operations()`] changes.
pub const OPERATION_WORDS: usize = 7;

/// Applies each operation to one word with all threads' values: sum, difference, smallest, largest, and, or,
/// xor.
///
/// # Safety
/// `words` holds [`OPERATION_WORDS`].
#[kernel]
pub unsafe fn atomic_operations(x: &[u32], words: *mut u32) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    // SAFETY: `i` and the words are in bounds.
    unsafe {
        let value = *x.get_unchecked(i);
        mid::atomic_fetch_add_u32_device(words, Ordering::Relaxed, value);
        mid::atomic_fetch_sub_u32_device(words.add(1), Ordering::Relaxed, value);
        mid::atomic_fetch_min_u32_device(words.add(2), Ordering::AcqRel, value);
        mid::atomic_fetch_max_u32_device(words.add(3), Ordering::Acquire, value);
        mid::atomic_fetch_and_u32_device(words.add(4), Ordering::Release, value);
        mid::atomic_fetch_or_u32_system(words.add(5), Ordering::Relaxed, value);
        mid::atomic_fetch_xor_u32_system(words.add(6), Ordering::SeqCst, value);
    }
}

/// Signed and 64-bit operations: smallest and largest `i32`, sum and largest `u64`.
///
/// # Safety
/// `signed` holds two words, `wide` two.
#[kernel]
pub unsafe fn atomic_signed_and_wide(x: &[i32], signed: *mut i32, wide: *mut u64) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    // SAFETY: `i` and the words are in bounds.
    unsafe {
        let value = *x.get_unchecked(i);
        let square = (i64::from(value) * i64::from(value)).cast_unsigned();
        mid::atomic_fetch_min_i32_device(signed, Ordering::Relaxed, value);
        mid::atomic_fetch_max_i32_device(signed.add(1), Ordering::Relaxed, value);
        mid::atomic_fetch_add_u64_device(wide, Ordering::Relaxed, square);
        mid::atomic_fetch_max_u64_device(wide.add(1), Ordering::Relaxed, square);
    }
}

/// Sums f32 in a block, f32 in the grid, f64 in the grid. Exact for small integers.
///
/// # Safety
/// `single` holds an f32 for each block and one more, zero before; `double` one f64.
#[kernel]
pub unsafe fn atomic_floats(x: &[f32], single: *mut f32, double: *mut f64) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    // SAFETY: `i` and the sums are in bounds; only atomics access the sums.
    unsafe {
        let value = *x.get_unchecked(i);
        let block = &*single.add(thread::block_idx_x() as usize).cast::<BlockAtomicF32>();
        let grid = &*single.add(thread::grid_dim_x() as usize).cast::<AtomicF32>();
        let wide = &*double.cast::<AtomicF64>();
        block.fetch_add(value, Ordering::Relaxed);
        grid.fetch_add(value, Ordering::Relaxed);
        wide.fetch_add(f64::from(value), Ordering::Relaxed);
    }
}

/// Every thread exchanges the word for `i + 1` and writes the old value to its place. Each value is handed
/// out exactly once, except the one that stays in the word.
///
/// # Safety
/// `word` is one word; `out` has one for each thread.
#[kernel]
pub unsafe fn atomic_exchange(word: *mut u32, out: *mut u32) {
    let i = thread::index_1d();
    // SAFETY: `out` has a place for each thread.
    unsafe { out.add(i as usize).write(mid::atomic_fetch_exch_u32_device(word, Ordering::Relaxed, i + 1)) }
}

/// Multiplies a word by 3 and adds the value, once per value, in any order, with compare-and-swap. Each
/// thread tries at least once. The order affects the result only through `x`.
///
/// # Safety
/// `word` is one word.
#[kernel]
pub unsafe fn atomic_compare_and_swap(x: &[u32], word: *mut u32) {
    let i = thread::index_1d() as usize;
    if i >= x.len() {
        return;
    }
    // SAFETY: `i` is in bounds; only atomics access the word.
    unsafe {
        let value = *x.get_unchecked(i);
        let mut seen = mid::atomic_load_32_device(word, Ordering::Relaxed);
        loop {
            let wanted = seen.wrapping_mul(3).wrapping_add(value);
            let before = intrinsics::atomic_fetch_cas_acqrel_u32_device(word, seen, wanted);
            if before == seen {
                break;
            }
            seen = before;
        }
    }
}

/// Sums all values: each block writes its partial sum and a fence, and the last block adds them in order.
///
/// # Safety
/// Blocks of 128 threads; `partial` holds a word for each block, `counter` is 0, `out` one word.
#[kernel]
pub unsafe fn atomic_last_block_sum(x: &[u32], partial: *mut u32, counter: *mut u32, out: *mut u32) {
    let shared = shared_array![u32; 1];
    let (t, blocks) = (thread::thread_idx_x(), thread::grid_dim_x());
    let i = thread::index_1d() as usize;
    // SAFETY: all indices are in bounds. The counter's addition releases this block's sum and acquires those
    // of all earlier blocks; barriers separate the uses of shared memory.
    unsafe {
        if t == 0 {
            shared.write(0);
        }
        thread::sync_threads();
        if i < x.len() {
            mid::atomic_fetch_add_u32_block(shared, Ordering::Relaxed, *x.get_unchecked(i));
        }
        thread::sync_threads();
        if t == 0 {
            partial.add(thread::block_idx_x() as usize).write(*shared);
            thread::device_fence();
            let before = mid::atomic_fetch_add_u32_device(counter, Ordering::Relaxed, 1);
            thread::device_fence();
            if before + 1 == blocks {
                let mut sum = 0u32;
                let mut b = 0;
                while b < blocks {
                    sum = sum.wrapping_add(*partial.add(b as usize));
                    b += 1;
                }
                out.write(sum);
            }
        }
    }
}
