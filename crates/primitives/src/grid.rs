//! Coordination of a grid's blocks, and of grids that follow each other.

use cuda_std::{grid, misc};

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

/// Waits for the launch before this one, as [`grid::wait_dependencies`], once `known` is there: what needs no
/// memory the assembler computes behind a wait as it likes, where the thread could do something else.
#[inline(always)]
pub fn wait_behind(known: u32) {
    // A branch on the number, whatever it is: who has waited does not wait again.
    if misc::opaque(known) != u32::MAX {
        grid::wait_dependencies();
    }
    grid::wait_dependencies();
}
