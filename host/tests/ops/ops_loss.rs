//! Losses of pairs of numbers and of rows, and their gradients, against the oracle.

use crate::common::{Outcome, stream, tests};
use half::{bf16, f16};
use ironwarp::ops::loss::{LossFunction, PairLoss, losses, losses_backward};
use ironwarp::ops::row::{CosineEmbedding, Reduction};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use reference::loss::{Pairwise, cosine_embedding};
use testkit::{Family, compare, input, tolerance};

const ALL: [(LossFunction, Pairwise); 8] = [
    (LossFunction::Mse, Pairwise::Mse),
    (LossFunction::L1, Pairwise::L1),
    (LossFunction::Huber { delta: 0.75 }, Pairwise::Huber(0.75)),
    (LossFunction::SmoothL1 { beta: 0.25 }, Pairwise::SmoothL1(0.25)),
    (LossFunction::BceWithLogits { pos_weight: 1.0 }, Pairwise::BceWithLogits(1.0)),
    (LossFunction::BceWithLogits { pos_weight: 2.5 }, Pairwise::BceWithLogits(2.5)),
    (LossFunction::KlDiv { log_target: false }, Pairwise::KlDiv),
    (LossFunction::KlDiv { log_target: true }, Pairwise::KlDivOfLogs),
];

/// No element, one, fewer and more than a vector, a block and several.
const LENGTHS: [usize; 8] = [0, 1, 3, 4, 255, 1000, 4097, 10_000];

fn wide<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
    values.iter().map(|&v| v.into()).collect()
}

/// Inputs and targets that the function has values for, on which its two sides have their share.
fn operands<T: testkit::Element + Copy + Into<f64>>(of: Pairwise, n: usize) -> [Vec<T>; 2] {
    let values: [Vec<T>; 2] = [1, 2].map(|seed| input(Family::Normal, seed, n));
    let made = |values: &[T], f: fn(f64) -> f64| {
        wide(values).into_iter().map(f).map(<T as testkit::Element>::from_f64).collect()
    };
    let (log, share) = (|v: f64| -v.abs(), |v: f64| (v.abs() / 4.0).min(1.0));
    match of {
        Pairwise::BceWithLogits(_) => [made(&values[0], |v| 6.0 * v), made(&values[1], share)],
        Pairwise::KlDiv => [made(&values[0], log), made(&values[1], share)],
        Pairwise::KlDivOfLogs => [made(&values[0], log), made(&values[1], log)],
        _ => values,
    }
}

fn agrees<T: Element + testkit::Element + Copy + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let limit = tolerance::find(&format!("pair_loss {}", <T as Element>::DTYPE)).tolerance();
    for (function, of) in ALL {
        for n in LENGTHS {
            let what = format!("{of:?} {} {n}", <T as Element>::DTYPE);
            let [x, t] = operands::<T>(of, n);
            let dy: Vec<T> = input(Family::Normal, 3, n);
            let tensor = |values: &[T]| Tensor::from_slice(&stream, &[n], values);
            let (given, target) = (tensor(&x)?, tensor(&t)?);
            let pairs: Vec<(f64, f64)> = wide(&x).into_iter().zip(wide(&t)).collect();
            let unzip = |of: &dyn Fn(f64, f64) -> [f64; 2]| -> (Vec<f64>, Vec<f64>) {
                pairs.iter().map(|&(x, t)| of(x, t)).map(|[value, size]| (value, size)).unzip()
            };
            let (want, size) = unzip(&|x, t| of.loss(x, t));
            let got: Vec<T> = losses(&stream, function, &given, &target)?.to_vec(&stream)?;
            compare::accumulated(&what, &got, &want, &size, &[n], limit)?;
            let (slopes, scale) = unzip(&|x, t| of.gradient(x, t));
            let times = |values: &[f64], by: &[f64]| -> Vec<f64> {
                values.iter().zip(by).map(|(v, by)| v * by).collect()
            };
            let by = wide(&dy);
            let got = losses_backward(&stream, function, &given, &target, &tensor(&dy)?)?;
            let sizes = times(&scale, &by.iter().map(|by| by.abs()).collect::<Vec<_>>());
            compare::accumulated(
                &what,
                &got.to_vec::<T>(&stream)?,
                &times(&slopes, &by),
                &sizes,
                &[n],
                limit,
            )?;
            for (reduction, share) in [(Reduction::Sum, 1.0), (Reduction::Mean, 1.0 / n as f64)] {
                let loss = PairLoss { function, reduction };
                let upstream = Tensor::from_slice(&stream, &[], &[0.5f32])?;
                let (value, dx) = loss.loss_and_gradient(&stream, &given, &target, Some(&upstream))?;
                let value: Vec<f32> = value.to_vec(&stream)?;
                let alone: Vec<f32> = loss.loss(&stream, &given, &target)?.to_vec(&stream)?;
                compare::bitwise_equal(&what, &value, &alone)?;
                if n == 0 {
                    assert!(if reduction == Reduction::Mean { value[0].is_nan() } else { value[0] == 0.0 });
                    continue;
                }
                let sum = |values: &[f64]| [values.iter().sum::<f64>() * share];
                let limit = tolerance::find("pair_loss_sum").for_terms(n);
                // The functions of 16-bit floats.
                let allowed = [sum(&size)[0] * (1.0 + limit_of_terms::<T>() / limit.relative)];
                compare::accumulated(&what, &value, &sum(&want), &allowed, &[], limit)?;
                let factor = |values: &[f64]| times(values, &vec![0.5 * share; n]);
                let dx: Vec<T> = dx.to_vec(&stream)?;
                let limit = tolerance::find(&format!("pair_loss {}", <T as Element>::DTYPE)).tolerance();
                compare::accumulated(&what, &dx, &factor(&slopes), &factor(&scale), &[n], limit)?;
            }
        }
    }
    Ok(())
}

/// The relative error of each loss before it is added: results are not rounded to the type.
fn limit_of_terms<T: Element>() -> f64 {
    let name = if T::DTYPE == DType::F32 { "pair_loss f32" } else { "pair_loss_term 16-bit" };
    tolerance::find(name).one_term.relative
}

tests!(agrees: of_f32 = f32, of_f16 = f16, of_bf16 = bf16);

/// Any layout, the first element anywhere, and the same bits each time.
#[test]
fn places_and_layouts() -> Outcome {
    let stream = stream()?;
    let (rows, columns) = (37, 129);
    let values: Vec<bf16> = input(Family::Normal, 1, rows * columns + 1);
    let all = Tensor::from_slice(&stream, &[rows * columns + 1], &values)?;
    let odd = all.slice(0, 1..)?.view_as(&[rows, columns])?;
    let even = Tensor::from_slice(&stream, &[rows, columns], &values[1..])?;
    let target = Tensor::from_slice(&stream, &[columns, rows], &values[..rows * columns])?.t()?;
    let mse = PairLoss { function: LossFunction::Mse, reduction: Reduction::Mean };
    let (value, dx) = mse.loss_and_gradient(&stream, &odd, &target, None)?;
    let (of_even, dx_of_even) = mse.loss_and_gradient(&stream, &even, &target, None)?;
    let bits = |x: &Tensor| x.to_vec::<bf16>(&stream);
    compare::bitwise_equal("odd", &bits(&dx)?, &bits(&dx_of_even)?)?;
    let (value, of_even) = (value.to_vec::<f32>(&stream)?, of_even.to_vec::<f32>(&stream)?);
    compare::bitwise_equal("odd", &value, &of_even)?;
    Ok(())
}

#[test]
fn hostile_numbers() -> Outcome {
    let stream = stream()?;
    let run = |function, x: f32, t: f32| -> Result<[f32; 2], Error> {
        let (x, t) = (Tensor::from_slice(&stream, &[1], &[x])?, Tensor::from_slice(&stream, &[1], &[t])?);
        let loss = PairLoss { function, reduction: Reduction::Sum };
        let (loss, dx) = loss.loss_and_gradient(&stream, &x, &t, None)?;
        Ok([loss.item_on(&stream)?, dx.item_on(&stream)?])
    };
    let bce = LossFunction::BceWithLogits { pos_weight: 1.0 };
    // Where a sigmoid rounds to 1, its logarithm is still right.
    let [loss, dx] = run(bce, 30.0, 1.0)?;
    assert!((loss / (-30f32).exp() - 1.0).abs() < 1e-5 && (dx / -(-30f32).exp() - 1.0).abs() < 1e-5);
    assert_eq!(run(bce, 1000.0, 0.0)?, [1000.0, 1.0]);
    assert_eq!(run(bce, -1000.0, 1.0)?, [1000.0, -1.0]);
    assert_eq!(run(bce, 3e38, 1.0)?, [0.0, 0.0]);
    let huber = LossFunction::Huber { delta: 1.0 };
    assert_eq!(run(huber, f32::INFINITY, 0.0)?, [f32::INFINITY, 1.0]);
    assert_eq!(run(huber, -3e38, 0.0)?, [3e38, -1.0]);
    assert_eq!(run(LossFunction::Mse, 1e30, 0.0)?[0], f32::INFINITY);
    assert_eq!(run(LossFunction::Mse, 1e-30, 0.0)?, [0.0, 2e-30]);
    assert_eq!(run(LossFunction::L1, 2.0, 2.0)?, [0.0, 0.0]);
    let kl = |log_target| LossFunction::KlDiv { log_target };
    assert_eq!(run(kl(false), -5.0, 0.0)?, [0.0, 0.0]);
    assert_eq!(run(kl(true), -5.0, f32::NEG_INFINITY)?, [0.0, 0.0]);
    assert!(run(kl(false), -5.0, -0.1)?[0].is_nan(), "a negative probability");
    for (function, _) in ALL {
        let of_nan = run(function, f32::NAN, 0.5)?;
        assert!(of_nan[0].is_nan(), "{function:?}");
        // The slope of a divergence is that of a line.
        assert!(of_nan[1].is_nan() || matches!(function, LossFunction::KlDiv { .. }), "{function:?}");
    }
    Ok(())
}

fn cosines_agree<T: Element + testkit::Element + Copy + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let limit = tolerance::find(&format!("cosine_embedding {}", <T as Element>::DTYPE)).tolerance();
    let of_losses = tolerance::find("cosine_embedding_loss").tolerance();
    for (seed, [rows, columns]) in
        [[5, 1], [33, 3], [9, 64], [4, 1001], [2, 9000], [0, 4]].into_iter().enumerate()
    {
        let what = format!("{} {rows}x{columns}", <T as Element>::DTYPE);
        let values: [Vec<T>; 2] = [1, 2].map(|i| input(Family::Normal, 10 * i + seed as u64, rows * columns));
        let [a, b] = values.each_ref().map(|values| wide(values));
        let labels: Vec<i64> = (0..rows).map(|row| if row % 3 == 0 { 1 } else { -1 }).collect();
        let narrow: Vec<i32> = labels.iter().map(|&label| label as i32).collect();
        let (margin, upstream) = (-0.05, 2.0);
        let mut of_rows = [Vec::new(), Vec::new()];
        let (mut want, mut scale) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        for (row, label) in labels.iter().enumerate() {
            let of = |x: &[f64]| x[row * columns..][..columns].to_vec();
            let of = cosine_embedding(&of(&a), &of(&b), *label == 1, margin);
            let factor = upstream / rows as f64;
            of_rows[0].push(of.loss[0]);
            of_rows[1].push(of.loss[1]);
            for (i, gradient) in of.gradients.iter().enumerate() {
                want[i].extend(gradient.value.iter().map(|v| v * factor));
                scale[i].extend(gradient.magnitude.iter().map(|v| v * factor));
            }
        }
        let tensor = |values: &[T]| Tensor::from_slice(&stream, &[rows, columns], values);
        let (a, b) = (tensor(&values[0])?, tensor(&values[1])?);
        let by = Tensor::from_slice(&stream, &[], &[upstream as f32])?;
        let loss = CosineEmbedding { margin, reduction: Reduction::Mean };
        let labels = Tensor::from_slice(&stream, &[rows], &labels)?;
        let (got, gradients) = loss.loss_and_gradients(&stream, &a, &b, &labels, Some(&by))?;
        let losses: Vec<f32> = got.of_rows.to_vec(&stream)?;
        compare::accumulated(&what, &losses, &of_rows[0], &of_rows[1], &[rows], of_losses)?;
        for i in 0..2 {
            let values: Vec<T> = gradients[i].to_vec(&stream)?;
            compare::accumulated(&what, &values, &want[i], &scale[i], &[rows, columns], limit)?;
        }
        let value: f32 = got.value.item_on(&stream)?;
        let mean = losses.iter().map(|&v| f64::from(v)).sum::<f64>() / rows as f64;
        assert!(
            if rows == 0 { value.is_nan() } else { (f64::from(value) - mean).abs() < 1e-6 },
            "{value} {mean}"
        );
        let alone = loss.loss(&stream, &a, &b, &Tensor::from_slice(&stream, &[rows], &narrow)?)?;
        compare::bitwise_equal(&what, &alone.of_rows.to_vec::<f32>(&stream)?, &losses)?;
    }
    Ok(())
}

tests!(cosines_agree: cosines_of_f32 = f32, cosines_of_f16 = f16, cosines_of_bf16 = bf16);

#[test]
fn hostile_rows() -> Outcome {
    let stream = stream()?;
    let run = |a: [f32; 3], b: [f32; 3], label: i64| -> Result<(f32, Vec<f32>, Vec<f32>), Error> {
        let tensor = |values: [f32; 3]| Tensor::from_slice(&stream, &[1, 3], &values);
        let labels = Tensor::from_slice(&stream, &[1], &[label])?;
        let (loss, [da, db]) = CosineEmbedding::default().loss_and_gradients(
            &stream,
            &tensor(a)?,
            &tensor(b)?,
            &labels,
            None,
        )?;
        Ok((loss.value.item_on(&stream)?, da.to_vec(&stream)?, db.to_vec(&stream)?))
    };
    let (loss, da, _) = run([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 1)?;
    assert!(loss.abs() < 1e-6 && da.iter().all(|v| v.abs() < 1e-6), "{loss} {da:?}");
    let (loss, da, db) = run([0.0; 3], [1.0, 0.0, 0.0], 1)?;
    assert!(loss == 1.0 && db.iter().all(|v| *v == 0.0) && da.iter().all(|v| v.is_finite()), "{da:?} {db:?}");
    // A sum of squares above, and one below all numbers that are not 0.
    let (loss, ..) = run([1e15, 0.0, 0.0], [1e15, 0.0, 0.0], 1)?;
    assert!(loss.abs() < 1e-6, "{loss}");
    let (loss, da, _) = run([1e-30; 3], [1.0; 3], -1)?;
    assert!(loss >= 0.0 && da.iter().all(|v| v.is_finite()), "{loss} {da:?}");
    for label in [0, 2, i64::MIN, i64::MAX] {
        let (loss, da, _) = run([1.0; 3], [1.0; 3], label)?;
        assert!(loss.is_nan() && da.iter().all(|v| v.is_nan()), "{label} is no label");
    }
    for label in [1, -1] {
        let (loss, da, _) = run([f32::NAN, 0.0, 0.0], [1.0; 3], label)?;
        assert!(loss.is_nan() && da.iter().all(|v| v.is_nan()), "{label}");
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let (x, labels) = (zeros(&[2, 3], DType::F32)?, zeros(&[2], DType::I64)?);
    let is = |error: Error, kind: fn(&TensorError) -> bool| {
        assert!(error.tensor_error().is_some_and(kind), "{error}");
    };
    let of = |function, x: &Tensor, t: &Tensor| losses(&stream, function, x, t).expect_err("a wrong call");
    let mse = LossFunction::Mse;
    is(of(mse, &x, &zeros(&[3], DType::F32)?), |e| matches!(e, TensorError::Shape { what: "target", .. }));
    is(of(mse, &x, &zeros(&[2, 3], DType::F16)?), |e| matches!(e, TensorError::DType { what: "target", .. }));
    let whole = zeros(&[2, 3], DType::I32)?;
    is(of(mse, &whole, &whole), |e| matches!(e, TensorError::DType { what: "x", .. }));
    // Operands without elements are as wrong as others.
    let empty = |dtype| zeros(&[0], dtype);
    let sum = PairLoss { function: mse, reduction: Reduction::Sum };
    let wrong = sum.loss(&stream, &empty(DType::I64)?, &empty(DType::I64)?).expect_err("whole numbers");
    is(wrong, |e| matches!(e, TensorError::DType { what: "x", .. }));
    let none = empty(DType::F32)?;
    let wrong = sum.loss_and_gradient(&stream, &none, &none, Some(&x)).expect_err("six numbers");
    is(wrong, |e| matches!(e, TensorError::Shape { what: "upstream", .. }));
    let dy = losses_backward(&stream, mse, &x, &x, &zeros(&[3, 2], DType::F32)?).expect_err("another shape");
    is(dy, |e| matches!(e, TensorError::Shape { what: "dy", .. }));
    let loss = PairLoss { function: mse, reduction: Reduction::Sum };
    let upstream = loss.loss_and_gradient(&stream, &x, &x, Some(&x)).expect_err("six numbers");
    is(upstream, |e| matches!(e, TensorError::Shape { what: "upstream", .. }));
    for (function, wrong) in [
        (LossFunction::Huber { delta: 0.0 }, "delta"),
        (LossFunction::Huber { delta: f64::NAN }, "delta"),
        (LossFunction::SmoothL1 { beta: -1.0 }, "beta"),
        (LossFunction::SmoothL1 { beta: 1e-300 }, "beta"),
        (LossFunction::BceWithLogits { pos_weight: -1.0 }, "pos_weight"),
        (LossFunction::BceWithLogits { pos_weight: f64::INFINITY }, "pos_weight"),
    ] {
        let error = of(function, &x, &x);
        assert!(matches!(&error, Error::InvalidArgument { argument, .. } if *argument == wrong), "{error}");
    }
    let cosine = CosineEmbedding::default();
    let of = |loss: CosineEmbedding, a: &Tensor, b: &Tensor, labels: &Tensor| {
        loss.loss_and_gradients(&stream, a, b, labels, None).expect_err("a wrong call")
    };
    is(of(cosine, &x, &zeros(&[2, 2], DType::F32)?, &labels), |e| {
        matches!(e, TensorError::Shape { what: "b", .. })
    });
    is(of(cosine, &x, &zeros(&[2, 3], DType::F16)?, &labels), |e| {
        matches!(e, TensorError::DType { what: "b", .. })
    });
    is(of(cosine, &x, &x, &zeros(&[3], DType::I64)?), |e| {
        matches!(e, TensorError::Shape { what: "labels", .. })
    });
    is(of(cosine, &x, &x, &zeros(&[2], DType::F32)?), |e| matches!(e, TensorError::DType { .. }));
    is(of(cosine, &whole, &whole, &labels), |e| matches!(e, TensorError::DType { what: "x", .. }));
    let none = zeros(&[2, 0], DType::F32)?;
    is(of(cosine, &none, &none, &labels), |e| matches!(e, TensorError::Empty { .. }));
    let number = zeros(&[], DType::F32)?;
    is(of(cosine, &number, &number, &labels), |e| matches!(e, TensorError::Axis { .. }));
    let error = of(CosineEmbedding { margin: 1.5, ..cosine }, &x, &x, &labels);
    assert!(matches!(&error, Error::InvalidArgument { argument: "margin", .. }), "{error}");
    Ok(())
}
