//! Algorithms in shared memory with a barrier too few.

use cuda_std::atomic::intrinsics::{atomic_fetch_add_relaxed_u32_block, atomic_fetch_add_relaxed_u32_device};
use cuda_std::thread::sync_threads;
use cuda_std::warp::sync_warp;
use cuda_std::{barrier, kernel, shared, shared_array, vector};

use crate::{BLOCK, rank};

/// The end of a reduction, in one warp, with volatile accesses in place of warp syncs.
#[kernel]
pub unsafe fn volatile_warp_reduction(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        sync_threads();
        if rank() < 32 {
            for stride in [32, 16, 8, 4, 2, 1] {
                let other = tile.add(rank() + stride).read_volatile(); // bug
                let mine = tile.add(rank()).read_volatile(); // bug
                tile.add(rank()).write_volatile(mine + other); // bug
            }
        }
    }
}

/// A scan in a single buffer, with one barrier per step.
#[kernel]
pub unsafe fn scan_in_one_buffer(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        let mut step = 1;
        while step < BLOCK {
            sync_threads();
            if rank() >= step {
                let below = *tile.add(rank() - step); // bug
                *tile.add(rank()) += below; // bug
            }
            step *= 2;
        }
    }
}

/// Two rounds in one tile, read by all each time; the second lacks the barrier before the reads.
#[kernel]
pub unsafe fn second_round_without_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let mut sum = 0;
        for round in 0..2 {
            *tile.add(rank()) = *data.add(rank()) + round; // bug
            if round == 0 {
                sync_threads();
            }
            for i in 0..BLOCK {
                sum += *tile.add(i); // bug
            }
            sync_threads();
        }
        *data.add(rank()) = sum;
    }
}

/// A work-efficient scan without a barrier between the way up and the way down.
#[kernel]
pub unsafe fn scan_turns_without_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        sync_threads();
        let end = 8 * (rank() / 8) + 7;
        if rank() == end {
            let pair = *tile.add(end - 1) + *tile.add(end); // bug
            *tile.add(end) = pair; // bug
        }
        if rank() == 0 {
            *tile.add(BLOCK - 1) = 0; // bug
        }
        sync_threads();
        *data.add(rank()) = *tile.add(rank());
    }
}

/// Two buffers take turns, but no barrier separates the turns.
#[kernel]
pub unsafe fn two_buffers_no_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tiles = shared_array![u32; WORDS];
    unsafe {
        let mut sum = 0;
        for step in 0..4 {
            let tile = tiles.add(step % 2 * BLOCK);
            *tile.add(rank()) = *data.add(step * BLOCK + rank()); // bug
            sum += *tile.add(rank() ^ 33); // bug
        }
        *data.add(rank()) = sum;
    }
}

/// A tiled transpose without its barrier.
#[kernel]
pub unsafe fn transpose_without_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 8 * 9;
    let tile = shared_array![u32; WORDS];
    let (x, y) = (rank() % 8, rank() / 8);
    unsafe {
        *tile.add(y * 9 + x) = *data.add(rank()); // bug
        *data.add(rank()) = *tile.add(x * 9 + y); // bug
    }
}

/// A product of 8 x 8 tiles; the next tiles are loaded while others still read these.
#[kernel]
pub unsafe fn product_tiles_overwritten(data: *mut u32, aux: *mut u32, _n: u32) {
    let (a, b) = (shared_array![f32; BLOCK], shared_array![f32; BLOCK]);
    let (x, y) = (rank() % 8, rank() / 8);
    unsafe {
        let mut sum = 0.0;
        for step in 0..2 {
            *a.add(rank()) = *data.add(step * BLOCK + rank()) as f32; // bug
            *b.add(rank()) = *data.add((step + 2) * BLOCK + rank()) as f32; // bug
            sync_threads();
            for k in 0..8 {
                sum += *a.add(y * 8 + k) * *b.add(k * 8 + x); // bug
            }
        }
        *aux.add(rank()) = sum as u32;
    }
}

/// A sorting network without a barrier between its steps.
#[kernel]
pub unsafe fn sort_without_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        sync_threads();
        for step in 0..4 {
            let left = 2 * rank() + step % 2;
            if left + 1 < BLOCK {
                let (low, high) = (*tile.add(left), *tile.add(left + 1)); // bug
                *tile.add(left) = low.min(high); // bug
                *tile.add(left + 1) = low.max(high); // bug
            }
        }
    }
}

/// Bins are added to global memory before all threads have counted.
#[kernel]
pub unsafe fn bins_merged_too_early(data: *mut u32, aux: *mut u32, _n: u32) {
    let bins = shared_array![u32; 16];
    unsafe {
        if rank() < 16 {
            *bins.add(rank()) = 0;
        }
        sync_threads();
        atomic_fetch_add_relaxed_u32_block(bins.add(*data.add(rank()) as usize % 16), 1); // bug
        if rank() < 16 {
            atomic_fetch_add_relaxed_u32_device(aux.add(rank()), *bins.add(rank())); // bug
        }
    }
}

/// Bins are cleared while other threads count already.
#[kernel]
pub unsafe fn bins_cleared_too_late(data: *mut u32, aux: *mut u32, _n: u32) {
    let bins = shared_array![u32; 16];
    unsafe {
        if rank() < 16 {
            *bins.add(rank()) = 0; // bug
        }
        atomic_fetch_add_relaxed_u32_block(bins.add(*data.add(rank()) as usize % 16), 1); // bug
        sync_threads();
        if rank() < 16 {
            *aux.add(rank()) = *bins.add(rank());
        }
    }
}

/// A maximum without atomics.
#[kernel]
pub unsafe fn maximum_without_atomics(data: *mut u32, _aux: *mut u32, _n: u32) {
    let largest = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            *largest = 0;
        }
        sync_threads();
        let value = *data.add(rank());
        let before = *largest; // bug
        if value > before {
            *largest = value; // bug
        }
        sync_threads();
    }
}

/// A value for all is overwritten in the next round while some still read it.
#[kernel]
pub unsafe fn broadcast_overwritten(data: *mut u32, _aux: *mut u32, _n: u32) {
    let value = shared_array![u32; 1];
    unsafe {
        let mut sum = 0;
        for round in 0..3 {
            if rank() == round {
                *value = *data.add(round); // bug
            }
            sync_threads();
            sum += *value; // bug
        }
        *data.add(100 + rank()) = sum;
    }
}

/// Each pair of warps has its own barrier, but reads the other pair's words. Blocks of 128 threads.
#[kernel]
pub unsafe fn barrier_of_half_the_block(data: *mut u32, _aux: *mut u32, _n: u32) {
    const THREADS: usize = 2 * BLOCK;
    let tile = shared_array![u32; THREADS];
    unsafe {
        *tile.add(rank()) = 1; // bug
        barrier::sync(1 + (rank() / BLOCK) as u32, BLOCK as u32);
        *data.add(rank()) = *tile.add(THREADS - 1 - rank()); // bug
    }
}

/// A tile of each warp, which the next warp reads.
#[kernel]
pub unsafe fn warp_tile_of_another_warp(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let mine = rank() / 32 * 32;
        *tile.add(rank()) = *data.add(rank()); // bug
        sync_warp(u32::MAX);
        let next = (mine + 32) % BLOCK;
        *data.add(rank()) = *tile.add(next + rank() % 32); // bug
    }
}

/// Bits of one byte, set by eight threads.
#[kernel]
pub unsafe fn bits_of_a_byte(data: *mut u32, _aux: *mut u32, _n: u32) {
    const BYTES: usize = BLOCK / 8;
    let bits = shared_array![u8; BYTES];
    unsafe {
        if rank() < BYTES {
            *bits.add(rank()) = 0;
        }
        sync_threads();
        *bits.add(rank() / 8) |= 1 << (rank() % 8); // bug
        sync_threads();
        *data.add(rank()) = u32::from(*bits.add(rank() / 8));
    }
}

/// Vector stores, and scalar loads of the neighbour's part with no barrier between.
#[kernel]
pub unsafe fn vector_store_scalar_load(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let mine = shared::address_of(tile) + 16 * rank() as u32;
        vector::store_shared_v4(mine, [rank() as u32; 4]); // bug
        *data.add(rank()) = *tile.add((4 * rank() + 4) % (4 * BLOCK)); // bug
    }
}

/// A ring of two slots; the producer does not wait until a slot is free.
#[kernel]
pub unsafe fn ring_without_free_slots(data: *mut u32, _aux: *mut u32, _n: u32) {
    let slots = shared_array![u32; BLOCK];
    let lane = rank() % 32;
    unsafe {
        for round in 0..4 {
            let slot = slots.add(round % 2 * 32);
            if rank() < 32 {
                *slot.add(lane) = *data.add(round * 32 + lane); // bug
                barrier::arrive(1 + round as u32 % 2, BLOCK as u32);
            } else {
                barrier::sync(1 + round as u32 % 2, BLOCK as u32); // bug
                *data.add(128 + round * 32 + lane) = *slot.add(31 - lane); // bug
            }
        }
    }
}

/// The total of a compaction is read before the last thread has written it.
#[kernel]
pub unsafe fn total_read_too_early(data: *mut u32, aux: *mut u32, _n: u32) {
    let total = shared_array![u32; 1];
    unsafe {
        if rank() == BLOCK - 1 {
            *total = *data.add(rank()); // bug
        }
        if rank() == 0 {
            *aux = *total; // bug
        }
    }
}
