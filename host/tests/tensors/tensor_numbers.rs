//! Plain numbers in tensors: progressions, bounds, and numbers that an integer type does not have.

use std::error::Error as StdError;

use half::{bf16, f16};
use ironwarp::{DType, Device, Error, Result, Tensor, TensorError};

type Outcome = std::result::Result<(), Box<dyn StdError>>;

/// The first integer that no f64 is.
const ODD: i64 = (1 << 53) + 1;

fn is_argument<T>(result: Result<T>, part: &str) {
    let error = result.err().expect(part);
    assert!(matches!(error, Error::InvalidArgument { .. }), "{part}: {error}");
    assert!(error.to_string().contains(part), "{part}: {error}");
}

#[test]
fn progressions_of_integers_are_exact() -> Outcome {
    let device = Device::open(0)?;
    let of = |start: i64, end: i64, step: i64| Tensor::arange(&device, start, end, step, DType::I64);
    assert_eq!(of(ODD, ODD + 3, 1)?.tolist::<i64>()?, [ODD, ODD + 1, ODD + 2]);
    assert_eq!(of(-ODD, -ODD - 5, -2)?.tolist::<i64>()?, [-ODD, -ODD - 2, -ODD - 4]);
    let ends = of(i64::MIN, i64::MAX, i64::MAX)?.tolist::<i64>()?;
    assert_eq!(ends, [i64::MIN, -1, i64::MAX - 1]);
    assert_eq!(of(3, 3, 1)?.tolist::<i64>()?, [0i64; 0]);
    assert_eq!(Tensor::arange(&device, 5, 0, -2, DType::I32)?.tolist::<i32>()?, [5, 3, 1]);
    // A float start is cut.
    assert_eq!(Tensor::arange(&device, 1.5, 4.0, 1.0, DType::I64)?.tolist::<i64>()?, [1, 2, 3]);
    is_argument(of(0, 1, 0), "0 from 0 to 1, as i64");
    is_argument(of(0, 3, -1), "-1 from 0 to 3");
    is_argument(Tensor::arange(&device, 0.5, 3.5, 0.5, DType::I64), "0.5 from 0.5 to 3.5, as i64");
    assert_eq!(Tensor::arange(&device, 0.5, 2.0, 0.5, DType::F32)?.tolist::<f32>()?, [0.5, 1.0, 1.5]);
    let long = [
        of(i64::MIN, i64::MAX, 1),
        Tensor::arange(&device, 0, 1e19, 1, DType::F32),
        Tensor::arange(&device, 0.0, 1e300, 1, DType::I32),
    ];
    for error in long.map(|made| made.expect_err("too long")) {
        assert!(matches!(error.tensor_error(), Some(TensorError::TooLarge { .. })), "{error}");
    }
    Ok(())
}

#[test]
fn bounds_of_integers_are_exact() -> Outcome {
    let device = Device::open(0)?;
    let x = Tensor::from_slice(&device, &[3], &[ODD - 1, ODD, ODD + 1])?;
    assert_eq!(x.clamp(ODD, i64::MAX)?.tolist::<i64>()?, [ODD, ODD, ODD + 1]);
    assert_eq!(x.clamp(i64::MIN, ODD)?.tolist::<i64>()?, [ODD - 1, ODD, ODD]);
    assert_eq!(x.clamp(i64::MIN, i64::MAX)?.tolist::<i64>()?, [ODD - 1, ODD, ODD + 1]);
    Ok(())
}

#[test]
fn integers_have_no_other_numbers() -> Outcome {
    let device = Device::open(0)?;
    let full = |number: f64, dtype| Tensor::full(&device, &[2], number, dtype);
    for dtype in [DType::I64, DType::I32, DType::U8] {
        is_argument(full(f64::NAN, dtype), "NaN");
        is_argument(full(f64::NEG_INFINITY, dtype), "-inf");
        is_argument(full(1e30, dtype), "1e30");
        is_argument(full(-1e300, dtype), "-1e300");
    }
    is_argument(full(-(i64::MIN as f64), DType::I64), "9.223372036854776e18");
    assert_eq!(full(i64::MIN as f64, DType::I64)?.tolist::<i64>()?, [i64::MIN; 2]);
    // The integer part counts.
    assert_eq!(full(255.5, DType::U8)?.tolist::<u8>()?, [255; 2]);
    assert_eq!(full(-0.5, DType::U8)?.tolist::<u8>()?, [0; 2]);
    assert_eq!(full(f64::NAN, DType::Bool)?.tolist::<bool>()?, [true; 2]);
    let (x, mask) = (full(1.0, DType::I64)?, full(1.0, DType::Bool)?);
    is_argument(x.masked_fill(&mask, f64::NEG_INFINITY), "-inf");
    is_argument(x.pad(&[[0, 1]], f64::NAN), "NaN");
    Ok(())
}

/// Integers wrap around, also where the number has no negative.
#[test]
fn the_ends_of_integers_are_taken_away() -> Outcome {
    let device = Device::open(0)?;
    let values = [0i32, -1, 5, i32::MIN, i32::MAX];
    let x = Tensor::from_slice(&device, &[5], &values)?;
    for end in [i32::MIN, i32::MAX, -1] {
        assert_eq!(x.sub(end)?.tolist::<i32>()?, values.map(|value| value.wrapping_sub(end)), "{end}");
        let mut in_place = x.add(0)?;
        in_place.sub_(i64::from(end))?;
        assert_eq!(in_place.tolist::<i32>()?, values.map(|value| value.wrapping_sub(end)), "{end}");
    }
    let values = [0i64, -1, 5, i64::MIN, i64::MAX];
    let x = Tensor::from_slice(&device, &[5], &values)?;
    for end in [i64::MIN, i64::MAX, i64::from(i32::MIN)] {
        assert_eq!(x.sub(end)?.tolist::<i64>()?, values.map(|value| value.wrapping_sub(end)), "{end}");
    }
    Ok(())
}

/// A number that 16 bits do not hold is divided as it is.
#[test]
fn numbers_are_divided_by_halves() -> Outcome {
    let device = Device::open(0)?;
    let x = Tensor::from_slice(&device, &[3], &[256.0, -3.0, 6e-5].map(f16::from_f64))?;
    let divisors = x.tolist::<f16>()?;
    for number in [65536.0, 1e-8, 0.1, 1.0, f64::INFINITY] {
        let want: Vec<f16> = divisors.iter().map(|x| f16::from_f32(number as f32 / x.to_f32())).collect();
        let got = (number / &x)?;
        assert_eq!((got.dtype(), got.tolist::<f16>()?), (DType::F16, want), "{number}");
    }
    let x = Tensor::from_slice(&device, &[2], &[3.0, 1e-3].map(bf16::from_f64))?;
    let want: Vec<bf16> = x.tolist::<bf16>()?.iter().map(|x| bf16::from_f32(1.001 / x.to_f32())).collect();
    assert_eq!((1.001 / &x)?.tolist::<bf16>()?, want);
    Ok(())
}

/// Numbers are rounded once, as `to` rounds them.
#[test]
fn numbers_are_rounded_once() -> Outcome {
    let device = Device::open(0)?;
    let ties = [1.0 + 2f64.powi(-8), 1.0 + 2f64.powi(-11), 1.0625, 1.125, 65520.0, 2f64.powi(-25), 3.4e38];
    for dtype in [DType::BF16, DType::F16, DType::F8E4M3, DType::F8E5M2] {
        for number in ties.into_iter().flat_map(|tie| [tie, tie * (1.0 + 1e-12), tie * (1.0 - 1e-12), -tie]) {
            let want = Tensor::from_slice(&device, &[1], &[number])?.to(dtype)?.to(DType::F32)?;
            let got = Tensor::full(&device, &[8], number, dtype)?.to(DType::F32)?;
            assert_eq!(got.tolist::<f32>()?, [want.item::<f32>()?; 8], "{number:e} as {dtype}");
        }
    }
    Ok(())
}

/// Masks and counts of a state are finite too.
#[test]
fn integers_and_bools_are_finite() -> Outcome {
    let device = Device::open(0)?;
    for dtype in [DType::I64, DType::I32, DType::U8, DType::Bool] {
        let x = Tensor::full(&device, &[3], 1, dtype)?;
        assert_eq!(x.isfinite()?.tolist::<bool>()?, [true; 3], "{dtype}");
        assert_eq!(x.isinf()?.tolist::<bool>()?, [false; 3], "{dtype}");
        assert_eq!(x.isnan()?.tolist::<bool>()?, [false; 3], "{dtype}");
    }
    Ok(())
}

#[test]
fn numbers_of_every_type_that_fits() -> Outcome {
    let device = Device::open(0)?;
    let x = Tensor::from_slice(&device, &[2], &[1i32, 2])?;
    assert_eq!(x.add(1u8)?.add(2u16)?.add(-3i8)?.add(4i16)?.tolist::<i32>()?, [5, 6]);
    assert_eq!(x.eq(2u32)?.tolist::<bool>()?, [false, true]);
    assert_eq!(x.mul(x.size(0)? as i64)?.tolist::<i32>()?, [2, 4]);
    let half = x.mul(f16::from_f32(0.5))?.add(bf16::from_f32(1.0))?;
    assert_eq!((half.dtype(), half.tolist::<f32>()?), (DType::F32, vec![1.5, 2.0]));
    Ok(())
}

/// Errors of products name what does not fit.
#[test]
fn products_that_cannot_be_name_types_and_shapes() -> Outcome {
    let device = Device::open(0)?;
    let of = |sides: &[usize], dtype| Tensor::zeros(&device.current_stream()?, sides, dtype);
    let told = |a: &[usize], b: &[usize], dtype| -> Result<String> {
        Ok(of(a, dtype)?.matmul(&of(b, dtype)?).expect_err("they do not fit").to_string())
    };
    let text = told(&[4, 3], &[4, 3], DType::F32)?;
    assert!(text.contains("other has shape [4, 3]") && text.contains("self has shape [4, 3]"), "{text}");
    let text = told(&[2, 3], &[3, 2], DType::I32)?;
    assert!(text.contains("wanted f32, f16 or bf16") && text.contains("convert both"), "{text}");
    let mixed =
        of(&[2, 3], DType::F32)?.matmul(&of(&[3, 2], DType::F16)?).expect_err("two types").to_string();
    assert!(mixed.contains("convert one"), "{mixed}");
    Ok(())
}
