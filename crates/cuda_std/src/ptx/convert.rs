//! `cvt`.

use core::arch::asm;

use half::{bf16, f16};

/// One `cvt` without side effects.
macro_rules! cvt {
    ($op:literal, $out:ident, $in:ident $x:expr) => {{
        let result;
        // SAFETY: registers only.
        unsafe {
            asm!(concat!("cvt.", $op, " {0}, {1};"), out($out) result, in($in) $x,
                options(pure, nomem, nostack, preserves_flags));
        }
        result
    }};
    // Packing forms name the high half first.
    ($op:literal, $out:ident, $low:expr, $high:expr) => {{
        let result;
        // SAFETY: registers only.
        unsafe {
            asm!(concat!("cvt.", $op, " {0}, {1}, {2};"), out($out) result, in(reg32) $high, in(reg32) $low,
                options(pure, nomem, nostack, preserves_flags));
        }
        result
    }};
}

#[inline(always)]
pub fn f16_from_f32(x: f32) -> f16 {
    let bits: u16 = cvt!("rn.f16.f32", reg16, reg32 x);
    f16::from_bits(bits)
}

#[inline(always)]
pub fn f16_from_f32_rz(x: f32) -> f16 {
    let bits: u16 = cvt!("rz.f16.f32", reg16, reg32 x);
    f16::from_bits(bits)
}

#[inline(always)]
pub fn f16_to_f32(x: f16) -> f32 {
    cvt!("f32.f16", reg32, reg16 x.to_bits())
}

#[inline(always)]
pub fn bf16_from_f32(x: f32) -> bf16 {
    let bits: u16 = cvt!("rn.bf16.f32", reg16, reg32 x);
    bf16::from_bits(bits)
}

#[inline(always)]
pub fn bf16_from_f32_rz(x: f32) -> bf16 {
    let bits: u16 = cvt!("rz.bf16.f32", reg16, reg32 x);
    bf16::from_bits(bits)
}

macro_rules! pack_f32 {
    ($($name:ident, $op:literal;)*) => { $(
        #[inline(always)]
        pub fn $name(low: f32, high: f32) -> u32 {
            cvt!($op, reg32, low, high)
        }
    )* };
}

pack_f32! {
    f16x2_from_f32, "rn.f16x2.f32";
    f16x2_from_f32_rz, "rz.f16x2.f32";
    f16x2_from_f32_relu, "rn.relu.f16x2.f32";
    bf16x2_from_f32, "rn.bf16x2.f32";
    bf16x2_from_f32_rz, "rz.bf16x2.f32";
    bf16x2_from_f32_relu, "rn.relu.bf16x2.f32";
}

#[inline(always)]
pub fn tf32_from_f32(x: f32) -> u32 {
    cvt!("rna.tf32.f32", reg32, reg32 x)
}

#[inline(always)]
pub fn i32_from_f32(x: f32) -> i32 {
    cvt!("rni.s32.f32", reg32, reg32 x)
}

#[inline(always)]
pub fn i8_from_f32(x: f32) -> i8 {
    let wide: i32 = cvt!("rni.sat.s8.f32", reg32, reg32 x);
    wide as i8
}

#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
#[inline(always)]
pub fn tf32_from_f32_rn(x: f32) -> u32 {
    cvt!("rn.tf32.f32", reg32, reg32 x)
}

#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
mod fp8 {
    use core::arch::asm;

    #[inline(always)]
    pub fn e4m3x2_from_f32(low: f32, high: f32) -> u16 {
        cvt!("rn.satfinite.e4m3x2.f32", reg16, low, high)
    }

    #[inline(always)]
    pub fn e5m2x2_from_f32(low: f32, high: f32) -> u16 {
        cvt!("rn.satfinite.e5m2x2.f32", reg16, low, high)
    }

    #[inline(always)]
    pub fn e4m3x2_from_f16x2(x: u32) -> u16 {
        cvt!("rn.satfinite.e4m3x2.f16x2", reg16, reg32 x)
    }

    #[inline(always)]
    pub fn e5m2x2_from_f16x2(x: u32) -> u16 {
        cvt!("rn.satfinite.e5m2x2.f16x2", reg16, reg32 x)
    }

    #[inline(always)]
    pub fn f16x2_from_e4m3x2(x: u16) -> u32 {
        cvt!("rn.f16x2.e4m3x2", reg32, reg16 x)
    }

    #[inline(always)]
    pub fn f16x2_from_e5m2x2(x: u16) -> u32 {
        cvt!("rn.f16x2.e5m2x2", reg32, reg16 x)
    }
}
#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
pub use fp8::*;
