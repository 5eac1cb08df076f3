//! Norms of `dropout(x) + residual`: the mask is that of dropout bit for bit, and the rest the norm's.

use crate::common::{Outcome, norm_oracle, stream, tests};
use crate::lying::{Lying, exact};
use crate::norms::{EPS, backward, plain};
use half::{bf16, f16};
use ironwarp::bytemuck;
use ironwarp::graph::Graph;
use ironwarp::ops::convert::convert;
use ironwarp::ops::dropout::{Generator, dropout};
use ironwarp::ops::row::{Norm, NormBackward, NormKind};
use ironwarp::tensor::Element;
use ironwarp::{DType, DeviceBuffer, Error, Stream, Tensor, TensorError};
use num::E4M3;
use reference::random::dropout as oracle;
use reference::row::{Row, norm_backward};
use testkit::{Family, compare, input, tolerance};

const SEED: u64 = 0x0123_4567_89ab_cdef;
/// A multiple of 2^-16.
const PROBABILITY: f64 = 0.375;
const CALL: u32 = 3;
const KINDS: [NormKind; 2] = [NormKind::Layer, NormKind::Rms];

/// At step 1.
fn generator(stream: &Stream) -> Result<Generator, Error> {
    let mut generator = Generator::new(stream, SEED)?;
    generator.advance(stream)?;
    Ok(generator)
}

fn agrees<T: Element + testkit::Element + Into<f64>>() -> Outcome {
    let stream = stream()?;
    let generator = generator(&stream)?;
    for (seed, sides @ [rows, columns]) in
        [[0, 8], [3, 0], [3, 1], [300, 31], [5, 32], [7, 33], [6, 1000], [3, 4096], [2, 9001], [1, 50_257]]
            .into_iter()
            .enumerate()
    {
        let random = |number: u64, len| input::<T>(Family::Normal, seed as u64 + 50 * number, len);
        let (weights, biases) = (random(1, columns), random(2, columns));
        let (x, residual) = (random(3, rows * columns), random(4, rows * columns));
        let weight = Tensor::from_slice(&stream, &[columns], &weights)?;
        let bias = Tensor::from_slice(&stream, &[columns], &biases)?;
        let (weights, biases) = (exact(&weights), exact(&biases));
        // In f64, and by the ops, in f32.
        let dropped = oracle(&exact(&x), PROBABILITY, SEED, 1, CALL);
        let terms = || dropped.iter().copied().zip(exact(&residual));
        let of_sum: Vec<f64> = terms().map(|(x, residual)| x + residual).collect();
        let size: Vec<f64> = terms().map(|(x, residual)| x.abs() + residual.abs()).collect();
        let wide = |values: &[T]| convert(&stream, &Tensor::from_slice(&stream, &sides, values)?, DType::F32);
        let unfused = (&dropout(&stream, &wide(&x)?, PROBABILITY, &generator, CALL)? + &wide(&residual)?)?;
        let unfused: Vec<T> = convert(&stream, &unfused, <T as Element>::DTYPE)?.to_vec(&stream)?;
        let lyings = if columns == 0 { &[Lying::Dense] } else { Lying::of(columns) };
        for (number, &lying) in lyings.iter().enumerate() {
            let kind = KINDS[(seed + number) % 2];
            let norm = Norm { weight: Some(&weight), bias: Some(&bias), ..plain(kind) };
            let fused = norm.dropout(PROBABILITY, &generator, CALL);
            let (x, residual) = (lying.matrix(&stream, sides, &x)?, lying.matrix(&stream, sides, &residual)?);
            let got = fused.add_and_run(&stream, &x, &residual, true)?;
            let what = format!("{kind:?} {} {sides:?} {lying:?}", <T as Element>::DTYPE);
            let sum: Vec<T> = got.sum.expect("a residual was added").to_vec(&stream)?;
            compare::bitwise_equal(&what, &sum, &unfused)?;
            let limit = tolerance::find(&format!("dropout {}", <T as Element>::DTYPE)).tolerance();
            compare::accumulated(&what, &sum, &of_sum, &size, &sides, limit)?;
            let want = norm_oracle(kind, &exact(&sum), [&weights, &biases]);
            let limit = tolerance::find(&format!("{} {}", kind.name(), <T as Element>::DTYPE));
            let y: Vec<T> = got.y.to_vec(&stream)?;
            compare::accumulated(&what, &y, &want.value, &want.magnitude, &sides, limit.for_terms(columns))?;
            let again = fused.add_and_run(&stream, &x, &residual, true)?;
            compare::bitwise_equal(&what, &y, &again.y.to_vec::<T>(&stream)?)?;
        }
    }
    Ok(())
}

tests!(agrees: f32_agrees = f32, f16_agrees = f16, bf16_agrees = bf16);

/// In f32 nothing is rounded in between: hostile rows give the same bits as dropout and the norm.
#[test]
fn results_are_those_of_dropout_and_norm() -> Outcome {
    let stream = stream()?;
    let generator = generator(&stream)?;
    for (seed, sides @ [rows, columns]) in
        [[9, 31], [9, 32], [9, 33], [6, 1000], [6, 4096], [2, 50_257]].into_iter().enumerate()
    {
        let mut x: Vec<f32> = input(Family::HugeTiny, seed as u64, rows * columns);
        for (number, row) in x.chunks_mut(columns).enumerate() {
            match number {
                1 => row.fill(3.0),
                3 => row[columns - 1] = f32::NAN,
                4 => row.fill(f32::NEG_INFINITY),
                5 => row.fill(0.0),
                _ => {}
            }
        }
        let residual = input::<f32>(Family::Normal, seed as u64 + 50, rows * columns);
        let x = Tensor::from_slice(&stream, &sides, &x)?;
        let residual = Tensor::from_slice(&stream, &sides, &residual)?;
        for kind in KINDS {
            for probability in [0.0, PROBABILITY, 1.0] {
                let fused = plain(kind).dropout(probability, &generator, CALL);
                let got = fused.add_and_run(&stream, &x, &residual, true)?;
                let dropped = dropout(&stream, &x, probability, &generator, CALL)?;
                let want = plain(kind).add_and_run(&stream, &dropped, &residual, true)?;
                for (got, want) in
                    [(Some(got.y), Some(want.y)), (got.sum, want.sum), (got.moments, want.moments)]
                {
                    let bits = |of: Option<Tensor>| of.expect("asked for").to_vec::<f32>(&stream);
                    let what = format!("{kind:?} {sides:?} {probability}");
                    compare::bitwise_equal(&what, &bits(got)?, &bits(want)?)?;
                }
            }
        }
    }
    Ok(())
}

/// In e4m3 the sum and the moments are the same, and the rest is as of that sum.
fn to_e4m3_agrees<T: Element + testkit::Element + bytemuck::Zeroable>() -> Outcome {
    let stream = stream()?;
    let generator = generator(&stream)?;
    let scale = DeviceBuffer::from_slice(&stream, &[100.0f32])?;
    for (seed, sides @ [rows, columns]) in
        [[0, 8], [3, 1], [300, 31], [7, 33], [6, 1000], [3, 4096], [2, 9001], [1, 50_257]]
            .into_iter()
            .enumerate()
    {
        let random = |number: u64, len| input::<T>(Family::Normal, seed as u64 + 50 * number, len);
        let weight = Tensor::from_slice(&stream, &[columns], &random(1, columns))?;
        let (x, residual) = (random(2, rows * columns), random(3, rows * columns));
        for (number, &lying) in Lying::of(columns).iter().enumerate() {
            let kind = KINDS[(seed + number) % 2];
            let norm = Norm { weight: Some(&weight), ..plain(kind) };
            let (x, residual) = (lying.matrix(&stream, sides, &x)?, lying.matrix(&stream, sides, &residual)?);
            let mut amax = [DeviceBuffer::zeroed(&stream, 1)?, DeviceBuffer::zeroed(&stream, 1)?];
            let [of_one, of_two] = &mut amax;
            let of_dropout = norm.dropout(PROBABILITY, &generator, CALL);
            let fused =
                norm.dropout(PROBABILITY, &generator, CALL).to_e4m3().scale_result(&scale).amax(of_one);
            let got = fused.add_and_run(&stream, &x, &residual, true)?;
            let want = of_dropout.add_and_run(&stream, &x, &residual, true)?;
            // Two inputs that lie alike are shared out alike.
            let sum = want.sum.as_ref().expect("a residual was added").to_vec::<T>(&stream)?;
            let nothing: Vec<T> = vec![bytemuck::Zeroable::zeroed(); rows * columns];
            let sum = lying.matrix(&stream, sides, &sum)?;
            let nothing = lying.matrix(&stream, sides, &nothing)?;
            let of_sum = norm.to_e4m3().scale_result(&scale).amax(of_two);
            let of_sum = of_sum.add_and_run(&stream, &sum, &nothing, false)?;
            let what = format!("{kind:?} {} {sides:?} {lying:?}", <T as Element>::DTYPE);
            let of = |sum: &Option<Tensor>| sum.as_ref().expect("asked for").to_vec::<T>(&stream);
            compare::bitwise_equal(&what, &of(&got.sum)?, &of(&want.sum)?)?;
            let of = |moments: &Option<Tensor>| moments.as_ref().expect("asked for").to_vec::<f32>(&stream);
            compare::bitwise_equal(&what, &of(&got.moments)?, &of(&want.moments)?)?;
            let codes = |y: &Tensor| -> Result<Vec<u8>, Error> {
                Ok(y.to_vec::<E4M3>(&stream)?.into_iter().map(E4M3::to_bits).collect())
            };
            assert_eq!(codes(&got.y)?, codes(&of_sum.y)?, "{what}");
            let amax = [amax[0].to_vec(&stream)?, amax[1].to_vec(&stream)?];
            assert_eq!(amax[0], amax[1], "{what}");
            assert!(rows == 0 || amax[0][0] > 0.0, "{what}");
        }
    }
    Ok(())
}

#[test]
fn to_e4m3_agrees_in_every_type() -> Outcome {
    to_e4m3_agrees::<f32>()?;
    to_e4m3_agrees::<f16>()?;
    to_e4m3_agrees::<bf16>()
}

#[test]
fn to_e4m3_says_what_it_wants() -> Outcome {
    let stream = stream()?;
    let (generator, x) = (generator(&stream)?, Tensor::zeros(&stream, &[2, 8], DType::BF16)?);
    let scale = DeviceBuffer::from_slice(&stream, &[1.0f32; 2])?;
    let fused = plain(NormKind::Rms).dropout(PROBABILITY, &generator, CALL).to_e4m3().scale_result(&scale);
    let error = fused.add_and_run(&stream, &x, &x, false).unwrap_err();
    assert!(matches!(error, Error::Length { what: "scale_result", .. }), "{error}");
    let fused = plain(NormKind::Rms).dropout(1.5, &generator, CALL).to_e4m3();
    let error = fused.add_and_run(&stream, &x, &x, false).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "probability", .. }), "{error}");
    Ok(())
}

/// The gradients by `x` and by the residual, by the oracle's mask.
#[test]
fn gradients_have_the_same_mask() -> Outcome {
    let (stream, sides @ [_, columns]) = (stream()?, [5, 257]);
    let generator = generator(&stream)?;
    let of = |seed| input::<f32>(Family::Normal, seed, sides[0] * columns);
    let matrix = |values: &[f32]| Tensor::from_slice(&stream, &sides, values);
    let (x, residual, dy) = (matrix(&of(1))?, matrix(&of(2))?, matrix(&of(3))?);
    for kind in KINDS {
        let fused = plain(kind).dropout(PROBABILITY, &generator, CALL);
        let normed = fused.add_and_run(&stream, &x, &residual, true)?;
        let (sum, moments) = (normed.sum.expect("added"), normed.moments.expect("asked for"));
        let backward = NormBackward { of_shared: [false; 2], ..backward(kind, &sum, &dy, &moments) };
        let of_sum = backward.run(&stream)?.x;
        let of_x = dropout(&stream, &of_sum, PROBABILITY, &generator, CALL)?.to_vec::<f32>(&stream)?;
        let (mut want, mut scale) = (Vec::new(), Vec::new());
        for (x, dy) in exact(&sum.to_vec::<f32>(&stream)?).chunks(columns).zip(exact(&of(3)).chunks(columns))
        {
            let row = Row { x, weight: None, bias: None, eps: EPS };
            let of_row = norm_backward(kind == NormKind::Layer, &row, dy).x;
            want.extend(of_row.value);
            scale.extend(of_row.magnitude);
        }
        let masked = |values: &[f64]| oracle(values, PROBABILITY, SEED, 1, CALL);
        let limit = tolerance::find("norm_backward f32").for_terms(columns);
        compare::accumulated("dx", &of_x, &masked(&want), &masked(&scale), &sides, limit)?;
    }
    Ok(())
}

/// Each replay of a captured step draws anew, and the same forward and backward.
#[test]
fn replays_draw_anew() -> Outcome {
    let (stream, sides) = (stream()?, [40, 100]);
    let ones = Tensor::from_slice(&stream, &sides, &[1.0f32; 4000])?;
    let none = Tensor::zeros(&stream, &sides, DType::F32)?;
    let generator = Generator::new(&stream, SEED)?;
    let mut graph = Graph::capture(&stream, generator, |stream, generator| {
        let fused = plain(NormKind::Rms).dropout(PROBABILITY, generator, CALL);
        let sum = fused.add_and_run(stream, &ones, &none, false)?.sum.expect("a residual was added");
        let backward = dropout(stream, &ones, PROBABILITY, generator, CALL)?;
        generator.advance(stream)?;
        Ok([sum, backward])
    })?;
    for step in 0..3 {
        graph.replay(&stream)?;
        let [forward, backward] = graph.outputs();
        let (forward, backward) = (forward.to_vec::<f32>(&stream)?, backward.to_vec::<f32>(&stream)?);
        compare::bitwise_equal("backward", &forward, &backward)?;
        let want = oracle(&[1.0; 4000], PROBABILITY, SEED, step, CALL);
        compare::elementwise("mask", &forward, &want, &sides, tolerance::DROPOUT_F32.tolerance())?;
    }
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let generator = generator(&stream)?;
    let x = Tensor::zeros(&stream, &[2, 3], DType::F32)?;
    let norm = plain(NormKind::Layer);
    for bad in [-0.1, 1.1, f64::NAN] {
        let error =
            norm.dropout(bad, &generator, 0).add_and_run(&stream, &x, &x, false).expect_err("no probability");
        assert!(matches!(error, Error::InvalidArgument { argument: "probability", .. }), "{error}");
    }
    let long = Tensor::zeros(&stream, &[2, 3], DType::F64)?;
    let fused = norm.dropout(0.5, &generator, 0);
    let error = fused.add_and_run(&stream, &long, &long, false).expect_err("no kernel of f64");
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { what: "x", .. })), "{error}");
    let error = fused.add_and_run(&stream, &x, &long, false).expect_err("another type");
    assert!(matches!(error.tensor_error(), Some(TensorError::DType { what: "residual", .. })), "{error}");
    Ok(())
}
