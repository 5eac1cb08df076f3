//! Barriers in shared memory that count arrivals and bytes: `mbarrier`.
//!
//! An object is 8 bytes of shared memory, 8-byte aligned, and goes through *phases*. A phase ends when as
//! many arrivals as [`init`] said have come and as many bytes as were expected ([`expect_tx`]) have landed;
//! then the next one begins by itself, with the same count. Phases are told apart by their parity: the first
//! has parity 0, the next 1, then 0 again. [`wait_parity`]`(bar, p)` returns once the phase of parity `p` is
//! over, so a ring of buffers waits for parities 0, 1, 0, ..; and a wait for parity 1 of a fresh object
//! returns at once (its "previous" phase is over), which is how a producer finds all buffers free in the
//! first round.
//!
//! `bar` is a 32-bit shared address of this block (see [`shared`](crate::shared)); `bar_cluster` one that
//! [`cluster::map_shared`](crate::cluster::map_shared) made.
//!
//! ```ignore
//! let is_first = thread::thread_idx_x() == 0; // of each block, which has an object of its own
//! if is_first {
//!     mbarrier::init(full, 1);
//!     mbarrier::fence_init();   // visible to other blocks of the cluster and to the copy engine
//! }
//! thread::sync_threads();
//! if is_first {
//!     mbarrier::arrive_expect_tx(full, BYTES);
//!     tma::load_2d(tile, map, full, [x, y]);
//! }
//! mbarrier::wait_parity(full, 0); // all threads
//! ```
//!
//! An arrival releases what the thread did before it, to the block (to the cluster for [`arrive_remote`]); a
//! wait acquires.
//!
//! # Safety
//! Every function here that is `unsafe`: `bar` is the address of an object that [`init`] made, that no
//! [`invalidate`] has unmade, and whose bytes nothing else touches in between; the barrier (or [`fence_init`]
//! and a cluster barrier) that makes the initialisation visible lies in between. A phase gets no more
//! arrivals than its count.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
#[cfg(not(target_arch = "nvptx64"))]
use simt::mbarrier;

// No `asm!` of this chapter is `nomem`: accesses to what a barrier guards must not move across it.

/// One question about a phase.
#[cfg(target_arch = "nvptx64")]
macro_rules! asks {
    ($op:literal, $bar:ident, $parity:ident) => {{
        let over: u32;
        asm!(
            "{{",
            ".reg .pred over;",
            concat!($op, " over, [{1}], {2};"),
            "selp.u32 {0}, 1, 0, over;",
            "}}",
            out(reg32) over, in(reg32) $bar, in(reg32) $parity, options(nostack, preserves_flags)
        );
        over != 0
    }};
}

/// Bytes of an object, and its alignment.
pub const BYTES: u32 = 8;

/// Most arrivals that a phase can count.
pub const MAX_COUNT: u32 = (1 << 20) - 1;

/// Makes an object whose phases end after `count` arrivals, `1..=`[`MAX_COUNT`]. One thread does it.
///
/// # Safety
/// `bar` is 8-byte aligned, [`BYTES`] bytes of this block's shared memory there are used for nothing else,
/// and no object is there.
///
/// # PTX
/// `mbarrier.init.shared::cta.b64 [bar], count`
#[inline(always)]
#[track_caller]
pub unsafe fn init(bar: u32, count: u32) {
    arms! {
        ptx: {
            // SAFETY: writes one object; the caller vouches for the address.
            unsafe {
                asm!("mbarrier.init.shared::cta.b64 [{0}], {1};", in(reg32) bar, in(reg32) count,
                    options(nostack, preserves_flags));
            }
        }
        sim: { mbarrier::init(bar, count) }
    }
}

/// Unmakes an object, so that its memory can be used for something else. One thread does it.
///
/// # Safety
/// As the module says; no thread waits on the object, and no copy will report to it.
///
/// # PTX
/// `mbarrier.inval.shared::cta.b64 [bar]`
#[inline(always)]
#[track_caller]
pub unsafe fn invalidate(bar: u32) {
    arms! {
        ptx: {
            // SAFETY: ends one object; the caller vouches for it.
            unsafe { asm!("mbarrier.inval.shared::cta.b64 [{0}];", in(reg32) bar, options(nostack, preserves_flags)) }
        }
        sim: { mbarrier::invalidate(bar) }
    }
}

/// Counts one arrival.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `mbarrier.arrive.shared::cta.b64 _, [bar]`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive(bar: u32) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the object.
            unsafe {
                asm!("mbarrier.arrive.shared::cta.b64 _, [{0}];", in(reg32) bar, options(nostack, preserves_flags))
            }
        }
        sim: { mbarrier::arrive(bar) }
    }
}

/// Counts `n` arrivals at once, at least 1.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `mbarrier.arrive.shared::cta.b64 _, [bar], n`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive_count(bar: u32, n: u32) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the object.
            unsafe {
                asm!("mbarrier.arrive.shared::cta.b64 _, [{0}], {1};", in(reg32) bar, in(reg32) n,
                    options(nostack, preserves_flags));
            }
        }
        sim: { mbarrier::arrive_count(bar, n) }
    }
}

/// Lets the current phase wait for `bytes` more bytes of asynchronous copies, at most 2^20 - 1 outstanding at
/// a time. Orders nothing.
///
/// # Safety
/// As the module says; the bytes do come.
///
/// # PTX
/// `mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], bytes`
#[inline(always)]
#[track_caller]
pub unsafe fn expect_tx(bar: u32, bytes: u32) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the object.
            unsafe {
                asm!("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{0}], {1};", in(reg32) bar, in(reg32) bytes,
                    options(nostack, preserves_flags));
            }
        }
        sim: { mbarrier::expect_tx(bar, bytes) }
    }
}

/// [`expect_tx`], then [`arrive`], in one instruction.
///
/// # Safety
/// As for both.
///
/// # PTX
/// `mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], bytes`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive_expect_tx(bar: u32, bytes: u32) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the object.
            unsafe {
                asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{0}], {1};", in(reg32) bar, in(reg32) bytes,
                    options(nostack, preserves_flags));
            }
        }
        sim: { mbarrier::arrive_expect_tx(bar, bytes) }
    }
}

/// Whether the phase of parity `parity` (0 or 1) is over; does not wait.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `mbarrier.test_wait.parity.shared::cta.b64 over, [bar], parity`
#[inline(always)]
#[track_caller]
#[must_use]
pub unsafe fn test_wait_parity(bar: u32, parity: u32) -> bool {
    arms! {
        // SAFETY: the caller vouches for the object.
        ptx: { unsafe { asks!("mbarrier.test_wait.parity.shared::cta.b64", bar, parity) } }
        sim: { mbarrier::test_wait_parity(bar, parity) }
    }
}

/// As [`test_wait_parity`], but may sleep for a while, as long as the hardware thinks fit, before it says no.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `mbarrier.try_wait.parity.shared::cta.b64 over, [bar], parity`
#[inline(always)]
#[track_caller]
#[must_use]
pub unsafe fn try_wait_parity(bar: u32, parity: u32) -> bool {
    arms! {
        // SAFETY: the caller vouches for the object.
        ptx: { unsafe { asks!("mbarrier.try_wait.parity.shared::cta.b64", bar, parity) } }
        sim: { mbarrier::try_wait_parity(bar, parity) }
    }
}

/// Waits until the phase of parity `parity` (0 or 1) is over. What was released to it, and what copies that
/// reported to it wrote, can then be read.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `mbarrier.try_wait.parity.shared::cta.b64` until it says yes
#[inline(always)]
#[track_caller]
pub unsafe fn wait_parity(bar: u32, parity: u32) {
    arms! {
        // SAFETY: the caller vouches for the object.
        ptx: { while !unsafe { asks!("mbarrier.try_wait.parity.shared::cta.b64", bar, parity) } {} }
        sim: { mbarrier::wait_parity(bar, parity) }
    }
}

/// Counts one arrival at an object of another block of the cluster (or of this one), and releases to the
/// cluster.
///
/// # Safety
/// As the module says, for the object of that block, which has not exited.
///
/// # PTX
/// `mbarrier.arrive.release.cluster.shared::cluster.b64 _, [bar_cluster]`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive_remote(bar_cluster: u32) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the object and for its block.
            unsafe {
                asm!("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{0}];", in(reg32) bar_cluster,
                    options(nostack, preserves_flags));
            }
        }
        sim: { mbarrier::arrive_remote(bar_cluster) }
    }
}

/// As [`arrive_remote`], but the waiting block must not read what this thread wrote: what is ordered are
/// asynchronous operations of this thread that it has waited for, before copies by the waiting thread. So a
/// stage of a ring is handed back to the block whose copies fill it. [`arrive_remote`] writes back all that
/// the thread wrote, which takes longer than a product of tensor cores.
///
/// # Safety
/// As [`arrive_remote`].
///
/// # PTX
/// `mbarrier.arrive.shared::cluster.b64 _, [bar_cluster]`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive_remote_async(bar_cluster: u32) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the object and for its block.
            unsafe {
                asm!("mbarrier.arrive.shared::cluster.b64 _, [{0}];", in(reg32) bar_cluster,
                    options(nostack, preserves_flags));
            }
        }
        sim: { mbarrier::arrive_remote_async(bar_cluster) }
    }
}

/// As [`wait_parity`], for an object at which other blocks of the cluster arrive: acquires what they
/// released.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64` until it says yes
#[inline(always)]
#[track_caller]
pub unsafe fn wait_parity_cluster(bar: u32, parity: u32) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the object.
            while !unsafe { asks!("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64", bar, parity) } {}
        }
        sim: { mbarrier::wait_parity(bar, parity) }
    }
}

/// Makes this thread's initialisations visible to the cluster and to the engine that copies. A barrier of the
/// block or the cluster has to follow before anyone else uses the objects.
///
/// # PTX
/// `fence.mbarrier_init.release.cluster`
#[inline(always)]
#[track_caller]
pub fn fence_init() {
    arms! {
        // SAFETY: a fence touches no memory of its own.
        ptx: { unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack, preserves_flags)) } }
        sim: { mbarrier::fence_init() }
    }
}
