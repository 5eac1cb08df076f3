//! The usual plain reads, decided in a few instructions: the bytes are one cell, which was written before the
//! last barrier of the block, or by the reader, or not in this launch. All other accesses go the long way,
//! which comes to the same result.

use std::sync::PoisonError;

use super::cell::PAGE_BYTES;
use super::{WRITTEN, stamp_at};
use crate::exec::context::Thread;
use crate::fault::AccessKind;
use crate::site::RawSite;

/// Checks and records a read of `SIZE` bytes. False: nothing is decided, and nothing recorded.
#[inline(always)]
pub(super) fn read<const SIZE: usize>(thread: &Thread, address: usize, site: RawSite) -> bool {
    let block = thread.block();
    let floor = block.check.sync.floor();
    // A warp sync or an atomic tells more than the floor does.
    if thread.check.sync.knows_more_than(floor) {
        return false;
    }
    match block.arena.offset_of(address) {
        Some(offset) => shared_read::<SIZE>(thread, offset, floor, site),
        None => global_read::<SIZE>(thread, address, floor, site),
    }
}

#[inline(always)]
fn shared_read<const SIZE: usize>(thread: &Thread, offset: usize, floor: u32, site: RawSite) -> bool {
    let block = thread.block();
    let mut shadow = block.check.shared.borrow_mut();
    let shadow = &mut *shadow;
    let bytes = shadow.bytes.get(offset..).and_then(|bytes| bytes.first_chunk::<SIZE>());
    let is_written = bytes.is_some_and(|bytes| *bytes == [WRITTEN; SIZE]);
    let Some(page) = shadow.pages.get_mut(offset / PAGE_BYTES).filter(|_| is_written) else { return false };
    let Some(cell) = page.sole_cell(offset % PAGE_BYTES, SIZE) else { return false };
    let now = stamp_at(thread, block, AccessKind::Read, site);
    // Shadows are reused: accesses of another block were to other memory.
    cell.is_of_block(now.block) && cell.read_below(now, floor)
}

#[inline(never)]
fn global_read<const SIZE: usize>(thread: &Thread, address: usize, floor: u32, site: RawSite) -> bool {
    let (launch, block) = (&thread.group().launch, thread.block());
    let Some(check) = launch.check.as_ref().filter(|_| !launch.config.overlapping) else { return false };
    if thread.check.sync.knows_of_others(block) {
        return false;
    }
    let Some((number, allocation)) = check.find(address) else { return false };
    let offset = address - allocation.start;
    if offset + SIZE > allocation.len || !allocation.is_written(offset, SIZE) {
        return false;
    }
    let Some(page) = check.pages(number)[offset / PAGE_BYTES].get() else { return false };
    let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(cell) = page.sole_cell(offset % PAGE_BYTES, SIZE) else { return false };
    cell.read_below(stamp_at(thread, block, AccessKind::Read, site), floor)
}
