//! Gradients of fewer bits, added up in f32, with the sum of their squares.
//!
//! As in [`reduce`](crate::reduce) each element has one owner, who reads it from all ranks. It multiplies the
//! sum by a factor, and writes it to all outputs in f32. Each block of an owner also writes the sum of its
//! squares to all ranks' [`Signals`], where a launch of `sum_squares` adds them up: in one order, so all
//! ranks have the same bits.
//!
//! # Why the squares can be written again
//! A rank begins the next launch of `reduce_scaled` behind its `sum_squares`; a peer writes when it has
//! met that launch.

use crate::meeting::{Meeting, signals_of};
use crate::number::{Addend, Format, Operator, combine};
use crate::reduce::sums;
use crate::team::{Signals, Team};
use crate::{MAX_BLOCKS, MAX_RANKS, THREADS, UNIT};
use cuda_std::vector::store_v4;
use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use cuda_std::{grid, kernel, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::op::Sum;
use primitives::{block, unroll, warp};

/// The part of a launch that a rank owns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Scaled {
    /// Where it begins.
    pub start: u64,
    /// Its elements.
    pub length: u64,
    /// The element type of the inputs: f32, f16 or bf16.
    pub format: Format,
    /// The factor.
    pub scale: f32,
}

/// Adds up and scales the part of the inputs that the rank owns; see the module.
///
/// # Safety
/// As for `reduce_parts`. The format is one of three, outputs are f32.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn reduce_scaled(
    team: Team,
    part: Scaled,
    signals: *mut Signals,
    input: *const u8,
    output: *mut f32,
) {
    let slots = shared::generic(shared_array![f32; block::slots(THREADS)]).cast::<f32>();
    grid::wait_dependencies();
    // SAFETY: the caller's promise.
    unsafe {
        let Some(meeting) = Meeting::begin(&team, signals, input as u64, output as u64) else { return };
        let squares = match part.format {
            Format::F32 => reduce::<f32, 2>(&team, &part, &meeting),
            Format::F16 => reduce::<f16, 4>(&team, &part, &meeting),
            _ => reduce::<bf16, 4>(&team, &part, &meeting),
        };
        let squares = block::reduce(Sum, squares, slots);
        let rank = thread::thread_idx_x();
        if rank < team.ranks {
            let there = signals_of(&team, rank) as *mut Signals;
            let place = (&raw mut (*there).squares).cast::<f32>();
            *place.add(team.rank as usize * MAX_BLOCKS + thread::block_idx_x() as usize) = squares;
        }
        meeting.end(&team, signals);
    }
}

/// The sum of the squares of the thread's elements.
///
/// # Safety
/// As for `reduce_scaled`; elements are `T`s, `N` in half a unit.
#[inline(always)]
unsafe fn reduce<T: Addend<Wide = f32>, const N: usize>(
    team: &Team,
    part: &Scaled,
    meeting: &Meeting,
) -> f32 {
    let size = size_of::<T>() as u64;
    let mut bits = 0;
    for rank in 0..team.ranks {
        bits |= (meeting.input(rank) + part.start * size) | (meeting.output(rank) + part.start * 4);
    }
    let whole = if bits.is_multiple_of(UNIT) { part.length / (2 * N as u64) } else { 0 };
    let threads = u64::from(thread::grid_dim_x() * THREADS);
    let first = u64::from(thread::block_idx_x() * THREADS + thread::thread_idx_x());
    let mut squares = 0.0;
    // SAFETY: the caller's promise; units and elements of the part, each by one thread.
    unsafe {
        let mut at = first;
        // All lanes of a warp, or none: they exchange halves.
        while (at | u64::from(warp::LANES - 1)) + 3 * threads < whole {
            squares += units::<T, N, 4>(team, part, meeting, at, threads);
            at += 4 * threads;
        }
        while at < whole {
            squares += units::<T, N, 1>(team, part, meeting, at, threads);
            at += threads;
        }
        let mut at = whole * 2 * N as u64 + first;
        while at < part.length {
            let place = part.start + at;
            let load = |rank: u32| T::widen([*((meeting.input(rank) + place * size) as *const T)]);
            let mut sum = load(0);
            for rank in 1..team.ranks {
                sum = combine(Operator::Sum, sum, load(rank));
            }
            let value = sum[0] * part.scale;
            squares += value * value;
            for rank in 0..team.ranks {
                *(meeting.output(rank) as *mut f32).add(place as usize) = value;
            }
            at += threads;
        }
    }
    squares
}

/// Up to four units `at`, `at + stride`, ..: the sum of their elements' squares.
///
/// # Safety
/// As for [`reduce`]; they are units of the part, at 16-byte boundaries.
#[inline(always)]
unsafe fn units<T: Addend<Wide = f32>, const N: usize, const UNITS: usize>(
    team: &Team,
    part: &Scaled,
    meeting: &Meeting,
    at: u64,
    stride: u64,
) -> f32 {
    let from = part.start * size_of::<T>() as u64 + at * UNIT;
    // SAFETY: the caller's promise.
    let mut sums = unsafe { sums::<T, N, UNITS>(team, Operator::Sum, meeting, from, stride * UNIT) };
    let mut squares = 0.0;
    unroll!(u in 0..4, {
        if u < UNITS {
            unroll!(h in 0..2, {
                unroll!(i in 0..4, {
                    if i < N {
                        let value = sums[u][h][i] * part.scale;
                        squares += value * value;
                        sums[u][h][i] = value;
                    }
                });
            });
        }
    });
    // Two lanes exchange halves of 16-bit units, so that each of their stores fills a sector of the peer.
    let is_exchanged = N == 4 && UNITS > 1;
    let (odd, at) = if is_exchanged { (at & 1, at & !1) } else { (0, at) };
    if is_exchanged {
        unroll!(u in 0..4, {
            if u < UNITS {
                let [low, high] = sums[u];
                // SAFETY: all lanes of the warp are here.
                let got = unsafe { exchanged(if odd == 0 { high } else { low }) };
                sums[u] = if odd == 0 { [low, got] } else { [got, high] };
            }
        });
    }
    for rank in 0..team.ranks {
        let output = meeting.output(rank) as *mut f32;
        unroll!(u in 0..4, {
            if u < UNITS {
                let place = part.start + (at + u as u64 * stride) * 2 * N as u64 + odd * N as u64;
                // SAFETY: the caller's promise.
                unsafe {
                    let step = if is_exchanged { 2 * N } else { N };
                    store(output.add(place as usize), step, sums[u]);
                }
            }
        });
    }
    squares
}

/// The values of the lane beside this one.
///
/// # Safety
/// All lanes of the warp call it.
#[inline(always)]
unsafe fn exchanged<const N: usize>(mut values: [f32; N]) -> [f32; N] {
    unroll!(i in 0..4, {
        if i < N {
            // SAFETY: the caller's promise.
            values[i] = unsafe { warp_shuffle_xor(FULL_MASK, values[i], 1, warp::LANES).0 };
        }
    });
    values
}

/// Stores the halves of a unit, the second one `step` elements behind the first.
///
/// # Safety
/// There is room, at boundaries of 16 bytes.
#[inline(always)]
unsafe fn store<const N: usize>(to: *mut f32, step: usize, [low, high]: [[f32; N]; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        if N == 4 {
            let words = |half: [f32; N]| [half[0], half[1], half[2], half[N - 1]].map(f32::to_bits);
            store_v4(to.cast::<u32>(), words(low));
            store_v4(to.add(step).cast::<u32>(), words(high));
        } else {
            store_v4(to.cast::<u32>(), [low[0], low[1], high[0], high[1]].map(f32::to_bits));
        }
    }
}

/// Adds up what the blocks of all ranks have written.
///
/// # Safety
/// A warp launches it, behind a launch of `reduce_scaled` in so many blocks, on the rank's own `signals`.
/// `sum` is a place to write to.
#[kernel(launch_bounds(32))]
pub unsafe fn sum_squares(ranks: u32, blocks: u32, signals: *mut Signals, sum: *mut f32) {
    let lane = thread::thread_idx_x();
    // SAFETY: the caller's promise.
    unsafe {
        let squares = (&raw const (*signals).squares).cast::<f32>();
        let mut own = 0.0;
        let mut place = lane;
        while place < MAX_RANKS as u32 * MAX_BLOCKS as u32 {
            if place / (MAX_BLOCKS as u32) < ranks && place % (MAX_BLOCKS as u32) < blocks {
                own += *squares.add(place as usize);
            }
            place += warp::LANES;
        }
        let all = warp::reduce(Sum, own);
        if lane == 0 {
            *sum = all;
        }
    }
}
