//! Several models side by side: each is trained on one device, with its own rate. Whichever device is done
//! takes the next; results come in the order of the models, and are those of one device, to the bit.

use ironwarp::parallel::map;
use ironwarp::{Device, Result, Stream, Tensor};

use crate::numbers::numbers;

const SAMPLES: usize = 40;
const INPUTS: usize = 12;
const STEPS: usize = 10;
const RATES: [f32; 6] = [0.01, 0.03, 0.1, 0.2, 0.4, 0.8];

/// The weights of a linear model after some steps, and its losses at the beginning and at the end.
fn train(stream: &Stream, rate: f32) -> Result<(Vec<f32>, [f32; 2])> {
    let x = numbers(stream, &[SAMPLES, INPUTS], 1.0, 1)?;
    let targets = x.matmul(&numbers(stream, &[INPUTS, 1], 1.0, 2)?)?;
    let mut weights = Tensor::zeros(stream, &[INPUTS, 1], ironwarp::DType::F32)?;
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let error = x.matmul(&weights)?.sub(&targets)?;
        losses.push(error.mul(&error)?.mean_all()?);
        weights = weights.sub(&x.t()?.matmul(&error)?.mul(2.0 * rate / SAMPLES as f32)?)?;
    }
    let loss = |at: usize| losses[at].item::<f32>();
    Ok((weights.to_vec::<f32>(stream)?, [loss(0)?, loss(STEPS - 1)?]))
}

pub fn run(devices: &[Device]) -> Result<()> {
    let trained = map(devices, &RATES, |stream, &rate| train(stream, rate))?;
    assert_eq!(trained, map(&devices[..1], &RATES, |stream, &rate| train(stream, rate))?, "as on one device");
    let best = trained.iter().zip(RATES).min_by(|(a, _), (b, _)| a.1[1].total_cmp(&b.1[1]));
    let ((_, [begin, end]), rate) = best.expect("there are models");
    assert!(end < begin, "it learns");
    let (models, count) = (RATES.len(), devices.len());
    println!(
        "models: {models} side by side on {count} devices; the best has rate {rate}, loss {begin:.3} -> {end:.3}"
    );
    Ok(())
}
