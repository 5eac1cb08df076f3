//! The element types of the tensor cores, as codes and as values.

use bytemuck::Pod;
use half::{bf16, f16};
use num::{E4M3, E5M2};

/// An input or result element: its code, and its value as the tensor cores read it.
pub trait Element: Copy {
    type Code: Pod;
    fn encode(x: f64) -> Self::Code;
    fn decode(code: Self::Code) -> f64;
}

impl Element for f16 {
    type Code = u16;
    fn encode(x: f64) -> u16 {
        f16::from_f64(x).to_bits()
    }
    fn decode(code: u16) -> f64 {
        f16::from_bits(code).to_f64()
    }
}

impl Element for bf16 {
    type Code = u16;
    fn encode(x: f64) -> u16 {
        bf16::from_f64(x).to_bits()
    }
    fn decode(code: u16) -> f64 {
        bf16::from_bits(code).to_f64()
    }
}

#[derive(Clone, Copy)]
pub struct Tf32;

impl Element for Tf32 {
    type Code = u32;
    /// All 32 bits of an f32: the lower 13 must not count.
    fn encode(x: f64) -> u32 {
        (x as f32).to_bits() | (u32::from(x != 0.0) * 0x0a53)
    }
    fn decode(code: u32) -> f64 {
        f64::from(f32::from_bits(code & !0x1fff))
    }
}

impl Element for f32 {
    type Code = f32;
    fn encode(x: f64) -> f32 {
        x as f32
    }
    fn decode(code: f32) -> f64 {
        f64::from(code)
    }
}

impl Element for E4M3 {
    type Code = u8;
    fn encode(x: f64) -> u8 {
        E4M3::from_f32(x as f32).to_bits()
    }
    fn decode(code: u8) -> f64 {
        f64::from(E4M3::from_bits(code).to_f32())
    }
}

impl Element for E5M2 {
    type Code = u8;
    fn encode(x: f64) -> u8 {
        E5M2::from_f32(x as f32).to_bits()
    }
    fn decode(code: u8) -> f64 {
        f64::from(E5M2::from_bits(code).to_f32())
    }
}
