//! Copies from global to shared memory that run beside the thread: `cp.async` and its groups.
//!
//! A thread starts copies, closes them into a group with [`commit_group`], and later waits until all but its
//! `N` newest groups are done with [`wait_group`]. That makes the bytes visible to the thread itself; a
//! barrier makes them visible to the block.
//!
//! Or an [`mbarrier`](crate::mbarrier) is told when they are done, by [`arrive_noinc`]: other threads wait
//! for it, and the thread that copies goes on.
//!
//! `dst` is a 32-bit shared address. `BYTES` is 4, 8 or 16; both addresses are aligned to it.
//!
//! ```ignore
//! async_copy::copy_cg(dst, src);
//! async_copy::commit_group();
//! // ... other work, more groups ...
//! async_copy::wait_group::<0>();
//! thread::sync_threads();
//! ```

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
#[cfg(not(target_arch = "nvptx64"))]
use simt::async_copy;

/// The executor moves the bytes when the thread waits, so a missing wait reads what was there before.
///
/// # Safety
/// As for [`copy_ca_zfill`].
#[cfg(not(target_arch = "nvptx64"))]
#[track_caller]
unsafe fn start(dst: u32, src: *const u8, bytes: u32, src_bytes: u32) {
    let dst = simt::shared::from_address(dst);
    // SAFETY: the caller vouches for both ranges.
    unsafe { async_copy::copy(dst, src, bytes as usize, src_bytes as usize) }
}

/// Bytes that a copy past L1 moves: the only size that `cp.async.cg` has.
pub const CG_BYTES: u32 = 16;

const fn assert_size(bytes: u32) {
    assert!(matches!(bytes, 4 | 8 | 16), "cp.async copies 4, 8 or 16 bytes");
}

/// Starts a copy of `BYTES` bytes, cached at all levels.
///
/// # Safety
/// `src` is readable global memory, `dst` writable shared memory, for `BYTES` bytes, both aligned to it.
/// Until a wait, nothing reads or writes the destination nor writes the source.
///
/// # PTX
/// `cp.async.ca.shared.global [dst], [src], BYTES`
#[inline(always)]
#[track_caller]
pub unsafe fn copy_ca<const BYTES: u32, T>(dst: u32, src: *const T) {
    const { assert_size(BYTES) };
    arms! {
        ptx: {
            // SAFETY: one copy; the caller vouches for both addresses.
            unsafe {
                asm!("cp.async.ca.shared.global [{0}], [{1}], {2};", in(reg32) dst, in(reg64) src, const BYTES,
                    options(nostack, preserves_flags));
            }
        }
        // SAFETY: the caller vouches for both ranges.
        sim: { unsafe { start(dst, src.cast(), BYTES, BYTES) } }
    }
}

/// Starts a copy of 16 bytes that goes past L1.
///
/// # Safety
/// As [`copy_ca`] with 16 bytes.
///
/// # PTX
/// `cp.async.cg.shared.global [dst], [src], 16`
#[inline(always)]
#[track_caller]
pub unsafe fn copy_cg<T>(dst: u32, src: *const T) {
    arms! {
        ptx: {
            // SAFETY: one copy; the caller vouches for both addresses.
            unsafe {
                asm!("cp.async.cg.shared.global [{0}], [{1}], {2};", in(reg32) dst, in(reg64) src, const CG_BYTES,
                    options(nostack, preserves_flags));
            }
        }
        // SAFETY: the caller vouches for both ranges.
        sim: { unsafe { start(dst, src.cast(), CG_BYTES, CG_BYTES) } }
    }
}

/// Starts a copy of the first `src_bytes` bytes and fills the destination's other `BYTES - src_bytes` with
/// zeros.
///
/// # Safety
/// As [`copy_ca`], but only `src_bytes <= BYTES` bytes of the source need be readable; `src` is aligned to
/// `BYTES` even when it is 0.
///
/// # PTX
/// `cp.async.ca.shared.global [dst], [src], BYTES, src_bytes`
#[inline(always)]
#[track_caller]
pub unsafe fn copy_ca_zfill<const BYTES: u32, T>(dst: u32, src: *const T, src_bytes: u32) {
    const { assert_size(BYTES) };
    arms! {
        ptx: {
            // SAFETY: one copy; the caller vouches for both addresses.
            unsafe {
                asm!("cp.async.ca.shared.global [{0}], [{1}], {2}, {3};", in(reg32) dst, in(reg64) src, const BYTES,
                    in(reg32) src_bytes, options(nostack, preserves_flags));
            }
        }
        // SAFETY: the caller vouches for both ranges.
        sim: { unsafe { start(dst, src.cast(), BYTES, src_bytes) } }
    }
}

/// As [`copy_ca_zfill`] with 16 bytes, past L1.
///
/// # Safety
/// As [`copy_ca_zfill`] with 16 bytes.
///
/// # PTX
/// `cp.async.cg.shared.global [dst], [src], 16, src_bytes`
#[inline(always)]
#[track_caller]
pub unsafe fn copy_cg_zfill<T>(dst: u32, src: *const T, src_bytes: u32) {
    arms! {
        ptx: {
            // SAFETY: one copy; the caller vouches for both addresses.
            unsafe {
                asm!("cp.async.cg.shared.global [{0}], [{1}], {2}, {3};", in(reg32) dst, in(reg64) src, const CG_BYTES,
                    in(reg32) src_bytes, options(nostack, preserves_flags));
            }
        }
        // SAFETY: the caller vouches for both ranges.
        sim: { unsafe { start(dst, src.cast(), CG_BYTES, src_bytes) } }
    }
}

/// Closes the copies that this thread started since the last call into a group, which may be empty.
///
/// # PTX
/// `cp.async.commit_group`
#[inline(always)]
#[track_caller]
pub fn commit_group() {
    arms! {
        // SAFETY: touches nothing but this thread's own groups.
        ptx: { unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) } }
        sim: { async_copy::commit(); }
    }
}

/// Waits until at most the `PENDING` newest groups of this thread are unfinished.
///
/// # PTX
/// `cp.async.wait_group PENDING`
#[inline(always)]
#[track_caller]
pub fn wait_group<const PENDING: u32>() {
    arms! {
        // SAFETY: a wait. Not `nomem`, so that no access to the copied bytes moves above it.
        ptx: { unsafe { asm!("cp.async.wait_group {0};", const PENDING, options(nostack, preserves_flags)) } }
        sim: { async_copy::wait(PENDING); }
    }
}

/// Waits for every copy of this thread, committed or not.
///
/// # PTX
/// `cp.async.wait_all`
#[inline(always)]
#[track_caller]
pub fn wait_all() {
    arms! {
        // SAFETY: a wait. Not `nomem`, so that no access to the copied bytes moves above it.
        ptx: { unsafe { asm!("cp.async.wait_all;", options(nostack, preserves_flags)) } }
        sim: { async_copy::wait_all(); }
    }
}

/// Has the mbarrier at `bar` count one arrival of this thread when all copies are done that it has started so
/// far; does not wait. The arrival is one of those that [`init`](crate::mbarrier::init) counted, and whoever
/// waits for the phase sees the copied bytes. The copies write by the generic proxy: engines, and tensor
/// cores that read shared memory, want a proxy fence behind the wait.
///
/// # Safety
/// As [`arrive`](crate::mbarrier::arrive); the block lives until the arrival has come.
///
/// # PTX
/// `cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar]`
#[inline(always)]
#[track_caller]
pub unsafe fn arrive_noinc(bar: u32) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the object. Not `nomem`: copies stay before it.
            unsafe {
                asm!("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{0}];", in(reg32) bar,
                    options(nostack, preserves_flags));
            }
        }
        sim: { async_copy::arrive_noinc(bar); }
    }
}
