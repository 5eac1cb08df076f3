//! Asynchronous copies from global to shared memory: `cp.async`, `cp.async.commit_group`,
//! `cp.async.wait_group`, `cp.async.mbarrier.arrive.noinc`.
//!
//! The bytes move when the thread waits, not before, so a kernel that forgets to wait reads old data. Where
//! an mbarrier is told when copies are over, the seed decides the moment. For the checker, each batch of such
//! copies is then a turn of an agent of the thread (`Agent::of_copies`): the thread knows of it when it has
//! waited, others when a phase has ended to which an arrival after it belongs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::rc::Rc;

use crate::check::proxy::{self, Agent};
use crate::check::{self, Access};
use crate::exec::context::{Thread, current};
use crate::exec::group::Group;
use crate::fault::{AccessKind, FaultKind};
use crate::mbarrier;
use crate::site::RawSite;

/// Copies of a thread that are under way.
#[derive(Default)]
pub(crate) struct CopyQueue {
    /// Issued, in no group yet.
    open: Vec<PendingCopy>,
    /// As `open`, but an mbarrier will be told of them.
    told: Vec<Rc<Batch>>,
    /// Committed groups, oldest first.
    groups: VecDeque<Vec<Rc<Batch>>>,
    /// Turns of the thread's copies that have begun, for the checker.
    turns: u32,
}

/// Copies that a wait or an arrival carries out, whichever comes first.
#[derive(Default)]
struct Batch {
    pending: RefCell<Vec<PendingCopy>>,
    /// Its turn among the thread's copies, for the checker, if an mbarrier is told of it.
    turn: Cell<Option<u32>>,
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
        self.told.clear();
        self.groups.clear();
        self.turns = 0;
    }

    /// Closes the copies that are in no group into a batch. Of the batches there that are over, the last is
    /// kept: whoever waits for it has waited for those before.
    fn seal(&mut self) {
        let over = self.told.iter().take_while(|batch| batch.is_over()).count();
        self.told.drain(..over.saturating_sub(1));
        if !self.open.is_empty() {
            let pending = RefCell::new(std::mem::take(&mut self.open));
            self.told.push(Rc::new(Batch { pending, ..Batch::default() }));
        }
    }

    /// All batches, oldest first.
    fn batches(&self) -> impl Iterator<Item = &Rc<Batch>> {
        self.groups.iter().flatten().chain(&self.told)
    }

    /// Makes each batch that has no turn yet one.
    fn track(&mut self, thread: &Thread) {
        let mut turns = self.turns;
        for batch in self.batches().filter(|batch| batch.turn.get().is_none()) {
            batch.track(thread, turns);
            turns += 1;
        }
        self.turns = turns;
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
            let access = Access { address, size: src_bytes, align: 1, kind: AccessKind::AsyncRead, site };
            check::require_global(thread, access);
            check::typed_access(thread, access);
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
    copies.seal();
    let group = std::mem::take(&mut copies.told);
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
        group.iter().flatten().for_each(|batch| batch.wait(thread));
    }
}

/// Waits for all copies, committed or not (`cp.async.wait_all`).
#[track_caller]
#[inline(never)]
pub fn wait_all() {
    finish(current("simt::async_copy::wait_all"));
}

/// Has the block's mbarrier at `bar` count one arrival of the thread when all copies that it has begun are
/// over (`cp.async.mbarrier.arrive.noinc`). Whoever waits for the phase knows of those that the thread has
/// not waited for before; of its other accesses the arrival tells nothing.
#[track_caller]
#[inline(never)]
pub fn arrive_noinc(bar: u32) {
    let location = Location::caller();
    let thread = current("simt::async_copy::arrive_noinc");
    let arrival = mbarrier::begin_arrival(thread, bar, "cp.async.mbarrier.arrive.noinc", location);
    let mut copies = thread.copies.borrow_mut();
    copies.seal();
    if thread.checked() {
        copies.track(thread);
    }
    let batches: Vec<Rc<Batch>> = copies.batches().filter(|batch| !batch.is_over()).cloned().collect();
    let turns = copies.turns;
    drop(copies);
    let issuer = thread.slot;
    thread.group().take_off(Box::new(move |group: &Group<'_>| {
        let issuer = &group.threads[issuer as usize];
        batches.iter().for_each(|batch| batch.land(issuer));
        arrival.arrive(group, issuer, agent(issuer), turns);
    }));
}

/// Carries out the copies that are still under way.
pub(crate) fn finish(thread: &Thread) {
    let mut copies = thread.copies.borrow_mut();
    copies.seal();
    let batches: Vec<Rc<Batch>> = copies.batches().cloned().collect();
    copies.groups.clear();
    copies.told.clear();
    drop(copies);
    batches.iter().for_each(|batch| batch.wait(thread));
}

/// The agent of the thread's copies that mbarriers are told of.
fn agent(thread: &Thread) -> Agent {
    Agent::of_copies(thread.block().number.get(), thread.rank)
}

impl Batch {
    fn is_over(&self) -> bool {
        self.pending.borrow().is_empty()
    }

    /// Carries out what is left, for the thread that has begun and awaits it.
    fn wait(&self, thread: &Thread) {
        let pending = self.pending.take();
        pending.iter().for_each(|copy| copy.carry_out(thread));
        match self.turn.get() {
            Some(turn) => check::completed(thread, agent(thread), turn + 1),
            None => pending.iter().for_each(|copy| copy.become_known(thread)),
        }
    }

    /// From now on, whoever knows that this turn is over knows of the copies.
    fn track(&self, thread: &Thread, turn: u32) {
        self.turn.set(Some(turn));
        let operation = thread.group().operations.begin(agent(thread), turn);
        self.pending.borrow().iter().for_each(|copy| {
            proxy::track_write(thread, copy.dst as usize, copy.bytes, copy.site, operation);
        });
    }

    /// Carries out what is left, for those who wait for an arrival.
    fn land(&self, issuer: &Thread) {
        self.pending.take().iter().for_each(|copy| copy.carry_out(issuer));
    }
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
            let source = self.src as usize;
            check::global_access_over(thread, source, self.src_bytes, AccessKind::Read, self.site);
        }
    }

    /// The thread has waited for it.
    fn become_known(&self, thread: &Thread) {
        if thread.checked() {
            check::copy_arrived(thread, self.dst as usize, self.bytes, self.site);
        }
    }
}
