//! Functions of rows and their gradients, over rows of six lengths or of drawn ones (`--random N`), beside
//! torch eager and compiled.

use std::process::ExitCode;

use half::bf16;
use ironwarp::ops::convert::convert;
use ironwarp::ops::dropout::Generator;
use ironwarp::ops::fill::normal;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{
    Affine, BatchNorm, ChannelAffine, ChannelAxis, CrossEntropy, FixedStatistics, GroupNorm, Loss, Norm,
    NormBackward, NormKind, RowOp, log_softmax_backward, row, softmax, softmax_backward,
};
use ironwarp::{DType, DeviceBuffer, Stream, Tensor};
use ironwarp_benches::{Outcome, Session, Work, random_rows};
use reference::channels::{ChannelNorm, Statistics};
use reference::cross_entropy::SoftCrossEntropy;
use serde_json::{Value, json};
use testkit::{compare, tolerance};

/// Rows and columns: 64 MiB of bf16 or more.
const SHAPES: [[usize; 2]; 6] =
    [[65_536, 768], [16_384, 4096], [8192, 8192], [4096, 16_384], [2048, 32_768], [1024, 65_536]];
/// Logits: of GPT-2, padded and not, and of Llama 3.
const LOGITS: [[usize; 2]; 3] = [[32_768, 50_304], [16_384, 50_257], [8192, 128_256]];
/// Images, channels, height and width: of a ResNet-50's second stage, and of an image model's middle, whose
/// group norm has 32 groups.
const IMAGES: [[usize; 4]; 2] = [[64, 256, 56, 56], [32, 320, 64, 64]];
const GROUPS: usize = 32;
/// Rows of a quick run.
const FEW: usize = 16;
const EPS: f64 = 1e-5;
/// Of dropout.
const PROBABILITY: f64 = 0.1;
/// Of logits: Gemma 2's.
const SOFT_CAP: f64 = 30.0;
/// Rows that are compared with the oracle.
const COMPARED: usize = 2;

fn main() -> ExitCode {
    Session::run("rows", |session| {
        let drawn = session.drawn("shapes of rows", random_rows);
        for dtype in [DType::BF16, DType::F32] {
            let shapes = drawn.as_deref().unwrap_or(&SHAPES);
            for (done, &shape) in shapes.iter().enumerate() {
                if session.is_over(shapes.len() - done) {
                    break;
                }
                bench_shape(session, dtype, sides(session, shape))?;
            }
        }
        if drawn.is_some() {
            return Ok(());
        }
        for shape in LOGITS {
            bench_cross_entropy(session, sides(session, shape))?;
            bench_soft_cross_entropy(session, sides(session, shape))?;
        }
        for axis in [ChannelAxis::Second, ChannelAxis::Last] {
            bench_channels(session, axis)?;
            bench_fixed_statistics(session, axis)?;
        }
        Ok(())
    })
}

/// The sides of a row, or those of a quick run.
fn sides(session: &Session, [rows, columns]: [usize; 2]) -> [usize; 2] {
    [if session.small() { FEW } else { rows }, columns]
}

/// A tensor of random numbers.
fn random(stream: &Stream, shape: &[usize], dtype: DType, seed: u64) -> ironwarp::Result<Tensor> {
    let x = normal(stream, shape, 0.0, 1.0, seed)?;
    if dtype == DType::F32 { Ok(x) } else { convert(stream, &x, dtype) }
}

/// The first rows as f64.
fn head(stream: &Stream, x: &Tensor) -> ironwarp::Result<Vec<f64>> {
    let x = x.slice(0, ..COMPARED.min(x.shape()[0]))?;
    Ok(match x.dtype() {
        DType::BF16 => x.to_vec::<bf16>(stream)?.into_iter().map(f64::from).collect(),
        _ => x.to_vec::<f32>(stream)?.into_iter().map(f64::from).collect(),
    })
}

/// Requests for torch, eager and compiled.
fn peers(op: &str, dtype: DType, [rows, columns]: [usize; 2]) -> Vec<Value> {
    let request = |how: &str| {
        json!({
            "prepare": format!("rows.{op}"), "dtype": dtype.to_string(), "shape": [rows, columns], "eps": EPS,
            "probability": PROBABILITY, "soft_cap": SOFT_CAP, "implementation": how,
        })
    };
    ["eager", "compiled"].map(request).into()
}

const NAMES: [&str; 16] = [
    "softmax",
    "log_softmax",
    "rms_norm",
    "layer_norm",
    "layer_norm_gelu",
    "residual_layer_norm",
    "residual_rms_norm_to_e4m3",
    "dropout_residual_layer_norm",
    "dropout_residual_rms_norm_to_e4m3",
    "softmax_backward",
    "log_softmax_backward",
    "rms_norm_backward",
    "layer_norm_backward",
    "residual_layer_norm_backward",
    "layer_norm_backward_input",
    GELU_BACKWARD,
];
/// Of a layer norm with GELU (tanh).
const GELU_BACKWARD: &str = "layer_norm_gelu_backward";

fn bench_shape(session: &mut Session, dtype: DType, shape: [usize; 2]) -> Outcome {
    if !session.wants_any(&NAMES) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let [rows, columns] = shape;
    let x = random(&stream, &shape, dtype, 1)?;
    let (weight, bias) = (random(&stream, &[columns], dtype, 2)?, random(&stream, &[columns], dtype, 3)?);
    let text = format!("{dtype} {rows}x{columns}");
    let moved = |tensors: usize| Work::Bytes((tensors * rows * columns * dtype.size()) as u64);

    for &op in RowOp::ALL {
        let norm = Affine { weight: Some(&weight), bias: None, eps: EPS };
        let affine = if op.is_norm() { norm } else { Affine::default() };
        let affine = if op == RowOp::LayerNorm { Affine { bias: Some(&bias), ..affine } } else { affine };
        check(&stream, op, &x, affine)?;
        session.measure_beside(op.name(), &text, moved(2), &peers(op.name(), dtype, shape), |_| {
            row(&stream, op, &x, 1, affine).map(drop)
        })?;
    }
    let norm =
        |kind, activation| Norm { kind, weight: Some(&weight), bias: Some(&bias), eps: EPS, activation };
    let layer = norm(NormKind::Layer, Activation::None);
    let (name, gelu) = ("layer_norm_gelu", norm(NormKind::Layer, Activation::GeluTanh));
    session.measure_beside(name, &text, moved(2), &peers(name, dtype, shape), |_| {
        gelu.run(&stream, &x).map(drop)
    })?;
    let residual = random(&stream, &shape, dtype, 4)?;
    let name = "residual_layer_norm";
    session.measure_beside(name, &text, moved(4), &peers(name, dtype, shape), |_| {
        layer.add_and_run(&stream, &x, &residual, true).map(drop)
    })?;

    let name = "residual_rms_norm_to_e4m3";
    let rms = norm(NormKind::Rms, Activation::None);
    let (scale, mut amax) =
        (DeviceBuffer::from_slice(&stream, &[1.0f32])?, DeviceBuffer::zeroed(&stream, 1)?);
    let bytes = Work::Bytes(((3 * dtype.size() + DType::F8E4M3.size()) * rows * columns) as u64);
    session.measure_beside(name, &text, bytes, &peers(name, dtype, shape), |_| {
        let fused = rms.to_e4m3().scale_result(&scale).amax(&mut amax);
        fused.add_and_run(&stream, &x, &residual, false).map(drop)
    })?;
    let (name, generator) = ("dropout_residual_layer_norm", Generator::new(&stream, 6)?);
    session.measure_beside(name, &text, moved(4), &peers(name, dtype, shape), |_| {
        layer.dropout(PROBABILITY, &generator, 0).add_and_run(&stream, &x, &residual, true).map(drop)
    })?;
    let name = "dropout_residual_rms_norm_to_e4m3";
    session.measure_beside(name, &text, bytes, &peers(name, dtype, shape), |_| {
        let fused = rms.dropout(PROBABILITY, &generator, 0).to_e4m3().scale_result(&scale).amax(&mut amax);
        fused.add_and_run(&stream, &x, &residual, false).map(drop)
    })?;

    let dy = random(&stream, &shape, dtype, 5)?;
    for (name, op, is_log) in
        [("softmax_backward", RowOp::Softmax, false), ("log_softmax_backward", RowOp::LogSoftmax, true)]
    {
        if session.wants_any(&[name]) {
            let y = row(&stream, op, &x, 1, Affine::default())?;
            session.measure_beside(name, &text, moved(3), &peers(name, dtype, shape), |_| {
                let backward = if is_log { log_softmax_backward } else { softmax_backward };
                backward(&stream, &y, &dy, 1).map(drop)
            })?;
        }
    }
    for (name, kind, of_shared, with_residual) in [
        ("rms_norm_backward", NormKind::Rms, [true, false], false),
        ("layer_norm_backward", NormKind::Layer, [true, true], false),
        ("residual_layer_norm_backward", NormKind::Layer, [true, true], true),
        ("layer_norm_backward_input", NormKind::Layer, [false, false], false),
        (GELU_BACKWARD, NormKind::Layer, [true, true], false),
    ] {
        let activation = if name == GELU_BACKWARD { Activation::GeluTanh } else { Activation::None };
        let norm = norm(kind, activation);
        let forward = norm.run_for_gradient(&stream, &x)?;
        let moments = forward.moments.as_ref().ok_or("a forward pass for a gradient has moments")?;
        let residual = with_residual.then_some(&residual);
        let backward = NormBackward { residual, of_shared, ..norm.backward(&x, &dy, moments) };
        let tensors = if with_residual { 4 } else { 3 };
        session.measure_beside(name, &text, moved(tensors), &peers(name, dtype, shape), |_| {
            backward.run(&stream).map(drop)
        })?;
    }
    Ok(())
}

/// The first rows beside the oracle's.
fn check(stream: &Stream, op: RowOp, x: &Tensor, affine: Affine<'_>) -> Outcome {
    let columns = x.shape()[1];
    let shared = |given: Option<&Tensor>| given.map(|given| all(stream, given)).transpose();
    let (weight, bias) = (shared(affine.weight)?, shared(affine.bias)?);
    let limit = tolerance::find(&format!("{} {}", op.name(), x.dtype())).for_terms(columns);
    let got = head(stream, &row(stream, op, x, 1, affine)?)?;
    let (mut want, mut scale) = (Vec::new(), Vec::new());
    for x in head(stream, x)?.chunks(columns) {
        let row =
            reference::row::Row { x, weight: weight.as_deref(), bias: bias.as_deref(), eps: affine.eps };
        let of_row = reference::row::find(op.name())(&row);
        want.extend(of_row.value);
        scale.extend(of_row.magnitude);
    }
    compare::accumulated(op.name(), &got, &want, &scale, &[got.len()], limit)?;
    Ok(())
}

/// All elements as f64.
fn all(stream: &Stream, x: &Tensor) -> ironwarp::Result<Vec<f64>> {
    Ok(match x.dtype() {
        DType::BF16 => x.to_vec::<bf16>(stream)?.into_iter().map(f64::from).collect(),
        _ => x.to_vec::<f32>(stream)?.into_iter().map(f64::from).collect(),
    })
}

/// The loss and its gradient. The gradient is over the logits, so later runs see other numbers, near 0: they
/// take as long.
fn bench_cross_entropy(session: &mut Session, shape: [usize; 2]) -> Outcome {
    let names = ["cross_entropy", "cross_entropy_loss"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let [rows, columns] = shape;
    let dtype = DType::BF16;
    let mut logits = random(&stream, &shape, dtype, 1)?;
    let classes: Vec<i64> = (0..rows).map(|row| ((row * 7919 + 13) % columns) as i64).collect();
    let targets = Tensor::from_slice(&stream, &[rows], &classes)?;
    let (text, loss) = (format!("{dtype} {rows}x{columns}"), CrossEntropy::default());
    let bytes = rows * columns * dtype.size();
    let name = "cross_entropy_loss";
    session.measure_beside(name, &text, Work::Bytes(bytes as u64), &peers(name, dtype, shape), |_| {
        loss.loss(&stream, &logits, &targets).map(drop)
    })?;
    let name = "cross_entropy";
    session.measure_beside(name, &text, Work::Bytes(2 * bytes as u64), &peers(name, dtype, shape), |_| {
        loss.loss_and_gradient(&stream, logits.view_mut()?, &targets, None).map(drop)
    })
}

/// The loss and its gradient of capped logits, and of probabilities of all classes, over the logits as above.
fn bench_soft_cross_entropy(session: &mut Session, shape @ [rows, columns]: [usize; 2]) -> Outcome {
    let names = ["cross_entropy_capped", "cross_entropy_probabilities"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let (stream, dtype, plain) = (session.stream.clone(), DType::BF16, CrossEntropy::default());
    let mut logits = random(&stream, &shape, dtype, 1)?;
    let text = format!("{dtype} {rows}x{columns}");
    let moved = |tensors: usize| Work::Bytes((tensors * rows * columns * dtype.size()) as u64);
    let name = names[0];
    if session.wants_any(&[name]) {
        let classes: Vec<i64> = (0..rows).map(|row| ((row * 7919 + 13) % columns) as i64).collect();
        let targets = Tensor::from_slice(&stream, &[rows], &classes)?;
        let loss = CrossEntropy { soft_cap: Some(SOFT_CAP), ..plain };
        let one = |class: &i64| {
            let class = *class;
            (0..columns).map(move |i| if i as i64 == class { 1.0 } else { 0.0 })
        };
        let given: Vec<f64> = classes.iter().take(COMPARED).flat_map(one).collect();
        check_loss(&stream, name, &logits, &given, (loss, &loss.loss(&stream, &logits, &targets)?))?;
        session.measure_beside(name, &text, moved(2), &peers(name, dtype, shape), |_| {
            loss.loss_and_gradient(&stream, logits.view_mut()?, &targets, None).map(drop)
        })?;
    }
    let name = names[1];
    if session.wants_any(&[name]) {
        let probabilities = softmax(&stream, &random(&stream, &shape, dtype, 2)?, 1)?;
        let got = plain.loss_of_probabilities(&stream, &logits, &probabilities)?;
        check_loss(&stream, name, &logits, &head(&stream, &probabilities)?, (plain, &got))?;
        session.measure_beside(name, &text, moved(3), &peers(name, dtype, shape), |_| {
            let to = logits.view_mut()?;
            plain.loss_and_gradient_of_probabilities(&stream, to, &probabilities, None).map(drop)
        })?;
    }
    Ok(())
}

/// The losses of the first rows beside the oracle's.
fn check_loss(
    stream: &Stream,
    name: &str,
    logits: &Tensor,
    given: &[f64],
    (of, got): (CrossEntropy, &Loss),
) -> Outcome {
    let columns = logits.shape()[1];
    let oracle = SoftCrossEntropy { cap: of.soft_cap, ..SoftCrossEntropy::default() };
    let (mut want, mut scale) = (Vec::new(), Vec::new());
    for (x, y) in head(stream, logits)?.chunks(columns).zip(given.chunks(columns)) {
        let [_, loss, size] = oracle.loss(x, y);
        want.push(loss);
        scale.push(size);
    }
    let limit = tolerance::find(&format!("{name} {}", logits.dtype())).for_terms(columns);
    compare::accumulated(name, &head(stream, &got.of_rows)?, &want, &scale, &[want.len()], limit)?;
    Ok(())
}

/// Batch norm of the first images and group norm of the second, with their gradients. Bytes are those of one
/// pass.
fn bench_channels(session: &mut Session, axis: ChannelAxis) -> Outcome {
    let names = ["batch_norm", "group_norm", "batch_norm_backward", "group_norm_backward"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let (stream, dtype) = (session.stream.clone(), DType::BF16);
    for (index, name) in names.into_iter().enumerate() {
        if !session.wants_any(&[name]) {
            continue;
        }
        let [images, channels, height, width] = IMAGES[index % 2];
        let images = if session.small() { 1 } else { images };
        let is_last = axis == ChannelAxis::Last;
        let sides =
            if is_last { [images, height, width, channels] } else { [images, channels, height, width] };
        let (x, dy) = (random(&stream, &sides, dtype, 1)?, random(&stream, &sides, dtype, 2)?);
        let (weight, bias) =
            (random(&stream, &[channels], dtype, 3)?, random(&stream, &[channels], dtype, 4)?);
        let affine = ChannelAffine { axis, weight: Some(&weight), bias: Some(&bias), eps: EPS };
        let (group, batch) = (GroupNorm { groups: GROUPS, affine }, BatchNorm { affine });
        let is_group = index % 2 == 1;
        let forward = || if is_group { group.run(&stream, &x) } else { batch.train(&stream, &x, None) };
        let request = |how: &str| {
            json!({
                "prepare": format!("rows.{name}"), "dtype": dtype.to_string(), "eps": EPS, "groups": GROUPS,
                "shape": [images, channels, height, width], "is_last": is_last, "implementation": how,
            })
        };
        let peers: Vec<Value> = ["eager", "compiled"].map(request).into();
        let text = shape_of_images(dtype, sides, is_last);
        let moved = |tensors: usize| Work::Bytes((tensors * x.elements() * dtype.size()) as u64);
        if index < 2 {
            session.measure_beside(name, &text, moved(2), &peers, |_| forward().map(drop))?;
            continue;
        }
        let moments = forward()?.moments;
        session.measure_beside(name, &text, moved(3), &peers, |_| {
            let all = [true, true];
            let gradients = if is_group {
                group.backward(&stream, &x, &dy, &moments, all)
            } else {
                batch.backward(&stream, &x, &dy, &moments, all)
            };
            gradients.map(drop)
        })?;
    }
    Ok(())
}

/// The text of images' sides, with the channels second or last.
fn shape_of_images(dtype: DType, sides: [usize; 4], is_last: bool) -> String {
    format!(
        "{dtype} {} {}",
        if is_last { "last" } else { "second" },
        sides.map(|side| side.to_string()).join("x")
    )
}

/// Batch norm for inference, by statistics that are given.
fn bench_fixed_statistics(session: &mut Session, axis: ChannelAxis) -> Outcome {
    let name = "batch_norm_infer";
    if !session.wants_any(&[name]) {
        return Ok(());
    }
    let (stream, dtype) = (session.stream.clone(), DType::BF16);
    let [images, channels, height, width] = IMAGES[0];
    let images = if session.small() { 1 } else { images };
    let is_last = axis == ChannelAxis::Last;
    let sides = if is_last { [images, height, width, channels] } else { [images, channels, height, width] };
    let x = random(&stream, &sides, dtype, 1)?;
    let (weight, bias) = (random(&stream, &[channels], dtype, 2)?, random(&stream, &[channels], dtype, 3)?);
    let mean = random(&stream, &[channels], DType::F32, 4)?;
    let variance: Vec<f32> = (0..channels).map(|channel| 0.5 + (channel % 7) as f32).collect();
    let variance = Tensor::from_slice(&stream, &[channels], &variance)?;
    let affine = ChannelAffine { axis, weight: Some(&weight), bias: Some(&bias), eps: EPS };
    let by = FixedStatistics { mean: &mean, variance: &variance };
    let norm = BatchNorm { affine };
    check_fixed(&stream, &x, (affine, by), &norm.infer(&stream, &x, by)?)?;
    let request = |how: &str| {
        json!({
            "prepare": format!("rows.{name}"), "dtype": dtype.to_string(), "eps": EPS, "groups": GROUPS,
            "shape": [images, channels, height, width], "is_last": is_last, "implementation": how,
        })
    };
    let text = shape_of_images(dtype, sides, is_last);
    let work = Work::Bytes((2 * x.elements() * dtype.size()) as u64);
    session.measure_beside(name, &text, work, &["eager", "compiled"].map(request), |_| {
        norm.infer(&stream, &x, by).map(drop)
    })
}

/// The first images beside the oracle's.
fn check_fixed(
    stream: &Stream,
    x: &Tensor,
    (affine, by): (ChannelAffine<'_>, FixedStatistics<'_>),
    got: &Tensor,
) -> Outcome {
    let channels = by.mean.elements();
    let (given, got) = (head(stream, x)?, head(stream, got)?);
    let elements = given.len() / channels;
    let images = COMPARED.min(x.shape()[0]);
    // With its channels last, each position is an image of its own.
    let positions = if affine.axis == ChannelAxis::Last { 1 } else { elements / images };
    let shared = |given: Option<&Tensor>| given.map(|given| all(stream, given)).transpose();
    let (weight, bias) = (shared(affine.weight)?, shared(affine.bias)?);
    let (means, variances) = (all(stream, by.mean)?, all(stream, by.variance)?);
    let oracle = ChannelNorm {
        sides: [elements / positions, channels, positions],
        group: 1,
        is_joined: true,
        weight: weight.as_deref(),
        bias: bias.as_deref(),
        eps: affine.eps,
    };
    let magnitudes = means.iter().map(|mean| mean.abs()).collect();
    let want = oracle.norm(&given, &Statistics { means, variances, magnitudes });
    let limit = tolerance::find(&format!("layer_norm {}", x.dtype())).tolerance();
    compare::accumulated("batch_norm_infer", &got, &want.value, &want.magnitude, &[got.len()], limit)?;
    Ok(())
}
