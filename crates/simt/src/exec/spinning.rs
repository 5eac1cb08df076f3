//! Watches for launches in which threads do nothing but spin.
//!
//! A thread that spins may wait for a thread of another group, of its launch or of one that runs at the same
//! time. That group may compute on another worker, or its worker may wait for a processor. So a launch counts
//! as hung only when every running group has reported here, and all have only spun since any of them did
//! something else. All atomics count as spinning, whatever
//! their purpose. So when the time is up, every group has to report once more: a group that computes by then
//! does not.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state of the running groups of launches that run at the same time.
#[derive(Default)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Default)]
struct State {
    /// The number of groups that run.
    running: usize,
    /// Grows each time a group is seen to do something other than spin.
    epoch: u64,
    /// The number of groups that have only spun in this epoch.
    idle: usize,
    /// The time since which all groups have only spun.
    since: Option<Instant>,
    /// Whether the time is up, so that groups have to report once more.
    again: bool,
}

impl State {
    fn advance(&mut self) {
        self.epoch += 1;
        self.idle = 0;
        self.since = None;
        self.again = false;
    }

    /// The time for which all groups have only spun, once they have reported again after `limit`.
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

    /// Counts a group that begins to run.
    pub fn begin(&self) {
        let mut state = self.state();
        state.running += 1;
        state.advance();
    }

    /// Removes a group that has run.
    pub fn end(&self) {
        let mut state = self.state();
        state.running -= 1;
        state.advance();
    }
}

/// The state of one group.
#[derive(Default)]
pub(super) struct Spinning {
    turns: Cell<u32>,
    /// The number of waits that have given up.
    pub timeouts: Cell<u32>,
    /// The epoch in which the group was counted as idle, if it has only spun since.
    idle_in: Cell<Option<u64>>,
}

impl Spinning {
    /// The number of turns after which the group is counted and the clock read.
    const STRIDE: u32 = 1 << 8;

    /// Counts a turn that a thread spent spinning. Returns the time for which all groups have only spun, if
    /// it is more than `limit`.
    pub fn turn(&self, progress: &Progress, limit: Duration) -> Option<Duration> {
        let turns = self.turns.get().wrapping_add(1);
        self.turns.set(turns);
        if !turns.is_multiple_of(Self::STRIDE) {
            return None;
        }
        std::thread::yield_now();
        let mut state = progress.state();
        if self.idle_in.get().is_none() {
            // Other groups may wait for its earlier work and may not have looked yet.
            state.advance();
        }
        if self.idle_in.replace(Some(state.epoch)) != Some(state.epoch) {
            state.idle += 1;
        }
        let hung = state.hung_for(limit);
        let all_spin = state.idle >= state.running;
        drop(state);
        if all_spin && hung.is_none() {
            super::together::tell_that_all_spin();
        }
        hung
    }

    /// Records that a thread of the group has a limit to its wait: the group does not count as hung, although
    /// it spins.
    pub fn has_limit(progress: &Progress) {
        let mut state = progress.state();
        state.since = None;
        state.again = false;
    }

    /// Records that the group does something other than spin.
    pub fn stop(&self, progress: &Progress) {
        self.turns.set(0);
        self.timeouts.set(0);
        if self.idle_in.take().is_some() {
            progress.state().advance();
        }
    }
}
