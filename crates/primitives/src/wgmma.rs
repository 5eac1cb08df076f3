//! The 16-bit element types of products by warpgroups, and their registers.

use cuda_std::{convert, wgmma};

/// A 16-bit element type of operands and results.
pub trait Element16 {
    /// Rounds two numbers into one register.
    fn pack(low: f32, high: f32) -> u32;
    /// Widens the two numbers of a register.
    fn unpack(register: u32) -> [f32; 2];
}

impl Element16 for wgmma::BF16 {
    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        convert::bf16x2_from_f32(low, high)
    }

    #[inline(always)]
    fn unpack(register: u32) -> [f32; 2] {
        convert::bf16x2_to_f32(register)
    }
}

impl Element16 for wgmma::F16 {
    #[inline(always)]
    fn pack(low: f32, high: f32) -> u32 {
        convert::f16x2_from_f32(low, high)
    }

    #[inline(always)]
    fn unpack(register: u32) -> [f32; 2] {
        convert::f16x2_to_f32(register)
    }
}
