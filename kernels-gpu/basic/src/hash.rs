//! A hash of bytes, for telling whether two pieces of memory are the same: 64 bits, the same for the same
//! bytes wherever they lie, on every device and in every run.
//!
//! ```text
//!   hash = mix(w[0]) + mix(w[1] ^ STEP) + mix(w[2] ^ 2 STEP) + ..     modulo 2^64
//!   w[0] is the number of bytes, then come words of eight bytes, the last ones filled up with zeros
//! ```
//! Sums of integers do not depend on their order, so warps add what they have to the result by atomics.
//! `mix` takes every word to another one, so one word that differs always shows; several do but for one case
//! in 2^64, unless somebody chose them. It is no protection against forgery.

use crate::is_aligned;
use cuda_std::atomic::intrinsics::atomic_fetch_add_relaxed_u64_device;
use cuda_std::{kernel, thread, vector};
use layout::UNIT_BYTES;
use primitives::warp;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Units of 16 bytes that a thread has under way.
const UNITS: usize = 4;
/// Most blocks: several for each multiprocessor.
const MAX_BLOCKS: usize = 1024;
/// Of the golden ratio. Odd, so that no two places have the same multiple.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();
const UNIT: usize = UNIT_BYTES as usize;

/// Blocks for so many bytes.
pub const fn blocks(bytes: usize) -> u32 {
    let blocks = bytes.div_ceil(UNIT * UNITS * THREADS as usize);
    if blocks > MAX_BLOCKS {
        MAX_BLOCKS as u32
    } else if blocks == 0 {
        1
    } else {
        blocks as u32
    }
}

/// Adds the hash of `bytes` to `out`, modulo 2^64.
///
/// # Safety
/// `out` is valid for a read and a write, is reached by atomics of the device alone meanwhile, and does not
/// overlap `bytes`. Blocks of [`THREADS`] threads.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn hash_bytes(bytes: &[u8], out: *mut u64) {
    let (length, pointer) = (bytes.len(), bytes.as_ptr());
    let first = (thread::block_idx_x() * THREADS + thread::thread_idx_x()) as usize;
    let threads = (thread::grid_dim_x() * THREADS) as usize;
    let mut sum = if first == 0 { mix(length as u64) } else { 0 };
    let mut at = first;
    if is_aligned(pointer) {
        let units = length / UNIT;
        while at + (UNITS - 1) * threads < units {
            // SAFETY: whole units of `bytes`, at 16-byte boundaries.
            let loaded = [0, 1, 2, 3].map(|u| unsafe { load_unit(pointer, at + u * threads) });
            for (u, words) in loaded.into_iter().enumerate() {
                sum = sum.wrapping_add(mix_unit(words, at + u * threads));
            }
            at += UNITS * threads;
        }
        while at < units {
            // SAFETY: as above.
            sum = sum.wrapping_add(mix_unit(unsafe { load_unit(pointer, at) }, at));
            at += threads;
        }
    }
    while at * UNIT < length {
        // SAFETY: it begins inside.
        sum = sum.wrapping_add(mix_unit(unsafe { load_bytes(pointer, at * UNIT, length) }, at));
        at += threads;
    }
    // SAFETY: all lanes of all warps come here; `out` as the caller promises.
    unsafe {
        let sum = warp::fold_sections(sum, warp::LANES, u64::wrapping_add);
        if thread::thread_idx_x().is_multiple_of(warp::LANES) {
            atomic_fetch_add_relaxed_u64_device(out, sum);
        }
    }
}

/// A word to another one, by shifts and products that can all be undone (those of `SplitMix64`).
#[inline(always)]
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The part of the two words of unit `at`.
#[inline(always)]
fn mix_unit(words: [u64; 2], at: usize) -> u64 {
    let place = (UNIT / WORD * at + 1) as u64;
    let [a, b] = [0, 1].map(|i| mix(words[i] ^ STEP.wrapping_mul(place + i as u64)));
    a.wrapping_add(b)
}

/// Unit `at`.
///
/// # Safety
/// `pointer` is aligned to 16 bytes, and the unit is readable.
#[inline(always)]
unsafe fn load_unit(pointer: *const u8, at: usize) -> [u64; 2] {
    // SAFETY: the caller's promise.
    let [a, b, c, d] = unsafe { vector::load_stream_v4(pointer.cast::<u32>().add(UNIT / 4 * at)) };
    [u64::from(a) | u64::from(b) << 32, u64::from(c) | u64::from(d) << 32]
}

/// The unit from byte `start` on, of which there is less than a whole, or which is not aligned.
///
/// # Safety
/// `pointer` is readable for `length` bytes.
#[inline(always)]
unsafe fn load_bytes(pointer: *const u8, start: usize, length: usize) -> [u64; 2] {
    let mut words = [0; 2];
    let mut i = 0;
    while i < UNIT && start + i < length {
        // SAFETY: below `length`.
        let byte = u64::from(unsafe { *pointer.add(start + i) }) << (8 * (i % WORD));
        if i < WORD {
            words[0] |= byte;
        } else {
            words[1] |= byte;
        }
        i += 1;
    }
    words
}
