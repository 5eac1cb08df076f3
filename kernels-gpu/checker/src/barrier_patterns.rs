//! Barriers in branches and loops, named barriers with wrong counts, grid barriers that some miss.

use core::sync::atomic::Ordering;

use cuda_std::atomic::mid::{atomic_load_32_device, atomic_store_32_device};
use cuda_std::thread::{sync_threads, sync_threads_and, sync_threads_or};
use cuda_std::{barrier, cluster, grid, kernel, shared_array};

use crate::{BLOCK, block, rank};

/// A loop that each thread leaves by its own data.
#[kernel]
pub unsafe fn loop_left_by_data(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        for round in 0..4 {
            sync_threads(); // bug
            if *data.add(rank()) <= round {
                break;
            }
        }
    }
}

/// A barrier in one arm of a match.
#[kernel]
pub unsafe fn barrier_in_an_arm(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        match rank() / 16 {
            0 => *data.add(rank()) = 1,
            1 => sync_threads(), // bug
            2 => *data.add(rank()) = 2,
            _ => {}
        }
    }
}

/// Thread 0 alone reaches the barrier behind its work.
#[kernel]
pub unsafe fn barrier_of_the_leader(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            *data = 1;
            sync_threads(); // bug
        }
    }
}

/// One warp returns before a named barrier.
#[kernel]
pub unsafe fn exit_before_a_named_barrier(_data: *mut u32, _aux: *mut u32, _n: u32) {
    if rank() >= 32 {
        return;
    }
    unsafe {
        barrier::sync(3, BLOCK as u32); // bug
    }
}

/// Producers and consumers differ about the number of threads. Blocks of 96.
#[kernel]
pub unsafe fn producers_count_differently(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if rank() < 32 {
            barrier::arrive(1, 64); // bug
        } else {
            barrier::sync(1, 96); // bug
        }
    }
}

/// Two pairs of warps use one barrier, so that the wrong warps may meet. Blocks of 128.
#[kernel]
pub unsafe fn one_barrier_for_two_pairs(data: *mut u32, _aux: *mut u32, _n: u32) {
    const THREADS: usize = 2 * BLOCK;
    let tile = shared_array![u32; THREADS];
    unsafe {
        *tile.add(rank()) = rank() as u32; // bug
        barrier::sync(1, BLOCK as u32); // bug
        let pair = rank() / BLOCK * BLOCK;
        *data.add(rank()) = *tile.add(pair + (rank() + 32) % BLOCK); // bug
    }
}

/// More threads than the block has.
#[kernel]
pub unsafe fn more_threads_than_the_block(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        barrier::sync(2, 2 * BLOCK as u32); // bug
    }
}

/// The consumer only counts, and does not wait.
#[kernel]
pub unsafe fn consumer_only_arrives(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; 32];
    let lane = rank() % 32;
    unsafe {
        if rank() < 32 {
            *tile.add(lane) = *data.add(lane); // bug
            barrier::sync(1, BLOCK as u32);
        } else {
            barrier::arrive(1, BLOCK as u32);
            *data.add(64 + lane) = *tile.add(lane); // bug
        }
    }
}

/// The producer writes after it has arrived.
#[kernel]
pub unsafe fn producer_writes_after_arriving(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; 32];
    let lane = rank() % 32;
    unsafe {
        if rank() < 32 {
            barrier::arrive(1, BLOCK as u32);
            *tile.add(lane) = *data.add(lane); // bug
        } else {
            barrier::sync(1, BLOCK as u32);
            *data.add(64 + lane) = *tile.add(lane); // bug
        }
    }
}

/// Two reductions of different kinds meet at one barrier.
#[kernel]
pub unsafe fn different_reductions(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(rank()) = if rank() < 32 {
            sync_threads_or(1) // bug
        } else {
            sync_threads_and(1) // bug
        };
    }
}

/// One thread of each block reaches the grid's barrier.
#[kernel]
pub unsafe fn grid_sync_of_leaders(_data: *mut u32, aux: *mut u32, _n: u32) {
    if rank() == 0 {
        unsafe {
            grid::sync(aux); // bug
        }
    }
}

/// Block 0 reaches the grid's barrier once more than the others.
#[kernel]
pub unsafe fn uneven_grid_syncs(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        grid::sync(aux);
        if block() == 0 {
            grid::sync(aux); // bug
        }
    }
}

/// One block of the cluster synchronises once more, while the other waits for it.
#[kernel]
pub unsafe fn uneven_cluster_syncs(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        cluster::sync();
        if cluster::block_rank() == 0 {
            cluster::sync(); // bug
            atomic_store_32_device(aux, Ordering::Release, 1);
        } else {
            while atomic_load_32_device(aux, Ordering::Acquire) == 0 {} // bug
            cluster::sync();
        }
    }
}
