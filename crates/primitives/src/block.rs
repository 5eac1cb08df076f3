//! Collectives of a block: reductions, scans, broadcasts, through shared memory.
//!
//! ```text
//!   each warp reduces (or scans) by shuffles -> slots[warp] -> barrier -> each warp combines the slots it needs
//! ```
//! All threads of the block call each function together. Blocks have one dimension and up to 32 whole warps.
//! The caller brings the shared memory, one slot a warp ([`slots`]). The functions synchronise before
//! they read the slots and not after: call [`thread::sync_threads`] before the slots are used again. Results
//! repeat bit for bit.

use crate::op::Operation;
use crate::warp::{self, Exchange, From, LANES};
use cuda_std::thread;

/// Slots that a block of `threads` threads needs.
pub const fn slots(threads: u32) -> usize {
    threads.div_ceil(LANES) as usize
}

/// Warp and lane of this thread.
#[inline(always)]
fn warp_and_lane() -> (u32, u32) {
    let thread = thread::thread_idx_x();
    (thread / LANES, thread % LANES)
}

/// Combines the values of every `threads` neighbours; each of them gets the result. The operation must be
/// commutative.
///
/// # Safety
/// All threads of the block call it together, with the same `threads`: a power of two, at least 32, that
/// divides the block. `slots` is shared memory for a value a warp, which no thread uses since the last
/// barrier.
#[inline(always)]
pub unsafe fn reduce_groups<S: Exchange, O: Operation<S>>(op: O, value: S, threads: u32, slots: *mut S) -> S {
    // SAFETY: the caller's contract.
    unsafe { reduce_warps(op, warp::reduce(op, value), threads, slots) }
}

/// The rest of [`reduce_groups`] when `of_warp` is already the result of the thread's warp.
///
/// # Safety
/// As [`reduce_groups`].
#[inline(always)]
pub unsafe fn reduce_warps<S: Exchange, O: Operation<S>>(
    op: O,
    of_warp: S,
    threads: u32,
    slots: *mut S,
) -> S {
    let (warp, lane) = warp_and_lane();
    let warps = threads / LANES;
    // SAFETY: one slot a warp, written by one lane before the barrier and read after it. Where a warp has
    // more lanes than the group has warps, several lanes read the same slot.
    unsafe {
        if lane == 0 {
            *slots.add(warp as usize) = of_warp;
        }
        thread::sync_threads();
        let first = warp & !(warps - 1);
        let slot = *slots.add((first + (lane & (warps - 1))) as usize);
        warp::reduce_sections(op, slot, warps)
    }
}

/// Combines the values of all threads; each thread gets the result. The operation must be commutative.
///
/// # Safety
/// All threads of the block call it together. `slots` is shared memory for a value a warp, which no thread
/// uses since the last barrier.
#[inline(always)]
pub unsafe fn reduce<S: Exchange, O: Operation<S>>(op: O, value: S, slots: *mut S) -> S {
    let (warp, lane) = warp_and_lane();
    let warps = thread::block_dim_x() / LANES;
    // SAFETY: one slot a warp, written by one lane before the barrier and read after it.
    unsafe {
        let of_warp = warp::reduce(op, value);
        if lane == 0 {
            *slots.add(warp as usize) = of_warp;
        }
        thread::sync_threads();
        let slot = if lane < warps { *slots.add(lane as usize) } else { op.identity() };
        warp::reduce(op, slot)
    }
}

/// Combines the values of all threads up to this one, this one's included. The operation need not be
/// commutative.
///
/// # Safety
/// As [`reduce`].
#[inline(always)]
pub unsafe fn inclusive_scan<S: Exchange, O: Operation<S>>(op: O, value: S, slots: *mut S) -> S {
    // SAFETY: the caller's contract.
    unsafe {
        let inside = warp::inclusive_scan(op, value);
        op.combine(warps_below(op, inside, slots), inside)
    }
}

/// Combines the values of all threads below this one; thread 0 gets the identity. The operation need not be
/// commutative.
///
/// # Safety
/// As [`reduce`].
#[inline(always)]
pub unsafe fn exclusive_scan<S: Exchange, O: Operation<S>>(op: O, value: S, slots: *mut S) -> S {
    // SAFETY: the caller's contract.
    unsafe {
        let inside = warp::inclusive_scan(op, value);
        let below = inside.exchange(From::Below(1));
        let below = if warp_and_lane().1 == 0 { op.identity() } else { below };
        op.combine(warps_below(op, inside, slots), below)
    }
}

/// Combines all values of the warps below this one, of whose scans `inside` is the lane's part.
///
/// # Safety
/// As [`reduce`].
#[inline(always)]
unsafe fn warps_below<S: Exchange, O: Operation<S>>(op: O, inside: S, slots: *mut S) -> S {
    let (warp, lane) = warp_and_lane();
    // SAFETY: one slot a warp, written by its last lane before the barrier and read after it. All lanes
    // shuffle.
    unsafe {
        if lane == LANES - 1 {
            *slots.add(warp as usize) = inside;
        }
        thread::sync_threads();
        let slot = if lane < warp { *slots.add(lane as usize) } else { op.identity() };
        warp::broadcast(warp::inclusive_scan(op, slot), LANES - 1)
    }
}

/// The value of thread `source`.
///
/// # Safety
/// All threads of the block call it together, with the same `source`, a thread of the block. `slot` is shared
/// memory for one value, which no thread uses since the last barrier.
#[inline(always)]
pub unsafe fn broadcast<S: Copy>(value: S, source: u32, slot: *mut S) -> S {
    // SAFETY: written by one thread before the barrier and read after it.
    unsafe {
        if thread::thread_idx_x() == source {
            *slot = value;
        }
        thread::sync_threads();
        *slot
    }
}
