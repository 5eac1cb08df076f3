//! Losses and what lies next to them in a backward pass: cross-entropy behind a linear layer, losses of
//! pairs, gradients of activations. Beside torch eager and compiled.

use std::process::ExitCode;

use ironwarp::ops::activation::{
    ActivationFunction, GateOrder, activation_backward_with_bias, gated, gated_backward,
};
use ironwarp::ops::convert::convert;
use ironwarp::ops::fill::normal;
use ironwarp::ops::loss::{LossFunction, PairLoss, losses, losses_backward};
use ironwarp::ops::row::{CosineEmbedding, LinearCrossEntropy, Reduction};
use ironwarp::{DType, Stream, Tensor};
use ironwarp_benches::{Outcome, Session, Work};
use serde_json::{Value, json};

/// Rows, inputs and classes: the last layers of GPT-2 and of Llama 3.
const LINEAR: [[usize; 3]; 2] = [[32_768, 768, 50_304], [8192, 4096, 128_256]];
const FEW_LINEAR: [usize; 3] = [64, 64, 512];
/// 128 MiB of bf16.
const SHAPE: [usize; 2] = [16_384, 4096];
const FEW: [usize; 2] = [16, 512];

fn main() -> ExitCode {
    Session::run("losses", |session| {
        for sides in LINEAR {
            bench_linear(session, if session.small() { FEW_LINEAR } else { sides })?;
        }
        let sides = if session.small() { FEW } else { SHAPE };
        for dtype in [DType::BF16, DType::F32] {
            bench_pairs(session, dtype, sides)?;
            bench_activations(session, dtype, sides)?;
        }
        Ok(())
    })
}

fn random(stream: &Stream, shape: &[usize], dtype: DType, seed: u64) -> ironwarp::Result<Tensor> {
    let x = normal(stream, shape, 0.0, 1.0, seed)?;
    if dtype == DType::F32 { Ok(x) } else { convert(stream, &x, dtype) }
}

/// Requests for torch, eager and compiled.
fn peers(op: &str, dtype: DType, shape: &[usize]) -> Vec<Value> {
    let request = |how: &str| {
        json!({
            "prepare": format!("losses.{op}"), "dtype": dtype.to_string(), "shape": shape, "implementation": how,
        })
    };
    ["eager", "compiled"].map(request).into()
}

/// Loss and both gradients: three products of as many operations.
fn bench_linear(session: &mut Session, sides @ [rows, inputs, classes]: [usize; 3]) -> Outcome {
    let name = "linear_cross_entropy";
    if !session.wants_any(&[name]) {
        return Ok(());
    }
    let (stream, dtype) = (session.stream.clone(), DType::BF16);
    let x = random(&stream, &[rows, inputs], dtype, 1)?;
    let weight = random(&stream, &[classes, inputs], dtype, 2)?;
    let targets: Vec<i64> = (0..rows).map(|row| ((row * 7919 + 13) % classes) as i64).collect();
    let targets = Tensor::from_slice(&stream, &[rows], &targets)?;
    let of = LinearCrossEntropy::default();
    let text = format!("{dtype} {rows}x{inputs}x{classes}");
    let work = Work::Flops(3 * 2 * (rows * inputs * classes) as u64);
    session.measure_beside(name, &text, work, &peers(name, dtype, &sides), |_| {
        of.loss_and_gradients(&stream, &x, &weight, &targets, None).map(drop)
    })
}

/// Losses with their gradients.
fn bench_pairs(session: &mut Session, dtype: DType, sides @ [rows, columns]: [usize; 2]) -> Outcome {
    let names =
        ["loss_mse", "loss_bce_with_logits", "loss_cosine_embedding", "losses_mse", "losses_mse_backward"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let (x, target) = (random(&stream, &sides, dtype, 1)?, random(&stream, &sides, dtype, 2)?);
    let text = format!("{dtype} {rows}x{columns}");
    let moved = |tensors: usize| Work::Bytes((tensors * rows * columns * dtype.size()) as u64);
    for (name, function) in
        [(names[0], LossFunction::Mse), (names[1], LossFunction::BceWithLogits { pos_weight: 1.0 })]
    {
        let loss = PairLoss { function, reduction: Reduction::Mean };
        session.measure_beside(name, &text, moved(3), &peers(name, dtype, &sides), |_| {
            loss.loss_and_gradient(&stream, &x, &target, None).map(drop)
        })?;
    }
    let signs: Vec<i64> = (0..rows).map(|row| if row % 2 == 0 { 1 } else { -1 }).collect();
    let (signs, loss) = (Tensor::from_slice(&stream, &[rows], &signs)?, CosineEmbedding::default());
    let name = names[2];
    session.measure_beside(name, &text, moved(4), &peers(name, dtype, &sides), |_| {
        loss.loss_and_gradients(&stream, &x, &target, &signs, None).map(drop)
    })?;
    // One for each element.
    let (function, name) = (LossFunction::Mse, names[3]);
    session.measure_beside(name, &text, moved(3), &peers(name, dtype, &sides), |_| {
        losses(&stream, function, &x, &target).map(drop)
    })?;
    let (name, by) = (names[4], random(&stream, &sides, dtype, 3)?);
    session.measure_beside(name, &text, moved(4), &peers(name, dtype, &sides), |_| {
        losses_backward(&stream, function, &x, &target, &by).map(drop)
    })
}

fn bench_activations(session: &mut Session, dtype: DType, sides @ [rows, columns]: [usize; 2]) -> Outcome {
    let names = ["activation_gelu_backward_bias", "activation_swiglu", "activation_swiglu_backward"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let (x, dy) = (random(&stream, &sides, dtype, 1)?, random(&stream, &sides, dtype, 2)?);
    let (text, element) = (format!("{dtype} {rows}x{columns}"), dtype.size());
    let moved = |elements: usize| Work::Bytes((elements * rows * columns / 2 * element) as u64);
    let name = names[0];
    session.measure_beside(name, &text, moved(6), &peers(name, dtype, &sides), |_| {
        activation_backward_with_bias(&stream, ActivationFunction::GeluTanh, &x, &dy).map(drop)
    })?;
    let (function, order) = (ActivationFunction::Silu, GateOrder::Halves);
    let name = names[1];
    session.measure_beside(name, &text, moved(3), &peers(name, dtype, &sides), |_| {
        gated(&stream, function, order, &x).map(drop)
    })?;
    let (name, half) = (names[2], random(&stream, &[rows, columns / 2], dtype, 3)?);
    session.measure_beside(name, &text, moved(5), &peers(name, dtype, &sides), |_| {
        gated_backward(&stream, function, order, &x, &half).map(drop)
    })
}
