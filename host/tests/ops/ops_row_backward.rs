//! Gradients of functions of rows against their oracles, and what is fused to norms.

use crate::common::{Outcome, stream, tests};
use crate::lying::{Lying, exact};
use crate::norms::{EPS, backward, plain};
use half::{bf16, f16};
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{
    Affine, Norm, NormBackward, NormKind, RowOp, log_softmax_backward, row, softmax_backward,
};
use ironwarp::tensor::Element;
use ironwarp::{Error, Stream, Tensor, TensorError};
use reference::elementwise::{gelu, gelu_tanh, silu};
use reference::row::{Row, find, norm_backward, softmax_backward as softmax_oracle};
use rows::plan::{EXCHANGES, Plan, STAY_STAGES, Shape};
use testkit::{Family, compare, input, tolerance};

/// No rows; rows of a few lanes, a warp, several warps, a block; parts of rows in a cluster; rows that begin
/// anywhere in a vector; more rows than the blocks of a device take at once; one row; rows too long for rings
/// of lanes; sums of which lanes have vectors, in the last warp not all of them.
pub const SHAPES: [[usize; 2]; 20] = [
    [0, 8],
    [3, 1],
    [5, 2],
    [300, 32],
    [7, 33],
    [90, 256],
    [5, 257],
    [40, 768],
    [6, 1000],
    [60, 3592],
    [9, 4096],
    [3, 9001],
    [3, 12_288],
    [2, 40_960],
    [40, 2552],
    [21, 2560],
    [1, 257],
    [1, 9001],
    [2, 80_000],
    [5, 8204],
];

fn softmax_agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for (seed, sides @ [_, columns]) in SHAPES.into_iter().enumerate() {
        for (op, is_log) in [(RowOp::Softmax, false), (RowOp::LogSoftmax, true)] {
            for &lying in Lying::of(columns) {
                let values: Vec<T> = input(Family::Normal, seed as u64, sides[0] * columns);
                let dy: Vec<T> = input(Family::Normal, seed as u64 + 50, sides[0] * columns);
                let x = lying.matrix(&stream, sides, &values)?;
                let y = row(&stream, op, &x, 1, Affine::default())?;
                let of_y: Vec<T> = y.to_vec(&stream)?;
                let (mut want, mut scale) = (Vec::new(), Vec::new());
                for (y, dy) in exact(&of_y).chunks(columns).zip(exact(&dy).chunks(columns)) {
                    let of_row = softmax_oracle(is_log, y, dy);
                    want.extend(of_row.value);
                    scale.extend(of_row.magnitude);
                }
                let (y, dy) = (lying.matrix(&stream, sides, &of_y)?, lying.matrix(&stream, sides, &dy)?);
                let backward = if is_log { log_softmax_backward } else { softmax_backward };
                let got: Vec<T> = backward(&stream, &y, &dy, 1)?.to_vec(&stream)?;
                let limit = tolerance::find(&format!("softmax_backward {}", <T as Element>::DTYPE));
                let what = format!("{op:?} {sides:?} {lying:?}");
                compare::accumulated(&what, &got, &want, &scale, &sides, limit.for_terms(columns))?;
                let again: Vec<T> = backward(&stream, &y, &dy, 1)?.to_vec(&stream)?;
                compare::bitwise_equal(&what, &got, &again)?;
            }
        }
    }
    Ok(())
}

tests!(softmax_agrees: softmax_of_f32 = f32, softmax_of_f16 = f16, softmax_of_bf16 = bf16);

/// Operands of a norm's gradient.
struct Case<T> {
    sides: [usize; 2],
    x: Vec<T>,
    dy: Vec<T>,
    weight: Vec<T>,
    residual: Vec<T>,
}

impl<T: Element + testkit::Element + Into<f64>> Case<T> {
    fn new(family: Family, seed: u64, sides: [usize; 2]) -> Self {
        let all = sides[0] * sides[1];
        Self {
            sides,
            x: input(family, seed, all),
            dy: input(Family::Normal, seed + 50, all),
            weight: input(Family::Normal, seed + 100, sides[1]),
            residual: input(Family::Normal, seed + 150, all),
        }
    }

    fn agrees(&self, stream: &Stream, kind: NormKind, lying: Lying, with_residual: bool) -> Outcome {
        let (sides, [rows, columns]) = (self.sides, self.sides);
        let matrix = |values: &[T]| lying.matrix(stream, sides, values);
        let weight = Tensor::from_slice(stream, &[columns], &self.weight)?;
        let (x, dy, residual) = (matrix(&self.x)?, matrix(&self.dy)?, matrix(&self.residual)?);
        let norm = Norm { weight: Some(&weight), ..plain(kind) };
        let moments = norm.run_for_gradient(stream, &x)?.moments.expect("a pass for a gradient");
        let (weight, residual) = (Some(&weight), with_residual.then_some(&residual));
        let backward = NormBackward { weight, residual, ..backward(kind, &x, &dy, &moments) };
        let got = backward.run(stream)?;
        let weights = exact(&self.weight);
        let (mut of_x, mut scale) = (Vec::new(), Vec::new());
        let mut sums = [(); 2].map(|()| [vec![0.0; columns], vec![0.0; columns]]);
        let (x, dy, residual) = (exact(&self.x), exact(&self.dy), exact(&self.residual));
        for first in (0..rows * columns).step_by(columns) {
            let range = first..first + columns;
            let row = Row { x: &x[range.clone()], weight: Some(&weights), bias: None, eps: EPS };
            let of_row = norm_backward(kind == NormKind::Layer, &row, &dy[range]);
            let added = |i: usize| if with_residual { residual[first + i] } else { 0.0 };
            of_x.extend(of_row.x.value.iter().enumerate().map(|(i, v)| v + added(i)));
            scale.extend(of_row.x.magnitude.iter().enumerate().map(|(i, v)| v + added(i).abs()));
            for i in 0..columns {
                sums[0][0][i] += of_row.weight.value[i];
                sums[0][1][i] += of_row.weight.magnitude[i];
                sums[1][0][i] += dy[first + i];
                sums[1][1][i] += dy[first + i].abs();
            }
        }
        let what = format!("{kind:?} {sides:?} {lying:?} {with_residual}");
        let limit = tolerance::find(&format!("norm_backward {}", <T as Element>::DTYPE)).for_terms(columns);
        let values: Vec<T> = got.x.to_vec(stream)?;
        compare::accumulated(&what, &values, &of_x, &scale, &sides, limit)?;
        let limit = tolerance::find(&format!("norm_backward_sums {}", <T as Element>::DTYPE)).for_terms(rows);
        let again = backward.run(stream)?;
        compare::bitwise_equal(&what, &values, &again.x.to_vec::<T>(stream)?)?;
        for (i, of) in ["weight", "bias"].into_iter().enumerate() {
            let pick = |gradients: &ironwarp::ops::row::NormGradients| {
                let of = if i == 0 { &gradients.weight } else { &gradients.bias };
                of.as_ref().expect("both are wanted").to_vec::<T>(stream)
            };
            let (what, values) = (format!("{what} {of}"), pick(&got)?);
            let [want, scale] = &sums[i];
            compare::accumulated(&what, &values, want, scale, &[columns], limit)?;
            compare::bitwise_equal(&what, &values, &pick(&again)?)?;
        }
        Ok(())
    }
}

fn norms_agree<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    for (seed, sides) in SHAPES.into_iter().enumerate() {
        for kind in [NormKind::Layer, NormKind::Rms] {
            for &lying in Lying::of(sides[1]) {
                let case = Case::<T>::new(Family::Normal, seed as u64, sides);
                case.agrees(&stream, kind, lying, seed % 2 == 0)?;
            }
        }
        if sides[1] > 1 {
            let case = Case::<T>::new(Family::Cancelling, seed as u64, sides);
            case.agrees(&stream, NormKind::Rms, Lying::Dense, false)?;
        }
    }
    Ok(())
}

tests!(norms_agree: norms_of_f32 = f32, norms_of_f16 = f16, norms_of_bf16 = bf16);

/// Rows of which each team of any device has so many that lanes fill the stages of their rings again, and
/// warps use the places of exchanges again: one team a block and several, clusters, rows that begin anywhere.
fn rings_go_round<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let multiprocessors = stream.device().properties().sm_count;
    for (columns, with_residual) in
        [(264, false), (257, true), (2555, true), (6001, false), (2560, false), (2560, true)]
            .into_iter()
            .chain([(32_776, false), (32_770, true)])
            // Three vectors a lane; clusters of two and of four, whose blocks have fewer warps than places.
            .chain([(760, false), (760, true), (256, true), (8200, false), (16_392, true)])
    {
        let stride = columns as u64;
        let shape = Shape {
            rows: u64::from(u32::MAX >> 1),
            columns: columns as u32,
            size: size_of::<T>(),
            inputs: 2 + u32::from(with_residual),
            shared: 1,
            input_strides: [stride; 3],
            output_strides: [stride, 0],
        };
        let plan = Plan::staying(&shape, multiprocessors).expect("rows that a cluster has");
        // A cluster orders its exchanges before it writes places again, and once in a while then.
        let exchanges = if plan.cluster > 1 { plan.tiles + plan.tiles / 2 } else { EXCHANGES };
        let rows = plan.step * (STAY_STAGES + exchanges) + 1;
        let case = Case::<T>::new(Family::Normal, 7, [rows as usize, columns]);
        case.agrees(&stream, NormKind::Layer, Lying::Dense, with_residual)?;
    }
    Ok(())
}

tests!(
    rings_go_round:
        rings_go_round_in_f32 = f32,
        rings_go_round_in_f16 = f16,
        rings_go_round_in_bf16 = bf16
);

/// The gradient by `x` alone, and by one of both that rows share, are the same bits as with all of them.
#[test]
fn gradients_that_are_not_wanted_are_left_out() -> Outcome {
    let stream = stream()?;
    for sides in [[40, 768], [5, 257]] {
        let case = Case::<bf16>::new(Family::Normal, 1, sides);
        let x = Tensor::from_slice(&stream, &sides, &case.x)?;
        let dy = Tensor::from_slice(&stream, &sides, &case.dy)?;
        let kind = NormKind::Layer;
        let norm = plain(kind);
        let moments = norm.run_for_gradient(&stream, &x)?.moments.expect("a pass for a gradient");
        let of = |of_shared| NormBackward { of_shared, ..backward(kind, &x, &dy, &moments) }.run(&stream);
        let (both, weight, none) = (of([true, true])?, of([true, false])?, of([false, false])?);
        let bits = |tensor: &Option<Tensor>| {
            tensor.as_ref().map(|tensor| tensor.to_vec::<bf16>(&stream)).transpose()
        };
        assert_eq!(bits(&both.weight)?, bits(&weight.weight)?);
        assert!(both.bias.is_some() && weight.bias.is_none() && none.weight.is_none());
        let (all, alone) = (both.x.to_vec::<bf16>(&stream)?, none.x.to_vec::<bf16>(&stream)?);
        let near =
            |a: &bf16, b: &bf16| (f32::from(*a) - f32::from(*b)).abs() <= 0.01 * f32::from(*b).abs() + 1e-3;
        assert!(all.iter().zip(&alone).all(|(a, b)| near(a, b)));
    }
    Ok(())
}

/// A row of one value has variance 0: its gradient is 0 times a large factor.
fn constant_rows_have_no_gradient<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    // Of the last one the product with the factor is more than an f32 holds, in bf16.
    for value in [3.0, -1000.0, 60_032.0, 1e6, f64::from(f32::MAX) / 64.0] {
        let value = T::from_f64(value);
        let is_f32 = size_of::<T>() == 4;
        // In f32 zeros beside a row, less the mean, times the factor would be infinite.
        if !value.into().is_finite() || is_f32 && value.into() > 1e30 {
            continue;
        }
        for columns in [32, 256, 768, 1000, 1001, 1200, 2560, 4096, 8200] {
            let sides = [2, columns];
            let x = Tensor::from_slice(&stream, &sides, &vec![value; 2 * columns])?;
            let dy = Tensor::from_slice(&stream, &sides, &vec![T::from_f64(1.0); 2 * columns])?;
            // By hand: sums of the largest numbers are more than an f32 holds.
            let factor = EPS.sqrt().recip() as f32;
            let mean = value.into() as f32;
            let moments = Tensor::from_slice(&stream, &[2, 2], &[mean, mean, factor, factor])?;
            let gradients = backward(NormKind::Layer, &x, &dy, &moments).run(&stream)?;
            let what = format!("{mean} of {columns} columns");
            let all = |tensor: &Tensor, is: &dyn Fn(f64) -> bool| -> Outcome {
                let values = exact(&tensor.to_vec::<T>(&stream)?);
                assert!(values.iter().all(|&value| is(value)), "{what}: {:?}", &values[..3]);
                Ok(())
            };
            // In 16 bits some of the mean times the factor is left, which is rounded, but of large ones.
            let ratio = f64::from(mean) * f64::from(factor);
            let is_rounded = !is_f32 && ratio.abs() < 1.1 * 2f64.powi(20);
            let left = if is_rounded { ratio.abs() * f64::from(f32::EPSILON) } else { 0.0 };
            all(&gradients.x, &|v| v.abs() <= f64::from(factor) * (left * left + 1e-5))?;
            all(&gradients.weight.expect("wanted"), &|v| v.abs() <= 2.0 * left)?;
            all(&gradients.bias.expect("wanted"), &|v| v == 2.0)?;
        }
    }
    Ok(())
}

tests!(
    constant_rows_have_no_gradient:
        constant_rows_of_f32_have_no_gradient = f32,
        constant_rows_of_f16_have_no_gradient = f16,
        constant_rows_of_bf16_have_no_gradient = bf16
);

#[test]
fn residual_and_activation_are_fused() -> Outcome {
    let stream = stream()?;
    for sides @ [rows, columns] in [[7, 33], [40, 768], [3, 9001], [2, 40_960]] {
        let x: Vec<bf16> = input(Family::Normal, 1, rows * columns);
        let residual: Vec<bf16> = input(Family::Normal, 2, rows * columns);
        let (weights, biases): (Vec<bf16>, Vec<bf16>) =
            (input(Family::Normal, 3, columns), input(Family::Normal, 4, columns));
        let shared = |values: &[bf16]| Tensor::from_slice(&stream, &[columns], values);
        let (weight, bias) = (shared(&weights)?, shared(&biases)?);
        for &lying in Lying::of(columns) {
            let (of_x, of_residual) =
                (lying.matrix(&stream, sides, &x)?, lying.matrix(&stream, sides, &residual)?);
            for (kind, activation, function) in [
                (NormKind::Layer, Activation::Gelu, gelu as fn(f64) -> f64),
                (NormKind::Layer, Activation::GeluTanh, gelu_tanh),
                (NormKind::Rms, Activation::Silu, silu),
            ] {
                let norm = Norm { kind, weight: Some(&weight), bias: Some(&bias), eps: EPS, activation };
                let normed = norm.add_and_run(&stream, &of_x, &of_residual, true)?;
                let sum: Vec<bf16> = normed.sum.expect("a residual was added").to_vec(&stream)?;
                let added = |(x, y): (&bf16, &bf16)| bf16::from_f32(f32::from(*x) + f32::from(*y));
                compare::bitwise_equal("sum", &sum, &x.iter().zip(&residual).map(added).collect::<Vec<_>>())?;
                let (mut want, mut scale) = (Vec::new(), Vec::new());
                for x in exact(&sum).chunks(columns) {
                    let (weight, bias) = (exact(&weights), exact(&biases));
                    let row = Row { x, weight: Some(&weight), bias: Some(&bias), eps: EPS };
                    let of_row = find(kind.name())(&row);
                    want.extend(of_row.value.into_iter().map(function));
                    scale.extend(of_row.magnitude);
                }
                let limit = tolerance::find("norm and activation bf16").for_terms(columns);
                let what = format!("{activation:?} {sides:?} {lying:?}");
                let got: Vec<bf16> = normed.y.to_vec(&stream)?;
                compare::accumulated(&what, &got, &want, &scale, &sides, limit)?;
            }
        }
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize]| Tensor::zeros(&stream, shape, ironwarp::DType::F32);
    let (x, short) = (zeros(&[2, 3])?, zeros(&[3])?);
    let is = |error: Error, kind: fn(&TensorError) -> bool| assert!(error.tensor_error().is_some_and(kind));
    is(softmax_backward(&stream, &x, &short, 1).expect_err("another shape"), |e| {
        matches!(e, TensorError::Shape { what: "dy", .. })
    });
    is(softmax_backward(&stream, &x, &x, 2).expect_err("no such axis"), |e| {
        matches!(e, TensorError::Axis { .. })
    });
    let kind = NormKind::Layer;
    let norm = Norm { activation: Activation::SwiGlu, ..plain(kind) };
    let error = norm.run(&stream, &x).expect_err("two values");
    assert!(matches!(error, Error::InvalidArgument { argument: "activation", .. }), "{error}");
    let norm = Norm { activation: Activation::None, ..norm };
    is(norm.add_and_run(&stream, &x, &short, false).expect_err("another shape"), |e| {
        matches!(e, TensorError::Shape { what: "residual", .. })
    });
    let moments = norm.run_for_gradient(&stream, &x)?.moments.expect("a pass for a gradient");
    let backward = backward(kind, &x, &x, &moments);
    is(NormBackward { dy: &short, ..backward }.run(&stream).expect_err("another shape"), |e| {
        matches!(e, TensorError::Shape { what: "dy", .. })
    });
    is(NormBackward { moments: &short, ..backward }.run(&stream).expect_err("another shape"), |e| {
        matches!(e, TensorError::Shape { what: "moments", .. })
    });
    is(NormBackward { weight: Some(&moments), ..backward }.run(&stream).expect_err("another shape"), |e| {
        matches!(e, TensorError::Shape { what: "weight", .. })
    });
    Ok(())
}
