//! Constants, progressions and random numbers, written to dense memory.
//!
//! Random numbers come from Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): block `i` of four
//! words is a function of the seed and `i` alone, so element `e` of a seed is the same in every launch, on every device.

use crate::{THREADS, VECTOR_BYTES, access, math};
use cuda_std::{GpuFloat, kernel, thread};

/// Elements of a thread for the progressions and random numbers.
pub const ELEMENTS: usize = 4;

/// Which of the block's elements this thread begins with.
#[inline(always)]
fn first(elements: usize) -> u64 {
    (u64::from(thread::block_idx_x()) * u64::from(THREADS) + u64::from(thread::thread_idx_x()))
        * elements as u64
}

/// Writes those of `values` that lie below `n`, from `first` on.
///
/// # Safety
/// `y` holds `n` elements; no other thread writes these.
#[inline(always)]
unsafe fn write<T: Copy, const N: usize>(y: *mut T, first: u64, n: u64, values: [T; N]) {
    // SAFETY: guarded by n.
    unsafe {
        if first + N as u64 <= n && (y as usize).is_multiple_of(VECTOR_BYTES) {
            access::store(y.add(first as usize), values);
            return;
        }
        for j in 0..N {
            if first + (j as u64) < n {
                *y.add(first as usize + j) = values[j];
            }
        }
    }
}

/// Bytes that a block of the constants writes.
const TILE_BYTES: u64 = THREADS as u64 * (ELEMENTS * VECTOR_BYTES) as u64;

/// Blocks, of [`THREADS`] threads, that fill `n` words of 8 bytes.
pub const fn fill_blocks(n: u64) -> u64 {
    n.div_ceil(TILE_BYTES / size_of::<u64>() as u64)
}

/// Fills `n` words of 8 bytes: a warp writes whole lines, four of them a thread under way.
///
/// # Safety
/// `y` holds them. Blocks of [`THREADS`] threads, [`fill_blocks`] of them.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn fill_words(word: u64, n: u64, y: *mut u64) {
    const PAIR: u64 = (VECTOR_BYTES / size_of::<u64>()) as u64;
    let first = u64::from(thread::block_idx_x()) * (TILE_BYTES / size_of::<u64>() as u64)
        + u64::from(thread::thread_idx_x()) * PAIR;
    let aligned = (y as usize).is_multiple_of(VECTOR_BYTES);
    for i in 0..ELEMENTS as u64 {
        let place = first + i * u64::from(THREADS) * PAIR;
        // SAFETY: guarded by n; aligned at every pair when it is at the first.
        unsafe {
            if aligned && place + PAIR <= n {
                access::store(y.add(place as usize), [word; PAIR as usize]);
                continue;
            }
            for place in place..n.min(place + PAIR) {
                *y.add(place as usize) = word;
            }
        }
    }
}

/// `y[i] = start + i * step`, wrapping around.
///
/// # Safety
/// `y` holds `n` elements. Blocks of [`THREADS`] threads, enough of them for [`ELEMENTS`] a thread.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn progression_i64(start: i64, step: i64, n: u64, y: *mut i64) {
    let first = first(ELEMENTS);
    let value = |j: usize| start.wrapping_add(step.wrapping_mul((first + j as u64) as i64));
    // SAFETY: the caller's promise.
    unsafe { write::<i64, ELEMENTS>(y, first, n, core::array::from_fn(value)) }
}

/// `y[i] = start + i * step`, rounded once.
///
/// # Safety
/// As [`progression_i64`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn progression_f64(start: f64, step: f64, n: u64, y: *mut f64) {
    let first = first(ELEMENTS);
    let value = |j: usize| GpuFloat::mul_add((first + j as u64) as f64, step, start);
    // SAFETY: the caller's promise.
    unsafe { write::<f64, ELEMENTS>(y, first, n, core::array::from_fn(value)) }
}

/// Numbers uniform in `[low, high)`, of 24 random bits each.
///
/// # Safety
/// As [`progression_i64`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn random_uniform(seed: u64, low: f32, high: f32, n: u64, y: *mut f32) {
    let first = first(ELEMENTS);
    let words = philox(seed, first / ELEMENTS as u64);
    let value = words.map(|word| {
        let value = GpuFloat::mul_add(unit(word), high - low, low);
        // Rounding may reach the end, which does not belong to the range.
        if value < high { value } else { low }
    });
    // SAFETY: the caller's promise.
    unsafe { write::<f32, ELEMENTS>(y, first, n, value) }
}

/// Normal numbers, by the method of Box and Muller.
///
/// # Safety
/// As [`progression_i64`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn random_normal(seed: u64, mean: f32, deviation: f32, n: u64, y: *mut f32) {
    let first = first(ELEMENTS);
    let [a, b, c, d] = philox(seed, first / ELEMENTS as u64);
    let ([p, q], [r, s]) = (normal_pair(a, b), normal_pair(c, d));
    let values = [p, q, r, s].map(|value| GpuFloat::mul_add(value, deviation, mean));
    // SAFETY: the caller's promise.
    unsafe { write::<f32, ELEMENTS>(y, first, n, values) }
}

/// The top 24 bits as a number in `[0, 1)`.
#[inline(always)]
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Two independent standard normal numbers.
#[inline(always)]
fn normal_pair(a: u32, b: u32) -> [f32; 2] {
    // In (0, 1], so that the logarithm is finite.
    let radius = GpuFloat::sqrt(-2.0 * math::ln(1.0 - unit(a)));
    let angle = core::f32::consts::TAU * unit(b);
    [radius * math::sin_quarters_on(angle, 1), radius * math::sin_quarters_on(angle, 0)]
}

/// Four random words: block `counter` of the stream of `seed`.
#[inline(always)]
fn philox(seed: u64, counter: u64) -> [u32; 4] {
    const ROUNDS: u32 = 10;
    const FACTORS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    /// Added to the key each round: the golden ratio and the root of 3, less 1.
    const STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    let mut key = [seed as u32, (seed >> 32) as u32];
    let mut state = [counter as u32, (counter >> 32) as u32, 0, 0];
    for _ in 0..ROUNDS {
        let first = u64::from(FACTORS[0]) * u64::from(state[0]);
        let second = u64::from(FACTORS[1]) * u64::from(state[2]);
        state = [
            (second >> 32) as u32 ^ state[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ state[3] ^ key[1],
            first as u32,
        ];
        key = [key[0].wrapping_add(STEPS[0]), key[1].wrapping_add(STEPS[1])];
    }
    state
}

#[cfg(test)]
mod tests {
    use super::philox;

    #[test]
    fn philox_gives_the_published_words() {
        // Known answers of the authors' library for 4x32 with 10 rounds.
        assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }
}
