//! Cross-entropy with probabilities and with soft caps, and its gradients, against the oracle.

use crate::common::{Outcome, stream, tests};
use half::{bf16, f16};
use ironwarp::ops::row::{CrossEntropy, Loss, Reduction};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Stream, Tensor, TensorError};
use reference::cross_entropy::SoftCrossEntropy as Oracle;
use reference::row::CrossEntropy as Plain;
use testkit::{Family, compare, input, tolerance};

/// No row, no neighbour, lengths about a warp and a block, rows that begin anywhere in a vector, a cluster,
/// and a row that no cluster holds.
const SHAPES: [[usize; 2]; 13] = [
    [0, 5],
    [3, 1],
    [40, 2],
    [2, 31],
    [2, 32],
    [2, 33],
    [2, 255],
    [2, 256],
    [2, 257],
    [5, 1000],
    [3, 9001],
    [1, 50_257],
    [1, 215_000],
];
const IGNORED: i64 = -100;

/// A loss, and what multiplies its gradient. Of long rows only one is tried.
fn cases(columns: usize) -> Vec<(CrossEntropy, f64)> {
    let plain = CrossEntropy::default();
    let smooth = CrossEntropy { smoothing: 0.1, z_loss: 1e-3, reduction: Reduction::Sum, ..plain };
    let all = [
        (plain, 1.0),
        (CrossEntropy { soft_cap: Some(30.0), ..plain }, 0.5),
        (CrossEntropy { soft_cap: Some(1.5), ..smooth }, 2.0),
        (smooth, -1.0),
    ];
    if columns > 5000 { all[2..3].to_vec() } else { all.to_vec() }
}

/// Classes or probabilities.
enum Targets<T> {
    Classes(Vec<i64>),
    Probabilities(Vec<T>),
}

impl<T: Element + testkit::Element + Into<f64>> Targets<T> {
    /// Some rows are ignored.
    fn classes(rows: usize, columns: usize) -> Self {
        let class = |row: usize| ((row * 7919 + 5) % columns) as i64;
        Targets::Classes((0..rows).map(|row| if row % 3 == 1 { IGNORED } else { class(row) }).collect())
    }

    /// Sums other than 1, and some zeros.
    fn probabilities(seed: u64, elements: usize) -> Self {
        let random: Vec<T> = input(Family::Uniform, seed, elements);
        let share = |x: T| T::from_f64(if x.into() < -0.5 { 0.0 } else { x.into().abs() });
        Targets::Probabilities(random.into_iter().map(share).collect())
    }

    /// A distribution for each row, or none.
    fn rows(&self, columns: usize) -> Vec<Option<Vec<f64>>> {
        match self {
            Targets::Classes(classes) => classes
                .iter()
                .map(|&class| {
                    let one = |i: usize| if i as i64 == class { 1.0 } else { 0.0 };
                    (class != IGNORED).then(|| (0..columns).map(one).collect())
                })
                .collect(),
            Targets::Probabilities(all) => {
                all.chunks(columns).map(|row| Some(row.iter().map(|&y| y.into()).collect())).collect()
            }
        }
    }

    fn tensor(&self, stream: &Stream, sides: [usize; 2]) -> Result<Tensor, Error> {
        match self {
            Targets::Classes(classes) => Tensor::from_slice(stream, &sides[..1], classes),
            Targets::Probabilities(all) => Tensor::from_slice(stream, &sides, all),
        }
    }

    fn loss(&self, of: CrossEntropy, stream: &Stream, x: &Tensor, targets: &Tensor) -> Result<Loss, Error> {
        match self {
            Targets::Classes(_) => of.loss(stream, x, targets),
            Targets::Probabilities(_) => of.loss_of_probabilities(stream, x, targets),
        }
    }

    fn loss_and_gradient(
        &self,
        of: CrossEntropy,
        stream: &Stream,
        x: &mut Tensor,
        targets: &Tensor,
        by: Option<&Tensor>,
    ) -> Result<Loss, Error> {
        match self {
            Targets::Classes(_) => of.loss_and_gradient(stream, x.view_mut()?, targets, by),
            Targets::Probabilities(_) => {
                of.loss_and_gradient_of_probabilities(stream, x.view_mut()?, targets, by)
            }
        }
    }
}

/// The oracle's numbers of all rows.
#[derive(Default)]
struct Want {
    losses: Vec<f64>,
    sizes: Vec<f64>,
    log_sum_exps: Vec<f64>,
    gradient: Vec<f64>,
    magnitudes: Vec<f64>,
}

impl Want {
    fn of(oracle: Oracle, x: &[f64], targets: &[Option<Vec<f64>>], columns: usize, factor: f64) -> Self {
        let mut want = Want::default();
        for (x, y) in x.chunks(columns).zip(targets) {
            let nothing = vec![0.0; columns];
            let [lse, loss, size] = oracle.loss(x, y.as_ref().unwrap_or(&nothing));
            let gradient = oracle.gradient(x, y.as_ref().unwrap_or(&nothing));
            let counts = if y.is_some() { 1.0 } else { 0.0 };
            want.log_sum_exps.push(lse);
            want.losses.push(counts * loss);
            // That of the logarithm, of ignored rows too.
            want.sizes.push(size + lse.abs() + 1.0);
            want.gradient.extend(gradient.value.iter().map(|v| counts * factor * v));
            want.magnitudes.extend(gradient.magnitude.iter().map(|v| counts * factor.abs() * v));
        }
        want
    }
}

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for (seed, sides @ [rows, columns]) in SHAPES.into_iter().enumerate() {
        let values: Vec<T> = input(Family::Normal, seed as u64, rows * columns);
        let values: Vec<T> = values.into_iter().map(|x| T::from_f64(3.0 * x.into())).collect();
        let x: Vec<f64> = values.iter().map(|&v| v.into()).collect();
        for targets in
            [Targets::<T>::classes(rows, columns), Targets::probabilities(100 + seed as u64, rows * columns)]
        {
            let is_soft = matches!(targets, Targets::Probabilities(_));
            let name = if is_soft { "cross_entropy_probabilities" } else { "cross_entropy_capped" };
            let find = |what: &str| tolerance::find(&format!("{name}{what} {}", <T as Element>::DTYPE));
            let (of_each, given) = (targets.rows(columns), targets.tensor(&stream, sides)?);
            let counted = of_each.iter().flatten().count() as f64;
            for (number, (loss, upstream)) in cases(columns).into_iter().enumerate() {
                if !is_soft && loss.soft_cap.is_none() {
                    continue;
                }
                let what = format!("{name} {} {sides:?} {number}", <T as Element>::DTYPE);
                let share = if loss.reduction == Reduction::Mean { 1.0 / counted } else { 1.0 };
                let of = Plain { smoothing: loss.smoothing, z_loss: loss.z_loss };
                let oracle = Oracle { of, cap: loss.soft_cap };
                let want = Want::of(oracle, &x, &of_each, columns, share * upstream);

                let mut logits = Tensor::from_slice(&stream, &sides, &values)?;
                let by = Tensor::from_slice(&stream, &[], &[upstream as f32])?;
                let only = targets.loss(loss, &stream, &logits, &given)?;
                let got = targets.loss_and_gradient(loss, &stream, &mut logits, &given, Some(&by))?;
                let f32s = |tensor: &Tensor| tensor.to_vec::<f32>(&stream);
                let (limit, of_rows) = (find("").for_terms(columns), f32s(&got.of_rows)?);
                compare::accumulated(&what, &of_rows, &want.losses, &want.sizes, &[rows], limit)?;
                let lses = f32s(&got.log_sum_exps)?;
                compare::accumulated(&what, &lses, &want.log_sum_exps, &want.sizes, &[rows], limit)?;
                let sum = |values: &[f64]| [values.iter().sum::<f64>() * share];
                let value = f32s(&got.value)?;
                if counted > 0.0 || loss.reduction == Reduction::Sum {
                    compare::accumulated(&what, &value, &sum(&want.losses), &sum(&want.sizes), &[], limit)?;
                } else {
                    assert!(value[0].is_nan(), "the mean of none");
                }
                let gradient: Vec<T> = logits.to_vec(&stream)?;
                let limit = find("_gradient").for_terms(columns);
                compare::rounded(&what, &gradient, &want.gradient, &want.magnitudes, &sides, limit)?;

                compare::bitwise_equal(&what, &f32s(&only.of_rows)?, &of_rows)?;
                compare::bitwise_equal(&what, &f32s(&only.value)?, &value)?;
                let mut again = Tensor::from_slice(&stream, &sides, &values)?;
                let twice = targets.loss_and_gradient(loss, &stream, &mut again, &given, Some(&by))?;
                compare::bitwise_equal(&what, &again.to_vec::<T>(&stream)?, &gradient)?;
                compare::bitwise_equal(&what, &f32s(&twice.of_rows)?, &of_rows)?;
            }
        }
    }
    Ok(())
}

tests!(agrees: of_f32 = f32, of_f16 = f16, of_bf16 = bf16);

/// Rows apart from each other, from an odd element on, and probabilities that begin elsewhere in a vector, of
/// any strides: what is between the rows stays.
#[test]
fn rows_apart() -> Outcome {
    let stream = stream()?;
    let (rows, columns, pitch) = (3, 517, 530);
    let loss = CrossEntropy { soft_cap: Some(4.0), smoothing: 0.2, ..CrossEntropy::default() };
    let values: Vec<f32> = input(Family::Normal, 1, rows * pitch);
    let y: Vec<f32> = input::<f32>(Family::Uniform, 2, rows * columns).iter().map(|y| y.abs()).collect();
    let dense = Tensor::from_slice(&stream, &[rows, columns], &y)?;
    let turned: Vec<f32> = (0..columns * rows).map(|i| y[i % rows * columns + i / rows]).collect();
    let turned = Tensor::from_slice(&stream, &[columns, rows], &turned)?.t()?;
    for (first, given) in [(0, &dense), (3, &dense), (4, &turned)] {
        let mut all = Tensor::from_slice(&stream, &[rows, pitch], &values)?;
        let part = all.slice(1, first..first + columns)?;
        let mut want = Tensor::from_slice(&stream, &[rows, columns], &part.to_vec::<f32>(&stream)?)?;
        let only = loss.loss_of_probabilities(&stream, &part, given)?;
        drop(part);
        let of_want = loss.loss_and_gradient_of_probabilities(&stream, want.view_mut()?, &dense, None)?;
        let part = all.view_mut()?.slice(1, first..first + columns)?;
        let got = loss.loss_and_gradient_of_probabilities(&stream, part, given, None)?;
        let after: Vec<f32> = all.to_vec(&stream)?;
        let want: Vec<f32> = want.to_vec(&stream)?;
        for (row, (before, after)) in values.chunks(pitch).zip(after.chunks(pitch)).enumerate() {
            assert_eq!(before[..first], after[..first], "{row}");
            assert_eq!(before[first + columns..], after[first + columns..], "{row}");
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
            assert!(after[first..].iter().zip(&want[row * columns..][..columns]).all(near), "{row}");
        }
        let [a, b, c] = [only.value, got.value, of_want.value].map(|value| value.item_on::<f32>(&stream));
        let (a, b, c) = (a?, b?, c?);
        assert!((a - c).abs() < 1e-3 && (b - c).abs() < 1e-3, "{a} {b} {c}");
    }
    Ok(())
}

/// An offset of all logits of a row changes nothing, however large it is.
#[test]
fn logits_that_share_an_offset() -> Outcome {
    let stream = stream()?;
    for columns in [2, 33, 3000, 20_000] {
        let near: Vec<f32> = (0..columns).map(|i| (i * 7919 % 64) as f32 / 16.0).collect();
        let y: Vec<f32> = input::<f32>(Family::Uniform, 5, columns).iter().map(|y| y.abs()).collect();
        let total: f32 = y.iter().sum();
        let y: Vec<f32> = y.iter().map(|y| y / total).collect();
        let y = Tensor::from_slice(&stream, &[1, columns], &y)?;
        for smoothing in [0.0, 0.1] {
            let loss = |offset: f32| -> Outcome<f32> {
                let x: Vec<f32> = near.iter().map(|x| x + offset).collect();
                let x = Tensor::from_slice(&stream, &[1, columns], &x)?;
                let of = CrossEntropy { smoothing, ..CrossEntropy::default() };
                Ok(of.loss_of_probabilities(&stream, &x, &y)?.value.item_on(&stream)?)
            };
            let want = loss(0.0)?;
            // Sums of 1 / 16 and these are exact.
            for offset in [8192.0, -8192.0, 65536.0] {
                let got = loss(offset)?;
                assert!((got - want).abs() < 2e-6 * want, "{columns} {smoothing} {offset}: {got}, {want}");
            }
        }
    }
    Ok(())
}

/// The loss and the gradient of one row: `fill`, but for the first logit.
fn of_row(
    stream: &Stream,
    loss: CrossEntropy,
    [fill, first]: [f32; 2],
    y: &[f32],
) -> Result<(f32, Vec<f32>), Error> {
    let mut values = vec![fill; y.len()];
    values[0] = first;
    let mut logits = Tensor::from_slice(stream, &[1, y.len()], &values)?;
    let y = Tensor::from_slice(stream, &[1, y.len()], y)?;
    let got = loss.loss_and_gradient_of_probabilities(stream, logits.view_mut()?, &y, None)?;
    Ok((got.value.item_on::<f32>(stream)?, logits.to_vec(stream)?))
}

#[test]
fn hostile_logits_and_probabilities() -> Outcome {
    let (stream, plain) = (stream()?, CrossEntropy::default());
    let capped = CrossEntropy { soft_cap: Some(10.0), ..plain };
    const INF: f32 = f32::INFINITY;
    for columns in [3, 40, 3000] {
        let one = |value: f32| -> Vec<f32> {
            let mut y = vec![0.0; columns];
            y[0] = value;
            y
        };
        let run = |loss, logits, y: &[f32]| of_row(&stream, loss, logits, y);
        let (loss, gradient) = run(plain, [-3e38, 3e38], &one(1.0))?;
        assert_eq!((loss, gradient[0], gradient[1]), (0.0, 0.0, 0.0), "a sure class");
        let (loss, gradient) = run(plain, [-INF, 1.0], &one(1.0))?;
        assert_eq!((loss, gradient[0], gradient[2]), (0.0, 0.0, 0.0), "the others are masked");
        let (loss, gradient) = run(plain, [0.25, -7.0], &one(0.0))?;
        assert!(loss == 0.0 && gradient.iter().all(|&v| v == 0.0), "no class is there: {loss}");
        let ln = (columns as f32).ln();
        for fill in [1e30, -1e-30, 0.0] {
            let (loss, gradient) = run(capped, [fill, fill], &vec![1.0 / columns as f32; columns])?;
            assert!((loss - ln).abs() < 1e-5 * ln, "all alike: {loss}");
            assert!(gradient.iter().all(|v| v.abs() < 1e-6), "all alike");
        }
        // Of a cap on both sides the classes are -10 and 10, and no logit moves them.
        let (loss, gradient) = run(capped, [INF, -INF], &one(1.0))?;
        assert!((loss - (20.0 + (columns as f32 - 1.0).ln())).abs() < 1e-4, "{loss}");
        assert!(gradient.iter().all(|&v| v == 0.0), "behind the cap nothing moves");
        for logits in [[0.0, f32::NAN], [0.0, INF], [-INF, -INF]] {
            let (loss, gradient) = run(plain, logits, &one(1.0))?;
            assert!(loss.is_nan() && gradient.iter().all(|v| v.is_nan()), "{logits:?} {loss}");
        }
        for (loss, logits, y) in [(capped, [0.0, f32::NAN], 1.0), (plain, [0.0, 1.0], f32::NAN)] {
            let (loss, gradient) = run(loss, logits, &one(y))?;
            assert!(loss.is_nan() && gradient.iter().all(|v| v.is_nan()), "{logits:?} {y} {loss}");
        }
        let (loss, _) = run(plain, [-INF, 1.0], &vec![0.5; columns])?;
        assert_eq!(loss, INF, "a class that cannot be has a share");
        let (loss, gradient) = run(plain, [0.0, 0.0], &one(-2.0))?;
        let share = -2.0 / columns as f32;
        assert!((loss + 2.0 * ln).abs() < 1e-5 && (gradient[1] - share).abs() < 1e-6, "less than nothing");
    }
    Ok(())
}

/// A mean of no row that counts.
#[test]
fn capped_rows_that_are_all_ignored_or_no_class() -> Outcome {
    let stream = stream()?;
    let loss = CrossEntropy { soft_cap: Some(5.0), ..CrossEntropy::default() };
    for columns in [3, 700] {
        for (target, is_gone) in [(IGNORED, true), (-1, false), (columns as i64, false)] {
            let mut logits = Tensor::from_slice(&stream, &[2, columns], &vec![f32::NAN; 2 * columns])?;
            let targets = Tensor::from_slice(&stream, &[2], &[target; 2])?;
            let got = loss.loss_and_gradient(&stream, logits.view_mut()?, &targets, None)?;
            let gradient: Vec<f32> = logits.to_vec(&stream)?;
            assert!(got.value.item_on::<f32>(&stream)?.is_nan(), "{target}");
            assert!(gradient.iter().all(|v| if is_gone { *v == 0.0 } else { v.is_nan() }), "{target}");
        }
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let x = zeros(&[2, 3], DType::F32)?;
    let plain = CrossEntropy::default();
    let of = |loss: CrossEntropy, x: &Tensor, y: &Tensor| {
        loss.loss_of_probabilities(&stream, x, y).expect_err("a wrong call")
    };
    let is = |error: Error, kind: fn(&TensorError) -> bool| {
        assert!(error.tensor_error().is_some_and(kind), "{error}");
        assert!(error.to_string().starts_with("cross_entropy: "), "{error}");
    };
    is(of(plain, &x, &zeros(&[2], DType::F32)?), |e| {
        matches!(e, TensorError::Shape { what: "probabilities", .. })
    });
    is(of(plain, &x, &zeros(&[2, 3], DType::BF16)?), |e| {
        matches!(e, TensorError::DType { what: "probabilities", .. })
    });
    let f64s = zeros(&[2, 3], DType::F64)?;
    is(of(plain, &f64s, &f64s), |e| matches!(e, TensorError::DType { what: "x", .. }));
    let number = zeros(&[], DType::F32)?;
    is(of(plain, &number, &number), |e| matches!(e, TensorError::Axis { .. }));
    let mut none = zeros(&[2, 0], DType::F32)?;
    let also = zeros(&[2, 0], DType::F32)?;
    is(of(plain, &none, &also), |e| matches!(e, TensorError::Empty { .. }));
    let over = plain.loss_and_gradient_of_probabilities(&stream, none.view_mut()?, &also, None);
    is(over.expect_err("rows of no class"), |e| matches!(e, TensorError::Empty { .. }));
    for cap in [0.0, -30.0, f64::NAN, f64::INFINITY, 1e-31] {
        let loss = CrossEntropy { soft_cap: Some(cap), ..plain };
        let classes = loss.loss(&stream, &x, &zeros(&[2], DType::I64)?).expect_err("a wrong cap");
        for error in [of(loss, &x, &x), classes] {
            let is_named = matches!(error, Error::InvalidArgument { argument: "soft_cap", .. });
            assert!(is_named && error.to_string().contains("from 1e-30 to 1e30"), "{error}");
        }
    }
    let error = of(CrossEntropy { smoothing: 2.0, ..plain }, &x, &x);
    assert!(matches!(error, Error::InvalidArgument { argument: "smoothing", .. }), "{error}");
    let mut logits = zeros(&[2, 3], DType::F32)?;
    let two = zeros(&[2], DType::F32)?;
    let over = plain.loss_and_gradient_of_probabilities(&stream, logits.view_mut()?, &x, Some(&two));
    is(over.expect_err("two numbers"), |e| matches!(e, TensorError::Shape { what: "upstream", .. }));
    Ok(())
}
