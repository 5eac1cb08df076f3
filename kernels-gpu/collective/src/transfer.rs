//! Bytes from one rank's buffer to those of others: all-gather, broadcast, all-to-all, send, receive, and the
//! barrier, which moves none.
//!
//! A rank makes up to [`MAX_RANKS`](crate::MAX_RANKS) moves, from the input of one rank to the outputs of
//! some:
//!
//! | collective | moves of rank `r` |
//! |---|---|
//! | all-gather | its input to every output |
//! | broadcast | a part of the root's input, its own among the other ranks, to all their outputs |
//! | all-to-all | a part of its input to each rank's output |
//! | send | its input to one output |
//!
//! So a broadcast takes each byte from the root once, and the others pass it on.

use crate::meeting::Meeting;
use crate::stage::{Stage, Staging};
use crate::team::{Signals, Team};
use crate::{THREADS, UNIT};
use cuda_std::vector::{load_l2_v4, store_v4};
use cuda_std::{grid, kernel, thread};

/// The moves of a rank. Move `i` is number `j = (first + i) % count`; offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Moves {
    /// How many.
    pub count: u32,
    /// The number of the one that is made first: ranks begin with different ones.
    pub first: u32,
    /// The rank whose input they read.
    pub source: u32,
    /// Bits of the ranks whose outputs are written by move 0; those of move `j` are `j * target_step` places
    /// further.
    pub targets: u32,
    /// 1 when moves go to different ranks, else 0.
    pub target_step: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// Where move 0 begins in the input.
    pub from: u64,
    /// How much further each next one does.
    pub from_step: u64,
    /// Where they go in the outputs.
    pub to: u64,
}

/// Makes the rank's moves; see the module.
///
/// # Safety
/// All members launch it with the same grid of at most [`crate::MAX_BLOCKS`] resident blocks of [`THREADS`]
/// threads, the same call, and moves that do not overlap. The team's addresses are those of live memory,
/// `signals` is the rank's own. `input` (null: it is `output`) and `output` (null: nobody writes there) hold
/// what the members' moves say, or the copies of `stage`; then so do the stages behind all ranks' signals.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn transfer(
    team: Team,
    moves: Moves,
    stage: Stage,
    signals: *mut Signals,
    input: *const u8,
    output: *mut u8,
) {
    let staging = Staging::new(&team, &stage, signals, input, output);
    grid::wait_dependencies();
    // SAFETY: the caller's promise.
    unsafe {
        let Some(meeting) = staging.begin(&team, signals) else { return };
        let mut i = 0;
        while i < moves.count {
            let number = (moves.first + i) % moves.count;
            let from = meeting.input(moves.source) + moves.from + u64::from(number) * moves.from_step;
            let targets = moves.targets << (number * moves.target_step);
            make(&meeting, from, moves.to, targets, moves.bytes);
            i += 1;
        }
        staging.end(meeting, &team, signals);
    }
}

/// Units of a thread, all under way before the first is stored.
const UNITS: usize = 4;

/// One move.
///
/// # Safety
/// As for [`transfer`].
#[inline(always)]
unsafe fn make(meeting: &Meeting, from: u64, to: u64, targets: u32, bytes: u64) {
    let mut bits = from;
    each(targets, |rank| bits |= meeting.output(rank) + to);
    let whole = if bits.is_multiple_of(UNIT) { bytes / UNIT } else { 0 };
    let threads = u64::from(thread::grid_dim_x() * THREADS);
    let first = u64::from(thread::block_idx_x() * THREADS + thread::thread_idx_x());
    // SAFETY: the caller's promise; units and bytes of the move, each by one thread.
    unsafe {
        let mut at = first;
        while at + (UNITS as u64 - 1) * threads < whole {
            units::<UNITS>(meeting, from, to, targets, at, threads);
            at += UNITS as u64 * threads;
        }
        while at < whole {
            units::<1>(meeting, from, to, targets, at, threads);
            at += threads;
        }
        let mut at = whole * UNIT + first;
        while at < bytes {
            let byte = *((from + at) as *const u8);
            each(targets, |rank| *((meeting.output(rank) + to + at) as *mut u8) = byte);
            at += threads;
        }
    }
}

/// Calls a function with each rank of a set of bits.
#[inline(always)]
fn each(mut ranks: u32, mut call: impl FnMut(u32)) {
    while ranks != 0 {
        call(ranks.trailing_zeros());
        ranks &= ranks - 1;
    }
}

/// Units `at`, `at + stride`, ...
///
/// # Safety
/// As for [`transfer`]; they lie in the move, at 16-byte boundaries.
#[inline(always)]
unsafe fn units<const COUNT: usize>(
    meeting: &Meeting,
    from: u64,
    to: u64,
    targets: u32,
    at: u64,
    stride: u64,
) {
    let mut words = [[0u32; 4]; COUNT];
    // SAFETY: the caller's promise.
    unsafe {
        for u in 0..COUNT {
            words[u] = load_l2_v4((from + (at + u as u64 * stride) * UNIT) as *const u32);
        }
        each(targets, |rank| {
            let begin = meeting.output(rank) + to + at * UNIT;
            for u in 0..COUNT {
                store_v4((begin + u as u64 * stride * UNIT) as *mut u32, words[u]);
            }
        });
    }
}
