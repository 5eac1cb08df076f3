//! `cp.async`.

use core::arch::asm;

use crate::async_copy::CG_BYTES;

#[inline(always)]
pub unsafe fn copy_ca<const BYTES: u32>(dst: u32, src: *const u8) {
    // SAFETY: one copy; the caller vouches for both addresses.
    unsafe {
        asm!("cp.async.ca.shared.global [{0}], [{1}], {2};", in(reg32) dst, in(reg64) src, const BYTES,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn copy_cg(dst: u32, src: *const u8) {
    // SAFETY: one copy; the caller vouches for both addresses.
    unsafe {
        asm!("cp.async.cg.shared.global [{0}], [{1}], {2};", in(reg32) dst, in(reg64) src, const CG_BYTES,
            options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn copy_ca_zfill<const BYTES: u32>(dst: u32, src: *const u8, src_bytes: u32) {
    // SAFETY: one copy; the caller vouches for both addresses.
    unsafe {
        asm!("cp.async.ca.shared.global [{0}], [{1}], {2}, {3};", in(reg32) dst, in(reg64) src, const BYTES,
            in(reg32) src_bytes, options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn copy_cg_zfill(dst: u32, src: *const u8, src_bytes: u32) {
    // SAFETY: one copy; the caller vouches for both addresses.
    unsafe {
        asm!("cp.async.cg.shared.global [{0}], [{1}], {2}, {3};", in(reg32) dst, in(reg64) src, const CG_BYTES,
            in(reg32) src_bytes, options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub fn commit_group() {
    // SAFETY: touches nothing but this thread's own groups.
    unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) }
}

#[inline(always)]
pub fn wait_group<const PENDING: u32>() {
    // SAFETY: a wait. Not `nomem`, so that no access to the copied bytes moves above it.
    unsafe { asm!("cp.async.wait_group {0};", const PENDING, options(nostack, preserves_flags)) }
}

#[inline(always)]
pub fn wait_all() {
    // SAFETY: a wait. Not `nomem`, so that no access to the copied bytes moves above it.
    unsafe { asm!("cp.async.wait_all;", options(nostack, preserves_flags)) }
}
