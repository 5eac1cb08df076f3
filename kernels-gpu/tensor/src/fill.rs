//! Constants, progressions and random numbers, written to dense memory.
//!
//! Random numbers come from [`primitives::philox`]: element `e` of a seed is the same in every launch, on
//! every device.

use crate::THREADS;
use cuda_std::{GpuFloat, fastmath, kernel, thread};
use primitives::access::{self, VECTOR_BYTES};
use primitives::grid::begin;
use primitives::philox::{self, Keys};

/// Units of 16 bytes that a thread writes, THREADS of them apart: a warp writes whole lines.
pub const UNITS: u64 = 2;
/// The same of random numbers, which take longer: a block's beginning is waited for less often.
pub const RANDOM_UNITS: u64 = 8;

/// Blocks, of [`THREADS`] threads, for `n` elements of `size` bytes, when a thread writes `units`.
pub const fn blocks(n: u64, size: usize, units: u64) -> u64 {
    n.div_ceil(THREADS as u64 * units * (VECTOR_BYTES / size) as u64)
}

/// Writes the calling thread's `UNITS` units of the `n` elements of `y`: `values` of each unit's number.
///
/// # Safety
/// `y` holds them. Blocks as [`blocks`] says for `UNITS`.
#[inline(always)]
unsafe fn write<T: Copy, const N: usize, const UNITS: u64>(
    n: u64,
    y: *mut T,
    values: impl Fn(u64) -> [T; N],
) {
    const { assert!(N * size_of::<T>() == VECTOR_BYTES && UNITS.is_power_of_two()) };
    let of_block = u64::from(THREADS) * UNITS;
    let (first, lane) = (u64::from(thread::block_idx_x()) * of_block, thread::thread_idx_x());
    let whole = begin(|| (y as usize).is_multiple_of(VECTOR_BYTES) && (first + of_block) * N as u64 <= n);
    // Or: a sum whose upper half is the same for all threads.
    let unit = |i: u32| first | u64::from(lane + i * THREADS);
    if whole {
        for i in 0..UNITS as u32 {
            // SAFETY: guarded by n; aligned at every unit when it is at the first.
            unsafe { access::store(y.add(unit(i) as usize * N), values(unit(i))) };
        }
        return;
    }
    for i in 0..UNITS as u32 {
        let (values, place) = (values(unit(i)), unit(i) * N as u64);
        for j in 0..N {
            if place + (j as u64) < n {
                // SAFETY: guarded by n.
                unsafe { *y.add(place as usize + j) = values[j] };
            }
        }
    }
}

/// Fills `n` words of 8 bytes.
///
/// # Safety
/// `y` holds them. Blocks of [`THREADS`] threads, [`blocks`] of them for [`UNITS`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn fill_words(word: u64, n: u64, y: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe { write::<u64, 2, UNITS>(n, y, |_| [word; 2]) }
}

/// `y[i] = start + i * step`, wrapping around.
///
/// # Safety
/// `y` holds `n` elements. Blocks of [`THREADS`] threads, [`blocks`] of them for [`UNITS`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn progression_i64(start: i64, step: i64, n: u64, y: *mut i64) {
    let value = |i: u64| start.wrapping_add(step.wrapping_mul(i.cast_signed()));
    // SAFETY: the caller's promise.
    unsafe { write::<_, 2, UNITS>(n, y, |unit| [value(2 * unit), value(2 * unit + 1)]) }
}

/// `y[i] = start + i * step`, rounded once.
///
/// # Safety
/// As [`progression_i64()`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn progression_f64(start: f64, step: f64, n: u64, y: *mut f64) {
    let value = |i: u64| GpuFloat::mul_add(i as f64, step, start);
    // SAFETY: the caller's promise.
    unsafe { write::<_, 2, UNITS>(n, y, |unit| [value(2 * unit), value(2 * unit + 1)]) }
}

/// Numbers uniform in a range, of 24 random bits each.
///
/// # Safety
/// `y` holds `n` elements. Blocks of [`THREADS`] threads, [`blocks`] of them for [`RANDOM_UNITS`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn random_uniform(keys: Keys, range: Range, n: u64, y: *mut f32) {
    let number = |word: u32| {
        let value = GpuFloat::mul_add(philox::top(word), range.step, range.low);
        fastmath::min(value, range.last)
    };
    // SAFETY: the caller's promise.
    unsafe { write::<f32, 4, RANDOM_UNITS>(n, y, |unit| philox::words(&keys, unit).map(number)) }
}

/// Normal numbers, by the method of Box and Muller.
///
/// # Safety
/// As [`progression_i64()`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn random_normal(keys: Keys, mean: f32, deviation: f32, n: u64, y: *mut f32) {
    let numbers = |unit: u64| {
        let [a, b, c, d] = philox::words(&keys, unit);
        let ([p, q], [r, s]) = (philox::normal_pair(a, b), philox::normal_pair(c, d));
        [p, q, r, s].map(|value| GpuFloat::mul_add(value, deviation, mean))
    };
    // SAFETY: the caller's promise.
    unsafe { write::<f32, 4, UNITS>(n, y, numbers) }
}

/// Numbers from `low` to `last`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Range {
    low: f32,
    /// Distance of neighbours.
    step: f32,
    /// Rounding may reach the end, which does not belong to the range: then this is taken.
    last: f32,
}

impl Range {
    /// `[low, high)`.
    pub const fn new(low: f32, high: f32) -> Self {
        Self { low, step: (high - low) * philox::STEP, last: high.next_down().max(low) }
    }
}
