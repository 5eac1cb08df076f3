//! Atomics on floats and integers, by type and by intrinsic.

use core::sync::atomic::{AtomicU32, Ordering};

use cuda_std::atomic::{AtomicF32, AtomicF64, BlockAtomicF32, intrinsics, mid};
use cuda_std::prelude::*;
use cuda_std::{address_space, shared_array};

/// Adds everything into one float and one double.
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn sum_floats(values: &[f32], single: &AtomicF32, double: *const AtomicF64) {
    let idx = thread::index() as usize;
    if idx < values.len() {
        single.fetch_add(values[idx], Ordering::Relaxed);
        // SAFETY: the host passes a valid pointer.
        unsafe { &*double }.fetch_add(values[idx] as f64, Ordering::AcqRel);
    }
}

/// Adds up the values of each block in shared memory, then writes one sum a block.
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn sum_blocks(values: &[f32], sums: *mut f32) {
    #[address_space(shared)]
    static mut TOTAL: BlockAtomicF32 = BlockAtomicF32::new(0.0);

    let t = thread::thread_idx_x();
    let idx = thread::index_1d() as usize;
    // SAFETY: only atomics access the total, and `sums` has an element for each block.
    unsafe {
        let total = &raw const TOTAL;
        if t == 0 {
            TOTAL.store(0.0, Ordering::Relaxed);
        }
        thread::sync_threads();
        if idx < values.len() {
            (*total).fetch_add(values[idx], Ordering::Relaxed);
        }
        thread::sync_threads();
        if t == 0 {
            *sums.add(thread::block_idx_x() as usize) = TOTAL.load(Ordering::Relaxed);
        }
    }
}

/// Counts how often each of 16 values occurs: per block with an intrinsic, over the grid with `core`'s
/// atomics. Also finds the largest value.
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn histogram(values: &[u32], counts: &[AtomicU32], largest: *mut u32) {
    const BINS: usize = 16;
    let bins = shared_array![u32; BINS];
    let t = thread::thread_idx_x() as usize;
    // SAFETY: `t < BINS` where an element has one owner; atomics between the barriers, where it has several.
    unsafe {
        if t < BINS {
            *bins.add(t) = 0;
        }
        thread::sync_threads();
        let idx = thread::index_1d() as usize;
        if idx < values.len() {
            let value = values[idx];
            intrinsics::atomic_fetch_add_relaxed_u32_block(bins.add(value as usize % BINS), 1);
            mid::atomic_fetch_max_u32_device(largest, Ordering::Relaxed, value);
        }
        thread::sync_threads();
        if t < BINS {
            counts[t].fetch_add(*bins.add(t), Ordering::Relaxed);
        }
    }
}
