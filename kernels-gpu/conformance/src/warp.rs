//! Shuffles, votes, matches, reductions.

use cuda_std::warp::{self, FULL_MASK, WARP_SIZE, WarpReductionOp};
use cuda_std::{kernel, shared_array, thread};

use crate::rows::Rows;

/// Rows of [`warp_shuffles()`].
pub const SHUFFLE_ROWS: usize = 8;

/// Four shuffles over the whole warp: down by 3, up by 3, from lane 5, xor 6; then their flags.
///
/// # Safety
/// As many threads as elements, whole warps; `out` has [`SHUFFLE_ROWS`] rows.
#[kernel]
pub unsafe fn warp_shuffles(x: &[u32], out: *mut u32) {
    let rows = Rows::new(out, x.len());
    let i = thread::index_1d() as usize;
    // SAFETY: as many elements as threads; the whole warp shuffles.
    unsafe {
        let value = *x.get_unchecked(i);
        let results = [
            warp::warp_shuffle_down(FULL_MASK, value, 3, WARP_SIZE),
            warp::warp_shuffle_up(FULL_MASK, value, 3, WARP_SIZE),
            warp::warp_shuffle_idx(FULL_MASK, value, 5, WARP_SIZE),
            warp::warp_shuffle_xor(FULL_MASK, value, 6, WARP_SIZE),
        ];
        rows.set(0, results[0].0);
        rows.set(1, results[1].0);
        rows.set(2, results[2].0);
        rows.set(3, results[3].0);
        rows.set(4, u32::from(results[0].1));
        rows.set(5, u32::from(results[1].1));
        rows.set(6, u32::from(results[2].1));
        rows.set(7, u32::from(results[3].1));
    }
}

/// Shuffles down by 1 in sections of 8 lanes: f64 and u64, whose two halves must stay together.
///
/// # Safety
/// As many threads as elements, whole warps; `out` as many elements as threads.
#[kernel]
pub unsafe fn warp_shuffle_wide(x: &[f64], words: &[u64], out_x: *mut f64, out_words: *mut u64) {
    let i = thread::index_1d() as usize;
    // SAFETY: as many elements as threads; the whole warp shuffles.
    unsafe {
        out_x.add(i).write(warp::warp_shuffle_down(FULL_MASK, *x.get_unchecked(i), 1, 8).0);
        out_words.add(i).write(warp::warp_shuffle_down(FULL_MASK, *words.get_unchecked(i), 1, 8).0);
    }
}

/// Rows: whether all, whether any, the ballot, the lane, each for odd values.
///
/// # Safety
/// As many threads as elements, whole warps; `out` has four rows.
#[kernel]
pub unsafe fn warp_votes(x: &[u32], out: *mut u32) {
    let rows = Rows::new(out, x.len());
    let i = thread::index_1d() as usize;
    // SAFETY: as many elements as threads; the whole warp votes.
    unsafe {
        let odd = *x.get_unchecked(i) & 1 == 1;
        rows.set(0, u32::from(warp::warp_vote_all(FULL_MASK, odd)));
        rows.set(1, u32::from(warp::warp_vote_any(FULL_MASK, odd)));
        rows.set(2, warp::warp_vote_ballot(FULL_MASK, odd));
        rows.set(3, warp::lane_id());
    }
}

/// Rows: the mask of lanes with the same value; the mask if all lanes have it, else 0.
///
/// # Safety
/// As many threads as elements, whole warps; `out` has two rows.
#[kernel]
pub unsafe fn warp_matches(x: &[u32], out: *mut u32) {
    let rows = Rows::new(out, x.len());
    let i = thread::index_1d() as usize;
    // SAFETY: as many elements as threads; the whole warp matches.
    unsafe {
        let value = *x.get_unchecked(i);
        rows.set(0, warp::warp_match_any(FULL_MASK, value));
        rows.set(1, warp::warp_match_all(FULL_MASK, value).unwrap_or(0));
    }
}

/// Rows: sum, smallest, largest, and, or, xor over the warp.
///
/// # Safety
/// As many threads as elements, whole warps; `out` has six rows.
#[kernel]
pub unsafe fn warp_reductions(x: &[u32], out: *mut u32) {
    let rows = Rows::new(out, x.len());
    let i = thread::index_1d() as usize;
    // SAFETY: as many elements as threads; the whole warp reduces.
    unsafe {
        let value = *x.get_unchecked(i);
        rows.set(0, warp::warp_reduce(FULL_MASK, value, WarpReductionOp::Add));
        rows.set(1, warp::warp_reduce(FULL_MASK, value, WarpReductionOp::Min));
        rows.set(2, warp::warp_reduce(FULL_MASK, value, WarpReductionOp::Max));
        rows.set(3, warp::warp_reduce(FULL_MASK, value, WarpReductionOp::And));
        rows.set(4, warp::warp_reduce(FULL_MASK, value, WarpReductionOp::Or));
        rows.set(5, warp::warp_reduce(FULL_MASK, value, WarpReductionOp::Xor));
    }
}

/// Inclusive scan of each warp's values.
///
/// # Safety
/// As many threads as elements, whole warps; `out` as many elements.
#[kernel]
pub unsafe fn warp_scan(x: &[u32], out: *mut u32) {
    let i = thread::index_1d() as usize;
    // SAFETY: as many elements as threads; the whole warp shuffles.
    unsafe {
        let mut sum = *x.get_unchecked(i);
        let mut distance = 1;
        while distance < WARP_SIZE {
            let (below, exists) = warp::warp_shuffle_up(FULL_MASK, sum, distance, WARP_SIZE);
            if exists {
                sum += below;
            }
            distance *= 2;
        }
        out.add(i).write(sum);
    }
}

/// Lanes 0 to 15 shuffle and sum among themselves while the other lanes run different code.
///
/// # Safety
/// As many threads as elements, whole warps; `out` as many elements.
#[kernel]
pub unsafe fn warp_half_reduce(x: &[u32], out: *mut u32) {
    const LOW_HALF: u32 = 0xffff;
    let i = thread::index_1d() as usize;
    // SAFETY: as many elements as threads; exactly the lanes of the mask enter the branch.
    unsafe {
        let value = *x.get_unchecked(i);
        let result = if warp::lane_id() < 16 {
            warp::warp_reduce(LOW_HALF, value, WarpReductionOp::Add)
        } else {
            value * 2
        };
        out.add(i).write(result);
    }
}

/// Reverses each warp's values through shared memory, with only `sync_warp` between write and read.
///
/// # Safety
/// One block of at most 1024 threads, whole warps; as many elements as threads in both arrays.
#[kernel]
pub unsafe fn warp_reverse_shared(x: &[u32], out: *mut u32) {
    let tile = shared_array![u32; 1024];
    let i = thread::index_1d() as usize;
    // SAFETY: each thread has its own place; the reader's partner is in the same warp and has written.
    unsafe {
        tile.add(i).write(*x.get_unchecked(i));
        warp::sync_warp(FULL_MASK);
        out.add(i).write(*tile.add(i ^ 31));
    }
}
