//! The rounding algorithm shared by all small floating-point formats.

/// The codes of a format that are not ordinary numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// As in IEEE 754: the largest exponent holds infinity (mantissa 0) and NaN (other mantissas).
    Ieee,
    /// Only the code with exponent and mantissa all ones is NaN; there is no infinity (E4M3).
    NanOnly,
    /// Every code is a number (E2M1).
    None,
}

/// The rounding of a value between two codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest code, ties to the even one (`.rn`).
    NearestEven,
    /// To the nearest code, ties away from zero (`.rna`).
    NearestAway,
    /// To the code nearer to zero (`.rz`).
    TowardZero,
}

/// The result for a value beyond the largest code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The largest finite code, also for infinities (`.satfinite`).
    Saturate,
    /// Infinity, or NaN in a format without infinity. Under [`Rounding::TowardZero`] a finite value stays
    /// finite.
    Infinity,
}

/// A floating-point format of at most 19 bits: sign, exponent, mantissa, from the top. Every number of it is
/// exact in `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Width of the exponent field, 2 to 8.
    pub exponent_bits: u32,
    /// Width of the mantissa field without the hidden bit, 1 to 10.
    pub mantissa_bits: u32,
    /// The codes that are not numbers.
    pub specials: Specials,
}

const F32_MANTISSA_BITS: u32 = 23;
const F32_BIAS: i32 = 127;
const F32_EXPONENT_MASK: u32 = 0xff;

impl Format {
    /// IEEE binary16.
    pub const F16: Self = Self { exponent_bits: 5, mantissa_bits: 10, specials: Specials::Ieee };
    /// The high half of an `f32`.
    pub const BF16: Self = Self { exponent_bits: 8, mantissa_bits: 7, specials: Specials::Ieee };
    /// The 19 bits of an `f32` that the tensor cores read.
    pub const TF32: Self = Self { exponent_bits: 8, mantissa_bits: 10, specials: Specials::Ieee };
    /// OCP 8-bit float with 3 mantissa bits.
    pub const E4M3: Self = Self { exponent_bits: 4, mantissa_bits: 3, specials: Specials::NanOnly };
    /// OCP 8-bit float with 2 mantissa bits.
    pub const E5M2: Self = Self { exponent_bits: 5, mantissa_bits: 2, specials: Specials::Ieee };
    /// OCP 4-bit float.
    pub const E2M1: Self = Self { exponent_bits: 2, mantissa_bits: 1, specials: Specials::None };

    /// Exponent of the smallest normal number: `1 - bias`.
    const fn min_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    /// The bit that holds the sign.
    #[must_use]
    pub const fn sign_bit(self) -> u32 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// The code of the largest finite number.
    #[must_use]
    pub const fn max_code(self) -> u32 {
        match self.specials {
            Specials::Ieee => self.infinity_code() - 1,
            Specials::NanOnly => self.sign_bit() - 2,
            Specials::None => self.sign_bit() - 1,
        }
    }

    /// The code with the largest exponent and mantissa 0: infinity, where the format has one.
    const fn infinity_code(self) -> u32 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    /// The NaN that the hardware's conversions return: positive, all ones. The largest number if the format
    /// has no NaN.
    #[must_use]
    pub const fn nan_code(self) -> u32 {
        self.sign_bit() - 1
    }

    /// Whether `code` is a NaN of this format.
    #[must_use]
    pub const fn is_nan(self, code: u32) -> bool {
        let magnitude = code & (self.sign_bit() - 1);
        match self.specials {
            Specials::Ieee => magnitude > self.infinity_code(),
            Specials::NanOnly => magnitude == self.nan_code(),
            Specials::None => false,
        }
    }

    /// Rounds `x` to a code of this format, held in the low bits. Never flushes subnormal numbers.
    ///
    /// NaN of any sign gives [`nan_code`](Self::nan_code), as the GPU's `cvt` does.
    #[must_use]
    pub const fn encode(self, x: f32, rounding: Rounding, overflow: Overflow) -> u32 {
        if x.is_nan() {
            return self.nan_code();
        }
        let sign = if x.is_sign_negative() { self.sign_bit() } else { 0 };
        if x.is_infinite() {
            return sign | self.overflowed(overflow);
        }
        let magnitude = self.round_magnitude(x, rounding);
        if magnitude <= self.max_code() {
            return sign | magnitude;
        }
        match rounding {
            Rounding::TowardZero => sign | self.max_code(),
            Rounding::NearestEven | Rounding::NearestAway => sign | self.overflowed(overflow),
        }
    }

    /// Rounds `|x|`, finite, as if the exponent were unbounded.
    const fn round_magnitude(self, x: f32, rounding: Rounding) -> u32 {
        let bits = x.to_bits();
        let field = (bits >> F32_MANTISSA_BITS) & F32_EXPONENT_MASK;
        let fraction = bits & ((1 << F32_MANTISSA_BITS) - 1);
        // |x| = significand * 2^(exponent - 23), exactly.
        let (exponent, significand) = match field {
            0 => (1 - F32_BIAS, fraction),
            _ => (field as i32 - F32_BIAS, fraction | 1 << F32_MANTISSA_BITS),
        };
        // Below the smallest normal number the spacing of codes is constant.
        let min_exponent = self.min_exponent();
        let scale = if exponent > min_exponent { exponent } else { min_exponent };
        let dropped = (scale - exponent) as u32 + F32_MANTISSA_BITS - self.mantissa_bits;
        let kept = if dropped > F32_MANTISSA_BITS + 2 {
            0 // Less than a quarter of the smallest number.
        } else {
            let floor = significand >> dropped;
            let rest = significand & ((1 << dropped) - 1);
            let half = 1 << (dropped - 1);
            let up = match rounding {
                Rounding::NearestEven => rest > half || (rest == half && floor & 1 == 1),
                Rounding::NearestAway => rest >= half,
                Rounding::TowardZero => false,
            };
            floor + up as u32
        };
        // The hidden bit of a normal number adds one to the exponent field, and so does a carry.
        (((scale - min_exponent) as u32) << self.mantissa_bits) + kept
    }

    const fn overflowed(self, overflow: Overflow) -> u32 {
        match (overflow, self.specials) {
            (Overflow::Saturate, _) | (_, Specials::None) => self.max_code(),
            (Overflow::Infinity, Specials::Ieee) => self.infinity_code(),
            (Overflow::Infinity, Specials::NanOnly) => self.nan_code(),
        }
    }

    /// The exact value of `code`. Bits above the sign are ignored.
    #[must_use]
    pub const fn decode(self, code: u32) -> f32 {
        let sign = if code & self.sign_bit() != 0 { 1u32 << 31 } else { 0 };
        let magnitude = code & (self.sign_bit() - 1);
        if self.is_nan(magnitude) {
            return f32::from_bits(f32::NAN.to_bits() | sign);
        }
        if matches!(self.specials, Specials::Ieee) && magnitude == self.infinity_code() {
            return f32::from_bits(f32::INFINITY.to_bits() | sign);
        }
        let field = magnitude >> self.mantissa_bits;
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let value = if field == 0 {
            mantissa as f32 * power_of_two(self.min_exponent() - self.mantissa_bits as i32)
        } else {
            let exponent = field as i32 - 1 + self.min_exponent();
            let widened = mantissa << (F32_MANTISSA_BITS - self.mantissa_bits);
            f32::from_bits(((exponent + F32_BIAS) as u32) << F32_MANTISSA_BITS | widened)
        };
        f32::from_bits(value.to_bits() | sign)
    }
}

/// `2^exponent` for `-149 <= exponent <= 127`.
pub(crate) const fn power_of_two(exponent: i32) -> f32 {
    let smallest_normal = 1 - F32_BIAS;
    if exponent >= smallest_normal {
        f32::from_bits(((exponent + F32_BIAS) as u32) << F32_MANTISSA_BITS)
    } else {
        f32::from_bits(1 << (exponent - smallest_normal + F32_MANTISSA_BITS as i32))
    }
}
