//! Inference over batches with `map`: on one device and on all, with a copy of the model on each. A batch
//! comes from the host's memory, and a row of its result goes back.

use std::time::Instant;

use half::bf16;
use ironwarp::parallel::map;
use ironwarp::{Device, Result, Stream, Tensor};
use ironwarp_benches::{Outcome, Session, Work};

use super::SAMPLES;
use super::model::{Model, Size, numbers};

/// Batches of a run.
const BATCHES: usize = 256;
const FEW_BATCHES: usize = 4;
/// Sequences of a batch: a part of a training step's.
const PART: usize = 4;

/// The first row of the result.
fn first_row(model: &Model, stream: &Stream, batch: &[bf16]) -> Result<Vec<bf16>> {
    let x = Tensor::from_slice(stream, &[model.size.rows(), model.size.width()], batch)?;
    model.forward(stream, &x, drop)?.slice(0, ..1)?.to_vec(stream)
}

pub fn bench(session: &mut Session, devices: &[Device], size: Size) -> Outcome {
    if devices.len() < 2 || !session.wants("map") {
        return Ok(());
    }
    let size = Size { sequences: size.sequences.div_ceil(PART), ..size };
    let batches = if session.small() { FEW_BATCHES } else { BATCHES };
    let batch = |number: usize| {
        numbers(number as u64, size.rows() * size.width()).map(bf16::from_f32).collect::<Vec<_>>()
    };
    let batches: Vec<Vec<bf16>> = (0..batches).map(batch).collect();
    let model = |device: &Device| Ok((device.clone(), Model::new(&device.stream()?, size)?));
    let models: Vec<(Device, Model)> = devices.iter().map(model).collect::<Result<_>>()?;
    let run = |devices: &[Device]| {
        map(devices, &batches, |stream, batch| {
            let model = models.iter().find(|(device, _)| device == stream.device());
            first_row(&model.expect("each device has a model").1, stream, batch)
        })
    };
    // One and all in turns; the first run compiles the kernels.
    let (mut times, counts) = ([vec![], vec![]], [1, devices.len()]);
    let wanted = run(devices)?;
    for _ in 0..SAMPLES {
        for (count, times) in counts.iter().zip(&mut times) {
            let begun = Instant::now();
            assert!(run(&devices[..*count])? == wanted, "results differ");
            times.push((1, begun.elapsed().as_secs_f64() * 1e3));
        }
    }
    let work = Work::Flops(size.operations() * batches.len() as u64);
    let mut medians = Vec::new();
    for (count, mut times) in counts.iter().zip(times) {
        session.record("map", &format!("{count} devices"), work, &[("ironwarp", times.clone())])?;
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        medians.push(times[times.len() / 2].1);
    }
    let [one, all] = [medians[0], medians[1]];
    println!("map on {} devices: {all:.3} ms, {:.3} times one", devices.len(), one / all);
    Ok(())
}
