//! Wrong masks, and lanes that disagree.

use cuda_std::kernel;
use cuda_std::thread::sync_threads;
use cuda_std::warp::{sync_warp, warp_shuffle_xor, warp_vote_any};

use crate::rank;

/// The mask does not include the calling lane.
#[kernel]
pub unsafe fn mask_without_caller(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let (other, _) = warp_shuffle_xor(0x0fff_ffff, rank() as u32, 1, 32); // bug
        *data.add(rank()) = other;
    }
}

/// Lanes read from lanes that have returned.
#[kernel]
pub unsafe fn mask_with_gone_lanes(data: *mut u32, _aux: *mut u32, _n: u32) {
    if rank() >= 40 {
        return;
    }
    unsafe {
        let (other, _) = warp_shuffle_xor(u32::MAX, rank() as u32, 8, 32); // bug
        *data.add(rank()) = other;
    }
}

/// Lanes of one warp pass different masks that overlap.
#[kernel]
pub unsafe fn different_masks(data: *mut u32, _aux: *mut u32, _n: u32) {
    let mask = if rank() % 32 < 16 { u32::MAX } else { 0xffff_fff0 };
    unsafe {
        let (other, _) = warp_shuffle_xor(mask, rank() as u32, 1, 32); // bug
        *data.add(rank()) = other;
    }
}

/// Half a warp shuffles, the other half votes.
#[kernel]
pub unsafe fn different_operations_in_warp(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if rank() % 32 < 16 {
            let (other, _) = warp_shuffle_xor(u32::MAX, rank() as u32, 1, 32); // bug
            *data.add(rank()) = other;
        } else {
            *data.add(rank()) = u32::from(warp_vote_any(u32::MAX, true)); // bug
        }
    }
}

/// Half a warp waits for the warp, the other half for the block.
#[kernel]
pub unsafe fn warp_against_block(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if rank() % 32 < 16 {
            sync_warp(u32::MAX); // bug
        }
        sync_threads(); // bug
    }
}
