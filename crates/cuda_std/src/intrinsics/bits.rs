//! Integers, the bits of floats, and what kind of number a float is.

use half::f16;

use crate::convert::{f16_from_f32, f16_to_f32};
use crate::float_ext::FloatExt;

functions! { "Always safe to call; `unsafe` as in Rust-CUDA."
    abs(x: i32) -> i32, "", "Absolute value; `i32::MIN` stays.", x.wrapping_abs();
    brev(x: i32) -> i32, "", "The bits in reverse order.", x.reverse_bits();
    brevll(x: i64) -> i64, "", "The bits in reverse order.", x.reverse_bits();
    byte_perm(x: i32, y: i32, z: i32) -> i32, "",
        "Four of the eight bytes of `x` (0 to 3) and `y`: byte `n` is the one that the low 3 bits of nibble `n` of `z` name.",
        {
            let bytes = (x as u32 as u64) | (y as u32 as u64) << 32;
            let byte = |n: u32| (bytes >> (((z >> (4 * n)) & 7) * 8)) as u8;
            i32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
        };
    clz(x: i32) -> i32, "", "Number of zeros in front of the highest one; 32 for 0.", x.leading_zeros() as i32;
    clzll(x: i64) -> i32, "", "Number of zeros in front of the highest one; 64 for 0.", x.leading_zeros() as i32;
    double2hiint(d: f64) -> i32, "", "The high half of the bits.", (d.to_bits() >> 32) as i32;
    double2loint(d: f64) -> i32, "", "The low half of the bits.", d.to_bits() as i32;
    double_as_longlong(x: f64) -> i64, "", "The bits.", x.to_bits() as i64;
    ffs(x: i32) -> i32, "", "Position of the lowest one, from 1 on; 0 for 0.",
        if x == 0 { 0 } else { x.trailing_zeros() as i32 + 1 };
    ffsll(x: i64) -> i32, "", "Position of the lowest one, from 1 on; 0 for 0.",
        if x == 0 { 0 } else { x.trailing_zeros() as i32 + 1 };
    finitef(x: f32) -> i32, "", "1 if `x` is neither infinite nor NaN, else 0.", x.is_finite() as i32;
    float2half_rn(f: f32) -> i16, "", "The bits of the nearest f16; ties to even.", f16_from_f32(f).to_bits() as i16;
    float_as_int(x: f32) -> i32, "", "The bits.", x.to_bits() as i32;
    hadd(x: i32, y: i32) -> i32, "", "`(x + y) / 2` without overflow, rounded down.", (x & y) + ((x ^ y) >> 1);
    half2float(h: i16) -> f32, "", "The f16 with these bits.", f16_to_f32(f16::from_bits(h as u16));
    hiloint2double(x: i32, y: i32) -> f64, "", "The float whose bits are `x` (the high half) and `y`.",
        f64::from_bits((x as u64) << 32 | y as u32 as u64);
    int2double_rn(i: i32) -> f64, "", "As a float.", f64::from(i);
    int_as_float(x: i32) -> f32, "", "The float with these bits.", f32::from_bits(x as u32);
    isfinited(x: f64) -> i32, "", "1 if `x` is neither infinite nor NaN, else 0.", x.is_finite() as i32;
    isinfd(x: f64) -> i32, "", "1 if `x` is infinite, else 0.", x.is_infinite() as i32;
    isinff(x: f32) -> i32, "", "1 if `x` is infinite, else 0.", x.is_infinite() as i32;
    isnand(x: f64) -> i32, "", "1 if `x` is NaN, else 0.", x.is_nan() as i32;
    isnanf(x: f32) -> i32, "", "1 if `x` is NaN, else 0.", x.is_nan() as i32;
    llabs(x: i64) -> i64, "", "Absolute value; `i64::MIN` stays.", x.wrapping_abs();
    llmax(x: i64, y: i64) -> i64, "", "The larger.", x.max(y);
    llmin(x: i64, y: i64) -> i64, "", "The smaller.", x.min(y);
    longlong_as_double(x: i64) -> f64, "", "The float with these bits.", f64::from_bits(x as u64);
    max(x: i32, y: i32) -> i32, "", "The larger.", x.max(y);
    min(x: i32, y: i32) -> i32, "", "The smaller.", x.min(y);
    mul24(x: i32, y: i32) -> i32, "", "Low half of the product of the low 24 bits, which are signed.",
        (x << 8 >> 8).wrapping_mul(y << 8 >> 8);
    mul64hi(x: i64, y: i64) -> i64, "", "High half of the product.", ((x as i128 * y as i128) >> 64) as i64;
    mulhi(x: i32, y: i32) -> i32, "", "High half of the product.", ((x as i64 * y as i64) >> 32) as i32;
    popc(x: i32) -> i32, "", "Number of ones.", x.count_ones() as i32;
    popcll(x: i64) -> i32, "", "Number of ones.", x.count_ones() as i32;
    rhadd(x: i32, y: i32) -> i32, "", "`(x + y + 1) / 2` without overflow, rounded down.", (x | y) - ((x ^ y) >> 1);
    sad(x: i32, y: i32, z: i32) -> i32, "", "`|x - y| + z`; the sum wraps.", z.wrapping_add(x.abs_diff(y) as i32);
    saturatef(x: f32) -> f32, "", "`x` held between 0 and 1; NaN becomes 0.", FloatExt::saturate(x);
    signbitd(x: f64) -> i32, "", "1 if the sign is set, else 0.", x.is_sign_negative() as i32;
    signbitf(x: f32) -> i32, "", "1 if the sign is set, else 0.", x.is_sign_negative() as i32;
    uhadd(x: i32, y: i32) -> i32, "", "`(x + y) / 2` of unsigned numbers without overflow, rounded down.",
        (x & y).wrapping_add(((x ^ y) as u32 >> 1) as i32);
    uint2double_rn(i: i32) -> f64, "", "As a float, from an unsigned number.", f64::from(i as u32);
    ullmax(x: i64, y: i64) -> i64, "", "The larger of unsigned numbers.", (x as u64).max(y as u64) as i64;
    ullmin(x: i64, y: i64) -> i64, "", "The smaller of unsigned numbers.", (x as u64).min(y as u64) as i64;
    umax(x: i32, y: i32) -> i32, "", "The larger of unsigned numbers.", (x as u32).max(y as u32) as i32;
    umin(x: i32, y: i32) -> i32, "", "The smaller of unsigned numbers.", (x as u32).min(y as u32) as i32;
    umul24(x: i32, y: i32) -> i32, "", "Low half of the product of the low 24 bits, which are unsigned.",
        (x & 0xff_ffff).wrapping_mul(y & 0xff_ffff);
    umul64hi(x: i64, y: i64) -> i64, "", "High half of the product of unsigned numbers.",
        ((x as u64 as u128 * y as u64 as u128) >> 64) as i64;
    umulhi(x: i32, y: i32) -> i32, "", "High half of the product of unsigned numbers.",
        ((x as u32 as u64 * y as u32 as u64) >> 32) as i32;
    urhadd(x: i32, y: i32) -> i32, "", "`(x + y + 1) / 2` of unsigned numbers without overflow, rounded down.",
        (x | y).wrapping_sub(((x ^ y) as u32 >> 1) as i32);
    usad(x: i32, y: i32, z: i32) -> i32, "", "`|x - y| + z` of unsigned numbers; the sum wraps.",
        z.wrapping_add((x as u32).abs_diff(y as u32) as i32);
}
