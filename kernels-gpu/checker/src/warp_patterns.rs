//! Collectives of warps with lanes that are absent, and memory that they do not order.

use cuda_std::thread::sync_threads;
use cuda_std::warp::{
    elect, lane_id, sync_warp, warp_shuffle_down, warp_shuffle_idx, warp_shuffle_up, warp_shuffle_xor,
    warp_vote_all, warp_vote_ballot,
};
use cuda_std::{kernel, shared_array};

use crate::{BLOCK, rank};

const FULL: u32 = u32::MAX;

/// The lower half shuffles by itself, from a lane of the upper half.
#[kernel]
pub unsafe fn shuffle_from_outside_the_mask(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if lane_id() < 16 {
            let (other, _) = warp_shuffle_idx(0xffff, rank() as u32, 20, 32); // bug
            *data.add(rank()) = other;
        }
    }
}

/// A reduction over whole warps in blocks of 48 threads: the second warp has 16 lanes.
#[kernel]
pub unsafe fn sum_over_absent_lanes(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let mut sum = *data.add(rank());
        for step in [16, 8, 4, 2, 1] {
            sum += warp_shuffle_down(FULL, sum, step, 32).0; // bug
        }
        *data.add(rank()) = sum;
    }
}

/// As above, by an exchange with the other half.
#[kernel]
pub unsafe fn exchange_with_absent_lanes(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let (other, _) = warp_shuffle_xor(FULL, rank() as u32, 16, 32); // bug
        *data.add(rank()) = other;
    }
}

/// Half of the warp shuffles up, the other half down.
#[kernel]
pub unsafe fn different_shuffles(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let (other, _) = if lane_id() < 16 {
            warp_shuffle_up(FULL, rank() as u32, 1, 32) // bug
        } else {
            warp_shuffle_down(FULL, rank() as u32, 1, 32) // bug
        };
        *data.add(rank()) = other;
    }
}

/// A vote in a branch that some lanes do not take; these wait for the block.
#[kernel]
pub unsafe fn ballot_in_a_branch(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if *data.add(rank()) % 2 == 1 {
            *data.add(rank()) = warp_vote_ballot(FULL, true); // bug
        }
        sync_threads(); // bug
    }
}

/// The mask comes from a vote, but all lanes use it.
#[kernel]
pub unsafe fn mask_of_a_vote_used_by_all(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let mask = warp_vote_ballot(FULL, rank().is_multiple_of(2));
        *data.add(rank()) = warp_shuffle_idx(mask, rank() as u32, 0, 32).0; // bug
    }
}

/// A loop with a shuffle, left by lanes one after another.
#[kernel]
pub unsafe fn shuffle_in_an_uneven_loop(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let mut value = rank() as u32;
        for _ in 0..=lane_id() / 8 {
            value = warp_shuffle_xor(FULL, value, 1, 32).0; // bug
        }
        sync_threads(); // bug
        *data.add(rank()) = value;
    }
}

/// The elected lane is asked for in a branch.
#[kernel]
pub unsafe fn election_in_a_branch(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if lane_id() < 4 {
            *data.add(rank()) = u32::from(elect()); // bug
        }
        sync_threads(); // bug
    }
}

/// A shuffle orders no memory.
#[kernel]
pub unsafe fn shuffle_as_a_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank()); // bug
        let (step, _) = warp_shuffle_idx(FULL, 1, 0, 32);
        *data.add(rank()) = *tile.add(rank() ^ step as usize); // bug
    }
}

/// Nor does a vote.
#[kernel]
pub unsafe fn vote_as_a_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank()); // bug
        if warp_vote_all(FULL, true) {
            *data.add(rank()) = *tile.add(rank() ^ 1); // bug
        }
    }
}

/// One warp sync per round in place of two.
#[kernel]
pub unsafe fn exchange_with_one_sync(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let mut value = *data.add(rank());
        for step in [1, 2, 4] {
            *tile.add(rank()) = value; // bug
            sync_warp(FULL);
            value += *tile.add(rank() ^ step); // bug
        }
        *data.add(rank()) = value;
    }
}

/// Each half synchronises by itself, and reads the other half's words.
#[kernel]
pub unsafe fn sync_of_half_a_warp(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 1; // bug
        let mask = if lane_id() < 16 { 0xffff } else { 0xffff_0000 };
        sync_warp(mask);
        *data.add(rank()) = *tile.add(rank() ^ 16); // bug
    }
}

/// The leader of a tile of four lanes writes; the tile does not wait.
#[kernel]
pub unsafe fn tile_leader_not_awaited(data: *mut u32, _aux: *mut u32, _n: u32) {
    const TILES: usize = BLOCK / 4;
    let values = shared_array![u32; TILES];
    unsafe {
        if rank().is_multiple_of(4) {
            *values.add(rank() / 4) = *data.add(rank()); // bug
        }
        *data.add(rank()) = *values.add(rank() / 4); // bug
    }
}

/// Tiles of four lanes with the mask of the first tile for all.
#[kernel]
pub unsafe fn mask_of_the_first_tile(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let (other, _) = warp_shuffle_xor(0xf, rank() as u32, 1, 4); // bug
        *data.add(rank()) = other;
    }
}
