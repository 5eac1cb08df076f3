//! The order of a cluster's exchanges whose places are written again: asynchronous stores are ordered by
//! nothing that a thread knows, so all blocks meet once in a while.
//!
//! Row `n` writes place `n % PLACES`. A place is written when all threads have come to a barrier behind the
//! row that they read there: one every `PLACES / 2` rows, once places are written again. Threads arrive at it
//! a quarter of the places ahead of the wait. The arrival waits for what the thread stored before, so it is
//! rare.

use cuda_std::cluster;

/// Rows from one barrier to the next.
const fn between(places: u32) -> u32 {
    places / 2
}

/// Rows from the arrival to the wait.
const fn early(places: u32) -> u32 {
    places / 4
}

/// Sees to it that all have read what is written over with the `turn`-th row and the next ones, if they read
/// a row before they send two more: a row that is sent behind an arrival has been read before the place is
/// written again.
///
/// # Safety
/// All threads of the cluster call it before each of its rows, in order, and at the end [`leave`].
#[inline(always)]
pub unsafe fn order<const PLACES: u32>(turn: u32) {
    const { assert!(PLACES.is_power_of_two() && early(PLACES) >= 2) };
    let (between, early) = (between(PLACES), early(PLACES));
    // SAFETY: the caller's contract.
    unsafe {
        if turn % between == between - early && turn >= PLACES - early {
            cluster::arrive();
        } else if turn.is_multiple_of(between) && turn >= PLACES {
            cluster::wait();
        }
    }
}

/// Waits for the barrier at which this thread has arrived, if it has, after so many rows.
///
/// # Safety
/// All threads of the cluster call it, after as many rows.
#[inline(always)]
pub unsafe fn leave<const PLACES: u32>(turns: u32) {
    let (between, early) = (between(PLACES), early(PLACES));
    if turns > PLACES - early && (turns - 1) % between >= between - early {
        // SAFETY: the caller's contract.
        unsafe { cluster::wait() }
    }
}
