//! The last step of a search: the lists that the blocks left, made one a query: `cosine_merge`.
//!
//! Keys u64 `[queries, lists, k]` in (see [`crate::key`]), scores f32 and rows u32 `[queries, k]` out, best
//! first. One block a query: its warps share the keys out among them, 32 consecutive ones at a time, each
//! warp with a list of its own in shared memory; then the first warp merges the lists and writes the result.

use crate::key::{EMPTY, decode};
use crate::list::{KEY_BYTES, TopList, dynamic_shared_address};
use cuda_std::{kernel, thread, warp};

/// Warps of a block.
pub const WARPS: u32 = 8;
/// Threads of a block.
pub const THREADS: u32 = WARPS * 32;

/// Dynamic shared memory of a block.
pub const fn shared_bytes(k: u32) -> u32 {
    WARPS * k * KEY_BYTES
}

/// The best `k` of `lists * k` keys, for each query; see the module.
///
/// # Safety
/// `keys` is `[grid, lists, k]`, `scores` and `rows` are `[grid, k]`, `k >= 1`; blocks of [`THREADS`] threads
/// with [`shared_bytes`] of dynamic shared memory.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn cosine_merge(keys: *const u64, lists: u32, k: u32, scores: *mut f32, rows: *mut u32) {
    let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id());
    let query = thread::block_idx_x() as usize;
    let base = dynamic_shared_address();
    let list = |warp: u32| TopList::new(base + warp * k * KEY_BYTES, k);
    let count = lists as usize * k as usize;
    let keys = keys.wrapping_add(query * count);
    // SAFETY: every key read has an index below `count`, every result one below `k`. Each warp uses its own
    // list before the barrier; only the first uses any after it.
    unsafe {
        let best = list(warp);
        best.clear();
        let load = |index: usize| if index < count { keys.add(index).read() } else { EMPTY };
        let mut first = warp as usize * 32;
        let mut coming = load(first + lane as usize);
        while first < count {
            let here = coming;
            first += THREADS as usize;
            coming = load(first + lane as usize);
            best.offer(here);
        }
        thread::sync_threads();
        if warp > 0 {
            return;
        }
        let mut other = 1;
        while other < WARPS {
            best.merge(list(other));
            other += 1;
        }
        let mut rank = lane;
        while rank < k {
            let (score, row) = decode(best.get(rank));
            let place = query * k as usize + rank as usize;
            scores.add(place).write(score);
            rows.add(place).write(row);
            rank += 32;
        }
    }
}
