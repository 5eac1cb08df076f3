//! Conversions, against `half` and a search over codes.

use conformance::convert::{
    ARRAY, HALF_ROWS, PACKED_ROWS, WIDEN_ROWS, convert_arrays, convert_to_fp8, convert_to_halves,
    convert_to_packed, convert_to_tf32_rn, convert_to_words, convert_widen, convert_widen_fp8,
};
use half::{bf16, f16};
use ironwarp::{LaunchConfig, Result, launch};
use num::{E4M3, E5M2, Format, Rounding};

use crate::gpu::{Gpu, assert_same, assert_same_floats, floats};

const BLOCK: u32 = 256;
const N: usize = 4096;

/// The result of the hardware for any NaN.
const NAN_16: u16 = 0x7fff;

fn nearest_f16(x: f32) -> u16 {
    if x.is_nan() { NAN_16 } else { f16::from_f32(x).to_bits() }
}

fn nearest_bf16(x: f32) -> u16 {
    if x.is_nan() { NAN_16 } else { bf16::from_f32(x).to_bits() }
}

/// The neighbour toward zero where the nearest one lies beyond `x`.
fn toward_zero(x: f32, nearest: u16, widen: fn(u16) -> f32) -> u16 {
    if !x.is_nan() && widen(nearest).abs() > x.abs() { nearest - 1 } else { nearest }
}

fn f16_toward_zero(x: f32) -> u16 {
    toward_zero(x, nearest_f16(x), |code| f16::from_bits(code).to_f32())
}

fn bf16_toward_zero(x: f32) -> u16 {
    toward_zero(x, nearest_bf16(x), |code| bf16::from_bits(code).to_f32())
}

fn pack(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

#[test]
fn to_halves() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = floats(1, N);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u16>(HALF_ROWS * N)?);
    // SAFETY: as many rows as the kernel writes.
    unsafe {
        launch::<convert_to_halves>(&gpu.stream, LaunchConfig::linear(N, BLOCK), (&device_x, &mut out))?
    };
    let got = gpu.get(&out)?;
    let row = |r: usize| &got[r * N..(r + 1) * N];
    assert_same("f16", row(0), x.iter().map(|&x| nearest_f16(x)));
    assert_same("f16 toward zero", row(1), x.iter().map(|&x| f16_toward_zero(x)));
    assert_same("bf16", row(2), x.iter().map(|&x| nearest_bf16(x)));
    assert_same("bf16 toward zero", row(3), x.iter().map(|&x| bf16_toward_zero(x)));
    Ok(())
}

fn without_negative_zeros(register: u32) -> u32 {
    let [low, high] =
        [register as u16, (register >> 16) as u16].map(|code| if code == 0x8000 { 0 } else { code });
    pack(low, high)
}

#[test]
fn to_packed_halves() -> Result<()> {
    let gpu = Gpu::open()?;
    let (low, high) = (floats(2, N), floats(3, N).into_iter().rev().collect::<Vec<f32>>());
    let (device_low, device_high, mut out) =
        (gpu.put(&low)?, gpu.put(&high)?, gpu.zeros::<u32>(PACKED_ROWS * N)?);
    let config = LaunchConfig::linear(N, BLOCK);
    // SAFETY: as many rows as the kernel writes.
    unsafe { launch::<convert_to_packed>(&gpu.stream, config, (&device_low, &device_high, &mut out))? };
    let relu = |x: f32| if x.is_nan() || x > 0.0 { x } else { 0.0 };
    let both =
        |f: &dyn Fn(f32) -> u16| low.iter().zip(&high).map(|(&l, &h)| pack(f(l), f(h))).collect::<Vec<u32>>();
    let want = [
        both(&nearest_f16),
        both(&f16_toward_zero),
        both(&|x| nearest_f16(relu(x))),
        both(&nearest_bf16),
        both(&bf16_toward_zero),
        both(&|x| nearest_bf16(relu(x))),
    ];
    let mut got = gpu.get(&out)?;
    // The PTX ISA does not say whether relu drops the sign of -0.
    for row in [2, 5] {
        got[row * N..(row + 1) * N]
            .iter_mut()
            .for_each(|register| *register = without_negative_zeros(*register));
    }
    for (name, (got, want)) in
        ["f16", "f16 rz", "f16 relu", "bf16", "bf16 rz", "bf16 relu"].into_iter().zip(got.chunks(N).zip(want))
    {
        assert_same(name, got, want);
    }
    Ok(())
}

#[test]
fn every_half_widens() -> Result<()> {
    let gpu = Gpu::open()?;
    let codes: Vec<u16> = (0..=u16::MAX).collect();
    let n = codes.len();
    let (device_codes, mut out) = (gpu.put(&codes)?, gpu.zeros::<f32>(WIDEN_ROWS * n)?);
    // SAFETY: as many rows as the kernel writes.
    unsafe {
        launch::<convert_widen>(&gpu.stream, LaunchConfig::linear(n, BLOCK), (&device_codes, &mut out))?
    };
    let got = gpu.get(&out)?;
    let f16s = |flip: u16| codes.iter().map(move |&c| f16::from_bits(c ^ flip).to_f32());
    let bf16s = |flip: u16| codes.iter().map(move |&c| bf16::from_bits(c ^ flip).to_f32());
    let row = |r: usize| &got[r * n..(r + 1) * n];
    assert_same_floats("f16", row(0), f16s(0));
    assert_same_floats("low f16", row(1), f16s(0));
    assert_same_floats("high f16", row(2), f16s(u16::MAX));
    assert_same_floats("bf16", row(3), bf16s(0));
    assert_same_floats("low bf16", row(4), bf16s(0));
    assert_same_floats("high bf16", row(5), bf16s(u16::MAX));
    Ok(())
}

/// The significant bits of a register: tf32 lies in the upper 19 bits; the rest has no meaning. NaN stays
/// NaN, but the PTX ISA does not say which: on an H200 `cvt.rna` keeps the payload of its input, and `cvt.rn`
/// gives the canonical NaN.
fn tf32(register: u32) -> u32 {
    const MASK: u32 = !0x1fff;
    let kept = register & MASK;
    if f32::from_bits(kept).is_nan() { f32::NAN.to_bits() } else { kept }
}

fn tf32s(registers: &[u32]) -> Vec<u32> {
    registers.iter().copied().map(tf32).collect()
}

fn rounded_to_tf32(x: &[f32], rounding: Rounding) -> impl Iterator<Item = u32> {
    x.iter().map(move |&x| tf32(num::tf32_from_f32(x, rounding).to_bits()))
}

#[test]
fn to_tf32_and_integers() -> Result<()> {
    let gpu = Gpu::open()?;
    let mut x = floats(4, N);
    // The limits of integers, ties, and tf32's ties.
    let edges = [2147483500.0, 2147483648.0, -2147483648.0, 127.49, 127.5, -128.5, -128.51, 0.5, 1.5, -2.5];
    x.splice(100..100 + edges.len(), edges);
    x.splice(200..202, [f32::from_bits(0x3f80_1000), f32::from_bits(0x3f80_3000)]);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(3 * N)?);
    // SAFETY: as many rows as the kernel writes.
    unsafe {
        launch::<convert_to_words>(&gpu.stream, LaunchConfig::linear(N, BLOCK), (&device_x, &mut out))?
    };
    let got = gpu.get(&out)?;
    assert_same("tf32", &tf32s(&got[..N]), rounded_to_tf32(&x, Rounding::NearestAway));
    assert_same("i32", &got[N..2 * N], x.iter().map(|x| (x.round_ties_even() as i32).cast_unsigned()));
    let i8_of = |x: &f32| i32::from(x.round_ties_even() as i8).cast_unsigned();
    assert_same("i8", &got[2 * N..], x.iter().map(i8_of));
    Ok(())
}

#[test]
fn to_tf32_with_ties_to_even() -> Result<()> {
    let gpu = Gpu::open()?;
    if !gpu.has(9, 0) {
        return Ok(());
    }
    let mut x = floats(5, N);
    x.splice(200..202, [f32::from_bits(0x3f80_1000), f32::from_bits(0x3f80_3000)]);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(N)?);
    // SAFETY: an element for each input.
    unsafe {
        launch::<convert_to_tf32_rn>(&gpu.stream, LaunchConfig::linear(N, BLOCK), (&device_x, &mut out))?
    };
    assert_same("tf32", &tf32s(&gpu.get(&out)?), rounded_to_tf32(&x, Rounding::NearestEven));
    Ok(())
}

/// The formats have several NaNs, and the PTX ISA does not say which of them a conversion gives.
fn one_nan(format: Format, codes: u16) -> u16 {
    let canonical = |code: u8| if format.is_nan(code.into()) { format.nan_code() as u8 } else { code };
    u16::from_le_bytes(codes.to_le_bytes().map(canonical))
}

#[test]
fn to_fp8() -> Result<()> {
    let gpu = Gpu::open()?;
    if !gpu.has(8, 9) {
        return Ok(());
    }
    // Numbers in the formats' range, and all kinds of others.
    let scaled = |seed: u64| {
        floats(seed, N).into_iter().enumerate().map(|(i, x)| if i % 2 == 0 { x } else { x % 700.0 })
    };
    let (low, high): (Vec<f32>, Vec<f32>) = (scaled(6).collect(), scaled(7).rev().collect());
    let (device_low, device_high, mut out) = (gpu.put(&low)?, gpu.put(&high)?, gpu.zeros::<u16>(4 * N)?);
    let config = LaunchConfig::linear(N, BLOCK);
    // SAFETY: as many rows as the kernel writes.
    unsafe { launch::<convert_to_fp8>(&gpu.stream, config, (&device_low, &device_high, &mut out))? };
    let both = |f: &dyn Fn(f32) -> u8| {
        low.iter().zip(&high).map(|(&l, &h)| u16::from_le_bytes([f(l), f(h)])).collect::<Vec<u16>>()
    };
    let halved = |x: f32| f16::from_f32(x).to_f32();
    let rows: [(&str, Format, Vec<u16>); 4] = [
        ("e4m3", Format::E4M3, both(&|x| E4M3::from_f32(x).to_bits())),
        ("e5m2", Format::E5M2, both(&|x| E5M2::from_f32(x).to_bits())),
        ("f16 to e4m3", Format::E4M3, both(&|x| E4M3::from_f32(halved(x)).to_bits())),
        ("f16 to e5m2", Format::E5M2, both(&|x| E5M2::from_f32(halved(x)).to_bits())),
    ];
    for (got, (name, format, want)) in gpu.get(&out)?.chunks(N).zip(rows) {
        let got: Vec<u16> = got.iter().map(|&codes| one_nan(format, codes)).collect();
        assert_same(name, &got, want);
    }
    Ok(())
}

#[test]
fn every_fp8_widens() -> Result<()> {
    let gpu = Gpu::open()?;
    if !gpu.has(8, 9) {
        return Ok(());
    }
    // Every code in the low half; in the high half its complement.
    let codes: Vec<u16> = (0..=u8::MAX).map(|c| u16::from_le_bytes([c, !c])).collect();
    let (device_codes, mut out) = (gpu.put(&codes)?, gpu.zeros::<u32>(2 * codes.len())?);
    let config = LaunchConfig::linear(codes.len(), BLOCK);
    // SAFETY: as many rows as the kernel writes.
    unsafe { launch::<convert_widen_fp8>(&gpu.stream, config, (&device_codes, &mut out))? };
    let widen = |format: Format| {
        codes.iter().map(move |codes| {
            let [low, high] = codes.to_le_bytes().map(|code| nearest_f16(format.decode(u32::from(code))));
            pack(low, high)
        })
    };
    assert_same("e4m3, e5m2", &gpu.get(&out)?, widen(Format::E4M3).chain(widen(Format::E5M2)));
    Ok(())
}

#[test]
fn arrays_there_and_back() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = floats(6, N);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<f32>(4 * N)?);
    // SAFETY: four results for each number.
    unsafe {
        launch::<convert_arrays>(&gpu.stream, LaunchConfig::linear(N / ARRAY, BLOCK), (&device_x, &mut out))?
    };
    let roundings: [fn(f32) -> f32; 4] = [
        |x| f16::from_f32(x).to_f32(),
        |x| bf16::from_f32(x).to_f32(),
        |x| E4M3::from_f32(x).to_f32(),
        |x| E5M2::from_f32(x).to_f32(),
    ];
    let want = x.chunks(ARRAY).flat_map(|array| roundings.map(|round| array.iter().map(move |&x| round(x))));
    assert_same_floats("f16, bf16, E4M3, E5M2", &gpu.get(&out)?, want.flatten());
    Ok(())
}
