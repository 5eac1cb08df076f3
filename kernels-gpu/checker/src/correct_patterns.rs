//! Correct algorithms of blocks and grids that come near to races.

use core::sync::atomic::Ordering;

use cuda_std::atomic::intrinsics::{atomic_fetch_add_relaxed_u32_block, atomic_fetch_add_relaxed_u32_device};
use cuda_std::atomic::mid::{
    atomic_fetch_add_u32_block, atomic_fetch_add_u32_device, atomic_load_32_block, atomic_load_32_device,
    atomic_store_32_block, atomic_store_32_device,
};
use cuda_std::thread::{block_fence, device_fence, grid_dim_x, sync_threads, sync_threads_or};
use cuda_std::warp::sync_warp;
use cuda_std::{barrier, grid, kernel, shared, shared_array, vector};

use crate::{BLOCK, block, global, rank};

/// A scan with two buffers and one barrier per step.
#[kernel]
pub unsafe fn scan_in_two_buffers(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tiles = shared_array![u32; WORDS];
    unsafe {
        let (mut from, mut to) = (tiles, tiles.add(BLOCK));
        *from.add(rank()) = *data.add(rank());
        let mut step = 1;
        while step < BLOCK {
            sync_threads();
            let below = if rank() >= step { *from.add(rank() - step) } else { 0 };
            *to.add(rank()) = *from.add(rank()) + below;
            (from, to) = (to, from);
            step *= 2;
        }
        *data.add(rank()) = *from.add(rank());
    }
}

/// A work-efficient scan in one buffer, up and down.
#[kernel]
pub unsafe fn scan_up_and_down(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        let mut step = 1;
        while step < BLOCK {
            sync_threads();
            if (rank() + 1).is_multiple_of(2 * step) {
                *tile.add(rank()) += *tile.add(rank() - step);
            }
            step *= 2;
        }
        sync_threads();
        if rank() == 0 {
            *tile.add(BLOCK - 1) = 0;
        }
        while step > 1 {
            step /= 2;
            sync_threads();
            if (rank() + 1).is_multiple_of(2 * step) {
                let left = *tile.add(rank() - step);
                *tile.add(rank() - step) = *tile.add(rank());
                *tile.add(rank()) += left;
            }
        }
        sync_threads();
        *data.add(rank()) = *tile.add(rank());
    }
}

/// A bitonic sorting network, descending.
#[kernel]
pub unsafe fn bitonic_sort(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        let mut size = 2;
        while size <= BLOCK {
            let mut stride = size / 2;
            while stride > 0 {
                sync_threads();
                let partner = rank() ^ stride;
                if partner > rank() {
                    let (mine, other) = (*tile.add(rank()), *tile.add(partner));
                    if (mine < other) == (rank() & size == 0) {
                        *tile.add(rank()) = other;
                        *tile.add(partner) = mine;
                    }
                }
                stride /= 2;
            }
            size *= 2;
        }
        sync_threads();
        *data.add(rank()) = *tile.add(rank());
    }
}

/// Odd-even exchange, with a barrier between the rounds.
#[kernel]
pub unsafe fn odd_even_exchange(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(BLOCK - 1 - rank()) = *data.add(rank());
        for round in 0..BLOCK {
            sync_threads();
            let left = 2 * rank() + round % 2;
            if left + 1 < BLOCK {
                let (low, high) = (*tile.add(left), *tile.add(left + 1));
                *tile.add(left) = low.min(high);
                *tile.add(left + 1) = low.max(high);
            }
        }
        sync_threads();
        *data.add(rank()) = *tile.add(rank());
    }
}

/// Two buffers take turns with one barrier per step: the barrier of a step frees the other buffer.
#[kernel]
pub unsafe fn one_barrier_per_step(data: *mut u32, aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tiles = shared_array![u32; WORDS];
    unsafe {
        let mut sum = 0;
        for step in 0..4 {
            let tile = tiles.add(step % 2 * BLOCK);
            *tile.add(rank()) = *data.add(step * BLOCK + rank());
            sync_threads();
            sum += *tile.add(BLOCK - 1 - rank());
        }
        *aux.add(rank()) = sum;
    }
}

/// A value for all, overwritten each round behind a second barrier.
#[kernel]
pub unsafe fn broadcast_with_two_barriers(data: *mut u32, aux: *mut u32, _n: u32) {
    let value = shared_array![u32; 1];
    unsafe {
        let mut sum = 0;
        for round in 0..5 {
            if rank() == 7 * round {
                *value = *data.add(rank());
            }
            sync_threads();
            sum += *value;
            sync_threads();
        }
        *aux.add(rank()) = sum;
    }
}

/// Rounds until no thread has changed anything.
#[kernel]
pub unsafe fn rounds_until_stable(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        sync_threads();
        let mut rounds = 0;
        loop {
            let right = if rank() + 1 < BLOCK { *tile.add(rank() + 1) } else { 0 };
            let mine = *tile.add(rank());
            sync_threads();
            if right > mine {
                *tile.add(rank()) = right;
            }
            rounds += 1;
            if sync_threads_or(u32::from(right > mine)) == 0 {
                break;
            }
        }
        *aux.add(rank()) = *tile.add(rank());
        if rank() == 0 {
            *data = rounds;
        }
    }
}

/// Bins of each warp, ordered by warp syncs, merged behind a barrier.
#[kernel]
pub unsafe fn bins_of_warps(data: *mut u32, aux: *mut u32, _n: u32) {
    let bins = shared_array![[u32; 8]; 2];
    let (warp, lane) = (rank() / 32, rank() % 32);
    unsafe {
        if lane < 8 {
            (*bins.add(warp))[lane] = 0;
        }
        sync_warp(u32::MAX);
        let bin = bins.add(warp).cast::<u32>().add(*data.add(rank()) as usize % 8);
        atomic_fetch_add_relaxed_u32_block(bin, 1);
        sync_threads();
        if rank() < 8 {
            *aux.add(rank()) = (*bins)[rank()] + (*bins.add(1))[rank()];
        }
    }
}

/// A stencil in two dimensions with its halo. One block of 8 x 8 threads over a 10 x 10 image.
#[kernel]
pub unsafe fn image_with_halo(data: *mut u32, aux: *mut u32, _n: u32) {
    const EDGE: usize = 10;
    const WORDS: usize = EDGE * EDGE;
    let tile = shared_array![u32; WORDS];
    let (x, y) = (rank(), cuda_std::thread::thread_idx_y() as usize);
    unsafe {
        for index in (y * 8 + x..WORDS).step_by(BLOCK) {
            *tile.add(index) = *data.add(index);
        }
        sync_threads();
        let middle = (y + 1) * EDGE + x + 1;
        let across = *tile.add(middle - 1) + *tile.add(middle + 1);
        *aux.add(y * 8 + x) = across + *tile.add(middle - EDGE) + *tile.add(middle + EDGE);
    }
}

/// A ring of four slots between two warps, with named barriers for full and for free slots.
#[kernel]
pub unsafe fn ring_of_four(data: *mut u32, _aux: *mut u32, n: u32) {
    const SLOTS: usize = 4;
    const WORDS: usize = SLOTS * 32;
    let slots = shared_array![u32; WORDS];
    let (lane, rounds) = (rank() % 32, n as usize / 64);
    unsafe {
        for round in 0..rounds {
            let (full, free) = (1 + (round % SLOTS) as u32, 5 + (round % SLOTS) as u32);
            let slot = slots.add(round % SLOTS * 32);
            if rank() < 32 {
                if round >= SLOTS {
                    barrier::sync(free, BLOCK as u32);
                }
                *slot.add(lane) = *data.add(round * 32 + lane);
                barrier::arrive(full, BLOCK as u32);
            } else {
                barrier::sync(full, BLOCK as u32);
                *data.add(n as usize / 2 + round * 32 + lane) = *slot.add(31 - lane);
                if round + SLOTS < rounds {
                    barrier::arrive(free, BLOCK as u32);
                }
            }
        }
    }
}

/// Two halves of a block with a barrier each. Blocks of 128 threads.
#[kernel]
pub unsafe fn halves_with_barriers(data: *mut u32, _aux: *mut u32, _n: u32) {
    const THREADS: usize = 2 * BLOCK;
    let tile = shared_array![u32; THREADS];
    unsafe {
        *tile.add(rank()) = rank() as u32;
        barrier::sync(1 + (rank() / BLOCK) as u32, BLOCK as u32);
        let half = rank() / BLOCK * BLOCK;
        *data.add(rank()) = *tile.add(half + BLOCK - 1 - rank() % BLOCK);
    }
}

/// A message in shared memory by a flag with release and acquire.
#[kernel]
pub unsafe fn message_in_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let words = shared_array![u32; 2];
    unsafe {
        if rank() == 0 {
            *words = 0;
        }
        sync_threads();
        if rank() == 0 {
            *words.add(1) = 5;
            atomic_store_32_block(words, Ordering::Release, 1);
        } else if rank() == 32 {
            while atomic_load_32_block(words, Ordering::Acquire) == 0 {}
            *data = *words.add(1);
        }
    }
}

/// The same with relaxed accesses and fences of the block.
#[kernel]
pub unsafe fn message_by_block_fences(data: *mut u32, _aux: *mut u32, _n: u32) {
    let words = shared_array![u32; 2];
    unsafe {
        if rank() == 0 {
            *words = 0;
        }
        sync_threads();
        if rank() == 0 {
            *words.add(1) = 5;
            block_fence();
            atomic_store_32_block(words, Ordering::Relaxed, 1);
        } else if rank() == 32 {
            while atomic_load_32_block(words, Ordering::Relaxed) == 0 {}
            block_fence();
            *data = *words.add(1);
        }
    }
}

/// A message of block 0 to block 1, by relaxed accesses and fences of the device.
#[kernel]
pub unsafe fn message_by_device_fences(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 && block() == 0 {
            *data.add(100) = 7;
            device_fence();
            atomic_store_32_device(aux, Ordering::Relaxed, 1);
        } else if rank() == 0 {
            while atomic_load_32_device(aux, Ordering::Relaxed) == 0 {}
            device_fence();
            *data.add(101) = *data.add(100);
        }
    }
}

/// A narrow release within the block, then a wide one to the next block: the order passes through.
#[kernel]
pub unsafe fn scopes_in_a_chain(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        match global() {
            0 => {
                *data.add(100) = 7;
                atomic_store_32_block(aux, Ordering::Release, 1);
            }
            32 => {
                while atomic_load_32_block(aux, Ordering::Acquire) == 0 {}
                atomic_store_32_device(aux.add(1), Ordering::Release, 1);
            }
            64 => {
                while atomic_load_32_device(aux.add(1), Ordering::Acquire) == 0 {}
                *data.add(101) = *data.add(100);
            }
            _ => {}
        }
    }
}

/// Counts of block scope in global memory, each block at a word of its own.
#[kernel]
pub unsafe fn block_counts_of_their_own(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        atomic_fetch_add_u32_block(aux.add(block()), Ordering::Relaxed, 1);
    }
}

/// The last block sums all, and clears the counter for the next launch.
#[kernel]
pub unsafe fn last_block_clears(data: *mut u32, aux: *mut u32, n: u32) {
    let is_last = shared_array![u32; 1];
    unsafe {
        *data.add(global()) += 1;
        sync_threads();
        if rank() == 0 {
            let before = atomic_fetch_add_u32_device(aux, Ordering::AcqRel, 1);
            *is_last = u32::from(before == grid_dim_x() - 1);
        }
        sync_threads();
        if *is_last == 1 {
            let mut sum = 0;
            for index in (rank()..n as usize).step_by(BLOCK) {
                sum += *data.add(index);
            }
            atomic_fetch_add_relaxed_u32_device(aux.add(1), sum);
            if rank() == 0 {
                *aux = 0;
            }
        }
    }
}

/// A scan in one pass: each block publishes its sum, and looks back over the blocks before it until one has
/// published a prefix.
#[kernel]
pub unsafe fn decoupled_look_back(data: *mut u32, aux: *mut u32, _n: u32) {
    const SUM: u32 = 1;
    const PREFIX: u32 = 2;
    unsafe {
        let (sums, prefixes, flags) = (aux.add(8), aux.add(24), aux.add(40));
        if rank() != 0 {
            return;
        }
        let turn = atomic_fetch_add_u32_device(aux, Ordering::Relaxed, 1) as usize;
        let sum = *data.add(turn);
        *sums.add(turn) = sum;
        atomic_store_32_device(flags.add(turn), Ordering::Release, SUM);
        let (mut before, mut other) = (0, turn);
        while other > 0 {
            let flag = atomic_load_32_device(flags.add(other - 1), Ordering::Acquire);
            if flag == PREFIX {
                before += *prefixes.add(other - 1);
                break;
            } else if flag == SUM {
                before += *sums.add(other - 1);
                other -= 1;
            }
        }
        *prefixes.add(turn) = before + sum;
        atomic_store_32_device(flags.add(turn), Ordering::Release, PREFIX);
        *data.add(64 + turn) = before;
    }
}

/// Blocks append to one list; the places come from an atomic counter, one request a block.
#[kernel]
pub unsafe fn append_by_blocks(data: *mut u32, aux: *mut u32, n: u32) {
    let first = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            *first = atomic_fetch_add_relaxed_u32_device(aux, BLOCK as u32);
        }
        sync_threads();
        let place = *first as usize + rank();
        *data.add(n as usize / 2 + place) = 1;
    }
}

/// Input that no thread writes, by read-only loads.
#[kernel]
pub unsafe fn read_only_input(data: *mut u32, _aux: *mut u32, n: u32) {
    let half = n as usize / 2;
    unsafe {
        let value: u32 = vector::load_nc(data.add((global() + 1) % half).cast_const());
        *data.add(half + global()) = value;
    }
}

/// Vector stores to shared memory, scalar loads behind a barrier.
#[kernel]
pub unsafe fn vectors_to_scalars(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let mine = shared::address_of(tile) + 16 * rank() as u32;
        vector::store_shared_v4(mine, [rank() as u32; 4]);
        sync_threads();
        *data.add(rank()) = *tile.add(4 * (BLOCK - 1 - rank()) + 3);
    }
}

/// Two grid syncs per round: one before the sum is read, one before it is cleared.
#[kernel]
pub unsafe fn grid_sums(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let sum = aux.add(8);
        for round in 0..3 {
            atomic_fetch_add_relaxed_u32_device(sum, 1);
            grid::sync(aux);
            *data.add(round * 128 + global()) = *sum;
            grid::sync(aux);
            if global() == 0 {
                *sum = 0;
            }
            grid::sync(aux);
        }
    }
}

/// Blocks pass a word around a ring, one after another.
#[kernel]
pub unsafe fn token_ring(data: *mut u32, aux: *mut u32, _n: u32) {
    let blocks = grid_dim_x();
    unsafe {
        if rank() == 0 {
            for lap in 0..3 {
                let turn = lap * blocks + block() as u32;
                while atomic_load_32_device(aux, Ordering::Acquire) != turn {}
                *data = *data * 2 + 1;
                atomic_store_32_device(aux, Ordering::Release, turn + 1);
            }
        }
    }
}

/// A counting semaphore: at most two blocks hold it. Each has a slot of its own meanwhile.
#[kernel]
pub unsafe fn semaphore(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            loop {
                let held = atomic_fetch_add_u32_device(aux, Ordering::Acquire, 1);
                if held < 2 {
                    break;
                }
                atomic_fetch_add_u32_device(aux, Ordering::Relaxed, u32::MAX);
            }
            *data.add(block()) += 100;
            atomic_fetch_add_u32_device(aux, Ordering::Release, u32::MAX);
        }
    }
}
