//! Variances, deviations and logarithms of sums of exponentials against oracles in f64.

use std::error::Error as StdError;

use half::{bf16, f16};
use ironwarp::tensor::Element;
use ironwarp::{DType, Device, Error, Tensor, TensorError};
use testkit::tolerance::{self, Row};
use testkit::{Family, compare, input};

type Outcome = std::result::Result<(), Box<dyn StdError>>;

const SHAPE: [usize; 3] = [3, 37, 5];

/// The elements of each result when `dims` go, in order.
fn groups<T: testkit::Element>(x: &[T], dims: &[usize]) -> Vec<Vec<f64>> {
    let mut groups = Vec::new();
    let stays = |dim: usize| if dims.contains(&dim) { 1 } else { SHAPE[dim] };
    groups.resize(stays(0) * stays(1) * stays(2), Vec::new());
    for (place, value) in x.iter().enumerate() {
        let at = [place / 5 / 37, place / 5 % 37, place % 5];
        let [a, b, c] = std::array::from_fn(|dim| if dims.contains(&dim) { 0 } else { at[dim] });
        groups[(a * stays(1) + b) * stays(2) + c].push(value.to_f64());
    }
    groups
}

fn variance(group: &[f64], correction: usize) -> f64 {
    let n = group.len() as f64;
    let mean = group.iter().sum::<f64>() / n;
    group.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - correction as f64)
}

fn log_sum_exp(group: &[f64]) -> f64 {
    if group.iter().any(|x| x.is_nan()) {
        return f64::NAN;
    }
    let largest = group.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    if largest.is_infinite() {
        return largest;
    }
    largest + group.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
}

fn largest(group: &[f64]) -> f64 {
    group.iter().fold(0.0, |a, b| a.max(b.abs()))
}

/// All of them along `dims`. Errors are judged beside the largest element: from it the mean is subtracted.
fn case<T: Element + testkit::Element>(x: &[T], dims: &[usize], what: &str, row: Row) -> Outcome {
    let tensor = Tensor::from_slice(&Device::open(0)?, &SHAPE, x)?;
    let groups = groups(x, dims);
    let tolerance = row.for_terms(groups[0].len());
    let check = |name: &str, got: Tensor, of: &dyn Fn(&[f64]) -> f64, scale: &dyn Fn(&[f64]) -> f64| {
        let want: Vec<f64> = groups.iter().map(|group| of(group)).collect();
        let scales: Vec<f64> = groups.iter().map(|group| scale(group)).collect();
        assert_eq!(got.dtype(), T::DTYPE);
        let what = format!("{name} of {} along {dims:?}, {what}", T::DTYPE);
        // 16-bit floats are computed in f32 and rounded once.
        let compared = if T::DTYPE.size() == 2 { compare::rounded::<T> } else { compare::accumulated };
        compared(&what, &got.tolist::<T>()?, &want, &scales, &[want.len()], tolerance)?;
        Outcome::Ok(())
    };
    for correction in [0, 1] {
        let squared = |group: &[f64]| largest(group).powi(2);
        check("var", tensor.var(dims, correction)?, &|group| variance(group, correction), &squared)?;
        check("std", tensor.std(dims, correction)?, &|group| variance(group, correction).sqrt(), &largest)?;
    }
    check("logsumexp", tensor.logsumexp(dims)?, &log_sum_exp, &|group| 1.0 + largest(group))?;

    // With the dimensions kept: the same bits in the shape of a reduction.
    let kept = tensor.sum_keepdim(dims)?;
    let pairs = [
        (tensor.var_keepdim(dims, 1)?, tensor.var(dims, 1)?),
        (tensor.std_keepdim(dims, 1)?, tensor.std(dims, 1)?),
        (tensor.logsumexp_keepdim(dims)?, tensor.logsumexp(dims)?),
    ];
    for (with, without) in pairs {
        assert_eq!(with.shape(), kept.shape());
        assert_eq!(without.shape(), tensor.sum(dims)?.shape());
        compare::bitwise_equal("kept", &with.tolist::<T>()?, &without.tolist::<T>()?)?;
    }
    Ok(())
}

fn every_case<T: Element + testkit::Element>(row: Row) -> Outcome {
    for dims in [&[2][..], &[1], &[0, 2], &[2, 1], &[0, 1, 2]] {
        for family in [Family::Normal, Family::Cancelling] {
            case(&input::<T>(family, 1, 3 * 37 * 5), dims, &format!("{family:?}"), row)?;
        }
        let constant = vec![T::from_f64(-3.0); 3 * 37 * 5];
        case(&constant, dims, "one number", row)?;
        let far: Vec<T> = input::<T>(Family::Normal, 2, 3 * 37 * 5);
        let far: Vec<T> = far.iter().map(|x| T::from_f64(x.to_f64() + 100.0)).collect();
        case(&far, dims, "far from 0", row)?;
    }
    Ok(())
}

#[test]
fn statistics_of_f64() -> Outcome {
    every_case::<f64>(tolerance::STATISTICS_F64)
}

#[test]
fn statistics_of_f32() -> Outcome {
    every_case::<f32>(tolerance::STATISTICS_F32)
}

#[test]
fn statistics_of_f16() -> Outcome {
    every_case::<f16>(tolerance::STATISTICS_F32)
}

#[test]
fn statistics_of_bf16() -> Outcome {
    every_case::<bf16>(tolerance::STATISTICS_F32)
}

#[test]
fn special_values() -> Outcome {
    let device = Device::open(0)?;
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let rows = [[1.0, inf, 2.0], [-inf, 0.5, -inf], [-inf; 3], [1.0, nan, inf], [300.0, 300.0, -300.0]];
    let x = Tensor::from_slice(&device, &[5, 3], rows.as_flattened())?;
    let got = x.logsumexp(&[-1])?.tolist::<f32>()?;
    assert_eq!(got[..3], [inf, 0.5, -inf]);
    assert!(got[3].is_nan() && (got[4] - 300.0 - 2f32.ln()).abs() < 1e-4, "{got:?}");
    let deviations = x.std(&[1], 0)?.tolist::<f32>()?;
    assert!(deviations[..4].iter().all(|x| x.is_nan()) && deviations[4].is_finite(), "{deviations:?}");
    Ok(())
}

#[test]
fn wrong_calls_are_refused() -> Outcome {
    let device = Device::open(0)?;
    let x = Tensor::zeros(&device, &[2, 3], DType::F32)?;
    let error = x.var(&[1], 3).expect_err("nothing is left");
    assert!(
        matches!(error, Error::InvalidArgument { operation: "var", argument: "correction", .. }),
        "{error}"
    );
    let error = x.std_keepdim(&[1], 4).expect_err("less than nothing is left");
    assert!(matches!(error, Error::InvalidArgument { operation: "std_keepdim", .. }), "{error}");
    let error = x.var(&[1, -1], 0).expect_err("twice");
    assert!(matches!(error.tensor_error(), Some(TensorError::Axes { operation: "var", .. })), "{error}");
    for dtype in [DType::I32, DType::F8E4M3, DType::Bool] {
        let error = x.to(dtype)?.logsumexp(&[0]).expect_err("no float to compute in");
        assert!(matches!(error.tensor_error(), Some(TensorError::DType { .. })), "{error}");
    }
    let nothing = Tensor::zeros(&device, &[2, 0], DType::F32)?;
    for error in [nothing.std(&[1], 0), nothing.var(&[1], 1), nothing.logsumexp(&[1])]
        .map(|got| got.expect_err("no elements"))
    {
        assert!(matches!(error.tensor_error(), Some(TensorError::Empty { .. })), "{error}");
    }
    // Along a dimension that has places the results are as many as there are: none.
    assert_eq!(nothing.var(&[0], 1)?.shape().sides(), [0]);
    assert_eq!(Tensor::zeros(&device, &[0, 0], DType::F32)?.std(&[0], 1)?.shape().sides(), [0]);
    Ok(())
}
