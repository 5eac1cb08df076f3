//! Adafactor against its oracle: shapes, element types, numbers; skipped and hostile steps, replays, states
//! that are taken over, a thousand steps, wrong calls. On whichever driver is there.

use crate::common::{Outcome, stream};
use crate::ops_optim::{TYPES, limit, numbers};
use half::bf16;
use ironwarp::graph::Graph;
use ironwarp::ops::convert::convert;
use ironwarp::ops::elementwise::copy_into;
use ironwarp::ops::optim::{Adafactor, AdafactorConfig, GradientNorm, NormConfig, StateConfig};
use ironwarp::{DType, Error, Stream, Tensor, TensorError, TensorMut};
use reference::optim::{Adafactor as Oracle, Averages};
use testkit::{Family, compare, input, tolerance};

/// Steps as long as the weights are, so that their errors show; from the second on they are shorter.
const RATE: f64 = 0.9;
const DECAY: f64 = 0.1;

/// Nothing, a number, vectors that end within a row and a tile, matrices on each side of a tile's sides,
/// many small ones, a matrix without elements.
const SHAPES: [&[usize]; 16] = [
    &[0],
    &[],
    &[1],
    &[33],
    &[256],
    &[8195],
    &[1, 7],
    &[7, 1],
    &[32, 256],
    &[31, 255],
    &[33, 257],
    &[300, 40],
    &[3, 600],
    &[3, 40, 50],
    &[2, 2, 3, 3],
    &[2, 0, 3],
];

fn config() -> AdafactorConfig {
    AdafactorConfig { learning_rate: RATE, weight_decay: DECAY, ..AdafactorConfig::default() }
}

fn oracle(config: AdafactorConfig) -> Oracle {
    let AdafactorConfig { beta2_decay, eps, threshold, .. } = config;
    Oracle { beta2_decay, eps, threshold }
}

fn tensor(stream: &Stream, shape: &[usize], dtype: DType, family: Family, seed: u64) -> Outcome<Tensor> {
    let values: Vec<f32> = input(family, seed, shape.iter().product());
    Ok(convert(stream, &Tensor::from_slice(stream, shape, &values)?, dtype)?)
}

fn views(params: &mut [Tensor]) -> Outcome<Vec<TensorMut<'_>>> {
    Ok(params.iter_mut().map(Tensor::view_mut).collect::<Result<_, _>>()?)
}

/// The averages of a parameter, on the host.
fn averages(stream: &Stream, optimizer: &Adafactor, parameter: usize, shape: &[usize]) -> Outcome<Averages> {
    let kept = optimizer.averages(parameter)?;
    let kept = kept.iter().map(|x| numbers(stream, x)).collect::<Result<Vec<_>, _>>()?;
    Ok(match (shape, <[Vec<f64>; 2]>::try_from(kept)) {
        ([.., height, width], Ok([rows, columns])) => {
            Averages::Factored { sides: [*height, *width], rows, columns }
        }
        (_, Ok(_)) => return Err("factors of what is no matrix".into()),
        (_, Err(kept)) => Averages::Whole(kept.concat()),
    })
}

fn parts(averages: &Averages) -> Vec<&Vec<f64>> {
    match averages {
        Averages::Factored { rows, columns, .. } => vec![rows, columns],
        Averages::Whole(whole) => vec![whole],
    }
}

/// Steps of parameters of every shape: each compared with the oracle's step from what was there before.
fn steps(config: AdafactorConfig, types: &[(DType, DType)], family: Family, shapes: &[&[usize]]) -> Outcome {
    let stream = stream()?;
    let each: Vec<_> =
        shapes.iter().flat_map(|shape| types.iter().map(move |types| (*shape, *types))).collect();
    let made = |seed, family, of: fn(&(DType, DType)) -> DType| {
        let each = each.iter().zip(seed..);
        each.map(|((shape, types), seed)| tensor(&stream, shape, of(types), family, seed))
            .collect::<Outcome<Vec<_>>>()
    };
    let mut params: Vec<Tensor> = made(1, Family::Normal, |types| types.0)?;
    let mut optimizer = Adafactor::new(&stream, &views(&mut params)?, config)?;
    for t in 1..=3 {
        let grads: Vec<Tensor> = made(100 * t, family, |types| types.1)?;
        let mut before = Vec::new();
        for (i, (shape, _)) in each.iter().enumerate() {
            let weights = optimizer.master(i)?.unwrap_or_else(|| params[i].clone());
            before.push((numbers(&stream, &weights)?, averages(&stream, &optimizer, i, shape)?));
        }
        optimizer.step(&stream, &mut views(&mut params)?, &grads.iter().collect::<Vec<_>>(), None)?;
        for (i, (old, mut kept)) in before.into_iter().enumerate() {
            let (shape, g) = (each[i].0, numbers(&stream, &grads[i])?);
            let what = format!("{config:?}, {shape:?} of {:?}, step {t}", each[i].1);
            let mut want = old.clone();
            oracle(config).step(t as i32, RATE, DECAY, &mut want, &mut kept, &g);
            for (got, want) in parts(&averages(&stream, &optimizer, i, shape)?).iter().zip(parts(&kept)) {
                let got: Vec<f32> = got.iter().map(|x| *x as f32).collect();
                let limit = tolerance::OPTIM_SQUARES.tolerance();
                compare::elementwise(&format!("averages, {what}"), &got, want, &[want.len()], limit)?;
            }
            let scale: Vec<f64> = old.iter().zip(&want).map(|(old, new)| old.abs() + new.abs()).collect();
            let is_rounded = config.state.stochastic && !config.state.master;
            let held = optimizer.master(i)?.map(|master| (master, false));
            for (got, is_rounded) in held.into_iter().chain([(params[i].clone(), is_rounded)]) {
                let limit = limit(got.dtype(), is_rounded);
                let got = convert(&stream, &got, DType::F32)?.to_vec::<f32>(&stream)?;
                compare::accumulated(&what, &got, &want, &scale, &[want.len()], limit)?;
            }
        }
    }
    assert_eq!((optimizer.steps(&stream)?, optimizer.skipped(&stream)?), (3, 0));
    Ok(())
}

#[test]
fn every_shape() -> Outcome {
    steps(config(), &TYPES[..1], Family::Normal, &SHAPES)
}

#[test]
fn every_type_and_state() -> Outcome {
    let shapes: [&[usize]; 3] = [&[40, 70], &[9], &[2, 3, 5]];
    for (master, stochastic) in [(false, false), (false, true), (true, true)] {
        let state = StateConfig { master, stochastic, seed: 5, ..StateConfig::default() };
        steps(AdafactorConfig { state, ..config() }, &TYPES, Family::Normal, &shapes)?;
    }
    Ok(())
}

/// Random numbers are those of the place in the tensor, whether neighbours share their blocks (columns that
/// are a multiple of eight) or not.
#[test]
fn rounding_is_by_the_place() -> Outcome {
    use primitives::philox::{HALVES, halves, keys, round_to_bf16, words_of};
    let (stream, seed) = (stream()?, 5);
    let shapes: [&[usize]; 5] = [&[40, 72], &[2, 3, 280], &[40, 70], &[4104], &[4099]];
    let step = |state: StateConfig| -> Outcome<(Adafactor, Vec<Tensor>)> {
        let made = |seed| -> Outcome<Vec<Tensor>> {
            let each = shapes.iter().zip(seed..);
            each.map(|(shape, seed)| tensor(&stream, shape, DType::BF16, Family::Normal, seed)).collect()
        };
        let (mut params, grads) = (made(1)?, made(100)?);
        let state = AdafactorConfig { state: StateConfig { seed, ..state }, ..config() };
        let mut optimizer = Adafactor::new(&stream, &views(&mut params)?, state)?;
        optimizer.step(&stream, &mut views(&mut params)?, &grads.iter().collect::<Vec<_>>(), None)?;
        Ok((optimizer, params))
    };
    let (_, rounded) = step(StateConfig { stochastic: true, ..StateConfig::default() })?;
    let (exact, _) = step(StateConfig { master: true, ..StateConfig::default() })?;
    for (number, got) in rounded.iter().enumerate() {
        let weights = exact.master(number)?.ok_or("master weights")?.to_vec::<f32>(&stream)?;
        let want: Vec<bf16> = (0..)
            .zip(&weights)
            .map(|(at, &weight)| {
                // The block's number, weights (2), the tensor; and the step.
                let counter = (at / HALVES) as u64 | 2 << 40 | (number as u64) << 42;
                round_to_bf16(weight, halves(words_of(&keys(seed), counter, 1))[at % HALVES])
            })
            .collect();
        compare::bitwise_equal(&format!("{:?}", shapes[number]), &got.to_vec::<bf16>(&stream)?, &want)?;
    }
    Ok(())
}

#[test]
fn numbers_and_inputs() -> Outcome {
    let shapes: [&[usize]; 3] = [&[40, 70], &[300], &[1, 1]];
    for family in [Family::Subnormal, Family::SmallIntegers, Family::Cancelling] {
        steps(config(), &TYPES[..1], family, &shapes)?;
    }
    for config in [
        AdafactorConfig { threshold: 0.1, ..config() },
        AdafactorConfig { beta2_decay: 0.0, eps: [1e-30, 100.0], ..config() },
        AdafactorConfig { eps: [10.0, 0.0], ..config() },
    ] {
        steps(config, &TYPES[..1], Family::Uniform, &shapes)?;
    }
    Ok(())
}

/// Rows, columns and elements without a gradient keep still, however small the least average is.
#[test]
fn zeros_keep_still() -> Outcome {
    let stream = stream()?;
    for eps in [0.0, 1e-30, 1e-20] {
        let config = AdafactorConfig { eps: [eps, 1e-3], ..AdafactorConfig::default() };
        let mut params = [
            Tensor::from_slice(&stream, &[2, 3], &[1.0f32; 6])?,
            Tensor::from_slice(&stream, &[3], &[1.0f32; 3])?,
        ];
        let mut optimizer = Adafactor::new(&stream, &views(&mut params)?, config)?;
        let matrix = Tensor::from_slice(&stream, &[2, 3], &[1.0f32, 2.0, 0.0, 0.0, 0.0, 0.0])?;
        let vector = Tensor::from_slice(&stream, &[3], &[0.0f32, 1.0, 0.0])?;
        optimizer.step(&stream, &mut views(&mut params)?, &[&matrix, &vector], None)?;
        let (matrix, vector) = (params[0].to_vec::<f32>(&stream)?, params[1].to_vec::<f32>(&stream)?);
        assert!(matrix[..2].iter().all(|w| *w < 1.0) && matrix[2..] == [1.0; 4], "{eps:e}: {matrix:?}");
        assert!(vector[1] < 1.0 && vector[0] == 1.0 && vector[2] == 1.0, "{eps:e}: {vector:?}");
    }
    Ok(())
}

/// A matrix and a vector, and the optimiser of both.
struct Training {
    params: [Tensor; 2],
    grads: [Tensor; 2],
    norm: GradientNorm,
    optimizer: Adafactor,
}

impl Training {
    fn new(stream: &Stream, dtype: DType, norm: NormConfig) -> Outcome<Self> {
        let made = |seed| -> Outcome<[Tensor; 2]> {
            let of = |shape: &[usize]| tensor(stream, shape, dtype, Family::Normal, seed);
            Ok([of(&[40, 300])?, of(&[9])?])
        };
        let mut params = made(1)?;
        let optimizer = Adafactor::new(stream, &views(&mut params)?, config())?;
        Ok(Training { params, grads: made(2)?, norm: GradientNorm::new(stream, norm)?, optimizer })
    }

    fn step(&mut self, stream: &Stream) -> ironwarp::Result<()> {
        let Training { params: [a, b], grads: [da, db], norm, optimizer } = self;
        norm.measure(stream, &[da, db], None)?;
        optimizer.step(stream, &mut [a.view_mut()?, b.view_mut()?], &[da, db], Some(norm))
    }

    fn weights(&self, stream: &Stream) -> Outcome<Vec<f64>> {
        Ok([numbers(stream, &self.params[0])?, numbers(stream, &self.params[1])?].concat())
    }
}

#[test]
fn replays_and_states_go_on_with_the_same_bits() -> Outcome {
    let stream = stream()?;
    let clipped = NormConfig { max_norm: Some(1.0), ..NormConfig::default() };
    let made = || Training::new(&stream, DType::BF16, clipped);
    let (mut plain, mut first, mut other) = (made()?, made()?, made()?);
    for _ in 0..4 {
        plain.step(&stream)?;
    }
    first.step(&stream)?;
    let mut graph = Graph::capture(&stream, first, |stream, training| training.step(stream))?;
    graph.replay(&stream)?;
    // Another one takes over here.
    let training = graph.inputs();
    let [a, b] = &training.params;
    other.params = [a.copy()?, b.copy()?];
    let state = training.optimizer.state(&stream)?;
    other.optimizer.restore(&stream, |name, to| {
        let (_, from) = state.iter().find(|(kept, _)| kept == name).expect("a tensor of each name");
        copy_into(&stream, from, to)
    })?;
    drop(state);
    for _ in 0..2 {
        graph.replay(&stream)?;
        other.step(&stream)?;
    }
    let want = plain.weights(&stream)?;
    assert_eq!(graph.inputs().weights(&stream)?, want, "replays");
    assert_eq!(other.weights(&stream)?, want, "a state that was taken over");
    assert_eq!(other.optimizer.steps(&stream)?, 4);
    Ok(())
}

#[test]
fn hostile_gradients() -> Outcome {
    let stream = stream()?;
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for skip_nonfinite in [true, false] {
            let norm = NormConfig { max_norm: None, skip_nonfinite };
            let mut training = Training::new(&stream, DType::F32, norm)?;
            let before = training.weights(&stream)?;
            let mut values = vec![1.0f32; 40 * 300];
            values[3] = value;
            training.grads[0].view_mut()?.copy_from_slice(&stream, &values)?;
            training.step(&stream)?;
            let after = training.weights(&stream)?;
            let Training { optimizer, .. } = &training;
            let counts = (optimizer.steps(&stream)?, optimizer.skipped(&stream)?);
            if skip_nonfinite {
                assert_eq!((&after, counts), (&before, (0, 1)), "{value}");
            } else {
                // The length of a step depends on all of its tensor, and on nothing else.
                assert!(after[..40 * 300].iter().all(|w| w.is_nan()), "{value}");
                assert!(after[40 * 300..].iter().all(|w| w.is_finite()) && counts == (1, 0), "{value}");
            }
        }
    }
    Ok(())
}

/// A thousand steps with a gradient of their own each, beside the same in f64.
#[test]
fn a_thousand_steps() -> Outcome {
    const STEPS: usize = 1000;
    let stream = stream()?;
    let config = AdafactorConfig { learning_rate: 0.01, ..config() };
    let shape = [6, 5];
    let mut params = [tensor(&stream, &shape, DType::F32, Family::Normal, 1)?];
    let mut optimizer = Adafactor::new(&stream, &views(&mut params)?, config)?;
    let mut want = numbers(&stream, &params[0])?;
    let mut kept = averages(&stream, &optimizer, 0, &shape)?;
    let mut reach: Vec<f64> = want.iter().map(|w| w.abs()).collect();
    let mut gradient = Tensor::zeros(&stream, &shape, DType::F32)?;
    for t in 1..=STEPS {
        let noise: Vec<f32> = input(Family::Normal, t as u64, 30);
        gradient.view_mut()?.copy_from_slice(&stream, &noise)?;
        optimizer.step(&stream, &mut views(&mut params)?, &[&gradient], None)?;
        let (old, g) = (want.clone(), noise.iter().map(|g| f64::from(*g)).collect::<Vec<_>>());
        oracle(config).step(t as i32, config.learning_rate, DECAY, &mut want, &mut kept, &g);
        reach
            .iter_mut()
            .zip(want.iter().zip(&old))
            .for_each(|(reach, (new, old))| *reach += (new - old).abs());
    }
    let got = params[0].to_vec::<f32>(&stream)?;
    let limit = tolerance::OPTIM_STEP.for_terms(STEPS);
    compare::accumulated("a thousand steps", &got, &want, &reach, &[30], limit)?;
    Ok(())
}

#[test]
fn wrong_calls() -> Outcome {
    let stream = stream()?;
    let mut x = Tensor::zeros(&stream, &[2, 3], DType::F32)?;
    let mut bytes = Tensor::zeros(&stream, &[4], DType::U8)?;
    let made = |x: &mut Tensor, config| Adafactor::new(&stream, &[x.view_mut()?], config).map(drop);
    let usual = AdafactorConfig::default();
    let error = made(&mut bytes, usual);
    assert!(
        matches!(error.as_ref().err().and_then(Error::tensor_error), Some(TensorError::DType { .. })),
        "{error:?}"
    );
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        for config in [
            AdafactorConfig { learning_rate: bad, ..usual },
            AdafactorConfig { weight_decay: bad, ..usual },
            AdafactorConfig { eps: [bad, 0.0], ..usual },
            AdafactorConfig { eps: [0.0, bad], ..usual },
            AdafactorConfig { threshold: bad, ..usual },
            AdafactorConfig { beta2_decay: -bad, ..usual },
        ] {
            let error = made(&mut x, config);
            let is_it = matches!(error, Err(Error::InvalidArgument { operation: "Adafactor", .. }));
            assert!(is_it, "{config:?}: {error:?}");
        }
    }
    // As f32 these are 0 and infinite.
    assert!(made(&mut x, AdafactorConfig { threshold: 1e-50, ..usual }).is_err());
    assert!(made(&mut x, AdafactorConfig { beta2_decay: -1e39, ..usual }).is_err());
    let mut optimizer = Adafactor::new(&stream, &[x.view_mut()?], usual)?;
    assert!(matches!(optimizer.averages(1), Err(Error::InvalidArgument { argument: "parameter", .. })));
    assert!(optimizer.set_weight_decay(0, 1e39).is_err() && optimizer.set_weight_decay(0, 1e38).is_ok());
    // A step that is refused is not counted.
    let (kept, gradient) = (optimizer.averages(0)?, Tensor::zeros(&stream, &[2, 3], DType::F32)?);
    let error = optimizer.step(&stream, &mut [x.view_mut()?], &[&gradient], None);
    assert!(
        matches!(error.as_ref().err().and_then(Error::tensor_error), Some(TensorError::Shared { .. })),
        "{error:?}"
    );
    assert_eq!(optimizer.steps(&stream)?, 0);
    drop(kept);
    optimizer.step(&stream, &mut [x.view_mut()?], &[&gradient], None)?;
    assert_eq!(optimizer.steps(&stream)?, 1);
    Ok(())
}
