//! 4-bit floats, two per byte.

use crate::format::{Format, Overflow, Rounding};

/// 1 sign, 2 exponent, 1 mantissa bit: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. Stored in the low 4
/// bits of a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct E2M1(u8);

const NIBBLE_BITS: u32 = 4;
const NIBBLE_MASK: u8 = 0xf;

impl E2M1 {
    /// The format's description.
    pub const FORMAT: Format = Format::E2M1;
    /// The largest number, 6.
    pub const MAX: Self = Self(Self::FORMAT.max_code() as u8);

    /// The number with this code. Only the low 4 bits count.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & NIBBLE_MASK)
    }

    /// The code, in the low 4 bits.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Rounds to the nearest number, ties to the even code. Saturates at 6 with the sign of the value. NaN
    /// gives +6, because the format has no NaN. The same as the GPU's `cvt.rn.satfinite.e2m1x2`.
    #[must_use]
    pub const fn from_f32(x: f32) -> Self {
        Self(Self::FORMAT.encode(x, Rounding::NearestEven, Overflow::Saturate) as u8)
    }

    /// The exact value.
    #[must_use]
    pub const fn to_f32(self) -> f32 {
        Self::FORMAT.decode(self.0 as u32)
    }

    /// Packs two numbers into a byte, the first in the low half.
    #[must_use]
    pub const fn pack(low: Self, high: Self) -> u8 {
        low.0 | high.0 << NIBBLE_BITS
    }

    /// Unpacks the two numbers of a byte, the low half first.
    #[must_use]
    pub const fn unpack(byte: u8) -> [Self; 2] {
        [Self::from_bits(byte), Self::from_bits(byte >> NIBBLE_BITS)]
    }
}
