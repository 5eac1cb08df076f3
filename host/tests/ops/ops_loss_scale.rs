//! Dynamic loss scaling against PyTorch's rule, at its limits, and behind a checkpoint. On whichever driver
//! is there.

use crate::common::{Outcome, stream};
use ironwarp::ops::optim::{GradientNorm, LossScale, LossScaleConfig, NormConfig};
use ironwarp::{Error, Stream, Tensor, TensorError};
use testkit::Random;

/// `torch.amp.GradScaler.update` in f64: the scale, and the finite steps in a row.
fn updated((scale, finite): (f64, u32), config: LossScaleConfig, is_finite: bool) -> (f64, u32) {
    if !is_finite {
        return (scale * config.backoff, 0);
    }
    if finite + 1 == config.interval { (scale * config.growth, 0) } else { (scale, finite + 1) }
}

/// A norm of gradients of which one is `value`.
fn norm_of(stream: &Stream, value: f32, scale: &LossScale) -> Outcome<GradientNorm> {
    // The scale changes whether or not steps are skipped.
    let mut norm = GradientNorm::new(stream, NormConfig { max_norm: None, skip_nonfinite: false })?;
    let gradient = Tensor::from_slice(stream, &[3], &[1.0, value, 2.0])?;
    norm.measure(stream, &[&gradient], Some(scale.tensor()))?;
    Ok(norm)
}

#[test]
fn scales_follow_the_rule() -> Outcome {
    let stream = stream()?;
    // Powers of two: a scale is the same in f32 and f64.
    for (growth, backoff, interval) in [(2.0, 0.5, 3), (4.0, 0.25, 1), (1.0, 0.5, 2), (2.0, 0.125, u32::MAX)]
    {
        let config = LossScaleConfig { initial: 1024.0, growth, backoff, interval };
        let (mut scale, mut random) = (LossScale::new(&stream, config)?, Random::new(u64::from(interval)));
        let mut want = (1024.0, 0);
        for step in 0..40 {
            let value = [0.5, 0.0, -3.0, 1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-3];
            let value = value[random.integer(0, 7) as usize];
            let norm = norm_of(&stream, value, &scale)?;
            scale.update(&stream, &norm)?;
            want = updated(want, config, value.is_finite());
            assert_eq!(f64::from(scale.value(&stream)?), want.0, "{config:?}, step {step}, {value}");
        }
    }
    Ok(())
}

#[test]
fn scales_stay_normal_numbers() -> Outcome {
    let stream = stream()?;
    let step = |scale: &mut LossScale, value| -> Outcome<f32> {
        let norm = norm_of(&stream, value, scale)?;
        scale.update(&stream, &norm)?;
        Ok(scale.value(&stream)?)
    };
    let config = LossScaleConfig { interval: 1, ..LossScaleConfig::default() };
    let most = f32::MAX / 1.5;
    let mut scale = LossScale::new(&stream, LossScaleConfig { initial: f64::from(most), ..config })?;
    assert_eq!(step(&mut scale, 1.0)?, most, "twice that is infinite");
    let least = f32::MIN_POSITIVE;
    let mut scale = LossScale::new(&stream, LossScaleConfig { initial: f64::from(3.0 * least), ..config })?;
    let got = [step(&mut scale, f32::NAN)?, step(&mut scale, f32::NAN)?, step(&mut scale, f32::NAN)?];
    assert_eq!(got, [1.5 * least, least, least]);
    assert_eq!(step(&mut scale, 0.0)?, 2.0 * least);
    Ok(())
}

#[test]
fn a_state_goes_on() -> Outcome {
    let stream = stream()?;
    let config = LossScaleConfig { initial: 8.0, interval: 4, ..LossScaleConfig::default() };
    let run = |scale: &mut LossScale, values: &[f32]| -> Outcome<f32> {
        for &value in values {
            let norm = norm_of(&stream, value, scale)?;
            scale.update(&stream, &norm)?;
        }
        Ok(scale.value(&stream)?)
    };
    let mut first = LossScale::new(&stream, config)?;
    assert_eq!(run(&mut first, &[f32::NAN, 1.0, 1.0, 1.0])?, 4.0);
    let mut second = LossScale::new(&stream, config)?;
    let state = first.state();
    second.restore(|name, mut to| {
        let (_, from) = state.iter().find(|(given, _)| given == name).expect("a name of the state");
        match from.dtype() {
            ironwarp::DType::F32 => to.copy_from_slice(&stream, &from.to_vec::<f32>(&stream)?),
            _ => to.copy_from_slice(&stream, &from.to_vec::<i32>(&stream)?),
        }
    })?;
    // The fourth finite step in a row.
    assert_eq!(run(&mut second, &[1.0])?, 8.0);
    // The state is held: nothing is updated.
    let norm = norm_of(&stream, f32::NAN, &first)?;
    let error = first.update(&stream, &norm).unwrap_err();
    let is_it =
        matches!(error.tensor_error(), Some(TensorError::Shared { operation: "LossScale::update", .. }));
    assert!(is_it && error.to_string().contains("\nhint: "), "{error}");
    drop(state);
    assert_eq!(run(&mut first, &[1.0])?, 8.0);
    Ok(())
}

#[test]
fn numbers_that_are_no_scale_are_refused() -> Outcome {
    let stream = stream()?;
    let usual = LossScaleConfig::default();
    let wrong = |config: LossScaleConfig, name: &str| {
        let error = LossScale::new(&stream, config).unwrap_err();
        let is_it = matches!(&error, Error::InvalidArgument { argument, .. } if *argument == name);
        assert!(is_it && error.to_string().contains("\nhint: "), "{error:?}");
    };
    for initial in [0.0, -2.0, f64::NAN, f64::INFINITY, 1e39, 1e-39] {
        wrong(LossScaleConfig { initial, ..usual }, "initial");
    }
    for growth in [0.99, f64::NAN, f64::INFINITY, 1e39] {
        wrong(LossScaleConfig { growth, ..usual }, "growth");
    }
    for backoff in [0.0, 1.0, -0.5, f64::NAN, 1e-60, 1.0 - 1e-12] {
        wrong(LossScaleConfig { backoff, ..usual }, "backoff");
    }
    wrong(LossScaleConfig { interval: 0, ..usual }, "interval");
    Ok(())
}
