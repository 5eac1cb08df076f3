//! Scheduler of one group: a block, the blocks of a cluster, or all blocks of a cooperative launch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use corosensei::CoroutineResult;
use corosensei::stack::Stack;

use super::barrier::Barrier;
use super::context::{Block, RawFault, Routine, Suspender, Thread, Wait, set_current};
use super::flights::{Flights, Landing};
use super::order::Rng;
use super::spinning::{Progress, Spinning};
use super::{Launch, deadlock, stack, unflatten};
use crate::LaunchStats;
use crate::check::BlockCheck;
use crate::check::proxy::Operations;
use crate::cluster::ClusterBarrier;
use crate::mbarrier::Mbarriers;
use crate::shared::Arena;
use crate::warp::WarpState;
use crate::wgmma::Warpgroup;

pub(crate) struct Group<'a> {
    pub launch: &'a Launch<'a>,
    pub blocks: Box<[Block]>,
    pub threads: Vec<Thread>,
    pub grid_barrier: Barrier,
    /// Barriers of the group's clusters.
    pub clusters: Box<[ClusterBarrier]>,
    /// Asynchronous operations as the checker knows them.
    pub operations: Operations,
    flights: Flights,
    /// Slot of the thread that suspended last.
    pub suspended: Cell<u32>,
    ready: RefCell<Ready>,
    /// A thread that a coroutine took from the queue but could not run itself.
    handed_over: Cell<Option<u32>>,
    live: Cell<u32>,
    fault: RefCell<Option<Box<RawFault>>>,
    pub barriers: Cell<u64>,
    switches: Cell<u64>,
    clock: Cell<u64>,
    spinning: Spinning,
}

/// Threads that can run.
enum Ready {
    InOrder(VecDeque<u32>),
    Random(Vec<u32>, Rng),
}

impl Ready {
    fn push(&mut self, slot: u32) {
        match self {
            Self::InOrder(queue) => queue.push_back(slot),
            Self::Random(slots, _) => slots.push(slot),
        }
    }

    fn pop(&mut self) -> Option<u32> {
        match self {
            Self::InOrder(queue) => queue.pop_front(),
            Self::Random(slots, _) if slots.is_empty() => None,
            Self::Random(slots, rng) => Some(slots.swap_remove(rng.below(slots.len()))),
        }
    }

    fn restart(&mut self, threads: u32, seed: u64, group: u64) {
        match self {
            Self::InOrder(queue) => {
                queue.clear();
                queue.extend(0..threads);
            }
            Self::Random(slots, rng) => {
                slots.clear();
                slots.extend(0..threads);
                *rng = Rng::new(seed, group);
            }
        }
    }
}

impl<'a> Group<'a> {
    pub fn new(launch: &'a Launch<'a>, blocks: usize) -> Self {
        let config = &launch.config;
        let per_block = config.threads_per_block() as u32;
        let thread = |slot: u32| {
            let rank = slot % per_block;
            Thread::new(std::ptr::null(), slot, slot / per_block, rank, unflatten(rank.into(), config.block))
        };
        let ready = match launch.options.seed {
            0 => Ready::InOrder(VecDeque::new()),
            seed => Ready::Random(Vec::new(), Rng::new(seed, 0)),
        };
        Self {
            launch,
            blocks: (0..blocks).map(|_| Block::new(launch)).collect(),
            threads: (0..blocks as u32 * per_block).map(thread).collect(),
            grid_barrier: Barrier::default(),
            clusters: ClusterBarrier::all(config, blocks),
            operations: Operations::default(),
            flights: Flights::default(),
            suspended: Cell::new(0),
            ready: RefCell::new(ready),
            handed_over: Cell::new(None),
            live: Cell::new(0),
            fault: RefCell::default(),
            barriers: Cell::new(0),
            switches: Cell::new(0),
            clock: Cell::new(0),
            spinning: Spinning::default(),
        }
    }

    /// Runs the blocks from number `first` on.
    pub fn run(&mut self, first: u64, stats: &mut LaunchStats) -> Result<(), Box<RawFault>> {
        self.reset(first);
        self.progress().begin();
        self.schedule();
        self.progress().end();
        stats.blocks += self.blocks.len() as u64;
        stats.threads += self.threads.len() as u64;
        stats.barriers += self.barriers.take();
        stats.switches += self.switches.take();
        if self.launch.check.is_some() && !self.launch.membership.is_alone() {
            crate::check::group_ends(self);
        }
        if self.fault.borrow().is_some() {
            self.abandon();
        }
        // Taken last: while it is there, no coroutine begins another thread.
        self.fault.take().map_or(Ok(()), Err)
    }

    fn reset(&mut self, first: u64) {
        let this = std::ptr::from_ref(&*self).cast::<Group<'static>>();
        for (number, block) in (first..).zip(&self.blocks) {
            block.reset(number, self.launch);
        }
        for thread in &self.threads {
            thread.set_group(this);
            thread.reset();
        }
        self.grid_barrier.reset();
        self.clusters.iter().for_each(ClusterBarrier::reset);
        self.operations.clear();
        self.flights.clear();
        self.spinning = Spinning::default();
        self.live.set(self.threads.len() as u32);
        let number = first - self.launch.membership.first_block;
        self.ready.borrow_mut().restart(self.threads.len() as u32, self.launch.options.seed, number);
    }

    fn progress(&self) -> &Progress {
        &self.launch.membership.together.progress
    }

    /// A thread that waits has looked at the clock: it will give up in time.
    pub fn note_limit(&self) {
        Spinning::has_limit(self.progress());
    }

    /// The group does something other than spin.
    fn note_progress(&self) {
        self.spinning.stop(self.progress());
    }

    fn schedule(&self) {
        loop {
            while let Some(slot) = self.handed_over.take().or_else(|| self.ready.borrow_mut().pop()) {
                self.resume(slot);
                if self.fault.borrow().is_some() {
                    return;
                }
            }
            if self.live.get() == 0 {
                return self.raise_suspicions();
            }
            if !crate::warp::settle_active_masks(self) && !self.give_up_waits() {
                self.raise_suspicions();
                return self.raise(deadlock::explain(self));
            }
        }
    }

    fn resume(&self, slot: u32) {
        if let Some(flight) = slot.checked_sub(self.threads.len() as u32) {
            return self.land(flight);
        }
        let thread = &self.threads[slot as usize];
        let mut routine = match thread.routine.take() {
            Some(routine) => routine,
            None => match self.new_routine(slot) {
                Ok(routine) => routine,
                Err(error) => return self.raise(deadlock::no_stack(self, thread, &error)),
            },
        };
        self.switches.set(self.switches.get() + 1);
        set_current(thread);
        let result = routine.resume(());
        set_current(std::ptr::null());
        match result {
            CoroutineResult::Yield(()) => {
                self.threads[self.suspended.get() as usize].routine.set(Some(routine));
            }
            CoroutineResult::Return(()) => stack::put(routine.into_stack()),
        }
    }

    /// Begins an asynchronous operation: `landing` runs at some later time, in any order with the actions of
    /// threads.
    pub fn take_off(&self, landing: Landing) {
        let number = self.flights.add(landing);
        self.ready.borrow_mut().push(self.threads.len() as u32 + number);
    }

    fn land(&self, flight: u32) {
        if let Some(landing) = self.flights.take(flight) {
            self.note_progress();
            landing(self);
        }
    }

    /// Wakes threads whose waits can give up, unless that was already tried in vain. Returns whether there
    /// were any.
    fn give_up_waits(&self) -> bool {
        const TRIES: u32 = 4;
        let gives_up = |thread: &&Thread| matches!(thread.wait.get(), Wait::Mbarrier { gives_up: true, .. });
        let tries = self.spinning.timeouts.get();
        let waiters: Vec<_> = self.threads.iter().filter(gives_up).collect();
        if waiters.is_empty() || tries == TRIES {
            return false;
        }
        self.spinning.timeouts.set(tries + 1);
        waiters.iter().for_each(|thread| self.wake(thread.slot));
        true
    }

    /// A coroutine that runs thread `slot` and then, one after the other, threads that have not begun.
    fn new_routine(&self, slot: u32) -> std::io::Result<Routine> {
        let stack = stack::take(self.launch.options.stack_bytes)?;
        let bounds = (stack.limit().get(), stack.base().get());
        let group = std::ptr::from_ref(self).cast::<Group<'static>>();
        Ok(Routine::with_stack(stack, move |suspender, ()| {
            // SAFETY: `Group::run` drives the coroutine and drops or resets it before it returns.
            let group = unsafe { &*group };
            group.run_threads(slot, suspender, bounds);
        }))
    }

    fn run_threads(&self, first: u32, suspender: &Suspender, bounds: (usize, usize)) {
        let mut slot = first;
        loop {
            let thread = &self.threads[slot as usize];
            thread.suspender.set(suspender);
            thread.stack.set(bounds);
            set_current(thread);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                (self.launch.body)();
                self.end(thread);
            }));
            self.live.set(self.live.get() - 1);
            thread.wait.set(Wait::Exited);
            crate::warp::lane_exits(thread);
            if outcome.is_err() {
                return thread.raise(thread.panic_fault());
            }
            if self.fault.borrow().is_some() {
                return;
            }
            self.note_progress();
            let Some(next) = self.ready.borrow_mut().pop() else { return };
            if !self.threads.get(next as usize).is_some_and(Thread::is_fresh) {
                return self.handed_over.set(Some(next));
            }
            slot = next;
        }
    }

    /// Ends a thread that has run its kernel.
    fn end(&self, thread: &Thread) {
        crate::async_copy::finish(thread);
        crate::bulk::finish(thread);
        crate::wgmma::finish(thread);
        let block = thread.block();
        let is_last = block.live.get() == 1;
        if thread.checked() {
            crate::mbarrier::thread_ends(thread, is_last);
            crate::check::block_ends(thread, is_last);
        }
        block.live.set(block.live.get() - 1);
        crate::cluster::thread_ends(thread);
    }

    /// Makes a thread ready.
    #[inline]
    pub fn wake(&self, slot: u32) {
        self.threads[slot as usize].wait.set(Wait::Nothing);
        self.ready.borrow_mut().push(slot);
    }

    /// Makes threads ready, in this order.
    pub fn wake_each(&self, slots: impl Iterator<Item = u32>) {
        let mut ready = self.ready.borrow_mut();
        slots.for_each(|slot| {
            self.threads[slot as usize].wait.set(Wait::Nothing);
            ready.push(slot);
        });
    }

    /// Makes threads ready, all with the same answer.
    pub fn wake_all(&self, slots: &[u32], answer: u32) {
        let mut ready = self.ready.borrow_mut();
        for &slot in slots {
            let thread = &self.threads[slot as usize];
            thread.wait.set(Wait::Nothing);
            thread.answer.set(answer);
            ready.push(slot);
        }
        self.note_progress();
    }

    /// Records a fault; the first one counts. The scheduler stops when it gets control.
    pub fn raise(&self, fault: RawFault) {
        self.fault.borrow_mut().get_or_insert_with(|| Box::new(fault));
    }

    /// Turns the suspicions of blocks into faults.
    fn raise_suspicions(&self) {
        self.blocks
            .iter()
            .filter_map(|block| block.check.suspicion.take())
            .for_each(|fault| self.raise(fault));
    }

    /// A count that grows with every call.
    pub fn tick(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get() + self.switches.get()
    }

    /// Counts a turn that a thread spent spinning.
    pub fn note_spin(&self) {
        if let Some(idle) = self.spinning.turn(self.progress(), self.launch.spin_limit()) {
            self.raise(deadlock::livelock(self, idle));
        }
    }

    /// Discards threads that a fault left unfinished.
    fn abandon(&self) {
        for thread in &self.threads {
            let Some(mut routine) = thread.routine.take() else { continue };
            if !self.launch.unwinds {
                // SAFETY: the values on the stack are leaked. `launch`'s contract says that nothing relies on
                // its destructors.
                unsafe { routine.force_reset() };
            } else if !thread.wait_site.get().is_return_address() {
                // No thread is current, so destructors run outside of the simulation.
                routine.force_unwind();
            } else if thread.failed.get() {
                // The access itself broke the contract of the unsafe code around it. The stack is leaked with
                // its values, so that pinned values stay in place.
                std::mem::forget(routine);
                continue;
            } else {
                self.abort_at(thread);
            }
            stack::put(routine.into_stack());
        }
        self.handed_over.set(None);
        self.flights.clear();
    }

    /// Ends the process: a thread can neither continue nor unwind, and safe code may have lent out its
    /// values.
    #[cold]
    fn abort_at(&self, thread: &Thread) -> ! {
        if let Some(fault) = self.fault.take() {
            crate::note(format_args!("{}", fault.resolve()));
        }
        crate::note(format_args!(
            "ironwarp: thread {:?} polls memory with a plain load at {}, which cannot be unwound; aborting",
            thread.index,
            thread.wait_site.get().resolve()
        ));
        std::process::abort()
    }
}

impl Block {
    fn new(launch: &Launch<'_>) -> Self {
        let threads = launch.config.threads_per_block() as u32;
        Self {
            number: Cell::new(0),
            index: Cell::new([0; 3]),
            threads,
            live: Cell::new(threads),
            barriers: Default::default(),
            mbarriers: RefCell::default(),
            warps: WarpState::all(threads),
            warpgroups: Warpgroup::all(threads),
            arena: Arena::new(launch.config.dynamic_shared),
            check: BlockCheck::default(),
        }
    }

    fn reset(&self, number: u64, launch: &Launch<'_>) {
        self.number.set(number);
        self.index.set(launch.block_index(number));
        self.live.set(self.threads);
        self.barriers.iter().for_each(Barrier::reset);
        self.mbarriers.replace(Mbarriers::default());
        self.warps.iter().for_each(WarpState::reset);
        self.warpgroups.iter().for_each(Warpgroup::reset);
        self.arena.reset();
        if launch.check.is_some() {
            self.check.reset();
            launch.membership.known.teach(self);
            let dynamic = self.arena.dynamic();
            self.check.allocated(dynamic.offset, dynamic.len);
        }
    }
}

impl Thread {
    /// Whether it has not begun to run.
    fn is_fresh(&self) -> bool {
        let routine = self.routine.take();
        let fresh = routine.is_none();
        self.routine.set(routine);
        fresh
    }
}
