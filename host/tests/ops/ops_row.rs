//! Every function of rows against its oracle: each type, rows of every length, other dimensions, strides,
//! hostile values, repeats. A new function is tested by its row in `RowOp`.

use crate::common::{Outcome, stream, tests};
use half::{bf16, f16};
use ironwarp::ops::row::{Affine, RowOp, log_softmax, row, softmax};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use reference::row::Row;
use testkit::{Family, compare, input, tolerance};

/// Rows and columns: a thread, a warp, a block a row; long rows; rows that begin
/// anywhere in a vector; no rows, and rows of nothing.
const SHAPES: [[usize; 2]; 13] = [
    [0, 5],
    [3, 0],
    [1, 1],
    [300, 3],
    [7, 16],
    [9, 17],
    [5, 1000],
    [3, 1023],
    [3, 1025],
    [2, 4099],
    [3, 9001],
    [1, 20_011],
    [2, 50_257],
];

const EPS: f64 = 1e-5;

/// Inputs of a function. Squares of huge numbers overflow in f32, and not in the oracle.
fn families(op: RowOp) -> &'static [Family] {
    let all = &[Family::Normal, Family::Special, Family::Cancelling, Family::Subnormal, Family::HugeTiny];
    if op.is_norm() { &all[..4] } else { all }
}

/// Which of weight and bias there are: each choice once, hostile values with both.
fn given(op: RowOp, family: Family) -> &'static [(bool, bool)] {
    let all = &[(true, true), (true, false), (false, true), (false, false)];
    match op.is_norm() {
        false => &all[3..],
        true if family == Family::Normal => all,
        true => &all[..1],
    }
}

/// As f64, exactly.
fn exact<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
    values.iter().map(|&v| v.into()).collect()
}

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for (seed, [count, columns]) in SHAPES.into_iter().enumerate() {
        let shared = |seed| -> Result<(Tensor, Vec<f64>), Error> {
            let values: Vec<T> = input(Family::Normal, seed, columns);
            Ok((Tensor::from_slice(&stream, &[columns], &values)?, exact(&values)))
        };
        let ((weight, weights), (bias, biases)) = (shared(100)?, shared(101)?);
        for &op in RowOp::ALL {
            let tolerance =
                tolerance::find(&format!("{} {}", op.name(), <T as Element>::DTYPE)).for_terms(columns);
            let oracle = reference::row::find(op.name());
            for &family in families(op) {
                let values: Vec<T> = input(family, seed as u64, count * columns);
                let x = Tensor::from_slice(&stream, &[count, columns], &values)?;
                for &(has_weight, has_bias) in given(op, family) {
                    let eps = if op.is_norm() { EPS } else { 0.0 };
                    let affine = Affine {
                        weight: has_weight.then_some(&weight),
                        bias: has_bias.then_some(&bias),
                        eps,
                    };
                    let (weight, bias) =
                        (has_weight.then_some(&weights[..]), has_bias.then_some(&biases[..]));
                    let (mut want, mut scale) = (Vec::new(), Vec::new());
                    for x in exact(&values).chunks(columns.max(1)) {
                        let of_row = oracle(&Row { x, weight, bias, eps });
                        want.extend(of_row.value);
                        scale.extend(of_row.magnitude);
                    }
                    let y = row(&stream, op, &x, 1, affine)?;
                    assert_eq!((y.shape(), y.dtype(), y.is_contiguous()), (x.shape(), x.dtype(), true));
                    let what = format!("{op:?} {family:?} {count} x {columns} {has_weight} {has_bias}");
                    let got: Vec<T> = y.to_vec(&stream)?;
                    compare::accumulated(&what, &got, &want, &scale, x.shape(), tolerance)?;
                    if family == Family::Normal {
                        let again: Vec<T> = row(&stream, op, &x, 1, affine)?.to_vec(&stream)?;
                        compare::bitwise_equal(&what, &got, &again)?;
                    }
                }
            }
        }
    }
    Ok(())
}

tests!(agrees: f64_agrees = f64, f32_agrees = f32, f16_agrees = f16, bf16_agrees = bf16);

#[test]
fn every_dimension_and_layout() -> Outcome {
    let stream = stream()?;
    let (shape, values) = ([3, 5, 7], input::<f32>(Family::Normal, 1, 105));
    let x = Tensor::from_slice(&stream, &shape, &values)?;
    // Every other element of a longer one, from the second.
    let weights = input::<f32>(Family::Normal, 2, 15);
    let strided = Tensor::from_slice(&stream, &[15], &weights)?.slice_by(0, 1.., 2)?;
    for (axis, inner) in [(0, 35), (1, 7), (2, 1)] {
        let weight = strided.slice(0, ..shape[axis])?;
        let weights: Vec<f64> = weights[1..].iter().step_by(2).take(shape[axis]).map(|&v| v.into()).collect();
        for &op in RowOp::ALL {
            let norm = Affine { weight: Some(&weight), bias: Some(&weight), eps: EPS };
            let affine = if op.is_norm() { norm } else { Affine::default() };
            let shared = op.is_norm().then_some(&weights[..]);
            let (mut want, mut scale) = (vec![0.0; 105], vec![0.0; 105]);
            let firsts = (0..105).filter(|place| place / inner % shape[axis] == 0);
            for first in firsts {
                let places: Vec<usize> = (0..shape[axis]).map(|i| first + i * inner).collect();
                let x: Vec<f64> = places.iter().map(|&place| values[place].into()).collect();
                let of_row = reference::row::find(op.name())(&Row {
                    x: &x,
                    weight: shared,
                    bias: shared,
                    eps: affine.eps,
                });
                for (i, place) in places.into_iter().enumerate() {
                    (want[place], scale[place]) = (of_row.value[i], of_row.magnitude[i]);
                }
            }
            let got: Vec<f32> = row(&stream, op, &x, axis, affine)?.to_vec(&stream)?;
            let tolerance = tolerance::find(&format!("{} f32", op.name())).for_terms(shape[axis]);
            compare::accumulated(&format!("{op:?} {axis}"), &got, &want, &scale, &shape, tolerance)?;
            // The same elements, lying otherwise: other threads may take them.
            let turned = row(&stream, op, &x.permute(&[2, 0, 1])?, [1, 2, 0][axis], affine)?;
            let turned: Vec<f32> = turned.permute(&[1, 2, 0])?.to_vec(&stream)?;
            compare::accumulated("turned", &turned, &want, &scale, &shape, tolerance)?;
        }
    }
    let tail = softmax(&stream, &x.slice(2, 1..)?, 2)?;
    assert!(tail.to_vec::<f32>(&stream)?.chunks(6).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6));
    let same = softmax(&stream, &x.select(0, 0)?.select(0, 0)?.select(0, 0)?.broadcast_to(&[2, 4])?, 1)?;
    assert_eq!(same.to_vec::<f32>(&stream)?, [0.25; 8]);
    Ok(())
}

#[test]
fn infinities_and_nan() -> Outcome {
    let stream = stream()?;
    let (low, high) = (f32::NEG_INFINITY, f32::INFINITY);
    for columns in [3, 40, 2000, 9000] {
        let with = |places: &[(usize, f32)], fill: f32| -> Result<Vec<f32>, Error> {
            let mut row = vec![fill; columns];
            places.iter().for_each(|&(place, value)| row[place] = value);
            softmax(&stream, &Tensor::from_slice(&stream, &[1, columns], &row)?, 1)?.to_vec(&stream)
        };
        assert!(with(&[], low)?.iter().all(|v| v.is_nan()), "minus infinities alone");
        assert!(with(&[(1, f32::NAN)], 0.0)?.iter().all(|v| v.is_nan()), "a NaN");
        assert!(with(&[(2, high)], 0.0)?.iter().all(|v| v.is_nan()), "infinity");
        // Masked places have no share, and a huge logit does not overflow.
        let masked = with(&[(0, 1e30), (2, 1e30)], low)?;
        assert_eq!(masked[..3], [0.5, 0.0, 0.5]);
        assert!(masked[3..].iter().all(|&v| v == 0.0));
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let x = zeros(&[2, 3], DType::F32)?;
    let is = |error: Error, kind: fn(&TensorError) -> bool| assert!(error.tensor_error().is_some_and(kind));
    for &op in RowOp::ALL {
        let of = |x: &Tensor, axis, affine| row(&stream, op, x, axis, affine).expect_err("a wrong call");
        let none = Affine::default();
        is(of(&x, 2, none), |e| matches!(e, TensorError::Axis { axis: 2, rank: 2, .. }));
        for dtype in [DType::I32, DType::Bool, DType::F8E4M3] {
            is(of(&zeros(&[2, 3], dtype)?, 1, none), |e| matches!(e, TensorError::DType { what: "x", .. }));
        }
        for eps in [-1.0, f64::NAN] {
            let error = of(&x, 1, Affine { eps, ..none });
            assert!(matches!(error, Error::InvalidArgument { argument: "eps", .. }), "{error}");
        }
        let (fits, short) = (zeros(&[3], DType::F32)?, zeros(&[2], DType::F32)?);
        let (other, flat) = (zeros(&[3], DType::F16)?, zeros(&[1, 3], DType::F32)?);
        if op.is_norm() {
            for wrong in [&short, &flat] {
                let error = of(&x, 1, Affine { weight: Some(wrong), ..none });
                is(error, |e| matches!(e, TensorError::Shape { what: "weight", .. }));
            }
            let error = of(&x, 1, Affine { bias: Some(&other), ..none });
            is(error, |e| matches!(e, TensorError::DType { what: "bias", got: DType::F16, .. }));
        } else {
            let error = of(&x, 1, Affine { weight: Some(&fits), ..none });
            assert!(matches!(error, Error::InvalidArgument { argument: "weight", .. }), "{error}");
        }
    }
    assert!(log_softmax(&stream, &x, 7).is_err());
    Ok(())
}
