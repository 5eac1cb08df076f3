//! The checker: checks every access to shared and tracked global memory against the history of that memory.
//!
//! Accesses come in two ways: typed, from [`crate::memory`], and as callbacks of instrumented code
//! ([`callbacks`]). Both end in [`access`]. An access is first checked by address (bounds, lifetime,
//! alignment, initialisation), then against the accesses before it ([`cell`]). Two accesses are a race if
//! they touch the same byte, at least one is a write, not both are atomic, and nothing orders them
//! ([`sync`]). Asynchronous operations are checked when they begin; [`proxy`] records the threads that have
//! waited for them.

mod address;
mod allocations;
mod callbacks;
mod cell;
mod clock;
mod fast;
mod launch;
pub(crate) mod proxy;
mod remote;
mod settled;
pub(crate) mod space;
mod sync;
pub(crate) mod unchecked;

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use crate::exec::context::{Block, RawFault, RawOther, Thread};
use crate::fault::{self, AccessKind, FaultKind, Place};
use crate::memory::Scope;
use crate::region;
use crate::site::RawSite;

pub(crate) use allocations::{Allocations, Contents};
pub(crate) use cell::Stamp;
use cell::{Clash, PAGE_BYTES, Page, pages};
use launch::Found;
pub(crate) use launch::{GlobalMemory, LaunchCheck};
use remote::RemoteAccesses;
pub(crate) use remote::{block_ends, remote_access, remote_copy};
use settled::Settled;
pub(crate) use space::require_global;
use sync::{BlockSync, ThreadSync, View};
pub(crate) use sync::{
    ClusterRelease, Learnt, Released, atomic_order, completed, fence, group_ends, knows_of, proxy_fence,
    publish_earlier_launches, synchronise, synchronise_grid,
};

/// One access of a simulated thread.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub address: usize,
    pub size: usize,
    /// Alignment that the access needs; 1 when unknown.
    pub align: usize,
    pub kind: AccessKind,
    pub site: RawSite,
}

/// The checker's state for a block.
#[derive(Default)]
pub(crate) struct BlockCheck {
    pub sync: BlockSync,
    shared: RefCell<SharedShadow>,
    /// A read of unwritten shared memory. It becomes a fault at the next barrier of the block, unless a
    /// thread writes there before: then it is reported as a race, which says more.
    pub suspicion: RefCell<Option<RawFault>>,
    /// Accesses of other blocks to this block's shared memory that the block may not know of.
    remote: RefCell<RemoteAccesses>,
}

/// State of the bytes of the arena, and their history.
#[derive(Default)]
struct SharedShadow {
    bytes: Vec<Byte>,
    pages: Vec<Page>,
    settled: Settled,
}

/// State of a byte of shared memory, as bits: the state of many bytes is the bitwise or of theirs.
type Byte = u8;
const WRITTEN: Byte = 0;
const UNWRITTEN: Byte = 1;
/// In a live mbarrier.
const MBARRIER: Byte = 2;
/// In no variable.
const OUTSIDE: Byte = 4;

/// The checker's state for a thread.
#[derive(Default)]
pub(crate) struct ThreadCheck {
    pub sync: ThreadSync,
    /// A number of the latest plain load's line and address, and how many times in a row it came.
    polled: Cell<(u64, u32)>,
    /// Whether it has waited for the launch before this one.
    pub has_waited: Cell<bool>,
}

impl BlockCheck {
    pub fn reset(&self) {
        self.sync.reset();
        self.suspicion.take();
        self.shared.borrow_mut().bytes.fill(OUTSIDE);
        self.remote.borrow_mut().clear();
    }

    /// Records a new shared variable.
    pub fn allocated(&self, offset: usize, len: usize) {
        let mut shared = self.shared.borrow_mut();
        let end = offset + len;
        if shared.bytes.len() < end {
            shared.bytes.resize(end, OUTSIDE);
            shared.pages.resize_with(end.div_ceil(PAGE_BYTES), Page::default);
            shared.settled.resize(end);
        }
        shared.bytes[offset..end].fill(UNWRITTEN);
    }

    /// Bytes that nobody has written may be read from now on.
    pub fn accept_unwritten(&self, offset: usize, len: usize) {
        self.shared.borrow_mut().bytes[offset..offset + len].iter_mut().for_each(|byte| *byte &= !UNWRITTEN);
    }

    /// Marks bytes as those of a live mbarrier, or as ordinary unwritten memory.
    pub fn set_mbarrier(&self, offset: usize, len: usize, live: bool) {
        let mut shared = self.shared.borrow_mut();
        shared.bytes[offset..offset + len].fill(if live { MBARRIER } else { UNWRITTEN });
    }
}

impl ThreadCheck {
    pub fn reset(&self) {
        self.sync.reset();
        self.polled.take();
        self.has_waited.set(false);
    }

    /// Records a plain load. Returns whether the thread has done nothing else for so long that it probably
    /// polls: it waits for another thread to change the value.
    #[inline]
    fn is_polling(&self, site: RawSite, address: usize) -> bool {
        const PATIENCE: u32 = 256;
        let load = site.bits().rotate_left(32) ^ address as u64;
        let (last, times) = self.polled.get();
        let times = if last == load { times + 1 } else { 0 };
        self.polled.set((load, times % PATIENCE));
        times == PATIENCE
    }

    pub fn release_into(&self, thread: &Thread, before: Option<Released>) -> Released {
        self.sync.release_into(thread, before)
    }
}

/// Checks an access through this crate's functions: its address must be known.
pub(crate) fn typed_access(thread: &Thread, access: Access) {
    require_aligned(thread, access);
    let is_elsewhere = !thread.is_on_stack(access.address) && access.size != 0;
    if is_elsewhere && !fast::typed_read(thread, access) {
        self::access(thread, access, true);
    }
}

/// Checks the alignment of an access.
pub(crate) fn require_aligned(thread: &Thread, access: Access) {
    if !access.address.is_multiple_of(access.align) {
        let message = format!("the address {:#x} is no multiple of {}", access.address, access.align);
        report(thread, access, FaultKind::Misaligned, message, None);
    }
}

/// Checks an access, such as one of plain Rust, that may be to unregistered memory.
pub(crate) fn plain_access(thread: &Thread, access: Access) {
    if thread.is_on_stack(access.address) {
        own_stack_access(thread, access);
    } else {
        self::access(thread, access, false);
    }
}

/// Checks an access of plain Rust to the thread's own stack: accumulators of products are there.
#[inline]
pub(crate) fn own_stack_access(thread: &Thread, access: Access) {
    if thread.products.may_hold(access.address, access.size)
        && let Some(product) = thread.products.holds(access.address, access.size)
        && thread.checked()
    {
        let other = RawOther {
            kind: AccessKind::AsyncWrite,
            site: product,
            block: thread.block().number.get(),
            rank: thread.rank,
        };
        thread.fail_access(FaultKind::WgmmaPending, access.site, String::new(), None, Some(other));
    }
}

/// Whether the checker keeps the history of the memory at an address.
pub(crate) fn is_followed(thread: &Thread, address: usize) -> bool {
    let is_global = |check: &LaunchCheck| check.find(address).is_some();
    thread.block().arena.offset_of(address).is_some()
        || thread.group().launch.check.as_ref().is_some_and(is_global)
}

/// A volatile access to global memory, checked before, orders what a relaxed atomic one orders.
fn volatile_order(thread: &Thread, access: Access) {
    atomic_order(thread, access, false, Ordering::Relaxed, Scope::System);
}

/// Checks an access that is not to the thread's own stack. `is_typed`: unregistered memory is always a fault.
#[inline]
fn access(thread: &Thread, access: Access, is_typed: bool) {
    let block = thread.block();
    if block.arena.offset_of(access.address).is_some() {
        return shared_access(thread, access);
    }
    let Some(check) = &thread.group().launch.check else { return };
    // Every thread reads the kernel's parameters, which no allocation holds.
    if !region::contains(access.address) && check.is_param(access.address) {
        return;
    }
    match check.find(access.address) {
        Some(found) => global_access(thread, check, access, stamp(thread, access), found),
        None => address::check_stray(thread, check, access, is_typed),
    }
}

/// Checks a read of global memory by the async proxy, which is part of operation number `operation`.
pub(crate) fn global_async_read(thread: &Thread, access: Access, operation: u32) {
    require_global(thread, access);
    let check = thread.group().launch.check.as_ref();
    match check.and_then(|check| Some((check, check.find(access.address)?))) {
        Some((check, found)) => {
            let now =
                Stamp::tracked(thread.block().number.get(), operation, thread.rank, access.kind, access.site);
            global_access(thread, check, access, now, found);
        }
        None => typed_access(thread, access),
    }
}

fn shared_access(thread: &Thread, access: Access) {
    let block = thread.block();
    // The borrows in `note_shared` end before `fail_shared`, which never returns.
    if let Err(problem) = note_shared(thread, block, access, stamp(thread, access)) {
        fail_shared(thread, access, problem);
    }
}

/// Records an access by `thread`, stamped `now`, to shared memory of `target`. The address lies in the arena
/// of `target`.
#[inline]
fn note_shared(thread: &Thread, target: &Block, access: Access, now: Stamp) -> Result<(), Problem> {
    let offset = access.address.wrapping_sub(target.arena.base() as usize);
    let mut shadow = target.check.shared.borrow_mut();
    let bytes = shadow.bytes.get_mut(offset..offset + access.size).ok_or(Problem::OutOfBounds)?;
    let state = bytes.iter().fold(WRITTEN, |all, byte| all | byte);
    if state & OUTSIDE != 0 {
        return Err(Problem::OutOfBounds);
    }
    if state & MBARRIER != 0 {
        return Err(Problem::Mbarrier);
    }
    if !access.kind.is_read() {
        bytes.fill(WRITTEN);
    } else if state & UNWRITTEN != 0 && lacks_value(access, |at| bytes[at] & UNWRITTEN == 0) {
        suspect(thread, access);
    }
    let blocks = &thread.group().blocks;
    let first = blocks[0].number.get() as u32;
    let view = View { thread, block: thread.block() };
    pages(offset, access.size).try_for_each(|(page, within, bytes)| {
        shadow.pages[page].visit(within, bytes, |cell| {
            // Shadows are reused from group to group; the accesses of an earlier group were to other memory.
            if cell.block().is_some_and(|block| block.wrapping_sub(first) as usize >= blocks.len()) {
                *cell = cell::Cell::default();
            }
            cell.access(now, &view).map_err(Problem::Clash)
        })
    })
}

/// Whether an access reads a value that nobody has written, given which of its bytes are written, not all. A
/// copy of structs covers their padding too, which no type has eight bytes of: only pieces of that size
/// count.
#[cold]
fn lacks_value(access: Access, is_written: impl Fn(usize) -> bool) -> bool {
    const PIECE: usize = 8;
    let head = (access.address.wrapping_neg() % PIECE).min(access.size);
    let is_unwritten = |from: usize, to: usize| from < to && !(from..to).any(&is_written);
    access.kind != AccessKind::CopyRead
        || is_unwritten(0, head)
        || (head..access.size).step_by(PIECE).any(|from| is_unwritten(from, access.size.min(from + PIECE)))
}

/// Checks that an atomic operation, which is about to replace a value, finds one.
pub(crate) fn require_written(thread: &Thread, access: Access) {
    let block = thread.block();
    if let Some(offset) = block.arena.offset_of(access.address) {
        let shadow = block.check.shared.borrow();
        let bytes = shadow.bytes.get(offset..offset + access.size).unwrap_or(&[]);
        let lacks = bytes.iter().any(|byte| byte & UNWRITTEN != 0);
        drop(shadow);
        if lacks {
            suspect(thread, access);
        }
        return;
    }
    let Some(check) = &thread.group().launch.check else { return };
    if let Some(Found { allocation, .. }) = check.find(access.address)
        && !allocation.is_written(access.address - allocation.start, access.size)
    {
        report(thread, access, FaultKind::UninitialisedGlobal, String::new(), None);
    }
}

/// Records a read of unwritten shared memory; the first one counts. A kernel whose plain stores are not seen
/// may have written it.
#[cold]
fn suspect(thread: &Thread, access: Access) {
    if thread.group().launch.check.as_ref().is_some_and(|check| !check.sees_plain()) {
        return;
    }
    let mut suspicion = thread.block().check.suspicion.borrow_mut();
    suspicion.get_or_insert_with(|| {
        let described = describe(thread, access);
        thread.fault(FaultKind::UninitialisedShared, access.site, String::new(), Some(described), None)
    });
}

/// The fault of an access.
enum Problem {
    OutOfBounds,
    /// A plain access to a live mbarrier.
    Mbarrier,
    Clash(Clash),
}

#[cold]
fn fail_shared(thread: &Thread, access: Access, problem: Problem) -> ! {
    match problem {
        Problem::OutOfBounds => report(thread, access, FaultKind::OutOfBounds, String::new(), None),
        Problem::Mbarrier => {
            let message = "the bytes are those of a live mbarrier".into();
            report(thread, access, FaultKind::MbarrierInvalid, message, None)
        }
        Problem::Clash(Clash::Race(earlier)) => race(thread, access, earlier, FaultKind::SharedRace),
        Problem::Clash(Clash::ReadOnly(earlier)) => read_only(thread, access, earlier),
        Problem::Clash(Clash::Unfenced(earlier)) => {
            report(thread, access, FaultKind::ProxyFence, String::new(), Some(other(earlier)))
        }
    }
}

fn global_access(thread: &Thread, check: &LaunchCheck, access: Access, now: Stamp, found: Found<'_>) {
    let allocation = found.allocation;
    let offset = access.address - allocation.start;
    if offset + access.size > allocation.len {
        let over = offset + access.size - allocation.len;
        let message = format!("its last {over} bytes are beyond the end");
        report(thread, access, FaultKind::OutOfBounds, message, None);
    }
    if thread.group().launch.config.overlapping && !thread.check.has_waited.get() {
        let message = "the launch before this one, which it overlaps, may still be at work there".into();
        report(thread, access, FaultKind::DependencyPending, message, None);
    }
    let view = View { thread, block: thread.block() };
    let shadow = check.pages(found);
    let result = pages(offset, access.size).try_for_each(|(page, within, bytes)| {
        let mut page =
            shadow[page].get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        page.visit(within, bytes, |cell| cell.access(now, &view))
    });
    match result {
        Ok(()) => {}
        Err(Clash::Race(earlier)) if earlier.block == now.block => {
            race(thread, access, earlier, FaultKind::GlobalRace)
        }
        Err(Clash::Race(earlier)) if thread.group().launch.membership.has(earlier.block) => {
            race(thread, access, earlier, FaultKind::InterBlockRace)
        }
        Err(Clash::Race(earlier)) => race(thread, access, earlier, FaultKind::LaunchRace),
        Err(Clash::ReadOnly(earlier)) => read_only(thread, access, earlier),
        Err(Clash::Unfenced(earlier)) => {
            report(thread, access, FaultKind::ProxyFence, String::new(), Some(other(earlier)))
        }
    }
    let has_value = |at: usize| allocation.is_written(offset + at, 1);
    if !access.kind.is_read() {
        allocation.written(offset, access.size);
    } else if !allocation.is_written(offset, access.size) && lacks_value(access, has_value) {
        report(thread, access, FaultKind::UninitialisedGlobal, String::new(), None);
    }
}

#[inline]
fn stamp(thread: &Thread, access: Access) -> Stamp {
    stamp_at(thread, thread.block(), access.kind, access.site)
}

#[inline]
fn stamp_at(thread: &Thread, block: &Block, kind: AccessKind, site: RawSite) -> Stamp {
    Stamp::new(block.number.get(), block.check.sync.time(), thread.rank, kind, site)
}

/// Records that asynchronous copies to `bytes` bytes of shared memory at `address` have arrived.
pub(crate) fn copy_arrived(thread: &Thread, address: usize, bytes: usize, site: RawSite) {
    let access = Access { address, size: bytes, align: 1, kind: AccessKind::Write, site };
    overwrite(thread.block(), access, stamp(thread, access));
}

/// Makes an access to shared memory of `block`, checked before, the latest write.
fn overwrite(block: &Block, access: Access, now: Stamp) {
    let Some(offset) = block.arena.offset_of(access.address) else { return };
    let mut shadow = block.check.shared.borrow_mut();
    for (page, within, bytes) in pages(offset, access.size) {
        let noted: Result<(), ()> = shadow.pages[page].visit(within, bytes, |cell| {
            cell.arrived(now);
            Ok(())
        });
        debug_assert!(noted.is_ok());
    }
}

/// Records that copies to `bytes` bytes of global memory at `address` have arrived for this thread.
pub(crate) fn global_copy_arrived(thread: &Thread, address: usize, bytes: usize, site: RawSite) {
    let access = Access { address, size: bytes, align: 1, kind: AccessKind::Write, site };
    let now = stamp(thread, access);
    for_global_cells(thread, access, |cell| cell.arrived(now));
}

/// Records that the thread has waited for its asynchronous accesses, now of `kind`, to `bytes` bytes of
/// global memory at `address`.
pub(crate) fn global_access_over(
    thread: &Thread,
    address: usize,
    bytes: usize,
    kind: AccessKind,
    site: RawSite,
) {
    let access = Access { address, size: bytes, align: 1, kind, site };
    let now = stamp(thread, access);
    for_global_cells(thread, access, |cell| cell.waited_for(now));
}

/// The thread's atomic operation on global memory, checked before, takes effect now. Between check and
/// effect, an operation of another OS thread may have been checked.
pub(crate) fn atomic_takes_effect(thread: &Thread, access: Access) {
    let now = stamp(thread, access);
    for_global_cells(thread, access, |cell| cell.atomic_arrived(now));
}

fn for_global_cells(thread: &Thread, access: Access, note: impl Fn(&mut cell::Cell)) {
    let Some(check) = &thread.group().launch.check else { return };
    let Some(found) = check.find(access.address) else { return };
    let shadow = check.pages(found);
    for (page, within, bytes) in pages(access.address - found.allocation.start, access.size) {
        let mut page =
            shadow[page].get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let noted: Result<(), ()> = page.visit(within, bytes, |cell| {
            note(cell);
            Ok(())
        });
        debug_assert!(noted.is_ok());
    }
}

#[cold]
fn race(thread: &Thread, access: Access, earlier: Stamp, kind: FaultKind) -> ! {
    let is_async = earlier.kind().is_async() || earlier.is_tracked();
    let kind = if is_async { FaultKind::AsyncCopyPending } else { kind };
    report(thread, access, kind, String::new(), Some(other(earlier)))
}

#[cold]
fn read_only(thread: &Thread, access: Access, earlier: Stamp) -> ! {
    report(thread, access, FaultKind::ReadOnlyPath, String::new(), Some(other(earlier)))
}

/// The earlier access of a fault.
pub(crate) fn other(earlier: Stamp) -> RawOther {
    RawOther { kind: earlier.kind(), site: earlier.site(), block: earlier.block.into(), rank: earlier.rank() }
}

#[cold]
fn report(thread: &Thread, access: Access, kind: FaultKind, message: String, other: Option<RawOther>) -> ! {
    let described = describe(thread, access);
    thread.fail_access(kind, access.site, message, Some(described), other)
}

fn describe(thread: &Thread, access: Access) -> fault::Access {
    fault::Access { kind: access.kind, size: access.size, place: address::place(thread, access.address) }
}
