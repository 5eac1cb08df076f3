//! The promises of optimisers beside their formulas: the same bits however tensors are dealt out, rounding
//! that is right on average, hostile gradients, wrong calls. On whichever driver is there.

use crate::common::{Outcome, stream};
use crate::ops_optim::{Held, all, numbers};
use half::bf16;
use ironwarp::ops::optim::{
    AdamW, AdamWConfig, GradientNorm, Lion, LionConfig, NormConfig, Sgd, SgdConfig, StateConfig,
};
use ironwarp::{DType, Error, Stream, Tensor, TensorError};
use testkit::{Family, compare, input};

#[test]
fn one_launch_or_one_a_tensor() -> Outcome {
    let stream = stream()?;
    let lengths = [1, 9, 300, 8192, 8200, 40];
    let values: Vec<Vec<f32>> = lengths.iter().map(|&n| input(Family::Normal, n as u64, n)).collect();
    let make = || values.iter().map(|v| Held::new(&stream, DType::F32, v, 0)).collect::<Result<Vec<_>, _>>();
    let (mut together, mut alone) = (make()?, make()?);
    let gradients: Vec<Tensor> =
        values.iter().map(|v| Tensor::from_slice(&stream, &[v.len()], v)).collect::<Result<_, _>>()?;
    let mut one = AdamW::new(&stream, &all(&mut together)?, AdamWConfig::default())?;
    let mut each = alone
        .iter_mut()
        .map(|held| AdamW::new(&stream, &[held.view_mut()?], AdamWConfig::default()))
        .collect::<Result<Vec<_>, _>>()?;
    for _ in 0..3 {
        one.step(&stream, &mut all(&mut together)?, &gradients.iter().collect::<Vec<_>>(), None)?;
        for ((adamw, held), gradient) in each.iter_mut().zip(&mut alone).zip(&gradients) {
            adamw.step(&stream, &mut [held.view_mut()?], &[gradient], None)?;
        }
    }
    for (i, (together, alone)) in together.iter().zip(&alone).enumerate() {
        let [a, b] = [together, alone].map(|held| held.view()?.to_vec::<f32>(&stream));
        compare::bitwise_equal(&format!("tensor {i}"), &a?, &b?)?;
    }
    assert_eq!((one.steps(&stream)?, one.skipped(&stream)?), (3, 0));
    Ok(())
}

/// Weights of 1 in bf16, whose neighbour below is 2^-8 away, less 2^-12 a step. Gradients of bf16 are taken
/// eight at a time, those of f32 four, and where `shift` is odd one.
fn small_updates(
    stream: &Stream,
    stochastic: bool,
    gradient: DType,
    shift: usize,
    seed: u64,
) -> Outcome<Vec<bf16>> {
    let mut held = [Held::new(stream, DType::BF16, &[1.0; 4099], shift)?];
    let state = StateConfig { stochastic, seed, ..StateConfig::default() };
    let config = SgdConfig { learning_rate: (-12f64).exp2(), state, ..SgdConfig::default() };
    let mut sgd = Sgd::new(stream, &all(&mut held)?, config)?;
    let gradient = Held::new(stream, gradient, &[1.0; 4099], 0)?.view()?;
    for _ in 0..8 {
        sgd.step(stream, &mut all(&mut held)?, &[&gradient], None)?;
    }
    Ok(held[0].view()?.to_vec(stream)?)
}

#[test]
fn rounding_is_right_on_average() -> Outcome {
    let stream = stream()?;
    let nearest = small_updates(&stream, false, DType::F32, 0, 1)?;
    assert!(nearest.iter().all(|&w| w == bf16::ONE));
    let weights = small_updates(&stream, true, DType::F32, 0, 1)?;
    let mean = weights.iter().map(|w| 1.0 - f64::from(w.to_f32())).sum::<f64>() / 4099.0;
    // Half of 2^-8 is wanted; the mean of 4099 has a deviation of 2^-8 * 0.7 / 64.
    assert!((mean - (-9f64).exp2()).abs() < (-8f64).exp2() * 0.06, "{mean:e}");
    // Other seeds round otherwise; an element's number does not depend on how it is loaded.
    for (gradient, shift) in [(DType::F32, 0), (DType::F32, 1), (DType::BF16, 0), (DType::BF16, 1)] {
        let again = small_updates(&stream, true, gradient, shift, 1)?;
        compare::bitwise_equal(&format!("gradients of {gradient}, {shift}"), &weights, &again)?;
    }
    assert_ne!(weights, small_updates(&stream, true, DType::F32, 0, 2)?);
    Ok(())
}

/// Runs a step of AdamW on gradients with `value` in one place; gives the weights, and the counts.
fn hostile(stream: &Stream, value: f32, skip_nonfinite: bool) -> Outcome<(Vec<f64>, u64, u64)> {
    let mut held =
        [Held::new(stream, DType::F32, &[1.0; 20], 0)?, Held::new(stream, DType::BF16, &[1.0; 20], 0)?];
    let mut g = [0.5f32; 20];
    g[13] = value;
    let (bad, good) =
        (Tensor::from_slice(stream, &[20], &g)?, Held::new(stream, DType::BF16, &[0.5; 20], 0)?);
    let good = good.view()?;
    let mut adamw = AdamW::new(stream, &all(&mut held)?, AdamWConfig::default())?;
    let mut norm = GradientNorm::new(stream, NormConfig { max_norm: None, skip_nonfinite })?;
    norm.measure(stream, &[&bad, &good], None)?;
    adamw.step(stream, &mut all(&mut held)?, &[&bad, &good], Some(&norm))?;
    let weights = [numbers(stream, &held[0].view()?)?, numbers(stream, &held[1].view()?)?].concat();
    assert_eq!(norm.value(stream)?.is_finite(), value.is_finite());
    Ok((weights, adamw.steps(stream)?, adamw.skipped(stream)?))
}

#[test]
fn hostile_gradients() -> Outcome {
    let stream = stream()?;
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (weights, steps, skipped) = hostile(&stream, value, true)?;
        assert!(weights.iter().all(|&w| w == 1.0) && (steps, skipped) == (0, 1), "{value}: {weights:?}");
        let (weights, steps, skipped) = hostile(&stream, value, false)?;
        // Infinity over the root of its square.
        assert!(weights[13].is_nan() && (steps, skipped) == (1, 0), "{value}: {weights:?}");
        assert!(
            weights.iter().enumerate().all(|(i, w)| i == 13 || *w <= 1.0 && *w > 0.9),
            "{value}: {weights:?}"
        );
    }
    let (weights, steps, skipped) = hostile(&stream, 1e-30, true)?;
    assert!(weights.iter().all(|&w| w <= 1.0 && w > 0.9) && (steps, skipped) == (1, 0), "{weights:?}");
    // A skipped step leaves the next one's bias corrections alone.
    let mut held = [Held::new(&stream, DType::F32, &[1.0; 3], 0)?];
    let config = AdamWConfig { learning_rate: 0.5, weight_decay: 0.0, ..AdamWConfig::default() };
    let mut adamw = AdamW::new(&stream, &all(&mut held)?, config)?;
    let mut norm = GradientNorm::new(&stream, NormConfig::default())?;
    let mut gradient = Tensor::from_slice(&stream, &[3], &[f32::NAN, 1.0, 1.0])?;
    for value in [f32::NAN, 2.0] {
        gradient.view_mut()?.copy_from_slice(&stream, &[value, 1.0, 1.0])?;
        norm.measure(&stream, &[&gradient], None)?;
        adamw.step(&stream, &mut all(&mut held)?, &[&gradient], Some(&norm))?;
    }
    let weights = numbers(&stream, &held[0].view()?)?;
    assert!(weights.iter().all(|w| (w - 0.5).abs() < 1e-6), "{weights:?}");
    assert_eq!((adamw.steps(&stream)?, adamw.skipped(&stream)?), (1, 1));
    Ok(())
}

#[test]
fn lion_keeps_still_without_a_direction() -> Outcome {
    let stream = stream()?;
    let mut held = [Held::new(&stream, DType::F32, &[1.0; 3], 0)?];
    let config = LionConfig { learning_rate: 0.25, ..LionConfig::default() };
    let mut lion = Lion::new(&stream, &all(&mut held)?, config)?;
    let gradient = Tensor::from_slice(&stream, &[3], &[0.0f32, -0.0, f32::NAN])?;
    lion.step(&stream, &mut all(&mut held)?, &[&gradient], None)?;
    let got = numbers(&stream, &held[0].view()?)?;
    assert!(got[..2] == [1.0, 1.0] && got[2].is_nan(), "{got:?}");
    Ok(())
}

#[test]
fn more_tensors_than_a_launch_describes() -> Outcome {
    let stream = stream()?;
    let mut held = (0..70)
        .map(|i| Held::new(&stream, DType::F32, &vec![i as f32; i % 5], 0))
        .collect::<Result<Vec<_>, _>>()?;
    let gradients: Vec<Tensor> = (0..70)
        .map(|i| Tensor::from_slice(&stream, &[i % 5], &vec![1.0f32; i % 5]))
        .collect::<Result<_, _>>()?;
    let config = SgdConfig { learning_rate: 1.0, ..SgdConfig::default() };
    let mut sgd = Sgd::new(&stream, &all(&mut held)?, config)?;
    sgd.step(&stream, &mut all(&mut held)?, &gradients.iter().collect::<Vec<_>>(), None)?;
    for (i, held) in held.iter().enumerate() {
        assert_eq!(held.view()?.to_vec::<f32>(&stream)?, vec![i as f32 - 1.0; i % 5]);
    }
    // And no tensor at all.
    let mut none = Sgd::new(&stream, &[], SgdConfig::default())?;
    none.step(&stream, &mut [], &[], None)?;
    assert_eq!(none.steps(&stream)?, 1);
    Ok(())
}

#[test]
fn wrong_calls_say_what_to_do() -> Outcome {
    let stream = stream()?;
    let wrong = |error: Error, is_it: fn(&Error) -> bool| {
        assert!(is_it(&error) && error.to_string().contains("\nhint: ") && error.is_recoverable(), "{error}");
    };
    fn argument(name: &'static str) -> fn(&Error) -> bool {
        match name {
            "learning_rate" => |e| matches!(e, Error::InvalidArgument { argument: "learning_rate", .. }),
            "weight_decay" => |e| matches!(e, Error::InvalidArgument { argument: "weight_decay", .. }),
            "betas" => |e| matches!(e, Error::InvalidArgument { argument: "betas", .. }),
            "eps" => |e| matches!(e, Error::InvalidArgument { argument: "eps", .. }),
            "momentum" => |e| matches!(e, Error::InvalidArgument { argument: "momentum", .. }),
            "moments" => |e| matches!(e, Error::InvalidArgument { argument: "moments", .. }),
            "max_norm" => |e| matches!(e, Error::InvalidArgument { argument: "max_norm", .. }),
            "parameter" => |e| matches!(e, Error::InvalidArgument { argument: "parameter", .. }),
            "params" => |e| matches!(e, Error::InvalidArgument { argument: "params", .. }),
            _ => |e| matches!(e, Error::InvalidArgument { argument: "grads", .. }),
        }
    }
    let usual = AdamWConfig::default();
    for bad in [-1e-3, f64::NAN, f64::INFINITY] {
        for (name, config) in [
            ("learning_rate", AdamWConfig { learning_rate: bad, ..usual }),
            ("weight_decay", AdamWConfig { weight_decay: bad, ..usual }),
            ("betas", AdamWConfig { betas: [0.9, bad], ..usual }),
            ("eps", AdamWConfig { eps: bad, ..usual }),
        ] {
            wrong(AdamW::new(&stream, &[], config).unwrap_err(), argument(name));
        }
        let config = SgdConfig { momentum: bad, ..SgdConfig::default() };
        wrong(Sgd::new(&stream, &[], config).unwrap_err(), argument("momentum"));
        let config = LionConfig { betas: [bad, 0.9], ..LionConfig::default() };
        wrong(Lion::new(&stream, &[], config).unwrap_err(), argument("betas"));
    }
    let short = StateConfig { moments: DType::F16, ..StateConfig::default() };
    wrong(AdamW::new(&stream, &[], AdamWConfig { state: short, ..usual }).unwrap_err(), argument("moments"));
    for bad in [0.0, -1.0, f64::NAN] {
        let config = NormConfig { max_norm: Some(bad), ..NormConfig::default() };
        wrong(GradientNorm::new(&stream, config).unwrap_err(), argument("max_norm"));
    }

    let zeros = |shape: &[usize], dtype| Tensor::zeros(&stream, shape, dtype);
    let (mut x, mut bytes) = (zeros(&[4, 3], DType::F32)?, zeros(&[4], DType::U8)?);
    let error = AdamW::new(&stream, &[bytes.view_mut()?], usual).unwrap_err();
    wrong(error, |e| matches!(e.tensor_error(), Some(TensorError::DType { what: "a parameter", .. })));
    let error = AdamW::new(&stream, &[x.view_mut()?.permute(&[1, 0])?], usual).unwrap_err();
    wrong(error, |e| matches!(e.tensor_error(), Some(TensorError::NotContiguous { .. })));

    let mut adamw = AdamW::new(&stream, &[x.view_mut()?], usual)?;
    let g = zeros(&[4, 3], DType::F32)?;
    wrong(adamw.set_learning_rate(&stream, f64::NAN).unwrap_err(), argument("learning_rate"));
    wrong(adamw.moment(0, 1).unwrap_err(), argument("parameter"));
    wrong(adamw.step(&stream, &mut [], &[&g], None).unwrap_err(), argument("params"));
    wrong(adamw.step(&stream, &mut [x.view_mut()?], &[], None).unwrap_err(), argument("grads"));
    let mut step = |x: &mut Tensor, g: &Tensor| adamw.step(&stream, &mut [x.view_mut()?], &[g], None);
    wrong(step(&mut x, &zeros(&[3, 4], DType::F32)?).unwrap_err(), |e| {
        matches!(e.tensor_error(), Some(TensorError::Shape { what: "a gradient", .. }))
    });
    wrong(step(&mut zeros(&[3], DType::F32)?, &g).unwrap_err(), |e| {
        matches!(e.tensor_error(), Some(TensorError::Shape { what: "a parameter", .. }))
    });
    wrong(step(&mut zeros(&[4, 3], DType::BF16)?, &g).unwrap_err(), |e| {
        matches!(e.tensor_error(), Some(TensorError::DType { what: "a parameter", .. }))
    });
    wrong(step(&mut x, &zeros(&[4, 3], DType::F16)?).unwrap_err(), |e| {
        matches!(e.tensor_error(), Some(TensorError::DType { what: "a gradient", .. }))
    });
    wrong(step(&mut x, &zeros(&[3, 4], DType::F32)?.transpose(0, 1)?).unwrap_err(), |e| {
        matches!(e.tensor_error(), Some(TensorError::NotContiguous { .. }))
    });
    let mut norm = GradientNorm::new(&stream, NormConfig::default())?;
    wrong(norm.measure(&stream, &[&bytes], None).unwrap_err(), |e| {
        matches!(e.tensor_error(), Some(TensorError::DType { what: "a gradient", .. }))
    });
    wrong(norm.measure(&stream, &[&g], Some(&g)).unwrap_err(), |e| {
        matches!(e.tensor_error(), Some(TensorError::Shape { what: "the loss scale", .. }))
    });
    // Nothing of this was a step; while a part of the state is held, there is none either.
    let kept = adamw.moment(0, 0)?;
    let error = adamw.step(&stream, &mut [x.view_mut()?], &[&g], None).unwrap_err();
    wrong(error, |e| matches!(e.tensor_error(), Some(TensorError::Shared { .. })));
    drop(kept);
    assert_eq!(adamw.steps(&stream)?, 0);
    adamw.step(&stream, &mut [x.view_mut()?], &[&g], None)?;
    assert_eq!(adamw.steps(&stream)?, 1);
    Ok(())
}

/// A copy of a part of the state, with the moment's number, or none for the master weights.
fn copies(stream: &Stream, adamw: &AdamW) -> Outcome<Vec<(Option<usize>, Vec<f32>)>> {
    let mut copies = Vec::new();
    for number in [Some(0), Some(1), None] {
        let part = number.map_or_else(|| adamw.master(1), |number| adamw.moment(number, 1))?;
        let part = part.ok_or("AdamW with master weights keeps all three")?;
        copies.push((number, part.to_vec::<f32>(stream)?));
    }
    Ok(copies)
}

/// Master weights are those of 16-bit parameters: f32s are their own.
#[test]
fn f32s_have_no_master_weights() -> Outcome {
    let stream = stream()?;
    let state = StateConfig { master: true, ..StateConfig::default() };
    for (dtype, is_kept) in [(DType::F32, false), (DType::BF16, true), (DType::F16, true)] {
        let mut held = [Held::new(&stream, dtype, &[1.0; 3], 0)?];
        let adamw = AdamW::new(&stream, &all(&mut held)?, AdamWConfig { state, ..AdamWConfig::default() })?;
        let names: Vec<String> = adamw.state(&stream)?.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.iter().any(|name| name == "optimizer.master"), is_kept, "{dtype}: {names:?}");
        assert_eq!(adamw.master(0)?.is_some(), is_kept, "{dtype}");
    }
    Ok(())
}

/// A norm that only an f64 holds is as infinite to the step as to the loss scale.
#[test]
fn a_norm_beyond_f32_skips_the_step() -> Outcome {
    let stream = stream()?;
    let mut norm = GradientNorm::new(&stream, NormConfig { max_norm: None, skip_nonfinite: true })?;
    let mut held = [Held::new(&stream, DType::F32, &[1.0; 3], 0)?];
    let mut sgd = Sgd::new(&stream, &all(&mut held)?, SgdConfig::default())?;
    for (gradient, scale) in [(1e18f32, 1e-30f32), (1e-3, 1e-39), (0.0, 1e-39)] {
        let gradient = Tensor::from_slice(&stream, &[3], &[gradient; 3])?;
        norm.measure(&stream, &[&gradient], Some(&Tensor::from_slice(&stream, &[1], &[scale])?))?;
        sgd.step(&stream, &mut all(&mut held)?, &[&gradient], Some(&norm))?;
    }
    assert_eq!((sgd.skipped(&stream)?, numbers(&stream, &held[0].view()?)?), (3, vec![1.0; 3]));
    Ok(())
}

#[test]
fn a_training_is_taken_up_again() -> Outcome {
    let stream = stream()?;
    let state = StateConfig { master: true, ..StateConfig::default() };
    let config = AdamWConfig { state, ..AdamWConfig::default() };
    let x = input::<f32>(Family::Normal, 1, 21);
    let gradient = Tensor::from_slice(&stream, &[21], &input::<f32>(Family::Normal, 2, 21))?;
    // The first parameter shifts where the second one's state begins.
    let other = Tensor::from_slice(&stream, &[3], &[1.0f32; 3])?;
    let grads = [&other, &gradient];
    let make = |x: &[f32]| -> Outcome<[Held; 2]> {
        Ok([Held::new(&stream, DType::F32, &[1.0; 3], 0)?, Held::new(&stream, DType::BF16, x, 0)?])
    };
    let mut held = make(&x)?;
    let mut adamw = AdamW::new(&stream, &all(&mut held)?, config)?;
    for _ in 0..3 {
        adamw.step(&stream, &mut all(&mut held)?, &grads, None)?;
    }
    let weights: Vec<f32> = numbers(&stream, &held[1].view()?)?.into_iter().map(|w| w as f32).collect();
    let mut later = make(&weights)?;
    let mut again = AdamW::new(&stream, &all(&mut later)?, config)?;
    for (number, values) in copies(&stream, &adamw)? {
        let part = match number {
            Some(number) => again.moment_mut(number, 1)?,
            None => again.master_mut(1)?,
        };
        part.ok_or("there is such a part")?.copy_from_slice(&stream, &values)?;
    }
    again.set_steps(&stream, 3)?;
    for _ in 0..2 {
        adamw.step(&stream, &mut all(&mut held)?, &grads, None)?;
        again.step(&stream, &mut all(&mut later)?, &grads, None)?;
    }
    assert_eq!((adamw.steps(&stream)?, again.steps(&stream)?), (5, 5));
    for ((number, want), (_, got)) in copies(&stream, &adamw)?.into_iter().zip(copies(&stream, &again)?) {
        compare::bitwise_equal(&format!("{number:?}"), &got, &want)?;
    }
    // There is no third moment, and no fourth parameter.
    assert!(adamw.moment(2, 0)?.is_none() && adamw.moment(0, 3).is_err() && adamw.moment_mut(0, 3).is_err());
    Ok(())
}

#[test]
fn parameters_decay_each_by_their_own() -> Outcome {
    let stream = stream()?;
    let mut held =
        [Held::new(&stream, DType::F32, &[1.0; 5], 0)?, Held::new(&stream, DType::F32, &[1.0; 5], 0)?];
    let zeros = Tensor::zeros(&stream, &[5], DType::F32)?;
    let config = AdamWConfig { learning_rate: 0.5, weight_decay: 0.5, ..AdamWConfig::default() };
    let mut adamw = AdamW::new(&stream, &all(&mut held)?, config)?;
    adamw.step(&stream, &mut all(&mut held)?, &[&zeros, &zeros], None)?;
    adamw.set_weight_decay(1, 0.0)?;
    adamw.step(&stream, &mut all(&mut held)?, &[&zeros, &zeros], None)?;
    assert_eq!(held[0].view()?.to_vec::<f32>(&stream)?, [0.5625; 5]);
    assert_eq!(held[1].view()?.to_vec::<f32>(&stream)?, [0.75; 5]);
    for (parameter, decay) in [(2, 0.1), (0, -0.1), (0, f64::NAN)] {
        let error = adamw.set_weight_decay(parameter, decay).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("\nhint: "));
    }
    Ok(())
}

#[test]
fn parameters_learn_each_at_their_own_rate() -> Outcome {
    let stream = stream()?;
    let values: Vec<f32> = input(Family::Normal, 3, 300);
    let gradient = Tensor::from_slice(&stream, &[300], &input::<f32>(Family::Normal, 4, 300))?;
    let make = || Held::new(&stream, DType::F32, &values, 0);
    // Half the rate by the factor, and by the configuration. Powers of two: the same bits.
    let (mut two, mut one) = ([make()?, make()?], [make()?]);
    let config = AdamWConfig { learning_rate: 0.25, ..AdamWConfig::default() };
    let mut by_factor = AdamW::new(&stream, &all(&mut two)?, config)?;
    by_factor.set_learning_rate_factor(1, 0.5)?;
    let config = AdamWConfig { learning_rate: 0.125, ..config };
    let mut by_rate = AdamW::new(&stream, &all(&mut one)?, config)?;
    for _ in 0..3 {
        by_factor.step(&stream, &mut all(&mut two)?, &[&gradient, &gradient], None)?;
        by_rate.step(&stream, &mut all(&mut one)?, &[&gradient], None)?;
    }
    let [whole, half] = [two[0].view()?.to_vec::<f32>(&stream)?, two[1].view()?.to_vec::<f32>(&stream)?];
    compare::bitwise_equal("half the rate", &half, &one[0].view()?.to_vec::<f32>(&stream)?)?;
    assert_ne!(whole, half);
    let error = by_factor.set_learning_rate_factor(2, 1.0).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "parameter", .. }), "{error}");
    let error = by_factor.set_learning_rate_factor(0, f64::INFINITY).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "factor", .. }), "{error}");
    Ok(())
}
