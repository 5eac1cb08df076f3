//! Correct programs that come near to bugs.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use cuda_std::warp::{FULL_MASK, WarpReductionOp};
use cuda_std::wgmma::{self, BF16};
use cuda_std::{
    async_copy, barrier, cluster, fence, grid, kernel, mbarrier, shared, shared_array, thread, tma, warp,
};
use layout::wgmma::{Swizzle, descriptor};

use crate::{BLOCK, BOX_BYTES, BOX_ROWS, BOX_WORDS, atomic, block, global, map, rank};

/// A sum by the last block: a relaxed counter between two fences of the device, then a barrier for the
/// readers.
#[kernel]
pub unsafe fn last_block_behind_fences(data: *mut u32, aux: *mut u32, _n: u32) {
    let slots = shared_array![u32; 2];
    let is_last = shared_array![bool; 1];
    unsafe {
        let sum = warp::warp_reduce(FULL_MASK, *data.add(global()), WarpReductionOp::Add);
        if warp::lane_id() == 0 {
            *slots.add(rank() / 32) = sum;
        }
        thread::sync_threads();
        let parts = aux.add(8);
        if rank() == 0 {
            *parts.add(block()) = *slots + *slots.add(1);
            thread::device_fence();
            let before = atomic(aux).fetch_add(1, Relaxed);
            thread::device_fence();
            *is_last = before == thread::grid_dim_x() - 1;
        }
        thread::sync_threads();
        if *is_last && rank() < 4 {
            let total = warp::warp_reduce(0xf, *parts.add(rank()), WarpReductionOp::Add);
            if rank() == 0 {
                *aux.add(1) = total;
            }
        }
    }
}

/// A filter with one addition a warp: threads beyond the end return first, and the masks are without them.
#[kernel]
pub unsafe fn filter_without_the_lanes_that_left(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        let (i, lane) = (global() as u32, warp::lane_id());
        if i >= n {
            return;
        }
        let left = n - (i - lane);
        let here = if left >= 32 { FULL_MASK } else { (1 << left) - 1 };
        let value = *data.add(i as usize);
        let is_kept = value.is_multiple_of(3);
        let kept = warp::warp_vote_ballot(here, is_kept);
        if is_kept {
            let leader = kept.trailing_zeros();
            let mut base = 0;
            if lane == leader {
                base = atomic(aux).fetch_add(kept.count_ones(), Relaxed);
            }
            let (base, _) = warp::warp_shuffle_idx(kept, base, leader, 32);
            let below = kept & ((1 << lane) - 1);
            *data.add(256 + (base + below.count_ones()) as usize) = value;
        }
    }
}

/// A scan by one warp through shared memory: all lanes wait between their reads and their writes, and after.
#[kernel]
pub unsafe fn scan_of_a_warp_that_waits(data: *mut u32, _aux: *mut u32, _n: u32) {
    let sums = shared_array![u32; 32];
    unsafe {
        let lane = rank();
        *sums.add(lane) = *data.add(lane);
        warp::sync_warp(FULL_MASK);
        let mut distance = 1;
        while distance < 32 {
            let below = if lane >= distance { *sums.add(lane - distance) } else { 0 };
            warp::sync_warp(FULL_MASK);
            *sums.add(lane) += below;
            warp::sync_warp(FULL_MASK);
            distance *= 2;
        }
        *data.add(32 + lane) = *sums.add(31 - lane);
    }
}

/// A warp hands tiles to another through two buffers, with named barriers for full and for empty ones.
#[kernel]
pub unsafe fn warps_hand_over_two_buffers(data: *mut u32, aux: *mut u32, n: u32) {
    const FULL: u32 = 1;
    const EMPTY: u32 = 3;
    let buffers = shared_array![u32; 64];
    unsafe {
        let (lane, tiles) = (rank() % 32, n / 32);
        if rank() < 32 {
            for tile in 0..tiles {
                let buffer = tile % 2;
                if tile >= 2 {
                    barrier::sync(EMPTY + buffer, 64);
                }
                *buffers.add(buffer as usize * 32 + lane) = *data.add(tile as usize * 32 + lane);
                barrier::arrive(FULL + buffer, 64);
            }
        } else {
            let mut sum = 0;
            for tile in 0..tiles {
                let buffer = tile % 2;
                barrier::sync(FULL + buffer, 64);
                sum += *buffers.add(buffer as usize * 32 + 31 - lane);
                if tile + 2 < tiles {
                    barrier::arrive(EMPTY + buffer, 64);
                }
            }
            *aux.add(lane) = sum;
        }
    }
}

/// A ring of two boxes that one thread loads and a warp sums up: phases turn with each round of the ring.
#[kernel]
pub unsafe fn ring_of_boxes(_data: *mut u32, aux: *mut u32, n: u32) {
    let stages = shared::dynamic_shared_mem::<u32>();
    let full = shared::address_of(shared_array![u64; 2]);
    let empty = shared::address_of(shared_array![u64; 2]);
    unsafe {
        let boxes = n / BOX_WORDS as u32;
        if rank() == 0 {
            for stage in 0..2 {
                mbarrier::init(full + mbarrier::BYTES * stage, 1);
                mbarrier::init(empty + mbarrier::BYTES * stage, 32);
            }
            mbarrier::fence_init();
        }
        thread::sync_threads();
        if rank() == 0 {
            for number in 0..boxes {
                let (stage, parity) = (number % 2, number / 2 % 2);
                let bar = full + mbarrier::BYTES * stage;
                mbarrier::wait_parity(empty + mbarrier::BYTES * stage, parity ^ 1);
                mbarrier::arrive_expect_tx(bar, BOX_BYTES);
                let to = shared::address_of(stages) + BOX_BYTES * stage;
                tma::load_2d(to, map(aux), bar, [0, (number * BOX_ROWS) as i32]);
            }
        } else if rank() >= 32 {
            let lane = rank() - 32;
            let mut sum = 0;
            for number in 0..boxes {
                let (stage, parity) = (number % 2, number / 2 % 2);
                mbarrier::wait_parity(full + mbarrier::BYTES * stage, parity);
                let words = stages.add(stage as usize * BOX_WORDS);
                sum += *words.add(lane) + *words.add(BOX_WORDS - 1 - lane);
                mbarrier::arrive(empty + mbarrier::BYTES * stage);
            }
            *aux.add(32 + lane) = sum;
        }
    }
}

/// An odd-even sort: the barrier that asks whether anything was swapped is the one that orders the swaps.
#[kernel]
pub unsafe fn sort_until_nothing_is_swapped(data: *mut u32, _aux: *mut u32, _n: u32) {
    const KEYS: usize = 2 * BLOCK;
    let keys = shared_array![u32; KEYS];
    unsafe {
        for i in [rank(), rank() + BLOCK] {
            *keys.add(i) = *data.add(i) * 37 % KEYS as u32;
        }
        thread::sync_threads();
        loop {
            let mut swapped = 0;
            for first in [2 * rank(), 2 * rank() + 1] {
                if first + 1 < KEYS {
                    let (a, b) = (*keys.add(first), *keys.add(first + 1));
                    if a > b {
                        (*keys.add(first), *keys.add(first + 1)) = (b, a);
                        swapped = 1;
                    }
                }
                if first % 2 == 0 {
                    thread::sync_threads();
                }
            }
            if thread::sync_threads_or(swapped) == 0 {
                break;
            }
        }
        *data.add(KEYS + rank()) = *keys.add(rank());
        *data.add(KEYS + BLOCK + rank()) = *keys.add(KEYS - 1 - rank());
    }
}

/// A word and its bytes.
#[derive(Clone, Copy)]
#[repr(C)]
union Word {
    word: u32,
    bytes: [u8; 4],
}

/// Threads write the bytes of words side by side, four threads a word, and read the words behind a barrier.
#[kernel]
pub unsafe fn bytes_of_the_same_words(data: *mut u32, _aux: *mut u32, _n: u32) {
    let words = shared_array![Word; BLOCK];
    unsafe {
        let seed = *data.add(rank()) as u8;
        for quarter in 0..4 {
            let i = quarter * BLOCK + rank();
            *words.cast::<u8>().add(i) = seed.wrapping_add((quarter * BLOCK) as u8);
        }
        // In global memory too.
        *data.add(BLOCK).cast::<u8>().add(rank()) = seed;
        thread::sync_threads();
        let mut word = *words.add(rank());
        word.bytes.reverse();
        *data.add(2 * BLOCK + rank()) = word.word;
        *data.add(3 * BLOCK + rank()) = *data.add(BLOCK + rank() / 4);
    }
}

/// A warp returns at once; the other three meet at a named barrier of 96 threads.
#[kernel]
pub unsafe fn rest_of_the_block_at_a_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    const REST: usize = 96;
    let words = shared_array![u32; REST];
    unsafe {
        if rank() >= REST {
            return;
        }
        *words.add(rank()) = *data.add(rank());
        for _ in 0..3 {
            barrier::sync(1, REST as u32);
            let value = *words.add(REST - 1 - rank());
            barrier::sync(2, REST as u32);
            *words.add(rank()) = value + 1;
        }
        *data.add(128 + rank()) = *words.add(rank());
    }
}

/// A stencil over a cluster: one barrier of the cluster before the neighbours' edges are read, one after.
#[kernel]
pub unsafe fn edges_behind_a_barrier_of_the_cluster(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let (this, blocks) = (cluster::block_rank(), cluster::blocks());
        let value = *data.add(global());
        *tile.add(rank()) = value;
        cluster::sync();
        let edge = |place: usize, other: u32| {
            cluster::load_shared::<u32>(cluster::map_shared(shared::address_of(tile.add(place)), other))
        };
        let left = match (rank(), this) {
            (0, 0) => 0,
            (0, _) => edge(BLOCK - 1, this - 1),
            (i, _) => *tile.add(i - 1),
        };
        let right = if rank() + 1 < BLOCK {
            *tile.add(rank() + 1)
        } else if this + 1 < blocks {
            edge(0, this + 1)
        } else {
            0
        };
        cluster::arrive();
        *data.add(256 + global()) = left + value + right;
        cluster::wait();
    }
}

/// A pipeline of three stages by `cp.async`, whose last rounds commit empty groups so that the count is
/// right.
#[kernel]
pub unsafe fn three_stages_and_empty_groups(data: *mut u32, aux: *mut u32, n: u32) {
    const STAGES: usize = 3;
    let stages = shared_array![u32; STAGES * BLOCK];
    unsafe {
        let tiles = n as usize / BLOCK;
        let fetch = |tile: usize| {
            if tile < tiles {
                let to = shared::address_of(stages.add(tile % STAGES * BLOCK + rank()));
                async_copy::copy_ca::<4, _>(to, data.add(tile * BLOCK + rank()));
            }
            async_copy::commit_group();
        };
        fetch(0);
        fetch(1);
        let mut sum = 0;
        for tile in 0..tiles {
            async_copy::wait_group::<1>();
            thread::sync_threads();
            // Over the stage of the round before, which all have left.
            fetch(tile + 2);
            sum += *stages.add(tile % STAGES * BLOCK + BLOCK - 1 - rank());
        }
        *aux.add(rank()) = sum;
    }
}

/// A list of the blocks' greatest values under a lock that one thread a block takes.
#[kernel]
pub unsafe fn list_under_a_lock(data: *mut u32, aux: *mut u32, _n: u32) {
    let slots = shared_array![u32; 2];
    unsafe {
        let most = warp::warp_reduce(FULL_MASK, *data.add(global()), WarpReductionOp::Max);
        if warp::lane_id() == 0 {
            *slots.add(rank() / 32) = most;
        }
        thread::sync_threads();
        if rank() == 0 {
            let lock = atomic(aux);
            while lock.swap(1, Acquire) != 0 {
                thread::nanosleep(100);
            }
            let mut value = (*slots).max(*slots.add(1));
            for place in 1..5 {
                let there = *aux.add(place);
                if value > there {
                    *aux.add(place) = value;
                    value = there;
                }
            }
            lock.store(0, Release);
        }
    }
}

/// Dynamic shared memory in three regions of different types, one of which serves twice.
#[kernel]
pub unsafe fn regions_of_dynamic_memory(data: *mut u32, _aux: *mut u32, _n: u32) {
    let longs = shared::dynamic_shared_mem::<u64>();
    unsafe {
        let words = longs.add(BLOCK).cast::<u32>();
        let bytes = words.add(BLOCK).cast::<u8>();
        let (value, next) = (*data.add(rank()), (rank() + 1) % BLOCK);
        *longs.add(rank()) = u64::from(value) << 32 | 7;
        *words.add(rank()) = 2 * value;
        *bytes.add(rank()) = value as u8;
        thread::sync_threads();
        let (long, word, byte) = (*longs.add(next), *words.add(next), *bytes.add(next));
        thread::sync_threads();
        // The longs' place, now for twice as many floats.
        let floats = longs.cast::<f32>();
        *floats.add(rank()) = word as f32;
        *floats.add(BLOCK + rank()) = f32::from(byte);
        thread::sync_threads();
        let sum = *floats.add(2 * BLOCK - 1 - rank()) + *floats.add(rank());
        *data.add(BLOCK + rank()) = sum as u32 + (long >> 32) as u32 + long as u32;
    }
}

/// A prefix sum with look-back by relaxed accesses alone: the state and the sum are bits of one word.
#[kernel]
pub unsafe fn look_back_at_whole_words(data: *mut u32, aux: *mut u32, _n: u32) {
    const SUM: u32 = 1 << 30;
    const PREFIX: u32 = 2 << 30;
    let sums = shared_array![u32; BLOCK];
    let start = shared_array![u32; 1];
    unsafe {
        *sums.add(rank()) = *data.add(global());
        let mut distance = 1;
        while distance < BLOCK {
            thread::sync_threads();
            let below = if rank() >= distance { *sums.add(rank() - distance) } else { 0 };
            thread::sync_threads();
            *sums.add(rank()) += below;
            distance *= 2;
        }
        if rank() == BLOCK - 1 {
            let sum = *sums.add(rank());
            let (mut prefix, mut other) = (0, block());
            if other > 0 {
                atomic(aux.add(block())).store(SUM | sum, Relaxed);
            }
            while other > 0 {
                let word = atomic(aux.add(other - 1)).load(Relaxed);
                if word != 0 {
                    prefix += word & (SUM - 1);
                    other = if word & PREFIX != 0 { 0 } else { other - 1 };
                }
            }
            atomic(aux.add(block())).store(PREFIX | (prefix + sum), Relaxed);
            *start = prefix;
        }
        thread::sync_threads();
        *data.add(256 + global()) = *start + *sums.add(rank());
    }
}

/// Threads arrive at an mbarrier, go on with their own work, and wait later; two buffers take turns.
#[kernel]
pub unsafe fn arrive_now_and_wait_later(data: *mut u32, _aux: *mut u32, _n: u32) {
    let buffers = shared_array![u32; 2 * BLOCK];
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, BLOCK as u32);
        }
        thread::sync_threads();
        let mut value = *data.add(rank());
        for round in 0..5 {
            let buffer = buffers.add(round % 2 * BLOCK);
            *buffer.add(rank()) = value;
            mbarrier::arrive(bar);
            *data.add(BLOCK + rank()) = value;
            mbarrier::wait_parity(bar, round as u32 % 2);
            value = *buffer.add((rank() + 1) % BLOCK) + 1;
        }
        *data.add(2 * BLOCK + rank()) = value;
    }
}

/// Products of ones and of 1, 2, 3, 4: one is under way while the other buffer is filled, after all have
/// waited.
#[kernel]
pub unsafe fn products_under_way(data: *mut u32, _aux: *mut u32, _n: u32) {
    const A_ROWS: usize = 64;
    const B_ROWS: usize = 8;
    const STEPS: [u32; 4] = [0x3f80_3f80, 0x4000_4000, 0x4040_4040, 0x4080_4080];
    let a_tile = shared_array![u32; 8 * A_ROWS];
    let b_tiles = shared_array![u32; 2 * 8 * B_ROWS];
    unsafe {
        for i in 0..4 {
            *a_tile.add(128 * i + rank()) = STEPS[0];
        }
        let of = |tile: *mut u32, rows: usize| {
            descriptor(shared::address_of(tile), 16 * rows as u32, 128, Swizzle::None)
        };
        let mut sums = [0.0f32; 4];
        for (step, values) in STEPS.into_iter().enumerate() {
            let b_tile = b_tiles.add(step % 2 * 8 * B_ROWS);
            if rank() < 8 * B_ROWS {
                *b_tile.add(rank()) = values;
            }
            fence::proxy_async_shared();
            thread::sync_threads();
            wgmma::fence_registers(&mut sums);
            wgmma::fence();
            wgmma::mma::<BF16, BF16, _, 0, 0>(&mut sums, of(a_tile, A_ROWS), of(b_tile, B_ROWS), true);
            wgmma::commit_group();
            wgmma::wait_group::<1>();
            wgmma::fence_registers(&mut sums);
            // All four warps are through with the product before, whose buffer is the next one.
            thread::sync_threads();
        }
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut sums);
        for (j, sum) in sums.iter().enumerate() {
            *data.add(4 * rank() + j) = sum.to_bits();
        }
    }
}

/// An epilogue with two staging buffers: one store may still read while the other buffer is written.
#[kernel]
pub unsafe fn two_staging_buffers(data: *mut u32, _aux: *mut u32, _n: u32) {
    let staging = shared_array![u32; 2 * BLOCK];
    unsafe {
        for step in 0..4 {
            let buffer = staging.add(step % 2 * BLOCK);
            let value = *data.add(step * BLOCK + rank());
            if rank() == 0 {
                tma::wait_group_read::<1>();
            }
            thread::sync_threads();
            *buffer.add(BLOCK - 1 - rank()) = 3 * value;
            fence::proxy_async_shared();
            thread::sync_threads();
            if rank() == 0 {
                let to = data.add((4 + step) * BLOCK);
                tma::bulk_store(to, shared::address_of(buffer), 4 * BLOCK as u32);
                tma::commit_group();
            }
        }
        if rank() == 0 {
            tma::wait_group::<0>();
        }
    }
}

/// Steps of a diffusion over all blocks between two buffers, with a barrier of the grid after each.
#[kernel]
pub unsafe fn diffusion_with_grid_barriers(data: *mut u32, aux: *mut u32, _n: u32) {
    const SIZE: usize = 256;
    unsafe {
        for step in 0..3 {
            let from = data.add(step % 2 * SIZE);
            let to = data.add((step + 1) % 2 * SIZE);
            let i = global();
            *to.add(i) = *from.add((i + SIZE - 1) % SIZE) + *from.add(i) + *from.add((i + 1) % SIZE);
            grid::sync(aux);
        }
    }
}

/// Blocks take tiles from a counter until there are none; two barriers keep the tile's number until all know
/// it.
#[kernel]
pub unsafe fn tiles_from_a_counter(data: *mut u32, aux: *mut u32, n: u32) {
    let number = shared_array![u32; 1];
    unsafe {
        loop {
            if rank() == 0 {
                *number = atomic(aux).fetch_add(1, Relaxed);
            }
            thread::sync_threads();
            let tile = *number as usize;
            thread::sync_threads();
            if tile >= n as usize / BLOCK {
                break;
            }
            *data.add(tile * BLOCK + rank()) *= 2;
        }
    }
}

/// The halves of a warp part: one sums up, the other looks for the maximum, each with its own mask.
#[kernel]
pub unsafe fn halves_of_a_warp_apart(data: *mut u32, _aux: *mut u32, _n: u32) {
    const LOW: u32 = 0xffff;
    unsafe {
        let mut value = *data.add(rank());
        if warp::lane_id() < 16 {
            let mut distance = 8;
            while distance > 0 {
                value += warp::warp_shuffle_xor(LOW, value, distance, 16).0;
                distance /= 2;
            }
        } else {
            for distance in [1, 2, 4, 8] {
                value = value.max(warp::warp_shuffle_xor(!LOW, value, distance, 16).0);
            }
        }
        warp::sync_warp(FULL_MASK);
        let (other, _) = warp::warp_shuffle_xor(FULL_MASK, value, 16, 32);
        *data.add(BLOCK + rank()) = 1000 * value + other;
    }
}

/// Components of a graph by atomic minima: threads that change a label all store the same to one flag.
#[kernel]
pub unsafe fn labels_until_nothing_changes(data: *mut u32, _aux: *mut u32, _n: u32) {
    let labels = shared_array![u32; BLOCK];
    let changed = shared_array![u32; 1];
    unsafe {
        *labels.add(rank()) = *data.add(rank());
        let neighbour = labels.add((rank() + 8) % BLOCK);
        loop {
            if rank() == 0 {
                *changed = 0;
            }
            thread::sync_threads();
            let label = atomic(neighbour).load(Relaxed);
            if atomic(labels.add(rank())).fetch_min(label, Relaxed) > label {
                atomic(changed).store(1, Relaxed);
            }
            thread::sync_threads();
            let again = *changed;
            thread::sync_threads();
            if again == 0 {
                break;
            }
        }
        *data.add(BLOCK + rank()) = *labels.add(rank());
    }
}
