//! Gradient buckets, replicas and the map over devices.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use ironwarp::graph::Graph;
use ironwarp::ops::optim::{Sgd, SgdConfig};
use ironwarp::ops::saxpy::saxpy;
use ironwarp::parallel::{BucketConfig, Communicator, GradientBuckets, Group, Reduction, map};
use ironwarp::{Device, DeviceBuffer, Error, Result, Stream, Tensor, TensorError};

use crate::{devices, groups};

/// Gradients of three layers in two buckets, over a few steps, with ready calls in any order.
#[test]
fn buckets_add_up() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "8");
    const LENGTHS: [usize; 4] = [1000, 0, 7, 3000];
    for devices in groups()? {
        let ranks = devices.len() as f32;
        let results = Group::open(&devices)?.run(|mut rank| {
            let stream = rank.device().stream()?;
            let config = BucketConfig { bytes: 4000, reduction: Reduction::Sum };
            let mut buckets = GradientBuckets::new(&stream, &LENGTHS, config)?;
            assert_eq!(buckets.buckets(), 2);
            let mut seen = Vec::new();
            for (step, order) in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]].into_iter().enumerate() {
                for index in order {
                    let value = (10 * step + index) as f32 + rank.rank() as f32;
                    let values = vec![value; LENGTHS[index]];
                    buckets.gradient_mut(index)?.copy_from_slice(&stream, &values)?;
                    buckets.ready(&mut rank, index)?;
                }
                buckets.finish()?;
                for index in 0..LENGTHS.len() {
                    seen.push(buckets.gradient(index)?.to_vec(&stream)?);
                }
            }
            rank.synchronize(&stream)?;
            Ok(seen)
        })?;
        for of_rank in results {
            for (number, gradient) in of_rank.into_iter().enumerate() {
                let (step, index) = (number / LENGTHS.len(), number % LENGTHS.len());
                let want = (10 * step + index) as f32 * ranks + ranks * (ranks - 1.0) / 2.0;
                assert_eq!(gradient, vec![want; LENGTHS[index]], "step {step}, gradient {index}");
            }
        }
    }
    Ok(())
}

/// A graph has the sums of the steps that it captured, of the second one too.
#[test]
fn a_captured_step_has_its_sums() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    const LENGTHS: [usize; 3] = [1000, 3000, 10];
    let weights = Group::open(&devices)?.run(|rank| {
        let stream = rank.device().stream()?;
        let config = BucketConfig { bytes: 4000, reduction: Reduction::Sum };
        let buckets = GradientBuckets::new(&stream, &LENGTHS, config)?;
        let gradient = DeviceBuffer::from_slice(&stream, &[1.0 + rank.rank() as f32; 3000])?;
        let weights = DeviceBuffer::<f32>::zeroed(&stream, 3000)?;
        type State = (Communicator, GradientBuckets, DeviceBuffer<f32>);
        let step = |stream: &Stream, (rank, buckets, weights): &mut State| {
            for (index, length) in LENGTHS.into_iter().enumerate() {
                buckets.gradient_mut(index)?.copy_from_device(stream, gradient.slice(..length)?)?;
                buckets.ready(rank, index)?;
            }
            buckets.finish()?;
            saxpy(stream, 1.0, buckets.gradient(1)?, weights)
        };
        let mut state = (rank, buckets, weights);
        // Captured between two steps that are not.
        step(&stream, &mut state)?;
        let mut graph = Graph::capture(&stream, state, |stream, state| {
            step(stream, state)?;
            step(stream, state)
        })?;
        (0..3).try_for_each(|_| graph.replay(&stream))?;
        step(&stream, graph.inputs_mut())?;
        let (rank, _, weights) = graph.inputs_mut();
        rank.synchronize(&stream)?;
        weights.to_vec(&stream)
    })?;
    // A sum of 1 + 2 for each of eight steps: captured ones are not done.
    assert_eq!(weights, [vec![24.0; 3000], vec![24.0; 3000]]);
    Ok(())
}

/// An optimiser takes gradients as tensors, which show a bucket's memory: nothing writes there meanwhile.
#[test]
fn gradients_are_tensors_for_an_optimiser() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let mut buckets = GradientBuckets::new(&stream, &[2, 6], BucketConfig::default())?;
        for index in [0, 1] {
            let values = vec![1.0 + index as f32; [2, 6][index]];
            buckets.gradient_mut(index)?.copy_from_slice(&stream, &values)?;
            buckets.ready(&mut rank, index)?;
        }
        buckets.finish()?;
        let kept = buckets.tensor(1, &[2, 3])?;
        assert_eq!((kept.shape().sides(), kept.to_vec::<f32>(&stream)?), (&[2, 3][..], vec![4.0; 6]));
        let error = buckets.gradient_mut(0).expect_err("a tensor of the bucket is kept");
        assert!(matches!(error.tensor_error(), Some(TensorError::Shared { .. })), "{error}");
        let error = buckets.tensor(1, &[7]).expect_err("another number of elements");
        assert!(matches!(error.tensor_error(), Some(TensorError::Shape { .. })), "{error}");
        drop(kept);
        let mut weights = Tensor::from_slice(&stream, &[2, 3], &[10.0f32; 6])?;
        let config = SgdConfig { learning_rate: 0.5, ..SgdConfig::default() };
        let mut optimizer = Sgd::new(&stream, &[weights.view_mut()?], config)?;
        optimizer.step(&stream, &mut [weights.view_mut()?], &[&buckets.tensor(1, &[2, 3])?], None)?;
        assert_eq!(weights.to_vec::<f32>(&stream)?, [8.0; 6]);
        buckets.gradient_mut(0)?.copy_from_slice(&stream, &[0.0; 2])?;
        rank.synchronize(&stream)
    })?;
    Ok(())
}

/// A step that fails between two gradients is given up, and done again.
#[test]
fn a_step_is_given_up() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let mut buckets =
            GradientBuckets::new(&stream, &[2, 6], BucketConfig { bytes: 8, ..<_>::default() })?;
        // Of the second bucket alone: nothing is summed.
        buckets.ready(&mut rank, 1)?;
        assert!(buckets.ready(&mut rank, 1).is_err());
        buckets.abandon()?;
        for index in [0, 1] {
            buckets.gradient_mut(index)?.copy_from_slice(&stream, &vec![1.5; [2, 6][index]])?;
            buckets.ready(&mut rank, index)?;
            let error = buckets.abandon().expect_err("a bucket is summed");
            assert!(matches!(error, Error::InvalidArgument { argument: "the step", .. }), "{error}");
        }
        buckets.finish()?;
        assert_eq!(buckets.gradient(1)?.to_vec(&stream)?, [3.0; 6]);
        buckets.abandon()?;
        rank.synchronize(&stream)
    })?;
    Ok(())
}

/// Events say when each bucket was reduced.
#[test]
fn steps_are_timed() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let config = BucketConfig { bytes: 4000, reduction: Reduction::Sum };
        let mut buckets = GradientBuckets::new(&stream, &[1000, 3000, 10], config)?;
        for is_timed in [true, false, true] {
            if is_timed {
                buckets.time(&stream)?;
            }
            for (index, length) in [(0, 1000), (1, 3000), (2, 10)] {
                buckets.gradient_mut(index)?.copy_from_slice(&stream, &vec![1.0; length])?;
                buckets.ready(&mut rank, index)?;
            }
            buckets.finish()?;
            // The step behind a timed one is not timed.
            for (index, length) in [(0, 1000), (1, 3000), (2, 10)] {
                buckets.gradient_mut(index)?.copy_from_slice(&stream, &vec![1.0; length])?;
                buckets.ready(&mut rank, index)?;
            }
            buckets.finish()?;
            let overlap = buckets.overlap()?;
            assert_eq!(overlap.is_some(), is_timed);
            assert_eq!(buckets.gradient(1)?.to_vec(&stream)?, [2.0; 3000]);
            let Some(overlap) = overlap else { continue };
            let bytes: Vec<usize> = overlap.buckets.iter().map(|bucket| bucket.bytes).collect();
            assert_eq!(bytes, [4000, 12_000, 40]);
            assert!(
                overlap.buckets.iter().all(|it| 0.0 <= it.begin_ms && it.begin_ms <= it.end_ms),
                "{overlap}"
            );
            assert!(overlap.buckets.is_sorted_by(|a, b| a.end_ms <= b.begin_ms), "{overlap}");
            assert!(overlap.compute_ms > 0.0 && overlap.reduce_ms() > 0.0, "{overlap}");
            assert!((0.0..=1.0).contains(&overlap.hidden_share()), "{overlap}");
        }
        rank.synchronize(&stream)?;
        let captured = Graph::capture(&stream, buckets, |stream, buckets| buckets.time(stream));
        assert!(matches!(captured, Err(Error::NotCapturable { operation: "GradientBuckets::time", .. })));
        Ok(())
    })?;
    Ok(())
}

#[test]
fn wrong_uses_of_buckets() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let mut buckets = GradientBuckets::new(&stream, &[4, 4], BucketConfig::default())?;
        let error = buckets.ready(&mut rank, 2).expect_err("no such gradient");
        assert!(matches!(error, Error::Range { start: 2, len: 2, .. }), "{error}");
        let error = buckets.gradient(usize::MAX).expect_err("no such gradient");
        assert!(matches!(error, Error::Range { start: usize::MAX, end: usize::MAX, len: 2 }), "{error}");
        let error = GradientBuckets::new(&stream, &[1 << 62; 4], BucketConfig::default());
        assert!(error.is_err_and(|error| error.is_recoverable()), "buckets beyond all memory");
        buckets.ready(&mut rank, 1)?;
        // The other one of its bucket is not ready by that.
        let error = buckets.ready(&mut rank, 1).expect_err("twice");
        assert!(error.to_string().contains("index is 1, which was ready before"), "{error}");
        let error = buckets.finish().expect_err("one is missing");
        assert!(matches!(error, Error::Length { expected: 2, got: 1, .. }), "{error}");
        buckets.ready(&mut rank, 0)?;
        let error = buckets.ready(&mut rank, 0).expect_err("twice");
        assert!(error.to_string().contains("each gradient once"), "{error}");
        buckets.finish()?;
        // Nobody else waits for the sum, which would then wait for the other rank's.
        assert_eq!(buckets.gradient(0)?.to_vec(&stream)?, [0.0; 4]);
        rank.synchronize(&stream)
    })?;
    Ok(())
}

/// A kept tensor stops the sum of its bucket: the step does not end before the call has been made again.
#[test]
fn a_sum_that_failed_is_made_again() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "2");
    let Some(devices) = devices(2)? else { return Ok(()) };
    Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let config = BucketConfig { bytes: 16, ..BucketConfig::default() };
        let mut buckets = GradientBuckets::new(&stream, &[4, 4], config)?;
        for [first, last] in [[0, 1], [1, 0]] {
            for index in [0, 1] {
                buckets.gradient_mut(index)?.copy_from_slice(&stream, &[1.0 + index as f32; 4])?;
            }
            let kept = buckets.tensor(1, &[4])?;
            buckets.ready(&mut rank, first)?;
            let error = buckets.ready(&mut rank, last).expect_err("a tensor of the bucket is kept");
            assert!(matches!(error.tensor_error(), Some(TensorError::Shared { .. })), "{error}");
            let error = buckets.finish().expect_err("a bucket is not summed");
            assert!(error.to_string().contains("the buckets are 1 of 2 summed"), "{error}");
            drop(kept);
            buckets.ready(&mut rank, last)?;
            let error = buckets.ready(&mut rank, last).expect_err("twice");
            assert!(error.to_string().contains("which was ready before"), "{error}");
            buckets.finish()?;
            let sums = [buckets.gradient(0)?.to_vec(&stream)?, buckets.gradient(1)?.to_vec(&stream)?];
            assert_eq!(sums, [[2.0; 4], [4.0; 4]]);
        }
        rank.synchronize(&stream)
    })?;
    Ok(())
}

#[test]
fn replicas_begin_with_the_same_bits() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "4");
    let Some(devices) = devices(4)? else { return Ok(()) };
    let results = Group::open(&devices)?.run(|mut rank| {
        let stream = rank.device().stream()?;
        let mut a = Tensor::from_slice(&stream, &[3], &[rank.rank() as f32; 3])?;
        let mut b = Tensor::from_slice(&stream, &[2], &[5 + i64::from(rank.rank()); 2])?;
        rank.replicate(&stream, [a.view_mut()?, b.view_mut()?])?;
        rank.synchronize(&stream)?;
        Ok((a.to_vec::<f32>(&stream)?, b.to_vec::<i64>(&stream)?))
    })?;
    assert!(results.iter().all(|got| *got == (vec![0.0; 3], vec![5; 2])), "{results:?}");
    Ok(())
}

/// A device that is slow works on fewer items; results are in order.
#[test]
fn maps_keep_their_order() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "3");
    let Some(devices) = devices(3)? else { return Ok(()) };
    let items: Vec<i64> = (0..30).collect();
    // Each thread has its first item, however late it starts.
    let threads = 2 * devices.len();
    let start = Barrier::new(threads);
    let results = map(&devices, &items, |stream, &item| {
        if (item as usize) < threads {
            start.wait();
        }
        let device = stream.device().ordinal();
        sleep(Duration::from_millis(if device == 0 { 60 } else { 5 }));
        let x = DeviceBuffer::from_slice(stream, &[item; 4])?;
        Ok((device, x.to_vec(stream)?[3]))
    })?;
    assert!(results.iter().map(|&(_, item)| item).eq(items.iter().copied()));
    let slow = results.iter().filter(|(device, _)| *device == 0).count();
    assert!((2..items.len() / 2).contains(&slow), "{slow} items on the slow device");
    let none = map(&[], &items, |_, &item| Ok(item)).expect_err("no device");
    assert!(none.to_string().contains("at least one"), "{none}");
    let nothing: Vec<i32> = map(&[], &[], |_, &item| Ok(item))?;
    assert!(nothing.is_empty());
    let failed = map(&devices, &items, |stream, &item| {
        DeviceBuffer::<f32>::zeroed(stream, 4)?.slice(..item as usize)?.to_vec(stream)
    });
    assert!(matches!(failed, Err(Error::Range { len: 4, .. })));
    Ok(())
}

/// Errors need not come in the order of the items. Which of the two threads begins is open: several rounds.
#[test]
fn the_error_of_a_map_is_that_of_the_first_item() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "1");
    let device = Device::open(0)?;
    let wait_until = |holds: &dyn Fn() -> bool| {
        (0..10_000).take_while(|_| !holds()).for_each(|_| sleep(Duration::from_millis(1)));
    };
    for (early, late) in [(1, 0), (2, 1)].repeat(8) {
        let (begun, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let error = map(std::slice::from_ref(&device), &[0, 1, 2, 3], |_, &item| {
            begun.fetch_add(1, Ordering::SeqCst);
            wait_until(&|| begun.load(Ordering::SeqCst) >= 2);
            if item == late {
                wait_until(&|| failed.load(Ordering::SeqCst));
            } else if item == early {
                failed.store(true, Ordering::SeqCst);
            } else {
                return Ok(());
            }
            Err(Error::Range { start: item, end: item, len: 0 })
        })
        .expect_err("two items fail");
        assert!(matches!(error, Error::Range { start, .. } if start == late), "not of item {late}: {error}");
    }
    Ok(())
}

/// While the host waits for one result, the device has another item.
#[test]
fn a_device_has_two_items_under_way() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_DEVICES" = "1");
    let (begun, changed) = (Mutex::new(0), Condvar::new());
    let results = map(&[Device::open(0)?], &[0; 2], |_, _| {
        let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
        *begun += 1;
        changed.notify_all();
        let wait = changed.wait_timeout_while(begun, Duration::from_secs(10), |begun| *begun < 2);
        Ok(!wait.unwrap_or_else(PoisonError::into_inner).1.timed_out())
    })?;
    assert_eq!(results, [true; 2]);
    Ok(())
}
