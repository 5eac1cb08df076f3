//! Small all-gather and broadcast without a meeting: bytes travel with their flags, as in
//! [`low_latency`](crate::low_latency).
//!
//! A rank that gives nothing stores one line all the same, and all wait for it: by that each knows that its
//! peers have begun the launch, so that slots can be written again.

use crate::THREADS;
use crate::low_latency::{DATA, read, receive, send, write};
use crate::meeting::{Patience, end_epoch, epoch};
use crate::number::from_half;
use crate::team::{Signals, Team};
use cuda_std::{grid, kernel, thread};

/// The ranks that give, and where it goes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Shares {
    /// Bytes that each of them gives; at most [`MAX_BYTES`](crate::low_latency::MAX_BYTES).
    pub bytes: u64,
    /// Bytes from rank's part to rank's part in the output.
    pub step: u64,
    /// Bits of the ranks that give.
    pub sources: u32,
}

/// Copies what some ranks give to each one's output.
///
/// # Safety
/// As for `all_reduce_low_latency`: `input` (null: it is
/// `output`, where the rank's part is already) holds a part, `output` all parts.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn gather_low_latency(
    team: Team,
    shares: Shares,
    signals: *mut Signals,
    input: *const u8,
    output: *mut u8,
) {
    let is_there = input.is_null();
    let input = if is_there { output.cast_const() } else { input };
    let block = thread::block_idx_x();
    let threads = u64::from(thread::grid_dim_x() * THREADS);
    let first = u64::from(block * THREADS + thread::thread_idx_x());
    let is_aligned = (input as u64 | output as u64 | shares.step).is_multiple_of(DATA as u64);
    let whole = if is_aligned { shares.bytes / DATA as u64 } else { 0 };
    let gives = |rank: u32| shares.sources >> rank & 1 != 0;
    let lines = |rank: u32| if gives(rank) { shares.bytes.div_ceil(DATA as u64) } else { 1 };
    grid::wait_dependencies();
    // SAFETY: the caller's promise; a line has one thread.
    unsafe {
        let epoch = epoch(&team, signals, block, 0);
        thread::sync_threads();
        end_epoch(&team, signals, block, epoch);
        let mut at = first;
        while at < lines(team.rank) {
            if gives(team.rank) {
                let words = read::<u8, DATA>(input, at, at < whole, shares.bytes);
                send(&team, epoch, at, words);
                if !is_there {
                    let own = output.add((u64::from(team.rank) * shares.step) as usize);
                    write::<u8, DATA>(own, at, at < whole, shares.bytes, from_half(words));
                }
            } else {
                send(&team, epoch, at, [0; 2]);
            }
            at += threads;
        }
        let mut patience = Patience::NEW;
        for rank in 0..team.ranks {
            let mut at = if rank == team.rank { u64::MAX } else { first };
            while at < lines(rank) {
                let Some(words) = receive(&team, signals, epoch, rank, at, &mut patience) else { return };
                if gives(rank) {
                    let to = output.add((u64::from(rank) * shares.step) as usize);
                    write::<u8, DATA>(to, at, at < whole, shares.bytes, from_half(words));
                }
                at += threads;
            }
        }
    }
}
