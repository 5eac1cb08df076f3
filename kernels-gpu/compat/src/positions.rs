//! Where a thread is, and barriers and fences between threads.
#![allow(unsafe_op_in_unsafe_fn)]

use core::sync::atomic::{AtomicU32, Ordering};

use cuda_std::address_space;
use cuda_std::atomic::mid;
use cuda_std::prelude::*;

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn place_1d(out: *mut u32) {
    let i = thread::index_1d();
    *out.add(i as usize) = i;
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn place_2d(out: *mut u32, width: u32) {
    let i = thread::index_2d();
    *out.add((i.y * width + i.x) as usize) = i.y << 16 | i.x;
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn place_3d(out: *mut u32, width: u32, height: u32) {
    let i = thread::index_3d();
    *out.add(((i.z * height + i.y) * width + i.x) as usize) = i.z << 16 | i.y << 8 | i.x;
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn place_any(out: *mut u32) {
    let i = thread::index();
    *out.add(i as usize) = i;
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn place_vectors(out: *mut [u32; 12]) {
    let [t, b, bd, gd] = [thread::thread_idx(), thread::block_idx(), thread::block_dim(), thread::grid_dim()];
    *out.add(thread::index() as usize) = [t.x, t.y, t.z, b.x, b.y, b.z, bd.x, bd.y, bd.z, gd.x, gd.y, gd.z];
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn place_axes(out: *mut [u32; 12]) {
    *out.add(thread::index() as usize) = [
        thread::thread_idx_x(),
        thread::thread_idx_y(),
        thread::thread_idx_z(),
        thread::block_idx_x(),
        thread::block_idx_y(),
        thread::block_idx_z(),
        thread::block_dim_x(),
        thread::block_dim_y(),
        thread::block_dim_z(),
        thread::grid_dim_x(),
        thread::grid_dim_y(),
        thread::grid_dim_z(),
    ];
}

/// Counts the threads that are the first.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn count_first(count: &AtomicU32) {
    if thread::first() {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// As many threads as there are, for any number of elements.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn grid_stride(x: &[f32], a: f32, y: *mut f32) {
    let step = (thread::grid_dim_x() * thread::block_dim_x()) as usize;
    let mut i = thread::index_1d() as usize;
    while i < x.len() {
        *y.add(i) = a * x[i];
        i += step;
    }
}

/// The sum of each block by halves.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn tree_sum(x: &[u32], sums: *mut u32) {
    #[address_space(shared)]
    static mut PARTS: [u32; 128] = [0; 128];

    let t = thread::thread_idx_x() as usize;
    PARTS[t] = x.get(thread::index_1d() as usize).copied().unwrap_or(0);
    thread::sync_threads();
    let mut half = 64;
    while half > 0 {
        if t < half {
            let other = PARTS[t + half];
            PARTS[t] += other;
        }
        thread::sync_threads();
        half /= 2;
    }
    if t == 0 {
        *sums.add(thread::block_idx_x() as usize) = PARTS[0];
    }
}

/// How many values of the block are odd, whether all are, whether any is.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn block_votes(x: &[u32], out: *mut [u32; 3]) {
    let odd = x[thread::index_1d() as usize] & 1;
    let count = thread::sync_threads_count(odd);
    let all = thread::sync_threads_and(odd);
    let any = thread::sync_threads_or(odd);
    if thread::thread_idx_x() == 0 {
        *out.add(thread::block_idx_x() as usize) = [count, (all != 0) as u32, (any != 0) as u32];
    }
}

/// Blocks leave their sums; the block that comes last adds them up.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn last_block_sums(x: &[u32], parts: *mut u32, done: *mut u32, total: *mut u32) {
    let block = thread::block_idx_x() as usize;
    if thread::thread_idx_x() != 0 {
        return;
    }
    let size = thread::block_dim_x() as usize;
    let part: u32 = x[block * size..(block + 1) * size].iter().sum();
    parts.add(block).write_volatile(part);
    thread::device_fence();
    if mid::atomic_fetch_add_u32_device(done, Ordering::Relaxed, 1) + 1 == thread::grid_dim_x() {
        thread::device_fence();
        *total = (0..thread::grid_dim_x() as usize).map(|i| parts.add(i).read_volatile()).sum();
    }
}

/// One thread hands a value to another one, by a flag.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn hand_over(data: *mut u32, flag: *mut u32, out: *mut u32) {
    if thread::block_idx_x() == 0 {
        *data = 42;
        thread::grid_fence();
        thread::system_fence();
        mid::atomic_store_32_device(flag, Ordering::Relaxed, 1);
    } else {
        while mid::atomic_load_32_device(flag, Ordering::Relaxed) == 0 {
            thread::nanosleep(20);
        }
        thread::system_fence();
        *out = *data + thread::warp_size();
    }
}

/// The same by `core`'s atomics.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn hand_over_by_core(data: *mut u32, flag: &AtomicU32, out: *mut u32) {
    if thread::block_idx_x() == 0 {
        *data = 42;
        flag.store(1, Ordering::Release);
    } else {
        while flag.load(Ordering::Acquire) == 0 {
            thread::nanosleep(20);
        }
        *out = *data;
    }
}
