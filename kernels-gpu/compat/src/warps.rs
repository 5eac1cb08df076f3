//! Warp collectives.

use cuda_std::prelude::*;
use cuda_std::warp;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_80"))]
use cuda_std::warp::WarpReductionOp;

/// Sum of each warp by shuffles, written by its first lane.
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn warp_sums(values: &[f32], sums: *mut f32) {
    let idx = thread::index_1d() as usize;
    let mut sum = if idx < values.len() { values[idx] } else { 0.0 };
    let mut delta = thread::warp_size() / 2;
    // SAFETY: all lanes of the warp are here; `sums` has an element for each warp.
    unsafe {
        while delta > 0 {
            sum += warp::warp_shuffle_down(u32::MAX, sum, delta, 32).0;
            delta /= 2;
        }
        if warp::lane_id() == 0 {
            *sums.add(idx / 32) = sum;
        }
    }
}

/// The results of every kind of collective: 10 numbers per lane, for one warp.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_80"))]
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn warp_collectives(input: &[u32], out: *mut [u64; 10]) {
    const FULL: u32 = u32::MAX;
    let lane = warp::lane_id();
    let v = input[lane as usize];
    // SAFETY: all lanes of the warp are here; `out` has an element for each lane.
    unsafe {
        let (up, up_in) = warp::warp_shuffle_up(FULL, v as u64 | 1 << 40, 3, 16);
        let (xor, _) = warp::warp_shuffle_xor(FULL, v as u128, 5, 32);
        let (idx, _) = warp::warp_shuffle_idx(FULL, v as i8, 2, 8);
        warp::sync_warp(FULL);
        *out.add(lane as usize) = [
            up,
            up_in as u64,
            xor as u64,
            idx as u64,
            warp::warp_reduce(FULL, v, WarpReductionOp::Add) as u64,
            warp::warp_reduce(FULL, -(v as i32), WarpReductionOp::Min) as u64,
            warp::warp_vote_ballot(FULL, v.is_multiple_of(3)) as u64,
            warp::warp_vote_all(FULL, v < 1000) as u64 * 2 + warp::warp_vote_any(FULL, v > 1000) as u64,
            warp::warp_match_any(FULL, v % 4) as u64,
            warp::warp_match_all(FULL, v as u64).is_some() as u64 * 2
                + (thread::sync_threads_count(v % 2) as u64) * 4,
        ];
    }
}
