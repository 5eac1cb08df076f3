//! Steps of optimisers and norms of gradients, over one tensor and over many of the same total, beside
//! torch's.

use std::process::ExitCode;

use half::bf16;
use ironwarp::ops::convert::convert;
use ironwarp::ops::fill::normal;
use ironwarp::ops::optim::{
    Adafactor, AdafactorConfig, AdamW, AdamWConfig, GradientNorm, Lion, LionConfig, LossScale,
    LossScaleConfig, Muon, MuonConfig, NormConfig, Sgd, SgdConfig, StateConfig,
};
use ironwarp::{DType, Stream, Tensor, TensorMut};
use ironwarp_benches::{Outcome, Session, Work};
use reference::optim::{Rule, State};
use serde_json::{Value, json};
use testkit::{compare, tolerance};

/// Side of the square parameters.
const SIDE: usize = 768;
/// Parameters of a full run; as many of a quick one as make it two blocks of entries.
const TENSORS: [usize; 2] = [400, 40];
/// Elements of the first parameter that are compared with the oracle.
const COMPARED: usize = 1 << 12;
const RATE: f64 = 1e-3;
const DECAY: f64 = 0.1;

fn main() -> ExitCode {
    Session::run("optim", |session| {
        let (tensors, side) = if session.small() { (TENSORS[1], 96) } else { (TENSORS[0], SIDE) };
        for (count, shape) in [(tensors, [side, side]), (1, [tensors * side, side])] {
            for (dtype, moments, master) in [
                (DType::F32, DType::F32, false),
                (DType::BF16, DType::F32, false),
                (DType::BF16, DType::BF16, false),
                (DType::BF16, DType::F32, true),
            ] {
                let model = Model { count, shape, dtype };
                let state = StateConfig { moments, master, ..StateConfig::default() };
                bench_optim(session, &model, state)?;
            }
        }
        // The matrices of GPT-2's twelve blocks, and one large one.
        let block: &[([usize; 2], usize)] =
            &[([2304, 768], 12), ([768, 768], 12), ([3072, 768], 12), ([768, 3072], 12)];
        let large: &[([usize; 2], usize)] = &[([4096, 4096], 1)];
        let small: &[([usize; 2], usize)] = &[([96, 64], 2)];
        for shapes in if session.small() { vec![small] } else { vec![block, large] } {
            bench_muon(session, shapes)?;
        }
        bench_loss_scale(session)
    })
}

/// Parameters of one shape.
struct Model {
    count: usize,
    shape: [usize; 2],
    dtype: DType,
}

impl Model {
    fn tensors(&self, stream: &Stream, seed: u64) -> ironwarp::Result<Vec<Tensor>> {
        let make = |i| {
            let x = normal(stream, &self.shape, 0.0, 1.0, seed + i)?;
            if self.dtype == DType::F32 { Ok(x) } else { convert(stream, &x, self.dtype) }
        };
        (0..self.count as u64).map(make).collect()
    }

    fn elements(&self) -> usize {
        self.count * self.shape[0] * self.shape[1]
    }

    fn peer(&self, op: &str, more: &[(&str, Value)]) -> Value {
        let mut request = json!({
            "prepare": format!("optim.{op}"), "dtype": self.dtype.to_string(), "tensors": self.count, "shape": self.shape,
        });
        more.iter().for_each(|(key, value)| request[*key] = value.clone());
        request
    }
}

fn views(params: &mut [Tensor]) -> ironwarp::Result<Vec<TensorMut<'_>>> {
    params.iter_mut().map(Tensor::view_mut).collect()
}

/// The first elements as f64.
fn head(stream: &Stream, x: &Tensor) -> ironwarp::Result<Vec<f64>> {
    let head = x.view_as(&[x.elements()])?.slice(0, ..COMPARED.min(x.elements()))?;
    Ok(match x.dtype() {
        DType::BF16 => head.to_vec::<bf16>(stream)?.into_iter().map(f64::from).collect(),
        _ => head.to_vec::<f32>(stream)?.into_iter().map(f64::from).collect(),
    })
}

fn bench_optim(session: &mut Session, model: &Model, state: StateConfig) -> Outcome {
    let names =
        ["optim_adamw", "optim_adamw_clipped", "optim_sgd", "optim_lion", "optim_adafactor", "optim_norm"];
    if !session.wants_any(&names) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let (mut params, grads) = (model.tensors(&stream, 1)?, model.tensors(&stream, 1 << 20)?);
    let grads: Vec<&Tensor> = grads.iter().collect();
    let shape = format!(
        "{} of {}x{} {} moments {}{}",
        model.count,
        model.shape[0],
        model.shape[1],
        model.dtype,
        state.moments,
        if state.master { " master f32" } else { "" },
    );
    let (size, kept) = (model.dtype.size(), if state.master { DType::F32.size() } else { 0 });
    // Weights in and out, the gradient in, moments in and out; master weights are read, parameters not.
    let moved = |moments: usize| {
        let weights = if state.master { 2 * kept + size } else { 2 * size };
        Work::Bytes((model.elements() * (weights + size + 2 * moments * state.moments.size())) as u64)
    };
    let like_torch = state.moments == model.dtype && !state.master;

    let config = AdamWConfig { learning_rate: RATE, weight_decay: DECAY, state, ..AdamWConfig::default() };
    let mut adamw = AdamW::new(&stream, &views(&mut params)?, config)?;
    check(&stream, model, state, &mut params, &grads, &mut adamw)?;
    adamw.set_learning_rate(&stream, 1e-6)?;
    let beside: Vec<Value> = ["fused", "foreach"]
        .iter()
        .filter(|_| like_torch)
        .map(|how| model.peer("adamw", &[("implementation", json!(how))]))
        .collect();
    session.measure_beside("optim_adamw", &shape, moved(2), &beside, |_| {
        adamw.step(&stream, &mut views(&mut params)?, &grads, None)
    })?;
    let mut norm = GradientNorm::new(&stream, NormConfig { max_norm: Some(1.0), skip_nonfinite: true })?;
    let more = [("implementation", json!("fused")), ("max_norm", json!(1.0))];
    let beside: Vec<Value> = like_torch.then(|| model.peer("adamw", &more)).into_iter().collect();
    session.measure_beside("optim_adamw_clipped", &shape, moved(2), &beside, |_| {
        norm.measure(&stream, &grads, None)?;
        adamw.step(&stream, &mut views(&mut params)?, &grads, Some(&norm))
    })?;
    drop(adamw);

    let config =
        SgdConfig { learning_rate: 1e-6, momentum: 0.9, nesterov: true, state, ..SgdConfig::default() };
    let mut sgd = Sgd::new(&stream, &views(&mut params)?, config)?;
    let more = [("implementation", json!("fused"))];
    let beside: Vec<Value> = like_torch.then(|| model.peer("sgd", &more)).into_iter().collect();
    session.measure_beside("optim_sgd", &shape, moved(1), &beside, |_| {
        sgd.step(&stream, &mut views(&mut params)?, &grads, None)
    })?;
    drop(sgd);
    let config = LionConfig { learning_rate: 1e-6, state, ..LionConfig::default() };
    let mut lion = Lion::new(&stream, &views(&mut params)?, config)?;
    session.measure("optim_lion", &shape, moved(1), |_| {
        lion.step(&stream, &mut views(&mut params)?, &grads, None)
    })?;
    drop(lion);
    if state.moments == DType::F32 {
        bench_adafactor(session, model, state, &shape, &mut params, &grads)?;
    }

    if like_torch {
        let work = Work::Bytes((model.elements() * size) as u64);
        let beside = [model.peer("clip", &[("max_norm", json!(1.0))])];
        session
            .measure_beside("optim_norm", &shape, work, &beside, |_| norm.measure(&stream, &grads, None))?;
    }
    Ok(())
}

/// Its averages are small: gradients are read three times, weights twice, and written.
fn bench_adafactor(
    session: &mut Session,
    model: &Model,
    state: StateConfig,
    shape: &str,
    params: &mut [Tensor],
    grads: &[&Tensor],
) -> Outcome {
    let stream = session.stream.clone();
    let config = AdafactorConfig { learning_rate: 1e-6, state, ..AdafactorConfig::default() };
    let mut adafactor = Adafactor::new(&stream, &views(params)?, config)?;
    let size = model.dtype.size();
    let of_weights = if state.master { 3 * DType::F32.size() + size } else { 3 * size };
    let work = Work::Bytes((model.elements() * (3 * size + of_weights)) as u64);
    let beside: Vec<Value> = (!state.master)
        .then(|| model.peer("adafactor", &[("implementation", json!("foreach"))]))
        .into_iter()
        .collect();
    session.measure_beside("optim_adafactor", shape, work, &beside, |_| {
        adafactor.step(&stream, &mut views(params)?, grads, None)
    })?;
    Ok(())
}

/// A step over matrices of these shapes, as many of each; f32.
/// One thread: the norm is read, the scale and the count are read and written.
fn bench_loss_scale(session: &mut Session) -> Outcome {
    if !session.wants_any(&["optim_loss_scale"]) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let norm = GradientNorm::new(&stream, NormConfig::default())?;
    let mut scale = LossScale::new(&stream, LossScaleConfig::default())?;
    let work = Work::Bytes(28);
    session.measure("optim_loss_scale", "1 scale", work, |_| scale.update(&stream, &norm))?;
    Ok(())
}

fn bench_muon(session: &mut Session, shapes: &[([usize; 2], usize)]) -> Outcome {
    if !session.wants_any(&["optim_muon"]) {
        return Ok(());
    }
    let stream = session.stream.clone();
    let models = shapes.iter().map(|&(shape, count)| Model { count, shape, dtype: DType::F32 });
    let models: Vec<Model> = models.collect();
    let made = |seed| models.iter().map(|model| model.tensors(&stream, seed)).collect::<Result<Vec<_>, _>>();
    let (mut params, grads) = (made(1)?.concat(), made(1 << 20)?.concat());
    let grads: Vec<&Tensor> = grads.iter().collect();
    let config = MuonConfig { learning_rate: 1e-6, ..MuonConfig::default() };
    let mut muon = Muon::new(&stream, &views(&mut params)?, config)?;
    // An iteration: the square, the square of that, and the product of both and the matrix.
    let flops = |&([rows, columns], count): &([usize; 2], usize)| {
        let (side, other) = (rows.min(columns) as u64, rows.max(columns) as u64);
        count as u64 * 2 * side * side * (2 * other + side)
    };
    let work = Work::Flops(u64::from(config.iterations) * shapes.iter().map(flops).sum::<u64>());
    let named: Vec<String> = shapes.iter().map(|([m, n], count)| format!("{count} of {m}x{n}")).collect();
    let beside = [json!({ "prepare": "optim.muon", "dtype": "f32", "shapes": shapes })];
    session.measure_beside("optim_muon", &named.join(", "), work, &beside, |_| {
        muon.step(&stream, &mut views(&mut params)?, &grads, None)
    })?;
    Ok(())
}

/// One step beside the oracle's.
fn check(
    stream: &Stream,
    model: &Model,
    state: StateConfig,
    params: &mut [Tensor],
    grads: &[&Tensor],
    adamw: &mut AdamW,
) -> Outcome {
    let mut want = State::new(head(stream, &params[0])?);
    let scale: Vec<f64> = want.weights.iter().map(|w| w.abs() + RATE).collect();
    let rule = Rule::AdamW { betas: [0.9, 0.999], eps: 1e-8 };
    rule.step(1, RATE, DECAY, &mut want, &head(stream, grads[0])?);
    adamw.step(stream, &mut views(params)?, grads, None)?;
    let limit = match (model.dtype, state.master) {
        (DType::F32, _) => tolerance::OPTIM_STEP,
        (_, true) => tolerance::OPTIM_BF16,
        (_, false) => tolerance::OPTIM_STOCHASTIC,
    };
    let got = head(stream, &params[0])?;
    compare::accumulated("adamw", &got, &want.weights, &scale, &[got.len()], limit.tolerance())?;
    Ok(())
}
