//! The power-of-two scale of the MX block formats.

use crate::format::power_of_two;

/// An unsigned power of two: code `c` is `2^(c - 127)`, and 0xff is NaN. There is no zero and no sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct E8M0(u8);

const BIAS: i32 = 127;
const F32_MANTISSA_BITS: u32 = 23;

impl E8M0 {
    /// 1.
    pub const ONE: Self = Self(BIAS as u8);
    /// The largest number, 2^127.
    pub const MAX: Self = Self(0xfe);
    /// The smallest number, 2^-127.
    pub const MIN_POSITIVE: Self = Self(0);
    /// The only NaN.
    pub const NAN: Self = Self(0xff);

    /// The number with this code.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The code of this number.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Whether this is the NaN.
    #[must_use]
    pub const fn is_nan(self) -> bool {
        self.0 == Self::NAN.0
    }

    /// The exact value.
    #[must_use]
    pub const fn to_f32(self) -> f32 {
        if self.is_nan() { f32::NAN } else { power_of_two(self.0 as i32 - BIAS) }
    }

    /// The largest power of two not above `|x|`, clamped to the range: zero gives 2^-127, infinity 2^127. NaN
    /// for NaN.
    #[must_use]
    pub const fn floor_from_f32(x: f32) -> Self {
        if x.is_nan() {
            return Self::NAN;
        }
        let magnitude = x.to_bits() & (u32::MAX >> 1);
        let field = (magnitude >> F32_MANTISSA_BITS) as u8;
        // Both formats have the same bias, so the exponent field is the code. A subnormal number has field 0.
        // A number below 2^-127 is rounded up to 2^-127, because no smaller code exists.
        if field > Self::MAX.0 { Self::MAX } else { Self(field) }
    }

    /// The smallest power of two not below `|x|`, clamped to the range. NaN for NaN. Dividing by this scale
    /// never overflows.
    #[must_use]
    pub const fn ceil_from_f32(x: f32) -> Self {
        let floor = Self::floor_from_f32(x);
        if floor.is_nan() || floor.0 == Self::MAX.0 || floor.to_f32() >= x.abs() {
            return floor;
        }
        Self(floor.0 + 1)
    }
}
