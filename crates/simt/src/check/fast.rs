//! The usual plain read of shared memory, decided in a few instructions: the bytes are one cell, written
//! before the last barrier of the block, or by the reader. All other accesses go the long way, which
//! comes to the same result.

use super::cell::{PAGE_BYTES, Stamp};
use super::{WRITTEN, stamp_at};
use crate::exec::context::Thread;
use crate::fault::AccessKind;
use crate::site::RawSite;

/// Checks and records a read of `SIZE` bytes. False: nothing is decided, and nothing recorded.
#[inline(always)]
pub(super) fn shared_read<const SIZE: usize>(thread: &Thread, address: usize, site: RawSite) -> bool {
    let block = thread.block();
    let Some(offset) = block.arena.offset_of(address) else { return false };
    let sync = &block.check.sync;
    let floor = sync.floor();
    // A warp sync or an atomic tells more than the floor does.
    if thread.check.sync.knows_more_than(floor) {
        return false;
    }
    let mut shadow = block.check.shared.borrow_mut();
    let shadow = &mut *shadow;
    let bytes = shadow.bytes.get(offset..).and_then(|bytes| bytes.first_chunk::<SIZE>());
    let is_written = bytes.is_some_and(|bytes| *bytes == [WRITTEN; SIZE]);
    let Some(page) = shadow.pages.get_mut(offset / PAGE_BYTES).filter(|_| is_written) else { return false };
    let Some(cell) = page.sole_cell(offset % PAGE_BYTES, SIZE) else { return false };
    let now: Stamp = stamp_at(thread, block, AccessKind::Read, site);
    cell.read_below(now, floor)
}
