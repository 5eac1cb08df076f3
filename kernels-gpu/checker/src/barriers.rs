//! Barriers that cannot complete, or whose threads disagree.

use cuda_std::thread::{sync_threads, sync_threads_count};
use cuda_std::{barrier, grid, kernel};

use crate::{block, rank};

/// Threads beyond `n` return before the barrier.
#[kernel]
pub unsafe fn early_return(_data: *mut u32, _aux: *mut u32, _n: u32) {
    if rank() >= 50 {
        return;
    }
    sync_threads(); // bug
}

/// Both branches have a barrier, and lanes of one warp take both branches.
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

/// A loop whose trip count differs between threads.
#[kernel]
pub unsafe fn uneven_loop(_data: *mut u32, _aux: *mut u32, _n: u32) {
    for _ in 0..=rank() / 32 {
        sync_threads(); // bug
    }
}

/// Two warps wait at different barriers.
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

/// Two warps wait for each other's second barrier first: a deadlock.
#[kernel]
pub unsafe fn crossed_barriers(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let first = if rank() < 32 { 1 } else { 2 };
        barrier::sync(first, 64); // bug
        barrier::sync(3 - first, 64);
    }
}

/// Two warps give different thread counts.
#[kernel]
pub unsafe fn different_counts(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let threads = if rank() < 32 { 64 } else { 32 };
    unsafe {
        barrier::sync(1, threads); // bug
    }
}

/// A plain barrier and a counting barrier meet.
#[kernel]
pub unsafe fn different_operations(_data: *mut u32, _aux: *mut u32, _n: u32) {
    if rank() < 32 {
        sync_threads(); // bug
    } else {
        sync_threads_count(1); // bug
    }
}

/// A count that is not a multiple of the warp size.
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

/// Grid sync in a non-cooperative launch.
#[kernel]
pub unsafe fn grid_sync_alone(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        grid::sync(aux); // bug
    }
}

/// One block skips the grid sync.
#[kernel]
pub unsafe fn grid_sync_of_some(_data: *mut u32, aux: *mut u32, _n: u32) {
    if block() != 1 {
        unsafe {
            grid::sync(aux); // bug
        }
    }
}
