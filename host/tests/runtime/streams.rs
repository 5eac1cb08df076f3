//! Streams and events.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::{Bench, expect_error, kernels};
use ironwarp::{DeviceBuffer, DevicePtr, Error, Event, LaunchConfig, Result, Stream};

#[test]
fn a_stream_becomes_idle() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
    // SAFETY: 1000 elements.
    unsafe {
        ironwarp::launch::<kernels::fill>(
            &stream,
            LaunchConfig::linear(1000, 128),
            (1000u32, 1.0, &mut buffer),
        )?
    };
    stream.synchronize()?;
    assert!(stream.is_idle()?);
    assert_eq!(stream.device(), &device);
    Ok(())
}

#[test]
fn work_of_one_stream_is_in_order() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 256)?;
    for value in 0..50 {
        // SAFETY: 256 elements.
        unsafe {
            ironwarp::launch::<kernels::fill>(
                &stream,
                LaunchConfig::linear(256, 64),
                (256u32, value as f32, &mut buffer),
            )?
        };
    }
    assert_eq!(buffer.to_vec(&stream)?, [49.0; 256]);
    Ok(())
}

#[test]
fn events_are_reached_in_order() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let (start, end) = (Event::new(&device)?, Event::new(&device)?);
    let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 1 << 16)?;
    stream.record(&start)?;
    for _ in 0..10 {
        // SAFETY: 2^16 elements.
        unsafe {
            ironwarp::launch::<kernels::fill>(
                &stream,
                LaunchConfig::linear(1 << 16, 256),
                (1u32 << 16, 1.0, &mut buffer),
            )?
        };
    }
    stream.record(&end)?;
    let milliseconds = Event::elapsed_ms(&start, &end)?;
    assert!(milliseconds > 0.0 && milliseconds < 60_000.0, "{milliseconds}");
    assert!(start.is_reached()? && end.is_reached()?);
    Ok(())
}

#[test]
fn an_event_can_be_recorded_again() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let event = Event::untimed(&device)?;
    for _ in 0..100 {
        stream.record(&event)?;
        event.synchronize()?;
        assert!(event.is_reached()?);
    }
    Ok(())
}

#[test]
fn a_stream_waits_for_another() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let event = Event::untimed(&device)?;
    let n = 1usize << 14;
    let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, n)?;
    let address = buffer.as_ptr();
    let config = LaunchConfig::linear(n, 128);
    // SAFETY: n elements; a raw pointer keeps no order, so the event makes it.
    unsafe {
        ironwarp::launch::<kernels::fill>(&stream, config, (n as u32, 1.0, &mut buffer))?;
        stream.record(&event)?;
        other.wait(&event)?;
        ironwarp::launch::<kernels::fill>(&other, config, (n as u32, 2.0, address))?;
    }
    stream.wait_for(&other)?;
    assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == 2.0));
    Ok(())
}

#[test]
fn unrecorded_events_are_reached_and_untimed() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let (fresh, recorded) = (Event::new(&device)?, Event::new(&device)?);
    stream.record(&recorded)?;
    assert!(fresh.is_reached()?);
    fresh.synchronize()?;
    stream.wait(&fresh)?;
    expect_error("start", Event::elapsed_ms(&fresh, &recorded), |e| {
        matches!(e, Error::EventNotRecorded { which: "start" })
    })?;
    expect_error("end", Event::elapsed_ms(&recorded, &fresh), |e| {
        matches!(e, Error::EventNotRecorded { which: "end" })
    })?;
    Ok(())
}

#[test]
fn untimed_events_have_no_times() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let (start, end) = (Event::untimed(&device)?, Event::new(&device)?);
    stream.record(&start)?;
    stream.record(&end)?;
    let error = expect_error("elapsed", Event::elapsed_ms(&start, &end), |e| matches!(e, Error::Driver(_)))?;
    assert!(error.is_recoverable());
    stream.synchronize()
}

#[test]
fn handles_may_go_in_any_order() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let event = Event::new(&device)?;
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 1 << 20)?;
    stream.record(&event)?;
    drop(stream);
    drop(device);
    event.synchronize()?;
    drop(event);
    drop(buffer);
    Ok(())
}

#[test]
fn a_thread_other_than_the_opening_one_works() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let buffer = DeviceBuffer::from_slice(&stream, &[1u8, 2, 3])?;
    let values = std::thread::spawn(move || buffer.to_vec(&stream)).join().expect("no panic")?;
    assert_eq!(values, [1, 2, 3]);
    Ok(())
}

#[test]
fn priorities_are_levels() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    assert_eq!(stream.priority(), 0);
    let levels = device.priority_levels()?;
    for level in 0..levels {
        assert_eq!(device.stream_with_priority(level)?.priority(), level);
        // Only the next test uses the pool's streams of the last level.
        if level + 1 < levels {
            assert_eq!(device.pooled_stream_with_priority(level)?.priority(), level);
        }
    }
    for level in [levels, u32::MAX] {
        let error = expect_error("level", device.stream_with_priority(level), |e| {
            matches!(e, Error::InvalidArgument { argument: "the level", .. })
        })?;
        assert!(error.to_string().contains(&format!("0 to {}", levels - 1)), "{error}");
    }
    Ok(())
}

#[test]
fn the_pool_has_streams_again() -> Result<()> {
    let Bench { device, .. } = Bench::open()?;
    // A level of its own, so that other tests' streams do not come between.
    let level = device.priority_levels()? - 1;
    let (first, second) =
        (device.pooled_stream_with_priority(level)?, device.pooled_stream_with_priority(level)?);
    assert_ne!(first, second);
    assert_eq!(first.priority(), level);
    let handles = [first.raw(), second.raw()];
    assert_ne!(handles[0], handles[1]);
    drop(first);
    let again = device.pooled_stream_with_priority(level)?;
    assert_eq!(again.raw(), handles[0]);
    // A clone keeps its queue.
    let clone = second.clone();
    drop(second);
    assert_ne!(device.pooled_stream_with_priority(level)?.raw(), clone.raw());
    Ok(())
}

const SIDE: usize = 1 << 12;
const SIDE_CONFIG: LaunchConfig = LaunchConfig::linear(SIDE, 128);

/// Writes `value` to the memory at `address` on `stream`, unseen by the buffer: only the order of the streams
/// themselves holds.
fn fill_unordered(stream: &Stream, value: f32, address: DevicePtr<f32>) -> Result<()> {
    // SAFETY: the tests pass buffers of that length and put the streams in order.
    unsafe { ironwarp::launch::<kernels::fill>(stream, SIDE_CONFIG, (SIDE as u32, value, address)) }
}

#[test]
fn a_scope_forks_and_joins() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let buffer = DeviceBuffer::<f32>::zeroed(&stream, SIDE)?;
    fill_unordered(&stream, 1.0, buffer.as_ptr())?;
    let streams = stream.scope(|scope| {
        let (first, second) = (scope.fork()?, scope.fork()?);
        assert_ne!(first, second);
        // Behind the parent.
        fill_unordered(&first, 2.0, buffer.as_ptr())?;
        // Behind the first.
        second.wait_for(&first)?;
        fill_unordered(&second, 3.0, buffer.as_ptr())?;
        Ok([first, second])
    })?;
    assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == 3.0));
    assert_eq!(streams[0].priority(), stream.priority());
    Ok(())
}

#[test]
fn a_scope_joins_after_an_error() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let buffer = DeviceBuffer::<f32>::zeroed(&stream, SIDE)?;
    let failed = stream.scope(|scope| {
        fill_unordered(&scope.fork()?, 2.0, buffer.as_ptr())?;
        buffer.slice(..SIDE + 1).map(drop)
    });
    expect_error("scope", failed, |e| matches!(e, Error::Range { .. }))?;
    assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == 2.0));
    Ok(())
}

#[test]
fn a_scope_joins_after_a_panic() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let buffer = DeviceBuffer::<f32>::zeroed(&stream, SIDE)?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.scope(|scope| -> Result<()> {
            fill_unordered(&scope.fork()?, 2.0, buffer.as_ptr())?;
            panic!("on purpose")
        })
    }));
    assert!(panicked.is_err());
    assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == 2.0));
    Ok(())
}

#[test]
fn tasks_run_in_parallel_and_in_order() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let weights = DeviceBuffer::from_slice(&stream, &vec![1.5f32; SIDE])?;
    let model = |scale: f32| {
        let weights = &weights;
        move |stream: &Stream| -> Result<DeviceBuffer<f32>> {
            let mut out = DeviceBuffer::zeroed(stream, SIDE)?;
            // SAFETY: equal lengths.
            unsafe { ironwarp::launch::<kernels::scale>(stream, SIDE_CONFIG, (scale, weights, &mut out))? };
            Ok(out)
        }
    };
    let results = stream.parallel((0..5).map(|i| model(i as f32)))?;
    for (i, result) in results.iter().enumerate() {
        assert!(result.to_vec(&stream)?.iter().all(|&v| v == i as f32 * 1.5), "task {i}");
    }
    assert!(stream.parallel::<(), fn(&Stream) -> Result<()>>([])?.is_empty());

    let first_error = stream.parallel((0..4usize).map(|i| {
        let weights = &weights;
        move |_: &Stream| if i % 2 == 1 { weights.slice(..SIDE + i).map(drop) } else { Ok(()) }
    }));
    expect_error("tasks", first_error, |e| matches!(e, Error::Range { end, .. } if *end == SIDE + 1))?;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.parallel([|_: &Stream| -> Result<()> { panic!("on purpose") }])
    }));
    assert!(panicked.is_err());
    stream.synchronize()
}

/// The events of a pass through [`Stream::overlap`], and its results.
fn overlapped(stream: &Stream, slots: usize, lengths: &[usize]) -> Result<(Vec<String>, Vec<Vec<f32>>)> {
    let chunks = lengths.iter().enumerate().map(|(i, &len)| vec![i as f32; len]);
    let (mut log, mut results) = (std::cell::RefCell::new(Vec::new()), Vec::new());
    let mut computed = 0..;
    stream.overlap(
        slots,
        chunks,
        |stream, x: &DeviceBuffer<f32>| {
            log.borrow_mut().push(format!("compute {}", computed.next().unwrap_or(0)));
            let mut y = DeviceBuffer::<f32>::zeroed(stream, x.len())?;
            let config = LaunchConfig::linear(x.len(), 64);
            // SAFETY: equal lengths.
            unsafe { ironwarp::launch::<kernels::scale>(stream, config, (2.0, x, &mut y))? };
            Ok(y)
        },
        |result: &[f32]| {
            log.borrow_mut().push(format!("sink {}", results.len()));
            results.push(result.to_vec());
            Ok(())
        },
    )?;
    Ok((std::mem::take(log.get_mut()), results))
}

#[test]
fn chunks_overlap_and_stay_in_order() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let lengths = [100, 100, 100, 7, 0, 2000, 100];
    for slots in 1..=9 {
        let (log, results) = overlapped(&stream, slots, &lengths)?;
        let expected: Vec<Vec<f32>> =
            lengths.iter().enumerate().map(|(i, &len)| vec![2.0 * i as f32; len]).collect();
        assert_eq!(results, expected, "{slots} slots");
        // Chunk `i` is handed on when chunk `i + slots` needs its slot, and not before.
        let at = |what: String| log.iter().position(|entry| *entry == what);
        for i in 0..lengths.len() {
            let last_before = (i + slots).min(lengths.len()) - 1;
            assert!(at(format!("compute {last_before}")) < at(format!("sink {i}")), "{slots} slots: {log:?}");
        }
    }
    assert!(overlapped(&stream, 3, &[])?.1.is_empty());
    Ok(())
}

#[test]
fn an_error_ends_the_overlap() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let out_of_range = |e: &Error| matches!(e, Error::Range { .. });
    let wrong = || DeviceBuffer::<f32>::zeroed(&stream, 1)?.slice(..2).map(drop);
    for at in 0..4 {
        let (mut computed, mut sunk) = (0, 0);
        let chunks = || (0..4).map(|_| vec![1.0f32; 50]);
        let in_compute = stream.overlap(
            2,
            chunks(),
            |stream, x: &DeviceBuffer<f32>| {
                computed += 1;
                if computed > at {
                    wrong()?;
                }
                let mut y = DeviceBuffer::<f32>::zeroed(stream, x.len())?;
                y.copy_from_device(stream, x)?;
                Ok(y)
            },
            |_: &[f32]| Ok(()),
        );
        expect_error("compute", in_compute, out_of_range)?;
        let in_sink = stream.overlap(
            2,
            chunks(),
            |stream, x: &DeviceBuffer<f32>| DeviceBuffer::<f32>::zeroed(stream, x.len()),
            |_| {
                sunk += 1;
                if sunk > at { wrong() } else { Ok(()) }
            },
        );
        expect_error("sink", in_sink, out_of_range)?;
    }
    let none = stream.overlap(
        0,
        [[1.0f32]],
        |stream, _: &DeviceBuffer<f32>| DeviceBuffer::<f32>::zeroed(stream, 1),
        |_| Ok(()),
    );
    expect_error("no slots", none, |e| matches!(e, Error::InvalidArgument { argument: "slots", .. }))?;
    stream.synchronize()
}
