//! A stable sort of tokens by their digits of 8 bits, the lowest first (Knuth, "The art of computer
//! programming", volume 3, 5.2.5).
//!
//! A pass is two launches. The first counts the digits of each block's tokens. In the second each block adds
//! up the counts of all, which tells where its tokens of each digit go; a warp ranks equal digits by votes.

use crate::THREADS;
use cuda_std::{kernel, shared, shared_array, thread, warp};
use primitives::grid::begin;
use primitives::op::Sum;
use primitives::{block, unroll};

/// Bits of a digit.
pub const DIGIT_BITS: u32 = 8;
/// Values of a digit: a thread each.
pub const DIGITS: u32 = 1 << DIGIT_BITS;
const _: () = assert!(DIGITS == THREADS);
/// Tokens of a thread.
const ROUNDS: usize = 8;
/// Tokens of a block.
pub const TILE: u32 = THREADS * ROUNDS as u32;
const LANES: u32 = primitives::warp::LANES;
const WARPS: usize = block::slots(THREADS);

/// Blocks, of [`THREADS`] threads, for `n` tokens.
pub const fn blocks(n: u32) -> u32 {
    n.div_ceil(TILE)
}

/// A token and its place, the token in the upper half.
pub type Pair = u64;

/// The token of a pair.
#[inline(always)]
pub fn token(pair: Pair) -> u32 {
    (pair >> u32::BITS) as u32
}

/// The digit of a pair, [`DIGITS`] for none.
#[inline(always)]
fn digit(pair: Option<Pair>, shift: u32) -> u32 {
    pair.map_or(DIGITS, |pair| token(pair) >> (shift & 31) & (DIGITS - 1))
}

/// The calling thread's pairs: those of a warp lie together, and a round is 32 neighbours.
///
/// # Safety
/// `tokens` holds `n`, or is null and `pairs` holds as many.
#[inline(always)]
unsafe fn pairs_of_thread(n: u32, tokens: *const i64, pairs: *const Pair) -> [Option<Pair>; ROUNDS] {
    let thread = thread::thread_idx_x();
    let first = thread::block_idx_x() * TILE + thread / LANES * (LANES * ROUNDS as u32) + thread % LANES;
    let mut mine = [None; ROUNDS];
    unroll!(round in 0..8, {
        let place = first + round as u32 * LANES;
        if place < n {
            // SAFETY: the caller's promise.
            mine[round] = Some(unsafe {
                if tokens.is_null() {
                    *pairs.add(place as usize)
                } else {
                    (*tokens.add(place as usize) as u64) << u32::BITS | u64::from(place)
                }
            });
        }
    });
    mine
}

/// The rank of each pair among those of its warp with the same digit. Leaves the number of each digit in
/// `counters`, a row for each warp.
///
/// # Safety
/// All threads of the block call it; `counters` is shared memory that no thread uses since the last barrier.
#[inline(always)]
unsafe fn ranks(mine: &[Option<Pair>; ROUNDS], shift: u32, counters: *mut u32) -> [u32; ROUNDS] {
    let thread = thread::thread_idx_x();
    let (lane, mut ranks) = (thread % LANES, [0; ROUNDS]);
    // SAFETY: whole warps vote. A counter is written by one lane between votes.
    unsafe {
        for row in 0..WARPS {
            *counters.add(row * DIGITS as usize + thread as usize) = 0;
        }
        thread::sync_threads();
        let row = counters.add((thread / LANES * DIGITS) as usize);
        unroll!(round in 0..8, {
            let digit = digit(mine[round], shift);
            let equal = warp::warp_match_any(warp::FULL_MASK, digit);
            let below = (equal & ((1 << lane) - 1)).count_ones();
            let before = if digit < DIGITS { *row.add(digit as usize) } else { 0 };
            warp::sync_warp(warp::FULL_MASK);
            if digit < DIGITS && below == 0 {
                *row.add(digit as usize) = before + equal.count_ones();
            }
            warp::sync_warp(warp::FULL_MASK);
            ranks[round] = before + below;
        });
    }
    ranks
}

/// Counts the digits from bit `shift` on of each block's tokens.
///
/// # Safety
/// `tokens` holds `n` below 2^32, or is null and `pairs` holds as many; `counts` has [`DIGITS`] places for
/// each block. Blocks of [`THREADS`] threads, [`blocks`] of them.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn count_digits(n: u32, shift: u32, tokens: *const i64, pairs: *const Pair, counts: *mut u32) {
    let counters = shared::generic(shared_array![u32; WARPS * DIGITS as usize]);
    let (block, thread) = begin(|| (thread::block_idx_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; a digit has one thread.
    unsafe {
        ranks(&pairs_of_thread(n, tokens, pairs), shift, counters);
        thread::sync_threads();
        let mut count = 0;
        for row in 0..WARPS {
            count += *counters.add(row * DIGITS as usize + thread as usize);
        }
        *counts.add((block * DIGITS + thread) as usize) = count;
    }
}

/// Moves each pair to its place by the digit from bit `shift` on; equal ones keep their order.
///
/// # Safety
/// As [`count_digits()`], which left `counts`; `sorted` has a place for each and overlaps nothing.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn scatter_digits(
    n: u32,
    shift: u32,
    tokens: *const i64,
    pairs: *const Pair,
    counts: *const u32,
    sorted: *mut Pair,
) {
    let counters = shared::generic(shared_array![u32; WARPS * DIGITS as usize]);
    let slots = shared::generic(shared_array![i64; WARPS]);
    let (block, blocks, thread) =
        begin(|| (thread::block_idx_x(), thread::grid_dim_x(), thread::thread_idx_x()));
    // SAFETY: the caller's promise; all threads come to the scan. Counts add up to n, so that places lie in
    // `sorted`.
    unsafe {
        let mine = pairs_of_thread(n, tokens, pairs);
        let ranks = ranks(&mine, shift, counters);
        let (mut before, mut all) = (0, 0);
        for other in 0..blocks {
            let count = *counts.add((other * DIGITS + thread) as usize);
            before += if other < block { count } else { 0 };
            all += count;
        }
        // At most n in all.
        let smaller = block::exclusive_scan(Sum, i64::from(all), slots) as u32;
        let mut place = smaller + before;
        for row in 0..WARPS {
            let counter = counters.add(row * DIGITS as usize + thread as usize);
            let count = *counter;
            *counter = place;
            place += count;
        }
        thread::sync_threads();
        let row = counters.add((thread / LANES * DIGITS) as usize);
        unroll!(round in 0..8, {
            if let Some(pair) = mine[round] {
                *sorted.add((*row.add(digit(mine[round], shift) as usize) + ranks[round]) as usize) = pair;
            }
        });
    }
}
