//! Coordination of a grid's blocks, and of grids that follow each other.

use cuda_std::grid;

/// The beginning of a kernel that overlaps with the launch before it: lets the next grid begin, then waits
/// for the one before.
///
/// `locate` runs in between. It may compute where the thread's elements lie, and must not touch global
/// memory.
#[inline(always)]
pub fn begin<R>(locate: impl FnOnce() -> R) -> R {
    begin_if(true, locate)
}

/// [`begin`] for a block that leaves it to other blocks to let the next grid begin, unless `lets_next_begin`.
#[inline(always)]
pub fn begin_if<R>(lets_next_begin: bool, locate: impl FnOnce() -> R) -> R {
    if lets_next_begin {
        grid::launch_dependents();
    }
    let located = locate();
    grid::wait_dependencies();
    located
}
