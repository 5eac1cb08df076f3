//! tf32: an `f32` whose upper 19 bits the tensor cores read.

use crate::format::{Format, Overflow, Rounding};

const DROPPED_BITS: u32 = 13;

/// Rounds to tf32. The result is an `f32` whose low 13 bits are zero. Overflow gives infinity, or under
/// [`Rounding::TowardZero`] the largest number. NaN gives the canonical NaN `0x7fffe000`.
///
/// `cvt.rna.tf32.f32` is [`Rounding::NearestAway`].
#[must_use]
pub const fn tf32_from_f32(x: f32, rounding: Rounding) -> f32 {
    let code = Format::TF32.encode(x, rounding, Overflow::Infinity);
    f32::from_bits(code << DROPPED_BITS)
}

/// The value that the tensor cores read from an `f32` that was not rounded: they ignore the low 13 bits.
#[must_use]
pub const fn tf32_truncate(x: f32) -> f32 {
    let kept = x.to_bits() >> DROPPED_BITS << DROPPED_BITS;
    // A NaN with only low bits set would turn into infinity.
    if x.is_nan() { f32::NAN } else { f32::from_bits(kept) }
}
