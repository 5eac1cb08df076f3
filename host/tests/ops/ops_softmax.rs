//! Softmax and its logarithm against the oracle: every type, rows of every length, other dimensions, hostile
//! values.

use half::{bf16, f16};
use ironwarp::ops::softmax::{log_softmax, softmax};
use ironwarp::tensor::Element;
use ironwarp::{DType, Device, Error, Stream, Tensor, TensorError};
use reference::reduction::softmax as oracle;
use std::error::Error as StdError;
use testkit::tolerance::{self, Row};
use testkit::{Family, compare, input};

type Outcome = Result<(), Box<dyn StdError>>;

fn stream() -> Result<Stream, Error> {
    Device::open(0)?.stream()
}

/// Rows and columns: a thread, a warp, a block a row; rows that stay in shared memory; rows that begin
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

fn agrees<T: Element + testkit::Element + Into<f64>>(rows: [Row; 2]) -> Outcome {
    let stream = stream()?;
    for (seed, [count, columns]) in SHAPES.into_iter().enumerate() {
        for family in [Family::Normal, Family::HugeTiny, Family::Special] {
            let values: Vec<T> = input(family, seed as u64, count * columns);
            let x = Tensor::from_slice(&stream, &[count, columns], &values)?;
            for (log, row) in [(false, rows[0]), (true, rows[1])] {
                let y = if log { log_softmax(&stream, &x, 1)? } else { softmax(&stream, &x, 1)? };
                assert_eq!((y.shape(), y.dtype(), y.is_contiguous()), (x.shape(), x.dtype(), true));
                let want: Vec<f64> =
                    values.chunks(columns.max(1)).flat_map(|values| oracle(values, log)).collect();
                let what = format!("{}{family:?} {count} x {columns}", if log { "log " } else { "" });
                let got: Vec<T> = y.to_vec(&stream)?;
                compare::elementwise(&what, &got, &want, x.shape(), row.for_terms(columns))?;
            }
        }
    }
    Ok(())
}

#[test]
fn f64_agrees() -> Outcome {
    agrees::<f64>([tolerance::SOFTMAX_F64, tolerance::LOG_SOFTMAX_F64])
}

#[test]
fn f32_agrees() -> Outcome {
    agrees::<f32>([tolerance::SOFTMAX_F32, tolerance::LOG_SOFTMAX_F32])
}

#[test]
fn f16_agrees() -> Outcome {
    agrees::<f16>([tolerance::SOFTMAX_F16, tolerance::LOG_SOFTMAX_F16])
}

#[test]
fn bf16_agrees() -> Outcome {
    agrees::<bf16>([tolerance::SOFTMAX_BF16, tolerance::LOG_SOFTMAX_BF16])
}

#[test]
fn every_dimension_and_layout() -> Outcome {
    let stream = stream()?;
    let (shape, values) = ([3, 5, 7], input::<f32>(Family::Normal, 1, 105));
    let x = Tensor::from_slice(&stream, &shape, &values)?;
    for (axis, inner) in [(0, 35), (1, 7), (2, 1)] {
        let mut want = vec![0.0; 105];
        let firsts = (0..105).filter(|place| place / inner % shape[axis] == 0);
        for first in firsts {
            let places: Vec<usize> = (0..shape[axis]).map(|i| first + i * inner).collect();
            let row: Vec<f32> = places.iter().map(|&place| values[place]).collect();
            places.iter().zip(oracle(&row, false)).for_each(|(&place, value)| want[place] = value);
        }
        let got: Vec<f32> = softmax(&stream, &x, axis)?.to_vec(&stream)?;
        let row = tolerance::SOFTMAX_F32.tolerance();
        compare::elementwise(&format!("axis {axis}"), &got, &want, &shape, row)?;
        // The same elements, lying otherwise: transposed, from the middle of memory, repeated.
        let turned = softmax(&stream, &x.permute(&[2, 0, 1])?, [1, 2, 0][axis])?;
        compare::bitwise_equal("turned", &turned.permute(&[1, 2, 0])?.to_vec::<f32>(&stream)?, &got)?;
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
    let x = Tensor::zeros(&stream, &[2, 3], DType::F32)?;
    let error = softmax(&stream, &x, 2).expect_err("there is no such axis");
    assert!(matches!(error.tensor_error(), Some(TensorError::Axis { axis: 2, rank: 2, .. })));
    for dtype in [DType::I32, DType::Bool, DType::F8E4M3] {
        let error = log_softmax(&stream, &Tensor::zeros(&stream, &[2, 3], dtype)?, 1).expect_err("no float");
        assert!(matches!(error.tensor_error(), Some(TensorError::DType { got, .. }) if *got == dtype));
    }
    Ok(())
}
