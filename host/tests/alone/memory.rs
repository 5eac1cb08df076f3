//! The caching allocator under buffers: reuse, statistics, limits, snapshots, and contents that never mix.
//!
//! Under the checker buffers have gaps between them, which count: tests of exact figures run without it.

use crate::common::kernels::{fill, scale};
use crate::common::{Bench, expect_error};
use ironwarp::ops::row::{BatchNorm, ChannelAffine, ChannelAxis, RunningStatistics};
use ironwarp::{
    BlockState, Device, DeviceBuffer, Error, LaunchConfig, PinnedBuffer, Result, Stream, Tensor, launch,
    with_oom_retry,
};

const MIB: usize = 1 << 20;

/// A device that holds nothing.
fn empty() -> Result<Bench> {
    let bench = Bench::open()?;
    bench.device.trim_pool()?;
    bench.device.reset_memory_peaks();
    assert_eq!(bench.device.memory_stats().reserved, 0);
    Ok(bench)
}

#[track_caller]
fn bytes_of(stream: &Stream, bytes: usize) -> Result<DeviceBuffer<u8>> {
    DeviceBuffer::zeroed(stream, bytes)
}

#[test]
fn the_next_buffer_gets_the_memory_of_the_last() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = empty()?;
    let first = bytes_of(&stream, 5000)?.as_ptr().raw();
    let reserves = device.memory_stats().reserves;
    for _ in 0..100 {
        assert_eq!(bytes_of(&stream, 5000)?.as_ptr().raw(), first);
    }
    // Work of another stream is not in that order.
    assert_ne!(bytes_of(&device.stream()?, 5000)?.as_ptr().raw(), first);
    assert_eq!(device.memory_stats().reserves, reserves + 1);
    Ok(())
}

#[test]
fn buffers_lie_apart_and_aligned() -> Result<()> {
    testkit::own_process!();
    let Bench { stream, .. } = empty()?;
    let sizes = [1, 255, 256, 511, 512, 513, 4096, MIB - 1, MIB, MIB + 1, 2 * MIB, 33 * MIB + 7];
    let buffers = sizes.iter().map(|&bytes| bytes_of(&stream, bytes)).collect::<Result<Vec<_>>>()?;
    let mut ranges: Vec<_> = buffers.iter().map(|b| (b.as_ptr().raw(), b.len() as u64)).collect();
    ranges.sort_unstable();
    assert!(ranges.iter().all(|(address, _)| address % 256 == 0), "{ranges:x?}");
    assert!(ranges.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{ranges:x?}");
    Ok(())
}

#[test]
fn statistics_tell_what_is_held() -> Result<()> {
    testkit::own_process!("IRONWARP_CHECK" = "0");
    let Bench { device, stream } = empty()?;
    let before = device.memory_stats();
    let a = bytes_of(&stream, 1000)?;
    let b = bytes_of(&stream, 3 * MIB)?;
    let stats = device.memory_stats();
    assert_eq!((stats.live, stats.requested), ((1024 + 3 * MIB) as u64, (1000 + 3 * MIB) as u64));
    assert_eq!((stats.live_blocks, stats.segments), (2, 2));
    assert_eq!(stats.allocations, before.allocations + 2);
    assert!(stats.reserved >= stats.live + stats.free() && stats.free() > 0, "{stats:?}");
    drop((a, b));
    let after = device.memory_stats();
    assert_eq!((after.live, after.requested, after.live_blocks, after.pending), (0, 0, 0, 0));
    assert!((stats.live..=stats.live + MIB as u64).contains(&after.peak_live), "{after:?}");
    assert_eq!(after.reserved, stats.reserved);
    assert_eq!(after.free(), after.reserved);
    // Two segments: the larger is the largest free block.
    assert!((0.0..0.5).contains(&after.fragmentation()), "{}", after.fragmentation());

    device.reset_memory_peaks();
    assert!(device.memory_stats().peak_live <= MIB as u64);
    let info = device.memory_info()?;
    device.trim_pool()?;
    let trimmed = device.memory_stats();
    assert_eq!((trimmed.reserved, trimmed.segments), (0, 0));
    assert_eq!(trimmed.releases, stats.releases + 2);
    assert!(device.memory_info()?.free >= info.free + stats.reserved as usize / 2);
    Ok(())
}

#[test]
fn memory_used_elsewhere_waits_for_that_stream() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = empty()?;
    let other = device.stream()?;
    let n = 100_000;
    let config = LaunchConfig::linear(n, 128);
    let x = DeviceBuffer::from_slice(&stream, &vec![1.5f32; n])?;
    let mut y = DeviceBuffer::<f32>::zeroed(&other, n)?;
    // SAFETY: both have n elements.
    unsafe { launch::<scale>(&other, config, (2.0f32, &x, &mut y))? };
    let (address, bytes) = (x.as_ptr().raw(), device.memory_stats().live / 2);
    drop(x);
    let stats = device.memory_stats();
    assert_eq!((stats.pending, stats.live), (bytes, bytes), "{stats:?}");
    other.synchronize()?;
    // The next allocation queries the driver, and gets the memory back.
    let again = DeviceBuffer::<f32>::zeroed(&stream, n)?;
    assert_eq!(again.as_ptr().raw(), address);
    assert_eq!(device.memory_stats().pending, 0);
    assert!(y.to_vec(&other)?.iter().all(|&v| v == 3.0));
    Ok(())
}

#[test]
fn streams_leave_their_memory_to_later_ones() -> Result<()> {
    testkit::own_process!();
    let Bench { device, .. } = empty()?;
    for round in 0..50u8 {
        let stream = device.stream()?;
        let mut buffer = bytes_of(&stream, 3 * MIB)?;
        buffer.copy_from_slice(&stream, &vec![round; 3 * MIB])?;
        assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == round));
    }
    let stats = device.memory_stats();
    assert!(stats.reserved <= 64 * MIB as u64, "{stats:?}");
    Ok(())
}

#[test]
fn a_buffer_outlives_the_streams_that_used_it() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = empty()?;
    let mut buffer = {
        let (maker, writer) = (device.stream()?, device.pooled_stream()?);
        let mut buffer = DeviceBuffer::from_slice(&maker, &[1u32; 64])?;
        buffer.copy_from_slice(&writer, &[2u32; 64])?;
        buffer
    };
    assert_eq!(buffer.to_vec(&stream)?, [2; 64]);
    buffer.fill_zero(&stream)?;
    drop(buffer);
    device.trim_pool()?;
    assert_eq!(device.memory_stats().reserved, 0);
    Ok(())
}

#[test]
fn running_statistics_stay_when_memory_runs_out() -> Result<()> {
    testkit::own_process!("IRONWARP_CHECK" = "0");
    const CHANNELS: usize = 256;
    let Bench { device, stream } = empty()?;
    let x = Tensor::from_slice(&stream, &[16 * MIB / CHANNELS, CHANNELS], &vec![2.0f32; 16 * MIB])?;
    let of_channels = |value: f32| Tensor::from_slice(&stream, &[CHANNELS], &[value; CHANNELS]);
    let (mut mean, mut variance) = (of_channels(3.0)?, of_channels(5.0)?);
    let affine = ChannelAffine { axis: ChannelAxis::Last, ..ChannelAffine::default() };
    // How it ended, and what the statistics are then.
    let mut train = || -> Result<(Result<()>, [f32; 2])> {
        let running =
            RunningStatistics { mean: mean.view_mut()?, variance: variance.view_mut()?, momentum: 0.5 };
        let ended = BatchNorm { affine }.train(&stream, &x, Some(running)).map(drop);
        Ok((ended, [mean.to_vec::<f32>(&stream)?[0], variance.to_vec::<f32>(&stream)?[CHANNELS - 1]]))
    };
    let (ended, now) = train()?;
    assert_eq!((ended?, now), ((), [2.5, 2.5]));
    device.trim_pool()?;
    // Room for sums and moments, but not for the result.
    device.set_memory_limit(Some(device.memory_stats().reserved as usize + 8 * MIB));
    let (ended, now) = train()?;
    expect_error("no room for the result", ended, |error| matches!(error, Error::OutOfMemory(_)))?;
    assert_eq!(now, [2.5, 2.5]);
    device.set_memory_limit(None);
    let (ended, now) = train()?;
    assert_eq!((ended?, now), ((), [2.25, 1.25]));
    Ok(())
}

#[test]
fn a_limit_holds() -> Result<()> {
    testkit::own_process!("IRONWARP_CHECK" = "0");
    let Bench { device, stream } = empty()?;
    device.set_memory_limit(Some(40 * MIB));
    let kept = bytes_of(&stream, 20 * MIB)?;
    let line = line!() - 1;
    let error = expect_error("beyond the limit", bytes_of(&stream, 30 * MIB), |error| {
        matches!(error, Error::OutOfMemory(e) if e.requested == 30 * MIB && e.limit == Some(40 * MIB)
            && e.live >= 20 * MIB && e.reserved >= e.live && e.reserved <= 40 * MIB)
    })?;
    let text = error.to_string();
    let holder = format!("{}:{line}: 20.00 MiB in 1 block", file!());
    for part in ["may hold 40.00 MiB", &holder, "hint: "] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    // Sizes that fit still work, in the room of released idle segments.
    drop(kept);
    drop(bytes_of(&stream, 30 * MIB)?);
    drop(bytes_of(&stream, 20 * MIB)?);
    assert!(device.memory_stats().peak_reserved <= 40 * MIB as u64);
    device.set_memory_limit(None);
    drop(bytes_of(&stream, 60 * MIB)?);
    Ok(())
}

#[test]
fn a_batch_is_halved_until_it_fits() -> Result<()> {
    testkit::own_process!("IRONWARP_CHECK" = "0");
    let Bench { device, stream } = empty()?;
    device.set_memory_limit(Some(10 * MIB));
    let mut tried = Vec::new();
    let (batch, buffer) = with_oom_retry(&device, 37, |batch| {
        tried.push(batch);
        bytes_of(&stream, batch * MIB)
    })?;
    assert_eq!((batch, buffer.len(), &tried[..]), (9, 9 * MIB, &[37, 18, 9][..]));
    // Other errors, and batches of 1 that do not fit, are returned.
    let calls = std::cell::Cell::new(0);
    let result = with_oom_retry(&device, 4, |batch| {
        calls.set(calls.get() + 1);
        bytes_of(&stream, batch * 11 * MIB)
    });
    expect_error("a batch of 1", result, |e| matches!(e, Error::OutOfMemory(e) if e.requested == 11 * MIB))?;
    assert_eq!(calls.get(), 3);
    let result = with_oom_retry(&device, 4, |_| buffer.slice(..99 * MIB).map(drop));
    expect_error("a range", result, |e| matches!(e, Error::Range { .. }))?;
    device.set_memory_limit(None);
    Ok(())
}

#[test]
fn a_snapshot_shows_every_block() -> Result<()> {
    testkit::own_process!("IRONWARP_CHECK" = "0");
    let Bench { device, stream } = empty()?;
    let first = DeviceBuffer::<u8>::zeroed(&stream, 100)?;
    let line = line!() - 1;
    let _second = DeviceBuffer::<f32>::zeroed(&stream, MIB)?;
    let snapshot = device.memory_snapshot();
    for segment in snapshot.heaps.iter().flat_map(|heap| &heap.segments) {
        let mut at = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, at);
            at += block.bytes;
        }
        assert_eq!(at, segment.address + segment.bytes);
    }
    let live: Vec<_> = snapshot.blocks().filter(|block| block.state == BlockState::Live).collect();
    assert_eq!(live.len(), 2);
    let of_first = live.iter().find(|block| block.address == first.as_ptr().raw()).expect("it is there");
    let site = format!("{}:{line}", file!());
    assert_eq!((of_first.requested, of_first.site.as_deref()), (100, Some(&*site)));
    let holders = snapshot.holders(5);
    assert_eq!((holders.len(), holders[0].bytes, &*holders[1].site), (2, 4 * MIB as u64, &*site));

    let json: serde_json::Value =
        serde_json::from_str(&snapshot.to_json().expect("it can be written")).expect("JSON");
    assert_eq!(json["stats"]["live_blocks"], 2);
    let blocks = json["heaps"].as_array().into_iter().flatten().flat_map(|heap| heap["segments"].as_array());
    let blocks = blocks.flatten().flat_map(|segment| segment["blocks"].as_array()).flatten();
    assert_eq!(blocks.filter(|block| block["site"] == *site).count(), 1);

    let svg = snapshot.to_svg();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert_eq!(svg.matches("<rect ").count(), snapshot.blocks().count());
    assert!(svg.contains(&format!("512 bytes, live for {site}")), "{svg}");
    Ok(())
}

#[test]
fn pinned_memory_is_kept_for_the_next() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = empty()?;
    let values = vec![7u8; 10_000];
    let staging = PinnedBuffer::from_slice(&device, &values)?;
    let stats = device.pinned_stats();
    assert_eq!((stats.live_blocks, stats.requested), (1, 10_000));
    let buffer = DeviceBuffer::from_pinned(&stream, &staging)?;
    // Dropped with the copy under way: no other buffer may get the memory before the copy is done.
    drop(staging);
    let mut other = PinnedBuffer::<u8>::zeroed(&device, 10_000)?;
    other.as_mut_slice()?.fill(9);
    assert_eq!(buffer.to_vec(&stream)?, values);
    drop(other);
    let reserves = device.pinned_stats().reserves;
    for _ in 0..10 {
        let zeroed = PinnedBuffer::<u8>::zeroed(&device, 10_000)?;
        assert!(zeroed.as_slice()?.iter().all(|&v| v == 0));
    }
    assert_eq!(device.pinned_stats().reserves, reserves);
    drop(buffer);
    device.trim_pool()?;
    assert_eq!(device.pinned_stats().reserved, 0);
    Ok(())
}

/// Every buffer has its own value. A kernel writes it, perhaps a kernel of another stream reads it, and it is
/// checked before the drop. Memory given out too early would show as the value of another buffer.
#[test]
fn contents_never_mix() -> Result<()> {
    testkit::own_process!();
    const THREADS: u32 = 8;
    const STREAMS: usize = 16;
    const ROUNDS: u32 = 150;
    let Bench { device, .. } = empty()?;
    let streams = (0..STREAMS).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
    let work = |thread: u32| -> Result<()> {
        let mut seed = u64::from(thread) + 1;
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        };
        let mut held: Vec<(DeviceBuffer<f32>, f32)> = Vec::new();
        for round in 0..ROUNDS {
            let stream = &streams[below(STREAMS as u64) as usize];
            let n = 1 + below(3000) as usize;
            let value = (thread * ROUNDS + round) as f32;
            let config = LaunchConfig::linear(n, 128);
            // SAFETY: the kernel writes all n elements, before anything reads them.
            let buffer = unsafe {
                let mut buffer = DeviceBuffer::<f32>::uninit(stream, n)?;
                launch::<fill>(stream, config, (n as u32, value, &mut buffer))?;
                buffer
            };
            held.push((buffer, value));
            if below(3) == 0 {
                let (from, value) = &held[below(held.len() as u64) as usize];
                let reader = &streams[below(STREAMS as u64) as usize];
                let config = LaunchConfig::linear(from.len(), 128);
                // SAFETY: both have as many elements.
                let copy = unsafe {
                    let mut copy = DeviceBuffer::<f32>::uninit(reader, from.len())?;
                    launch::<scale>(reader, config, (1.0f32, from, &mut copy))?;
                    copy
                };
                held.push((copy, *value));
            }
            while held.len() > 20 {
                let (buffer, value) = held.swap_remove(below(held.len() as u64) as usize);
                if below(2) == 0 {
                    let reader = &streams[below(STREAMS as u64) as usize];
                    assert!(
                        buffer.to_vec(reader)?.iter().all(|&v| v == value),
                        "thread {thread}, round {round}"
                    );
                }
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let stats = device.memory_stats();
    assert_eq!((stats.live, stats.live_blocks), (0, 0), "{stats:?}");
    drop(streams);
    device.trim_pool()?;
    assert_eq!(device.memory_stats().reserved, 0);
    Ok(())
}

#[test]
fn nothing_is_held_when_the_last_handle_goes() -> Result<()> {
    testkit::own_process!();
    // Other programs on the GPU may take memory in between: then the next try tells.
    const TRIES: usize = 5;
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let Bench { device, stream } = empty()?;
        drop(bytes_of(&stream, 50 * MIB)?);
        let held = device.memory_info()?;
        drop((stream, device));
        let free = Device::open(0)?.memory_info()?.free;
        if free >= held.free + 50 * MIB {
            return Ok(());
        }
        seen.push((held, free));
    }
    panic!("held, and free behind it: {seen:?}");
}
