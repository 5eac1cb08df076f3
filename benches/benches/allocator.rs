//! The cost of a buffer apart from its work: memory is allocated from the cache and freed, timed by the
//! host's clock.

use std::process::ExitCode;

use ironwarp::{Device, DeviceBuffer, PinnedBuffer, Stream};
use ironwarp_benches::{Outcome, Session, Work};
use serde_json::json;

/// Threads in the row where each thread uses its own stream.
const THREADS: u64 = 8;
/// Live buffers in the row of ragged sizes.
const RING: usize = 64;

fn main() -> ExitCode {
    Session::run("allocator", |session| {
        for (shape, bytes) in [("4 KiB", 4 << 10), ("1 MiB", 1 << 20), ("64 MiB", 64 << 20)] {
            bench_hit(session, shape, bytes)?;
        }
        bench_threads(session)?;
        bench_ragged(session)?;
        bench_pinned(session)
    })
}

/// Allocates a buffer and drops it at once.
fn take(stream: &Stream, bytes: usize) -> ironwarp::Result<()> {
    // SAFETY: the buffer is never read.
    unsafe { DeviceBuffer::<u8>::uninit(stream, bytes) }.map(drop)
}

fn is_cached(device: &Device, reserves: u64) {
    assert_eq!(
        device.memory_stats().reserves,
        reserves,
        "memory was taken from the driver while hits were timed"
    );
}

fn bench_hit(session: &mut Session, shape: &str, bytes: usize) -> Outcome {
    if !session.wants("alloc_hit") {
        return Ok(());
    }
    let (device, stream) = (session.device.clone(), session.stream.clone());
    take(&stream, bytes)?;
    let reserves = device.memory_stats().reserves;
    let peers = ["system.allocate_raw", "system.allocate_tensor"];
    let peers = peers.map(|op| json!({ "prepare": op, "bytes": bytes }));
    session.measure_host("alloc_hit", shape, Work::Calls(1), &peers, |runs| {
        (0..runs).try_for_each(|_| take(&stream, bytes))
    })?;
    is_cached(&device, reserves);
    Ok(())
}

fn bench_threads(session: &mut Session) -> Outcome {
    if !session.wants("alloc_hit_threads") {
        return Ok(());
    }
    let device = session.device.clone();
    let streams = (0..THREADS).map(|_| device.stream()).collect::<ironwarp::Result<Vec<_>>>()?;
    streams.iter().try_for_each(|stream| take(stream, 4 << 10))?;
    let reserves = device.memory_stats().reserves;
    let shape = format!("4 KiB x {THREADS}");
    session.measure_host("alloc_hit_threads", &shape, Work::Calls(THREADS), &[], |runs| {
        std::thread::scope(|scope| {
            let work = |stream| move || (0..runs).try_for_each(|_| take(stream, 4 << 10));
            let threads: Vec<_> = streams.iter().map(|stream| scope.spawn(work(stream))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    })?;
    is_cached(&device, reserves);
    Ok(())
}

/// Buffers of many sizes. Each is dropped after a fixed number of later ones, so blocks are split and merged
/// all the time.
fn bench_ragged(session: &mut Session) -> Outcome {
    if !session.wants("alloc_ragged") {
        return Ok(());
    }
    let stream = session.stream.clone();
    let mut ring: Vec<Option<DeviceBuffer<u8>>> = (0..RING).map(|_| None).collect();
    let mut turn = 0usize;
    let mut run = |runs: u64| {
        (0..runs).try_for_each(|_| {
            turn += 1;
            // From 1 KiB to 1 MiB. The multiplier visits all of the values.
            let bytes = 1024 * (1 + turn.wrapping_mul(619) % 1024);
            let slot = &mut ring[turn % RING];
            *slot = None;
            // SAFETY: the buffer is never read.
            *slot = Some(unsafe { DeviceBuffer::uninit(&stream, bytes)? });
            Ok(())
        })
    };
    run(16 * 1024)?;
    // Sometimes this row also reserves or releases a segment: the free memory depends on the turn.
    session.measure_host("alloc_ragged", "1 KiB..1 MiB", Work::Calls(1), &[], run)
}

fn bench_pinned(session: &mut Session) -> Outcome {
    if !session.wants("alloc_pinned") {
        return Ok(());
    }
    let device = session.device.clone();
    session.measure_host("alloc_pinned", "4 KiB", Work::Calls(1), &[], |runs| {
        (0..runs).try_for_each(|_| PinnedBuffer::<u8>::zeroed(&device, 4 << 10).map(drop))
    })
}
