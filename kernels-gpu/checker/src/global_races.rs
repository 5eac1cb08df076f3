//! Races on global memory, within a block and between blocks.

use cuda_std::atomic::intrinsics::{
    atomic_fetch_add_relaxed_u32_device, fence_acqrel_block, fence_acqrel_device,
};
use cuda_std::thread::sync_threads;
use cuda_std::{grid, kernel, shared_array};

use crate::{block, global, rank};

/// An in-place update that reads neighbours.
#[kernel]
pub unsafe fn stencil_in_place(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let next = *data.add(rank() + 1); // bug
        *data.add(rank()) = next; // bug
    }
}

/// A block barrier where blocks exchange halos.
#[kernel]
pub unsafe fn halo_between_blocks(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        *data.add(global()) = rank() as u32; // bug
        sync_threads();
        if rank() == 63 {
            *aux.add(block()) = *data.add((global() + 1) % n as usize); // bug
        }
    }
}

/// A global counter with `+= 1`, one thread per block.
#[kernel]
pub unsafe fn counter_without_atomics(_data: *mut u32, aux: *mut u32, _n: u32) {
    if rank() == 0 {
        unsafe {
            let count = *aux; // bug
            *aux = count + 1; // bug
        }
    }
}

/// All blocks write the same element.
#[kernel]
pub unsafe fn every_block_writes(_data: *mut u32, aux: *mut u32, _n: u32) {
    if rank() == 0 {
        unsafe {
            *aux = 1; // bug
        }
    }
}

/// The last block sums the other blocks' values without a fence.
#[kernel]
pub unsafe fn last_block_without_fence(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { last_block(data, aux, || {}) }
}

/// The last block sums the other blocks' values. Their fences have block scope only.
#[kernel]
pub unsafe fn last_block_with_narrow_fence(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { last_block(data, aux, || fence_acqrel_block()) }
}

/// The last block sums the other blocks' values, with correct fences.
#[kernel]
pub unsafe fn last_block_with_fence(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { last_block(data, aux, || fence_acqrel_device()) }
}

/// Each block writes a word of `data`. The last block to count itself at `aux` sums them.
unsafe fn last_block(data: *mut u32, aux: *mut u32, fence: impl Fn()) {
    let is_last = shared_array![u32; 1];
    let blocks = cuda_std::thread::grid_dim_x();
    unsafe {
        if rank() == 0 {
            *data.add(block()) = block() as u32; // bug
            fence();
            let before = atomic_fetch_add_relaxed_u32_device(aux, 1);
            fence();
            *is_last = u32::from(before == blocks - 1);
        }
        sync_threads();
        if *is_last != 0 && rank() == 0 {
            let mut sum = 0;
            for other in 0..blocks as usize {
                sum += *data.add(other); // bug
            }
            *aux.add(1) = sum;
        }
    }
}

/// A grid sync after the write, and none before the next write.
#[kernel]
pub unsafe fn missing_second_grid_sync(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        let mut sum = 0;
        for round in 0..3 {
            *data.add(global()) = round; // bug
            grid::sync(aux);
            sum += *data.add((global() + 64) % n as usize); // bug
        }
        if rank() == 0 {
            *aux.add(8 + block()) = sum;
        }
    }
}
