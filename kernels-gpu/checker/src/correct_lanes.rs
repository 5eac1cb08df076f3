//! Correct kernels with partial warps, tiles of lanes, and lanes that have returned.

use cuda_std::atomic::intrinsics::atomic_fetch_add_relaxed_u32_device;
use cuda_std::thread::sync_threads;
use cuda_std::warp::{
    WarpReductionOp, activemask, elect, lane_id, sync_warp, warp_match_any, warp_reduce, warp_shuffle_down,
    warp_shuffle_idx, warp_shuffle_up, warp_shuffle_xor, warp_vote_ballot,
};
use cuda_std::{kernel, shared_array};

use crate::{BLOCK, global, rank};

const FULL: u32 = u32::MAX;

/// Blocks of 48 threads: the mask of the second warp has 16 lanes.
#[kernel]
pub unsafe fn sum_of_48(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let (mask, lanes) = if rank() < 32 { (FULL, 32) } else { (0xffff, 16) };
        let (mut sum, mut step) = (*data.add(rank()), lanes / 2);
        while step > 0 {
            sum += warp_shuffle_down(mask, sum, step, lanes).0;
            step /= 2;
        }
        if lane_id() == 0 {
            *aux.add(rank() / 32) = sum;
        }
    }
}

/// Lanes past `n` vote for the mask, and return.
#[kernel]
pub unsafe fn mask_of_those_that_stay(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        let stays = rank() < n as usize;
        let mask = warp_vote_ballot(FULL, stays);
        if !stays {
            return;
        }
        *data.add(rank()) = warp_reduce(mask, 1u32, WarpReductionOp::Add);
    }
}

/// Tiles of four lanes, each with its own mask.
#[kernel]
pub unsafe fn tiles_of_four(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let mask = 0xf << (lane_id() / 4 * 4);
        let mut sum = rank() as u32;
        for step in [1, 2] {
            sum += warp_shuffle_xor(mask, sum, step, 4).0;
        }
        *data.add(rank()) = sum;
    }
}

/// Tiles of eight lanes that exchange through shared memory with syncs of their own.
#[kernel]
pub unsafe fn tiles_in_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let mask = 0xff << (lane_id() / 8 * 8);
        *tile.add(rank()) = rank() as u32;
        sync_warp(mask);
        *data.add(rank()) = *tile.add(rank() ^ 7);
    }
}

/// Only some tiles take a branch with collectives.
#[kernel]
pub unsafe fn tile_in_a_branch(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = lane_id() / 16;
        if tile == 1 {
            let (first, _) = warp_shuffle_idx(0xffff_0000, rank() as u32, 0, 16);
            *data.add(rank()) = first;
        }
        sync_warp(FULL);
    }
}

/// One atomic request for all lanes with the same key.
#[kernel]
pub unsafe fn requests_by_key(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let key = *data.add(global()) % 4;
        let peers = warp_match_any(FULL, key);
        let leader = peers.trailing_zeros();
        if lane_id() == leader {
            atomic_fetch_add_relaxed_u32_device(aux.add(key as usize), peers.count_ones());
        }
    }
}

/// One atomic request for the lanes of a branch; the leader hands the places out.
#[kernel]
pub unsafe fn places_for_a_branch(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        let value = *data.add(rank());
        let wants = value.is_multiple_of(3);
        let votes = warp_vote_ballot(FULL, wants);
        if wants {
            let leader = votes.trailing_zeros();
            let first = if lane_id() == leader {
                atomic_fetch_add_relaxed_u32_device(aux, votes.count_ones())
            } else {
                0
            };
            let (first, _) = warp_shuffle_idx(votes, first, leader, 32);
            let place = first + (votes & ((1 << lane_id()) - 1)).count_ones();
            *data.add(n as usize / 2 + place as usize) = 1;
        }
    }
}

/// Lanes leave a loop one after another; the mask shrinks with them.
#[kernel]
pub unsafe fn shrinking_mask(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let (mut mask, mut rounds) = (FULL, 0);
        while rounds < lane_id() {
            mask = FULL << (rounds + 1);
            rounds = warp_reduce(mask, rounds + 1, WarpReductionOp::Max);
        }
        *data.add(rank()) = rounds + u32::from(mask == 0);
    }
}

/// The elected lane writes for all.
#[kernel]
pub unsafe fn elected_lane_writes(data: *mut u32, _aux: *mut u32, _n: u32) {
    let value = shared_array![u32; 2];
    unsafe {
        if elect() {
            *value.add(rank() / 32) = 5 + rank() as u32 / 32;
        }
        sync_warp(FULL);
        *data.add(rank()) = *value.add(rank() / 32);
    }
}

/// The second half of a warp scans by itself.
#[kernel]
pub unsafe fn scan_of_a_half(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if lane_id() >= 16 {
            let mut sum = 1;
            for delta in [1, 2, 4, 8] {
                let (below, is_there) = warp_shuffle_up(0xffff_0000, sum, delta, 16);
                sum += if is_there { below } else { 0 };
            }
            *data.add(rank()) = sum;
        } else {
            *data.add(rank()) = 0;
        }
    }
}

/// A matrix of 4 x 8 transposed in registers, by shuffles from computed lanes.
#[kernel]
pub unsafe fn transpose_by_shuffles(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let (row, column) = (lane_id() / 4, lane_id() % 4);
        let (value, _) = warp_shuffle_idx(FULL, lane_id(), column * 8 + row, 32);
        *data.add(rank()) = value;
    }
}

/// Lanes that happen to run together, as the warp says.
#[kernel]
pub unsafe fn lanes_that_run_together(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 1;
        if lane_id() < 8 {
            let mask = activemask();
            sync_warp(mask);
            *tile.add(rank()) += (mask & 1 << lane_id() != 0) as u32;
        }
        sync_threads();
        *data.add(rank()) = *tile.add(BLOCK - 1 - rank());
    }
}

/// Warps return one after another; those that stay use no barrier of the block.
#[kernel]
pub unsafe fn warps_that_return(data: *mut u32, _aux: *mut u32, _n: u32) {
    if rank() < 32 {
        return;
    }
    unsafe {
        *data.add(rank()) = warp_reduce(FULL, rank() as u32, WarpReductionOp::Min);
    }
}

/// A reduction of the whole warp after some lanes have returned.
#[kernel]
pub unsafe fn redux_with_gone_lanes(data: *mut u32, _aux: *mut u32, _n: u32) {
    if lane_id() == 9 {
        return;
    }
    unsafe {
        *data.add(rank()) = warp_reduce(FULL, rank() as u32, WarpReductionOp::Add);
    }
}

/// A comparison of the whole warp after the lanes past `n` have returned.
#[kernel]
pub unsafe fn match_with_gone_lanes(data: *mut u32, _aux: *mut u32, n: u32) {
    if rank() >= n as usize {
        return;
    }
    unsafe {
        *data.add(rank()) = warp_match_any(FULL, rank() as u32 / 4);
    }
}
