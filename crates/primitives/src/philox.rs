//! Random numbers by Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! A block of four words is a function of the seed and of a counter of 128 bits alone. So a number depends
//! on its place in the stream and not on the launch, the thread or the device.
//!
//! The counter's low half is the block's number, the other the stream's: the step of a training run and
//! which of the step's uses it is, say.

use crate::math::single;
use cuda_std::GpuFloat;
use half::bf16;

/// Words of a block.
pub const WORDS: usize = 4;
/// Rounds that make a block.
const ROUNDS: usize = 10;

/// The keys of a seed's rounds. The host computes them where it knows the seed.
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

/// Block `counter` of stream 0: four random words.
#[inline(always)]
pub fn words(keys: &Keys, counter: u64) -> [u32; WORDS] {
    words_of(keys, counter, 0)
}

/// Block `counter` of a stream: four random words.
#[inline(always)]
pub fn words_of(keys: &Keys, counter: u64, stream: u64) -> [u32; WORDS] {
    const FACTORS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    let mut state = [counter as u32, (counter >> 32) as u32, stream as u32, (stream >> 32) as u32];
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

/// Halves of a block's words.
pub const HALVES: usize = 2 * WORDS;

/// A block's words as numbers of 16 bits, low halves first.
#[inline(always)]
pub fn halves([a, b, c, d]: [u32; WORDS]) -> [u16; HALVES] {
    let (low, high) = (|word: u32| word as u16, |word: u32| (word >> u16::BITS) as u16);
    [low(a), high(a), low(b), high(b), low(c), high(c), low(d), high(d)]
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

/// `x` rounded to one of its two neighbours in bf16, to the farther one as often as `x` is near it: over 16
/// uniform random bits the mean of the results is `x` (Gupta et al., "Deep learning with limited numerical
/// precision", 2015).
///
/// A value of bf16 stays as it is; NaN stays NaN. Beyond the largest bf16 the farther neighbour is infinity.
#[inline(always)]
pub fn round_to_bf16(x: f32, random: u16) -> bf16 {
    // The magnitude's part below bf16, plus a number below one of its units, carries as often as it is large.
    let rounded = (x.to_bits().wrapping_add(u32::from(random)) >> u16::BITS) as u16;
    bf16::from_bits(if x.is_nan() { bf16::NAN.to_bits() } else { rounded })
}

#[cfg(test)]
mod tests {
    use super::{halves, keys, round_to_bf16, uniform, words, words_of};
    use half::bf16;

    #[test]
    fn philox_gives_the_published_words() {
        // Known answers of the authors' library (Random123, `kat_vectors`) for 4x32 with 10 rounds: nothing,
        // all bits, and the digits of pi.
        assert_eq!(words(&keys(0), 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = words_of(&keys(u64::MAX), u64::MAX, u64::MAX);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = words_of(&keys(0x299f_31d0_a409_3822), 0x85a3_08d3_243f_6a88, 0x0370_7344_1319_8a2e);
        assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn numbers_are_uniform() {
        assert_eq!((uniform(0), uniform(u32::MAX)), (0.0, 1.0f32.next_down()));
        const BLOCKS: u64 = 1 << 14;
        let mut counts = [0u32; 16];
        for block in 0..BLOCKS {
            for word in words_of(&keys(7), block, 3) {
                counts[(uniform(word) * 16.0) as usize] += 1;
            }
        }
        // 4096 are expected in each; a standard deviation is 62.
        assert!(counts.iter().all(|count| count.abs_diff(4096) < 310), "{counts:?}");
    }

    #[test]
    fn halves_are_the_words() {
        let got = halves([0x0002_0001, 0x0004_0003, 0x0006_0005, 0x0008_0007]);
        assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn rounding_is_right_on_average() {
        for x in [1.0f32, 1.001, -3.1, 1e-40, -0.0, 3.0e38, f32::from_bits(0x0080_0001)] {
            let (mut sum, mut seen) = (0.0, [u16::MAX, 0]);
            for random in 0..=u16::MAX {
                let rounded = round_to_bf16(x, random);
                sum += f64::from(rounded.to_f32());
                seen = [seen[0].min(rounded.to_bits()), seen[1].max(rounded.to_bits())];
            }
            // The exact value, as a multiple of the 2^16 results: all of them have the same exponent or two.
            let mean = sum / f64::from(u16::MAX as u32 + 1);
            assert!((mean - f64::from(x)).abs() <= f64::from(x).abs() * 1e-12, "{x:e}: {mean:e}");
            let exact = x.to_bits() & 0xffff == 0;
            assert_eq!(seen[1] - seen[0], u16::from(!exact), "{x:e}");
        }
    }

    #[test]
    fn rounding_keeps_what_has_no_neighbours() {
        for random in [0, 1, 0x8000, u16::MAX] {
            assert_eq!(round_to_bf16(f32::INFINITY, random), bf16::INFINITY);
            assert_eq!(round_to_bf16(f32::NEG_INFINITY, random), bf16::NEG_INFINITY);
            for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7fff_ffff), f32::from_bits(0xffff_ffff)] {
                assert!(round_to_bf16(nan, random).is_nan());
            }
        }
        assert_eq!(round_to_bf16(f32::MAX, 0), bf16::MAX);
        assert_eq!(round_to_bf16(f32::MAX, 1), bf16::INFINITY);
    }
}
