//! The order of a cluster's exchanges whose places are written again: asynchronous stores are ordered by
//! nothing that a thread knows, so all blocks meet once in a while.
//!
//! Row `n` writes place `n % places`. A place is written when all threads have come to a barrier behind the
//! row that they read there: one every `places / 2` rows, once places are written again. Threads arrive at it
//! a quarter of the places ahead of the wait. The arrival waits for what the thread stored before, so it is
//! rare. The number of places is a power of two, and at least [`LEAST_PLACES`].

use cuda_std::cluster;

/// Fewest places: a quarter of them are two rows.
pub const LEAST_PLACES: u32 = 8;

/// Rows from one barrier to the next.
const fn between(places: u32) -> u32 {
    places / 2
}

/// Rows from the arrival to the wait.
const fn early(places: u32) -> u32 {
    places / 4
}

/// Sees to it that all have read what is written over with the `turn`-th row and the next ones.
///
/// A thread has read the row two before the one that it sends. Row `m` is sent behind the wait at a row from
/// `m - places / 2 + 1` on, whose arrival was a quarter of the places before, at a row from
/// `m - places + places / 4 + 1` on. Behind that, rows up to `m - places + places / 4 - 1` at least have been
/// read, and so has row `m - places`, which row `m` writes over.
///
/// # Safety
/// All threads of the cluster call it before each of its rows, in order, and at the end [`leave`].
#[inline(always)]
pub unsafe fn order(turn: u32, places: u32) {
    let (between, early) = (between(places), early(places));
    // SAFETY: the caller's contract.
    unsafe {
        // Most rows have neither: they ask once.
        if turn & (early - 1) == 0 {
            if turn & (between - 1) != 0 && turn >= places - early {
                cluster::arrive();
            } else if turn & (between - 1) == 0 && turn >= places {
                cluster::wait();
            }
        }
    }
}

/// Waits for the barrier at which this thread has arrived, if it has, after so many rows.
///
/// # Safety
/// All threads of the cluster call it, after as many rows.
#[inline(always)]
pub unsafe fn leave(turns: u32, places: u32) {
    let (between, early) = (between(places), early(places));
    if turns > places - early && (turns - 1) & (between - 1) >= between - early {
        // SAFETY: the caller's contract.
        unsafe { cluster::wait() }
    }
}
