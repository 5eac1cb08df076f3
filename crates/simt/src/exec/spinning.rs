//! Watches for launches in which threads do nothing but spin.
//!
//! A thread that spins may wait for one of another group, which computes on another worker, or whose worker waits for a processor. So a group
//! is judged only when every group that runs has come by and done nothing but spin since any of them did something else. Atomics count as spinning,
//! whatever they are for: so when the time is up every group has to come by once more, which one that computes by now does not.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the groups of a launch do that run now.
#[derive(Default)]
pub(super) struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    /// Groups that run.
    running: usize,
    /// Grows with what groups do beside spinning, as far as it is noticed.
    epoch: u64,
    /// Groups that have only spun in this epoch.
    idle: usize,
    /// Since when that has been all of them.
    since: Option<Instant>,
    /// Is the time up, so that groups have to come by once more?
    again: bool,
}

impl State {
    fn advance(&mut self) {
        self.epoch += 1;
        self.idle = 0;
        self.since = None;
        self.again = false;
    }

    /// For how long all groups have only spun, once they have come by again after `limit`.
    fn hung_for(&mut self, limit: Duration) -> Option<Duration> {
        if self.idle < self.running {
            return None;
        }
        let elapsed = self.since.get_or_insert_with(Instant::now).elapsed();
        if elapsed <= limit || self.again {
            return (elapsed > limit).then_some(elapsed);
        }
        self.epoch += 1;
        self.idle = 0;
        self.again = true;
        None
    }
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A group begins to run.
    pub fn begin(&self) {
        let mut state = self.state();
        state.running += 1;
        state.advance();
    }

    /// A group has run.
    pub fn end(&self) {
        let mut state = self.state();
        state.running -= 1;
        state.advance();
    }
}

/// What one group does.
#[derive(Default)]
pub(super) struct Spinning {
    turns: Cell<u32>,
    /// How often waits have given up.
    pub timeouts: Cell<u32>,
    /// The epoch in which the group was counted as idle, if it has only spun since.
    idle_in: Cell<Option<u64>>,
}

impl Spinning {
    /// Every so many turns the group is counted and the clock read.
    const STRIDE: u32 = 1 << 8;

    /// Counts a turn that a thread spent spinning. For how long nobody has done anything else, if that is more than `limit`.
    pub fn turn(&self, progress: &Progress, limit: Duration) -> Option<Duration> {
        let turns = self.turns.get().wrapping_add(1);
        self.turns.set(turns);
        if !turns.is_multiple_of(Self::STRIDE) {
            return None;
        }
        std::thread::yield_now();
        let mut state = progress.state();
        if self.idle_in.get().is_none() {
            // What it did before may have been what others wait for, and they have not looked yet.
            state.advance();
        }
        if self.idle_in.replace(Some(state.epoch)) != Some(state.epoch) {
            state.idle += 1;
        }
        state.hung_for(limit)
    }

    /// The group does something else.
    pub fn stop(&self, progress: &Progress) {
        self.turns.set(0);
        self.timeouts.set(0);
        if self.idle_in.take().is_some() {
            progress.state().advance();
        }
    }
}
