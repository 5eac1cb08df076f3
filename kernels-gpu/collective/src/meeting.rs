//! `meet` and `leave`: how blocks of several devices wait for each other.
//!
//! A warp for each peer. At a meeting its first lanes store a word each, with the epoch in the high half: so
//! an announcement needs no second flag, and words may arrive in any order. The barrier of the block passes
//! on what the polling lanes acquire.
//!
//! # Why an announcement is no release
//! What came before this launch is over, and in this device's memory, where peers read it
//! ([`grid::publish_dependencies`]). A release takes 1.5 us more on two H200s. It is one where the launch
//! itself has copied to its stage.
//!
//! # Why a word can be written again
//! A rank announces epoch `e + 1` when its launch `e` has ended, so after all peers have left epoch `e`; they
//! had then read its announcement of `e`. It leaves epoch `e + 1` when it has read the peers' announcements
//! of `e + 1`, so after their launches `e` have ended, which had read its flag of `e`.

use crate::team::{EPOCHS, Flags, Reason, Report, Signals, Team, WORDS};
use crate::{MAX_BLOCKS, MAX_RANKS, THREADS};
use cuda_std::atomic::intrinsics::{
    atomic_load_acquire_64_system, atomic_load_relaxed_32_system, atomic_store_relaxed_32_system,
    atomic_store_relaxed_64_system, atomic_store_release_64_system,
};
use cuda_std::{grid, shared, shared_array, thread};

/// Polls between two looks at the clock.
const POLLS: u32 = 128;
/// How long a wait lasts before it looks at the abort word, in nanoseconds. The word is in the host's memory:
/// if every thread of a launch read it in turn, that would take longer than most waits.
const CALM: u64 = 1_000_000;
/// How long a wait goes on after the group was aborted, in nanoseconds. A peer that has met everybody moves
/// its data; the announcements that it saw reach this rank too, long before that.
const GRACE: u64 = 1_000_000;

/// The limit of the waits of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// When the wait began; 0 before the first look at the clock.
    begun: u64,
    polls: u32,
    /// When the group was aborted; 0: it was not, as far as is known.
    aborted: u64,
}

impl Patience {
    pub(crate) const NEW: Self = Patience { begun: 0, polls: 0, aborted: 0 };

    /// Counts a poll in vain. Whether to give up: the time is up, which is then reported, or the group was
    /// aborted.
    ///
    /// # Safety
    /// The team's addresses are those of live memory.
    #[inline(always)]
    pub(crate) unsafe fn is_over(&mut self, team: &Team, reason: Reason, peer: u32) -> bool {
        self.polls += 1;
        if !self.polls.is_multiple_of(POLLS) {
            return false;
        }
        let now = thread::global_timer();
        if self.begun == 0 {
            self.begun = now;
        }
        if self.aborted != 0 {
            return now - self.aborted > GRACE;
        }
        // Whoever has left is not waited for by those that have met; those go on by their own limit.
        let is_meeting = !matches!(reason, Reason::Stuck);
        // SAFETY: the caller's promise.
        unsafe {
            let is_long = now - self.begun > CALM;
            if is_meeting && is_long && atomic_load_relaxed_32_system(team.abort as *const u32) != 0 {
                self.aborted = now;
            } else if now - self.begun > team.limit {
                give_up(team, reason, peer);
                if !is_meeting {
                    return true;
                }
                self.aborted = now;
            }
        }
        false
    }
}

/// Reports, and aborts the group.
///
/// # Safety
/// The team's addresses are those of live memory.
#[inline(always)]
pub(crate) unsafe fn give_up(team: &Team, reason: Reason, peer: u32) {
    let report = Report { reason, peer, sequence: team.sequence };
    // SAFETY: the caller's promise.
    unsafe {
        atomic_store_relaxed_64_system(team.report as *mut u64, report.to_word());
        atomic_store_relaxed_32_system(team.abort as *mut u32, 1);
    }
}

/// A block's part in a launch, between its meeting and its leave.
pub struct Meeting {
    /// Addresses of each rank's buffers: what it gives, and where it gets.
    buffers: *const [u32; 8],
    block: u32,
    epoch: u32,
    /// Whether this thread's warp has a peer: its rank.
    peer: Option<u32>,
}

/// A word of an announcement.
#[inline(always)]
fn word_of(lane: u32, input: u64, output: u64, call: u32) -> u32 {
    match lane {
        0 => input as u32,
        1 => (input >> 32) as u32,
        2 => output as u32,
        3 => (output >> 32) as u32,
        _ => call,
    }
}

/// The epoch of this launch for a block: the same in all of its threads.
///
/// # Safety
/// `signals` is the rank's own; nothing else writes the block's epochs before [`end_epoch`].
#[inline(always)]
pub(crate) unsafe fn epoch(team: &Team, signals: *mut Signals, block: u32, peer: u32) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { (*epoch_of(signals, block, if team.is_pairwise != 0 { 1 + peer } else { 0 })).wrapping_add(1) }
}

/// Where an epoch of a block is kept: 0 for that of all ranks, `1 + peer` for that with a peer.
#[inline(always)]
fn epoch_of(signals: *mut Signals, block: u32, place: u32) -> *mut u32 {
    // SAFETY: an address of a field; nothing is read.
    let epochs = unsafe { (&raw mut (*signals).epochs).cast::<u32>() };
    epochs.wrapping_add(block as usize * EPOCHS + place as usize)
}

/// Keeps the epoch for the next launch. All threads of the block have read theirs.
///
/// # Safety
/// As for [`epoch`].
#[inline(always)]
pub(crate) unsafe fn end_epoch(team: &Team, signals: *mut Signals, block: u32, epoch: u32) {
    let thread = thread::thread_idx_x();
    // SAFETY: the caller's promise. Of blocks that are not launched block 0 writes the epoch: all blocks have
    // the same, since flags of data are written by other blocks from launch to launch.
    unsafe {
        if team.is_pairwise == 0 {
            let is_other = block == 0 && thread >= thread::grid_dim_x() && thread < MAX_BLOCKS as u32;
            if thread == 0 || is_other {
                let of = if is_other { thread } else { block };
                *epoch_of(signals, of, 0) = epoch;
            }
        }
    }
}

impl Meeting {
    /// Tells all members where this rank's buffers are, and waits until they have told theirs. `None` when
    /// one is missing: then the block ends.
    ///
    /// # Safety
    /// All threads of a block of [`THREADS`] call it, once. The team's addresses are those of live memory,
    /// `signals` is the rank's own.
    #[inline(always)]
    pub unsafe fn begin(team: &Team, signals: *mut Signals, input: u64, output: u64) -> Option<Self> {
        // The words of each rank's announcement.
        let table = shared::generic(shared_array![[u32; 8]; MAX_RANKS]);
        let (thread, block) = (thread::thread_idx_x(), thread::block_idx_x());
        let (warp, lane) = (thread / 32, thread % 32);
        let peer = (warp < team.ranks && team.meets(warp)).then_some(warp);
        // SAFETY: the caller's promise; a word of the table has one writer before the barrier.
        unsafe {
            let epoch = epoch(team, signals, block, warp % MAX_RANKS as u32);
            let mut is_lost = false;
            grid::publish_dependencies();
            let word = word_of(lane, input, output, team.call);
            if let Some(peer) = peer
                && lane < WORDS as u32
            {
                let mut own = word;
                if peer != team.rank {
                    let there = team.flags(signals_of(team, peer), block);
                    let place = (&raw mut (*there).announced).cast::<u64>();
                    let place = place.add((team.rank * 8 + lane) as usize);
                    let word = u64::from(epoch) << 32 | u64::from(word);
                    if team.staged[0] != 0 {
                        atomic_store_release_64_system(place, word);
                    } else {
                        atomic_store_relaxed_64_system(place, word);
                    }
                    let here = team.flags(signals as u64, block);
                    let place = (&raw const (*here).announced).cast::<u64>();
                    match wait(team, place.add((peer * 8 + lane) as usize), epoch, Reason::Absent, peer) {
                        Some(word) => own = word,
                        None => is_lost = true,
                    }
                }
                if lane == WORDS as u32 - 1 && own != team.call && !is_lost {
                    give_up(team, Reason::OtherCall, peer);
                    is_lost = true;
                }
                if team.staged[0] != 0 && peer != team.rank {
                    let there = signals_of(team, peer);
                    own = word_of(lane, there + team.staged[0], there + team.staged[1], team.call);
                }
                *table.add(peer as usize).cast::<u32>().add(lane as usize) = own;
            }
            let is_lost = thread::sync_threads_or(is_lost.into()) != 0;
            if team.is_pairwise != 0 {
                if let Some(peer) = peer
                    && lane == 0
                {
                    *epoch_of(signals, block, 1 + peer) = epoch;
                }
            } else {
                end_epoch(team, signals, block, epoch);
            }
            (!is_lost).then_some(Meeting { buffers: table, block, epoch, peer })
        }
    }

    /// Address of the buffer that a rank gives.
    #[inline(always)]
    pub fn input(&self, rank: u32) -> u64 {
        self.address(rank, 0)
    }

    /// Address of the buffer that a rank gets.
    #[inline(always)]
    pub fn output(&self, rank: u32) -> u64 {
        self.address(rank, 2)
    }

    #[inline(always)]
    fn address(&self, rank: u32, first: usize) -> u64 {
        // SAFETY: written before the barrier of `begin`.
        let words = unsafe { &*self.buffers.add(rank as usize) };
        u64::from(words[first]) | u64::from(words[first + 1]) << 32
    }

    /// Tells all members that the block has read and written all that it will, and waits until they have told
    /// the same.
    ///
    /// # Safety
    /// As for [`Meeting::begin`].
    #[inline(always)]
    pub unsafe fn end(self, team: &Team, signals: *mut Signals) {
        let Meeting { block, epoch, peer, .. } = self;
        thread::sync_threads();
        let is_first = thread::thread_idx_x().is_multiple_of(32);
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(peer) = peer
                && peer != team.rank
                && is_first
            {
                let there = team.flags(signals_of(team, peer), block);
                let place = (&raw mut (*there).left).cast::<u64>();
                atomic_store_release_64_system(place.add(team.rank as usize * 4), u64::from(epoch) << 32);
                let here = team.flags(signals as u64, block);
                let place = (&raw const (*here).left).cast::<u64>();
                let _ = wait(team, place.add(peer as usize * 4), epoch, Reason::Stuck, peer);
                // This rank's next kernel may read by TMA what the peer wrote here. The fence is on this side
                // of the flag: each writer would wait for its stores in it, and again before the flag.
                #[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
                cuda_std::fence::proxy_async();
            }
        }
    }
}

const _: () = assert!(size_of::<Flags>() == MAX_RANKS * (8 + 4) * 8 && THREADS >= MAX_BLOCKS as u32);

/// Address of a rank's signals. The index is no constant, which would put the arguments in local memory.
#[inline(always)]
pub(crate) fn signals_of(team: &Team, rank: u32) -> u64 {
    let mut address = team.signals[0];
    primitives::unroll!(r in 0..8, {
        if r as u32 == rank {
            address = team.signals[r];
        }
    });
    address
}

/// Waits until a word has the epoch; its low half. `None`: the block gives up.
///
/// # Safety
/// `place` is a flag in the rank's own memory, the team's addresses are those of live memory.
#[inline(always)]
unsafe fn wait(team: &Team, place: *const u64, epoch: u32, reason: Reason, peer: u32) -> Option<u32> {
    let mut patience = Patience::NEW;
    // SAFETY: the caller's promise.
    unsafe {
        loop {
            let word = atomic_load_acquire_64_system(place);
            if (word >> 32) as u32 == epoch {
                return Some(word as u32);
            }
            if patience.is_over(team, reason, peer) {
                return None;
            }
        }
    }
}
