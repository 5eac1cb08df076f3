//! Stages of a model on different devices: each has some of the layers, receives activations from the device
//! before it, and sends its results to the next one. Nothing waits on the host between micro-batches, so
//! while the last stage works on the first one, those behind it are on their way through the others.

use ironwarp::parallel::{Communicator, Group, shard};
use ironwarp::{DType, Device, Result, Stream, Tensor};

use crate::numbers::numbers;

const LAYERS: usize = 8;
const WIDTH: usize = 32;
const ROWS: usize = 16;
const MICRO_BATCHES: u64 = 6;
/// Activations that a stage has at once: one is received while it works on another.
const IN_FLIGHT: usize = 2;

fn layers(stream: &Stream, layers: std::ops::Range<usize>) -> Result<Vec<Tensor>> {
    layers.map(|layer| numbers(stream, &[WIDTH, WIDTH], 0.4, 100 + layer as u64)).collect()
}

fn forward(layers: &[Tensor], x: &Tensor) -> Result<Tensor> {
    layers.iter().try_fold(x.clone(), |x, layer| x.matmul(layer)?.tanh()?.add(&x))
}

fn micro_batch(stream: &Stream, number: u64) -> Result<Tensor> {
    numbers(stream, &[ROWS, WIDTH], 1.0, number)
}

/// A stage: the results of the last one.
fn stage(mut rank: Communicator) -> Result<Vec<Vec<f32>>> {
    let (me, ranks) = (rank.rank(), rank.ranks());
    let (compute, transfer) = (rank.device().stream()?, rank.device().stream()?);
    let results = compute.scope(|_| {
        let mine = layers(&compute, shard(LAYERS, me, ranks))?;
        let zeros = || Tensor::zeros(&compute, &[ROWS, WIDTH], DType::F32);
        let mut received: Vec<Tensor> = (0..IN_FLIGHT).map(|_| zeros()).collect::<Result<_>>()?;
        let mut results = Vec::new();
        for number in 0..MICRO_BATCHES {
            let y = if me == 0 {
                forward(&mine, &micro_batch(&compute, number)?)?
            } else {
                // The next one is on its way while the stage works on this one. Uses of a buffer are in
                // order: what comes into it waits for the stage's work on what was there.
                let first = if number == 0 { 0 } else { number + 1 };
                for next in first..(number + 2).min(MICRO_BATCHES) {
                    let x = &mut received[next as usize % IN_FLIGHT];
                    rank.receive(&transfer, me - 1, x.view_mut()?)?;
                }
                forward(&mine, &received[number as usize % IN_FLIGHT])?
            };
            if me + 1 < ranks {
                rank.send(&transfer, me + 1, &y)?;
            } else {
                results.push(y);
            }
        }
        Ok(results)
    })?;
    [&compute, &transfer].into_iter().try_for_each(|stream| rank.synchronize(stream))?;
    results.iter().map(|y: &Tensor| y.to_vec(&compute)).collect()
}

pub fn run(devices: &[Device]) -> Result<()> {
    // As many stages as there are layers at most.
    let devices = &devices[..devices.len().min(LAYERS)];
    let staged = Group::open(devices)?.run(stage)?.pop().expect("the last stage");
    let stream = devices[0].stream()?;
    let alone = stream.scope(|_| {
        let all = layers(&stream, 0..LAYERS)?;
        let result = |number| forward(&all, &micro_batch(&stream, number)?)?.to_vec::<f32>(&stream);
        (0..MICRO_BATCHES).map(result).collect::<Result<Vec<_>>>()
    })?;
    assert_eq!(staged, alone, "the results of one device, to the bit");
    let stages = devices.len();
    println!(
        "pipeline: {MICRO_BATCHES} micro-batches through {LAYERS} layers on {stages} devices, as on one device"
    );
    Ok(())
}
