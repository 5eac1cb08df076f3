//! Named barriers: sixteen a block, each for as many threads as the calls say.
//!
//! Barrier 0 is the one of [`thread::sync_threads`](crate::thread::sync_threads). `threads` counts those that
//! take part in one round of the barrier, [`arrive`] and [`sync`] together; it is a multiple of 32, since
//! whole warps take part, and the same in every call of the round. `id` and `threads` had better be
//! constants: an id in a register makes the assembler reserve all sixteen.
//!
//! A producer that only signals calls [`arrive`] and runs on; consumers call [`sync`]. Threads that return
//! from [`sync`] see all that a thread wrote before either call.
//!
//! # Safety
//! Every function here: all live lanes of the warp reach the same call together, `id < 16`, and the calls of
//! a round agree on `threads`. A round that too few threads reach hangs the block.

#[cfg(not(target_arch = "nvptx64"))]
use simt::barrier::{self as executor, BarrierReduce};

// LLVM's intrinsics: unlike inline assembly they are known to be convergent.
#[cfg(target_arch = "nvptx64")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.count"]
    fn sync_aligned_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.barrier.cta.arrive.aligned.count"]
    fn arrive_aligned_count(id: u32, threads: u32);
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.count"]
    fn red_popc_aligned_count(id: u32, threads: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.barrier.cta.red.and.aligned.count"]
    fn red_and_aligned_count(id: u32, threads: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.barrier.cta.red.or.aligned.count"]
    fn red_or_aligned_count(id: u32, threads: u32, predicate: bool) -> bool;
}

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
    arms! {
        // SAFETY: the caller vouches for the round.
        ptx: { unsafe { sync_aligned_count(id, threads) } }
        sim: { executor::sync(id, Some(threads)) }
    }
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
    arms! {
        // SAFETY: the caller vouches for the round.
        ptx: { unsafe { arrive_aligned_count(id, threads) } }
        sim: { executor::arrive(id, threads) }
    }
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
    arms! {
        // SAFETY: the caller vouches for the round.
        ptx: { unsafe { red_popc_aligned_count(id, threads, predicate) } }
        sim: { executor::reduce_named(BarrierReduce::Popc, id, threads, predicate) }
    }
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
    arms! {
        // SAFETY: the caller vouches for the round.
        ptx: { unsafe { red_and_aligned_count(id, threads, predicate) } }
        sim: { executor::reduce_named(BarrierReduce::And, id, threads, predicate) != 0 }
    }
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
    arms! {
        // SAFETY: the caller vouches for the round.
        ptx: { unsafe { red_or_aligned_count(id, threads, predicate) } }
        sim: { executor::reduce_named(BarrierReduce::Or, id, threads, predicate) != 0 }
    }
}
