//! Races on shared memory.

use cuda_std::atomic::intrinsics::atomic_fetch_add_relaxed_u32_block;
use cuda_std::thread::sync_threads;
use cuda_std::warp::sync_warp;
use cuda_std::{kernel, shared_array};

use crate::{BLOCK, rank};

/// A write, then a read of a neighbour's element, with no barrier between.
#[kernel]
pub unsafe fn missing_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank()); // bug
        *data.add(rank()) = *tile.add(BLOCK - 1 - rank()); // bug
    }
}

/// A tile loop with one barrier instead of two: the next tile overwrites values that are still read.
#[kernel]
pub unsafe fn missing_second_barrier(data: *mut u32, _aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let mut sum = 0;
        for start in (0..n as usize).step_by(BLOCK) {
            *tile.add(rank()) = *data.add(start + rank()); // bug
            sync_threads();
            sum += *tile.add(BLOCK - 1 - rank()); // bug
        }
        *data.add(rank()) = sum;
    }
}

/// A tree reduction without a barrier in its loop.
#[kernel]
pub unsafe fn reduction_without_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        sync_threads();
        let mut stride = BLOCK / 2;
        while stride > 0 {
            if rank() < stride {
                let sum = *tile.add(rank()) + *tile.add(rank() + stride); // bug
                *tile.add(rank()) = sum; // bug
            }
            stride /= 2;
        }
        if rank() == 0 {
            *data = *tile;
        }
    }
}

/// All threads write the same value to the same element.
#[kernel]
pub unsafe fn same_value(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let flag = shared_array![u32; 1];
    unsafe {
        *flag = 1; // bug
    }
}

/// The kernel assumes that the lanes of a warp run in lockstep.
#[kernel]
pub unsafe fn warp_in_step(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank()); // bug
        *data.add(rank()) = *tile.add(rank() ^ 1); // bug
    }
}

/// A warp sync in place of a block barrier.
#[kernel]
pub unsafe fn warp_sync_is_too_little(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank()); // bug
        sync_warp(u32::MAX);
        *data.add(rank()) = *tile.add(rank() ^ 32); // bug
    }
}

/// A histogram with `+= 1`.
#[kernel]
pub unsafe fn histogram_without_atomics(data: *mut u32, _aux: *mut u32, _n: u32) {
    const BINS: usize = 8;
    let bins = shared_array![u32; BINS];
    unsafe {
        if rank() < BINS {
            *bins.add(rank()) = 0;
        }
        sync_threads();
        let bin = bins.add(*data.add(rank()) as usize % BINS);
        let count = *bin; // bug
        *bin = count + 1; // bug
    }
}

/// Atomic counting, read without a barrier.
#[kernel]
pub unsafe fn read_after_atomics(data: *mut u32, _aux: *mut u32, _n: u32) {
    let total = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            *total = 0;
        }
        sync_threads();
        atomic_fetch_add_relaxed_u32_block(total, 1); // bug
        *data.add(rank()) = *total; // bug
    }
}

/// Bits packed into shared bytes: neighbours write the same byte.
#[kernel]
pub unsafe fn packed_bytes(data: *mut u32, _aux: *mut u32, _n: u32) {
    const BYTES: usize = BLOCK / 2;
    let packed = shared_array![u8; BYTES];
    unsafe {
        *packed.add(rank() / 2) = *data.add(rank()) as u8; // bug
    }
}

/// One thread writes; the others read before the barrier.
#[kernel]
pub unsafe fn broadcast_without_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let value = shared_array![u32; 1];
    unsafe {
        if rank() == 7 {
            *value = *data; // bug
        }
        *data.add(rank() + 1) = *value; // bug
        sync_threads();
    }
}
