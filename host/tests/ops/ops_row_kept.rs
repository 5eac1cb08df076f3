//! Layer norms with a weight and a bias, whose rows may lie in registers: full threads and others, several
//! rows a block, clusters; hostile values, moments, repeats, and what another engine takes.

use crate::common::{Outcome, is_hopper, stream, tests};
use crate::lying::{Lying, exact};
use crate::norms::{EPS, plain};
use half::{bf16, f16};
use ironwarp::Tensor;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{Norm, NormKind};
use ironwarp::tensor::Element;
use reference::elementwise::gelu_tanh;
use reference::row::{Row, find};
use rows::plan::{KEPT_RESIDENT, KEPT_WARPS};
use testkit::{Family, compare, input, tolerance};

/// Rows and columns: one warp a row, with vectors for all lanes and not, which is for activations; several;
/// clusters, of whose blocks the last has less; rows that are no whole vectors.
const SHAPES: [[usize; 2]; 9] =
    [[1, 1024], [17, 768], [9, 1000], [19, 2048], [3, 4099], [8, 5120], [10, 9208], [9, 16_384], [2, 65_528]];

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for (seed, sides @ [rows, columns]) in SHAPES.into_iter().enumerate() {
        let shared = |seed| input::<T>(Family::Normal, seed, columns);
        let (weights, biases) = (shared(100), shared(101));
        let lies = |values: &[T]| Tensor::from_slice(&stream, &[columns], values);
        let (weight, bias) = (lies(&weights)?, lies(&biases)?);
        // Short rows have an activation. This one rounds nothing.
        let (activation, of_value) = match columns {
            ..=1024 => (Activation::Relu, reference::activation::Activation::Relu),
            _ => (Activation::None, reference::activation::Activation::Identity),
        };
        let norm = Norm { weight: Some(&weight), bias: Some(&bias), activation, ..plain(NormKind::Layer) };
        let limit = tolerance::find(&format!("layer_norm {}", <T as Element>::DTYPE)).for_terms(columns);
        for family in [Family::Normal, Family::Special, Family::Cancelling, Family::Subnormal] {
            let values: Vec<T> = input(family, seed as u64, rows * columns);
            let (mut want, mut scale) = (Vec::new(), Vec::new());
            let (weight, bias) = (exact(&weights), exact(&biases));
            for x in exact(&values).chunks(columns) {
                let of_row =
                    find("layer_norm")(&Row { x, weight: Some(&weight), bias: Some(&bias), eps: EPS });
                want.extend(of_row.value.into_iter().map(|value| of_value.value(value)));
                scale.extend(of_row.magnitude);
            }
            for &lying in Lying::of(columns) {
                let x = lying.matrix(&stream, sides, &values)?;
                let normed = norm.run_for_gradient(&stream, &x)?;
                let (what, got) = (format!("{family:?} {sides:?} {lying:?}"), normed.y.to_vec::<T>(&stream)?);
                compare::accumulated(&what, &got, &want, &scale, &sides, limit)?;
                let again = norm.run_for_gradient(&stream, &x)?;
                compare::bitwise_equal(&what, &got, &again.y.to_vec::<T>(&stream)?)?;
                let moments = |of: Option<Tensor>| of.expect("a pass for a gradient").to_vec::<f32>(&stream);
                let (got, again) = (moments(normed.moments)?, moments(again.moments)?);
                compare::bitwise_equal(&what, &got, &again)?;
                if family == Family::Normal {
                    of_rows_agree(&exact(&values), columns, &got);
                }
            }
        }
    }
    Ok(())
}

/// Moments beside those of f64.
fn of_rows_agree(values: &[f64], columns: usize, moments: &[f32]) {
    let (means, factors) = moments.split_at(values.len() / columns);
    for ((x, mean), factor) in values.chunks(columns).zip(means).zip(factors) {
        let of = |terms: &dyn Fn(f64) -> f64| x.iter().map(|&x| terms(x)).sum::<f64>() / columns as f64;
        let want = of(&|x| x);
        let deviation = (of(&|x| (x - want) * (x - want)) + EPS).sqrt();
        assert!(
            (f64::from(*mean) - want).abs() < 1e-6 * deviation,
            "a mean of {columns}: {mean}, not {want}"
        );
        assert!((f64::from(*factor) * deviation - 1.0).abs() < 1e-6, "an inverse of {columns}");
    }
}

tests!(agrees: f32_agrees = f32, f16_agrees = f16, bf16_agrees = bf16);

#[test]
fn rows_of_equal_numbers_have_them_as_their_mean() -> Outcome {
    if !is_hopper()? {
        return Ok(());
    }
    let stream = stream()?;
    for columns in [2048, 3072, 9216] {
        let weight = Tensor::from_slice(&stream, &[columns], &vec![2.0f32; columns])?;
        let bias = Tensor::from_slice(&stream, &[columns], &vec![0.5f32; columns])?;
        let norm = Norm { weight: Some(&weight), bias: Some(&bias), ..plain(NormKind::Layer) };
        for value in [3.0, 1000.0 / 3.0, 1e15] {
            let x = Tensor::from_slice(&stream, &[2, columns], &vec![value as f32; 2 * columns])?;
            let normed = norm.run_for_gradient(&stream, &x)?;
            let y = normed.y.to_vec::<f32>(&stream)?;
            // Where the mean is exact there is nothing left but the bias.
            assert!(y.iter().all(|y| *y == 0.5), "{columns} of {value}");
            let moments = normed.moments.expect("a pass for a gradient").to_vec::<f32>(&stream)?;
            assert_eq!(moments[..2], [value as f32; 2], "{columns} of {value}");
        }
    }
    Ok(())
}

/// Rows, sums and moments by rows of a pass.
type Passed<T> = (Vec<T>, Option<Vec<T>>, [Vec<f32>; 2]);

fn passed<T: Element>(norm: &Norm<'_>, x: &Tensor, has_residual: bool) -> Outcome<Passed<T>> {
    let stream = stream()?;
    let residual = if has_residual { Some(x) } else { None };
    let normed = match residual {
        Some(residual) => norm.add_and_run(&stream, x, residual, true)?,
        None => norm.run_for_gradient(&stream, x)?,
    };
    let moments = normed.moments.ok_or("moments were wanted")?.to_vec::<f32>(&stream)?;
    let (means, factors) = moments.split_at(moments.len() / 2);
    let sum = normed.sum.map(|sum| sum.to_vec::<T>(&stream)).transpose()?;
    Ok((normed.y.to_vec::<T>(&stream)?, sum, [means.to_vec(), factors.to_vec()]))
}

/// As many rows as make blocks take several, one after the other, and one more, which the last block has;
/// beside passes of a row a block.
fn are_the_same_among_many<T: Element + testkit::Element>() -> Outcome {
    let stream = stream()?;
    let warps = stream.device().properties().sm_count * KEPT_RESIDENT * KEPT_WARPS;
    for (columns, most, activation, has_residual) in [
        (1000_usize, 8, Activation::GeluTanh, false),
        (3072, 4, Activation::GeluTanh, false),
        (4096, 2, Activation::None, false),
        (16_384, 2, Activation::None, true),
        (16_384, 8, Activation::GeluTanh, false),
    ] {
        let at_once = (warps as usize / columns.div_ceil(1024)).max(1);
        let rows = most * at_once + 1;
        let shared = Tensor::from_slice(&stream, &[columns], &input::<T>(Family::Normal, 1, columns))?;
        let norm = Norm { weight: Some(&shared), bias: Some(&shared), activation, ..plain(NormKind::Layer) };
        let x =
            Tensor::from_slice(&stream, &[rows, columns], &input::<T>(Family::Normal, 2, rows * columns))?;
        let (y, sum, moments) = passed::<T>(&norm, &x, has_residual)?;
        for first in (0..rows).step_by(at_once) {
            let part = first..rows.min(first + at_once);
            let (what, elements) =
                (format!("{part:?} of {rows} x {columns}"), part.start * columns..part.end * columns);
            let own = passed::<T>(&norm, &x.slice(0, part.clone())?, has_residual)?;
            compare::bitwise_equal(&what, &y[elements.clone()], &own.0)?;
            for (sum, own) in sum.iter().zip(&own.1) {
                compare::bitwise_equal(&what, &sum[elements.clone()], own)?;
            }
            for (moments, own) in moments.iter().zip(&own.2) {
                compare::bitwise_equal(&what, &moments[part.clone()], own)?;
            }
        }
    }
    Ok(())
}

tests!(are_the_same_among_many: f32_is_the_same_among_many = f32, bf16_is_the_same_among_many = bf16);

#[test]
fn activations_residuals_and_weights_that_lie_otherwise() -> Outcome {
    let stream = stream()?;
    for sides @ [rows, columns] in [[10, 1024], [3, 768], [2, 8192], [9, 20_480]] {
        let of = |seed, count| input::<bf16>(Family::Normal, seed, count);
        let (x, residual) = (of(1, rows * columns), of(2, rows * columns));
        let (weights, biases) = (of(3, columns + 1), of(4, columns + 1));
        let lies = |values: &[bf16]| Tensor::from_slice(&stream, &[columns + 1], values);
        let (of_x, of_residual) =
            (Lying::Dense.matrix(&stream, sides, &x)?, Lying::Dense.matrix(&stream, sides, &residual)?);
        let sum = |(x, y): (&bf16, &bf16)| bf16::from_f32(f32::from(*x) + f32::from(*y));
        let sums: Vec<bf16> = x.iter().zip(&residual).map(sum).collect();
        for first in [0, 1] {
            let part = |values: &[bf16]| lies(values)?.slice(0, first..first + columns);
            let (weight, bias) = (part(&weights)?, part(&biases)?);
            let activation = Activation::GeluTanh;
            let norm =
                Norm { weight: Some(&weight), bias: Some(&bias), activation, ..plain(NormKind::Layer) };
            let normed = norm.add_and_run(&stream, &of_x, &of_residual, false)?;
            let kept: Vec<bf16> = normed.sum.expect("a residual was added").to_vec(&stream)?;
            compare::bitwise_equal("sum", &kept, &sums)?;
            let got = [normed.y, norm.run(&stream, &of_x)?.y];
            for (values, got) in [&sums, &x].into_iter().zip(got) {
                let (mut want, mut scale) = (Vec::new(), Vec::new());
                let (weight, bias) = (exact(&weights[first..]), exact(&biases[first..]));
                for x in exact(values).chunks(columns) {
                    let row = Row { x, weight: Some(&weight), bias: Some(&bias), eps: EPS };
                    let of_row = find("layer_norm")(&row);
                    want.extend(of_row.value.into_iter().map(gelu_tanh));
                    scale.extend(of_row.magnitude);
                }
                let limit = tolerance::find("norm and activation bf16").for_terms(columns);
                let got: Vec<bf16> = got.to_vec(&stream)?;
                compare::accumulated(&format!("{sides:?} {first}"), &got, &want, &scale, &sides, limit)?;
            }
        }
    }
    Ok(())
}
