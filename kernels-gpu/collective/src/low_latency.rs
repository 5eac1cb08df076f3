//! Small sums without a meeting: data travel with their flags.
//!
//! ```text
//!   line (16 bytes)   | data 4 | epoch 4 | data 4 | epoch 4 |      each half is stored and loaded whole
//! ```
//! Each rank stores its elements (of a reduce-scatter: the peer's part of them), line by line, into a slot of
//! every peer, and polls the lines that the peers store into its own. A half of a line is one 64-bit word, so
//! data and epoch arrive together: there is no other flag, no fence, and one way over the link. All ranks add
//! up in the order of ranks.
//!
//! # Why a slot can be written again
//! There are two for each peer, of even and of odd epochs. A rank stores epoch `e + 2` when its launch `e +
//! 1` has ended, so after it has got something of every peer's launch `e + 1`, which began after their launch
//! `e` had read the slot.

use crate::meeting::{Patience, end_epoch, epoch, signals_of};
use crate::number::{Addend, Format, HALF_BYTES, Operator, combine, finish, from_half, to_half};
use crate::team::{Reason, Signals, Team};
use crate::{THREADS, by_format};
use cuda_std::atomic::pairs::{load_relaxed_pair_system, store_relaxed_pair_system};
use cuda_std::vector::{load_v2, store_v2};
use cuda_std::{grid, kernel, thread};
use primitives::unroll;

/// Bytes of a line.
pub const LINE: usize = 16;
/// Bytes of data in a line.
pub const DATA: usize = HALF_BYTES;
/// Most bytes of data of a launch.
pub const MAX_BYTES: usize = 256 << 10;
/// Lines of a slot.
pub const MAX_LINES: usize = MAX_BYTES / DATA;

/// A small all-reduce or reduce-scatter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Small {
    /// Elements of the result; at most [`MAX_BYTES`].
    pub count: u64,
    /// Elements from rank's part to rank's part in the input; 0: all ranks get the whole.
    pub stride: u64,
    /// The element type.
    pub format: Format,
    /// How elements are combined.
    pub operator: Operator,
}

/// Combines the inputs of all ranks into each one's output; see the module.
///
/// # Safety
/// All ranks launch it with the same grid of at most [`crate::MAX_BLOCKS`] resident blocks of [`THREADS`]
/// threads, and the same arguments. The team's addresses are those of live memory, `signals` is the rank's
/// own, with its slots behind it. `input` (null: it is `output`) and `output` hold the elements.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn all_reduce_low_latency(
    team: Team,
    small: Small,
    signals: *mut Signals,
    input: *const u8,
    output: *mut u8,
) {
    let input = if input.is_null() { output.cast_const() } else { input };
    let block = thread::block_idx_x();
    grid::wait_dependencies();
    // SAFETY: the caller's promise.
    unsafe {
        let epoch = epoch(&team, signals, block, 0);
        thread::sync_threads();
        end_epoch(&team, signals, block, epoch);
        by_format!(small.format, 8, exchange(&team, &small, signals, epoch, input, output));
    }
}

/// # Safety
/// As for [`all_reduce_low_latency`]; elements are `T`s, `N` in a line.
#[inline(always)]
unsafe fn exchange<T: Addend, const N: usize>(
    team: &Team,
    small: &Small,
    signals: *mut Signals,
    epoch: u32,
    input: *const u8,
    output: *mut u8,
) {
    let (input, output) = (input.cast::<T>(), output.cast::<T>());
    // SAFETY: the parts of all ranks lie in the input.
    let part = |rank: u32| unsafe { input.add((u64::from(rank) * small.stride) as usize) };
    let lines = small.count.div_ceil(N as u64);
    let threads = u64::from(thread::grid_dim_x() * THREADS);
    let first = u64::from(thread::block_idx_x() * THREADS + thread::thread_idx_x());
    let is_aligned =
        (input as u64 | output as u64 | (small.stride * size_of::<T>() as u64)).is_multiple_of(DATA as u64);
    let whole = if is_aligned { small.count / N as u64 } else { 0 };
    // SAFETY: the caller's promise; a line has one thread.
    unsafe {
        let mut at = first;
        while at < lines {
            if small.stride == 0 {
                send(team, epoch, at, read::<T, N>(input, at, at < whole, small.count));
            } else {
                let mut rank = 0;
                while rank < team.ranks {
                    if rank != team.rank {
                        let words = read::<T, N>(part(rank), at, at < whole, small.count);
                        send_to(team, signals_of(team, rank), epoch, at, words);
                    }
                    rank += 1;
                }
            }
            at += threads;
        }
        let mut patience = Patience::NEW;
        let mut at = first;
        while at < lines {
            let own = read::<T, N>(part(team.rank), at, at < whole, small.count);
            let Some(sum) = gather::<T, N>(team, small, signals, epoch, at, own, &mut patience) else {
                return;
            };
            write::<T, N>(
                output,
                at,
                at < whole,
                small.count,
                finish::<T, N>(small.operator, sum, team.ranks),
            );
            at += threads;
        }
    }
}

/// Stores line `at` into the rank's slot of every peer.
///
/// # Safety
/// As for [`all_reduce_low_latency`].
#[inline(always)]
pub(crate) unsafe fn send(team: &Team, epoch: u32, at: u64, words: [u32; 2]) {
    unroll!(r in 0..8, {
        if (r as u32) < team.ranks && r as u32 != team.rank {
            // SAFETY: the caller's promise.
            unsafe { send_to(team, team.signals[r], epoch, at, words) };
        }
    });
}

/// Stores line `at` into the rank's slot of the peer whose signals are given.
///
/// # Safety
/// As for [`all_reduce_low_latency`].
#[inline(always)]
unsafe fn send_to(team: &Team, signals: u64, epoch: u32, at: u64, [a, b]: [u32; 2]) {
    let flag = u64::from(epoch) << 32;
    let line = [flag | u64::from(a), flag | u64::from(b)];
    let slot = team.slots(signals, epoch, team.rank);
    // SAFETY: the caller's promise.
    unsafe { store_relaxed_pair_system(slot.add(2 * at as usize), line) };
}

/// Line `at` of a rank's slot, when it has come: its data. `None`: the thread gives up.
///
/// # Safety
/// As for [`all_reduce_low_latency`].
#[inline(always)]
pub(crate) unsafe fn receive(
    team: &Team,
    signals: *mut Signals,
    epoch: u32,
    rank: u32,
    at: u64,
    patience: &mut Patience,
) -> Option<[u32; 2]> {
    let slot = team.slots(signals as u64, epoch, rank);
    loop {
        // SAFETY: the caller's promise.
        let line = unsafe { load_relaxed_pair_system(slot.add(2 * at as usize)) };
        if (line[0] >> 32) as u32 == epoch && (line[1] >> 32) as u32 == epoch {
            return Some([line[0] as u32, line[1] as u32]);
        }
        // SAFETY: the caller's promise.
        if unsafe { patience.is_over(team, Reason::Absent, rank) } {
            return None;
        }
    }
}

/// Line `at` of all ranks, combined. The next rank's line is under way while one is waited for. `None`: the
/// thread gives up.
///
/// # Safety
/// As for [`all_reduce_low_latency`].
#[inline(always)]
pub(crate) unsafe fn gather<T: Addend, const N: usize>(
    team: &Team,
    small: &Small,
    signals: *mut Signals,
    epoch: u32,
    at: u64,
    own: [u32; 2],
    patience: &mut Patience,
) -> Option<[T::Wide; N]> {
    let flag = u64::from(epoch) << 32;
    let own = [flag | u64::from(own[0]), flag | u64::from(own[1])];
    let load = |rank: u32| {
        let slot = team.slots(signals as u64, epoch, rank);
        // SAFETY: the caller's promise.
        if rank == team.rank { own } else { unsafe { load_relaxed_pair_system(slot.add(2 * at as usize)) } }
    };
    let mut sum = T::widen([T::ZERO; N]);
    let (mut rank, mut next) = (0, load(0));
    while rank < team.ranks {
        let mut line = next;
        if rank + 1 < team.ranks {
            next = load(rank + 1);
        }
        while (line[0] >> 32) as u32 != epoch || (line[1] >> 32) as u32 != epoch {
            // SAFETY: the caller's promise.
            if unsafe { patience.is_over(team, Reason::Absent, rank) } {
                return None;
            }
            line = load(rank);
        }
        let values = T::widen(from_half::<T, N>([line[0] as u32, line[1] as u32]));
        sum = if rank == 0 { values } else { combine(small.operator, sum, values) };
        rank += 1;
    }
    Some(sum)
}

/// Line `at` of a buffer; elements behind the end are 0.
///
/// # Safety
/// The buffer has `count` elements; `is_whole`: the line is within, at an 8-byte boundary.
#[inline(always)]
pub(crate) unsafe fn read<T: Addend, const N: usize>(
    from: *const T,
    at: u64,
    is_whole: bool,
    count: u64,
) -> [u32; 2] {
    // SAFETY: the caller's promise; as many bytes of elements as of words.
    unsafe {
        if is_whole {
            return load_v2(from.add(at as usize * N).cast::<u32>());
        }
        let mut elements = [T::ZERO; N];
        for i in 0..N {
            let place = at * N as u64 + i as u64;
            if place < count {
                elements[i] = *from.add(place as usize);
            }
        }
        to_half(elements)
    }
}

/// As [`read`].
///
/// # Safety
/// As for [`read`], and the line is the caller's own.
#[inline(always)]
pub(crate) unsafe fn write<T: Addend, const N: usize>(
    to: *mut T,
    at: u64,
    is_whole: bool,
    count: u64,
    elements: [T; N],
) {
    // SAFETY: the caller's promise; as many bytes of elements as of words.
    unsafe {
        if is_whole {
            return store_v2(to.add(at as usize * N).cast::<u32>(), to_half(elements));
        }
        for i in 0..N {
            let place = at * N as u64 + i as u64;
            if place < count {
                *to.add(place as usize) = elements[i];
            }
        }
    }
}
