//! Conversions between all element types against a search among all numbers of the target. On whichever
//! driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::convert::{convert, convert_into};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Stream, Tensor, TensorError};
use num::{E4M3, E5M2};
use reference::elementwise::{SmallFloat, wrap};
use testkit::{Family, Random, input};

/// A source element's value, without loss.
#[derive(Debug, Clone, Copy)]
enum Value {
    Float(f64),
    Integer(i128),
}

/// A result, comparable: floats by their bits, but all NaN are one.
fn float_bits(x: f64) -> i128 {
    if x.is_nan() { i128::MAX } else { i128::from(x.to_bits()) }
}

/// The bits of `value` converted.
fn oracle(value: Value, to: DType) -> i128 {
    let small = |format: SmallFloat| {
        float_bits(match value {
            Value::Float(x) => format.nearest(x),
            Value::Integer(x) => format.nearest_integer(x),
        })
    };
    let integer = |bits: u32, signed: bool| {
        let (low, high) = if signed {
            (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        } else {
            (0, (1i128 << bits) - 1)
        };
        match value {
            Value::Float(x) if x.is_nan() => 0,
            Value::Float(x) => (x.trunc().clamp(-1e30, 1e30) as i128).clamp(low, high),
            Value::Integer(x) if signed => wrap(x, bits),
            Value::Integer(x) => x & high,
        }
    };
    match to {
        DType::F64 => float_bits(match value {
            Value::Float(x) => x,
            Value::Integer(x) => nearest_f64(x),
        }),
        DType::F32 => float_bits(match value {
            Value::Float(x) => nearest_f32(x),
            // Every integer of 64 bits that has more digits than f64 has room for lies beyond any tie of f32,
            // but for its last bits.
            Value::Integer(x) => nearest_f32_of_integer(x),
        }),
        DType::F16 => small(SmallFloat::F16),
        DType::BF16 => small(SmallFloat::BF16),
        DType::F8E4M3 => small(SmallFloat::E4M3),
        DType::F8E5M2 => small(SmallFloat::E5M2),
        DType::I64 => integer(64, true),
        DType::I32 => integer(32, true),
        DType::U8 => integer(8, false),
        DType::Bool => i128::from(match value {
            Value::Float(x) => x != 0.0,
            Value::Integer(x) => x != 0,
        }),
        other => unreachable!("{other} has no oracle"),
    }
}

/// The f32 nearest to `x`, found among two neighbours by their middle.
fn nearest_f32(x: f64) -> f64 {
    if !x.is_finite() {
        return x;
    }
    let mut below = f32::from_bits((x.abs() as f32).to_bits().saturating_sub(1));
    while f64::from(below.next_up()) <= x.abs() && below.next_up().is_finite() {
        below = below.next_up();
    }
    let step = f64::from(below) - f64::from(f32::from_bits(below.to_bits().max(1) - 1));
    let (above, middle) = if below == f32::MAX {
        (f64::INFINITY, f64::from(f32::MAX) + step / 2.0)
    } else {
        (f64::from(below.next_up()), (f64::from(below) + f64::from(below.next_up())) / 2.0)
    };
    let odd = below.to_bits() % 2 == 1;
    let magnitude = if x.abs() > middle || x.abs() == middle && odd { above } else { f64::from(below) };
    if x.is_sign_negative() { -magnitude } else { magnitude }
}

/// An integer rounded to `digits` binary digits, ties to even.
fn rounded(x: i128, digits: u32) -> i128 {
    let excess = (i128::BITS - x.unsigned_abs().leading_zeros()).saturating_sub(digits);
    if excess == 0 {
        return x;
    }
    let (kept, lost) = (x.unsigned_abs() >> excess, x.unsigned_abs() & ((1 << excess) - 1));
    let half = 1u128 << (excess - 1);
    let up = lost > half || lost == half && kept % 2 == 1;
    ((kept + u128::from(up)) << excess) as i128 * x.signum()
}

fn nearest_f64(x: i128) -> f64 {
    rounded(x, f64::MANTISSA_DIGITS) as f64
}

fn nearest_f32_of_integer(x: i128) -> f64 {
    rounded(x, f32::MANTISSA_DIGITS) as f64
}

fn results(stream: &Stream, x: &Tensor) -> Result<Vec<i128>, Error> {
    let floats = |values: Vec<f64>| values.into_iter().map(float_bits).collect();
    let widened = |values: Vec<f32>| values.into_iter().map(|v| float_bits(v.into())).collect();
    Ok(match x.dtype() {
        DType::F64 => floats(x.to_vec::<f64>(stream)?),
        DType::F32 => widened(x.to_vec::<f32>(stream)?),
        DType::F16 => widened(x.to_vec::<f16>(stream)?.iter().map(|v| v.to_f32()).collect()),
        DType::BF16 => widened(x.to_vec::<bf16>(stream)?.iter().map(|v| v.to_f32()).collect()),
        DType::F8E4M3 => widened(x.to_vec::<E4M3>(stream)?.iter().map(|v| v.to_f32()).collect()),
        DType::F8E5M2 => widened(x.to_vec::<E5M2>(stream)?.iter().map(|v| v.to_f32()).collect()),
        DType::I64 => x.to_vec::<i64>(stream)?.into_iter().map(i128::from).collect(),
        DType::I32 => x.to_vec::<i32>(stream)?.into_iter().map(i128::from).collect(),
        DType::U8 => x.to_vec::<u8>(stream)?.into_iter().map(i128::from).collect(),
        _ => x.to_vec::<bool>(stream)?.into_iter().map(i128::from).collect(),
    })
}

fn to_all<T: Element>(x: &[T], value: impl Fn(T) -> Value) -> Outcome {
    let stream = stream()?;
    let device = Tensor::from_slice(&stream, &[x.len()], x)?;
    // To its own type is a copy, infinities of 8-bit floats included.
    for to in DType::ALL.iter().copied().filter(|&to| to != T::DTYPE) {
        let got = results(&stream, &convert(&stream, &device, to)?)?;
        for (index, (&x, got)) in x.iter().zip(got).enumerate() {
            let want = oracle(value(x), to);
            assert_eq!(
                got,
                want,
                "{} {:?} to {to}, element {index} ({:e})",
                T::DTYPE,
                value(x),
                f64::from_bits(got as u64)
            );
        }
    }
    Ok(())
}

/// Numbers beside the middles of every two neighbours of the small formats, where double rounding shows.
fn seams() -> Vec<f64> {
    let mut x = Vec::new();
    let bf16s = (0..0x7f80u16).step_by(97).map(|code| f64::from(bf16::from_bits(code)));
    let f16s = (0..0x7c00u16).step_by(37).map(|code| f64::from(f16::from_bits(code)));
    let e4m3s = (0..0x7f).map(|code| f64::from(E4M3::from_bits(code).to_f32()));
    let e5m2s = (0..0x7c).map(|code| f64::from(E5M2::from_bits(code).to_f32()));
    for numbers in [bf16s.collect::<Vec<_>>(), f16s.collect(), e4m3s.collect(), e5m2s.collect()] {
        // Half a step and a bit: with the widest format's step this is no middle, with its own it is.
        for pair in numbers.windows(2) {
            for part in [0.5, 0.5 / 37.0, 0.5 / 97.0] {
                let middle = pair[0] + (pair[1] - pair[0]) * part;
                x.extend([middle, middle.next_up(), -middle.next_down(), middle * (1.0 + 1e-9)]);
            }
        }
    }
    x.extend([
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        f64::MAX,
        5e-324,
        65519.999,
        65520.0,
        464.0,
        448.1,
        61440.0,
    ]);
    x.extend([
        f64::from(f32::MAX),
        3.4028235677973366e38,
        3.4028235677973362e38,
        1e-45,
        7e-46,
        7.006492321624085e-46,
    ]);
    x.extend([
        2147483647.0,
        2147483648.5,
        -2147483649.0,
        9.3e18,
        -9.3e18,
        255.9,
        256.0,
        -0.9,
        -1.0,
        9223372036854774784.0,
    ]);
    x
}

#[test]
fn from_f64() -> Outcome {
    let mut x = seams();
    x.extend(Family::ALL.iter().flat_map(|&family| input::<f64>(family, 1, 200)));
    to_all(&x, Value::Float)
}

#[test]
fn from_f32() -> Outcome {
    let mut x: Vec<f32> = seams().into_iter().map(|v| v as f32).collect();
    x.extend(Family::ALL.iter().flat_map(|&family| input::<f32>(family, 1, 200)));
    to_all(&x, |v| Value::Float(v.into()))
}

#[test]
fn from_every_small_float() -> Outcome {
    to_all(&(0..=u16::MAX).step_by(7).map(f16::from_bits).collect::<Vec<_>>(), |v| Value::Float(v.into()))?;
    to_all(&(0..=u16::MAX).step_by(7).map(bf16::from_bits).collect::<Vec<_>>(), |v| Value::Float(v.into()))?;
    to_all(&(0..=u8::MAX).map(E4M3::from_bits).collect::<Vec<_>>(), |v| Value::Float(v.to_f32().into()))?;
    to_all(&(0..=u8::MAX).map(E5M2::from_bits).collect::<Vec<_>>(), |v| Value::Float(v.to_f32().into()))
}

#[test]
fn from_integers() -> Outcome {
    let mut random = Random::new(3);
    let mut x: Vec<i64> = vec![i64::MIN, i64::MAX, 0, -1, 1, 255, 256, -256, i64::from(i32::MAX) + 1];
    // Powers of two, and half way to the next number of every format, with a bit to one side.
    for power in 0..63u32 {
        for digits in [1, 2, 3, 4, 8, 11, 24, 53] {
            let half = 1i64 << power.saturating_sub(digits);
            x.extend([-1, 0, 1].map(|bit| (1i64 << power) + half + bit));
            x.extend([-1, 0, 1].map(|bit| -(1i64 << power) - half + bit));
        }
    }
    x.extend((0..500).map(|_| random.bits() as i64 >> random.integer(0, 63)));
    to_all(&x, |v| Value::Integer(v.into()))?;
    to_all(&x.iter().map(|&v| v as i32).collect::<Vec<_>>(), |v| Value::Integer(v.into()))?;
    to_all(&(0..=u8::MAX).collect::<Vec<_>>(), |v| Value::Integer(v.into()))?;
    to_all(&[true, false, true, true, false], |v| Value::Integer(v.into()))
}

#[test]
fn any_length_layout_and_alignment() -> Outcome {
    let stream = stream()?;
    for n in (0..36).chain([63, 255, 1023, 1025, 4097]) {
        let data: Vec<f32> = (0..n + 3).map(|i| i as f32 - 7.25).collect();
        let x = Tensor::from_slice(&stream, &[n + 3], &data)?;
        for start in 0..4 {
            let part = x.slice(0, start..(start + n).min(n + 3))?;
            let want: Vec<i32> = data[start..(start + n).min(n + 3)].iter().map(|&v| v as i32).collect();
            assert_eq!(
                convert(&stream, &part, DType::I32)?.to_vec::<i32>(&stream)?,
                want,
                "{n} from {start} on"
            );
            // Nothing beside the output is written.
            let mut out = Tensor::from_slice(&stream, &[n + 8], &vec![99u8; n + 8])?;
            convert_into(&stream, &part, out.view_mut()?.slice(0, start..start + want.len())?)?;
            let got = out.to_vec::<u8>(&stream)?;
            assert!(
                got[..start].iter().chain(&got[start + want.len()..]).all(|&v| v == 99),
                "{n} from {start} on"
            );
            assert!(got[start..].iter().zip(&want).all(|(&got, &want)| i32::from(got) == want.clamp(0, 255)));
        }
    }
    let x = Tensor::from_slice(&stream, &[2, 3], &[1i64, 2, 3, 4, 5, 6])?.transpose(0, 1)?;
    assert_eq!(convert(&stream, &x, DType::F64)?.to_vec::<f64>(&stream)?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(convert(&stream, &x, DType::I64)?.to_vec::<i64>(&stream)?, [1, 4, 2, 5, 3, 6]);
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let wrong = |result: Result<(), Error>, is_it: fn(&TensorError) -> bool| {
        let error = result.unwrap_err();
        assert!(error.tensor_error().is_some_and(is_it), "{error:?}");
        assert!(error.to_string().contains("\nhint: ") && error.is_recoverable(), "{error}");
    };
    let x = Tensor::zeros(&stream, &[2, 3], DType::F32)?;
    let mut out = Tensor::zeros(&stream, &[3, 2], DType::F16)?;
    wrong(convert_into(&stream, &x, out.view_mut()?), |e| {
        matches!(e, TensorError::Shape { what: "out", .. })
    });
    wrong(convert_into(&stream, &x, out.view_mut()?.permute(&[1, 0])?), |e| {
        matches!(e, TensorError::NotContiguous { .. })
    });
    let mut same = Tensor::zeros(&stream, &[2, 3], DType::F32)?;
    wrong(convert_into(&stream, &x, same.view_mut()?), |e| {
        matches!(e, TensorError::DType { what: "out", .. })
    });
    Ok(())
}
