//! Barriers that cannot complete, or that threads disagree about.

use cuda_std::thread::{sync_threads, sync_threads_count};
use cuda_std::{barrier, grid, kernel};

use crate::{block, rank};

/// Threads beyond `n` leave before the barrier.
#[kernel]
pub unsafe fn early_return(_data: *mut u32, _aux: *mut u32, _n: u32) {
    if rank() >= 50 {
        return;
    }
    sync_threads(); // bug
}

/// Both branches have a barrier, and lanes of a warp take both.
#[kernel]
pub unsafe fn barrier_in_branches(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if rank().is_multiple_of(2) {
            sync_threads(); // bug
            *data.add(rank()) = 1;
        } else {
            sync_threads(); // bug
            *data.add(rank()) = 2;
        }
    }
}

/// A loop whose length differs from thread to thread.
#[kernel]
pub unsafe fn uneven_loop(_data: *mut u32, _aux: *mut u32, _n: u32) {
    for _ in 0..=rank() / 32 {
        sync_threads(); // bug
    }
}

/// Two warps, two barriers.
#[kernel]
pub unsafe fn different_barriers(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if rank() < 32 {
            barrier::sync(1, 64); // bug
        } else {
            barrier::sync(2, 64); // bug
        }
    }
}

/// The consumer waits for a producer that never arrives.
#[kernel]
pub unsafe fn forgotten_arrival(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if rank() < 32 {
            *data.add(rank()) = 1;
        } else {
            barrier::sync(1, 64); // bug
        }
        sync_threads(); // bug
    }
}

/// Two warps wait for each other's second barrier first.
#[kernel]
pub unsafe fn crossed_barriers(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let first = if rank() < 32 { 1 } else { 2 };
        barrier::sync(first, 64); // bug
        barrier::sync(3 - first, 64);
    }
}

/// Two warps name different counts.
#[kernel]
pub unsafe fn different_counts(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let threads = if rank() < 32 { 64 } else { 32 };
    unsafe {
        barrier::sync(1, threads); // bug
    }
}

/// A barrier and a counting barrier meet.
#[kernel]
pub unsafe fn different_operations(_data: *mut u32, _aux: *mut u32, _n: u32) {
    if rank() < 32 {
        sync_threads(); // bug
    } else {
        sync_threads_count(1); // bug
    }
}

/// A count that is no multiple of a warp.
#[kernel]
pub unsafe fn count_of_half_a_warp(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        barrier::sync(1, 48); // bug
    }
}

/// The seventeenth barrier.
#[kernel]
pub unsafe fn barrier_sixteen(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        barrier::sync(16, 64); // bug
    }
}

/// Grid sync in a launch that is not cooperative.
#[kernel]
pub unsafe fn grid_sync_alone(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        grid::sync(aux); // bug
    }
}

/// A block that leaves the others at the grid sync.
#[kernel]
pub unsafe fn grid_sync_of_some(_data: *mut u32, aux: *mut u32, _n: u32) {
    if block() != 1 {
        unsafe {
            grid::sync(aux); // bug
        }
    }
}
