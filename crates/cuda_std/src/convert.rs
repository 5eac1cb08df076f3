//! Conversions between number formats in one instruction.
//!
//! A packed register holds two 16-bit numbers as one `u32`, or two 8-bit numbers as one `u16`; element 0 is the low
//! half. Functions that pack take `(low, high)`.
//!
//! NaN becomes the target's canonical NaN (all bits but the sign set; of tf32 and the 8-bit formats, any NaN). Rounding
//! is to nearest, ties to even, unless the name says otherwise: `_rz` toward zero, `_rna` to nearest with ties away from
//! zero.
//! Beyond the range the f16 and bf16 conversions give infinity (`_rz`: the largest number), those to 8 bits the
//! largest number.

use half::{bf16, f16};

use crate::arch::convert as arch;

macro_rules! convert {
    ($($(#[$gate:meta])* $name:ident($($arg:ident: $ty:ty),+) -> $ret:ty, $ptx:literal: $what:literal;)*) => { $(
        $(#[$gate])*
        #[doc = $what]
        ///
        /// # PTX
        #[doc = concat!("`", $ptx, "`")]
        #[inline(always)]
        #[must_use]
        pub fn $name($($arg: $ty),+) -> $ret {
            arch::$name($($arg),+)
        }
    )* };
}

convert! {
    f16_from_f32(x: f32) -> f16, "cvt.rn.f16.f32": "Rounds to f16.";
    f16_from_f32_rz(x: f32) -> f16, "cvt.rz.f16.f32": "Rounds to f16, toward zero.";
    f16_to_f32(x: f16) -> f32, "cvt.f32.f16": "Widens; exact.";
    bf16_from_f32(x: f32) -> bf16, "cvt.rn.bf16.f32": "Rounds to bf16.";
    bf16_from_f32_rz(x: f32) -> bf16, "cvt.rz.bf16.f32": "Rounds to bf16, toward zero.";
    f16x2_from_f32(low: f32, high: f32) -> u32, "cvt.rn.f16x2.f32": "Rounds two numbers to f16.";
    f16x2_from_f32_rz(low: f32, high: f32) -> u32, "cvt.rz.f16x2.f32": "Rounds two numbers to f16, toward zero.";
    f16x2_from_f32_relu(low: f32, high: f32) -> u32, "cvt.rn.relu.f16x2.f32":
        "Rounds two numbers to f16; negative ones become 0 (of -0 the sign is left open).";
    bf16x2_from_f32(low: f32, high: f32) -> u32, "cvt.rn.bf16x2.f32": "Rounds two numbers to bf16.";
    bf16x2_from_f32_rz(low: f32, high: f32) -> u32, "cvt.rz.bf16x2.f32": "Rounds two numbers to bf16, toward zero.";
    bf16x2_from_f32_relu(low: f32, high: f32) -> u32, "cvt.rn.relu.bf16x2.f32":
        "Rounds two numbers to bf16; negative ones become 0 (of -0 the sign is left open).";
    tf32_from_f32(x: f32) -> u32, "cvt.rna.tf32.f32":
        "Rounds to tf32, ties away from zero, for an `mma` fragment. Only the upper 19 bits of the result mean anything. \
         Up to sm_90 a NaN keeps its upper bits: one that has none set beside the exponent comes out as infinity.";
    i32_from_f32(x: f32) -> i32, "cvt.rni.s32.f32":
        "Rounds to an integer, ties to even; out of range gives the nearest end, NaN 0.";
    i8_from_f32(x: f32) -> i8, "cvt.rni.sat.s8.f32":
        "Rounds to an integer, ties to even; out of range gives the nearest end, NaN 0.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
    tf32_from_f32_rn(x: f32) -> u32, "cvt.rn.tf32.f32":
        "Rounds to tf32, ties to even, for an `mma` fragment. Only the upper 19 bits of the result mean anything. Needs sm_90.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
    e4m3x2_from_f32(low: f32, high: f32) -> u16, "cvt.rn.satfinite.e4m3x2.f32":
        "Rounds two numbers to E4M3. Needs sm_89.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
    e5m2x2_from_f32(low: f32, high: f32) -> u16, "cvt.rn.satfinite.e5m2x2.f32":
        "Rounds two numbers to E5M2. Needs sm_89.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
    e4m3x2_from_f16x2(x: u32) -> u16, "cvt.rn.satfinite.e4m3x2.f16x2":
        "Rounds two f16 numbers to E4M3. Needs sm_89.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
    e5m2x2_from_f16x2(x: u32) -> u16, "cvt.rn.satfinite.e5m2x2.f16x2":
        "Rounds two f16 numbers to E5M2. Needs sm_89.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
    f16x2_from_e4m3x2(x: u16) -> u32, "cvt.rn.f16x2.e4m3x2": "Widens two E4M3 numbers to f16; exact. Needs sm_89.";
    #[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
    f16x2_from_e5m2x2(x: u16) -> u32, "cvt.rn.f16x2.e5m2x2": "Widens two E5M2 numbers to f16; exact. Needs sm_89.";
}

/// Widens a bf16; exact, and nothing but a shift.
#[inline(always)]
#[must_use]
pub fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << u16::BITS)
}

/// Widens both halves of a packed f16 register, the low one first.
#[inline(always)]
#[must_use]
pub fn f16x2_to_f32(register: u32) -> [f32; 2] {
    let [low, high] = num::unpack_x2::<f16>(register);
    [f16_to_f32(low), f16_to_f32(high)]
}

/// Widens both halves of a packed bf16 register, the low one first.
#[inline(always)]
#[must_use]
pub fn bf16x2_to_f32(register: u32) -> [f32; 2] {
    [f32::from_bits(register << u16::BITS), f32::from_bits(register >> u16::BITS << u16::BITS)]
}
