//! Data-parallel training of a small network by written gradients, on 1, 2 and 4 devices: as many as there
//! are. Every run sees the same batches, so the losses agree, up to the order of sums.
//!
//! `IRONWARP_SOFT_DEVICES=4 cargo run -p ironwarp-examples --bin data_parallel` runs it without a GPU.

use ironwarp::ops::saxpy::saxpy;
use ironwarp::parallel::{BucketConfig, Communicator, GradientBuckets, Group, Reduction, map, shard};
use ironwarp::{Device, Result, Stream, Tensor};

const INPUTS: usize = 24;
const HIDDEN: usize = 48;
const OUTPUTS: usize = 3;
/// Not a multiple of the ranks: shards are uneven.
const BATCH: usize = 61;
const STEPS: usize = 30;
const RATE: f32 = 0.4;

/// Numbers between -1 and 1 that look random.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let mixed = |i: u64| (seed * 0x1000_0001 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(i | 1);
    (0..len as u64).map(|i| (mixed(i) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// The batch: inputs, and what is to be learnt of them.
struct Batch {
    inputs: Vec<f32>,
    targets: Vec<f32>,
}

impl Batch {
    fn new() -> Self {
        let inputs = numbers(1, BATCH * INPUTS);
        let target = |row: &[f32]| [row[0] * row[1], row[2].max(row[3]), row[4] - row[5] * row[6]];
        let targets = inputs.chunks(INPUTS).flat_map(target).collect();
        Batch { inputs, targets }
    }
}

/// The losses of all steps, and the weights of the first layer, of one rank.
fn train(rank: &mut Communicator, stream: &Stream, batch: &Batch) -> Result<(Vec<f32>, Vec<f32>)> {
    let rows = shard(BATCH, rank.rank(), rank.ranks());
    let part = |values: &[f32], width: usize| {
        Tensor::from_slice(stream, &[rows.len(), width], &values[rows.start * width..rows.end * width])
    };
    let (x, t) = (part(&batch.inputs, INPUTS)?, part(&batch.targets, OUTPUTS)?);
    // Each rank begins with weights of its own, and gets those of rank 0.
    let seed = 7 + u64::from(rank.rank());
    let scaled = |seed, len| numbers(seed, len).into_iter().map(|w| w * 0.3).collect::<Vec<f32>>();
    let mut w1 = Tensor::from_slice(stream, &[INPUTS, HIDDEN], &scaled(seed, INPUTS * HIDDEN))?;
    let mut w2 = Tensor::from_slice(stream, &[HIDDEN, OUTPUTS], &scaled(seed + 50, HIDDEN * OUTPUTS))?;
    rank.replicate(stream, [w1.view_mut()?, w2.view_mut()?])?;
    // In the order of the backward pass. Buckets so small that each layer has its own.
    let config = BucketConfig { bytes: 1, ..BucketConfig::default() };
    let mut gradients = GradientBuckets::new(stream, &[HIDDEN * OUTPUTS, INPUTS * HIDDEN], config)?;
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let hidden = x.matmul(&w1)?.relu()?;
        let error = hidden.matmul(&w2)?.sub(&t)?;
        let mut loss = error.mul(&error)?.sum_all()?;
        // Divided by the whole batch, so gradients of uneven shards add up.
        let dy = error.mul(2.0 / (BATCH * OUTPUTS) as f32)?;
        let dw2 = hidden.t()?.matmul(&dy)?;
        gradients.gradient_mut(0)?.copy_from_device(stream, dw2.as_view()?)?;
        gradients.ready(rank, 0)?;
        // The sum of the last layer's gradients is on its way while those of the first are computed.
        let dh = dy.matmul(&w2.t()?)?.mul(&hidden.sign()?)?;
        let dw1 = x.t()?.matmul(&dh)?;
        gradients.gradient_mut(1)?.copy_from_device(stream, dw1.as_view()?)?;
        gradients.ready(rank, 1)?;
        rank.all_reduce(stream, Reduction::Sum, loss.view_mut()?)?;
        gradients.finish()?;
        saxpy(stream, -RATE, gradients.gradient(0)?, w2.view_mut()?.into_view::<f32>()?)?;
        saxpy(stream, -RATE, gradients.gradient(1)?, w1.view_mut()?.into_view::<f32>()?)?;
        losses.push(loss);
    }
    rank.synchronize(stream)?;
    let losses = losses.iter().map(|loss| Ok(loss.to_vec::<f32>(stream)?[0] / (BATCH * OUTPUTS) as f32));
    Ok((losses.collect::<Result<_>>()?, w1.to_vec::<f32>(stream)?))
}

fn main() -> Result<()> {
    let count = Device::count()?;
    let batch = Batch::new();
    let mut first: Option<Vec<f32>> = None;
    for ranks in [1, 2, 4].into_iter().filter(|&ranks| ranks <= count) {
        let devices: Vec<Device> = (0..ranks).map(Device::open).collect::<Result<_>>()?;
        let results = Group::open(&devices)?.run(|mut rank| {
            let stream = rank.device().stream()?;
            stream.scope(|_| train(&mut rank, &stream, &batch))
        })?;
        let (losses, weights) = &results[0];
        assert!(results.iter().all(|(_, other)| other == weights), "replicas have the same bits");
        let (begin, end) = (losses[0], losses[STEPS - 1]);
        println!("{ranks} devices: loss {begin:.5} -> {end:.5} in {STEPS} steps");
        assert!(end < 0.6 * begin, "it learns");
        let one = first.get_or_insert_with(|| losses.clone());
        let differs = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-4 * a.abs();
        assert!(!one.iter().zip(losses).any(differs), "the same losses on any number of devices");
    }
    // Inference: batches go to whichever device is free, results come in order.
    let devices: Vec<Device> = (0..count).map(Device::open).collect::<Result<_>>()?;
    let batches: Vec<Vec<f32>> = (0..10).map(|seed| numbers(seed, 4 * INPUTS)).collect();
    let sums = map(&devices, &batches, |stream, batch| {
        Tensor::from_slice(stream, &[4, INPUTS], batch)?.relu()?.sum_all()?.to_vec::<f32>(stream)
    })?;
    println!("{} batches mapped over {count} devices", sums.len());
    Ok(())
}
