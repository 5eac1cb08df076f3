//! `mbarrier`.
//!
//! Nothing here is `nomem`: accesses to what a barrier guards must not move across it.

use core::arch::asm;

#[inline(always)]
pub unsafe fn init(bar: u32, count: u32) {
    // SAFETY: writes one object; the caller vouches for the address.
    unsafe {
        asm!("mbarrier.init.shared::cta.b64 [{0}], {1};", in(reg32) bar, in(reg32) count,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn invalidate(bar: u32) {
    // SAFETY: ends one object; the caller vouches for it.
    unsafe { asm!("mbarrier.inval.shared::cta.b64 [{0}];", in(reg32) bar, options(nostack, preserves_flags)) }
}

#[inline(always)]
pub unsafe fn arrive(bar: u32) {
    // SAFETY: the caller vouches for the object.
    unsafe {
        asm!("mbarrier.arrive.shared::cta.b64 _, [{0}];", in(reg32) bar, options(nostack, preserves_flags))
    }
}

#[inline(always)]
pub unsafe fn arrive_count(bar: u32, n: u32) {
    // SAFETY: the caller vouches for the object.
    unsafe {
        asm!("mbarrier.arrive.shared::cta.b64 _, [{0}], {1};", in(reg32) bar, in(reg32) n,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn expect_tx(bar: u32, bytes: u32) {
    // SAFETY: the caller vouches for the object.
    unsafe {
        asm!("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [{0}], {1};", in(reg32) bar, in(reg32) bytes,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn arrive_expect_tx(bar: u32, bytes: u32) {
    // SAFETY: the caller vouches for the object.
    unsafe {
        asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{0}], {1};", in(reg32) bar, in(reg32) bytes,
            options(nostack, preserves_flags));
    }
}

macro_rules! asks {
    ($($name:ident, $op:literal;)*) => { $(
        #[inline(always)]
        pub unsafe fn $name(bar: u32, parity: u32) -> bool {
            let over: u32;
            // SAFETY: the caller vouches for the object.
            unsafe {
                asm!(
                    "{{",
                    ".reg .pred over;",
                    concat!($op, " over, [{1}], {2};"),
                    "selp.u32 {0}, 1, 0, over;",
                    "}}",
                    out(reg32) over, in(reg32) bar, in(reg32) parity, options(nostack, preserves_flags)
                );
            }
            over != 0
        }
    )* };
}

asks! {
    test_wait_parity, "mbarrier.test_wait.parity.shared::cta.b64";
    try_wait_parity, "mbarrier.try_wait.parity.shared::cta.b64";
    try_wait_parity_cluster, "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64";
}

#[inline(always)]
pub unsafe fn wait_parity(bar: u32, parity: u32) {
    // SAFETY: the caller vouches for the object.
    while !unsafe { try_wait_parity(bar, parity) } {}
}

#[inline(always)]
pub unsafe fn arrive_remote(bar_cluster: u32) {
    // SAFETY: the caller vouches for the object and for its block.
    unsafe {
        asm!("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{0}];", in(reg32) bar_cluster,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn arrive_remote_async(bar_cluster: u32) {
    // SAFETY: the caller vouches for the object and for its block.
    unsafe {
        asm!("mbarrier.arrive.shared::cluster.b64 _, [{0}];", in(reg32) bar_cluster,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn wait_parity_cluster(bar: u32, parity: u32) {
    // SAFETY: the caller vouches for the object.
    while !unsafe { try_wait_parity_cluster(bar, parity) } {}
}

#[inline(always)]
pub fn fence_init() {
    // SAFETY: a fence touches no memory of its own.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack, preserves_flags)) }
}
