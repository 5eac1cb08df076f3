//! Named barriers.

use cuda_std::warp::WARP_SIZE;
use cuda_std::{barrier, kernel, shared_array, thread};

/// The tile is full: producers arrive, consumers wait.
const FULL: u32 = 1;
/// The tile is empty: both sides wait.
const EMPTY: u32 = 2;
/// The barrier at which the first half of the block votes.
const FIRST_HALF: u32 = 3;
const SECOND_HALF: u32 = 4;

/// Number of producer threads, and of consumer threads, in [`barrier_pipeline()`].
pub const ROLE_THREADS: u32 = 64;

/// Two warps copy tiles of [`ROLE_THREADS`] words into shared memory. Two other warps write them out mirrored
/// and doubled. One barrier for "full" and one for "empty" synchronise them.
///
/// By the PTX ISA consumers need not wait at "empty", because `arrive` also orders the reads before it.
/// compute-sanitizer's racecheck, which must pass for every kernel, does not model that: on an H200 it
/// reports each write of the producers as a race with a read before `arrive`.
///
/// # Safety
/// One block of `2 * ROLE_THREADS` threads; both arrays hold the same number of whole tiles.
#[kernel]
pub unsafe fn barrier_pipeline(x: &[u32], out: *mut u32) {
    const N: usize = ROLE_THREADS as usize;
    const BOTH: u32 = 2 * ROLE_THREADS;
    let tile = shared_array![u32; N];
    let t = thread::thread_idx_x() as usize;
    let tiles = x.len() / N;
    let mut k = 0;
    // SAFETY: whole warps play each role; the two barriers alternate, so each side accesses the tile only
    // while it owns it; all indices are in bounds.
    unsafe {
        if t < N {
            while k < tiles {
                tile.add(t).write(*x.get_unchecked(k * N + t));
                barrier::arrive(FULL, BOTH);
                barrier::sync(EMPTY, BOTH);
                k += 1;
            }
        } else {
            let t = t - N;
            while k < tiles {
                barrier::sync(FULL, BOTH);
                let value = *tile.add(N - 1 - t);
                barrier::sync(EMPTY, BOTH);
                out.add(k * N + t).write(2 * value);
                k += 1;
            }
        }
    }
}

/// The two halves of a block vote at separate barriers. Rows of the block's size: count, all, any of the
/// half.
///
/// # Safety
/// One block, its size a multiple of 64; an element of `predicates` for each thread, three of `out`.
#[kernel]
pub unsafe fn barrier_votes(predicates: &[u32], out: *mut u32) {
    let n = predicates.len();
    let (t, half) = (thread::thread_idx_x(), thread::block_dim_x() / 2);
    // SAFETY: as many elements as threads.
    let predicate = unsafe { *predicates.get_unchecked(t as usize) != 0 };
    // SAFETY: whole warps in each branch; all threads of a half reach its barrier.
    let (count, all, any) = unsafe {
        if t < half { vote::<FIRST_HALF>(half, predicate) } else { vote::<SECOND_HALF>(half, predicate) }
    };
    // SAFETY: `out` has three elements per thread.
    unsafe {
        out.add(t as usize).write(count);
        out.add(n + t as usize).write(u32::from(all));
        out.add(2 * n + t as usize).write(u32::from(any));
    }
}

/// # Safety
/// As `barrier::sync_count` and its relatives.
#[inline(always)]
unsafe fn vote<const ID: u32>(threads: u32, predicate: bool) -> (u32, bool, bool) {
    // SAFETY: the caller's promise is the same.
    unsafe {
        (
            barrier::sync_count(ID, threads, predicate),
            barrier::sync_and(ID, threads, predicate),
            barrier::sync_or(ID, threads, predicate),
        )
    }
}

/// Every warp has its own barrier. Each warp passes it a different number of times, and hands a value to the
/// neighbour lane each time.
///
/// # Safety
/// One block of at most 15 whole warps; an element of both arrays for each thread.
#[kernel]
pub unsafe fn barrier_per_warp(x: &[u32], out: *mut u32) {
    const MOST: usize = 15 * WARP_SIZE as usize;
    let slots = shared_array![u32; MOST];
    let t = thread::thread_idx_x() as usize;
    let (warp, lane) = (t as u32 / WARP_SIZE, t as u32 % WARP_SIZE);
    let neighbour = (warp * WARP_SIZE + (lane + 1) % WARP_SIZE) as usize;
    // SAFETY: barrier `warp + 1` belongs to this warp alone; all indices are below the block's size.
    unsafe {
        let mut value = *x.get_unchecked(t);
        let mut round = 0;
        while round <= warp {
            slots.add(t).write(value);
            barrier::sync(warp + 1, WARP_SIZE);
            value = *slots.add(neighbour) + 1;
            barrier::sync(warp + 1, WARP_SIZE);
            round += 1;
        }
        out.add(t).write(value);
    }
}
