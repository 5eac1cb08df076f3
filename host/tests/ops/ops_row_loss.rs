//! Cross-entropy and its gradient against the oracle.

use crate::common::{Outcome, stream, tests};
use half::{bf16, f16};
use ironwarp::ops::row::{CosineEmbedding, CrossEntropy, Reduction};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use reference::row::CrossEntropy as Oracle;
use testkit::{Family, compare, input, tolerance};

/// Rows of some lanes, a warp, a block, a cluster; rows that begin anywhere in a vector.
const SHAPES: [[usize; 2]; 10] = [
    [0, 5],
    [3, 1],
    [200, 2],
    [9, 31],
    [50, 256],
    [4, 1000],
    [5, 4096],
    [3, 9001],
    [2, 50_257],
    [3, 120_000],
];
/// A row is ignored, now and then.
const IGNORED: i64 = -100;

fn targets(seed: usize, [rows, columns]: [usize; 2]) -> Vec<i64> {
    let class = |row: usize| ((row * 7919 + seed * 31) % columns) as i64;
    (0..rows).map(|row| if row % 3 == 1 { IGNORED } else { class(row) }).collect()
}

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let plain = CrossEntropy::default();
    let cases = [
        (plain, 1.0),
        (CrossEntropy { smoothing: 0.1, z_loss: 1e-3, ..plain }, 0.5),
        (CrossEntropy { z_loss: 1e-2, reduction: Reduction::Sum, ..plain }, 2.0),
    ];
    for (seed, sides @ [rows, columns]) in SHAPES.into_iter().enumerate() {
        let values: Vec<T> = input(Family::Normal, seed as u64, rows * columns);
        let (x, classes) = (values.iter().map(|&v| v.into()).collect::<Vec<f64>>(), targets(seed, sides));
        let wide = Tensor::from_slice(&stream, &[rows], &classes)?;
        let narrow: Vec<i32> = classes.iter().map(|&class| class as i32).collect();
        let narrow = Tensor::from_slice(&stream, &[rows], &narrow)?;
        // Long rows only once.
        let tried =
            if columns > 10_000 { 1 + seed % 2 } else { 0 }..if columns > 10_000 { 2 + seed % 2 } else { 3 };
        for (number, (loss, upstream)) in cases.into_iter().enumerate().filter(|(i, _)| tried.contains(i)) {
            let of_loss = Oracle { smoothing: loss.smoothing, z_loss: loss.z_loss };
            let counted = classes.iter().filter(|&&class| class != IGNORED).count() as f64;
            let share = if loss.reduction == Reduction::Mean { 1.0 / counted } else { 1.0 };
            let (mut want, mut scale) = (Vec::new(), Vec::new());
            let (mut losses, mut sizes, mut lses) = (Vec::new(), Vec::new(), Vec::new());
            for (row, &class) in x.chunks(columns).zip(&classes) {
                let [lse, of_row, size] = of_loss.loss(row, class.max(0) as usize);
                let is_ignored = class == IGNORED;
                losses.push(if is_ignored { 0.0 } else { of_row });
                sizes.push(size);
                lses.push(lse);
                let gradient = of_loss.gradient(row, class.max(0) as usize);
                let factor = if is_ignored { 0.0 } else { share * upstream };
                want.extend(gradient.value.iter().map(|v| v * factor));
                scale.extend(gradient.magnitude.iter().map(|v| v * factor));
            }
            let what = format!("{} {sides:?} {number}", <T as Element>::DTYPE);
            let mut logits = Tensor::from_slice(&stream, &sides, &values)?;
            let classes = if number == 1 { &narrow } else { &wide };
            let by = Tensor::from_slice(&stream, &[], &[upstream as f32])?;
            let only = loss.loss(&stream, &logits, classes)?;
            let got = loss.loss_and_gradient(&stream, logits.view_mut()?, classes, Some(&by))?;
            let limit =
                tolerance::find(&format!("cross_entropy {}", <T as Element>::DTYPE)).for_terms(columns);
            let of_rows: Vec<f32> = got.of_rows.to_vec(&stream)?;
            compare::accumulated(&what, &of_rows, &losses, &sizes, &[rows], limit)?;
            compare::accumulated(
                &what,
                &got.log_sum_exps.to_vec::<f32>(&stream)?,
                &lses,
                &sizes,
                &[rows],
                limit,
            )?;
            compare::bitwise_equal(&what, &only.of_rows.to_vec::<f32>(&stream)?, &of_rows)?;
            let (total, size) = (losses.iter().sum::<f64>() * share, sizes.iter().sum::<f64>() * share);
            let value: Vec<f32> = got.value.to_vec(&stream)?;
            compare::bitwise_equal(&what, &only.value.to_vec::<f32>(&stream)?, &value)?;
            if rows > 0 || loss.reduction == Reduction::Sum {
                compare::accumulated(&what, &value, &[total], &[size], &[], limit)?;
            } else {
                assert!(value[0].is_nan(), "the mean of none");
            }
            let limit = tolerance::find(&format!("cross_entropy_gradient {}", <T as Element>::DTYPE))
                .for_terms(columns);
            let gradient: Vec<T> = logits.to_vec(&stream)?;
            compare::accumulated(&what, &gradient, &want, &scale, &sides, limit)?;
            let mut again = Tensor::from_slice(&stream, &sides, &values)?;
            loss.loss_and_gradient(&stream, again.view_mut()?, classes, Some(&by))?;
            compare::bitwise_equal(&what, &gradient, &again.to_vec::<T>(&stream)?)?;
        }
    }
    Ok(())
}

tests!(agrees: of_f32 = f32, of_f16 = f16, of_bf16 = bf16);

/// Targets of any strides: those of a language model are the tokens, one place on.
#[test]
fn targets_need_not_be_contiguous() -> Outcome {
    let stream = stream()?;
    let (batch, length, classes) = (3, 4, 11);
    let logits: Vec<f32> = input(Family::Normal, 3, batch * length * classes);
    let logits = Tensor::from_slice(&stream, &[batch, length, classes], &logits)?;
    let tokens: Vec<i64> = (0..batch * (length + 1)).map(|i| (i * 7 % classes) as i64).collect();
    let tokens = Tensor::from_slice(&stream, &[batch, length + 1], &tokens)?;
    let next = tokens.slice(1, 1..)?;
    let turned = Tensor::from_slice(&stream, &[length, batch], &next.t()?.to_vec::<i64>(&stream)?)?.t()?;
    let dense = Tensor::from_slice(&stream, &[batch, length], &next.to_vec::<i64>(&stream)?)?;
    let loss = |targets: &Tensor| -> Outcome<Vec<f32>> {
        Ok(CrossEntropy::default().loss(&stream, &logits, targets)?.of_rows.to_vec(&stream)?)
    };
    let want = loss(&dense)?;
    compare::bitwise_equal("one place on", &loss(&next)?, &want)?;
    compare::bitwise_equal("turned", &loss(&turned)?, &want)?;
    let x = logits.view_as(&[batch * length, classes])?;
    let labels: Vec<i32> = (0..2 * batch * length).map(|i| if i % 4 < 2 { 1 } else { -1 }).collect();
    let labels = Tensor::from_slice(&stream, &[2 * batch * length], &labels)?;
    let labels = labels.slice_by(0, .., 2)?;
    let cosine = CosineEmbedding::default().loss(&stream, &x, &x, &labels)?.of_rows;
    let of_row = |(row, loss): (usize, &f32)| (loss - if row % 2 == 0 { 0.0 } else { 1.0 }).abs() < 1e-5;
    assert!(cosine.to_vec::<f32>(&stream)?.iter().enumerate().all(of_row));
    Ok(())
}

/// Rows apart from each other, from an odd element on: what is between them stays.
#[test]
fn rows_apart() -> Outcome {
    let stream = stream()?;
    let (rows, columns, pitch) = (4, 2051, 2060);
    for first in [0, 3] {
        let values: Vec<bf16> = input(Family::Normal, 1, rows * pitch);
        let mut all = Tensor::from_slice(&stream, &[rows, pitch], &values)?;
        let targets = Tensor::from_slice(&stream, &[rows], &[0i64, 5, 2050, 17])?;
        let part = all.view_mut()?.slice(1, first..first + columns)?;
        CrossEntropy::default().loss_and_gradient(&stream, part, &targets, None)?;
        let after: Vec<bf16> = all.to_vec(&stream)?;
        for (row, (before, after)) in values.chunks(pitch).zip(after.chunks(pitch)).enumerate() {
            assert_eq!(before[..first], after[..first], "{row}");
            assert_eq!(before[first + columns..], after[first + columns..], "{row}");
            let sum: f32 = after[first..first + columns].iter().map(|&v| f32::from(v)).sum();
            assert!(sum.abs() < 1e-2, "a gradient of a softmax sums up to 0, not {sum}");
        }
    }
    Ok(())
}

#[test]
fn hostile_logits_and_targets() -> Outcome {
    let stream = stream()?;
    for columns in [3, 40, 3000] {
        let run = |fill: f32, first: f32, target: i64| -> Result<(f32, Vec<f32>), Error> {
            let mut values = vec![fill; columns];
            values[0] = first;
            let mut logits = Tensor::from_slice(&stream, &[1, columns], &values)?;
            let targets = Tensor::from_slice(&stream, &[1], &[target])?;
            let loss =
                CrossEntropy::default().loss_and_gradient(&stream, logits.view_mut()?, &targets, None)?;
            Ok((loss.value.to_vec::<f32>(&stream)?[0], logits.to_vec(&stream)?))
        };
        let (loss, gradient) = run(-3e38, 3e38, 0)?;
        assert_eq!((loss, gradient[0], gradient[1]), (0.0, 0.0, 0.0), "a sure class");
        let (loss, gradient) = run(f32::NEG_INFINITY, 1.0, 0)?;
        assert_eq!((loss, gradient[0], gradient[2]), (0.0, 0.0, 0.0), "the others are masked");
        for (fill, first) in [(0.0, f32::NAN), (0.0, f32::INFINITY), (f32::NEG_INFINITY, f32::NEG_INFINITY)] {
            let (loss, gradient) = run(fill, first, 1)?;
            assert!(loss.is_nan() && gradient.iter().all(|v| v.is_nan()), "{fill} {first} {loss}");
        }
        for target in [-1, columns as i64, i64::MAX, i64::from(u32::MAX), i64::MIN] {
            let (loss, gradient) = run(0.5, 1.0, target)?;
            assert!(loss.is_nan() && gradient.iter().all(|v| v.is_nan()), "{target} is no class");
        }
        let (loss, gradient) = run(f32::NAN, 1.0, IGNORED)?;
        assert!(loss.is_nan() && gradient.iter().all(|&v| v == 0.0), "no row counts");
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let (logits, targets) = (zeros(&[2, 3], DType::F32)?, zeros(&[2], DType::I64)?);
    let plain = CrossEntropy::default();
    let of = |loss: CrossEntropy, logits: &Tensor, targets: &Tensor| {
        loss.loss(&stream, logits, targets).expect_err("a wrong call")
    };
    let is = |error: Error, kind: fn(&TensorError) -> bool| assert!(error.tensor_error().is_some_and(kind));
    is(of(plain, &logits, &zeros(&[3], DType::I64)?), |e| {
        matches!(e, TensorError::Shape { what: "targets", .. })
    });
    is(of(plain, &logits, &zeros(&[2], DType::F32)?), |e| {
        matches!(e, TensorError::DType { what: "targets", .. })
    });
    is(of(plain, &zeros(&[2, 3], DType::I32)?, &targets), |e| {
        matches!(e, TensorError::DType { what: "x", .. })
    });
    // The last axis.
    is(of(plain, &zeros(&[], DType::F32)?, &targets), |e| matches!(e, TensorError::Axis { axis: -1, .. }));
    let mut none = zeros(&[2, 0], DType::F32)?;
    is(of(plain, &none, &targets), |e| matches!(e, TensorError::Empty { .. }));
    let over = plain.loss_and_gradient(&stream, none.view_mut()?, &targets, None);
    is(over.expect_err("rows of no class"), |e| matches!(e, TensorError::Empty { .. }));
    for (loss, wrong) in [
        (CrossEntropy { smoothing: 1.5, ..plain }, "smoothing"),
        (CrossEntropy { smoothing: f64::NAN, ..plain }, "smoothing"),
        (CrossEntropy { z_loss: -1.0, ..plain }, "z_loss"),
        (CrossEntropy { z_loss: f64::INFINITY, ..plain }, "z_loss"),
        // No f32, which kernels take it in.
        (CrossEntropy { z_loss: 1e39, ..plain }, "z_loss"),
    ] {
        let error = of(loss, &logits, &targets);
        assert!(matches!(&error, Error::InvalidArgument { argument, .. } if *argument == wrong), "{error}");
    }
    let mut turned = zeros(&[3, 2], DType::F32)?;
    let turned = turned.view_mut()?.permute(&[1, 0])?;
    let error = plain.loss_and_gradient(&stream, turned, &targets, None).expect_err("classes apart");
    assert!(matches!(error, Error::InvalidArgument { argument: "logits", .. }), "{error}");
    let mut logits = zeros(&[2, 3], DType::F32)?;
    let upstream = zeros(&[2], DType::F32)?;
    let error = plain.loss_and_gradient(&stream, logits.view_mut()?, &targets, Some(&upstream));
    is(error.expect_err("two numbers"), |e| matches!(e, TensorError::Shape { what: "upstream", .. }));
    Ok(())
}
