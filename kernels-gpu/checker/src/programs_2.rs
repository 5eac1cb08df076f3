//! Whole programs with one mistake each: barriers, warps, asynchronous copies, products, clusters.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use cuda_std::async_copy::{commit_group, copy_ca, copy_cg, wait_all, wait_group};
use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::sync_threads;
use cuda_std::warp::{lane_id, sync_warp, warp_shuffle_down, warp_shuffle_xor, warp_vote_ballot};
use cuda_std::wgmma::{self, BF16};
use cuda_std::{barrier, cluster, fence, kernel, shared, shared_array, tma};

use crate::products::{A_WORDS, Accumulator, B_WORDS, ONES, WARPGROUP, operand};
use crate::{BLOCK, global, rank};

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// A sum of tiles. Threads without an element in the last tile leave the loop before its barriers.
#[kernel]
pub unsafe fn barriers_of_an_uneven_loop(data: *mut u32, aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let (mut i, mut sum) = (rank(), 0);
        while i < n as usize {
            *tile.add(rank()) = *data.add(i); // bug
            sync_threads(); // bug
            sum += *tile.add((rank() + 1) % BLOCK); // bug
            sync_threads(); // bug
            i += BLOCK;
        }
        *tile.add(rank()) = sum; // bug
        sync_threads(); // bug
        *aux.add(rank()) = *tile.add(BLOCK - 1 - rank()); // bug
    }
}

/// A producing warp and two consuming ones meet at a barrier that counts the consumers alone.
#[kernel]
pub unsafe fn named_barrier_without_the_producer(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if rank() >= 64 {
            let lane = rank() - 64;
            *tile.add(lane) = *data.add(lane) + 1; // bug
            *tile.add(lane + 32) = *data.add(lane + 32) + 1; // bug
            barrier::arrive(1, 64); // bug
        } else {
            barrier::sync(1, 64); // bug
            *aux.add(rank()) = *tile.add(63 - rank()); // bug
        }
    }
}

/// A layer norm whose reduction has its barrier in the branch of the threads that add.
#[kernel]
pub unsafe fn layer_norm_barrier_in_a_branch(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![f32; BLOCK];
    unsafe {
        let x = *data.add(rank()) as f32;
        *tile.add(rank()) = x;
        sync_threads();
        let mut half = BLOCK / 2;
        while half > 0 {
            if rank() < half {
                *tile.add(rank()) += *tile.add(rank() + half); // bug
                sync_threads(); // bug
            }
            half /= 2;
        }
        sync_threads(); // bug
        let mean = *tile / BLOCK as f32; // bug
        *data.add(BLOCK + rank()) = (x - mean).abs() as u32;
    }
}

/// A sum by shuffles in all lanes, after those beyond the end have returned.
#[kernel]
pub unsafe fn tail_returns_before_the_shuffles(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        if rank() >= n as usize {
            return;
        }
        let mut sum = *data.add(rank());
        for d in [16, 8, 4, 2, 1] {
            sum += warp_shuffle_down(u32::MAX, sum, d, 32).0; // bug
        }
        if lane_id() == 0 {
            *aux.add(rank() / 32) = sum;
        }
    }
}

/// A compaction: the lanes that keep their value vote, in their branch, for the whole warp.
#[kernel]
pub unsafe fn vote_of_those_that_keep(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let value = *data.add(rank());
        if value.is_multiple_of(3) {
            let kept = warp_vote_ballot(u32::MAX, true); // bug
            let before = kept & ((1 << lane_id()) - 1);
            *aux.add(rank() / 32 * 32 + before.count_ones() as usize) = value;
        }
        sync_threads(); // bug
        *data.add(rank()) = *aux.add(rank());
    }
}

/// Dot products by half warps, both with the mask of the first half.
#[kernel]
pub unsafe fn mask_of_the_first_half(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let mut sum = *data.add(rank()) * *data.add(BLOCK + rank());
        for d in [8, 4, 2, 1] {
            sum += warp_shuffle_down(0xffff, sum, d, 16).0; // bug
        }
        if rank().is_multiple_of(16) {
            *aux.add(rank() / 16) = sum;
        }
    }
}

/// Rows are padded to 17 words against bank conflicts; copies of 16 bytes then begin anywhere.
#[kernel]
pub unsafe fn fetch_into_padded_rows(data: *mut u32, aux: *mut u32, _n: u32) {
    const PITCH: usize = 17;
    const WORDS: usize = 16 * PITCH;
    let tile = shared_array![u32; WORDS];
    let (row, part) = (rank() / 4, rank() % 4);
    unsafe {
        let to = shared::address_of(tile.add(row * PITCH + 4 * part));
        copy_cg(to, data.add(16 * row + 4 * part)); // bug
        wait_all();
        sync_threads();
        *aux.add(rank()) = *tile.add(rank() % 16 * PITCH + row);
    }
}

/// Three stages; the wait leaves two groups open, so the stage that is used may be one of them.
#[kernel]
pub unsafe fn three_stages_two_open(data: *mut u32, aux: *mut u32, _n: u32) {
    const STAGES: usize = 3;
    const STEPS: usize = 6;
    const WORDS: usize = STAGES * BLOCK;
    let tiles = shared_array![u32; WORDS];
    unsafe {
        for step in 0..STAGES - 1 {
            let to = shared::address_of(tiles.add(step * BLOCK + rank()));
            copy_ca::<4, _>(to, data.add(step * BLOCK + rank())); // bug
            commit_group();
        }
        let mut sum = 0;
        for step in 0..STEPS {
            wait_group::<2>();
            sync_threads();
            let next = step + STAGES - 1;
            if next < STEPS {
                let to = shared::address_of(tiles.add(next % STAGES * BLOCK + rank()));
                copy_ca::<4, _>(to, data.add(next * BLOCK + rank())); // bug
            }
            commit_group();
            sum += *tiles.add(step % STAGES * BLOCK + BLOCK - 1 - rank()); // bug
        }
        *aux.add(rank()) = sum;
    }
}

/// Makes two full barriers of one arrival and two empty ones of `consumers`.
unsafe fn ring(consumers: u32) -> (u32, u32) {
    let full = shared::address_of(shared_array![u64; 2]);
    let empty = shared::address_of(shared_array![u64; 2]);
    unsafe {
        if rank() == 0 {
            for stage in 0..2 {
                mbarrier::init(full + BYTES * stage, 1);
                mbarrier::init(empty + BYTES * stage, consumers);
            }
            mbarrier::fence_init();
        }
        sync_threads();
    }
    (full, empty)
}

/// A ring of two stages. The consumers take the parity from the step, not from the round.
#[kernel]
pub unsafe fn parity_of_the_step(data: *mut u32, aux: *mut u32, n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let (full, empty) = ring(2);
        if rank() == 64 {
            for step in 0..n {
                let stage = step % 2;
                mbarrier::wait_parity(empty + BYTES * stage, (step / 2 % 2) ^ 1);
                let (bar, to) = (full + BYTES * stage, shared::address_of(tiles) + TILE * stage);
                mbarrier::arrive_expect_tx(bar, TILE);
                tma::bulk_load(to, data.add(step as usize * BLOCK), TILE, bar); // bug
            }
        } else if rank() < 64 {
            let mut sum = 0;
            for step in 0..n {
                let stage = step % 2;
                mbarrier::wait_parity(full + BYTES * stage, step % 2); // bug
                sum += *tiles.add(stage as usize * BLOCK + 63 - rank()); // bug
                sync_warp(u32::MAX);
                if lane_id() == 0 {
                    mbarrier::arrive(empty + BYTES * stage);
                }
            }
            *aux.add(rank()) = sum;
        }
    }
}

/// As above with the right parity; the empty barriers count threads, and only one of a warp arrives.
#[kernel]
pub unsafe fn stages_freed_by_warps(data: *mut u32, aux: *mut u32, n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let (full, empty) = ring(64);
        if rank() == 64 {
            for step in 0..n {
                let stage = step % 2;
                mbarrier::wait_parity(empty + BYTES * stage, (step / 2 % 2) ^ 1); // bug
                mbarrier::arrive_expect_tx(full + BYTES * stage, TILE);
                let from = data.add(step as usize * BLOCK);
                tma::bulk_load(shared::address_of(tiles) + TILE * stage, from, TILE, full + BYTES * stage);
            }
        } else if rank() < 64 {
            let mut sum = 0;
            for step in 0..n {
                let stage = step % 2;
                mbarrier::wait_parity(full + BYTES * stage, step / 2 % 2); // bug
                sum += *tiles.add(stage as usize * BLOCK + 63 - rank());
                sync_warp(u32::MAX);
                if lane_id() == 0 {
                    mbarrier::arrive(empty + BYTES * stage);
                }
            }
            *aux.add(rank()) = sum;
        }
    }
}

/// An epilogue in which the storing thread alone makes the proxy fence, for all that wrote.
#[kernel]
pub unsafe fn proxy_fence_of_the_storing_thread(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = *data.add(rank()) * 2; // bug
        sync_threads();
        if rank() == 0 {
            fence::proxy_async_shared();
            tma::bulk_store(data.add(BLOCK), shared::address_of(tile), TILE); // bug
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}

/// Chunks are staged in one buffer, which is written again before the store has read it.
#[kernel]
pub unsafe fn chunk_staged_too_early(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        for chunk in 0..3 {
            *tile.add(rank()) = (100 * chunk + rank()) as u32; // bug
            fence::proxy_async_shared();
            sync_threads();
            if rank() == 0 {
                tma::bulk_store(data.add(chunk * BLOCK), shared::address_of(tile), TILE); // bug
                tma::commit_group();
            }
            sync_threads();
        }
        tma::wait_group::<0>();
    }
}

/// Fills both operands with ones.
unsafe fn operands() -> *mut u32 {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        for i in (rank()..A_WORDS + B_WORDS).step_by(WARPGROUP) {
            *tile.add(i) = ONES;
        }
        fence::proxy_async_shared();
        sync_threads();
    }
    tile
}

/// The accumulators get a bias behind the fence.
#[kernel]
pub unsafe fn bias_behind_the_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = operands();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        for (column, x) in acc.iter_mut().enumerate() {
            *x = *data.add(column) as f32; // bug
        }
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, operand(tile), operand(tile.add(A_WORDS)), true); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        *data.add(WARPGROUP + rank()) = acc[1] as u32;
    }
}

/// A loop over k leaves one product open, and so does the epilogue.
#[kernel]
pub unsafe fn epilogue_with_one_product_open(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = operands();
        let mut acc: Accumulator = core::mem::zeroed();
        for step in 0..4 {
            wgmma::fence();
            let (a, b) = (operand(tile), operand(tile.add(A_WORDS)));
            wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, step > 0); // bug
            wgmma::commit_group();
            wgmma::wait_group::<1>();
        }
        wgmma::fence_registers(&mut acc);
        let sum: f32 = acc.iter().sum(); // bug
        *data.add(rank()) = sum as u32;
        wgmma::wait_group::<0>();
    }
}

/// A histogram of a cluster: block 0 adds the bins of block 1, which may have exited.
#[kernel]
pub unsafe fn bins_of_an_exited_block(data: *mut u32, aux: *mut u32, n: u32) {
    let bins = shared_array![u32; BLOCK];
    unsafe {
        *bins.add(rank()) = 0;
        sync_threads();
        for i in (global()..n as usize).step_by(2 * BLOCK) {
            let bin = *data.add(i) as usize % BLOCK;
            AtomicU32::from_ptr(bins.add(bin)).fetch_add(1, Relaxed);
        }
        cluster::sync();
        if cluster::block_rank() == 0 {
            let there = cluster::map_shared(shared::address_of(bins.add(rank())), 1);
            *aux.add(rank()) = *bins.add(rank()) + cluster::load_shared::<u32>(there); // bug
        }
    }
}

/// A maximum over two blocks of a cluster, with a barrier of the block before the other's is read.
#[kernel]
pub unsafe fn cluster_maximum_read_too_early(data: *mut u32, aux: *mut u32, _n: u32) {
    let max = shared_array![u32; 2];
    let me = cluster::block_rank();
    unsafe {
        let mut own = *data.add(global());
        for d in [16, 8, 4, 2, 1] {
            own = own.max(warp_shuffle_xor(u32::MAX, own, d, 32).0);
        }
        if lane_id() == 0 {
            *max.add(rank() / 32) = own; // bug
        }
        sync_threads();
        if rank() == 0 {
            let there = cluster::map_shared(shared::address_of(max), me ^ 1);
            let other: [u32; 2] = cluster::load_shared_v2(there); // bug
            *aux.add(me as usize) = other[0].max(other[1]).max(*max).max(*max.add(1));
        }
        cluster::sync();
    }
}
