//! Operations of the async proxy: copies by the tensor memory accelerator, bulk copies, matrix products of
//! warpgroups.
//!
//! The thread that begins such an operation does not carry it out. Later accesses of the program are ordered
//! after it only once a thread has waited for it. So its accesses carry the number of the operation, and an
//! operation belongs to a *turn* of an *agent*: a phase of an mbarrier, a committed group of a thread or
//! warpgroup, or copies of a thread that an mbarrier is told of. Turns of an agent end in order. Every
//! synchronisation passes on a thread's knowledge of them ([`super::clock::History`]).

use std::cell::RefCell;

use super::cell::{Order, Stamp};
use super::{Access, Clash, Problem, View, fail_shared, note_shared, race};
use crate::exec::context::{Block, Thread};
use crate::fault::{AccessKind, FaultKind};
use crate::site::RawSite;

/// The object by which threads wait for asynchronous operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Agent(u64);

impl Agent {
    const KIND_SHIFT: u32 = 24;

    /// The mbarrier at an offset of the shared memory of block number `block`.
    pub fn of_mbarrier(block: u64, offset: usize) -> Self {
        Self::new(block, 0, offset as u32 / 8)
    }

    /// The bulk groups of a thread, as far as reading their source goes.
    pub fn of_thread(block: u64, rank: u32) -> Self {
        Self::new(block, 1, rank)
    }

    /// The matrix products of a warpgroup.
    pub fn of_warpgroup(block: u64, warpgroup: u32) -> Self {
        Self::new(block, 2, warpgroup)
    }

    /// The thread's `cp.async` copies that an mbarrier is told of.
    pub fn of_copies(block: u64, rank: u32) -> Self {
        Self::new(block, 3, rank)
    }

    /// Block numbers have 32 bits, indices fewer than 24.
    fn new(block: u64, kind: u32, index: u32) -> Self {
        Self(block << 32 | u64::from(kind << Self::KIND_SHIFT | index))
    }
}

/// An asynchronous operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub agent: Agent,
    /// Turn of the agent that it is part of.
    pub turn: u32,
}

impl Operation {
    /// The turn of an operation whose turn is not known yet. It never counts as completed.
    pub const UNKNOWN: u32 = u32::MAX;
}

/// Operations of a group of blocks, by number.
#[derive(Default)]
pub(crate) struct Operations {
    log: RefCell<Vec<Operation>>,
}

impl Operations {
    pub fn clear(&self) {
        self.log.borrow_mut().clear();
    }

    /// The number of a new operation. If the latest operation has the same agent and turn, its number is
    /// returned instead.
    pub fn begin(&self, agent: Agent, turn: u32) -> u32 {
        let mut log = self.log.borrow_mut();
        let operation = Operation { agent, turn };
        if turn == Operation::UNKNOWN || log.last() != Some(&operation) {
            log.push(operation);
        }
        (log.len() - 1) as u32
    }

    /// Sets the turn of an operation, which is now known.
    pub fn settle(&self, number: u32, turn: u32) {
        self.log.borrow_mut()[number as usize].turn = turn;
    }

    pub fn get(&self, number: u32) -> Operation {
        self.log.borrow()[number as usize]
    }
}

/// Checks an access of the async proxy to shared memory of a block of the thread's cluster, of kind
/// `AsyncRead` or `AsyncWrite`, which is part of operation number `operation`. `access.address` lies in the
/// arena of `target`.
pub(crate) fn async_access(thread: &Thread, target: &Block, access: Access, operation: u32) {
    if !thread.checked() || access.size == 0 {
        return;
    }
    let number = thread.block().number.get();
    let now = Stamp::tracked(number, operation, thread.rank, access.kind, access.site);
    note(thread, target, access, now);
}

fn note(thread: &Thread, target: &Block, access: Access, now: Stamp) {
    match note_shared(thread, target, access, now) {
        Ok(()) => {}
        // The kind of fault is the same in either order of the two.
        Err(Problem::Clash(Clash::Race(earlier))) => {
            race(thread, access, earlier, FaultKind::AsyncCopyPending)
        }
        Err(problem) => fail_shared(thread, access, problem),
    }
}

/// Checks an asynchronous write of the generic proxy to shared memory of a block of the thread's cluster:
/// earlier accesses need no proxy fence, and later ones have to wait for operation number `operation`.
pub(crate) fn generic_write(thread: &Thread, target: &Block, access: Access, operation: u32) {
    if !thread.checked() {
        return;
    }
    note(thread, target, access, super::stamp(thread, access));
    let number = thread.block().number.get();
    let now = Stamp::tracked(number, operation, thread.rank, AccessKind::AsyncWrite, access.site);
    super::overwrite(target, access, now);
}

/// Makes a write of the generic proxy to the block's shared memory, checked before, part of operation number
/// `operation`: later accesses have to wait for that, and those of the async proxy for a proxy fence behind
/// it.
pub(crate) fn track_write(thread: &Thread, address: usize, size: usize, site: RawSite, operation: u32) {
    let block = thread.block();
    let access = Access { address, size, align: 1, kind: AccessKind::Write, site };
    let now = Stamp::tracked(block.number.get(), operation, thread.rank, access.kind, site);
    super::overwrite(block, access, now);
}

/// Whether the access at `stamp`, of any thread, happened before the present action of `thread`.
pub(crate) fn is_known(thread: &Thread, stamp: Stamp) -> bool {
    let is_own = (stamp.block, stamp.rank()) == (thread.block().number.get() as u32, thread.rank);
    is_own || view(thread).is_before(stamp)
}

/// Whether `thread` knows that a proxy fence has followed the access at `stamp`, of any thread.
pub(crate) fn is_fenced(thread: &Thread, stamp: Stamp) -> bool {
    view(thread).is_fenced(stamp)
}

/// Whether the thread knows that an operation is over.
pub(crate) fn has_completed(thread: &Thread, operation: Operation) -> bool {
    view(thread).has_completed(operation)
}

fn view(thread: &Thread) -> View<'_> {
    View { thread, block: thread.block() }
}

/// The stamp of a present action of the thread.
pub(crate) fn stamp_now(thread: &Thread, kind: AccessKind, site: RawSite) -> Stamp {
    let block = thread.block();
    Stamp::new(block.number.get(), block.check.sync.time(), thread.rank, kind, site)
}
