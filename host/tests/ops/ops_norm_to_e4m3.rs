//! Norms whose results are e4m3: against the oracle, and bit for bit as norm, product and conversion.

use crate::common::{Outcome, norm_oracle, stream, tests};
use crate::lying::{Lying, exact};
use crate::norms::plain;
use half::{bf16, f16};
use ironwarp::ops::convert::convert;
use ironwarp::ops::row::{Norm, NormKind, Normed};
use ironwarp::tensor::Element;
use ironwarp::{DType, DeviceBuffer, Error, Stream, Tensor, TensorError};
use num::E4M3;
use reference::Accumulated;
use testkit::{Family, compare, input, tolerance};

/// Some results are beyond the largest e4m3 by this factor.
const SCALE: f32 = 200.0;
const KINDS: [NormKind; 2] = [NormKind::Layer, NormKind::Rms];

/// The results, and the largest magnitude of what was scaled.
struct Got {
    normed: Normed,
    y: Vec<E4M3>,
    amax: f32,
}

fn run(norm: Norm<'_>, stream: &Stream, x: &Tensor, residual: Option<&Tensor>) -> Result<Got, Error> {
    let (scale, mut amax) = (DeviceBuffer::from_slice(stream, &[SCALE])?, DeviceBuffer::zeroed(stream, 1)?);
    let fused = norm.to_e4m3().scale_result(&scale).amax(&mut amax);
    let normed = match residual {
        Some(residual) => fused.add_and_run(stream, x, residual, true)?,
        None => fused.run_for_gradient(stream, x)?,
    };
    Ok(Got { y: normed.y.to_vec(stream)?, normed, amax: amax.to_vec(stream)?[0] })
}

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for (seed, sides @ [rows, columns]) in
        [[3, 1], [300, 31], [5, 32], [7, 33], [6, 1000], [3, 4096], [2, 9001]].into_iter().enumerate()
    {
        let random = |family, number: u64, len| input::<T>(family, seed as u64 + 50 * number, len);
        let (weights, biases) = (random(Family::Normal, 1, columns), random(Family::Normal, 2, columns));
        let weight = Tensor::from_slice(&stream, &[columns], &weights)?;
        let bias = Tensor::from_slice(&stream, &[columns], &biases)?;
        let (weights, biases) = (exact(&weights), exact(&biases));
        for (number, &lying) in Lying::of(columns).iter().enumerate() {
            let kind = KINDS[(seed + number) % 2];
            let with_residual = (seed + number) % 3 > 0;
            let x = random(Family::Normal, 3, rows * columns);
            let residual: Vec<T> = random(Family::Normal, 4, rows * columns);
            let (of_x, of_residual) =
                (lying.matrix(&stream, sides, &x)?, lying.matrix(&stream, sides, &residual)?);
            let norm = Norm { weight: Some(&weight), bias: Some(&bias), ..plain(kind) };
            let got = run(norm, &stream, &of_x, with_residual.then_some(&of_residual))?;
            let sum = got.normed.sum.as_ref().map(|sum| sum.to_vec::<T>(&stream)).transpose()?;
            assert_eq!(sum.is_some(), with_residual);
            let Accumulated { value: want, magnitude: scale } =
                norm_oracle(kind, &exact(&sum.unwrap_or(x)), [&weights, &biases]);
            let largest = |values: &[f64]| values.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
            let what = format!("{kind:?} {} {sides:?} {lying:?} {with_residual}", <T as Element>::DTYPE);
            // Before it is rounded to e4m3 the result is an f32, whatever the rows are.
            let limit = tolerance::find(&format!("{} f32", kind.name())).for_terms(columns);
            let amax = [largest(&want)];
            compare::accumulated(&what, &[got.amax], &amax, &[largest(&scale)], &[1], limit)?;
            let most = f64::from(E4M3::MAX);
            let want: Vec<f64> = want.iter().map(|v| (v * f64::from(SCALE)).clamp(-most, most)).collect();
            let scale: Vec<f64> = scale.iter().map(|v| v * f64::from(SCALE)).collect();
            compare::rounded(&what, &got.y, &want, &scale, &sides, limit)?;
            let again = run(norm, &stream, &of_x, with_residual.then_some(&of_residual))?;
            compare::bitwise_equal(&what, &got.y, &again.y)?;
            compare::bitwise_equal(&what, &[got.amax], &[again.amax])?;
        }
    }
    Ok(())
}

tests!(agrees: f32_agrees = f32, f16_agrees = f16, bf16_agrees = bf16);

/// Rows of hostile numbers: what the norm makes of them, and the conversion. f32 has no rounding between
/// the two, so they are the same bits.
#[test]
fn results_are_those_of_norm_product_and_conversion() -> Outcome {
    let stream = stream()?;
    let factor = Tensor::from_slice(&stream, &[1], &[SCALE])?;
    for (seed, sides @ [rows, columns]) in
        [[0, 8], [3, 0], [5, 1], [9, 31], [9, 32], [9, 33], [6, 1000], [6, 1002], [3, 4096], [2, 50_257]]
            .into_iter()
            .enumerate()
    {
        let mut x: Vec<f32> = input(Family::HugeTiny, seed as u64, rows * columns);
        for (number, row) in x.chunks_mut(columns.max(1)).enumerate() {
            let last = row.len() - 1;
            match number {
                1 => row.fill(3.0),
                3 => row[last] = f32::NAN,
                4 => row[last / 2] = f32::NEG_INFINITY,
                5 => row.fill(0.0),
                _ => {}
            }
        }
        let residual = input::<f32>(Family::Normal, seed as u64 + 50, rows * columns);
        let x = Tensor::from_slice(&stream, &sides, &x)?;
        let residual = Tensor::from_slice(&stream, &sides, &residual)?;
        for kind in KINDS {
            let norm = plain(kind);
            for residual in [None, Some(&residual)] {
                // Norms with rows in registers add in another order.
                let is_in_registers = residual.is_none() && [1000, 4096].contains(&columns);
                if kind == NormKind::Layer && is_in_registers {
                    continue;
                }
                let want = match residual {
                    Some(residual) => norm.add_and_run(&stream, &x, residual, true)?,
                    None => norm.run_for_gradient(&stream, &x)?,
                };
                let got = run(norm, &stream, &x, residual)?;
                let what = format!("{kind:?} {sides:?} {}", residual.is_some());
                let scaled = (&want.y * &factor)?;
                let values = convert(&stream, &scaled, DType::F8E4M3)?.to_vec::<E4M3>(&stream)?;
                compare::bitwise_equal(&what, &got.y, &values)?;
                let largest = want.y.to_vec::<f32>(&stream)?.into_iter().fold(0.0, |most: f32, value| {
                    if value.is_nan() || most.is_nan() { f32::NAN } else { most.max(value.abs()) }
                });
                let is_same = got.amax == largest || got.amax.is_nan() && largest.is_nan();
                assert!(is_same, "{what}: amax is {} and not {largest}", got.amax);
                for (got, want) in [(&got.normed.sum, &want.sum), (&got.normed.moments, &want.moments)] {
                    let bits =
                        |of: &Option<Tensor>| of.as_ref().map(|of| of.to_vec::<f32>(&stream)).transpose();
                    let (got, want) = (bits(got)?.unwrap_or_default(), bits(want)?.unwrap_or_default());
                    compare::bitwise_equal(&what, &got, &want)?;
                }
            }
        }
    }
    Ok(())
}

/// A norm is infinite where its root is 0 only; the conversion makes that the largest number.
#[test]
fn infinity_becomes_the_largest_number_and_amax_is_only_raised() -> Outcome {
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, &[1, 2], &[1.0f32, -1.0])?;
    let weight = Tensor::from_slice(&stream, &[2], &[f32::INFINITY, 2.0])?;
    let norm = Norm { weight: Some(&weight), eps: 0.0, ..plain(NormKind::Rms) };
    let codes = |y: &Tensor| {
        Ok::<_, Error>(y.to_vec::<E4M3>(&stream)?.into_iter().map(E4M3::to_f32).collect::<Vec<_>>())
    };
    // Without a factor it is 1.
    assert_eq!(codes(&norm.to_e4m3().run(&stream, &x)?.y)?, [448.0, -2.0]);
    let scale = DeviceBuffer::from_slice(&stream, &[0.5f32])?;
    let largest = |amax: f32| {
        let mut amax = DeviceBuffer::from_slice(&stream, &[amax])?;
        let y = norm.to_e4m3().scale_result(&scale).amax(&mut amax).run(&stream, &x)?.y;
        assert_eq!(codes(&y)?, [448.0, -1.0]);
        Ok::<_, Error>(amax.to_vec(&stream)?[0])
    };
    assert_eq!(largest(7.0)?, f32::INFINITY);
    // NaN is above all.
    assert!(largest(f32::NAN)?.is_nan());
    let weight = Tensor::from_slice(&stream, &[2], &[1.0f32, 2.0])?;
    let norm = Norm { weight: Some(&weight), ..norm };
    for (before, after) in [(0.0, 2.0), (7.0, 7.0)] {
        let mut amax = DeviceBuffer::from_slice(&stream, &[before])?;
        let _ = norm.to_e4m3().amax(&mut amax).run(&stream, &x)?;
        assert_eq!(amax.to_vec(&stream)?, [after]);
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let x = Tensor::zeros(&stream, &[2, 3], DType::F32)?;
    let (two, mut three) =
        (DeviceBuffer::<f32>::zeroed(&stream, 2)?, DeviceBuffer::<f32>::zeroed(&stream, 3)?);
    let norm = plain(NormKind::Layer);
    let error = norm.to_e4m3().scale_result(&two).run(&stream, &x).expect_err("two factors");
    assert!(matches!(error, Error::Length { what: "scale_result", expected: 1, got: 2, .. }), "{error}");
    let error = norm.to_e4m3().amax(&mut three).run(&stream, &x).expect_err("three places");
    assert!(matches!(error, Error::Length { what: "amax", expected: 1, got: 3, .. }), "{error}");
    let long = Tensor::zeros(&stream, &[2, 3], DType::F64)?;
    let error = norm.to_e4m3().run(&stream, &long).expect_err("no kernel of f64");
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { what: "x", .. })), "{error}");
    let error = norm.to_e4m3().add_and_run(&stream, &x, &long, false).expect_err("another type");
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { what: "residual", .. })), "{error}");
    Ok(())
}
