//! Optimisers and the norm of gradients against their oracles: every rule, element type, length and
//! alignment. On whichever driver is there.

use crate::common::{Outcome, stream};
use half::{bf16, f16};
use ironwarp::ops::convert::convert;
use ironwarp::ops::optim::{
    AdamW, AdamWConfig, GradientNorm, Lion, LionConfig, NormConfig, Sgd, SgdConfig, StateConfig,
};
use ironwarp::{DType, Error, Stream, Tensor, TensorMut};
use reference::optim::{Rule, State, clip_factor, norm};
use testkit::{Family, Tolerance, compare, input, tolerance};

/// Nothing, parts of vectors, whole blocks and one more, a chunk, and rests behind chunks.
const LENGTHS: [usize; 14] = [0, 1, 2, 7, 8, 31, 32, 33, 255, 256, 257, 1000, 4099, 8195];

/// A part of a tensor that begins `shift` elements behind its memory's start.
pub struct Held {
    memory: Tensor,
    shift: usize,
    len: usize,
}

impl Held {
    pub fn new(stream: &Stream, dtype: DType, values: &[f32], shift: usize) -> Result<Self, Error> {
        let padded = [&vec![0.0; shift], values].concat();
        let memory = convert(stream, &Tensor::from_slice(stream, &[padded.len()], &padded)?, dtype)?;
        Ok(Held { memory, shift, len: values.len() })
    }

    pub fn view(&self) -> Result<Tensor, Error> {
        self.memory.slice(0, self.shift..self.shift + self.len)
    }

    pub fn view_mut(&mut self) -> Result<TensorMut<'_>, Error> {
        self.memory.view_mut()?.slice(0, self.shift..self.shift + self.len)
    }
}

/// Write access to all of them.
pub fn all(held: &mut [Held]) -> Result<Vec<TensorMut<'_>>, Error> {
    held.iter_mut().map(Held::view_mut).collect()
}

/// The elements as f64.
pub fn numbers(stream: &Stream, x: &Tensor) -> Result<Vec<f64>, Error> {
    let x = convert(stream, x, DType::F32)?;
    Ok(x.to_vec::<f32>(stream)?.into_iter().map(f64::from).collect())
}

/// An optimiser of any rule.
enum Any {
    AdamW(AdamW),
    Sgd(Sgd),
    Lion(Lion),
}

/// The rules with the learning rate and the weight decay of their tests.
const RATE: f64 = 0.01;
const DECAY: f64 = 0.1;
const ADAMW: Rule = Rule::AdamW { betas: [0.9, 0.99], eps: 1e-8 };
const RULES: [Rule; 5] = [
    ADAMW,
    Rule::Sgd { momentum: 0.0, nesterov: false },
    Rule::Sgd { momentum: 0.9, nesterov: false },
    Rule::Sgd { momentum: 0.9, nesterov: true },
    Rule::Lion { betas: [0.9, 0.99] },
];

impl Any {
    fn new(stream: &Stream, params: &[TensorMut<'_>], rule: Rule, state: StateConfig) -> Result<Self, Error> {
        let (learning_rate, weight_decay) = (RATE, DECAY);
        Ok(match rule {
            Rule::AdamW { betas, eps } => {
                let config = AdamWConfig { learning_rate, betas, eps, weight_decay, state };
                Any::AdamW(AdamW::new(stream, params, config)?)
            }
            Rule::Sgd { momentum, nesterov } => {
                let config = SgdConfig { learning_rate, momentum, nesterov, weight_decay, state };
                Any::Sgd(Sgd::new(stream, params, config)?)
            }
            Rule::Lion { betas } => {
                let config = LionConfig { learning_rate, betas, weight_decay, state };
                Any::Lion(Lion::new(stream, params, config)?)
            }
        })
    }

    fn step(
        &mut self,
        stream: &Stream,
        params: &mut [TensorMut<'_>],
        grads: &[&Tensor],
        norm: Option<&GradientNorm>,
    ) -> Result<(), Error> {
        match self {
            Any::AdamW(adamw) => adamw.step(stream, params, grads, norm),
            Any::Sgd(sgd) => sgd.step(stream, params, grads, norm),
            Any::Lion(lion) => lion.step(stream, params, grads, norm),
        }
    }

    /// The moments that it has of a parameter, and its weights if it keeps them.
    fn state(&self, number: usize) -> Result<[Option<Tensor>; 3], Error> {
        Ok(match self {
            Any::AdamW(adamw) => [adamw.moment(0, number)?, adamw.moment(1, number)?, adamw.master(number)?],
            Any::Sgd(sgd) => [sgd.moment(0, number)?, sgd.moment(1, number)?, sgd.master(number)?],
            Any::Lion(lion) => [lion.moment(0, number)?, lion.moment(1, number)?, lion.master(number)?],
        })
    }
}

/// A thousand steps with a gradient of their own each, beside the same in f64.
fn thousand(rule: Rule) -> Outcome {
    const STEPS: usize = 1000;
    let stream = stream()?;
    let shapes = [33, 8];
    let values: Vec<Vec<f32>> = shapes.iter().map(|&n| input(Family::Normal, n as u64, n)).collect();
    let mut held: Vec<_> =
        values.iter().map(|v| Held::new(&stream, DType::F32, v, 0)).collect::<Result<_, _>>()?;
    let mut optimizer = Any::new(&stream, &all(&mut held)?, rule, StateConfig::default())?;
    let mut gradients: Vec<_> =
        shapes.iter().map(|&n| Tensor::zeros(&stream, &[n], DType::F32)).collect::<Result<_, _>>()?;
    let wide = |v: &Vec<f32>| v.iter().copied().map(f64::from).collect::<Vec<_>>();
    let mut states: Vec<_> = values.iter().map(|v| State::new(wide(v))).collect();
    let mut reach: Vec<Vec<f64>> =
        values.iter().map(|v| v.iter().map(|x| f64::from(*x).abs()).collect()).collect();
    for t in 1..=STEPS {
        for (i, &n) in shapes.iter().enumerate() {
            // A weak pull back to 0, and noise.
            let noise: Vec<f32> = input(Family::Normal, (t * 2 + i) as u64, n);
            gradients[i].view_mut()?.copy_from_slice(&stream, &noise)?;
            let before = states[i].weights.clone();
            rule.step(t as i32, RATE, DECAY, &mut states[i], &wide(&noise));
            for (reach, (new, old)) in reach[i].iter_mut().zip(states[i].weights.iter().zip(&before)) {
                *reach += (new - old).abs();
            }
        }
        let given: Vec<&Tensor> = gradients.iter().collect();
        optimizer.step(&stream, &mut all(&mut held)?, &given, None)?;
    }
    for (i, state) in states.iter().enumerate() {
        let (what, got) = (format!("{rule:?}, tensor {i}"), held[i].view()?.to_vec::<f32>(&stream)?);
        let limit = tolerance::OPTIM_STEP.for_terms(STEPS);
        compare::accumulated(&what, &got, &state.weights, &reach[i], &[got.len()], limit)?;
    }
    Ok(())
}

#[test]
fn a_thousand_steps_of_adamw() -> Outcome {
    thousand(ADAMW)
}

#[test]
fn a_thousand_steps_of_the_others() -> Outcome {
    thousand(Rule::Sgd { momentum: 0.9, nesterov: true })?;
    thousand(Rule::Lion { betas: [0.9, 0.99] })
}

/// The tolerance of values of a type that are rounded so.
pub fn limit(dtype: DType, stochastic: bool) -> Tolerance {
    match dtype {
        DType::F32 => tolerance::OPTIM_STEP,
        DType::F16 => tolerance::OPTIM_F16,
        _ if stochastic => tolerance::OPTIM_STOCHASTIC,
        _ => tolerance::OPTIM_BF16,
    }
    .tolerance()
}

fn check(
    what: &str,
    got: &Tensor,
    stream: &Stream,
    want: &[f64],
    scale: &[f64],
    limit: Tolerance,
) -> Outcome {
    macro_rules! of {
        ($($dtype:ident: $ty:ty),*) => {
            match got.dtype() {
                $(DType::$dtype => {
                    compare::accumulated(what, &got.to_vec::<$ty>(stream)?, want, scale, &[want.len()], limit)?;
                })*
                other => return Err(format!("no comparison of {other}").into()),
            }
        };
    }
    of!(F32: f32, F16: f16, BF16: bf16);
    Ok(())
}

/// The element types of a parameter and its gradient.
pub const TYPES: [(DType, DType); 6] = [
    (DType::F32, DType::F32),
    (DType::F32, DType::BF16),
    (DType::BF16, DType::BF16),
    (DType::BF16, DType::F32),
    (DType::F16, DType::F16),
    (DType::F16, DType::F32),
];

/// Steps of one optimiser over parameters of all types, lengths and alignments: each compared with the
/// oracle's step from what was there before.
fn steps(rule: Rule, state: StateConfig, lengths: &[usize]) -> Outcome {
    let stream = stream()?;
    let (mut held, mut gradients) = (Vec::new(), Vec::new());
    for (number, (&len, &(dtype, of_gradient))) in
        lengths.iter().flat_map(|len| TYPES.iter().map(move |types| (len, types))).enumerate()
    {
        let (x, g) = (input(Family::Normal, number as u64, len), input(Family::Uniform, number as u64, len));
        // Aligned, the gradient not, neither.
        let shift = [0, 0, 1][number % 3];
        held.push(Held::new(&stream, dtype, &x, shift)?);
        gradients.push(Held::new(&stream, of_gradient, &g, [0, 3, 1][number % 3])?);
    }
    let mut optimizer = Any::new(&stream, &all(&mut held)?, rule, state)?;
    let gradients: Vec<Tensor> = gradients.iter().map(Held::view).collect::<Result<_, _>>()?;
    let given: Vec<&Tensor> = gradients.iter().collect();
    let before = |optimizer: &Any, held: &[Held]| -> Outcome<Vec<State>> {
        let each = held.iter().enumerate().map(|(i, held)| {
            let [first, second, master] = optimizer.state(i)?;
            let mut state = State::new(numbers(&stream, &master.map_or_else(|| held.view(), Ok)?)?);
            for (to, moment) in state.moments.iter_mut().zip([first, second]) {
                if let Some(moment) = moment {
                    *to = numbers(&stream, &moment)?;
                }
            }
            Ok(state)
        });
        each.collect()
    };
    for t in 1..=2 {
        let states = before(&optimizer, &held)?;
        optimizer.step(&stream, &mut all(&mut held)?, &given, None)?;
        for (i, mut want) in states.into_iter().enumerate() {
            let (old, g) = (want.clone(), numbers(&stream, &gradients[i])?);
            rule.step(t, RATE, DECAY, &mut want, &g);
            let what = format!("{rule:?} {state:?}, step {t}, parameter {i} of {} elements", g.len());
            let both =
                |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a.abs() + b.abs()).collect::<Vec<_>>();
            let scale = both(&old.weights, &want.weights);
            let stochastic = state.stochastic && !state.master;
            let view = held[i].view()?;
            check(&what, &view, &stream, &want.weights, &scale, limit(view.dtype(), stochastic))?;
            let [first, second, master] = optimizer.state(i)?;
            for (k, moment) in [first, second].into_iter().enumerate() {
                let Some(moment) = moment else { continue };
                let scale = both(&both(&old.moments[k], &want.moments[k]), &g);
                let limit = limit(moment.dtype(), true);
                check(&format!("moment {k}, {what}"), &moment, &stream, &want.moments[k], &scale, limit)?;
            }
            assert_eq!(master.is_some(), state.master && view.dtype() != DType::F32);
            if let Some(master) = master {
                check(
                    &format!("master, {what}"),
                    &master,
                    &stream,
                    &want.weights,
                    &scale,
                    limit(DType::F32, false),
                )?;
            }
        }
    }
    Ok(())
}

#[test]
fn every_length_and_type() -> Outcome {
    steps(ADAMW, StateConfig::default(), &LENGTHS)
}

#[test]
fn every_rule_and_state() -> Outcome {
    for rule in RULES {
        for (moments, master, stochastic) in [
            (DType::F32, false, false),
            (DType::BF16, false, true),
            (DType::F32, true, true),
            (DType::BF16, true, false),
        ] {
            let state = StateConfig { moments, master, stochastic, seed: 5 };
            steps(rule, state, &[9, 40])?;
        }
    }
    Ok(())
}

#[test]
fn norms_of_every_length_and_type() -> Outcome {
    let stream = stream()?;
    for family in [Family::Normal, Family::SmallIntegers, Family::Subnormal, Family::Cancelling] {
        let mut gradients = Vec::new();
        for (number, &len) in LENGTHS.iter().enumerate() {
            for dtype in [DType::F32, DType::BF16, DType::F16] {
                let g = input::<f32>(family, number as u64, len);
                gradients.push(Held::new(&stream, dtype, &g, number % 2)?.view()?);
            }
        }
        let given: Vec<&Tensor> = gradients.iter().collect();
        let config = NormConfig { max_norm: Some(0.5), skip_nonfinite: true };
        let mut got = GradientNorm::new(&stream, config)?;
        got.measure(&stream, &given, None)?;
        let values = gradients.iter().map(|g| numbers(&stream, g)).collect::<Result<Vec<_>, _>>()?;
        // Squares of subnormal numbers are 0 in f32.
        let want = if family == Family::Subnormal { 0.0 } else { norm(&values) };
        let limit = tolerance::GRADIENT_NORM.tolerance();
        compare::elementwise(&format!("{family:?}"), &[got.value(&stream)?], &[want], &[1], limit)?;
    }
    // Nothing at all has a norm too.
    let mut got = GradientNorm::new(&stream, NormConfig::default())?;
    got.measure(&stream, &[], None)?;
    assert_eq!(got.value(&stream)?, 0.0);
    Ok(())
}

#[test]
fn steps_are_clipped() -> Outcome {
    let stream = stream()?;
    let rule = Rule::Sgd { momentum: 0.0, nesterov: false };
    let (x, g): (Vec<f32>, Vec<f32>) = (input(Family::Normal, 1, 300), input(Family::Normal, 2, 300));
    let wide = |v: &[f32]| v.iter().copied().map(f64::from).collect::<Vec<_>>();
    for (max_norm, scale) in [(1.0, None), (1e6, None), (2.0, Some(1024.0f32)), (f64::MIN_POSITIVE, None)] {
        let mut held = vec![Held::new(&stream, DType::F32, &x, 0)?];
        let scaled: Vec<f32> = g.iter().map(|g| g * scale.unwrap_or(1.0)).collect();
        let gradient = Tensor::from_slice(&stream, &[300], &scaled)?;
        let loss_scale = scale.map(|scale| Tensor::from_slice(&stream, &[1], &[scale])).transpose()?;
        let config = NormConfig { max_norm: Some(max_norm), ..NormConfig::default() };
        let mut measured = GradientNorm::new(&stream, config)?;
        measured.measure(&stream, &[&gradient], loss_scale.as_ref())?;
        let mut optimizer = Any::new(&stream, &all(&mut held)?, rule, StateConfig::default())?;
        optimizer.step(&stream, &mut all(&mut held)?, &[&gradient], Some(&measured))?;
        let mut state = State::new(wide(&x));
        let factor = clip_factor(norm(&[wide(&g)]), max_norm);
        rule.step(1, RATE, DECAY, &mut state, &wide(&g).iter().map(|g| g * factor).collect::<Vec<_>>());
        let got = held[0].view()?.to_vec::<f32>(&stream)?;
        let scale: Vec<f64> = x.iter().map(|x| f64::from(x.abs()) + 1.0).collect();
        let limit = tolerance::OPTIM_STEP.tolerance();
        compare::accumulated(&format!("clipped to {max_norm}"), &got, &state.weights, &scale, &[300], limit)?;
    }
    Ok(())
}
