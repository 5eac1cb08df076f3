//! Correct kernels whose threads cooperate in a block.

use core::sync::atomic::Ordering;

use cuda_std::async_copy::{commit_group, copy_ca, wait_group};
use cuda_std::atomic::intrinsics::{atomic_fetch_add_relaxed_u32_block, atomic_fetch_add_relaxed_u32_device};
use cuda_std::atomic::mid::{atomic_fetch_exch_u32_block, atomic_store_32_block};
use cuda_std::thread::{block_idx_y, sync_threads, thread_idx_y};
use cuda_std::{barrier, kernel, shared, shared_array};

use crate::{BLOCK, block, global, rank};

/// Sum of a block by a tree reduction.
#[kernel]
pub unsafe fn tree_reduction(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(global());
        sync_threads();
        let mut stride = BLOCK / 2;
        while stride > 0 {
            if rank() < stride {
                *tile.add(rank()) += *tile.add(rank() + stride);
            }
            sync_threads();
            stride /= 2;
        }
        if rank() == 0 {
            *aux.add(block()) = *tile;
        }
    }
}

/// Side of the transposed tiles.
const EDGE: usize = 8;

/// Transposes the first half of `data`, a 16 x 16 matrix, into the second, by tiles. Blocks of 8 x 8 threads.
#[kernel]
pub unsafe fn tiled_transpose(data: *mut u32, _aux: *mut u32, n: u32) {
    const SIZE: usize = 2 * EDGE;
    const TILE: usize = EDGE * (EDGE + 1);
    let tile = shared_array![u32; TILE];
    let (x, y) = (rank(), thread_idx_y() as usize);
    let (column, row) = (block() * EDGE, block_idx_y() as usize * EDGE);
    unsafe {
        *tile.add(y * (EDGE + 1) + x) = *data.add((row + y) * SIZE + column + x);
        sync_threads();
        *data.add(n as usize / 2 + (column + y) * SIZE + row + x) = *tile.add(x * (EDGE + 1) + y);
    }
}

/// A histogram in shared memory with atomics, added to a histogram in global memory.
#[kernel]
pub unsafe fn atomic_histogram(data: *mut u32, aux: *mut u32, _n: u32) {
    const BINS: usize = 16;
    let bins = shared_array![u32; BINS];
    unsafe {
        if rank() < BINS {
            *bins.add(rank()) = 0;
        }
        sync_threads();
        atomic_fetch_add_relaxed_u32_block(bins.add(*data.add(global()) as usize % BINS), 1);
        sync_threads();
        if rank() < BINS {
            atomic_fetch_add_relaxed_u32_device(aux.add(rank()), *bins.add(rank()));
        }
    }
}

/// One warp produces, one consumes, over two buffers. Each buffer has a full and an empty barrier.
#[kernel]
pub unsafe fn producer_consumer(data: *mut u32, _aux: *mut u32, n: u32) {
    const WARP: usize = 32;
    const FULL: u32 = 1;
    const EMPTY: u32 = 3;
    let buffers = shared_array![u32; BLOCK];
    let rounds = n as usize / BLOCK;
    let lane = rank() % WARP;
    unsafe {
        for round in 0..rounds {
            let stage = (round % 2) as u32;
            let slot = buffers.add(stage as usize * WARP + lane);
            if rank() < WARP {
                if round >= 2 {
                    barrier::sync(EMPTY + stage, BLOCK as u32);
                }
                *slot = *data.add(round * WARP + lane);
                barrier::arrive(FULL + stage, BLOCK as u32);
            } else {
                barrier::sync(FULL + stage, BLOCK as u32);
                let other = buffers.add(stage as usize * WARP + (lane + 1) % WARP);
                *data.add(n as usize / 2 + round * WARP + lane) = *other;
                if round + 2 < rounds {
                    barrier::arrive(EMPTY + stage, BLOCK as u32);
                }
            }
        }
    }
}

/// Copies run two stages ahead of the reads.
#[kernel]
pub unsafe fn copy_pipeline(data: *mut u32, aux: *mut u32, n: u32) {
    const STAGES: usize = 3;
    const WORDS: usize = STAGES * BLOCK;
    let tiles = shared_array![u32; WORDS];
    let steps = n as usize / BLOCK;
    unsafe {
        let fetch = |step: usize| {
            if step < steps {
                let slot = tiles.add(step % STAGES * BLOCK + rank());
                copy_ca::<4, _>(shared::address_of(slot), data.add(step * BLOCK + rank()));
            }
            commit_group();
        };
        (0..STAGES - 1).for_each(fetch);
        let mut sum = 0;
        for step in 0..steps {
            wait_group::<{ STAGES as u32 - 2 }>();
            sync_threads();
            fetch(step + STAGES - 1);
            sum += *tiles.add(step % STAGES * BLOCK + BLOCK - 1 - rank());
        }
        *aux.add(rank()) = sum;
    }
}

/// Threads write different bytes of the same words.
#[kernel]
pub unsafe fn own_bytes(data: *mut u32, _aux: *mut u32, _n: u32) {
    let bytes = shared_array![u8; BLOCK];
    let halves = shared_array![u16; BLOCK];
    unsafe {
        *bytes.add(rank()) = rank() as u8;
        *halves.add(rank()) = rank() as u16;
        sync_threads();
        let other = BLOCK - 1 - rank();
        *data.add(rank()) = u32::from(*bytes.add(other)) + u32::from(*halves.add(other));
    }
}

/// Two arrays in dynamic shared memory.
#[kernel]
pub unsafe fn split_dynamic(data: *mut u32, _aux: *mut u32, _n: u32) {
    let first = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let second = first.add(BLOCK);
        *first.add(rank()) = *data.add(rank());
        *second.add(rank()) = 1;
        sync_threads();
        *data.add(rank()) = *first.add(BLOCK - 1 - rank()) + *second.add(rank() ^ 5);
    }
}

/// A lock in shared memory, locked with acquire and unlocked with release. The lane of a warp that has it
/// unlocks it before it leaves the loop: behind the loop it would wait for the others, which spin.
#[kernel]
pub unsafe fn spin_lock(_data: *mut u32, aux: *mut u32, _n: u32) {
    let shared = shared_array![u32; 2];
    unsafe {
        let (lock, count) = (shared, shared.add(1));
        if rank() == 0 {
            *lock = 0;
            *count = 0;
        }
        sync_threads();
        let mut is_done = false;
        while !is_done {
            if atomic_fetch_exch_u32_block(lock, Ordering::Acquire, 1) == 0 {
                *count += 1;
                atomic_store_32_block(lock, Ordering::Release, 0);
                is_done = true;
            }
        }
        sync_threads();
        if rank() == 0 {
            *aux.add(block()) = *count;
        }
    }
}

/// A stencil over a tile with its halo.
#[kernel]
pub unsafe fn stencil_with_halo(data: *mut u32, _aux: *mut u32, n: u32) {
    const WIDTH: usize = BLOCK + 2;
    let tile = shared_array![u32; WIDTH];
    let half = n as usize / 2;
    unsafe {
        let at = |index: usize| *data.add(index % half);
        *tile.add(rank() + 1) = at(global());
        if rank() == 0 {
            *tile = at(global() + half - 1);
            *tile.add(WIDTH - 1) = at(global() + BLOCK);
        }
        sync_threads();
        *data.add(half + global()) = *tile.add(rank()) + *tile.add(rank() + 2);
    }
}

/// Threads beyond `n` return after the last barrier.
#[kernel]
pub unsafe fn guarded_exit(data: *mut u32, _aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = rank() as u32;
        sync_threads();
        if global() >= n as usize {
            return;
        }
        *data.add(global()) = *tile.add(BLOCK - 1 - rank());
    }
}
