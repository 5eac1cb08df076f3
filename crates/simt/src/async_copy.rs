//! Asynchronous copies from global to shared memory: `cp.async`, `cp.async.commit_group`,
//! `cp.async.wait_group`.
//!
//! The bytes move when the thread waits, not before, so a kernel that forgets to wait reads old data.

use std::collections::VecDeque;
use std::panic::Location;

use crate::check::{self, Access};
use crate::exec::context::{Thread, current};
use crate::fault::{AccessKind, FaultKind};
use crate::site::RawSite;

/// Copies of a thread that are under way.
#[derive(Default)]
pub(crate) struct CopyQueue {
    /// Issued, in no group yet.
    open: Vec<PendingCopy>,
    /// Committed groups, oldest first.
    groups: VecDeque<Vec<PendingCopy>>,
}

#[derive(Clone, Copy)]
struct PendingCopy {
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
    src_bytes: usize,
    site: RawSite,
}

impl CopyQueue {
    pub fn clear(&mut self) {
        self.open.clear();
        self.groups.clear();
    }
}

/// Begins to copy `bytes` (4, 8 or 16) to shared memory. Only the first `src_bytes` come from `src_global`;
/// the rest becomes zero.
///
/// # Safety
/// Until the copy has been waited for, `src_global` is valid for reads of `src_bytes` and `dst_shared` for
/// writes of `bytes`, or checking is on and the addresses are in tracked and shared memory.
#[track_caller]
#[inline(never)]
pub unsafe fn copy(dst_shared: *mut u8, src_global: *const u8, bytes: usize, src_bytes: usize) {
    let location = Location::caller();
    let thread = current("simt::async_copy::copy");
    if !matches!(bytes, 4 | 8 | 16) || src_bytes > bytes {
        let message = format!("cp.async of {bytes} bytes, {src_bytes} of them from the source");
        thread.fail(FaultKind::AsyncCopyInvalid, location, message);
    }
    if !(dst_shared as usize).is_multiple_of(bytes) || !(src_global as usize).is_multiple_of(bytes) {
        let message = format!("cp.async of {bytes} bytes from {src_global:?} to {dst_shared:?}");
        thread.fail(FaultKind::AsyncCopyInvalid, location, message);
    }
    if thread.block().arena.offset_of(dst_shared as usize).is_none() {
        let message = format!("cp.async to {dst_shared:?}, which is no shared memory");
        thread.fail(FaultKind::AsyncCopyInvalid, location, message);
    }
    let site = RawSite::of(location);
    if thread.checked() {
        if src_bytes != 0 {
            let address = src_global as usize;
            check::typed_access(
                thread,
                Access { address, size: src_bytes, align: 1, kind: AccessKind::AsyncRead, site },
            );
        }
        let address = dst_shared as usize;
        check::typed_access(
            thread,
            Access { address, size: bytes, align: 1, kind: AccessKind::AsyncWrite, site },
        );
    }
    let copy = PendingCopy { dst: dst_shared, src: src_global, bytes, src_bytes, site };
    thread.copies.borrow_mut().open.push(copy);
}

/// Commits the copies begun since the last commit as a group.
#[track_caller]
#[inline(never)]
pub fn commit() {
    let mut copies = current("simt::async_copy::commit").copies.borrow_mut();
    let group = std::mem::take(&mut copies.open);
    copies.groups.push_back(group);
}

/// Waits until at most `pending` of the latest groups are under way.
#[track_caller]
#[inline(never)]
pub fn wait(pending: u32) {
    let thread = current("simt::async_copy::wait");
    loop {
        let mut copies = thread.copies.borrow_mut();
        if copies.groups.len() <= pending as usize {
            return;
        }
        let group = copies.groups.pop_front();
        drop(copies);
        group.iter().flatten().for_each(|copy| copy.carry_out(thread));
    }
}

/// Waits for all copies, committed or not (`cp.async.wait_all`).
#[track_caller]
#[inline(never)]
pub fn wait_all() {
    finish(current("simt::async_copy::wait_all"));
}

/// Carries out the copies that are still under way.
pub(crate) fn finish(thread: &Thread) {
    let copies = std::mem::take(&mut *thread.copies.borrow_mut());
    copies.groups.iter().flatten().chain(&copies.open).for_each(|copy| copy.carry_out(thread));
}

impl PendingCopy {
    fn carry_out(&self, thread: &Thread) {
        // SAFETY: `copy`'s contract covers both ranges until now; the destination is in shared memory, the
        // source is not written by this thread meanwhile.
        unsafe {
            std::ptr::copy(self.src, self.dst, self.src_bytes);
            std::ptr::write_bytes(self.dst.add(self.src_bytes), 0, self.bytes - self.src_bytes);
        }
        if thread.checked() {
            check::copy_arrived(thread, self.dst as usize, self.bytes, self.site);
            let source = self.src as usize;
            check::global_access_over(thread, source, self.src_bytes, AccessKind::Read, self.site);
        }
    }
}
