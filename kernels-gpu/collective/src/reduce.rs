//! Sums of what all ranks give: each element by one owner.
//!
//! ```text
//!   rank 0's input   [ a0 | b0 | c0 | d0 ]          all-reduce: owner 1 writes sum(b) to every output
//!   rank 1's input   [ a1 | b1 | c1 | d1 ]          reduce-scatter: owner 1 keeps sum(b)
//!                           ^ owner 1 reads b of all ranks, in the order of ranks
//! ```
//! The thread that has read an element from all ranks is the only one that writes it, so the input may be the
//! output, and between reading and writing there is nothing to wait for. All ranks get the owner's bits.

use crate::meeting::Meeting;
use crate::number::{Addend, Format, Operator, combine, finish, from_half, to_half};
use crate::stage::{Stage, Staging};
use crate::team::{Signals, Team};
use crate::{THREADS, UNIT, by_format};
use cuda_std::vector::{load_l2_v4, store_v4};
use cuda_std::{grid, kernel, thread};
use primitives::unroll;

/// Units of a thread under way from each rank. With the blocks that a sum has they fill the link and no more:
/// loads beyond that are in the way of the stores (`benches/NOTES.md`).
const UNITS: usize = 3;

/// The part of a launch that a rank owns. Numbers of elements.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Part {
    /// Where it begins in the inputs.
    pub start: u64,
    /// Its elements.
    pub length: u64,
    /// Where it goes in the outputs.
    pub target: u64,
    /// The element type.
    pub format: Format,
    /// How elements are combined.
    pub operator: Operator,
    /// 1 when all ranks get it, 0 when the owner keeps it.
    pub goes_to_all: u32,
}

/// The part of a rank among `ranks` that share `count` elements of `size` bytes evenly, in whole units: where
/// it begins, and how long it is.
pub const fn share(count: u64, size: u64, rank: u64, ranks: u64) -> (u64, u64) {
    let unit = UNIT / size;
    let each = count.div_ceil(unit).div_ceil(ranks) * unit;
    let start = if rank * each < count { rank * each } else { count };
    let end = if start + each < count { start + each } else { count };
    (start, end - start)
}

/// Combines the part of the inputs that the rank owns; see the module.
///
/// # Safety
/// There are at least two ranks. All launch it with the same grid of at most [`crate::MAX_BLOCKS`] resident
/// blocks of [`THREADS`] threads, the same call, and parts that do not overlap. The team's addresses are
/// those of live memory, `signals` is the rank's own. `input` (null: it is `output`) and `output` hold the
/// parts, or the copies of `stage`; then so do the stages behind all ranks' signals.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn reduce_parts(
    team: Team,
    part: Part,
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
        by_format!(part.format, 8, reduce(&team, &part, &meeting));
        staging.end(meeting, &team, signals);
    }
}

/// Bits of the ranks that get the part.
#[inline(always)]
fn targets(team: &Team, part: &Part) -> u32 {
    if part.goes_to_all != 0 { (1 << team.ranks) - 1 } else { 1 << team.rank }
}

/// # Safety
/// As for [`reduce_parts`]; elements are `T`s, `N` in half a unit.
#[inline(always)]
unsafe fn reduce<T: Addend, const N: usize>(team: &Team, part: &Part, meeting: &Meeting) {
    let (size, targets) = (size_of::<T>() as u64, targets(team, part));
    let (from, to) = (part.start * size, part.target * size);
    let mut bits = 0;
    for rank in 0..team.ranks {
        bits |= meeting.input(rank) + from;
        bits |= if targets >> rank & 1 != 0 { meeting.output(rank) + to } else { 0 };
    }
    let whole = if bits.is_multiple_of(UNIT) { part.length / (2 * N as u64) } else { 0 };
    let threads = u64::from(thread::grid_dim_x() * THREADS);
    let first = u64::from(thread::block_idx_x() * THREADS + thread::thread_idx_x());
    // SAFETY: the caller's promise; units and elements of the part, each by one thread.
    unsafe {
        let mut at = first;
        // Bytes take four times as much when they are combined: one unit is enough for the registers.
        if size > 1 {
            at = whole_units::<T, N>(team, part, meeting, at, whole, threads);
        }
        while at < whole {
            let loaded = first_two::<1>(meeting, from + at * UNIT, threads * UNIT);
            let results = results::<T, N, 1>(team, part, meeting, at, threads, loaded);
            store(team, part, meeting, to + at * UNIT, threads * UNIT, results);
            at += threads;
        }
        let mut at = whole * 2 * N as u64 + first;
        while at < part.length {
            element::<T>(team, part, meeting, at);
            at += threads;
        }
    }
}

/// `UNITS` units at a time, from `at` on, as long as there are so many: where the rest begins. The next ones
/// are under way before the results of these are stored.
///
/// # Safety
/// As for [`reduce`]; they are units of the part, at 16-byte boundaries.
#[inline(always)]
unsafe fn whole_units<T: Addend, const N: usize>(
    team: &Team,
    part: &Part,
    meeting: &Meeting,
    mut at: u64,
    whole: u64,
    threads: u64,
) -> u64 {
    let size = size_of::<T>() as u64;
    let (from, to, reach) = (part.start * size, part.target * size, (UNITS as u64 - 1) * threads);
    // SAFETY: the caller's promise.
    unsafe {
        let load = |at: u64| first_two::<UNITS>(meeting, from + at * UNIT, threads * UNIT);
        if at + reach >= whole {
            return at;
        }
        let mut loaded = load(at);
        loop {
            let next = at + UNITS as u64 * threads;
            let is_last = next + reach >= whole;
            let results = results::<T, N, UNITS>(team, part, meeting, at, threads, loaded);
            if !is_last {
                loaded = load(next);
            }
            store(team, part, meeting, to + at * UNIT, threads * UNIT, results);
            if is_last {
                return next;
            }
            at = next;
        }
    }
}

/// Units of ranks 0 and 1.
type FirstTwo<const UNITS: usize> = [[[u32; 4]; UNITS]; 2];

/// Up to four units of ranks 0 and 1, from byte `from` of the inputs on, `stride` bytes apart.
///
/// # Safety
/// As for [`sums`].
#[inline(always)]
unsafe fn first_two<const UNITS: usize>(meeting: &Meeting, from: u64, stride: u64) -> FirstTwo<UNITS> {
    // SAFETY: the caller's promise.
    unsafe { [load(meeting.input(0) + from, stride), load(meeting.input(1) + from, stride)] }
}

/// Up to four units from an address on, `stride` bytes apart.
///
/// # Safety
/// They can be read, and begin at 16-byte boundaries.
#[inline(always)]
unsafe fn load<const UNITS: usize>(begin: u64, stride: u64) -> [[u32; 4]; UNITS] {
    let mut words = [[0u32; 4]; UNITS];
    unroll!(u in 0..4, {
        if u < UNITS {
            // SAFETY: the caller's promise.
            words[u] = unsafe { load_l2_v4((begin + u as u64 * stride) as *const u32) };
        }
    });
    words
}

/// Up to four units, from byte `from` of the inputs on, `stride` bytes apart, combined.
///
/// # Safety
/// As for `reduce_parts`; they are units of the part, at 16-byte boundaries. Elements are `T`s, `N` in half
/// a unit.
#[inline(always)]
pub(crate) unsafe fn sums<T: Addend, const N: usize, const UNITS: usize>(
    team: &Team,
    operator: Operator,
    meeting: &Meeting,
    from: u64,
    stride: u64,
) -> [[[T::Wide; N]; 2]; UNITS] {
    // SAFETY: the caller's promise.
    unsafe {
        let loaded = first_two(meeting, from, stride);
        combined::<T, N, UNITS>(team, operator, meeting, from, stride, loaded)
    }
}

/// As [`sums`], with the units of ranks 0 and 1: those of the next rank are under way while those of one are
/// combined.
///
/// # Safety
/// As for [`sums`].
#[inline(always)]
unsafe fn combined<T: Addend, const N: usize, const UNITS: usize>(
    team: &Team,
    operator: Operator,
    meeting: &Meeting,
    from: u64,
    stride: u64,
    [first, mut next]: FirstTwo<UNITS>,
) -> [[[T::Wide; N]; 2]; UNITS] {
    let mut sums = [halves::<T, N>(first[0]); UNITS];
    unroll!(u in 0..4, {
        if u < UNITS {
            sums[u] = halves::<T, N>(first[u]);
        }
    });
    let mut rank = 1;
    while rank < team.ranks {
        let words = next;
        rank += 1;
        if rank < team.ranks {
            // SAFETY: the caller's promise.
            next = unsafe { load(meeting.input(rank) + from, stride) };
        }
        unroll!(u in 0..4, {
            if u < UNITS {
                let ([a, b], [c, d]) = (sums[u], halves::<T, N>(words[u]));
                sums[u] = [combine(operator, a, c), combine(operator, b, d)];
            }
        });
    }
    sums
}

/// The results of up to four units `at`, `at + stride`, .., of which those of ranks 0 and 1 are loaded.
///
/// # Safety
/// As for [`reduce`]; they are units of the part, at 16-byte boundaries.
#[inline(always)]
unsafe fn results<T: Addend, const N: usize, const UNITS: usize>(
    team: &Team,
    part: &Part,
    meeting: &Meeting,
    at: u64,
    stride: u64,
    loaded: FirstTwo<UNITS>,
) -> [[u32; 4]; UNITS] {
    let from = part.start * size_of::<T>() as u64 + at * UNIT;
    // SAFETY: the caller's promise.
    let sums = unsafe { combined::<T, N, UNITS>(team, part.operator, meeting, from, stride * UNIT, loaded) };
    let mut results = [[0u32; 4]; UNITS];
    let round = |half| to_half(finish::<T, N>(part.operator, half, team.ranks));
    unroll!(u in 0..4, {
        if u < UNITS {
            let ([a, b], [c, d]) = (round(sums[u][0]), round(sums[u][1]));
            results[u] = [a, b, c, d];
        }
    });
    results
}

/// Stores units where they go, from byte `to` of the outputs on, `stride` bytes apart.
///
/// # Safety
/// As for [`results`].
#[inline(always)]
unsafe fn store<const UNITS: usize>(
    team: &Team,
    part: &Part,
    meeting: &Meeting,
    to: u64,
    stride: u64,
    results: [[u32; 4]; UNITS],
) {
    let targets = targets(team, part);
    for rank in 0..team.ranks {
        if targets >> rank & 1 != 0 {
            let begin = meeting.output(rank) + to;
            unroll!(u in 0..4, {
                if u < UNITS {
                    // SAFETY: the caller's promise.
                    unsafe { store_v4((begin + u as u64 * stride) as *mut u32, results[u]) };
                }
            });
        }
    }
}

/// The elements of both halves of a unit: few enough at a time for their arrays to stay in registers.
#[inline(always)]
fn halves<T: Addend, const N: usize>([a, b, c, d]: [u32; 4]) -> [[T::Wide; N]; 2] {
    [T::widen(from_half([a, b])), T::widen(from_half([c, d]))]
}

/// One element.
///
/// # Safety
/// As for [`reduce`]; it is one of the part.
#[inline(always)]
unsafe fn element<T: Addend>(team: &Team, part: &Part, meeting: &Meeting, at: u64) {
    let size = size_of::<T>() as u64;
    // SAFETY: the caller's promise.
    unsafe {
        let load = |rank: u32| T::widen([*((meeting.input(rank) + (part.start + at) * size) as *const T)]);
        let mut sum = load(0);
        for rank in 1..team.ranks {
            sum = combine(part.operator, sum, load(rank));
        }
        let [result] = finish::<T, 1>(part.operator, sum, team.ranks);
        let targets = targets(team, part);
        for rank in 0..team.ranks {
            if targets >> rank & 1 != 0 {
                *((meeting.output(rank) + (part.target + at) * size) as *mut T) = result;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_cover_all_elements_once() {
        for size in [1, 2, 4, 8] {
            for ranks in 1..=8 {
                for count in (0..200).chain([1 << 20, (1 << 30) + 17]) {
                    let mut next = 0;
                    for rank in 0..ranks {
                        let (start, length) = share(count, size, rank, ranks);
                        assert!(start == next && (length == 0 || start * size % 16 == 0));
                        next += length;
                    }
                    assert_eq!(next, count);
                }
            }
        }
    }
}
