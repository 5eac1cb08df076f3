//! `fence`.

use core::arch::asm;

#[inline(always)]
pub fn proxy_async() {
    // SAFETY: a fence touches no memory of its own.
    unsafe { asm!("fence.proxy.async;", options(nostack, preserves_flags)) }
}

#[inline(always)]
pub fn proxy_async_shared() {
    // SAFETY: a fence touches no memory of its own.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack, preserves_flags)) }
}

#[inline(always)]
pub fn cluster() {
    // SAFETY: a fence touches no memory of its own.
    unsafe { asm!("fence.acq_rel.cluster;", options(nostack, preserves_flags)) }
}
