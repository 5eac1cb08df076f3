//! Reductions along axes against their oracles: every operation and type, rows and columns of every length,
//! layouts, wrong calls. On whichever driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::reduce::{ReduceOp, argmax, argmin, mean, reduce, sum};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use reference::reduction as oracle;
use testkit::tolerance::{self, Row};
use testkit::{Family, Random, Tolerance, compare, input};

/// Shapes and the axes that go: a thread, a warp and a block a row, several chunks; columns with and without
/// vectors, several chunks; axes that need a copy; nothing.
const CASES: [(&[usize], &[usize]); 26] = [
    (&[], &[]),
    (&[1], &[0]),
    (&[5], &[]),
    (&[0], &[0]),
    (&[3, 0], &[1]),
    (&[0, 3], &[1]),
    (&[0, 3], &[0]),
    (&[300, 3], &[1]),
    (&[9, 16], &[1]),
    (&[9, 17], &[1]),
    (&[7, 33], &[1]),
    (&[5, 1000], &[1]),
    (&[3, 4099], &[1]),
    (&[2, 9000], &[1]),
    (&[1, 20_001], &[1]),
    (&[17_000], &[]),
    (&[2, 3, 4], &[]),
    (&[33, 64], &[0]),
    (&[17, 7], &[0]),
    (&[1100, 8], &[0]),
    (&[5000, 3], &[0]),
    (&[3, 40, 16], &[1]),
    (&[3, 5, 7, 2], &[1, 2]),
    (&[3, 5, 7, 2], &[0, 2]),
    (&[4, 6, 5], &[0, 2]),
    (&[2, 1, 8, 1], &[1, 3]),
];

/// The reductions that a type allows.
struct Rows {
    sum: Row,
    product: Row,
    norm: Row,
}

fn every_reduction<T: Element + testkit::Element + Into<f64>>(
    rows: &Rows,
    family: Family,
    seed: u64,
) -> Outcome {
    let stream = stream()?;
    for (shape, axes) in CASES {
        let n = shape.iter().product();
        let x: Vec<T> = input(family, seed, n);
        let device = Tensor::from_slice(&stream, shape, &x)?;
        let groups = oracle::groups(&x, shape, axes);
        let terms = groups.first().map_or(0, Vec::len);
        let what = |op| format!("{op:?} of {} {shape:?} along {axes:?}, {family:?}", T::DTYPE);
        let got = |op| -> Result<Vec<T>, Error> { reduce(&stream, op, &device, axes)?.to_vec::<T>(&stream) };
        let sizes = [groups.len()];

        let sums = oracle::sums(&groups);
        let limit = rows.sum.for_terms(terms);
        compare::accumulated(
            &what(ReduceOp::Sum),
            &got(ReduceOp::Sum)?,
            &sums.value,
            &sums.magnitude,
            &sizes,
            limit,
        )?;
        let norms = oracle::norms(&groups);
        if family != Family::HugeTiny && family != Family::Subnormal {
            compare::elementwise(
                &what(ReduceOp::Norm),
                &got(ReduceOp::Norm)?,
                &norms,
                &sizes,
                rows.norm.for_terms(terms),
            )?;
        }
        if terms <= 40 && family != Family::Subnormal && family != Family::HugeTiny {
            let products = oracle::products(&groups);
            compare::elementwise(
                &what(ReduceOp::Prod),
                &got(ReduceOp::Prod)?,
                &products,
                &sizes,
                rows.product.for_terms(terms),
            )?;
        }
        if terms == 0 {
            continue;
        }
        let divide = |v: &Vec<f64>| v.iter().map(|v| v / terms as f64).collect::<Vec<f64>>();
        let (value, magnitude) = (divide(&sums.value), divide(&sums.magnitude));
        compare::accumulated(
            &what(ReduceOp::Mean),
            &got(ReduceOp::Mean)?,
            &value,
            &magnitude,
            &sizes,
            limit,
        )?;
        compare::elementwise(
            &what(ReduceOp::Amax),
            &got(ReduceOp::Amax)?,
            &oracle::maxima(&groups),
            &sizes,
            Tolerance::EXACT,
        )?;
        compare::elementwise(
            &what(ReduceOp::Amin),
            &got(ReduceOp::Amin)?,
            &oracle::minima(&groups),
            &sizes,
            Tolerance::EXACT,
        )?;
    }
    Ok(())
}

fn every_place<T: Element + testkit::Element + Into<f64>>(family: Family, seed: u64) -> Outcome {
    let stream = stream()?;
    for (shape, axes) in CASES.into_iter().filter(|(_, axes)| axes.len() == 1) {
        if shape[axes[0]] == 0 {
            continue;
        }
        let x: Vec<T> = input(family, seed, shape.iter().product());
        let device = Tensor::from_slice(&stream, shape, &x)?;
        let groups = oracle::groups(&x, shape, axes);
        let negative: Vec<Vec<f64>> =
            groups.iter().map(|group| group.iter().map(|&v| -v.into()).collect()).collect();
        let what = format!("of {} {shape:?} along {axes:?}, {family:?}", T::DTYPE);
        assert_eq!(
            argmax(&stream, &device, axes[0])?.to_vec::<i64>(&stream)?,
            oracle::places_of_maxima(&groups),
            "argmax {what}"
        );
        assert_eq!(
            argmin(&stream, &device, axes[0])?.to_vec::<i64>(&stream)?,
            oracle::places_of_maxima(&negative),
            "argmin {what}"
        );
    }
    Ok(())
}

const F32: Rows =
    Rows { sum: tolerance::REDUCE_SUM, product: tolerance::REDUCE_PROD, norm: tolerance::REDUCE_NORM };
const F64: Rows = Rows {
    sum: tolerance::REDUCE_SUM_F64,
    product: tolerance::REDUCE_PROD_F64,
    norm: tolerance::REDUCE_SUM_F64,
};
const F16: Rows = Rows {
    sum: tolerance::REDUCE_SUM_F16,
    product: tolerance::REDUCE_PROD_F16,
    norm: tolerance::REDUCE_SUM_F16,
};
const BF16: Rows = Rows {
    sum: tolerance::REDUCE_SUM_BF16,
    product: tolerance::REDUCE_PROD_BF16,
    norm: tolerance::REDUCE_SUM_BF16,
};

#[test]
fn f32_of_every_kind() -> Outcome {
    Family::ALL.into_iter().try_for_each(|family| every_reduction::<f32>(&F32, family, 1))
}

#[test]
fn other_floats() -> Outcome {
    for family in [Family::Cancelling, Family::Special] {
        every_reduction::<f64>(&F64, family, 2)?;
        every_reduction::<bf16>(&BF16, family, 4)?;
    }
    // Sums of small magnitudes stay within f16.
    [Family::Uniform, Family::SmallIntegers]
        .into_iter()
        .try_for_each(|family| every_reduction::<f16>(&F16, family, 3))
}

#[test]
fn places_of_extremes() -> Outcome {
    for family in [Family::SmallIntegers, Family::Special] {
        every_place::<f32>(family, 5)?;
        every_place::<f64>(family, 6)?;
        every_place::<bf16>(family, 7)?;
        every_place::<f16>(family, 8)?;
    }
    let stream = stream()?;
    let low = Tensor::from_slice(&stream, &[2, 3], &[f32::NEG_INFINITY; 6])?;
    assert_eq!(argmax(&stream, &low, 1)?.to_vec::<i64>(&stream)?, [0, 0]);
    let ends = Tensor::from_slice(&stream, &[4], &[3i64, i64::MIN, i64::MAX, i64::MAX])?;
    assert_eq!(
        (
            argmax(&stream, &ends, 0)?.item_on::<i64>(&stream)?,
            argmin(&stream, &ends, 0)?.item_on::<i64>(&stream)?
        ),
        (2, 1)
    );
    let flags = Tensor::from_slice(&stream, &[2, 2], &[false, true, true, true])?;
    assert_eq!(argmax(&stream, &flags, 1)?.to_vec::<i64>(&stream)?, [1, 0]);
    Ok(())
}

fn integers<T: Element + Into<i64> + TryFrom<i64> + PartialEq>(low: i64, high: i64) -> Outcome {
    let stream = stream()?;
    let mut random = Random::new(4);
    for (shape, axes) in CASES {
        let n = shape.iter().product();
        let values: Vec<i64> = (0..n)
            .map(|_| random.bits() as i64 >> random.integer(0, 60))
            .map(|v| v.clamp(low, high))
            .collect();
        let x: Vec<T> = values.iter().map(|&v| T::try_from(v).ok().unwrap()).collect();
        let device = Tensor::from_slice(&stream, shape, &x)?;
        let groups = oracle::groups(&values, shape, axes);
        let of = |f: fn(i64, i64) -> i64, start: i64| {
            groups.iter().map(|group| group.iter().copied().fold(start, f)).collect::<Vec<i64>>()
        };
        let what = format!("of {} {shape:?} along {axes:?}", T::DTYPE);
        assert_eq!(
            sum(&stream, &device, axes)?.to_vec::<i64>(&stream)?,
            of(i64::wrapping_add, 0),
            "sum {what}"
        );
        let got = reduce(&stream, ReduceOp::Prod, &device, axes)?.to_vec::<i64>(&stream)?;
        assert_eq!(got, of(i64::wrapping_mul, 1), "product {what}");
        if groups.iter().any(Vec::is_empty) {
            continue;
        }
        for (op, f, start) in [
            (ReduceOp::Amax, i64::max as fn(i64, i64) -> i64, i64::MIN),
            (ReduceOp::Amin, i64::min, i64::MAX),
        ] {
            let got: Vec<i64> =
                reduce(&stream, op, &device, axes)?.to_vec::<T>(&stream)?.into_iter().map(T::into).collect();
            assert_eq!(got, of(f, start), "{op:?} {what}");
        }
    }
    Ok(())
}

#[test]
fn integers_wrap_around_in_64_bits() -> Outcome {
    integers::<i64>(i64::MIN, i64::MAX)?;
    integers::<i32>(i32::MIN.into(), i32::MAX.into())?;
    integers::<u8>(0, 255)?;
    let stream = stream()?;
    let flags = Tensor::from_slice(&stream, &[2, 3], &[true, false, true, false, false, false])?;
    assert_eq!(sum(&stream, &flags, &[1])?.to_vec::<i64>(&stream)?, [2, 0]);
    assert_eq!(reduce(&stream, ReduceOp::Amax, &flags, &[1])?.to_vec::<bool>(&stream)?, [true, false]);
    assert_eq!(reduce(&stream, ReduceOp::Amin, &flags, &[0])?.to_vec::<bool>(&stream)?, [false; 3]);
    Ok(())
}

#[test]
fn any_layout_and_alignment() -> Outcome {
    let stream = stream()?;
    let data: Vec<f32> = input(Family::SmallIntegers, 1, 5 * 9 * 40);
    let x = Tensor::from_slice(&stream, &[5, 9, 40], &data)?;
    for view in [
        x.permute(&[2, 0, 1])?,
        x.slice_by(2, 1.., 3)?,
        x.slice(1, 2..7)?,
        x.slice(2, 3..30)?,
        x.slice(0, 1..)?,
        x.select(1, 4)?,
    ] {
        let (host, shape) = (view.to_vec::<f32>(&stream)?, view.shape().clone());
        for axes in [&[][..], &[0], &[1], &[0, 1]] {
            let want = oracle::sums(&oracle::groups(&host, &shape, axes)).value;
            let got: Vec<f64> =
                sum(&stream, &view, axes)?.to_vec::<f32>(&stream)?.into_iter().map(f64::from).collect();
            assert_eq!(got, want, "{view:?} along {axes:?}");
        }
    }
    // A long row from every place within 16 bytes.
    let long: Vec<bf16> = input(Family::SmallIntegers, 2, 20_000);
    let device = Tensor::from_slice(&stream, &[20_000], &long)?;
    for start in 0..9 {
        let want: f64 = long[start..].iter().map(|&v| f64::from(v)).sum();
        let got = mean(&stream, &device.slice(0, start..)?, &[])?.item_on::<bf16>(&stream)?;
        let nearest = reference::elementwise::SmallFloat::BF16
            .nearest(f64::from((want / (20_000 - start) as f64) as f32));
        assert_eq!(f64::from(got), nearest, "from {start} on");
    }
    Ok(())
}

#[test]
fn repeats_bit_for_bit() -> Outcome {
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, &[3, 9001], &input::<f32>(Family::HugeTiny, 5, 27_003))?;
    for axes in [&[][..], &[0], &[1]] {
        let first = sum(&stream, &x, axes)?.to_vec::<f32>(&stream)?;
        for _ in 0..3 {
            compare::bitwise_equal("sum again", &sum(&stream, &x, axes)?.to_vec::<f32>(&stream)?, &first)?;
        }
    }
    Ok(())
}

#[test]
fn signs_of_zero() -> Outcome {
    let stream = stream()?;
    let zeros = Tensor::from_slice(&stream, &[3], &[-0.0f64, 0.0, -0.0])?;
    let of = |op| reduce(&stream, op, &zeros, &[])?.item_on::<f64>(&stream);
    compare::bitwise_equal("zeros", &[of(ReduceOp::Amax)?, of(ReduceOp::Amin)?], &[0.0, -0.0])?;
    let zeros = Tensor::from_slice(&stream, &[3], &[-0.0f32, 0.0, -0.0])?;
    let of = |op| reduce(&stream, op, &zeros, &[])?.item_on::<f32>(&stream);
    compare::bitwise_equal("zeros", &[of(ReduceOp::Amax)?, of(ReduceOp::Amin)?], &[0.0, -0.0])?;
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let wrong = |result: Result<Tensor, Error>, is_it: fn(&TensorError) -> bool| {
        let error = result.unwrap_err();
        assert!(error.tensor_error().is_some_and(is_it), "{error:?}");
        assert!(error.to_string().contains("\nhint: ") && error.is_recoverable(), "{error}");
    };
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let x = zeros(&[2, 3], DType::F32)?;
    wrong(sum(&stream, &x, &[2]), |e| matches!(e, TensorError::Axes { rank: 2, .. }));
    wrong(sum(&stream, &x, &[1, 1]), |e| matches!(e, TensorError::Axes { .. }));
    wrong(argmax(&stream, &x, 2), |e| matches!(e, TensorError::Axes { .. }));
    wrong(mean(&stream, &zeros(&[2], DType::I32)?, &[]), |e| matches!(e, TensorError::DType { .. }));
    wrong(reduce(&stream, ReduceOp::Norm, &zeros(&[2], DType::Bool)?, &[]), |e| {
        matches!(e, TensorError::DType { .. })
    });
    wrong(sum(&stream, &zeros(&[2], DType::F8E4M3)?, &[]), |e| matches!(e, TensorError::DType { .. }));
    wrong(argmin(&stream, &zeros(&[2], DType::F8E5M2)?, 0), |e| matches!(e, TensorError::DType { .. }));
    let empty = zeros(&[2, 0], DType::F32)?;
    for op in [ReduceOp::Amax, ReduceOp::Amin, ReduceOp::Mean] {
        wrong(reduce(&stream, op, &empty, &[1]), |e| matches!(e, TensorError::Empty { .. }));
    }
    wrong(argmax(&stream, &empty, 1), |e| matches!(e, TensorError::Empty { .. }));
    assert_eq!(reduce(&stream, ReduceOp::Prod, &empty, &[1])?.to_vec::<f32>(&stream)?, [1.0, 1.0]);
    assert!(reduce(&stream, ReduceOp::Amax, &empty, &[0])?.is_empty());
    Ok(())
}
