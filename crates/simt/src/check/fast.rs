//! The usual plain accesses, decided in a few instructions. All others go the long way, which comes to the
//! same result.

use std::sync::PoisonError;

use super::cell::{Cell, PAGE_BYTES};
use super::settled::WORD;
use super::{Access, SharedShadow, WRITTEN, stamp_at};
use crate::exec::context::{Block, Thread};
use crate::fault::AccessKind;
use crate::region;
use crate::site::RawSite;

/// Whether a read of `SIZE` aligned bytes needs no check and would not be recorded.
#[inline(always)]
pub(super) fn is_settled<const SIZE: usize>(thread: &Thread, address: usize) -> bool {
    let block = thread.block();
    let sync = &block.check.sync;
    // SAFETY: the reference ends before anything borrows the cell mutably.
    let Ok(shadow) = (unsafe { block.check.shared.try_borrow_unguarded() }) else { return false };
    let offset = address.wrapping_sub(block.arena.base() as usize);
    shadow.settled.is_settled::<SIZE>(thread, offset, sync)
        && !thread.check.sync.knows_more_than(sync.floor())
}

/// The thread's block and its floor, if the thread knows of no order between accesses but that of barriers: a
/// warp sync or an atomic tells more than the floor does.
#[inline(always)]
fn barriers_alone(thread: &Thread) -> Option<(&Block, u32)> {
    let block = thread.block();
    let floor = block.check.sync.floor();
    (!thread.check.sync.knows_more_than(floor)).then_some((block, floor))
}

/// Checks and records a read of `SIZE` bytes that are one cell, which was written before the last barrier of
/// the block, or by the reader, or not in this launch. Nothing is recorded of a parameter. False: nothing is
/// decided, and nothing recorded.
#[inline(always)]
pub(super) fn read<const SIZE: usize>(thread: &Thread, address: usize, site: RawSite) -> bool {
    let Some((block, floor)) = barriers_alone(thread) else { return false };
    match block.arena.offset_of(address) {
        Some(offset) => shared_read::<SIZE>(thread, offset, floor, site),
        None => global_read::<SIZE>(thread, address, floor, site),
    }
}

/// As [`read`], of an aligned access through this crate's functions.
#[inline]
pub(super) fn typed_read(thread: &Thread, access: Access) -> bool {
    access.kind == AccessKind::Read
        && match access.size {
            2 => read::<2>(thread, access.address, access.site),
            4 => read::<4>(thread, access.address, access.site),
            8 => read::<8>(thread, access.address, access.site),
            16 => read::<16>(thread, access.address, access.site),
            _ => false,
        }
}

/// Checks and records a write of `SIZE` bytes of shared memory that are one cell, whose accesses were before
/// the last barrier of the block, or by the writer. False: nothing is decided, and nothing recorded.
#[inline(always)]
pub(super) fn write<const SIZE: usize>(thread: &Thread, address: usize, site: RawSite) -> bool {
    let Some((block, floor)) = barriers_alone(thread) else { return false };
    let Some(offset) = block.arena.offset_of(address) else { return false };
    let mut shadow = block.check.shared.borrow_mut();
    let now = stamp_at(thread, block, AccessKind::Write, site);
    let Some(cell) = shadow.sole_cell::<SIZE>(offset, now.block) else { return false };
    cell.write_below(now, floor)
}

impl SharedShadow {
    /// The cell that covers just `SIZE` written bytes from `offset`, if only the block has used it.
    #[inline(always)]
    fn sole_cell<const SIZE: usize>(&mut self, offset: usize, block: u32) -> Option<&mut Cell> {
        let bytes = self.bytes.get(offset..)?.first_chunk::<SIZE>()?;
        let page = self.pages.get_mut(offset / PAGE_BYTES).filter(|_| *bytes == [WRITTEN; SIZE])?;
        // Shadows are reused: accesses of another block were to other memory.
        page.sole_cell(offset % PAGE_BYTES, SIZE).filter(|cell| cell.is_of_block(block))
    }
}

#[inline(always)]
fn shared_read<const SIZE: usize>(thread: &Thread, offset: usize, floor: u32, site: RawSite) -> bool {
    let block = thread.block();
    let mut shadow = block.check.shared.borrow_mut();
    let shadow = &mut *shadow;
    let now = stamp_at(thread, block, AccessKind::Read, site);
    let Some(cell) = shadow.sole_cell::<SIZE>(offset, now.block) else { return false };
    if !cell.read_below(now, floor) {
        return false;
    }
    if let Some(readers) = cell.settled_for(now, floor).filter(|_| SIZE >= WORD) {
        shadow.settled.settle(offset, SIZE, &block.check.sync, readers);
    }
    true
}

#[inline(never)]
fn global_read<const SIZE: usize>(thread: &Thread, address: usize, floor: u32, site: RawSite) -> bool {
    let (launch, block) = (&thread.group().launch, thread.block());
    let Some(check) = launch.check.as_ref().filter(|_| !launch.config.overlapping) else { return false };
    // Every thread reads the kernel's parameters, which no allocation holds.
    if !region::contains(address) {
        return check.is_param(address);
    }
    if thread.check.sync.knows_of_others(block) {
        return false;
    }
    let Some(found) = check.find(address) else { return false };
    let allocation = found.allocation;
    let offset = address - allocation.start;
    if offset + SIZE > allocation.len || !allocation.is_written(offset, SIZE) {
        return false;
    }
    let Some(page) = check.pages(found)[offset / PAGE_BYTES].get() else { return false };
    let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(cell) = page.sole_cell(offset % PAGE_BYTES, SIZE) else { return false };
    cell.read_below(stamp_at(thread, block, AccessKind::Read, site), floor)
}
