//! Tests every code of every format, and every rounding boundary.

use ironwarp_num::{
    E2M1, E4M3, E5M2, E8M0, Format, Overflow, Rounding, bf16, f16, tf32_from_f32, tf32_truncate,
};

const NEAREST: (Rounding, Overflow) = (Rounding::NearestEven, Overflow::Infinity);

fn encode(format: Format, x: f32, (rounding, overflow): (Rounding, Overflow)) -> u32 {
    format.encode(x, rounding, overflow)
}

/// A decoder.
type Decode = fn(u32) -> f64;

/// All formats with their number of bits and an independent decoder.
fn formats() -> Vec<(&'static str, Format, u32, Decode)> {
    vec![
        ("f16", Format::F16, 16, |c| by_definition(c, 5, 10)),
        ("bf16", Format::BF16, 16, |c| by_definition(c, 8, 7)),
        ("tf32", Format::TF32, 19, |c| by_definition(c, 8, 10)),
        ("E4M3", Format::E4M3, 8, |c| if c & 0x7f == 0x7f { f64::NAN } else { finite(c, 4, 3) }),
        ("E5M2", Format::E5M2, 8, |c| by_definition(c, 5, 2)),
        ("E2M1", Format::E2M1, 4, |c| finite(c, 2, 1)),
    ]
}

/// IEEE 754's definition, in f64.
fn by_definition(code: u32, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let field = code >> mantissa_bits & ((1 << exponent_bits) - 1);
    let mantissa = code & ((1 << mantissa_bits) - 1);
    if field != (1 << exponent_bits) - 1 {
        return finite(code, exponent_bits, mantissa_bits);
    }
    let sign = if code >> (exponent_bits + mantissa_bits) & 1 == 1 { -1.0 } else { 1.0 };
    if mantissa == 0 { sign * f64::INFINITY } else { f64::NAN }
}

fn finite(code: u32, exponent_bits: u32, mantissa_bits: u32) -> f64 {
    let field = code >> mantissa_bits & ((1 << exponent_bits) - 1);
    let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1u32 << mantissa_bits);
    let bias = (1 << (exponent_bits - 1)) - 1;
    let sign = if code >> (exponent_bits + mantissa_bits) & 1 == 1 { -1.0 } else { 1.0 };
    if field == 0 {
        sign * mantissa * 2f64.powi(1 - bias)
    } else {
        sign * (1.0 + mantissa) * 2f64.powi(field as i32 - bias)
    }
}

fn same(a: f64, b: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a.to_bits() == b.to_bits()
}

#[test]
fn every_code_decodes_to_its_definition() {
    for (name, format, bits, definition) in formats() {
        for code in 0..1 << bits {
            let (got, want) = (f64::from(format.decode(code)), definition(code));
            assert!(same(got, want), "{name} {code:#x}: got {got}, want {want}");
            assert_eq!(format.is_nan(code), want.is_nan(), "{name} {code:#x}");
        }
    }
}

#[test]
fn every_number_encodes_to_itself() {
    for (name, format, bits, _) in formats() {
        for code in 0..1 << bits {
            let value = format.decode(code);
            let want = if value.is_nan() { format.nan_code() } else { code };
            for rounding in [Rounding::NearestEven, Rounding::NearestAway, Rounding::TowardZero] {
                let got = encode(format, value, (rounding, Overflow::Infinity));
                assert_eq!(got, want, "{name} {code:#x} = {value}, {rounding:?}");
            }
        }
    }
}

/// Tests the middle between two neighbours, one f32 below and above it, and the values next to the ends.
#[test]
fn rounding_turns_where_it_should() {
    for (name, format, _, _) in formats() {
        for low in 0..format.max_code() {
            let (a, b) = (format.decode(low), format.decode(low + 1));
            let middle = (f64::from(a) + f64::from(b)) / 2.0;
            for sign in [0, format.sign_bit()] {
                let flip = |x: f32| if sign == 0 { x } else { -x };
                let check = |x: f32, rounding, want: u32| {
                    let got = encode(format, flip(x), (rounding, Overflow::Saturate));
                    assert_eq!(
                        got,
                        want | sign,
                        "{name}: {} between codes {low:#x} and the next, {rounding:?}",
                        flip(x)
                    );
                };
                let even = low + (low & 1);
                // bf16's smallest middles are f32's own smallest numbers; all middles are exact in f32.
                let middle = middle as f32;
                check(middle, Rounding::NearestEven, even);
                check(middle, Rounding::NearestAway, low + 1);
                check(middle, Rounding::TowardZero, low);
                check(middle.next_up(), Rounding::NearestEven, low + 1);
                check(middle.next_down(), Rounding::NearestEven, low);
                check(middle.next_down(), Rounding::NearestAway, low);
                check(b.next_down(), Rounding::TowardZero, low);
            }
        }
    }
}

#[test]
fn overflow_begins_half_a_step_beyond_the_largest() {
    for (name, format, _, _) in formats() {
        let (largest, before) = (format.decode(format.max_code()), format.decode(format.max_code() - 1));
        let limit = f64::from(largest) + (f64::from(largest) - f64::from(before)) / 2.0;
        let infinite = encode(format, f32::INFINITY, NEAREST);
        for x in [f32::MAX, f32::INFINITY, limit as f32] {
            if f64::from(x) < limit {
                continue; // Nothing finite lies beyond tf32's limit.
            }
            assert_eq!(
                encode(format, x, (Rounding::NearestEven, Overflow::Saturate)),
                format.max_code(),
                "{name} {x}"
            );
            // In all formats but E4M3 the largest code is odd, or the limit is no tie because no next code
            // exists.
            if f64::from(x) > limit || format.max_code() & 1 == 1 {
                assert_eq!(encode(format, x, NEAREST), infinite, "{name} {x}");
            }
        }
        let inside = (limit as f32).next_down();
        if f64::from(inside) < limit {
            assert_eq!(encode(format, inside, NEAREST), format.max_code(), "{name} {inside}");
        }
        let toward_zero = encode(format, f32::MAX, (Rounding::TowardZero, Overflow::Infinity));
        assert_eq!(toward_zero, format.max_code(), "{name}");
    }
}

#[test]
fn nan_becomes_the_canonical_one() {
    for (name, format, _, _) in formats() {
        for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)] {
            assert_eq!(encode(format, nan, NEAREST), format.nan_code(), "{name}");
        }
    }
}

/// Steps over all exponents. The step shares no factor with the spacing of any format.
fn many_f32() -> impl Iterator<Item = f32> {
    (0..=u32::MAX).step_by(7919).map(f32::from_bits)
}

#[test]
fn agrees_with_the_half_crate() {
    for x in many_f32().filter(|x| !x.is_nan()) {
        assert_eq!(encode(Format::F16, x, NEAREST), u32::from(f16::from_f32(x).to_bits()), "f16 {x:e}");
        assert_eq!(encode(Format::BF16, x, NEAREST), u32::from(bf16::from_f32(x).to_bits()), "bf16 {x:e}");
    }
}

/// The nearest code, found by a search over all codes; ties to even.
fn nearest_by_search(format: Format, x: f32) -> u32 {
    let x64 = f64::from(x.abs()).min(f64::from(format.decode(format.max_code())));
    let sign = if x.is_sign_negative() { format.sign_bit() } else { 0 };
    let distance = |code: u32| (f64::from(format.decode(code)) - x64).abs();
    let best = (0..=format.max_code())
        .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))))
        .unwrap();
    best | sign
}

#[test]
fn small_formats_agree_with_a_search() {
    for x in many_f32().step_by(13).filter(|x| !x.is_nan()) {
        assert_eq!(u32::from(E4M3::from_f32(x).to_bits()), nearest_by_search(Format::E4M3, x), "E4M3 {x:e}");
        assert_eq!(u32::from(E5M2::from_f32(x).to_bits()), nearest_by_search(Format::E5M2, x), "E5M2 {x:e}");
        assert_eq!(u32::from(E2M1::from_f32(x).to_bits()), nearest_by_search(Format::E2M1, x), "E2M1 {x:e}");
    }
}

#[test]
fn known_values() {
    assert_eq!(E4M3::MAX.to_f32(), 448.0);
    assert_eq!(E5M2::MAX.to_f32(), 57344.0);
    assert_eq!(E2M1::MAX.to_f32(), 6.0);
    assert_eq!(E4M3::from_f32(464.0), E4M3::MAX);
    assert_eq!(E4M3::from_f32(f32::NEG_INFINITY).to_f32(), -448.0);
    assert!(E5M2::from_f32(f32::NAN).is_nan() && E4M3::NAN.is_nan());
    assert_eq!(E5M2::from_bits(0x7c).to_f32(), f32::INFINITY);
    assert_eq!(E2M1::from_f32(f32::NAN), E2M1::MAX);
    let magnitudes: Vec<f32> = (0..8).map(|code| E2M1::from_bits(code).to_f32()).collect();
    assert_eq!(magnitudes, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    assert_eq!(Format::F16.decode(Format::F16.max_code()), f16::MAX.to_f32());
    assert_eq!(Format::BF16.decode(Format::BF16.max_code()), bf16::MAX.to_f32());
}

#[test]
fn fp4_pairs_pack_low_half_first() {
    for byte in 0..=u8::MAX {
        let [low, high] = E2M1::unpack(byte);
        assert_eq!((low.to_bits(), high.to_bits()), (byte & 0xf, byte >> 4));
        assert_eq!(E2M1::pack(low, high), byte);
    }
}

#[test]
fn packed_registers_hold_element_0_low() {
    let pair = [f16::from_f32(1.0), f16::from_f32(-2.0)];
    assert_eq!(ironwarp_num::pack_x2(pair), 0xc000_3c00);
    assert_eq!(ironwarp_num::unpack_x2::<f16>(0xc000_3c00), pair);
    assert_eq!(ironwarp_num::unpack_x2::<bf16>(0x3f80_4000).map(bf16::to_f32), [2.0, 1.0]);
}

#[test]
fn tf32_keeps_19_bits() {
    for x in many_f32().filter(|x| !x.is_nan()) {
        let rounded = tf32_from_f32(x, Rounding::NearestAway);
        assert_eq!(rounded.to_bits() & 0x1fff, 0, "{x:e}");
        // Adding half a step to the bits is rounding to nearest, ties away.
        let expected = if x.is_infinite() { x } else { f32::from_bits((x.to_bits() + 0x1000) & !0x1fff) };
        assert_eq!(rounded.to_bits(), expected.to_bits(), "{x:e}");
        assert_eq!(tf32_truncate(x).to_bits(), x.to_bits() & !0x1fff);
    }
    assert!(tf32_truncate(f32::from_bits(0x7f80_0001)).is_nan());
}

#[test]
fn e8m0_is_a_power_of_two() {
    for code in 0..E8M0::NAN.to_bits() {
        let scale = E8M0::from_bits(code);
        assert_eq!(f64::from(scale.to_f32()), 2f64.powi(i32::from(code) - 127));
        assert_eq!(E8M0::floor_from_f32(scale.to_f32()), scale);
        assert_eq!(E8M0::ceil_from_f32(scale.to_f32()), scale);
        assert_eq!(E8M0::floor_from_f32(-scale.to_f32()), scale);
        if code > 0 {
            let below = scale.to_f32().next_down();
            assert_eq!(E8M0::floor_from_f32(below).to_bits(), code - 1);
            assert_eq!(E8M0::ceil_from_f32(below), scale);
        }
    }
    assert!(E8M0::NAN.to_f32().is_nan() && E8M0::floor_from_f32(f32::NAN).is_nan());
    assert!(E8M0::ceil_from_f32(f32::NAN).is_nan());
    for extreme in [f32::MAX, f32::INFINITY] {
        assert_eq!(E8M0::ceil_from_f32(extreme), E8M0::MAX);
        assert_eq!(E8M0::floor_from_f32(extreme), E8M0::MAX);
    }
    for tiny in [0.0, f32::from_bits(1)] {
        assert_eq!(E8M0::floor_from_f32(tiny), E8M0::MIN_POSITIVE);
        assert_eq!(E8M0::ceil_from_f32(tiny), E8M0::MIN_POSITIVE);
    }
    assert_eq!(E8M0::ONE.to_f32(), 1.0);
}
