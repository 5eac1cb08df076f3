//! The executor moves the bytes when the thread waits, so a missing wait reads what was there before.

use simt::async_copy;

use crate::async_copy::CG_BYTES;

#[track_caller]
unsafe fn start(dst: u32, src: *const u8, bytes: u32, src_bytes: u32) {
    let dst = simt::shared::from_address(dst);
    // SAFETY: the caller vouches for both ranges.
    unsafe { async_copy::copy(dst, src, bytes as usize, src_bytes as usize) }
}

#[track_caller]
pub unsafe fn copy_ca<const BYTES: u32>(dst: u32, src: *const u8) {
    // SAFETY: the caller vouches for both ranges.
    unsafe { start(dst, src, BYTES, BYTES) }
}

#[track_caller]
pub unsafe fn copy_cg(dst: u32, src: *const u8) {
    // SAFETY: the caller vouches for both ranges.
    unsafe { start(dst, src, CG_BYTES, CG_BYTES) }
}

#[track_caller]
pub unsafe fn copy_ca_zfill<const BYTES: u32>(dst: u32, src: *const u8, src_bytes: u32) {
    // SAFETY: the caller vouches for both ranges.
    unsafe { start(dst, src, BYTES, src_bytes) }
}

#[track_caller]
pub unsafe fn copy_cg_zfill(dst: u32, src: *const u8, src_bytes: u32) {
    // SAFETY: the caller vouches for both ranges.
    unsafe { start(dst, src, CG_BYTES, src_bytes) }
}

#[track_caller]
pub fn commit_group() {
    async_copy::commit();
}

#[track_caller]
pub fn wait_group<const PENDING: u32>() {
    async_copy::wait(PENDING);
}

#[track_caller]
pub fn wait_all() {
    async_copy::wait_all();
}
