//! Correct kernels whose blocks cooperate.

use core::sync::atomic::Ordering;

use cuda_std::atomic::intrinsics::atomic_fetch_add_relaxed_u32_device;
use cuda_std::atomic::mid::{atomic_fetch_add_u32_device, atomic_load_32_device, atomic_store_32_device};
use cuda_std::thread::{device_fence, sync_threads};
use cuda_std::{grid, kernel, shared_array};

use crate::{BLOCK, block, global, rank};

/// Rounds of a stencil over the grid, from one half of `data` to the other and back. Grid syncs separate the
/// rounds.
#[kernel]
pub unsafe fn grid_rounds(data: *mut u32, aux: *mut u32, n: u32) {
    let half = n as usize / 2;
    unsafe {
        let (mut from, mut to) = (data, data.add(half));
        for _ in 0..4 {
            *to.add(global()) = *from.add(global()) + *from.add((global() + BLOCK) % half);
            grid::sync(aux);
            (from, to) = (to, from);
        }
    }
}

/// All threads fence, the block synchronises, one thread counts and fences again, and the last block sums.
#[kernel]
pub unsafe fn fence_by_all(data: *mut u32, aux: *mut u32, n: u32) {
    let is_last = shared_array![u32; 1];
    unsafe {
        *data.add(global()) = 1;
        device_fence();
        sync_threads();
        if rank() == 0 {
            let before = atomic_fetch_add_relaxed_u32_device(aux, 1);
            device_fence();
            *is_last = u32::from(before == cuda_std::thread::grid_dim_x() - 1);
        }
        sync_threads();
        if *is_last != 0 {
            let mut sum = 0;
            for index in (rank()..n as usize).step_by(BLOCK) {
                sum += *data.add(index);
            }
            atomic_fetch_add_relaxed_u32_device(aux.add(1), sum);
        }
    }
}

/// Each block waits for its predecessor, adds its part to the running sum and passes the sum on.
#[kernel]
pub unsafe fn chained_blocks(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            // Blocks take their numbers when they start, so each waits only for running blocks.
            let turn = atomic_fetch_add_u32_device(aux, Ordering::Relaxed, 1);
            while atomic_load_32_device(aux.add(1), Ordering::Acquire) != turn {}
            let before = if turn == 0 { 0 } else { *data.add(turn as usize - 1) };
            *data.add(turn as usize) = before + 2;
            atomic_store_32_device(aux.add(1), Ordering::Release, turn + 1);
        }
    }
}

/// All blocks read the same word; each writes its own.
#[kernel]
pub unsafe fn read_shared_write_own(data: *mut u32, _aux: *mut u32, n: u32) {
    let half = n as usize / 2;
    unsafe {
        let mut sum = 0;
        for index in 0..half / 8 {
            sum += *data.add(index);
        }
        *data.add(half + global()) = sum + block() as u32;
    }
}

/// A counter of the whole grid.
#[kernel]
pub unsafe fn grid_counter(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        atomic_fetch_add_relaxed_u32_device(aux, 1);
    }
}
