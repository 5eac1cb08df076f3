//! Correct kernels whose lanes cooperate in a warp.

use cuda_std::thread::sync_threads;
use cuda_std::warp::{
    lane_id, sync_warp, warp_shuffle_down, warp_shuffle_up, warp_shuffle_xor, warp_vote_ballot,
};
use cuda_std::{kernel, shared_array};

use crate::{BLOCK, block, global, rank};

const WARP: usize = 32;
const FULL: u32 = u32::MAX;

/// Inclusive scan of a block: by shuffles in each warp, then over the warps' totals.
#[kernel]
pub unsafe fn block_scan(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WARPS: usize = BLOCK / WARP;
    let totals = shared_array![u32; WARPS];
    unsafe {
        let lane = lane_id() as usize;
        let mut sum = *data.add(global());
        let mut delta = 1;
        while delta < WARP {
            let (below, _) = warp_shuffle_up(FULL, sum, delta as u32, 32);
            if lane >= delta {
                sum += below;
            }
            delta *= 2;
        }
        if lane == WARP - 1 {
            *totals.add(rank() / WARP) = sum;
        }
        sync_threads();
        for warp in 0..rank() / WARP {
            sum += *totals.add(warp);
        }
        *data.add(global()) = sum;
    }
}

/// Sum of a warp by shuffles.
#[kernel]
pub unsafe fn warp_sum(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let mut sum = *data.add(global());
        for step in [16, 8, 4, 2, 1] {
            sum += warp_shuffle_down(FULL, sum, step, 32).0;
        }
        if lane_id() == 0 {
            *aux.add(global() / WARP) = sum;
        }
    }
}

/// Lanes exchange values through shared memory with only warp syncs.
#[kernel]
pub unsafe fn warp_exchange(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let mut value = *data.add(global());
        for step in [1, 2, 4, 8, 16] {
            *tile.add(rank()) = value;
            sync_warp(FULL);
            value += *tile.add(rank() ^ step);
            sync_warp(FULL);
        }
        *data.add(global()) = value;
    }
}

/// Stream compaction: keeps odd values in order. Each lane finds its position by a vote.
#[kernel]
pub unsafe fn ballot_compaction(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        let value = *data.add(global());
        let is_odd = value % 2 == 1;
        let votes = warp_vote_ballot(FULL, is_odd);
        let place = (votes & ((1 << lane_id()) - 1)).count_ones() as usize;
        if is_odd {
            *data.add(n as usize / 2 + global() / WARP * WARP + place) = value;
        }
        if lane_id() == 0 {
            *aux.add(global() / WARP) = votes.count_ones();
        }
    }
}

/// The halves of a warp run different code under separate masks.
#[kernel]
pub unsafe fn halves_apart(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let value = if lane_id() < 16 {
            warp_shuffle_xor(0x0000_ffff, rank() as u32, 1, 32).0
        } else {
            warp_vote_ballot(0xffff_0000, lane_id().is_multiple_of(2))
        };
        sync_warp(FULL);
        *data.add(global()) = value;
    }
}

/// Blocks of 40 threads: the second warp has 8 lanes.
#[kernel]
pub unsafe fn partial_warp(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let votes = warp_vote_ballot(FULL, true);
        sync_warp(FULL);
        sync_threads();
        *data.add(global()) = votes;
        if rank() == 0 {
            *aux.add(block()) = votes;
        }
    }
}
