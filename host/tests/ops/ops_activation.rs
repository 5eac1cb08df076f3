//! Gradients of activations, biases and gated activations against the oracle.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::activation::{
    ActivationFunction, GateOrder, activation_backward, activation_backward_with_bias, gated, gated_backward,
    gated_backward_with_bias,
};
use ironwarp::tensor::Element;
use ironwarp::{DType, Error, Tensor, TensorError};
use reference::Accumulated;
use reference::activation::{Activation, column_sums};
use testkit::{Family, compare, input, tolerance};

const ALL: [(ActivationFunction, Activation); 7] = [
    (ActivationFunction::Identity, Activation::Identity),
    (ActivationFunction::Relu, Activation::Relu),
    (ActivationFunction::Gelu, Activation::Gelu),
    (ActivationFunction::GeluTanh, Activation::GeluTanh),
    (ActivationFunction::Silu, Activation::Silu),
    (ActivationFunction::Sigmoid, Activation::Sigmoid),
    (ActivationFunction::Tanh, Activation::Tanh),
];

/// Rows and columns of results: one thread a row, some, a block, several; one part of rows, and several.
const SHAPES: [[usize; 2]; 7] = [[0, 8], [3, 0], [5, 1], [70, 6], [33, 64], [9, 1100], [2, 2052]];

fn wide<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
    values.iter().map(|&v| v.into()).collect()
}

struct Limits(&'static str);

impl Limits {
    fn elements<T: testkit::Element>(&self, what: &str, got: &[T], want: &Accumulated) -> Outcome {
        let limit = tolerance::find(&format!("activation_gradient {}", self.0)).tolerance();
        compare::accumulated(what, got, &want.value, &want.magnitude, &[got.len()], limit)?;
        Ok(())
    }

    fn sums<T: testkit::Element>(&self, what: &str, got: &[T], want: &Accumulated, rows: usize) -> Outcome {
        let limit = tolerance::find(&format!("activation_bias {}", self.0)).for_terms(rows);
        compare::accumulated(what, got, &want.value, &want.magnitude, &[got.len()], limit)?;
        Ok(())
    }
}

fn agrees<T: Element + testkit::Element + Copy + Into<f64>>(limits: &Limits) -> Outcome {
    let stream = stream()?;
    for (seed, [rows, columns]) in SHAPES.into_iter().enumerate() {
        let [x, dy]: [Vec<T>; 2] =
            [1, 2].map(|i| input(Family::Normal, 10 * i + seed as u64, rows * columns));
        let tensor = |values: &[T]| Tensor::from_slice(&stream, &[rows, columns], values);
        let (given, by) = (tensor(&x)?, tensor(&dy)?);
        let bits = |x: &Tensor| x.to_vec::<T>(&stream);
        for (function, of) in ALL {
            let what = format!("{of:?} {} {rows}x{columns}", <T as Element>::DTYPE);
            let want = of.backward(&wide(&x), &wide(&dy));
            let dx = activation_backward(&stream, function, &given, &by)?;
            limits.elements(&what, &bits(&dx)?, &want)?;
            let (again, bias) = activation_backward_with_bias(&stream, function, &given, &by)?;
            compare::bitwise_equal(&what, &bits(&again)?, &bits(&dx)?)?;
            limits.sums(&what, &bits(&bias)?, &column_sums(&want, columns), rows)?;
            let (_, same) = activation_backward_with_bias(&stream, function, &given, &by)?;
            compare::bitwise_equal(&what, &bits(&same)?, &bits(&bias)?)?;
            assert_eq!((dx.shape(), bias.shape().sides()), (given.shape(), &[columns][..]));
        }
    }
    Ok(())
}

/// Gates and values of rows in one order, and the other way round.
fn rows_of<T: Copy>(order: GateOrder, parts: [&[T]; 2], columns: usize) -> Vec<T> {
    let [gates, values] = parts.map(|part| part.chunks(columns.max(1)));
    gates
        .zip(values)
        .flat_map(|(gates, values)| match order {
            GateOrder::Halves => [gates, values].concat(),
            GateOrder::Neighbours => gates.iter().zip(values).flat_map(|(&g, &v)| [g, v]).collect(),
        })
        .collect()
}

fn gated_agrees<T: Element + testkit::Element + Copy + Into<f64>>(limits: &Limits) -> Outcome {
    let stream = stream()?;
    for (seed, [rows, columns]) in SHAPES.into_iter().enumerate() {
        let [gates, values, dy]: [Vec<T>; 3] =
            [1, 2, 3].map(|i| input(Family::Normal, 10 * i + seed as u64, rows * columns));
        let by = Tensor::from_slice(&stream, &[rows, columns], &dy)?;
        for (function, of) in ALL {
            let (g, v) = (wide(&gates), wide(&values));
            let y = of.gated(&g, &v);
            let y = Accumulated { magnitude: y.iter().map(|y| y.abs()).collect(), value: y };
            let [by_gates, by_values] = of.gated_backward(&g, &v, &wide(&dy));
            for order in [GateOrder::Halves, GateOrder::Neighbours] {
                let what = format!("{of:?} {order:?} {} {rows}x{columns}", <T as Element>::DTYPE);
                let together = |parts: [&Vec<f64>; 2]| rows_of(order, parts.map(|x| &x[..]), columns);
                let x = rows_of(order, [&gates, &values], columns);
                let x = Tensor::from_slice(&stream, &[rows, 2 * columns], &x)?;
                let got: Vec<T> = gated(&stream, function, order, &x)?.to_vec(&stream)?;
                limits.elements(&what, &got, &y)?;
                let want = Accumulated {
                    value: together([&by_gates.value, &by_values.value]),
                    magnitude: together([&by_gates.magnitude, &by_values.magnitude]),
                };
                let dx = gated_backward(&stream, function, order, &x, &by)?;
                let got: Vec<T> = dx.to_vec(&stream)?;
                limits.elements(&what, &got, &want)?;
                let (again, bias) = gated_backward_with_bias(&stream, function, order, &x, &by)?;
                compare::bitwise_equal(&what, &again.to_vec::<T>(&stream)?, &got)?;
                let sums = column_sums(&want, 2 * columns);
                limits.sums(&what, &bias.to_vec::<T>(&stream)?, &sums, rows)?;
            }
        }
    }
    Ok(())
}

#[test]
fn of_f32() -> Outcome {
    agrees::<f32>(&Limits("f32"))
}

#[test]
fn of_f16() -> Outcome {
    agrees::<f16>(&Limits("f16"))
}

#[test]
fn of_bf16() -> Outcome {
    agrees::<bf16>(&Limits("bf16"))
}

#[test]
fn gated_f32() -> Outcome {
    gated_agrees::<f32>(&Limits("f32"))
}

#[test]
fn gated_f16() -> Outcome {
    gated_agrees::<f16>(&Limits("f16"))
}

#[test]
fn gated_bf16() -> Outcome {
    gated_agrees::<bf16>(&Limits("bf16"))
}

/// From the results of the forward pass, which are all that a program may have kept.
#[test]
fn from_results() -> Outcome {
    let stream = stream()?;
    let (x, dy): (Vec<f32>, Vec<f32>) = (input(Family::Normal, 1, 300), input(Family::Normal, 2, 300));
    let by = Tensor::from_slice(&stream, &[300], &dy)?;
    for (function, of) in [
        (ActivationFunction::SigmoidOfResult, Activation::Sigmoid),
        (ActivationFunction::TanhOfResult, Activation::Tanh),
        (ActivationFunction::Relu, Activation::Relu),
    ] {
        let y: Vec<f32> = x.iter().map(|&x| of.value(f64::from(x)) as f32).collect();
        let y = Tensor::from_slice(&stream, &[300], &y)?;
        let got: Vec<f32> = activation_backward(&stream, function, &y, &by)?.to_vec(&stream)?;
        let want = of.backward(&wide(&x), &wide(&dy));
        // A result that is near 1 keeps few digits of its distance.
        let magnitude: Vec<f64> = dy.iter().map(|&dy| f64::from(dy).abs()).collect();
        Limits("f32").elements(&format!("{of:?}"), &got, &Accumulated { magnitude, ..want })?;
    }
    Ok(())
}

/// Rows that begin at odd elements, are apart, or are columns of another tensor.
#[test]
fn places_and_layouts() -> Outcome {
    let stream = stream()?;
    let (rows, columns) = (37, 20);
    let values: Vec<bf16> = input(Family::Normal, 1, rows * (columns + 3));
    let all = Tensor::from_slice(&stream, &[rows, columns + 3], &values)?;
    let apart = all.slice(1, 3..)?;
    let turned = Tensor::from_slice(&stream, &[columns, rows], &values[..rows * columns])?.t()?;
    let dense = |x: &Tensor| -> Result<Tensor, Error> {
        Tensor::from_slice(&stream, x.shape().sides(), &x.to_vec::<bf16>(&stream)?)
    };
    let bits = |x: &Tensor| x.to_vec::<bf16>(&stream);
    let function = ActivationFunction::Silu;
    for (x, dy) in [(&apart, &turned), (&turned, &apart)] {
        let (dx, bias) = activation_backward_with_bias(&stream, function, x, dy)?;
        let (want, sums) = activation_backward_with_bias(&stream, function, &dense(x)?, &dense(dy)?)?;
        compare::bitwise_equal("rows", &bits(&dx)?, &bits(&want)?)?;
        compare::bitwise_equal("bias", &bits(&bias)?, &bits(&sums)?)?;
        for order in [GateOrder::Halves, GateOrder::Neighbours] {
            let half = dy.slice(1, ..columns / 2)?;
            let (dx, bias) = gated_backward_with_bias(&stream, function, order, x, &half)?;
            let (want, sums) =
                gated_backward_with_bias(&stream, function, order, &dense(x)?, &dense(&half)?)?;
            compare::bitwise_equal("gated rows", &bits(&dx)?, &bits(&want)?)?;
            compare::bitwise_equal("bias of gated rows", &bits(&bias)?, &bits(&sums)?)?;
            let y = gated(&stream, function, order, x)?;
            compare::bitwise_equal(
                "forward",
                &bits(&y)?,
                &bits(&gated(&stream, function, order, &dense(x)?)?)?,
            )?;
        }
    }
    Ok(())
}

#[test]
fn hostile_numbers() -> Outcome {
    let stream = stream()?;
    let run = |function, x: f32| -> Result<f32, Error> {
        let (x, dy) = (Tensor::from_slice(&stream, &[1], &[x])?, Tensor::from_slice(&stream, &[1], &[1f32])?);
        activation_backward(&stream, function, &x, &dy)?.item_on(&stream)
    };
    for (function, of) in ALL {
        for x in [f32::INFINITY, f32::NEG_INFINITY, 3e38, -3e38, 1e-40, -1e-40, 0.0] {
            let got = run(function, x)?;
            // The limit, which an infinity times 0 would hide.
            let near = f64::from(x).clamp(-1e3, 1e3);
            let want = of.slope(near)[0];
            assert!((f64::from(got) - want).abs() <= 1e-6, "{function:?} at {x}: {got}, not {want}");
        }
        let of_nan = run(function, f32::NAN)?;
        let is_constant = matches!(of, Activation::Identity | Activation::Relu);
        assert!(of_nan.is_nan() || is_constant, "{function:?}: {of_nan}");
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let (x, half) = (zeros(&[2, 4], DType::F32)?, zeros(&[2, 2], DType::F32)?);
    let is = |error: Error, kind: fn(&TensorError) -> bool| {
        assert!(error.tensor_error().is_some_and(kind), "{error}");
    };
    let silu = ActivationFunction::Silu;
    let of = |x: &Tensor, dy: &Tensor| {
        let error = activation_backward(&stream, silu, x, dy).expect_err("a wrong call");
        let with_bias = activation_backward_with_bias(&stream, silu, x, dy).expect_err("a wrong call");
        assert_eq!(error.to_string(), with_bias.to_string());
        error
    };
    is(of(&x, &half), |e| matches!(e, TensorError::Shape { what: "dy", .. }));
    is(of(&x, &zeros(&[2, 4], DType::BF16)?), |e| matches!(e, TensorError::DType { what: "dy", .. }));
    let whole = zeros(&[2, 4], DType::I64)?;
    is(of(&whole, &whole), |e| matches!(e, TensorError::DType { what: "x", .. }));
    let number = zeros(&[], DType::F32)?;
    let error = activation_backward_with_bias(&stream, silu, &number, &number).expect_err("a number");
    is(error, |e| matches!(e, TensorError::Axis { .. }));
    let of = |function, x: &Tensor, dy: &Tensor| {
        gated_backward(&stream, function, GateOrder::Halves, x, dy).expect_err("a wrong call")
    };
    is(of(silu, &x, &x), |e| matches!(e, TensorError::Shape { what: "dy", .. }));
    is(of(silu, &number, &number), |e| matches!(e, TensorError::Axis { .. }));
    let error = of(silu, &zeros(&[2, 3], DType::F32)?, &half);
    assert!(matches!(&error, Error::InvalidArgument { argument: "x", .. }), "{error}");
    let error = of(ActivationFunction::TanhOfResult, &x, &half);
    assert!(matches!(&error, Error::InvalidArgument { argument: "function", .. }), "{error}");
    Ok(())
}
