//! Barriers of a block: `bar.sync`, `bar.arrive`, `bar.red`.
//!
//! A block has [`NAMED_BARRIERS`] of them; `sync_threads` uses number 0. As in hardware, arrivals are counted
//! in warps of 32: the missing lanes of a block's last, partial warp count as arrived with its lane 0.

use std::panic::Location;

use crate::exec::barrier::Barrier;
use crate::exec::context::{RawOther, Thread, WARP_SIZE, Wait, current};
use crate::fault::{AccessKind, FaultKind};
use crate::site::RawSite;

/// The number of barriers of a block.
pub const NAMED_BARRIERS: usize = 16;

/// How the predicates of a barrier's threads are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierReduce {
    /// Number of threads whose predicate is true.
    Popc,
    /// 1 when all are true, else 0.
    And,
    /// 1 when any is true, else 0.
    Or,
}

impl BarrierReduce {
    fn name(self) -> &'static str {
        match self {
            Self::Popc => "bar.red.popc",
            Self::And => "bar.red.and",
            Self::Or => "bar.red.or",
        }
    }
}

const SYNC: &str = "bar.sync";

/// Waits at barrier `id` until `count` threads (`None`: all of the block) have arrived. Orders their memory
/// accesses.
#[track_caller]
pub fn sync(id: u32, count: Option<u32>) {
    let location = Location::caller();
    let thread = current("simt::barrier::sync");
    join(thread, id, count, SYNC, false, location);
}

/// Arrives at barrier `id` of `count` threads without waiting.
#[track_caller]
pub fn arrive(id: u32, count: u32) {
    let location = Location::caller();
    let thread = current("simt::barrier::arrive");
    let barrier = enter(thread, id, Some(count), SYNC, location);
    if thread.checked() {
        same_line_in_warp(thread, barrier, id, location);
        let released = barrier.released.take();
        barrier.released.replace(Some(thread.check.release_into(thread, released)));
    }
    if barrier.arrived.get() == barrier.expected.get() {
        complete(thread, barrier);
    }
}

/// Waits at barrier 0 for all threads of the block and combines their predicates.
#[track_caller]
pub fn reduce(op: BarrierReduce, pred: bool) -> u32 {
    combine("simt::barrier::reduce", op, 0, None, pred, Location::caller())
}

/// Waits at barrier `id` for `count` threads and combines their predicates.
#[track_caller]
pub fn reduce_named(op: BarrierReduce, id: u32, count: u32, pred: bool) -> u32 {
    combine("simt::barrier::reduce_named", op, id, Some(count), pred, Location::caller())
}

fn combine(
    function: &'static str,
    op: BarrierReduce,
    id: u32,
    count: Option<u32>,
    pred: bool,
    location: &'static Location<'static>,
) -> u32 {
    let thread = current(function);
    match op {
        BarrierReduce::Popc => join(thread, id, count, op.name(), pred, location),
        BarrierReduce::Or => u32::from(join(thread, id, count, op.name(), pred, location) != 0),
        // All are true if none is false. This also holds for a partial warp, whatever number of lanes it
        // lacks.
        BarrierReduce::And => u32::from(join(thread, id, count, op.name(), !pred, location) == 0),
    }
}

/// Arrives and waits. Returns the number of true predicates.
fn join(
    thread: &Thread,
    id: u32,
    count: Option<u32>,
    operation: &'static str,
    pred: bool,
    location: &'static Location<'static>,
) -> u32 {
    let barrier = enter(thread, id, count, operation, location);
    barrier.trues.set(barrier.trues.get() + u32::from(pred));
    if thread.checked() {
        same_line_in_warp(thread, barrier, id, location);
    }
    if barrier.arrived.get() == barrier.expected.get() {
        barrier.waiters.borrow_mut().push(thread.slot);
        return complete(thread, barrier);
    }
    let expected = barrier.expected.get();
    barrier.waiters.borrow_mut().push(thread.slot);
    thread.wait_for(Wait::Barrier { id, expected }, location);
    thread.answer.get()
}

/// Counts the thread as arrived, after checking that it agrees with the earlier ones.
#[inline]
fn enter<'t>(
    thread: &'t Thread,
    id: u32,
    count: Option<u32>,
    operation: &'static str,
    location: &'static Location<'static>,
) -> &'t Barrier {
    let block = thread.block();
    let Some(barrier) = block.barriers.get(id as usize) else {
        let message =
            format!("barrier {id} does not exist; a block has barriers 0 to {}", NAMED_BARRIERS - 1);
        thread.fail(FaultKind::BarrierInvalid, location, message)
    };
    let all = block.threads.next_multiple_of(WARP_SIZE);
    let expected = count.unwrap_or(all);
    if expected == 0 || expected > all || !expected.is_multiple_of(WARP_SIZE) {
        let message = format!(
            "barrier {id} with a count of {expected}; counts are multiples of {WARP_SIZE}, from {WARP_SIZE} to {all} \
             for this block of {} threads",
            block.threads
        );
        thread.fail(FaultKind::BarrierInvalid, location, message)
    }
    if barrier.arrived.get() == 0 {
        barrier.expected.set(expected);
        barrier.operation.set(Some(operation));
    } else if barrier.expected.get() != expected || barrier.operation.get() != Some(operation) {
        let message = format!(
            "barrier {id}: this thread comes with {operation} for {expected} threads; earlier threads wait in {} for {}",
            barrier.operation.get().unwrap_or_default(),
            barrier.expected.get()
        );
        thread.fail(FaultKind::BarrierMismatch, location, message)
    }
    barrier.arrived.set(barrier.arrived.get() + weight(thread));
    barrier
}

/// The number of arrivals that a thread stands for: lane 0 of a partial warp also counts for the missing
/// lanes.
#[inline]
fn weight(thread: &Thread) -> u32 {
    if thread.lane() != 0 {
        return 1;
    }
    let lanes = WARP_SIZE.min(thread.block().threads - thread.rank);
    1 + WARP_SIZE - lanes
}

/// The barriers are aligned: the lanes of a warp must come in the same instruction.
fn same_line_in_warp(thread: &Thread, barrier: &Barrier, id: u32, location: &'static Location<'static>) {
    let site = RawSite::of(location);
    let warp = (thread.rank / WARP_SIZE) as usize;
    let mut warps = barrier.warps.borrow_mut();
    if warps.len() <= warp {
        warps.resize(warp + 1, None);
    }
    let (rank, first) = *warps[warp].get_or_insert((thread.rank, site));
    if first != site {
        drop(warps);
        let other =
            RawOther { kind: AccessKind::Wait, site: first, block: thread.block().number.get(), rank };
        let message = format!("lanes of one warp come to barrier {id} in different places");
        thread.fail_access(FaultKind::BarrierDivergence, site, message, None, Some(other));
    }
}

/// Wakes all waiting threads. Returns the number of true predicates.
fn complete(thread: &Thread, barrier: &Barrier) -> u32 {
    let group = thread.group();
    let trues = barrier.trues.take();
    if thread.checked() {
        barrier.warps.borrow_mut().clear();
        let released = barrier.released.take();
        crate::check::synchronise(thread, &barrier.waiters.borrow(), released);
    }
    let mut waiters = barrier.waiters.borrow_mut();
    // The last thread to arrive continues at once, unless it does not wait.
    if waiters.last() == Some(&thread.slot) {
        waiters.pop();
    }
    group.wake_all(&waiters, trues);
    waiters.clear();
    barrier.arrived.set(0);
    group.barriers.set(group.barriers.get() + 1);
    trues
}
