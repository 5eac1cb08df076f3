//! Random numbers by Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! Block `i` of four words is a function of the seed and of `i` alone. So a number depends on its place in
//! the stream and not on the launch, the thread or the device.

use crate::math::single;
use cuda_std::GpuFloat;

/// Words of a block.
pub const WORDS: usize = 4;
/// Rounds that make a block.
const ROUNDS: usize = 10;

/// The keys of a seed's rounds. The host computes them: all threads would compute the same.
pub type Keys = [[u32; 2]; ROUNDS];

/// The keys of the stream of `seed`.
pub const fn keys(seed: u64) -> Keys {
    /// Added to the key each round: the golden ratio and the root of 3, less 1.
    const STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    let mut keys = [[seed as u32, (seed >> 32) as u32]; ROUNDS];
    let mut round = 1;
    while round < ROUNDS {
        let [a, b] = keys[round - 1];
        keys[round] = [a.wrapping_add(STEPS[0]), b.wrapping_add(STEPS[1])];
        round += 1;
    }
    keys
}

/// Block `counter` of a stream: four random words.
#[inline(always)]
pub fn words(keys: &Keys, counter: u64) -> [u32; WORDS] {
    const FACTORS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    let mut state = [counter as u32, (counter >> 32) as u32, 0, 0];
    for round in 0..ROUNDS {
        let first = u64::from(FACTORS[0]) * u64::from(state[0]);
        let second = u64::from(FACTORS[1]) * u64::from(state[2]);
        state = [
            (second >> 32) as u32 ^ state[1] ^ keys[round][0],
            second as u32,
            (first >> 32) as u32 ^ state[3] ^ keys[round][1],
            first as u32,
        ];
    }
    state
}

/// Random bits of a float: as many as an f32 holds.
const BITS: u32 = f32::MANTISSA_DIGITS;
/// The distance of two neighbours among [`uniform`] numbers.
pub const STEP: f32 = 1.0 / (1u32 << BITS) as f32;

/// The top 24 bits of a word: times [`STEP`] a number uniform in `[0, 1)`.
#[inline(always)]
pub fn top(word: u32) -> f32 {
    (word >> (u32::BITS - BITS)) as f32
}

/// A number uniform in `[0, 1)`, a multiple of [`STEP`].
#[inline(always)]
pub fn uniform(word: u32) -> f32 {
    top(word) * STEP
}

/// Two independent standard normal numbers, by the method of Box and Muller.
#[inline(always)]
pub fn normal_pair(a: u32, b: u32) -> [f32; 2] {
    // In (0, 1], so that the logarithm is finite.
    let radius = GpuFloat::sqrt(-2.0 * single::ln(1.0 - uniform(a)));
    let angle = core::f32::consts::TAU * uniform(b);
    [radius * single::sin_plus_quarters(angle, 1), radius * single::sin_plus_quarters(angle, 0)]
}

#[cfg(test)]
mod tests {
    use super::{keys, words};

    #[test]
    fn philox_gives_the_published_words() {
        // Known answers of the authors' library for 4x32 with 10 rounds.
        assert_eq!(words(&keys(0), 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }
}
