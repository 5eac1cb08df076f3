//! Named barriers: sixteen a block, each for as many threads as the calls say.
//!
//! Barrier 0 is the one of [`thread::sync_threads`](crate::thread::sync_threads). `threads` counts those that take
//! part in one round of the barrier, [`arrive`] and [`sync`] together; it is a multiple of 32, since whole warps take part,
//! and the same in every call of the round. `id` and `threads` had better be constants: an id in a register makes the
//! assembler reserve all sixteen.
//!
//! A producer that only signals calls [`arrive`] and runs on; consumers call [`sync`]. What a thread wrote before either is
//! visible to whoever returns from [`sync`].
//!
//! # Safety
//! Every function here: all live lanes of the warp reach the same call together, `id < 16`, and the calls of a round agree on
//! `threads`. A round that too few threads reach hangs the block.

use crate::arch::barrier as arch;

/// Named barriers of a block.
pub const COUNT: u32 = 16;

/// Waits until `threads` threads have reached barrier `id`.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `barrier.cta.sync.aligned id, threads`
#[inline(always)]
#[track_caller]
pub unsafe fn sync(id: u32, threads: u32) {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::sync(id, threads) }
}

/// Counts as having reached barrier `id` and goes on without waiting.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `barrier.cta.arrive.aligned id, threads`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive(id: u32, threads: u32) {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::arrive(id, threads) }
}

/// As [`sync`]; returns for how many of the threads `predicate` is true.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `barrier.cta.red.popc.aligned.u32 count, id, threads, predicate`
#[inline(always)]
#[track_caller]
pub unsafe fn sync_count(id: u32, threads: u32, predicate: bool) -> u32 {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::sync_count(id, threads, predicate) }
}

/// As [`sync`]; returns whether `predicate` is true for all of the threads.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `barrier.cta.red.and.aligned.pred all, id, threads, predicate`
#[inline(always)]
#[track_caller]
pub unsafe fn sync_and(id: u32, threads: u32, predicate: bool) -> bool {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::sync_and(id, threads, predicate) }
}

/// As [`sync`]; returns whether `predicate` is true for any of the threads.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `barrier.cta.red.or.aligned.pred any, id, threads, predicate`
#[inline(always)]
#[track_caller]
pub unsafe fn sync_or(id: u32, threads: u32, predicate: bool) -> bool {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { arch::sync_or(id, threads, predicate) }
}
