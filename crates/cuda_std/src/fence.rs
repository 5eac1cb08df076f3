//! Fences between the two ways to memory, and for the cluster.
//!
//! Threads read and write through the *generic proxy*; the copy engine ([`tma`](crate::tma)) and the tensor
//! cores ([`wgmma`](crate::wgmma)) read and write shared memory through the *async proxy*. What one of them
//! wrote, the other sees only after a fence between the proxies: each thread that wrote calls it, then comes
//! the barrier, then the copy or the product. The other way round no fence is needed: completion through an
//! mbarrier or a group's wait makes the bytes visible.
//!
//! Fences for the block, the device and the system are in [`thread`](crate::thread).

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

#[cfg(not(target_arch = "nvptx64"))]
use simt::memory;

/// Makes this thread's writes, to any memory, visible to the async proxy.
///
/// # PTX
/// `fence.proxy.async`
#[inline(always)]
#[track_caller]
pub fn proxy_async() {
    arms! {
        // SAFETY: a fence touches no memory of its own.
        ptx: { unsafe { asm!("fence.proxy.async;", options(nostack, preserves_flags)) } }
        sim: { memory::proxy_fence(); }
    }
}

/// Makes this thread's writes to the block's shared memory visible to the async proxy.
///
/// # PTX
/// `fence.proxy.async.shared::cta`
#[inline(always)]
#[track_caller]
pub fn proxy_async_shared() {
    arms! {
        // SAFETY: a fence touches no memory of its own.
        ptx: { unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack, preserves_flags)) } }
        sim: { memory::proxy_fence(); }
    }
}

/// Orders this thread's accesses before and after it, as the threads of the cluster see them.
///
/// # PTX
/// `fence.acq_rel.cluster`
#[inline(always)]
#[track_caller]
pub fn cluster() {
    arms! {
        // SAFETY: a fence touches no memory of its own.
        ptx: { unsafe { asm!("fence.acq_rel.cluster;", options(nostack, preserves_flags)) } }
        sim: { memory::fence(memory::Scope::Cluster); }
    }
}
