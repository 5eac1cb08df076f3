//! Bulk copies by the async proxy: `cp.async.bulk`, `cp.reduce.async.bulk`, and the groups by which a thread
//! waits for its copies to global memory.
//!
//! Bytes move some time after the copy was begun; the seed decides when. A copy to shared memory completes on
//! an mbarrier; one to global memory belongs to a bulk group of its thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::Location;
use std::rc::Rc;

use crate::check::proxy::{self, Agent, Operation};
use crate::check::{self, Access};
use crate::cluster::{self, Target};
use crate::exec::context::{Thread, Wait, current};
use crate::exec::group::Group;
use crate::fault::{AccessKind, FaultKind};
use crate::mbarrier;
use crate::reduction::{Reduction, combiner};
use crate::site::RawSite;
use crate::tensor_map::DataType;

/// Bulk copies of a thread from shared to global memory.
#[derive(Default)]
pub(crate) struct BulkGroups {
    /// Begun, in no group yet.
    open: Vec<Store>,
    /// Committed groups that the thread has not waited for, oldest first.
    groups: VecDeque<Vec<Store>>,
    /// Groups committed so far.
    committed: u32,
    /// The number of groups that the thread knows have read their source.
    read: u32,
}

/// A copy from shared to global memory.
pub(crate) struct Store {
    has_landed: Rc<Cell<bool>>,
    operation: Option<u32>,
    /// Addresses and bytes that it writes.
    writes: Vec<(usize, usize)>,
    /// The kind of these accesses.
    kind: AccessKind,
    site: RawSite,
}

/// Sizes and addresses of bulk copies are multiples of this number of bytes.
const GRANULE: usize = 16;

fn require_granules(
    thread: &Thread,
    op: &str,
    global: usize,
    shared: u32,
    bytes: u32,
    location: &'static Location<'static>,
) {
    let parts = [("global address", global), ("shared address", shared as usize), ("size", bytes as usize)];
    if let Some((what, value)) = parts.into_iter().find(|(_, value)| !value.is_multiple_of(GRANULE)) {
        let message = format!("{op}: its {what} {value:#x} is no multiple of {GRANULE}");
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
}

/// Fails unless the bytes are in the arena: only there can they be accessed. The checker checks more.
pub(crate) fn require_in_arena(
    thread: &Thread,
    target: &Target<'_>,
    bytes: usize,
    op: &str,
    location: &'static Location<'static>,
) {
    if !target.block.arena.has(target.offset, bytes) {
        let message = format!("{op}: {bytes} bytes at {:#x} are not all in shared memory", target.offset);
        thread.fail(FaultKind::OutOfBounds, location, message);
    }
}

/// Begins to copy `bytes` from global memory to shared memory at `dst`, which completes on the mbarrier at
/// `bar` (`cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes`).
///
/// # Safety
/// Until the mbarrier reports that the bytes have arrived, `src_global` is valid for reads and nothing
/// touches the destination; or checking is on.
#[track_caller]
#[inline(never)]
pub unsafe fn load(dst: u32, src_global: *const u8, bytes: u32, bar: u32) {
    const OP: &str = "cp.async.bulk";
    let location = Location::caller();
    let thread = current("simt::bulk::load");
    require_granules(thread, OP, src_global as usize, dst, bytes, location);
    let (target, bar) = remote(thread, dst, bar, OP, location);
    let len = bytes as usize;
    require_in_arena(thread, &target, len, OP, location);
    let arrival = mbarrier::begin_copy(thread, &bar, len, OP, location);
    let site = RawSite::of(location);
    if thread.checked() {
        read_global(thread, src_global as usize, len, arrival.operation(), site);
        write_shared(thread, &target, len, arrival.operation(), site);
    }
    let (to, issuer) = (target.block.arena.at(target.offset), thread.slot);
    thread.group().take_off(Box::new(move |group: &Group<'_>| {
        // SAFETY: the destination is in the arena, which has been checked; the caller vouches for the source.
        unsafe { std::ptr::copy(src_global, to, len) };
        arrival.complete(group, &group.threads[issuer as usize]);
    }));
}

/// Begins to copy `bytes` from shared memory at `src` to global memory, as part of the thread's open bulk
/// group (`cp.async.bulk.global.shared::cta.bulk_group`).
///
/// # Safety
/// Until the group has been waited for, `dst_global` is valid for writes and nothing else touches it, and
/// nothing writes to the source; or checking is on.
#[track_caller]
#[inline(never)]
pub unsafe fn store(dst_global: *mut u8, src: u32, bytes: u32) {
    const OP: &str = "cp.async.bulk to global memory";
    let location = Location::caller();
    let thread = current("simt::bulk::store");
    let target = source(thread, dst_global as usize, src, bytes, OP, location);
    let len = bytes as usize;
    let writes = vec![(dst_global as usize, len)];
    let from = target.block.arena.at(target.offset);
    // SAFETY: the source is in the arena, which has been checked; the caller vouches for the destination.
    let carry_out = move || unsafe { std::ptr::copy(from, dst_global, len) };
    begin_store(thread, &target, len, writes, AccessKind::AsyncWrite, location, carry_out);
}

/// As [`store`], but combines elements with those in global memory, each atomically
/// (`cp.reduce.async.bulk.global.shared::cta.bulk_group`).
///
/// # Safety
/// As [`store`]; others may reduce into the destination meanwhile.
#[track_caller]
#[inline(never)]
pub unsafe fn reduce(reduction: Reduction, elements: DataType, dst_global: *mut u8, src: u32, bytes: u32) {
    const OP: &str = "cp.reduce.async.bulk";
    let location = Location::caller();
    let thread = current("simt::bulk::reduce");
    let target = source(thread, dst_global as usize, src, bytes, OP, location);
    let Some(combine) = combiner(elements, reduction) else {
        let message = format!("{OP}: {reduction:?} is not defined for {elements:?}");
        thread.fail(FaultKind::BulkCopyInvalid, location, message)
    };
    let writes = vec![(dst_global as usize, bytes as usize)];
    let from = target.block.arena.at(target.offset);
    let carry_out = move || {
        // SAFETY: the source is in the arena, which has been checked.
        let values = unsafe { std::slice::from_raw_parts(from, bytes as usize) };
        for (index, value) in values.chunks_exact(elements.bytes()).enumerate() {
            // SAFETY: the caller vouches for the destination, whose elements have the size of the value.
            unsafe { combine(dst_global.add(index * elements.bytes()), value) };
        }
    };
    begin_store(thread, &target, bytes as usize, writes, AccessKind::AsyncAtomic, location, carry_out);
}

/// Begins to copy `bytes` from the block's shared memory at `src` to `dst` in shared memory of a block of the
/// cluster, which completes on the mbarrier at `bar` of that block
/// (`cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes`).
///
/// # Safety
/// Until the mbarrier reports that the bytes have arrived, nothing touches the destination or writes to the
/// source; or checking is on.
#[track_caller]
#[inline(never)]
pub unsafe fn copy_shared(dst: u32, src: u32, bytes: u32, bar: u32) {
    const OP: &str = "cp.async.bulk to shared memory of the cluster";
    let location = Location::caller();
    let thread = current("simt::bulk::copy_shared");
    let from = source(thread, 0, src, bytes, OP, location);
    let (to, bar) = remote(thread, dst, bar, OP, location);
    require_granules(thread, OP, 0, to.offset, bytes, location);
    let len = bytes as usize;
    require_in_arena(thread, &to, len, OP, location);
    let arrival = mbarrier::begin_copy(thread, &bar, len, OP, location);
    let site = RawSite::of(location);
    if let Some(operation) = arrival.operation() {
        let address = from.block.arena.at(from.offset) as usize;
        let access = Access { address, size: len, align: 1, kind: AccessKind::AsyncRead, site };
        proxy::async_access(thread, from.block, access, operation);
        write_shared(thread, &to, len, arrival.operation(), site);
    }
    let (from, to) = (from.block.arena.at(from.offset).cast_const(), to.block.arena.at(to.offset));
    let issuer = thread.slot;
    thread.group().take_off(Box::new(move |group: &Group<'_>| {
        // SAFETY: both are in their arenas, which has been checked.
        unsafe { std::ptr::copy(from, to, len) };
        arrival.complete(group, &group.threads[issuer as usize]);
    }));
}

/// A destination in shared memory of the cluster, and the mbarrier of the same block.
pub(crate) fn remote<'t>(
    thread: &'t Thread,
    dst: u32,
    bar: u32,
    op: &str,
    location: &'static Location<'static>,
) -> (Target<'t>, Target<'t>) {
    let to = cluster::resolve(thread, dst, op, location);
    let bar = cluster::resolve(thread, bar, op, location);
    if bar.block_slot != to.block_slot {
        let message = format!("{op}: destination and mbarrier are in different blocks");
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    (to, bar)
}

fn source<'t>(
    thread: &'t Thread,
    global: usize,
    src: u32,
    bytes: u32,
    op: &str,
    location: &'static Location<'static>,
) -> Target<'t> {
    require_granules(thread, op, global, src, bytes, location);
    let target = own_source(thread, src, op, location);
    require_in_arena(thread, &target, bytes as usize, op, location);
    target
}

/// Shared memory of the thread's own block, from which it copies.
pub(crate) fn own_source<'t>(
    thread: &'t Thread,
    src: u32,
    op: &str,
    location: &'static Location<'static>,
) -> Target<'t> {
    let target = cluster::resolve(thread, src, op, location);
    if target.block_slot != thread.block_slot {
        let message = format!("{op}: its source is in another block's shared memory");
        thread.fail(FaultKind::BulkCopyInvalid, location, message);
    }
    target
}

/// Checks reads of global memory by a copy that begins now.
pub(crate) fn read_global(
    thread: &Thread,
    address: usize,
    size: usize,
    operation: Option<u32>,
    site: RawSite,
) {
    let Some(operation) = operation.filter(|_| size != 0) else { return };
    let access = Access { address, size, align: 1, kind: AccessKind::AsyncRead, site };
    check::global_async_read(thread, access, operation);
}

/// Checks writes to shared memory by a copy that begins now.
pub(crate) fn write_shared(
    thread: &Thread,
    target: &Target<'_>,
    size: usize,
    operation: Option<u32>,
    site: RawSite,
) {
    let Some(operation) = operation else { return };
    let address = target.block.arena.at(target.offset) as usize;
    let access = Access { address, size, align: 1, kind: AccessKind::AsyncWrite, site };
    proxy::async_access(thread, target.block, access, operation);
}

/// Begins a copy of `bytes` from shared memory to global memory, where it makes accesses of `kind` to
/// `writes`.
pub(crate) fn begin_store(
    thread: &Thread,
    from: &Target<'_>,
    bytes: usize,
    writes: Vec<(usize, usize)>,
    kind: AccessKind,
    location: &'static Location<'static>,
    carry_out: impl FnOnce() + 'static,
) {
    let site = RawSite::of(location);
    let mut operation = None;
    if thread.checked() {
        let agent = Agent::of_thread(thread.block().number.get(), thread.rank);
        let number = thread.group().operations.begin(agent, Operation::UNKNOWN);
        operation = Some(number);
        let address = from.block.arena.at(from.offset) as usize;
        let access = Access { address, size: bytes, align: 1, kind: AccessKind::AsyncRead, site };
        proxy::async_access(thread, from.block, access, number);
        for &(address, size) in &writes {
            let access = Access { address, size, align: 1, kind, site };
            check::require_global(thread, access);
            check::typed_access(thread, access);
        }
    }
    let has_landed = Rc::new(Cell::new(false));
    let store = Store { has_landed: Rc::clone(&has_landed), operation, writes, kind, site };
    thread.bulk.borrow_mut().open.push(store);
    let issuer = thread.slot;
    thread.group().take_off(Box::new(move |group: &Group<'_>| {
        carry_out();
        has_landed.set(true);
        let issuer = &group.threads[issuer as usize];
        if matches!(issuer.wait.get(), Wait::BulkGroups { .. }) {
            group.wake(issuer.slot);
        }
    }));
}

/// Commits the copies to global memory begun since the last commit as a group (`cp.async.bulk.commit_group`).
#[track_caller]
#[inline(never)]
pub fn commit_group() {
    let thread = current("simt::bulk::commit_group");
    let mut bulk = thread.bulk.borrow_mut();
    let group = std::mem::take(&mut bulk.open);
    for operation in group.iter().filter_map(|store| store.operation) {
        thread.group().operations.settle(operation, bulk.committed);
    }
    bulk.groups.push_back(group);
    bulk.committed += 1;
}

/// Waits until at most `pending` of the thread's latest groups are under way (`cp.async.bulk.wait_group`).
#[track_caller]
#[inline(never)]
pub fn wait_group(pending: u32) {
    let thread = current("simt::bulk::wait_group");
    wait_until_landed(thread, pending, Location::caller());
    let mut bulk = thread.bulk.borrow_mut();
    let over = bulk.groups.len().saturating_sub(pending as usize);
    let groups: Vec<_> = bulk.groups.drain(..over).collect();
    drop(bulk);
    groups.iter().flatten().for_each(|store| store.is_written(thread));
}

/// Waits until all but the latest `pending` groups have read their source (`cp.async.bulk.wait_group.read`).
#[track_caller]
#[inline(never)]
pub fn wait_group_read(pending: u32) {
    wait_until_landed(current("simt::bulk::wait_group_read"), pending, Location::caller());
}

fn wait_until_landed(thread: &Thread, pending: u32, location: &'static Location<'static>) {
    while thread.bulk.borrow().is_under_way(pending as usize) {
        thread.wait_for(Wait::BulkGroups { pending }, location);
    }
    let mut bulk = thread.bulk.borrow_mut();
    bulk.read = bulk.read.max(bulk.committed.saturating_sub(pending));
    let read = bulk.read;
    drop(bulk);
    if thread.checked() {
        check::completed(thread, Agent::of_thread(thread.block().number.get(), thread.rank), read);
    }
}

impl BulkGroups {
    fn is_under_way(&self, pending: usize) -> bool {
        let waited_for = self.groups.len().saturating_sub(pending);
        self.groups.iter().take(waited_for).flatten().any(|store| !store.has_landed.get())
    }
}

impl Store {
    /// Records that the thread knows that the bytes are in global memory.
    fn is_written(&self, thread: &Thread) {
        if thread.checked() {
            for &(address, bytes) in &self.writes {
                match self.kind {
                    AccessKind::AsyncAtomic => {
                        check::global_access_over(thread, address, bytes, AccessKind::Atomic, self.site);
                    }
                    _ => check::global_copy_arrived(thread, address, bytes, self.site),
                }
            }
        }
    }
}

/// At the end of a thread, checks that copies have read their source: it may be gone afterwards.
pub(crate) fn finish(thread: &Thread) {
    let bulk = thread.bulk.take();
    let unread =
        bulk.groups.iter().skip(bulk.groups.len().saturating_sub((bulk.committed - bulk.read) as usize));
    let unread = unread.flatten().chain(&bulk.open).next().map(|store| store.site);
    if let Some(site) = unread
        && thread.checked()
    {
        drop(bulk);
        let message = "the thread ends without having waited for a copy to read its shared memory".into();
        thread.fail_access(FaultKind::CopyUnfinished, site, message, None, None);
    }
    bulk.groups.iter().flatten().for_each(|store| store.is_written(thread));
}
