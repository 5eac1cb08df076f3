//! Whole programs that are right, and look as if they were not.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use cuda_std::async_copy::{commit_group, copy_cg, wait_group};
use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::{
    device_fence, grid_dim_x, sync_threads, sync_threads_count, thread_idx_x, thread_idx_y,
};
use cuda_std::warp::{
    lane_id, sync_warp, warp_match_any, warp_shuffle_down, warp_shuffle_idx, warp_shuffle_up,
    warp_shuffle_xor, warp_vote_ballot,
};
use cuda_std::wgmma::{self, BF16};
use cuda_std::{barrier, cluster, fence, kernel, mem, shared, shared_array, tma, vector};

use crate::products::{A_WORDS, Accumulator, B_WORDS, ONES, WARPGROUP, operand};
use crate::{BLOCK, atomic, block, global, rank};

/// Side of a tile.
const T: usize = 16;

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// A product of 16x64 and 64x16 in two buffers, with one barrier a step.
#[kernel]
pub unsafe fn gemm_with_one_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    const K: usize = 64;
    const WORDS: usize = 2 * T * T;
    let (a, b) = (shared_array![u32; WORDS], shared_array![u32; WORDS]);
    let (x, y) = (thread_idx_x() as usize, thread_idx_y() as usize);
    unsafe {
        let (left, right, out) = (data, data.add(T * K), data.add(2 * T * K));
        let load = |start: usize, buffer: usize| {
            *a.add(buffer * T * T + y * T + x) = *left.add(y * K + start + x) % 7;
            *b.add(buffer * T * T + y * T + x) = *right.add((start + y) * T + x) % 5;
        };
        load(0, 0);
        let mut sum = 0;
        for step in 0..K / T {
            sync_threads();
            if step + 1 < K / T {
                load((step + 1) * T, (step + 1) % 2);
            }
            let buffer = step % 2 * T * T;
            for k in 0..T {
                sum += *a.add(buffer + y * T + k) * *b.add(buffer + k * T + x);
            }
        }
        *out.add(y * T + x) = sum;
    }
}

/// Every warp transposes its own tile of 32x4, in memory that no other warp uses.
#[kernel]
pub unsafe fn transpose_by_warps(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * 128;
    let tiles = shared_array![u32; WORDS];
    let (warp, lane) = (rank() / 32, rank() % 32);
    unsafe {
        let tile = tiles.add(128 * warp);
        for row in 0..4 {
            *tile.add(row * 32 + lane) = *data.add(128 * warp + row * 32 + lane);
        }
        sync_warp(u32::MAX);
        for i in (lane..128).step_by(32) {
            *data.add(128 * warp + i) = *tile.add(i % 4 * 32 + i / 4);
        }
    }
}

/// A bitonic sort with a barrier of the warp wherever both keys belong to the warp.
#[kernel]
pub unsafe fn bitonic_sort_with_both_barriers(data: *mut u32, _aux: *mut u32, _n: u32) {
    let keys = shared_array![u32; BLOCK];
    let i = rank();
    unsafe {
        *keys.add(i) = (*data.add(i)).wrapping_mul(2_654_435_761);
        sync_threads();
        let mut k = 2;
        while k <= BLOCK {
            let mut j = k / 2;
            while j > 0 {
                if j == 32 {
                    sync_threads();
                }
                let other = i ^ j;
                if other > i {
                    let (low, high) = (*keys.add(i), *keys.add(other));
                    if (low > high) == (i & k == 0) {
                        *keys.add(i) = high;
                        *keys.add(other) = low;
                    }
                }
                if j == 32 {
                    sync_threads()
                } else {
                    sync_warp(u32::MAX)
                }
                j /= 2;
            }
            k *= 2;
        }
        *data.add(i) = *keys.add(i);
    }
}

/// A scan with look-back. Flag and sum share 64 bits, so that relaxed accesses are enough.
#[kernel]
pub unsafe fn look_back_in_one_word(data: *mut u32, aux: *mut u32, _n: u32) {
    const READY: u64 = 1 << 32;
    let (base, first) = (shared_array![u32; 1], shared_array![u32; 1]);
    unsafe {
        let state = |b: usize| AtomicU64::from_ptr(aux.cast::<u64>().add(b));
        let mut sum = *data.add(global());
        for d in [1, 2, 4, 8, 16] {
            let (below, is_inside) = warp_shuffle_up(u32::MAX, sum, d, 32);
            sum += if is_inside { below } else { 0 };
        }
        if rank() == 31 {
            *first = sum;
        }
        sync_threads();
        if rank() >= 32 {
            sum += *first;
        }
        if rank() == BLOCK - 1 {
            let mut before = 0;
            if block() > 0 {
                let mut seen = 0;
                while seen & READY == 0 {
                    seen = state(block() - 1).load(Relaxed);
                }
                before = seen as u32;
            }
            state(block()).store(READY | u64::from(before + sum), Relaxed);
            *base = before;
        }
        sync_threads();
        *data.add(global()) = *base + sum;
    }
}

/// A reduction in one launch: fences on both sides of a relaxed ticket, and a vote that tells the block.
#[kernel]
pub unsafe fn last_block_with_fences(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let mut sum = *data.add(global());
        for d in [16, 8, 4, 2, 1] {
            sum += warp_shuffle_down(u32::MAX, sum, d, 32).0;
        }
        let mut is_last = false;
        if lane_id() == 0 {
            *aux.add(2 * block() + rank() / 32) = sum;
        }
        sync_threads();
        if rank() == 0 {
            device_fence();
            is_last = atomic(aux.add(32)).fetch_add(1, Relaxed) == grid_dim_x() - 1;
            device_fence();
        }
        if sync_threads_count(u32::from(is_last)) == 0 {
            return;
        }
        if rank() < 8 {
            let mut total = *aux.add(rank());
            for d in [4, 2, 1] {
                total += warp_shuffle_down(0xff, total, d, 8).0;
            }
            if rank() == 0 {
                *aux.add(40) = total;
            }
        }
    }
}

/// A lock of each bucket guards a list of plain words.
#[kernel]
pub unsafe fn buckets_with_locks(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank().is_multiple_of(16) {
            let key = *data.add(global());
            let bucket = (key / 16 % 4) as usize;
            let lock = atomic(aux.add(bucket));
            let mut is_done = false;
            while !is_done {
                if lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                    let count = *aux.add(8 + bucket);
                    *aux.add(16 + 8 * bucket + count as usize) = key;
                    *aux.add(8 + bucket) = count + 1;
                    lock.store(0, Release);
                    is_done = true;
                }
            }
        }
    }
}

/// A histogram in which one lane counts for all lanes of its warp with the same bin.
#[kernel]
pub unsafe fn histogram_by_matches(data: *mut u32, aux: *mut u32, n: u32) {
    const BINS: usize = 8;
    let bins = shared_array![u32; BINS];
    unsafe {
        if rank() < BINS {
            *bins.add(rank()) = 0;
        }
        sync_threads();
        for i in (global()..n as usize).step_by(BLOCK * grid_dim_x() as usize) {
            let bin = *data.add(i) as usize / 3 % BINS;
            let alike = warp_match_any(u32::MAX, bin as u32);
            if alike.trailing_zeros() == lane_id() {
                atomic(bins.add(bin)).fetch_add(alike.count_ones(), Relaxed);
            }
        }
        sync_threads();
        if rank() < BINS {
            atomic(aux.add(rank())).fetch_add(*bins.add(rank()), Relaxed);
        }
    }
}

/// The lanes of an odd tail vote first, and then sum up among themselves.
#[kernel]
pub unsafe fn tail_with_a_mask_of_its_own(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        let is_inside = rank() < n as usize;
        let mask = warp_vote_ballot(u32::MAX, is_inside);
        if !is_inside {
            return;
        }
        let mut sum = *data.add(rank());
        for d in [16, 8, 4, 2, 1] {
            let (other, from) = (warp_shuffle_down(mask, sum, d, 32).0, lane_id() + d);
            if from < 32 && mask >> from & 1 == 1 {
                sum += other;
            }
        }
        if lane_id() == 0 {
            *aux.add(rank() / 32) = sum;
        }
    }
}

/// A warp produces, another consumes: four named barriers for two buffers.
#[kernel]
pub unsafe fn producer_with_named_barriers(data: *mut u32, aux: *mut u32, n: u32) {
    const WORDS: usize = 2 * 32;
    let tiles = shared_array![u32; WORDS];
    let lane = rank() % 32;
    unsafe {
        if rank() < 32 {
            for step in 0..n {
                let buffer = step % 2;
                if step >= 2 {
                    barrier::sync(3 + buffer, 64);
                }
                *tiles.add(buffer as usize * 32 + lane) = *data.add(step as usize * 32 + lane);
                barrier::arrive(1 + buffer, 64);
            }
        } else {
            let mut sum = 0;
            for step in 0..n {
                let buffer = step % 2;
                barrier::sync(1 + buffer, 64);
                sum += *tiles.add(buffer as usize * 32 + 31 - lane);
                if step + 2 < n {
                    barrier::arrive(3 + buffer, 64);
                }
            }
            *aux.add(lane) = sum;
        }
    }
}

/// Three stages of 16-byte copies by a quarter of the threads; all commit, the tail commits empty groups.
#[kernel]
pub unsafe fn three_stages_one_open(data: *mut u32, aux: *mut u32, n: u32) {
    const STAGES: usize = 3;
    const WORDS: usize = STAGES * BLOCK;
    let tiles = shared_array![u32; WORDS];
    let steps = n as usize / BLOCK;
    unsafe {
        let fetch = |step: usize| {
            if step < steps && rank().is_multiple_of(4) {
                let to = shared::address_of(tiles.add(step % STAGES * BLOCK + rank()));
                copy_cg(to, data.add(step * BLOCK + rank()));
            }
            commit_group();
        };
        fetch(0);
        fetch(1);
        let mut sum = 0;
        for step in 0..steps {
            wait_group::<1>();
            sync_threads();
            fetch(step + 2);
            sum += *tiles.add(step % STAGES * BLOCK + BLOCK - 1 - rank());
        }
        *aux.add(rank()) = sum;
    }
}

/// A ring of three stages and an odd number of steps; stage and parity are carried along.
#[kernel]
pub unsafe fn ring_with_carried_parity(data: *mut u32, aux: *mut u32, n: u32) {
    const STAGES: u32 = 3;
    let tiles = shared::dynamic_shared_mem::<u32>();
    let full = shared::address_of(shared_array![u64; 3]);
    let empty = shared::address_of(shared_array![u64; 3]);
    let next = |stage: &mut u32, parity: &mut u32| {
        *stage += 1;
        if *stage == STAGES {
            (*stage, *parity) = (0, *parity ^ 1);
        }
    };
    unsafe {
        if rank() == 0 {
            for stage in 0..STAGES {
                mbarrier::init(full + BYTES * stage, 1);
                mbarrier::init(empty + BYTES * stage, 2);
            }
            mbarrier::fence_init();
        }
        sync_threads();
        let (mut stage, mut parity, mut sum) = (0, 0, 0);
        if rank() == 64 {
            for step in 0..n as usize {
                mbarrier::wait_parity(empty + BYTES * stage, parity ^ 1);
                let to = shared::address_of(tiles) + TILE * stage;
                mbarrier::arrive_expect_tx(full + BYTES * stage, TILE);
                tma::bulk_load(to, data.add(step * BLOCK), TILE / 2, full + BYTES * stage);
                let rest = data.add(step * BLOCK + BLOCK / 2);
                tma::bulk_load(to + TILE / 2, rest, TILE / 2, full + BYTES * stage);
                next(&mut stage, &mut parity);
            }
        } else if rank() < 64 {
            for _ in 0..n {
                while !mbarrier::try_wait_parity(full + BYTES * stage, parity) {}
                sum += *tiles.add(stage as usize * BLOCK + 63 - rank());
                sync_warp(u32::MAX);
                if lane_id() == 0 {
                    mbarrier::arrive(empty + BYTES * stage);
                }
                next(&mut stage, &mut parity);
            }
            *aux.add(rank()) = sum;
        }
    }
}

/// Operands are written into two buffers while the product of the other one runs.
#[kernel]
pub unsafe fn products_in_two_buffers(data: *mut u32, _aux: *mut u32, n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let mut acc: Accumulator = core::mem::zeroed();
        for step in 0..n as usize {
            let tile = tiles.add(step % 2 * (A_WORDS + B_WORDS));
            for i in (rank()..A_WORDS + B_WORDS).step_by(WARPGROUP) {
                *tile.add(i) = ONES;
            }
            fence::proxy_async_shared();
            sync_threads();
            wgmma::fence();
            wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, operand(tile), operand(tile.add(A_WORDS)), step > 0);
            wgmma::commit_group();
            wgmma::wait_group::<1>();
            sync_threads();
        }
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        *data.add(rank()) = acc[0] as u32 + acc[3] as u32;
    }
}

/// Sums of the blocks of a cluster, with work between the arrival and the wait.
#[kernel]
pub unsafe fn cluster_sum_in_two_halves(data: *mut u32, _aux: *mut u32, _n: u32) {
    let sums = shared_array![u32; 2];
    unsafe {
        let own = *data.add(global());
        let mut sum = own;
        for d in [16, 8, 4, 2, 1] {
            sum += warp_shuffle_xor(u32::MAX, sum, d, 32).0;
        }
        if lane_id() == 0 {
            *sums.add(rank() / 32) = sum;
        }
        cluster::arrive();
        let squared = own.wrapping_mul(own);
        cluster::wait();
        let mut total = 0;
        for other in 0..cluster::blocks() {
            let there = cluster::map_shared(shared::address_of(sums), other);
            let two: [u32; 2] = cluster::load_shared_v2(there);
            total += two[0] + two[1];
        }
        cluster::arrive();
        *data.add(global()) = total.wrapping_sub(squared);
        cluster::wait();
    }
}

/// Four steps of a stencil in two arrays, with a barrier of the grid made of a counter.
#[kernel]
pub unsafe fn stencil_with_a_counted_barrier(data: *mut u32, aux: *mut u32, _n: u32) {
    const N: usize = 256;
    let i = global();
    unsafe {
        let (mut from, mut to) = (data, data.add(N));
        for round in 1..5 {
            *to.add(i) = *from.add((i + 1) % N) + *from.add((i + N - 1) % N);
            sync_threads();
            if rank() == 0 {
                atomic(aux).fetch_add(1, AcqRel);
                while atomic(aux).load(Acquire) < round * grid_dim_x() {}
            }
            sync_threads();
            (from, to) = (to, from);
        }
    }
}

/// A struct of which two threads own a half each.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Pair {
    left: [u32; 2],
    right: [u32; 2],
}

/// Neighbours write the halves of one struct, which is copied as a whole behind the barrier.
#[kernel]
pub unsafe fn halves_of_a_struct(data: *mut u32, _aux: *mut u32, _n: u32) {
    let pairs = data.cast::<Pair>();
    unsafe {
        let pair = pairs.add(rank() / 2);
        if rank().is_multiple_of(2) {
            (*pair).left = [rank() as u32; 2];
        } else {
            (*pair).right = [rank() as u32; 2];
        }
        sync_threads();
        if rank() < 32 {
            *pairs.add(32 + rank()) = *pairs.add(31 - rank());
        }
    }
}

/// Bytes next to each other belong to different threads, which never meet.
#[kernel]
pub unsafe fn bytes_of_many_threads(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let bytes = aux.cast::<u8>();
        *bytes.add(global()) = (*data.add(global()) % 251) as u8;
        if rank().is_multiple_of(2) {
            vector::store(data.add(global()), u32::from(*bytes.add(global())));
        }
    }
}

/// Dynamic shared memory holds floats first, then halves of words, then counters.
#[kernel]
pub unsafe fn memory_of_three_phases(data: *mut u32, aux: *mut u32, _n: u32) {
    let floats = shared::dynamic_shared_mem::<f32>();
    unsafe {
        *floats.add(rank()) = *data.add(rank()) as f32;
        sync_threads();
        let x = *floats.add((rank() + 7) % BLOCK);
        sync_threads();
        let halves = floats.cast::<u16>();
        *halves.add(rank()) = x as u16 + 1;
        sync_threads();
        let both = *halves.cast::<u32>().add(rank() / 2);
        sync_threads();
        let counters = floats.cast::<u32>();
        if rank() < 2 {
            *counters.add(rank()) = 0;
        }
        sync_threads();
        atomic(counters.add(rank() % 2)).fetch_add(both & 0xffff, Relaxed);
        sync_threads();
        *aux.add(rank()) = *counters.add(rank() % 2);
    }
}

/// A queue of many producers: a ticket, the item, and then the slot's own flag.
#[kernel]
pub unsafe fn queue_with_flags_of_slots(data: *mut u32, aux: *mut u32, _n: u32) {
    const ITEMS: usize = 16;
    unsafe {
        if block() < 2 && rank() < ITEMS / 2 {
            let slot = atomic(aux).fetch_add(1, Relaxed) as usize;
            *data.add(100 + slot) = 1 + global() as u32;
            atomic(aux.add(1 + slot)).store(1, Release);
        } else if block() == 2 && rank() < ITEMS {
            while atomic(aux.add(1 + rank())).load(Acquire) == 0 {}
            let item = *data.add(100 + rank());
            atomic(aux.add(40)).fetch_add(item, Relaxed);
        }
    }
}

/// One warp is done early; the other goes on without barriers of the block.
#[kernel]
pub unsafe fn first_warp_goes_on_alone(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        sync_threads();
        if rank() >= 32 {
            return;
        }
        let volatile = tile.add(rank());
        let mut sum = *volatile + *tile.add(rank() + 32);
        for d in [16, 8, 4, 2, 1] {
            sync_warp(u32::MAX);
            volatile.write_volatile(sum);
            sync_warp(u32::MAX);
            sum += tile.add(rank() ^ d).read_volatile();
        }
        *aux.add(rank()) = sum;
    }
}

/// Lanes that keep their value take places behind a base that lane 0 of the warp has got.
#[kernel]
pub unsafe fn compaction_by_ballots(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let value = *data.add(global());
        let is_kept = value % 8 == 3;
        let kept = warp_vote_ballot(u32::MAX, is_kept);
        let mut base = 0;
        if lane_id() == 0 {
            base = atomic(aux).fetch_add(kept.count_ones(), Relaxed);
        }
        base = warp_shuffle_idx(u32::MAX, base, 0, 32).0;
        if is_kept {
            let before = kept & ((1 << lane_id()) - 1);
            *aux.add(1 + (base + before.count_ones()) as usize) = value;
        }
    }
}

/// Memory of the device's heap, written and read by the whole block and freed behind a barrier.
#[kernel]
pub unsafe fn heap_for_the_block(data: *mut u32, _aux: *mut u32, _n: u32) {
    let place = shared_array![u64; 1];
    unsafe {
        if rank() == 0 {
            *place = mem::malloc(4 * BLOCK) as u64;
        }
        sync_threads();
        let scratch = *place as *mut u32;
        *scratch.add(rank()) = *data.add(rank());
        sync_threads();
        *data.add(BLOCK + rank()) = *scratch.add(BLOCK - 1 - rank());
        sync_threads();
        if rank() == 0 {
            mem::free(scratch.cast());
        }
    }
}
