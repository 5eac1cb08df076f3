//! Optimisers: each rule and type of moments, over parameters of every type, with and without master
//! weights.

use super::{Outcome, Stop};
use ironwarp::ops::convert::convert;
use ironwarp::ops::optim::{
    Adafactor, AdafactorConfig, AdamW, AdamWConfig, GradientNorm, Lion, LionConfig, LossScale,
    LossScaleConfig, Muon, MuonConfig, NormConfig, Sgd, SgdConfig, StateConfig,
};
use ironwarp::{DType, Error, Stream, Tensor, TensorMut};
use testkit::{Family, input};

/// A part of a vector, a chunk with a rest, two chunks.
const VECTORS: [&[usize]; 3] = [&[5], &[300], &[8200]];

pub fn stops() -> Vec<Stop> {
    let mut stops = Vec::new();
    for moments in [DType::F32, DType::BF16] {
        for master in [false, true] {
            let state = StateConfig { moments, master, stochastic: true, seed: 3 };
            let name = format!("optimisers, moments of {moments}, master weights: {master}");
            stops.push(Stop::new(name, move |stream| all(stream, state)));
        }
    }
    for master in [false, true] {
        let state = StateConfig { master, seed: 3, ..StateConfig::default() };
        stops.push(Stop::new(format!("Adafactor, master weights: {master}"), move |stream| {
            adafactor(stream, state)
        }));
    }
    for moments in [DType::F32, DType::BF16] {
        let state = StateConfig { moments, ..StateConfig::default() };
        stops.push(Stop::new(format!("Muon, moments of {moments}"), move |stream| muon(stream, state)));
    }
    stops.push(Stop::new("the scale of a loss", loss_scale));
    stops
}

/// Steps that are finite, and one that is not; the bytes of the scales.
fn loss_scale(stream: &Stream) -> Outcome<Vec<u8>> {
    let config = LossScaleConfig { interval: 2, ..LossScaleConfig::default() };
    let mut scale = LossScale::new(stream, config)?;
    let mut norm = GradientNorm::new(stream, NormConfig::default())?;
    let mut bytes = Vec::new();
    for value in [1.0f32, 2.0, f32::NAN] {
        let gradient = Tensor::from_slice(stream, &[1], &[value])?;
        norm.measure(stream, &[&gradient], Some(scale.tensor()))?;
        scale.update(stream, &norm)?;
        bytes.extend(scale.value(stream)?.to_le_bytes());
    }
    Ok(bytes)
}

/// Two steps of matrices wide and tall, some of one shape; the bytes of the parameters.
fn muon(stream: &Stream, state: StateConfig) -> Outcome<Vec<u8>> {
    let shapes = [[16, 40], [40, 16], [16, 40], [7, 5]];
    let made = |seed| {
        let each = shapes.iter().map(|shape| {
            Tensor::from_slice(stream, shape, &input::<f32>(Family::Normal, seed, shape[0] * shape[1]))
        });
        each.collect::<Result<Vec<_>, _>>()
    };
    let (mut params, grads) = (made(1)?, made(2)?);
    let grads: Vec<&Tensor> = grads.iter().collect();
    let mut views = params.iter_mut().map(Tensor::view_mut).collect::<Result<Vec<_>, _>>()?;
    let mut muon = Muon::new(stream, &views, MuonConfig { state, ..MuonConfig::default() })?;
    for _ in 0..2 {
        muon.step(stream, &mut views, &grads, None)?;
    }
    let mut bytes = Vec::new();
    for param in &params {
        bytes.extend_from_slice(bytemuck::cast_slice(&param.to_vec::<f32>(stream)?));
    }
    Ok(bytes)
}

/// Parameters, or gradients, of each shape and type.
fn tensors(stream: &Stream, shapes: &[&[usize]], seed: u64) -> Result<Vec<Tensor>, Error> {
    let types = [DType::F32, DType::BF16, DType::F16];
    let each = shapes.iter().flat_map(|shape| types.map(|dtype| (*shape, dtype)));
    each.map(|(shape, dtype)| {
        let values = input::<f32>(Family::Normal, seed, shape.iter().product());
        convert(stream, &Tensor::from_slice(stream, shape, &values)?, dtype)
    })
    .collect()
}

/// Vectors, a matrix of several tiles with rests, and small ones.
fn adafactor(stream: &Stream, state: StateConfig) -> Outcome<Vec<u8>> {
    let config = AdafactorConfig { state, ..AdafactorConfig::default() };
    let shapes: [&[usize]; 3] = [&[300], &[40, 270], &[2, 3, 5]];
    run(stream, &shapes, |stream, params| Adafactor::new(stream, params, config), Adafactor::step)
}

fn all(stream: &Stream, state: StateConfig) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let adamw = AdamWConfig { state, ..AdamWConfig::default() };
    let nesterov = SgdConfig { momentum: 0.9, nesterov: true, state, ..SgdConfig::default() };
    let plain = SgdConfig { state, ..SgdConfig::default() };
    let lion = LionConfig { state, ..LionConfig::default() };
    bytes.extend(run(stream, &VECTORS, |stream, params| AdamW::new(stream, params, adamw), AdamW::step)?);
    bytes.extend(run(stream, &VECTORS, |stream, params| Sgd::new(stream, params, nesterov), Sgd::step)?);
    bytes.extend(run(stream, &VECTORS, |stream, params| Sgd::new(stream, params, plain), Sgd::step)?);
    bytes.extend(run(stream, &VECTORS, |stream, params| Lion::new(stream, params, lion), Lion::step)?);
    Ok(bytes)
}

/// Two steps, clipped, of an optimiser that is made so; the bytes of the parameters.
fn run<O>(
    stream: &Stream,
    shapes: &[&[usize]],
    make: impl Fn(&Stream, &[TensorMut<'_>]) -> Result<O, Error>,
    step: impl Fn(&mut O, &Stream, &mut [TensorMut<'_>], &[&Tensor], Option<&GradientNorm>) -> Result<(), Error>,
) -> Outcome<Vec<u8>> {
    let (mut params, grads) = (tensors(stream, shapes, 1)?, tensors(stream, shapes, 2)?);
    let grads: Vec<&Tensor> = grads.iter().collect();
    let mut norm = GradientNorm::new(stream, NormConfig { max_norm: Some(1.0), skip_nonfinite: true })?;
    let mut views = params.iter_mut().map(Tensor::view_mut).collect::<Result<Vec<_>, _>>()?;
    let mut optimizer = make(stream, &views)?;
    for _ in 0..2 {
        norm.measure(stream, &grads, None)?;
        step(&mut optimizer, stream, &mut views, &grads, Some(&norm))?;
    }
    let mut bytes = Vec::new();
    for param in &params {
        // To f32 each value goes as it is.
        let values = convert(stream, param, DType::F32)?.to_vec::<f32>(stream)?;
        bytes.extend_from_slice(bytemuck::cast_slice(&values));
    }
    Ok(bytes)
}
