//! mbarrier objects: barriers in shared memory that count arrivals and bytes.
//!
//! An mbarrier has phases. A phase ends when `count` arrivals have come and all expected bytes have been
//! copied. The next phase begins at once. A waiting thread names the parity of the phase: 0 for the first, 1
//! for the second, and so on. An arrival publishes the accesses of its thread. A completed wait acquires
//! them, and with them the data that the copies of the phase have brought.
//!
//! The state is kept here, not in the 8 bytes. Those hold a pattern, so that overwriting them is detected.

mod state;

use std::panic::Location;

use crate::check::proxy::{self, Agent};
use crate::check::{self, Access};
use crate::cluster::{self, Target};
use crate::exec::context::{Block, RawOther, Thread, Wait, current};
use crate::exec::group::Group;
use crate::fault::{AccessKind, FaultKind};
use crate::memory::Scope;
use crate::site::RawSite;
pub(crate) use state::Mbarriers;
use state::{LIMIT, Left, Mbarrier, MbarrierCheck, Problem, Told};

/// Bytes of an mbarrier, and its alignment.
const BYTES: usize = 8;

/// The contents of the bytes of a live mbarrier.
const PATTERN: u64 = 0x6d62_6172_7269_6572;

/// The mbarrier of a block at an offset and its state, in words.
pub(crate) fn describe(block: &Block, offset: u32) -> String {
    let name = name(block, offset);
    match block.mbarriers.borrow().by_offset.get(&offset) {
        Some(mbarrier) if mbarrier.is_live => format!("{name}, of which {}", mbarrier.state()),
        _ => format!("{name}, which is not initialised"),
    }
}

fn name(block: &Block, offset: u32) -> String {
    format!("the mbarrier at {}", block.arena.name_of(offset as usize))
}

fn access(target: &Target<'_>, kind: AccessKind, site: RawSite) -> Access {
    let address = target.block.arena.at(target.offset) as usize;
    Access { address, size: BYTES, align: BYTES, kind, site }
}

/// The mbarrier at `address`, which is checked as an address.
fn locate<'t>(
    thread: &'t Thread,
    address: u32,
    op: &str,
    location: &'static Location<'static>,
) -> Target<'t> {
    let target = cluster::resolve(thread, address, op, location);
    if !target.offset.is_multiple_of(BYTES as u32) || !target.block.arena.has(target.offset, BYTES) {
        let message = format!("{op} at {address:#x}: an mbarrier is 8 bytes of shared memory, aligned to 8");
        thread.fail(FaultKind::MbarrierInvalid, location, message);
    }
    target
}

/// As [`locate`], for operations that work on the block's own mbarriers only.
fn locate_own<'t>(
    thread: &'t Thread,
    address: u32,
    op: &str,
    location: &'static Location<'static>,
) -> Target<'t> {
    let target = locate(thread, address, op, location);
    if !std::ptr::eq(target.block, thread.block()) {
        let message = format!(
            "{op} works on mbarriers of the thread's own block only; `arrive_remote` arrives at another's"
        );
        thread.fail(FaultKind::MbarrierInvalid, location, message);
    }
    target
}

/// Checks that there is a live mbarrier, and that the thread knows of its initialisation. Called before the
/// thread uses the mbarrier, or before a copy that the thread begins does so as operation number `copy`.
fn require_live(
    thread: &Thread,
    target: &Target<'_>,
    copy: Option<u32>,
    op: &str,
    location: &'static Location<'static>,
) {
    let invalid = |what: &str, other: Option<RawOther>| -> ! {
        let message = format!("{op} at {}, {what}", name(target.block, target.offset));
        thread.fail_access(FaultKind::MbarrierInvalid, RawSite::of(location), message, None, other)
    };
    let is_remote = !std::ptr::eq(target.block, thread.block());
    if thread.checked() && is_remote {
        let access = access(target, AccessKind::Atomic, RawSite::of(location));
        match copy {
            None => check::remote_access(thread, target.block, access, false),
            Some(operation) => check::remote_copy(thread, target.block, access, operation),
        }
    }
    let mbarriers = target.block.mbarriers.borrow();
    let init =
        mbarriers.by_offset.get(&target.offset).filter(|mbarrier| mbarrier.is_live).map(|m| m.check.init);
    drop(mbarriers);
    let Some(init) = init else { invalid("which is not initialised", None) };
    // SAFETY: `locate` has checked that the bytes are in the arena, where they are aligned.
    if unsafe { target.block.arena.at(target.offset).cast::<u64>().read() } != PATTERN {
        invalid("whose bytes have been overwritten", None);
    }
    if thread.checked() && !proxy::is_known(thread, init) {
        invalid("whose initialisation nothing orders before", Some(check::other(init)));
    }
}

/// Changes the mbarrier, then ends its phase if it is complete.
fn update(
    thread: &Thread,
    target: &Target<'_>,
    op: &str,
    location: &'static Location<'static>,
    change: impl FnOnce(&mut Mbarrier) -> Result<(), Problem>,
) {
    require_live(thread, target, None, op, location);
    if let Err((kind, message, other)) = change_and_advance(thread.group(), target, change) {
        let message = format!("{op} at {}: {message}", name(target.block, target.offset));
        thread.fail_access(kind, RawSite::of(location), message, None, other);
    }
}

fn change_and_advance(
    group: &Group<'_>,
    target: &Target<'_>,
    change: impl FnOnce(&mut Mbarrier) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut mbarriers = target.block.mbarriers.borrow_mut();
    let Some(mbarrier) = mbarriers.by_offset.get_mut(&target.offset).filter(|mbarrier| mbarrier.is_live)
    else {
        return Err((FaultKind::MbarrierInvalid, "it has been invalidated".into(), None));
    };
    change(mbarrier)?;
    let woken = mbarrier.advance(Agent::of_mbarrier(target.block.number.get(), target.offset as usize))?;
    group.wake_all(&woken, 0);
    Ok(())
}

/// Turns 8 bytes of the block's shared memory into an mbarrier, with phases of `count` arrivals
/// (`mbarrier.init`).
#[track_caller]
#[inline(never)]
pub fn init(bar: u32, count: u32) {
    const OP: &str = "mbarrier.init";
    let location = Location::caller();
    let thread = current("simt::mbarrier::init");
    let target = locate_own(thread, bar, OP, location);
    if count == 0 || i64::from(count) > LIMIT {
        let message = format!("{OP} with a count of {count}; counts are 1 to {LIMIT}");
        thread.fail(FaultKind::MbarrierInvalid, location, message);
    }
    let born = {
        let mbarriers = target.block.mbarriers.borrow();
        let before = mbarriers.by_offset.get(&target.offset);
        before.map_or(Ok(0), |before| if before.is_live { Err(()) } else { Ok(before.phases) })
    };
    let Ok(born) = born else {
        let message =
            format!("{OP} at {}, which is live: invalidate it first", name(target.block, target.offset));
        thread.fail(FaultKind::MbarrierInvalid, location, message)
    };
    let site = RawSite::of(location);
    let mut check = MbarrierCheck::default();
    if thread.checked() {
        check::typed_access(thread, access(&target, AccessKind::Write, site));
        check.init = proxy::stamp_now(thread, AccessKind::Write, site);
        target.block.check.set_mbarrier(target.offset as usize, BYTES, true);
    }
    // SAFETY: `locate` has checked that the bytes are in the arena, where they are aligned.
    unsafe { target.block.arena.at(target.offset).cast::<u64>().write(PATTERN) };
    let mbarrier = Mbarrier {
        is_live: true,
        count,
        pending: count,
        bytes: 0,
        phases: born,
        born,
        waiters: Vec::new(),
        check,
    };
    target.block.mbarriers.borrow_mut().by_offset.insert(target.offset, mbarrier);
}

/// Ends an mbarrier's life, after which its bytes are ordinary memory (`mbarrier.inval`).
#[track_caller]
#[inline(never)]
pub fn invalidate(bar: u32) {
    const OP: &str = "mbarrier.inval";
    let location = Location::caller();
    let thread = current("simt::mbarrier::invalidate");
    let target = locate_own(thread, bar, OP, location);
    require_live(thread, &target, None, OP, location);
    let mut mbarriers = target.block.mbarriers.borrow_mut();
    let mbarrier = mbarriers.by_offset.get_mut(&target.offset);
    let in_use = mbarrier.map_or(0, |mbarrier| {
        mbarrier.is_live = false;
        mbarrier.waiters.len() + mbarrier.check.in_flight as usize
    });
    drop(mbarriers);
    if in_use != 0 {
        let message = format!(
            "{OP} at {}, with {in_use} waits and copies under way",
            name(target.block, target.offset)
        );
        thread.fail(FaultKind::MbarrierInvalid, location, message);
    }
    if thread.checked() {
        target.block.check.set_mbarrier(target.offset as usize, BYTES, false);
    }
}

/// Arrives once, and publishes the thread's accesses to waiting threads (`mbarrier.arrive.release.cta`).
#[track_caller]
#[inline(never)]
pub fn arrive(bar: u32) {
    arrive_at(bar, Reach::Own, (1, 0), "mbarrier.arrive", Location::caller());
}

/// Arrives `count` times.
#[track_caller]
#[inline(never)]
pub fn arrive_count(bar: u32, count: u32) {
    arrive_at(bar, Reach::Own, (count, 0), "mbarrier.arrive", Location::caller());
}

/// Lets the present phase expect `bytes` more, then arrives once (`mbarrier.arrive.expect_tx`).
#[track_caller]
#[inline(never)]
pub fn arrive_expect_tx(bar: u32, bytes: u32) {
    arrive_at(bar, Reach::Own, (1, bytes), "mbarrier.arrive.expect_tx", Location::caller());
}

/// Arrives once at an mbarrier of a block of the cluster, given by its address in the cluster's window
/// (`mbarrier.arrive.release.cluster.shared::cluster`).
#[track_caller]
#[inline(never)]
pub fn arrive_remote(bar_cluster: u32) {
    let reach = Reach::Cluster(Told::Everything);
    arrive_at(bar_cluster, reach, (1, 0), "mbarrier.arrive.shared::cluster", Location::caller());
}

/// As [`arrive_remote`], but publishes to another block only the asynchronous operations that the thread has
/// waited for (`mbarrier.arrive.shared::cluster`, whose release holds for the thread's own block).
#[track_caller]
#[inline(never)]
pub fn arrive_remote_async(bar_cluster: u32) {
    let reach = Reach::Cluster(Told::Asynchronous);
    arrive_at(bar_cluster, reach, (1, 0), "mbarrier.arrive.shared::cluster", Location::caller());
}

/// The mbarriers that an arrival reaches.
#[derive(Clone, Copy)]
enum Reach {
    /// Those of the thread's block (`.shared::cta`).
    Own,
    /// Those of all blocks of the cluster, and what other blocks are told.
    Cluster(Told),
}

fn arrive_at(
    bar: u32,
    reach: Reach,
    (count, bytes): (u32, u32),
    op: &str,
    location: &'static Location<'static>,
) {
    let thread = current("simt::mbarrier::arrive");
    let (target, told) = match reach {
        Reach::Own => (locate_own(thread, bar, op, location), Told::Everything),
        Reach::Cluster(told) => (locate(thread, bar, op, location), told),
    };
    update(thread, &target, op, location, |mbarrier| {
        mbarrier.expect_at(bytes, location)?;
        mbarrier.arrive(count)?;
        if thread.checked() {
            mbarrier.check.release(thread, &target, told);
            mbarrier.check.arrive(thread);
        }
        Ok(())
    });
}

/// Lets the present phase expect `bytes` more (`mbarrier.expect_tx`). No arrival.
#[track_caller]
#[inline(never)]
pub fn expect_tx(bar: u32, bytes: u32) {
    const OP: &str = "mbarrier.expect_tx";
    let location = Location::caller();
    let thread = current("simt::mbarrier::expect_tx");
    let target = locate_own(thread, bar, OP, location);
    update(thread, &target, OP, location, |mbarrier| {
        if thread.checked() {
            mbarrier.note_expectation(thread, RawSite::of(location));
        }
        mbarrier.expect_at(bytes, location)
    });
}

/// Whether the phase of that parity has ended. If so, acquires the knowledge that it published
/// (`mbarrier.test_wait.parity`).
#[track_caller]
#[inline(never)]
pub fn test_wait_parity(bar: u32, parity: u32) -> bool {
    let location = Location::caller();
    let thread = current("simt::mbarrier::test_wait_parity");
    let target = locate_for_wait(thread, bar, parity, "mbarrier.test_wait", location);
    let is_over = try_acquire(thread, &target, parity);
    if !is_over {
        thread.give_way(RawSite::of(location));
    }
    is_over
}

/// As [`test_wait_parity`], but waits while other threads can continue (`mbarrier.try_wait.parity`).
#[track_caller]
#[inline(never)]
pub fn try_wait_parity(bar: u32, parity: u32) -> bool {
    let location = Location::caller();
    let thread = current("simt::mbarrier::try_wait_parity");
    let target = locate_for_wait(thread, bar, parity, "mbarrier.try_wait", location);
    try_acquire(thread, &target, parity) || {
        wait_for(thread, &target, parity, true, location);
        try_acquire(thread, &target, parity)
    }
}

/// Waits until the phase of that parity has ended.
#[track_caller]
#[inline(never)]
pub fn wait_parity(bar: u32, parity: u32) {
    let location = Location::caller();
    let thread = current("simt::mbarrier::wait_parity");
    let target = locate_for_wait(thread, bar, parity, "mbarrier.try_wait", location);
    // As on the GPU, a thread that looks late may find that the next phase is over too, and then waits for
    // one more.
    while !try_acquire(thread, &target, parity) {
        wait_for(thread, &target, parity, false, location);
    }
}

fn locate_for_wait<'t>(
    thread: &'t Thread,
    bar: u32,
    parity: u32,
    op: &str,
    location: &'static Location<'static>,
) -> Target<'t> {
    if parity > 1 {
        let message = format!("{op} for parity {parity}; a phase has parity 0 or 1");
        thread.fail(FaultKind::MbarrierInvalid, location, message);
    }
    let target = locate_own(thread, bar, op, location);
    require_live(thread, &target, None, op, location);
    target
}

fn try_acquire(thread: &Thread, target: &Target<'_>, parity: u32) -> bool {
    let mbarriers = target.block.mbarriers.borrow();
    let Some(mbarrier) = mbarriers.by_offset.get(&target.offset) else { return false };
    let is_over = mbarrier.parity() != parity;
    if is_over && thread.checked() {
        mbarrier.check.done.acquire(thread);
    }
    is_over
}

fn wait_for(
    thread: &Thread,
    target: &Target<'_>,
    parity: u32,
    gives_up: bool,
    location: &'static Location<'static>,
) {
    let forget = |keep: bool| {
        let mut mbarriers = target.block.mbarriers.borrow_mut();
        let Some(mbarrier) = mbarriers.by_offset.get_mut(&target.offset) else { return };
        mbarrier.waiters.retain(|&slot| slot != thread.slot);
        if keep {
            mbarrier.waiters.push(thread.slot);
        }
    };
    forget(true);
    thread.wait_for(Wait::Mbarrier { offset: target.offset, parity, gives_up }, location);
    forget(false);
}

/// Makes the thread's initialisations of mbarriers visible to the async proxy and to other blocks of the
/// cluster (`fence.mbarrier_init.release.cluster`).
#[track_caller]
#[inline(never)]
pub fn fence_init() {
    let thread = current("simt::mbarrier::fence_init");
    if !thread.checked() {
        return;
    }
    check::fence(thread, Scope::Cluster);
    for mbarrier in thread.block().mbarriers.borrow_mut().by_offset.values_mut() {
        mbarrier.check.is_fenced |= mbarrier.check.init.rank() == thread.rank;
    }
}

/// A copy that will bring bytes to an mbarrier.
pub(crate) struct Arrival {
    block_slot: u32,
    offset: u32,
    bytes: u32,
    operation: Option<u32>,
    /// Where it was begun.
    site: RawSite,
}

/// Begins a copy to shared memory of `block` that will complete `bytes` on its mbarrier at `offset`. Checks
/// the rules of the mbarrier.
pub(crate) fn begin_copy(
    thread: &Thread,
    target: &Target<'_>,
    bytes: usize,
    op: &str,
    location: &'static Location<'static>,
) -> Arrival {
    if !target.offset.is_multiple_of(BYTES as u32) || !target.block.arena.has(target.offset, BYTES) {
        let message =
            format!("{op}: its mbarrier at {:#x} is no 8 aligned bytes of shared memory", target.offset);
        thread.fail(FaultKind::MbarrierInvalid, location, message);
    }
    let agent = Agent::of_mbarrier(target.block.number.get(), target.offset as usize);
    let begin = || thread.group().operations.begin(agent, proxy::Operation::UNKNOWN);
    let operation = thread.checked().then(begin);
    require_live(thread, target, operation, op, location);
    let site = RawSite::of(location);
    if thread.checked() {
        let mut mbarriers = target.block.mbarriers.borrow_mut();
        let check = &mut mbarriers.by_offset.get_mut(&target.offset).expect("checked to be live").check;
        let visible = check.is_fenced || proxy::is_fenced(thread, check.init);
        let init = check.init;
        check.in_flight += 1;
        check.in_flight_bytes += bytes as i64;
        check.latest = Some(site);
        drop(mbarriers);
        if !visible {
            let message = format!(
                "{op}: the initialisation of {} is not visible to the async proxy; `mbarrier::fence_init` after it makes it so",
                name(target.block, target.offset)
            );
            thread.fail_access(FaultKind::ProxyFence, site, message, None, Some(check::other(init)));
        }
    }
    Arrival { block_slot: target.block_slot, offset: target.offset, bytes: bytes as u32, operation, site }
}

impl Arrival {
    /// Number of the operation, for the checker.
    pub fn operation(&self) -> Option<u32> {
        self.operation
    }

    /// Completes the copy: its bytes have arrived.
    pub fn complete(&self, group: &Group<'_>, issuer: &Thread) {
        let block = &group.blocks[self.block_slot as usize];
        let target = Target { block, block_slot: self.block_slot, offset: self.offset };
        let result = change_and_advance(group, &target, |mbarrier| {
            if let Some(operation) = self.operation {
                group.operations.settle(operation, mbarrier.phases);
                mbarrier.check.in_flight -= 1;
                mbarrier.check.in_flight_bytes -= i64::from(self.bytes);
                mbarrier.check.unseen = Some((mbarrier.phases, self.site));
            }
            mbarrier.expect(-i64::from(self.bytes))
        });
        if let Err((kind, message, other)) = result {
            let message = format!("a copy completes on {}: {message}", name(block, self.offset));
            issuer.raise(issuer.fault(kind, self.site, message, None, other));
        }
    }
}

/// An arrival of a thread that comes when its copies are over.
pub(crate) struct LateArrival {
    block_slot: u32,
    offset: u32,
    /// Where it was begun.
    site: RawSite,
}

/// Begins an arrival at the block's mbarrier at `bar`, by operation `op`.
pub(crate) fn begin_arrival(
    thread: &Thread,
    bar: u32,
    op: &str,
    location: &'static Location<'static>,
) -> LateArrival {
    let target = locate_own(thread, bar, op, location);
    require_live(thread, &target, None, op, location);
    let site = RawSite::of(location);
    if thread.checked() {
        let mut mbarriers = target.block.mbarriers.borrow_mut();
        let check = &mut mbarriers.by_offset.get_mut(&target.offset).expect("checked to be live").check;
        check.in_flight += 1;
        check.latest = Some(site);
    }
    LateArrival { block_slot: target.block_slot, offset: target.offset, site }
}

impl LateArrival {
    /// The copies are over: the first `turns` turns of the agent.
    pub fn arrive(&self, group: &Group<'_>, issuer: &Thread, copies: Agent, turns: u32) {
        let block = &group.blocks[self.block_slot as usize];
        let target = Target { block, block_slot: self.block_slot, offset: self.offset };
        let result = change_and_advance(group, &target, |mbarrier| {
            if issuer.checked() {
                mbarrier.check.in_flight -= 1;
                mbarrier.check.unseen = Some((mbarrier.phases, self.site));
                mbarrier.check.open.complete(copies, turns);
                mbarrier.check.late.retain(|expectation| !proxy::is_known(issuer, *expectation));
            }
            mbarrier.arrive(1)
        });
        if let Err((kind, message, other)) = result {
            let message = format!("copies are over, for {}: {message}", name(block, self.offset));
            issuer.raise(issuer.fault(kind, self.site, message, None, other));
        }
    }
}

/// Handles the end of a thread. With `is_last`, no thread of the block is left to wait for pending copies.
pub(crate) fn thread_ends(thread: &Thread, is_last: bool) {
    let block = thread.block();
    let mut mbarriers = block.mbarriers.borrow_mut();
    for (&offset, mbarrier) in &mut mbarriers.by_offset {
        let agent = Agent::of_mbarrier(block.number.get(), offset as usize);
        let knows = |turn| proxy::has_completed(thread, proxy::Operation { agent, turn });
        mbarrier.check.unseen.take_if(|(turn, _)| knows(*turn));
    }
    let left = mbarriers.by_offset.iter().find_map(|(offset, mbarrier)| Some((*offset, mbarrier.left()?)));
    drop(mbarriers);
    let Some((offset, left)) = left.filter(|_| is_last) else { return };
    let name = name(block, offset);
    match left {
        Left::Copy(site) => {
            let message = format!("nobody has waited for a copy that completes on {name}");
            thread.fail_access(FaultKind::CopyUnfinished, site, message, None, None);
        }
        Left::Bytes(site, state) => {
            let message = format!("the block ends with {name}, of which {state}");
            thread.fail_access(FaultKind::MbarrierUnbalanced, site, message, None, None);
        }
    }
}
