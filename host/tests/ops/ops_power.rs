//! Powers against their oracles: every type, the corners of C's function, any layout, wrong calls.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::elementwise::{power, power_into};
use ironwarp::tensor::Element;
use ironwarp::{DType, Stream, Tensor, TensorError};
use reference::elementwise as oracle;
use testkit::tolerance::{self, Row};
use testkit::{Family, Random, compare, input};

/// Bases and exponents: all pairs of corners, then numbers of every magnitude.
fn pairs<T: testkit::Element>() -> (Vec<T>, Vec<T>) {
    let corners =
        [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0, 64.0, 127.0, 1e-3, f64::INFINITY, f64::NAN].map(|v| [v, -v]);
    let corners = corners.as_flattened();
    let mut pairs: Vec<[T; 2]> = Vec::new();
    pairs.extend(corners.iter().flat_map(|&a| corners.iter().map(move |&b| [a, b].map(T::from_f64))));
    let mut random = Random::new(3);
    for family in Family::ALL {
        let bases = input::<T>(family, 4, 100);
        pairs.extend(bases.into_iter().map(|base| [base, T::from_f64(random.uniform(-6.0, 6.0))]));
    }
    pairs.extend((0..500).map(|_| [random.uniform(0.0, 4.0), random.uniform(-40.0, 40.0)].map(T::from_f64)));
    pairs.into_iter().map(|[a, b]| (a, b)).unzip()
}

fn floats<T: Element + testkit::Element>(row: Row) -> Outcome {
    let stream = stream()?;
    let (a, b) = pairs::<T>();
    let want: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a.to_f64().powf(b.to_f64())).collect();
    let shape = [a.len()];
    let [x, y] = [Tensor::from_slice(&stream, &shape, &a)?, Tensor::from_slice(&stream, &shape, &b)?];
    let got = power(&stream, &x, &y)?.to_vec::<T>(&stream)?;
    compare::elementwise(&format!("power of {}", T::DTYPE), &got, &want, &shape, row.tolerance())?;
    let again = power(&stream, &x, &y)?.to_vec::<T>(&stream)?;
    compare::bitwise_equal("power again", &again, &got)?;

    // The same bits where no vector access reaches the elements, and into a part of a tensor.
    let moved: Vec<T> = a[..1].iter().chain(&a).copied().collect();
    let moved = Tensor::from_slice(&stream, &[moved.len()], &moved)?.slice(0, 1..)?;
    let mut wide = Tensor::zeros(&stream, &[a.len(), 2], T::DTYPE)?;
    power_into(&stream, &moved, &y, wide.view_mut()?.select(1, 1)?)?;
    compare::bitwise_equal("power elsewhere", &wide.select(1, 1)?.to_vec::<T>(&stream)?, &got)?;
    assert!(wide.select(1, 0)?.to_vec::<T>(&stream)?.iter().all(|v| v.to_f64() == 0.0));
    Ok(())
}

#[test]
fn powers_of_f64() -> Outcome {
    floats::<f64>(tolerance::INTRINSIC_F64)
}

#[test]
fn powers_of_f32() -> Outcome {
    floats::<f32>(tolerance::FUNCTION_F32)
}

#[test]
fn powers_of_f16() -> Outcome {
    floats::<f16>(tolerance::FUNCTION_F16)
}

#[test]
fn powers_of_bf16() -> Outcome {
    floats::<bf16>(tolerance::FUNCTION_BF16)
}

/// The power of a whole number, wrapped to `bits` bits, a factor at a time.
fn whole(base: i128, exponent: i128, bits: u32) -> i128 {
    match (base, exponent) {
        (1, _) => 1,
        (-1, exponent) => {
            if exponent % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, ..0) => 0,
        (base, exponent) => (0..exponent).fold(1, |power, _| oracle::wrap(power * base, bits)),
    }
}

fn integers<T: Element + PartialEq + TryFrom<i128>>(stream: &Stream, bits: u32, low: i128) -> Outcome {
    let high = -(low + 1);
    let bases = [low, high, low + 1, -10, -3, -2, -1, 0, 1, 2, 3, 7, 10, 12_345];
    let exponents = [low, -2, -1, 0, 1, 2, 3, 5, 9, 10, 31, 32, 63, 64, 65, 1000];
    let of = |v: i128| T::try_from(v).unwrap_or_else(|_| panic!("{v} is no {}", T::DTYPE));
    let [x, y] = [&bases[..], &exponents].map(|v| v.iter().map(|&v| of(v)).collect::<Vec<T>>());
    let x = Tensor::from_slice(stream, &[bases.len(), 1], &x)?;
    let y = Tensor::from_slice(stream, &[exponents.len()], &y)?;
    let want: Vec<T> =
        bases.iter().flat_map(|&a| exponents.iter().map(move |&b| of(whole(a, b, bits)))).collect();
    assert!(power(stream, &x, &y)?.to_vec::<T>(stream)? == want, "power of {}", T::DTYPE);
    // The longest exponent there is.
    let far = power(stream, &x, &Tensor::from_slice(stream, &[1], &[of(high)])?)?;
    let odd = bases.iter().zip(far.to_vec::<T>(stream)?).filter(|(base, _)| matches!(base, -1..=1));
    odd.for_each(|(&base, got)| assert!(got == of(base), "{base}"));
    Ok(())
}

#[test]
fn powers_of_integers_wrap() -> Outcome {
    let stream = stream()?;
    integers::<i64>(&stream, 64, i64::MIN.into())?;
    integers::<i32>(&stream, 32, i32::MIN.into())
}

#[test]
fn the_method_promotes_and_squares() -> Outcome {
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, &[2, 2], &[1.0f32, -2.0, 0.5, 3.0])?;
    let exponents = Tensor::from_slice(&stream, &[2], &[2i64, 3])?;
    stream.scope(|_| {
        assert_eq!(x.pow(2)?.tolist::<f32>()?, [1.0, 4.0, 0.25, 9.0]);
        assert_eq!(x.pow(2.0)?.tolist::<f32>()?, x.square()?.tolist::<f32>()?);
        assert_eq!(x.pow(-1)?.tolist::<f32>()?, [1.0, -0.5, 2.0, 1.0 / 3.0]);
        assert_eq!(x.pow(&exponents)?.tolist::<f32>()?, [1.0, -8.0, 0.25, 27.0]);
        let half = exponents.pow(0.5)?;
        assert_eq!((half.dtype(), half.tolist::<f32>()?), (DType::F32, vec![2f32.sqrt(), 3f32.sqrt()]));
        assert_eq!(exponents.pow(3)?.tolist::<i64>()?, [8, 27]);
        let truth = x.gt(0)?.pow(3)?;
        assert_eq!((truth.dtype(), truth.tolist::<i64>()?), (DType::I64, vec![1, 0, 1, 1]));
        x.to(DType::U8)?.pow(3).expect_err("a type without powers");
        assert_eq!(exponents.pow(&exponents)?.tolist::<i64>()?, [4, 27]);
        Ok::<_, ironwarp::Error>(())
    })?;
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    let stream = stream()?;
    let [f, i] = [DType::F32, DType::I32].map(|dtype| Tensor::zeros(&stream, &[3], dtype));
    let (f, i) = (f?, i?);
    let error = power(&stream, &f, &i).expect_err("two types");
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { operation: "power", .. })), "{error}");
    let error = power(&stream, &f, &Tensor::zeros(&stream, &[2], DType::F32)?).expect_err("two lengths");
    assert!(matches!(error.tensor_error(), Some(TensorError::Broadcast { .. })), "{error}");
    for dtype in [DType::U8, DType::Bool, DType::F8E4M3] {
        let x = Tensor::zeros(&stream, &[3], dtype)?;
        let error = power(&stream, &x, &x).expect_err("a type without powers");
        assert!(matches!(error.tensor_error(), Some(TensorError::DType { .. })), "{error}");
    }
    let empty = Tensor::zeros(&stream, &[0, 3], DType::F32)?;
    assert!(power(&stream, &empty, &f)?.is_empty());
    Ok(())
}
