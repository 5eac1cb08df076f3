//! 8-bit floats from f32 and back: by one instruction where there is one (sm_89 and later), else by integer
//! arithmetic, with the same results.
//!
//! They are rounded to the nearest, ties to even. What is beyond the range, infinity included, becomes the
//! largest number; NaN stays NaN.

/// By one instruction.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_89"))]
mod arch {
    use cuda_std::convert;
    use num::{E4M3, E5M2};

    pub use cuda_std::convert::{e4m3x2_from_f32 as e4m3_pair, e5m2x2_from_f32 as e5m2_pair};

    /// The exact value.
    #[inline(always)]
    pub fn from_e4m3(x: E4M3) -> f32 {
        convert::f16x2_to_f32(convert::f16x2_from_e4m3x2(x.to_bits().into()))[0]
    }

    /// The exact value.
    #[inline(always)]
    pub fn from_e5m2(x: E5M2) -> f32 {
        convert::f16x2_to_f32(convert::f16x2_from_e5m2x2(x.to_bits().into()))[0]
    }
}

/// By integer arithmetic.
#[cfg(not(any(not(target_arch = "nvptx64"), target_feature = "compute_89")))]
mod arch {
    use num::{E4M3, E5M2};

    // A function each: the code is long, and where it is used wide.
    /// Two numbers, the first in the low byte.
    #[inline(never)]
    pub fn e4m3_pair(low: f32, high: f32) -> u16 {
        u16::from_le_bytes([low, high].map(|x| E4M3::from_f32(x).to_bits()))
    }

    /// Two numbers, the first in the low byte.
    #[inline(never)]
    pub fn e5m2_pair(low: f32, high: f32) -> u16 {
        u16::from_le_bytes([low, high].map(|x| E5M2::from_f32(x).to_bits()))
    }

    /// The exact value.
    #[inline(never)]
    pub fn from_e4m3(x: E4M3) -> f32 {
        x.to_f32()
    }

    /// The exact value.
    #[inline(never)]
    pub fn from_e5m2(x: E5M2) -> f32 {
        x.to_f32()
    }
}

pub use arch::{e4m3_pair, e5m2_pair, from_e4m3, from_e5m2};
