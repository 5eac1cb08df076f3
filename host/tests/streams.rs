//! Streams and events.

mod common;

use common::{Bench, expect_error, kernels};
use ironwarp::{DeviceBuffer, Error, Event, LaunchConfig, Result};

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
    // SAFETY: n elements; the raw pointer takes the order out of the buffer's hands, the event gives it back.
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
