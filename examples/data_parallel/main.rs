//! Data-parallel training by written gradients, of a small network and of a transformer block, on 1, 2 and 4
//! devices: as many as there are. Every run sees the same batches, whose shards are uneven, so gradients and
//! metrics agree with those of one device, up to the order of sums. Now and then the devices check that their
//! replicas have the same bits.
//!
//! `IRONWARP_SOFT_DEVICES=4 cargo run -p ironwarp-examples --bin data_parallel` runs it without a GPU.

mod block;
mod mlp;
mod numbers;

use ironwarp::ops::saxpy::saxpy;
use ironwarp::parallel::{BucketConfig, Communicator, GradientBuckets, Group, Metrics, Reduction, shard};
use ironwarp::{Device, Result, Stream, Tensor, TensorMut};

use block::Block;
use mlp::Mlp;

/// Gradients differ by so much of their tensor's largest one at most: they are sums of f32 in another order.
const ROUNDING: f32 = 1e-5;
/// Metrics differ so much, relatively: behind some steps of gradients that do.
const DRIFT: f64 = 1e-3;

/// A model whose gradients are written by hand.
trait Model: Sized {
    const NAME: &'static str;
    /// Not a multiple of the ranks.
    const SAMPLES: usize;
    const STEPS: usize;
    const RATE: f32;

    /// The part of the batch with these samples, and a model that begins with the numbers of a seed.
    fn new(stream: &Stream, samples: std::ops::Range<usize>, seed: u64) -> Result<Self>;

    /// Its parameters, in the order in which the backward pass finishes their gradients.
    fn parameters(&mut self) -> Vec<(&'static str, &mut Tensor)>;

    /// The sum of the squared errors of each sample, summed, and the largest error. Calls `ready` with each
    /// gradient of the mean over the whole batch, in their order.
    fn step(&self, ready: &mut dyn FnMut(usize, &Tensor) -> Result<()>) -> Result<[Tensor; 2]>;
}

/// The course of a training.
struct Trained {
    /// The gradients of the first step, of the whole batch.
    gradients: Vec<Vec<f32>>,
    /// Of each step: the loss, and the largest error.
    metrics: Vec<Vec<f64>>,
}

fn train<M: Model>(rank: &mut Communicator, stream: &Stream) -> Result<Trained> {
    let samples = shard(M::SAMPLES, rank.rank(), rank.ranks());
    let count = samples.len();
    // Each rank begins with weights of its own, and gets those of rank 0.
    let mut model = M::new(stream, samples, 7 + u64::from(rank.rank()))?;
    let views = model.parameters().into_iter().map(|(_, tensor)| tensor.view_mut());
    let views: Vec<TensorMut<'_>> = views.collect::<Result<_>>()?;
    let lengths: Vec<usize> = views.iter().map(|view| view.layout().elements()).collect();
    rank.replicate(stream, views)?;
    // Buckets so small that each gradient has its own.
    let config = BucketConfig { bytes: 1, ..BucketConfig::default() };
    let mut gradients = GradientBuckets::new(stream, &lengths, config)?;
    let mut metrics = Metrics::new(stream, &[Reduction::Mean, Reduction::Max], 1)?;
    let (mut first, mut synced) = (Vec::new(), Vec::new());
    for step in 0..M::STEPS {
        // The sum of the last layer's gradients is on its way while those of the first are computed.
        let [loss, largest] = model.step(&mut |index, gradient| {
            gradients.gradient_mut(index)?.copy_from_device(stream, gradient.as_view()?)?;
            gradients.ready(rank, index)
        })?;
        gradients.finish()?;
        metrics.record(stream, count, &[&loss.mul(1.0 / count as f32)?, &largest])?;
        synced.push(metrics.sync(rank, stream)?);
        for (index, (_, parameter)) in model.parameters().into_iter().enumerate() {
            let parameter = parameter.view_mut()?.into_view::<f32>()?;
            saxpy(stream, -M::RATE, gradients.gradient(index)?, parameter)?;
        }
        if step == 0 {
            let all = (0..lengths.len()).map(|index| gradients.gradient(index)?.to_vec(stream));
            first = all.collect::<Result<_>>()?;
        }
        if step % 4 == 3 || step + 1 == M::STEPS {
            let parameters = model.parameters();
            let named: Vec<(&str, &Tensor)> =
                parameters.iter().map(|(name, tensor)| (*name, &**tensor)).collect();
            rank.check_replicas(stream, &named)?;
        }
    }
    rank.synchronize(stream)?;
    // Metrics are read behind the last step: no step has waited for the host.
    let metrics = synced.iter().map(|step| Ok(step.read(stream)?.values)).collect::<Result<_>>()?;
    Ok(Trained { gradients: first, metrics })
}

/// The largest difference of gradients, relative to the largest of each tensor.
fn apart(one: &[Vec<f32>], other: &[Vec<f32>]) -> f32 {
    let largest = |values: &mut dyn Iterator<Item = f32>| values.fold(0.0, |a: f32, b| a.max(b.abs()));
    let of_tensor = |(a, b): (&Vec<f32>, &Vec<f32>)| {
        largest(&mut a.iter().zip(b).map(|(a, b)| a - b)) / largest(&mut a.iter().copied())
    };
    one.iter().zip(other).map(of_tensor).fold(0.0, f32::max)
}

fn compare<M: Model>(devices: &[Device]) -> Result<()> {
    let mut first: Option<Trained> = None;
    for ranks in [1, 2, 4].into_iter().filter(|&ranks| ranks <= devices.len()) {
        let results = Group::open(&devices[..ranks])?.run(|mut rank| {
            let stream = rank.device().stream()?;
            stream.scope(|_| train::<M>(&mut rank, &stream))
        })?;
        for trained in &results {
            assert_eq!(trained.metrics, results[0].metrics, "all ranks read the same metrics");
        }
        let trained = results.into_iter().next().expect("at least one rank");
        let (begin, end) = (&trained.metrics[0], &trained.metrics[M::STEPS - 1]);
        let one = first.get_or_insert(Trained {
            gradients: trained.gradients.clone(),
            metrics: trained.metrics.clone(),
        });
        let difference = apart(&one.gradients, &trained.gradients);
        println!(
            "{}, {ranks} {}: loss {:.5} -> {:.5} in {} steps, largest error {:.3}; gradients within {difference:.1e} of one device's",
            M::NAME,
            if ranks == 1 { "device" } else { "devices" },
            begin[0],
            end[0],
            M::STEPS,
            end[1]
        );
        assert!(end[0] < 0.8 * begin[0], "it learns");
        assert!(difference <= ROUNDING, "the gradients of the whole batch");
        let far = |(a, b): (&f64, &f64)| (a - b).abs() > DRIFT * a.abs();
        let (a, b) = (one.metrics.iter().flatten(), trained.metrics.iter().flatten());
        assert!(!a.zip(b).any(far), "the same metrics on any number of devices");
    }
    Ok(())
}

fn main() -> Result<()> {
    let devices: Vec<Device> = (0..Device::count()?).map(Device::open).collect::<Result<_>>()?;
    if devices.len() == 1 {
        eprintln!(
            "note: with one device there is nothing to compare it with; without a GPU, IRONWARP_SOFT_DEVICES=4 makes four"
        );
    }
    compare::<Mlp>(&devices)?;
    compare::<Block>(&devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far a parameter is moved: far enough for the rounding of f32 not to count.
    const DISTANCE: f64 = 0.02;
    /// Slopes between two places differ by this much of the one in the middle.
    const BEND: f64 = 0.03;

    /// Along the gradient of each parameter the loss rises as steeply as the gradient is long.
    fn gradients_are_slopes<M: Model>() -> Result<()> {
        let stream = Device::open(0)?.stream()?;
        stream.scope(|_| {
            let mut model = M::new(&stream, 0..M::SAMPLES, 3)?;
            let mut gradients = Vec::new();
            model.step(&mut |_, gradient| {
                gradients.push(gradient.to_vec::<f32>(&stream)?);
                Ok(())
            })?;
            for (index, gradient) in gradients.iter().enumerate() {
                let length = gradient.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
                let mut loss_at = |distance: f64| -> Result<f64> {
                    let before = model.parameters()[index].1.to_vec::<f32>(&stream)?;
                    let factor = (distance / length) as f32;
                    let moved: Vec<f32> = before.iter().zip(gradient).map(|(w, g)| w + factor * g).collect();
                    model.parameters()[index].1.view_mut()?.copy_from_slice(&stream, &moved)?;
                    let [loss, _] = model.step(&mut |_, _| Ok(()))?;
                    model.parameters()[index].1.view_mut()?.copy_from_slice(&stream, &before)?;
                    Ok(f64::from(loss.item::<f32>()?) / M::SAMPLES as f64)
                };
                let slope = (loss_at(DISTANCE)? - loss_at(-DISTANCE)?) / (2.0 * DISTANCE);
                let name = model.parameters()[index].0;
                assert!((slope - length).abs() < BEND * length, "{}, {name}: {slope}, {length}", M::NAME);
            }
            Ok(())
        })
    }

    #[test]
    fn written_gradients_are_slopes() -> Result<()> {
        gradients_are_slopes::<Mlp>()?;
        gradients_are_slopes::<Block>()
    }
}
