//! Dropout's mask: which elements of a tensor are 0 is a function of the seed, the step, the call and the
//! element's place alone, so that all kernels that ask have the same one.
//!
//! A block of Philox, by the place over eight and the call, in the stream of the step, has 16 bits for each
//! of eight neighbours.

use cuda_std::misc;

use crate::philox::{self, HALVES, WORDS};

/// A tensor has fewer elements: blocks of eight have numbers of 32 bits.
pub const MAX_PLACES: u64 = (HALVES as u64) << u32::BITS;

/// A seed and a step, in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// The seed.
    pub seed: u64,
    /// Number of the stream of random numbers.
    pub step: u64,
}

/// A probability, as kernels take it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// An element whose 16 random bits are below is 0.
    pub threshold: u32,
    /// Factor of the others.
    pub scale: f32,
}

impl Rate {
    /// That of a probability, which is rounded to a multiple of 2^-16.
    pub fn new(probability: f64) -> Self {
        /// Values of 16 random bits.
        const VALUES: f64 = (1 << u16::BITS) as f64;
        let threshold = (probability * VALUES + 0.5) as u32;
        let kept = 1.0 - f64::from(threshold) / VALUES;
        // Where all are dropped, none is scaled.
        Self { threshold, scale: if kept > 0.0 { (1.0 / kept) as f32 } else { 0.0 } }
    }
}

/// The mask of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mask {
    /// The generator.
    pub state: State,
    /// Which of a step's uses of the generator this is.
    pub call: u32,
    /// The probability.
    pub rate: Rate,
}

impl Mask {
    /// The random words of eight neighbours, of which the first has the place `8 unit`.
    #[inline(always)]
    pub fn words(&self, unit: u32) -> [u32; WORDS] {
        let State { seed, step } = self.state;
        // The keys are computed here: before a loop they would hold twenty registers.
        let seed = u64::from(misc::opaque(seed as u32)) | u64::from(misc::opaque((seed >> 32) as u32)) << 32;
        philox::words_of(&philox::keys(seed), u64::from(unit) | u64::from(self.call) << 32, step)
    }

    /// An element with its random bits.
    #[inline(always)]
    pub fn of(&self, value: f32, random: u16) -> f32 {
        if u32::from(random) < self.rate.threshold { 0.0 } else { value * self.rate.scale }
    }

    /// The random bits of up to eight neighbours, of which the first has the place `first`. Places are below
    /// [`MAX_PLACES`].
    #[inline(always)]
    pub fn random<const N: usize>(&self, first: u64) -> [u16; N] {
        const { assert!(N <= HALVES) };
        let (unit, offset) = ((first / HALVES as u64) as u32, first as usize % HALVES);
        let [a, b, c, d] = self.words(unit);
        let next = if offset + N > HALVES { self.words(unit.wrapping_add(1)) } else { [0; WORDS] };
        let halves = behind([a, b, c, d, next[0], next[1], next[2], next[3]], offset);
        core::array::from_fn(|i| halves[i])
    }
}

/// The halves of words from the one with this number, below 8, on.
#[inline(always)]
fn behind(mut words: [u32; 2 * WORDS], offset: usize) -> [u16; HALVES] {
    // By powers of two, so that every index is a constant.
    if offset & 4 != 0 {
        for i in 0..6 {
            words[i] = words[i + 2];
        }
    }
    if offset & 2 != 0 {
        for i in 0..5 {
            words[i] = words[i + 1];
        }
    }
    if offset & 1 != 0 {
        for i in 0..4 {
            words[i] = words[i] >> u16::BITS | words[i + 1] << u16::BITS;
        }
    }
    philox::halves([words[0], words[1], words[2], words[3]])
}

#[cfg(test)]
mod tests {
    use super::{Mask, Rate, State};
    use crate::philox::halves;

    #[test]
    fn neighbours_from_any_place_on_have_the_bits_of_their_blocks() {
        let mask = Mask { state: State { seed: 5, step: 7 }, call: 3, rate: Rate::new(0.4) };
        let of_place = |place: u64| halves(mask.words((place / 8) as u32))[place as usize % 8];
        for first in 0..40 {
            let wanted: [u16; 8] = core::array::from_fn(|i| of_place(first + i as u64));
            assert_eq!(mask.random::<8>(first), wanted);
            assert_eq!(mask.random::<4>(first), wanted[..4]);
            assert_eq!(mask.random::<1>(first), wanted[..1]);
        }
    }

    #[test]
    fn all_may_be_dropped_and_none() {
        assert_eq!(Rate::new(1.0), Rate { threshold: 1 << 16, scale: 0.0 });
        assert_eq!(Rate::new(0.0), Rate { threshold: 0, scale: 1.0 });
        assert_eq!(Rate::new(0.5), Rate { threshold: 1 << 15, scale: 2.0 });
    }
}
