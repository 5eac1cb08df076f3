//! A step of a training: an embedding and its gradient, dropout, the norm, and an optimiser.

use ironwarp::ops::dropout::{Generator, dropout};
use ironwarp::ops::embedding::embedding_backward;
use ironwarp::ops::index::{Indices, gather};
use ironwarp::ops::optim::{
    AdamW, AdamWConfig, GradientNorm, LossScale, LossScaleConfig, NormConfig, StateConfig,
};
use ironwarp::{DType, Result, Tensor};

use super::plain;

/// The gradient of a table is that of its rows; the first step of Adam is as long as the learning rate.
pub fn step() -> Result<()> {
    let (_device, stream) = plain()?;
    let mut table = Tensor::from_slice(&stream, &[3, 2], &[1.0f32; 6])?;
    let tokens = Indices::from_slice(&stream, &[2, 0, 2], 3)?;
    let mut generator = Generator::new(&stream, 1)?;
    let state = StateConfig { moments: DType::BF16, master: true, ..StateConfig::default() };
    let config = AdamWConfig { learning_rate: 0.5, weight_decay: 0.0, state, ..AdamWConfig::default() };
    let mut adamw = AdamW::new(&stream, &[table.view_mut()?], config)?;
    let mut norm = GradientNorm::new(&stream, NormConfig { max_norm: Some(1.0), skip_nonfinite: true })?;
    let mut scale = LossScale::new(&stream, LossScaleConfig { initial: 1.0, ..LossScaleConfig::default() })?;
    let rows = dropout(&stream, &gather(&stream, &table, 0, &tokens)?, 0.0, &generator, 0)?;
    let gradient = embedding_backward(&stream, &rows, &tokens, 3)?;
    assert_eq!(gradient.to_vec::<f32>(&stream)?, [1.0, 1.0, 0.0, 0.0, 2.0, 2.0]);
    norm.measure(&stream, &[&gradient], Some(scale.tensor()))?;
    adamw.set_learning_rate(&stream, 0.25)?;
    adamw.step(&stream, &mut [table.view_mut()?], &[&gradient], Some(&norm))?;
    scale.update(&stream, &norm)?;
    assert_eq!(scale.value(&stream)?, 1.0);
    generator.advance(&stream)?;
    assert_eq!((adamw.steps(&stream)?, adamw.skipped(&stream)?), (1, 0));
    let moved: Vec<f32> = table.to_vec::<f32>(&stream)?.iter().map(|w| 1.0 - w).collect();
    // The moments are rounded to bf16 behind the step.
    let want = [0.25, 0.25, 0.0, 0.0, 0.25, 0.25];
    assert!(moved.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-5), "{moved:?}");
    Ok(())
}
