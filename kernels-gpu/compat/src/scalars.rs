//! Shared variables that are not arrays, and shared arrays that are not variables.

use cuda_std::prelude::*;
use cuda_std::shared::dynamic_shared_mem;
use cuda_std::{address_space, shared_array};

/// Counts the positive values of each block with a plain shared number. Only thread 0 counts.
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn count_positive(values: &[i32], counts: *mut u32) {
    #[address_space(shared)]
    static mut FLAGS: [bool; 256] = [false; 256];
    #[address_space(shared)]
    static mut COUNT: u32 = 0;

    let t = thread::thread_idx_x() as usize;
    let idx = thread::index_1d() as usize;
    // SAFETY: every thread has its own flag; thread 0 counts between two barriers.
    unsafe {
        let flags = &raw mut FLAGS;
        (*flags)[t] = idx < values.len() && values[idx] > 0;
        thread::sync_threads();
        if t == 0 {
            COUNT = 0;
            for i in 0..thread::block_dim_x() as usize {
                if FLAGS[i] {
                    COUNT += 1;
                }
            }
        }
        thread::sync_threads();
        if t as u32 == thread::block_dim_x() - 1 {
            *counts.add(thread::block_idx_x() as usize) = COUNT;
        }
    }
}

/// Reverses up to 64 numbers.
#[kernel]
pub unsafe fn reverse_array(d: *mut i32, n: usize) {
    let s = shared_array![i32; 64];
    let t = thread::thread_idx_x() as usize;
    // SAFETY: `t < n` is inside both arrays, and a barrier separates the writes from the reads.
    unsafe {
        if t < n {
            *s.add(t) = *d.add(t);
        }
        thread::sync_threads();
        if t < n {
            *d.add(t) = *s.add(n - 1 - t);
        }
    }
}

/// Reverses as many numbers as there are threads, through dynamic shared memory.
#[kernel]
pub unsafe fn reverse_dynamic(d: *mut u64) {
    let s: *mut u64 = dynamic_shared_mem();
    let t = thread::thread_idx_x() as usize;
    let n = thread::block_dim_x() as usize;
    // SAFETY: the launch gives 8 bytes of shared memory per thread, and a barrier separates the writes from
    // the reads.
    unsafe {
        *s.add(t) = *d.add(t);
        thread::sync_threads();
        *d.add(t) = *s.add(n - 1 - t);
    }
}
