//! The same conversions by `num`. NaN gives the canonical NaN, as on the hardware or, where the PTX ISA leaves the choice
//! to it (tf32, 8-bit formats), one of those that it may give.

use half::{bf16, f16};
use num::{E4M3, E5M2, Format, Overflow, Rounding, pack_x2, unpack_x2};

pub fn f16_from_f32(x: f32) -> f16 {
    if x.is_nan() { f16::from_bits(Format::F16.nan_code() as u16) } else { f16::from_f32(x) }
}

pub fn f16_from_f32_rz(x: f32) -> f16 {
    f16::from_bits(Format::F16.encode(x, Rounding::TowardZero, Overflow::Infinity) as u16)
}

pub fn f16_to_f32(x: f16) -> f32 {
    x.to_f32()
}

pub fn bf16_from_f32(x: f32) -> bf16 {
    if x.is_nan() { bf16::from_bits(Format::BF16.nan_code() as u16) } else { bf16::from_f32(x) }
}

pub fn bf16_from_f32_rz(x: f32) -> bf16 {
    bf16::from_bits(Format::BF16.encode(x, Rounding::TowardZero, Overflow::Infinity) as u16)
}

pub fn f16x2_from_f32(low: f32, high: f32) -> u32 {
    pack_x2([low, high].map(f16_from_f32))
}

pub fn f16x2_from_f32_rz(low: f32, high: f32) -> u32 {
    pack_x2([low, high].map(f16_from_f32_rz))
}

pub fn f16x2_from_f32_relu(low: f32, high: f32) -> u32 {
    f16x2_from_f32(relu(low), relu(high))
}

pub fn bf16x2_from_f32(low: f32, high: f32) -> u32 {
    pack_x2([low, high].map(bf16_from_f32))
}

pub fn bf16x2_from_f32_rz(low: f32, high: f32) -> u32 {
    pack_x2([low, high].map(bf16_from_f32_rz))
}

pub fn bf16x2_from_f32_relu(low: f32, high: f32) -> u32 {
    bf16x2_from_f32(relu(low), relu(high))
}

/// +0 for negative numbers and for -0; NaN stays.
fn relu(x: f32) -> f32 {
    if x.is_nan() || x > 0.0 { x } else { 0.0 }
}

pub fn tf32_from_f32(x: f32) -> u32 {
    tf32(x, Rounding::NearestAway)
}

pub fn tf32_from_f32_rn(x: f32) -> u32 {
    tf32(x, Rounding::NearestEven)
}

fn tf32(x: f32, rounding: Rounding) -> u32 {
    num::tf32_from_f32(x, rounding).to_bits()
}

pub fn i32_from_f32(x: f32) -> i32 {
    x.round_ties_even() as i32
}

pub fn i8_from_f32(x: f32) -> i8 {
    x.round_ties_even() as i8
}

pub fn e4m3x2_from_f32(low: f32, high: f32) -> u16 {
    u16::from_le_bytes([low, high].map(|x| E4M3::from_f32(x).to_bits()))
}

pub fn e5m2x2_from_f32(low: f32, high: f32) -> u16 {
    u16::from_le_bytes([low, high].map(|x| E5M2::from_f32(x).to_bits()))
}

pub fn e4m3x2_from_f16x2(x: u32) -> u16 {
    let [low, high] = unpack_x2::<f16>(x).map(f16::to_f32);
    e4m3x2_from_f32(low, high)
}

pub fn e5m2x2_from_f16x2(x: u32) -> u16 {
    let [low, high] = unpack_x2::<f16>(x).map(f16::to_f32);
    e5m2x2_from_f32(low, high)
}

pub fn f16x2_from_e4m3x2(x: u16) -> u32 {
    let [low, high] = x.to_le_bytes().map(|code| E4M3::from_bits(code).to_f32());
    f16x2_from_f32(low, high)
}

pub fn f16x2_from_e5m2x2(x: u16) -> u32 {
    let [low, high] = x.to_le_bytes().map(|code| E5M2::from_bits(code).to_f32());
    f16x2_from_f32(low, high)
}
