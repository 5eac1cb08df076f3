//! Barrier of all threads of a cooperative launch; launches that overlap the one before.

use std::panic::Location;

use crate::exec::context::{Wait, current};
use crate::fault::FaultKind;

/// Waits until all threads of the grid have arrived. Orders their memory accesses.
#[track_caller]
pub fn sync() {
    let location = Location::caller();
    let thread = current("simt::grid::sync");
    let group = thread.group();
    if !group.launch.config.cooperative {
        let message = "the blocks of this launch do not run at the same time".into();
        thread.fail(FaultKind::GridSync, location, message);
    }
    let barrier = &group.grid_barrier;
    let arrived = barrier.arrived.get() + 1;
    barrier.arrived.set(arrived);
    if arrived as usize != group.threads.len() {
        barrier.waiters.borrow_mut().push(thread.slot);
        return thread.wait_for(Wait::Grid, location);
    }
    barrier.arrived.set(0);
    if thread.checked() {
        crate::check::synchronise_grid(group);
    }
    let mut waiters = barrier.waiters.borrow_mut();
    group.wake_all(&waiters, 0);
    waiters.clear();
}

/// Waits for the launch before this one (`griddepcontrol.wait`). On this executor it has already ended. In a
/// launch that overlaps it, the thread may access global memory from now on.
#[track_caller]
pub fn wait_dependencies() {
    current("simt::grid::wait_dependencies").check.has_waited.set(true);
}

/// Publishes, with later atomics of the thread, what was over when the launch began: it is in memory. What
/// the launch itself has done is not published.
#[track_caller]
pub fn publish_dependencies() {
    let thread = current("simt::grid::publish_dependencies");
    if thread.checked() {
        crate::check::publish_earlier_launches(thread);
    }
}
