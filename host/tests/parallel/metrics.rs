//! Metrics in sync, and replicas that are compared.

use ironwarp::graph::Graph;
use ironwarp::parallel::{Group, MetricValues, Metrics, Reduction, shard};
use ironwarp::{Error, ParallelError, Result, Stream, Tensor};
use testkit::Random;

use crate::{devices, groups, impatient};

const ALL: [Reduction; 4] = [Reduction::Mean, Reduction::Sum, Reduction::Max, Reduction::Min];

fn scalar(stream: &Stream, value: f32) -> Result<Tensor> {
    Tensor::from_slice(stream, &[1], &[value])
}

/// A few samples, in micro-batches: every rank has its shard of each, and some have nothing.
#[test]
fn metrics_are_those_of_the_whole_batch() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    let random = &mut Random::new(1);
    let mut batch =
        |samples: usize| (0..samples).map(|_| random.uniform(-1.0, 1.0) as f32).collect::<Vec<f32>>();
    // Two whole micro-batches; a step with a last one that is smaller than the group; one of nothing.
    let steps = [vec![batch(29), batch(8)], vec![batch(1)], vec![batch(0), batch(0)]];
    for devices in groups()? {
        let results = Group::open(&devices)?.run(|mut rank| {
            let stream = rank.device().stream()?;
            let mut metrics = Metrics::new(&stream, &ALL, 2)?;
            let mut synced = Vec::new();
            for step in &steps {
                for batch in step {
                    let mine = &batch[shard(batch.len(), rank.rank(), rank.ranks())];
                    let mean = mine.iter().sum::<f32>() / mine.len() as f32;
                    let [sum, max, min] = [mine.iter().sum(), fold(mine, f32::max), fold(mine, f32::min)];
                    let values = [mean, sum, max, min].map(|value| scalar(&stream, value));
                    let [mean, sum, max, min] = values;
                    metrics.record(&stream, mine.len(), &[&mean?, &sum?, &max?, &min?])?;
                }
                synced.push(metrics.sync(&mut rank, &stream)?);
            }
            let read = synced.iter().map(|step| step.read(&stream)).collect::<Result<Vec<_>>>()?;
            rank.synchronize(&stream)?;
            Ok(read)
        })?;
        for of_rank in &results {
            for ((got, same), step) in of_rank.iter().zip(&results[0]).zip(&steps) {
                let bits =
                    |step: &MetricValues| step.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(got), bits(same), "the same bits on all ranks");
                let batch = step.concat();
                assert_eq!(got.samples, batch.len() as u64);
                if batch.is_empty() {
                    assert!(
                        got.values[1] == 0.0 && [0, 2, 3].iter().all(|&i| got.values[i].is_nan()),
                        "{got:?}"
                    );
                    continue;
                }
                let sum: f64 = batch.iter().map(|&x| f64::from(x)).sum();
                // Each rank's sum is an f32 of a few terms below 1.
                let near = |got: f64, want: f64| (got - want).abs() < 1e-5;
                assert!(near(got.values[0], sum / batch.len() as f64) && near(got.values[1], sum), "{got:?}");
                let extremes = [fold(&batch, f32::max), fold(&batch, f32::min)].map(f64::from);
                assert_eq!(got.values[2..], extremes);
            }
        }
    }
    Ok(())
}

fn fold(values: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    values.iter().copied().reduce(f).unwrap_or(f32::NAN)
}

/// A NaN of samples shows; whatever their number, metrics take one collective; a graph has them too.
#[test]
fn metrics_take_one_collective() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    let outcome = impatient(&devices, 5000)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let me = rank.rank();
        let mut metrics = Metrics::new(&stream, &ALL, 1)?;
        let value = scalar(&stream, if me == 1 { f32::NAN } else { 1.0 })?;
        metrics.record(&stream, 3, &[&value; 4])?;
        let read = metrics.sync(&mut rank, &stream)?.read(&stream)?;
        assert!(read.samples == 6 && read.values.iter().all(|value| value.is_nan()), "{read:?}");
        let value = scalar(&stream, 2.0 + me as f32)?;
        let mut graph = Graph::capture(&stream, (rank, metrics, value), |stream, (rank, metrics, value)| {
            metrics.record(stream, 1 + rank.rank() as usize, &[&*value; 4])?;
            metrics.sync(rank, stream)
        })?;
        for _ in 0..2 {
            graph.replay(&stream)?;
        }
        let read = graph.outputs().read(&stream)?;
        assert_eq!(read, MetricValues { samples: 3, values: vec![8.0 / 3.0, 5.0, 3.0, 2.0] });
        let (rank, ..) = graph.inputs_mut();
        // The third call of each rank, counted from 0, whatever the metrics.
        if me == 0 { rank.barrier(&stream) } else { rank.split(None, 0).map(drop) }?;
        rank.synchronize(&stream)
    });
    let error = outcome.expect_err("ranks called different things");
    let is_third = matches!(&error, Error::Parallel(error) if matches!(**error, ParallelError::Mismatch { sequence: 2, .. }));
    assert!(is_third, "{error}");
    Ok(())
}

#[test]
fn wrong_uses_of_metrics() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    let stream = devices[0].stream()?;
    let mut metrics = Metrics::new(&stream, &[Reduction::Mean, Reduction::Max], 1)?;
    let (good, two) = (scalar(&stream, 1.0)?, Tensor::from_slice(&stream, &[2], &[1.0f32; 2])?);
    let mut fails = |values: &[&Tensor], says: &str| {
        let error = metrics.record(&stream, 1, values).expect_err(says);
        assert!(error.to_string().contains(says), "{error}");
    };
    fails(&[&good], "the values");
    fails(&[&good, &two], "a value");
    let elsewhere = scalar(&devices[1].stream()?, 1.0)?;
    assert!(matches!(metrics.record(&stream, 1, &[&good, &elsewhere]), Err(Error::DeviceMismatch { .. })));
    // A failed call has recorded nothing. Any number type, and a scalar's shape.
    let (whole, wide) =
        (Tensor::from_slice(&stream, &[], &[1i64])?, Tensor::from_slice(&stream, &[1], &[1.0f64])?);
    metrics.record(&stream, 1, &[&whole, &wide])?;
    let error = metrics.record(&stream, 1, &[&good, &good]).expect_err("a second micro-batch");
    assert!(error.to_string().contains("call `sync` at the end of each step"), "{error}");
    Ok(())
}

#[test]
fn replicas_that_differ_are_named() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    for devices in groups()? {
        let wrong = devices.len() as u32 - 1;
        Group::open(&devices)?.run(|mut rank| {
            let stream = rank.device().stream()?;
            let weights: Vec<f32> = (0..3001).map(|i| i as f32 * 0.25).collect();
            let (a, b) = (scalar(&stream, 3.0)?, Tensor::from_slice(&stream, &[3001], &weights)?);
            let same = [("bias", &a), ("weights", &b)];
            rank.check_replicas(&stream, &same)?;
            // One bit, the sign of zero.
            let mut changed = weights.clone();
            changed[0] = if rank.rank() == wrong { -0.0 } else { 0.0 };
            let c = Tensor::from_slice(&stream, &[3001], &changed)?;
            let error = rank.check_replicas(&stream, &[("bias", &a), ("head", &c), ("tail", &c)]);
            let error = error.expect_err("one rank differs").to_string();
            let says = format!("rank {}: the tensor \"head\" of rank {wrong} has other bits", rank.rank());
            assert!(error.starts_with(&says), "{error}");
            // The group is as it was.
            rank.check_replicas(&stream, &same)?;
            rank.check_replicas(&stream, &[])?;
            rank.synchronize(&stream)
        })?;
    }
    Ok(())
}
