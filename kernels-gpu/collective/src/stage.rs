//! Buffers of ranks in processes of their own: peers reach no address of theirs, but the memory behind each
//! rank's signals. What peers read is copied there first, what they write is copied from there.
//!
//! ```text
//!   copy in    my buffer  -> my stage        the units that blocks of my number read
//!   meet, move, leave                        over the ranks' stages
//!   copy out   my stage   -> my buffer       the units that blocks of my number have written
//! ```
//! Block `b` works with the blocks `b` of the others alone, so the units that it moves have to be those that
//! it copies: unit `i` of a part is moved by thread `i` of the launch, modulo its threads, and so it is
//! copied. What is left behind the last whole unit is less than a block has threads, so it is block 0's.
//!
//! The part that the rank alone reads, or writes, is not copied: the rank finds it in its buffer.

use crate::meeting::Meeting;
use crate::team::{Signals, Team};
use crate::{THREADS, UNIT};
use cuda_std::thread;
use cuda_std::vector::{load_l2_v4, store_v4};
use primitives::unroll;

/// The copies between a rank's buffer and its stage: parts, each at a unit of the stage. Bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Copies {
    /// 1: the rank itself uses the stage, as its peers do; 0: it uses its buffer.
    pub is_staged: u64,
    /// Where the rank then finds what its peers find at the stage's begin, in bytes from the buffer's; modulo
    /// 2^64, since that may be outside.
    pub own: u64,
    /// The part that is not copied; [`NO_PART`]: all are.
    pub except: u64,
    /// Where the first part begins in the buffer.
    pub skip: u64,
    /// Of each part; the last may be shorter.
    pub length: u64,
    /// From part to part in the buffer.
    pub stride: u64,
    /// From part to part in the stage: whole units.
    pub step: u64,
    /// Of all parts; 0: nothing is copied.
    pub bytes: u64,
}

/// The number of no part.
pub const NO_PART: u64 = u64::MAX;

/// The copies of a rank's launch.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Stage {
    /// From the buffer that it gives.
    pub given: Copies,
    /// To the buffer that it gets.
    pub got: Copies,
}

/// A rank's buffers: what peers reach, and what is copied.
pub(crate) struct Staging<'a> {
    stage: &'a Stage,
    input: u64,
    output: u64,
    stages: [u64; 2],
}

impl<'a> Staging<'a> {
    pub(crate) fn new(
        team: &Team,
        stage: &'a Stage,
        signals: *mut Signals,
        input: *const u8,
        output: *mut u8,
    ) -> Self {
        let input = if input.is_null() { output as u64 } else { input as u64 };
        let stages = [signals as u64 + team.staged[0], signals as u64 + team.staged[1]];
        Staging { stage, input, output: output as u64, stages }
    }

    /// Copies what the rank gives, and meets the others.
    ///
    /// # Safety
    /// As for [`Meeting::begin`]; the buffers and the stages hold the copies.
    #[inline(always)]
    pub(crate) unsafe fn begin(&self, team: &Team, signals: *mut Signals) -> Option<Meeting> {
        let Stage { given, got } = self.stage;
        // SAFETY: the caller's promise. What the block copies is visible to the peers that it meets: the
        // barrier is before the announcement.
        unsafe {
            if given.bytes != 0 {
                copy(given, self.input + given.skip, given.stride, self.stages[0], given.step);
                thread::sync_threads();
            }
            let place = |copies: &Copies, buffer: u64, stage| {
                if copies.is_staged != 0 { stage } else { buffer.wrapping_add(copies.own) }
            };
            let input = place(given, self.input, self.stages[0]);
            let output = place(got, self.output, self.stages[1]);
            Meeting::begin(team, signals, input, output)
        }
    }

    /// Leaves the others, and copies what the rank has got.
    ///
    /// # Safety
    /// As for [`Meeting::end`] and [`Staging::begin`].
    #[inline(always)]
    pub(crate) unsafe fn end(self, meeting: Meeting, team: &Team, signals: *mut Signals) {
        let got = &self.stage.got;
        // SAFETY: the caller's promise. The barrier passes on what the waiting threads have acquired.
        unsafe {
            meeting.end(team, signals);
            if got.bytes != 0 {
                thread::sync_threads();
                copy(got, self.stages[1], got.step, self.output + got.skip, got.stride);
            }
        }
    }
}

/// Copies parts from `from` on, `from_step` apart, to `to` on, `to_step` apart.
///
/// # Safety
/// The bytes can be read and written, and nothing else writes them.
#[inline(always)]
unsafe fn copy(copies: &Copies, mut from: u64, from_step: u64, mut to: u64, to_step: u64) {
    let (mut left, mut number) = (copies.bytes, 0);
    while left != 0 {
        let length = if copies.length < left { copies.length } else { left };
        if number != copies.except {
            // SAFETY: the caller's promise.
            unsafe { part(from, to, length) };
        }
        (from, to) = (from + from_step, to + to_step);
        left -= length;
        number += 1;
    }
}

/// Units of a thread under way in a long copy.
const UNITS: usize = 8;

/// Copies one part.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn part(from: u64, to: u64, bytes: u64) {
    let threads = u64::from(thread::grid_dim_x() * THREADS);
    let first = u64::from(thread::block_idx_x() * THREADS + thread::thread_idx_x());
    let whole = bytes / UNIT;
    let is_aligned = (from | to).is_multiple_of(UNIT);
    // SAFETY: the caller's promise; a unit and a byte have one thread.
    unsafe {
        let mut at = first;
        while is_aligned && at + (UNITS as u64 - 1) * threads < whole {
            units::<UNITS>(from, to, at, threads);
            at += UNITS as u64 * threads;
        }
        while is_aligned && at + threads < whole {
            units::<2>(from, to, at, threads);
            at += 2 * threads;
        }
        while at < whole {
            if is_aligned {
                units::<1>(from, to, at, threads);
            } else {
                let mut byte = at * UNIT;
                while byte < (at + 1) * UNIT {
                    *((to + byte) as *mut u8) = *((from + byte) as *const u8);
                    byte += 1;
                }
            }
            at += threads;
        }
        let at = whole * UNIT + first;
        if at < bytes {
            *((to + at) as *mut u8) = *((from + at) as *const u8);
        }
    }
}

/// Units `at`, `at + stride`, ..: all under way before the first is stored.
///
/// # Safety
/// As for [`copy`]; they are at 16-byte boundaries.
#[inline(always)]
unsafe fn units<const COUNT: usize>(from: u64, to: u64, at: u64, stride: u64) {
    let mut words = [[0u32; 4]; COUNT];
    unroll!(u in 0..8, {
        if u < COUNT {
            // SAFETY: the caller's promise.
            words[u] = unsafe { load_l2_v4((from + (at + u as u64 * stride) * UNIT) as *const u32) };
        }
    });
    unroll!(u in 0..8, {
        if u < COUNT {
            // SAFETY: the caller's promise.
            unsafe { store_v4((to + (at + u as u64 * stride) * UNIT) as *mut u32, words[u]) };
        }
    });
}
