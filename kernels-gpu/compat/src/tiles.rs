//! Shared memory in the ways that kernels declare it.
#![allow(unsafe_op_in_unsafe_fn)]

use cuda_std::mem::{dynamic_smem_size, total_smem_size};
use cuda_std::prelude::*;
use cuda_std::shared::dynamic_shared_mem;
use cuda_std::{address_space, externally_visible, gpu_only, shared_array};

const SIDE: usize = 16;

/// The transposed matrix by tiles with a column of padding.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn transpose_tiles(x: &[f32], n: usize, out: *mut f32) {
    #[address_space(shared)]
    static mut TILE: [[f32; SIDE + 1]; SIDE] = [[0.0; SIDE + 1]; SIDE];

    let (tx, ty) = (thread::thread_idx_x() as usize, thread::thread_idx_y() as usize);
    let (bx, by) = (thread::block_idx_x() as usize * SIDE, thread::block_idx_y() as usize * SIDE);
    TILE[ty][tx] = x[(by + ty) * n + bx + tx];
    thread::sync_threads();
    *out.add((bx + ty) * n + by + tx) = TILE[tx][ty];
}

/// The mean of three neighbours, with the block's neighbours loaded beside it.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn stencil(x: &[f32], out: *mut f32) {
    const BLOCK: usize = 64;
    let near = shared_array![f32; BLOCK + 2];
    let (t, i) = (thread::thread_idx_x() as usize, thread::index_1d() as usize);
    *near.add(t + 1) = x[i];
    if t == 0 {
        *near = if i > 0 { x[i - 1] } else { 0.0 };
        *near.add(BLOCK + 1) = x.get(i + BLOCK).copied().unwrap_or(0.0);
    }
    thread::sync_threads();
    *out.add(i) = (*near.add(t) + *near.add(t + 1) + *near.add(t + 2)) / 3.0;
}

/// Running sums of one block, by two buffers in turn.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn block_scan(x: &[u32], out: *mut u32) {
    let buffers = [shared_array![u32; 128], shared_array![u32; 128]];
    let t = thread::thread_idx_x() as usize;
    *buffers[0].add(t) = x[t];
    thread::sync_threads();
    let (mut from, mut step) = (0, 1);
    while step < 128 {
        let before = if t >= step { *buffers[from].add(t - step) } else { 0 };
        *buffers[1 - from].add(t) = *buffers[from].add(t) + before;
        thread::sync_threads();
        from = 1 - from;
        step *= 2;
    }
    *out.add(t) = *buffers[from].add(t);
}

/// Sorts one block of 64 values.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn bitonic_sort(values: *mut i32) {
    #[address_space(shared)]
    static mut VALUES: [i32; 64] = [0; 64];

    let t = thread::thread_idx_x() as usize;
    VALUES[t] = *values.add(t);
    thread::sync_threads();
    let mut run = 2;
    while run <= 64 {
        let mut gap = run / 2;
        while gap > 0 {
            let other = t ^ gap;
            if other > t {
                let (a, b) = (VALUES[t], VALUES[other]);
                if (a > b) == (t & run == 0) {
                    VALUES[t] = b;
                    VALUES[other] = a;
                }
            }
            thread::sync_threads();
            gap /= 2;
        }
        run *= 2;
    }
    *values.add(t) = VALUES[t];
}

#[derive(Clone, Copy)]
pub struct Extremes {
    low: f32,
    high: f32,
}

/// A shared variable of a type of one's own.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn extremes(x: &[f32], out: *mut [f32; 2]) {
    #[address_space(shared)]
    static mut FOUND: [Extremes; 32] = [Extremes { low: 0.0, high: 0.0 }; 32];

    let t = thread::thread_idx_x() as usize;
    let mine = x.iter().skip(t).step_by(32);
    FOUND[t] = mine.fold(Extremes { low: f32::MAX, high: f32::MIN }, |found, &x| Extremes {
        low: found.low.min(x),
        high: found.high.max(x),
    });
    thread::sync_threads();
    if t == 0 {
        let mut all = FOUND[0];
        for i in 1..32 {
            all = Extremes { low: all.low.min(FOUND[i].low), high: all.high.max(FOUND[i].high) };
        }
        *out = [all.low, all.high];
    }
}

/// Bytes of dynamic shared memory, whether the whole is as much, and the last thread's element of it.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn smem_sizes(out: *mut [u32; 3]) {
    let words: *mut u32 = dynamic_shared_mem();
    let t = thread::thread_idx_x();
    *words.add(t as usize) = 3 * t;
    thread::sync_threads();
    if t == 0 {
        let last = *words.add(dynamic_smem_size() as usize / 4 - 1);
        *out = [dynamic_smem_size(), (total_smem_size() >= dynamic_smem_size()) as u32, last];
    }
}

fn block_of_lane(lane: u32) -> u32 {
    thread::block_idx_x() * 100 + lane
}

#[gpu_only]
fn lane_of_gpu() -> u32 {
    cuda_std::warp::lane_id()
}

/// Only a GPU can run this one.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn calls_gpu_only(out: *mut u32) {
    *out.add(thread::index_1d() as usize) = lane_of_gpu();
}

#[externally_visible]
#[unsafe(no_mangle)]
pub unsafe fn store_at(out: *mut u32, i: u32, value: u32) {
    *out.add(i as usize) = value;
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn calls_helpers(out: *mut u32) {
    store_at(out, thread::index_1d(), block_of_lane(thread::thread_idx_x()));
}
