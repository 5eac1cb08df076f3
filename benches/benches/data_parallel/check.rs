//! Whether what is timed is right: the written gradients are slopes of the loss, and those of all devices
//! together are those of one with the whole batch.

use half::bf16;
use ironwarp::parallel::Group;
use ironwarp::{Device, Result, Stream, Tensor};
use ironwarp_benches::Outcome;

use super::model::Size;
use super::trainer::Trainer;

/// Gradients of all devices differ from one device's by so much at most, as a part of each one's norm: two
/// units of bf16. Values on the way are rounded to it, and products of other sides may add up in another
/// order.
const ROUNDING: f64 = 1.0 / 128.0;
/// A step along the gradient is to change the loss by so much of it.
const CHANGE: f64 = 0.02;
/// Slopes differ from the gradient's length by so much of it: the loss is no line, and weights are bf16.
const BEND: f64 = 0.1;

/// The gradients of one step on these devices, each with a batch of that size.
fn gradients(devices: &[Device], size: Size) -> Result<Vec<Vec<f32>>> {
    let results = Group::open(devices)?.run(|rank| {
        let stream = rank.device().stream()?;
        stream.scope(|_| {
            let mut trainer = Trainer::new(rank, &stream, size)?;
            trainer.gradients(&stream)?;
            let count = trainer.model.parameters().count();
            let all = (0..count).map(|index| trainer.buckets.gradient(index)?.to_vec(&stream));
            let all = all.collect::<Result<Vec<_>>>()?;
            trainer.rank.synchronize(&stream)?;
            Ok(all)
        })
    })?;
    assert!(results.iter().all(|of_rank| *of_rank == results[0]), "all devices have the same gradients");
    Ok(results.into_iter().next().expect("at least one rank"))
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

/// Prints and bounds how far the gradients of all devices are from those of one with the whole batch.
pub fn agree(devices: &[Device], size: Size) -> Outcome {
    let whole = Size { sequences: size.sequences * devices.len(), ..size };
    let (one, all) = (gradients(&devices[..1], whole)?, gradients(devices, size)?);
    let apart =
        |(a, b): (&Vec<f32>, &Vec<f32>)| norm(a.iter().zip(b).map(|(a, b)| a - b)) / norm(a.iter().copied());
    let worst =
        one.iter().zip(&all).map(apart).fold(0.0, |worst: f64, it| if it <= worst { worst } else { it });
    println!("gradients of {} devices are within {worst:.1e} of one's with the whole batch", devices.len());
    assert!(worst <= ROUNDING, "within {ROUNDING:.1e} of each one's norm");
    Ok(())
}

/// Along the gradient of each parameter, the loss rises as steeply as the gradient is long.
pub fn are_slopes(device: &Device, size: Size) -> Outcome {
    let stream = device.stream()?;
    let rank = Group::open(std::slice::from_ref(device))?.into_communicators().remove(0);
    Ok(stream.scope(|_| {
        let mut trainer = Trainer::new(rank, &stream, size)?;
        trainer.gradients(&stream)?;
        let loss = trainer.loss(&stream)?;
        let mut worst = 0.0;
        for index in 0..trainer.model.parameters().count() {
            let gradient = trainer.buckets.gradient(index)?.to_vec(&stream)?;
            let length = norm(gradient.iter().copied());
            let distance = CHANGE * loss / length;
            let direction: Vec<f32> =
                gradient.iter().map(|g| (f64::from(*g) / length * distance) as f32).collect();
            let slope = slope(&mut trainer, &stream, index, &direction)? / distance;
            let apart = (slope / length - 1.0).abs();
            assert!(apart < BEND, "parameter {index}: {slope} along a gradient of {length}");
            worst = f64::max(worst, apart);
        }
        println!("written gradients are slopes of the loss, within {:.1} %", 100.0 * worst);
        Ok(())
    })?)
}

fn parameter(trainer: &mut Trainer, index: usize) -> &mut Tensor {
    trainer.model.parameters_mut().nth(index).expect("each gradient is one's")
}

/// Half of what the loss differs by between both sides of a parameter, so far apart.
fn slope(trainer: &mut Trainer, stream: &Stream, index: usize, direction: &[f32]) -> Result<f64> {
    let before = parameter(trainer, index).to_vec::<bf16>(stream)?;
    let mut loss_at = |side: f32| {
        let moved = before.iter().zip(direction).map(|(w, d)| bf16::from_f32(w.to_f32() + side * d));
        let moved: Vec<bf16> = moved.collect();
        parameter(trainer, index).view_mut()?.copy_from_slice(stream, &moved)?;
        trainer.loss(stream)
    };
    let slope = (loss_at(1.0)? - loss_at(-1.0)?) / 2.0;
    loss_at(0.0)?;
    Ok(slope)
}
