//! The element types of inputs and comparisons.

use half::{bf16, f16};
use num::{E4M3, E5M2};

/// A floating-point element type of a tensor.
pub trait Element: Copy + Send + Sync + 'static {
    /// Name in reports.
    const NAME: &'static str;
    /// Explicit mantissa bits: one unit in the last place of 1.0 is `2^-MANTISSA_BITS`.
    const MANTISSA_BITS: i32;
    /// Exponent of the smallest normal number.
    const MIN_EXPONENT: i32;
    /// Exponent of the largest number.
    const MAX_EXPONENT: i32;
    /// The nearest value, ties to even. Overflow gives infinity, or the largest number of an 8-bit type.
    fn from_f64(value: f64) -> Self;
    /// The same value, exactly.
    fn to_f64(self) -> f64;
    /// The bit pattern.
    fn bits(self) -> u64;
}

macro_rules! element {
    ($type:ty, $name:literal, $mantissa:literal, $exponents:expr, $from:expr) => {
        impl Element for $type {
            const NAME: &'static str = $name;
            const MANTISSA_BITS: i32 = $mantissa;
            const MIN_EXPONENT: i32 = $exponents.0;
            const MAX_EXPONENT: i32 = $exponents.1;
            fn from_f64(value: f64) -> Self {
                $from(value)
            }
            fn to_f64(self) -> f64 {
                self.into()
            }
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
        }
    };
}

element!(f64, "f64", 52, (-1022, 1023), |v| v);
element!(f32, "f32", 23, (-126, 127), |v| v as f32);
element!(f16, "f16", 10, (-14, 15), f16::from_f64);
element!(bf16, "bf16", 7, (-126, 127), bf16::from_f64);
// Converts through f32. A second rounding could differ only for ties of more than 24 bits.
element!(E4M3, "f8_e4m3", 3, (-6, 8), |v| E4M3::from_f32(v as f32));
element!(E5M2, "f8_e5m2", 2, (-14, 15), |v| E5M2::from_f32(v as f32));
