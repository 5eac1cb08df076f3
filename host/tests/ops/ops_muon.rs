//! Muon against its oracle: shapes, element types, numbers; skipped steps, a descent, wrong calls. On
//! whichever driver is there.

use std::collections::BTreeSet;

use crate::common::{Outcome, stream};
use crate::ops_optim::numbers;
use ironwarp::ops::convert::convert;
use ironwarp::ops::elementwise::copy_into;
use ironwarp::ops::optim::{GradientNorm, Muon, MuonConfig, MuonScale, NormConfig, StateConfig};
use ironwarp::{DType, Error, Stream, Tensor, TensorError, TensorMut};
use reference::optim::{Muon as Oracle, State};
use testkit::{Family, compare, input, tolerance};

/// Wide, tall, square, of one row or column, nothing; some of one shape, which are multiplied as a batch.
const SHAPES: [[usize; 2]; 9] =
    [[24, 40], [40, 24], [33, 33], [1, 7], [7, 1], [24, 40], [0, 4], [24, 40], [72, 130]];
const RATE: f64 = 0.125;
const DECAY: f64 = 0.1;

fn tensors(stream: &Stream, dtype: DType, seed: u64) -> Result<Vec<Tensor>, Error> {
    let each = SHAPES.iter().enumerate().map(|(i, shape)| {
        let values = input::<f32>(Family::Normal, seed + i as u64, shape[0] * shape[1]);
        convert(stream, &Tensor::from_slice(stream, shape, &values)?, dtype)
    });
    each.collect()
}

fn views(params: &mut [Tensor]) -> Result<Vec<TensorMut<'_>>, Error> {
    params.iter_mut().map(Tensor::view_mut).collect()
}

fn factor(scale: MuonScale, [rows, columns]: [usize; 2]) -> f64 {
    let [rows, columns] = [rows as f64, columns as f64];
    match scale {
        MuonScale::Original => (rows / columns).max(1.0).sqrt(),
        MuonScale::MatchAdamW => 0.2 * rows.max(columns).sqrt(),
    }
}

/// Two steps, each compared with the oracle's step from what was there before.
fn steps([dtype, of_gradient]: [DType; 2], config: MuonConfig) -> Outcome {
    let stream = stream()?;
    let (mut params, grads) = (tensors(&stream, dtype, 1)?, tensors(&stream, of_gradient, 100)?);
    let grads: Vec<&Tensor> = grads.iter().collect();
    let mut muon = Muon::new(&stream, &views(&mut params)?, config)?;
    let weights = |muon: &Muon, params: &[Tensor], i: usize| -> Outcome<Vec<f64>> {
        numbers(&stream, &muon.master(i)?.unwrap_or_else(|| params[i].clone())).map_err(Into::into)
    };
    for step in 0..2 {
        let states = (0..SHAPES.len()).map(|i| {
            let mut state = State::new(weights(&muon, &params, i)?);
            state.moments[0] = numbers(&stream, &muon.moment(i)?.ok_or("Muon has a moment")?)?;
            Ok(state)
        });
        let states = states.collect::<Outcome<Vec<_>>>()?;
        muon.step(&stream, &mut views(&mut params)?, &grads, None)?;
        for (i, mut want) in states.into_iter().enumerate().filter(|(i, _)| SHAPES[*i][0] > 0) {
            let what = format!("{dtype}, gradients {of_gradient}, {config:?}, step {step}, {:?}", SHAPES[i]);
            let (old, scale) = (want.weights.clone(), factor(config.scale, SHAPES[i]));
            let MuonConfig { momentum, nesterov, iterations, .. } = config;
            let oracle = Oracle { momentum, nesterov, iterations: iterations as usize, scale };
            let x = oracle.step(SHAPES[i][1], RATE, DECAY, &mut want, &numbers(&stream, grads[i])?);
            let got = weights(&muon, &params, i)?;
            // The direction: what the step has subtracted from the weight.
            let taken = got.iter().zip(&old).map(|(new, w)| ((1.0 - RATE * DECAY) * w - new) / RATE / scale);
            let taken: Vec<f32> = taken.map(|x| x as f32).collect();
            let typical = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
            let scales = vec![typical; x.len()];
            let limit = tolerance::MUON_DIRECTION.tolerance();
            compare::accumulated(&what, &taken, &x, &scales, &SHAPES[i], limit)?;
        }
    }
    assert_eq!((muon.steps(&stream)?, muon.skipped(&stream)?), (2, 0));
    Ok(())
}

fn config() -> MuonConfig {
    MuonConfig { learning_rate: RATE, weight_decay: DECAY, ..MuonConfig::default() }
}

#[test]
fn every_shape_and_type() -> Outcome {
    let master = StateConfig { master: true, ..StateConfig::default() };
    steps([DType::F32, DType::F32], config())?;
    steps([DType::F32, DType::BF16], config())?;
    steps([DType::BF16, DType::BF16], MuonConfig { state: master, ..config() })?;
    steps([DType::BF16, DType::F32], MuonConfig { state: master, ..config() })
}

#[test]
fn every_number() -> Outcome {
    let types = [DType::F32, DType::F32];
    let short = StateConfig { moments: DType::BF16, ..StateConfig::default() };
    steps(types, MuonConfig { nesterov: false, momentum: 0.0, ..config() })?;
    steps(types, MuonConfig { scale: MuonScale::MatchAdamW, iterations: 4, ..config() })?;
    steps(types, MuonConfig { state: short, iterations: 1, ..config() })
}

#[test]
fn bf16_weights_are_rounded() -> Outcome {
    let stream = stream()?;
    let (mut short, grads) = (tensors(&stream, DType::BF16, 1)?, tensors(&stream, DType::F32, 100)?);
    let mut long = short.iter().map(|x| convert(&stream, x, DType::F32)).collect::<Result<Vec<_>, _>>()?;
    let grads: Vec<&Tensor> = grads.iter().collect();
    Muon::new(&stream, &views(&mut short)?, config())?.step(
        &stream,
        &mut views(&mut short)?,
        &grads,
        None,
    )?;
    Muon::new(&stream, &views(&mut long)?, config())?.step(&stream, &mut views(&mut long)?, &grads, None)?;
    for ((short, long), shape) in short.iter().zip(&long).zip(SHAPES) {
        let (got, want) =
            (convert(&stream, short, DType::F32)?.to_vec::<f32>(&stream)?, numbers(&stream, long)?);
        let limit = tolerance::OPTIM_STOCHASTIC.tolerance();
        compare::accumulated(
            &format!("{shape:?}"),
            &got,
            &want,
            &want.iter().map(|w| w.abs()).collect::<Vec<_>>(),
            &shape,
            limit,
        )?;
    }
    Ok(())
}

#[test]
fn a_step_is_skipped_where_the_norm_says_so() -> Outcome {
    let stream = stream()?;
    let mut params = tensors(&stream, DType::F32, 1)?;
    let mut muon = Muon::new(&stream, &views(&mut params)?, config())?;
    let mut norm = GradientNorm::new(&stream, NormConfig { max_norm: Some(1.0), skip_nonfinite: true })?;
    let mut grads = tensors(&stream, DType::F32, 100)?;
    let before = params.iter().map(|x| x.to_vec::<f32>(&stream)).collect::<Result<Vec<_>, _>>()?;
    let good = grads[0].to_vec::<f32>(&stream)?;
    let mut bad = good.clone();
    bad[3] = f32::NAN;
    for (values, skipped) in [(&bad, 1), (&good, 1)] {
        grads[0].view_mut()?.copy_from_slice(&stream, values)?;
        let given: Vec<&Tensor> = grads.iter().collect();
        norm.measure(&stream, &given, None)?;
        muon.step(&stream, &mut views(&mut params)?, &given, Some(&norm))?;
        assert_eq!(muon.skipped(&stream)?, skipped);
        for (i, (param, before)) in params.iter().zip(&before).enumerate() {
            let after = param.to_vec::<f32>(&stream)?;
            assert!(after.iter().all(|x| x.is_finite()));
            if muon.steps(&stream)? == 0 {
                compare::bitwise_equal(&format!("parameter {i}"), &after, before)?;
            } else if !before.is_empty() {
                assert_ne!(after, *before);
            }
        }
    }
    // The clipped gradient's average: the factor was taken once.
    let got = muon.moment(0)?.ok_or("Muon has a moment")?.to_vec::<f32>(&stream)?;
    let scale = 1.0 / f64::from(norm.value(&stream)?);
    let want: Vec<f64> = good.iter().map(|g| 0.05 * scale * f64::from(*g)).collect();
    let limit = tolerance::OPTIM_STEP.tolerance();
    let scales: Vec<f64> = want.iter().map(|x| x.abs() + 1e-6).collect();
    compare::accumulated("the average", &got, &want, &scales, &SHAPES[0], limit)?;
    Ok(())
}

/// Three steps in a row, and two of one optimiser and one of another that takes over its state and weights:
/// with moments and weights that are rounded by the number of the step, and with weights in f32 beside those
/// in bf16.
#[test]
fn a_training_is_taken_up_again() -> Outcome {
    let stream = stream()?;
    let grads = tensors(&stream, DType::F32, 100)?;
    let grads: Vec<&Tensor> = grads.iter().collect();
    let short = StateConfig { moments: DType::BF16, ..StateConfig::default() };
    let master = StateConfig { master: true, ..StateConfig::default() };
    for state in [short, master] {
        let config = MuonConfig { state, ..config() };
        let step =
            |muon: &mut Muon, params: &mut [Tensor]| muon.step(&stream, &mut views(params)?, &grads, None);
        let mut params = tensors(&stream, DType::BF16, 1)?;
        let mut muon = Muon::new(&stream, &views(&mut params)?, config)?;
        for _ in 0..2 {
            step(&mut muon, &mut params)?;
        }
        let mut later = params.iter().map(Tensor::copy).collect::<Result<Vec<_>, _>>()?;
        let mut other = Muon::new(&stream, &views(&mut later)?, config)?;
        let kept = muon.state(&stream)?;
        let names: BTreeSet<&String> = kept.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), kept.len(), "{names:?}");
        let mut taken = 0;
        other.restore(&stream, |name, to| {
            taken += 1;
            let (_, from) = kept.iter().find(|(kept, _)| kept == name).expect("a tensor of each name");
            copy_into(&stream, from, to)
        })?;
        assert_eq!(taken, kept.len());
        drop(kept);
        step(&mut muon, &mut params)?;
        step(&mut other, &mut later)?;
        assert_eq!((muon.steps(&stream)?, other.steps(&stream)?), (3, 3));
        for (i, (want, got)) in params.iter().zip(&later).enumerate() {
            assert_eq!(numbers(&stream, got)?, numbers(&stream, want)?, "{state:?}, parameter {i}");
        }
    }
    Ok(())
}

/// Half the rate by the factor, and by the configuration: the same bits, since it is a power of two.
#[test]
fn parameters_learn_each_at_their_own_rate() -> Outcome {
    let stream = stream()?;
    let grads = tensors(&stream, DType::F32, 100)?;
    let grads: Vec<&Tensor> = grads.iter().collect();
    let run = |learning_rate, factor: Option<f64>| -> Outcome<Vec<Vec<f32>>> {
        let mut params = tensors(&stream, DType::F32, 1)?;
        let config = MuonConfig { learning_rate, ..config() };
        let mut muon = Muon::new(&stream, &views(&mut params)?, config)?;
        if let Some(factor) = factor {
            muon.set_learning_rate_factor(1, factor)?;
        }
        muon.step(&stream, &mut views(&mut params)?, &grads, None)?;
        Ok(params.iter().map(|x| x.to_vec(&stream)).collect::<Result<_, _>>()?)
    };
    let (whole, half, one) = (run(RATE, None)?, run(RATE / 2.0, None)?, run(RATE, Some(0.5))?);
    compare::bitwise_equal("half the rate", &one[1], &half[1])?;
    compare::bitwise_equal("the others'", &one[0], &whole[0])?;
    assert_ne!(whole[1], half[1]);
    Ok(())
}

/// Half the mean square of `w - target`, beside the same descent in f64.
#[test]
fn losses_fall_as_in_f64() -> Outcome {
    const SIDES: [usize; 2] = [12, 20];
    let stream = stream()?;
    let target: Vec<f32> = input(Family::Normal, 7, SIDES[0] * SIDES[1]);
    let mut w = Tensor::zeros(&stream, &SIDES, DType::F32)?;
    let config = MuonConfig { learning_rate: 0.05, weight_decay: 0.0, ..MuonConfig::default() };
    let mut muon = Muon::new(&stream, &[w.view_mut()?], config)?;
    let oracle = Oracle { momentum: 0.95, nesterov: true, iterations: 5, scale: 1.0 };
    let mut state = State::new(vec![0.0; target.len()]);
    let loss = |w: &[f64]| {
        w.iter().zip(&target).map(|(w, t)| (w - f64::from(*t)).powi(2)).sum::<f64>() / 2.0 / w.len() as f64
    };
    let mut losses = vec![loss(&state.weights)];
    for step in 0..60 {
        let now: Vec<f32> = w.to_vec(&stream)?;
        let gradient: Vec<f32> = now.iter().zip(&target).map(|(w, t)| w - t).collect();
        let gradient = Tensor::from_slice(&stream, &SIDES, &gradient)?;
        muon.step(&stream, &mut [w.view_mut()?], &[&gradient], None)?;
        let wide: Vec<f64> = state.weights.iter().zip(&target).map(|(w, t)| w - f64::from(*t)).collect();
        oracle.step(SIDES[1], 0.05, 0.0, &mut state, &wide);
        let (got, want) = (loss(&numbers(&stream, &w)?), loss(&state.weights));
        assert!((got - want).abs() < 0.01 * losses[0], "step {step}: {got}, in f64 {want}");
        losses.push(got);
    }
    assert!(losses[60] < 0.5 * losses[0], "{losses:?}");
    Ok(())
}

/// A step that is refused for its weights has not averaged the gradient either.
#[test]
fn a_refused_step_is_none() -> Outcome {
    let stream = stream()?;
    let mut matrix = Tensor::zeros(&stream, &[2, 3], DType::BF16)?;
    let gradient = Tensor::from_slice(&stream, &[2, 3], &[1.0f32, -2.0, 3.0, 0.5, 0.25, 4.0])?;
    let state = StateConfig { master: true, ..StateConfig::default() };
    let mut muon = Muon::new(&stream, &[matrix.view_mut()?], MuonConfig { state, ..config() })?;
    let kept = muon.master(0)?.ok_or("there are master weights")?;
    let error = muon.step(&stream, &mut [matrix.view_mut()?], &[&gradient], None);
    assert!(
        matches!(error.as_ref().err().and_then(Error::tensor_error), Some(TensorError::Shared { .. })),
        "{error:?}"
    );
    drop(kept);
    let average = muon.moment(0)?.ok_or("Muon has a moment")?;
    assert_eq!(numbers(&stream, &average)?, [0.0; 6]);
    drop(average);
    muon.step(&stream, &mut [matrix.view_mut()?], &[&gradient], None)?;
    for (name, tensor) in muon.state(&stream)?.iter().filter(|(name, _)| name.contains("step")) {
        assert_eq!(tensor.to_vec::<i64>(&stream)?[0], 1, "{name}");
    }
    Ok(())
}

#[test]
fn wrong_calls() -> Outcome {
    let stream = stream()?;
    let mut matrix = Tensor::zeros(&stream, &[2, 3], DType::F32)?;
    let mut vector = Tensor::zeros(&stream, &[3], DType::F32)?;
    let mut half = Tensor::zeros(&stream, &[2, 3], DType::F16)?;
    let made = |x: &mut Tensor, config| Muon::new(&stream, &[x.view_mut()?], config).map(drop);
    let defaults = MuonConfig::default();
    let shape = made(&mut vector, defaults);
    assert!(
        matches!(shape.as_ref().err().and_then(Error::tensor_error), Some(TensorError::Shape { .. })),
        "{shape:?}"
    );
    let dtype = made(&mut half, defaults);
    assert!(
        matches!(dtype.as_ref().err().and_then(Error::tensor_error), Some(TensorError::DType { .. })),
        "{dtype:?}"
    );
    for config in [
        MuonConfig { iterations: 0, ..defaults },
        MuonConfig { iterations: 21, ..defaults },
        MuonConfig { momentum: 1.0, ..defaults },
        // As f32 these are 1, 0, a number whose inverse is infinite, and infinite.
        MuonConfig { momentum: 1.0 - 1e-9, ..defaults },
        MuonConfig { eps: 1e-46, ..defaults },
        MuonConfig { eps: 1e-45, ..defaults },
        MuonConfig { weight_decay: 1e39, ..defaults },
        MuonConfig { learning_rate: 1e39, ..defaults },
        MuonConfig { eps: 0.0, ..defaults },
        MuonConfig { eps: -1.0, ..defaults },
        MuonConfig { weight_decay: f64::NAN, ..defaults },
        MuonConfig { learning_rate: f64::INFINITY, ..defaults },
    ] {
        let error = made(&mut matrix, config);
        assert!(
            matches!(error, Err(Error::InvalidArgument { operation: "Muon", .. })),
            "{config:?}: {error:?}"
        );
    }
    let mut muon = Muon::new(&stream, &[matrix.view_mut()?], defaults)?;
    let gradient = Tensor::zeros(&stream, &[3, 2], DType::F32)?;
    let error = muon.step(&stream, &mut [matrix.view_mut()?], &[&gradient], None);
    assert!(
        matches!(error.as_ref().err().and_then(Error::tensor_error), Some(TensorError::Shape { .. })),
        "{error:?}"
    );
    assert!(muon.set_weight_decay(1, 0.0).is_err() && muon.set_learning_rate_factor(1, 1.0).is_err());
    let error = muon.set_learning_rate_factor(0, -1.0).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { operation: "Muon", argument: "factor", .. }), "{error}");
    Ok(())
}
