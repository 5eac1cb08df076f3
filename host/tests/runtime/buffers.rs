//! Device buffers and views: contents, lengths, order across streams.

use crate::common::{Bench, expect_error};
use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use ironwarp::{DeviceBuffer, DevicePtr, Error, LaunchConfig, Result};

fn round_trip<T: Pod + PartialEq + std::fmt::Debug>(values: &[T]) -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let buffer = DeviceBuffer::from_slice(&stream, values)?;
    assert_eq!(buffer.len(), values.len());
    assert_eq!(buffer.to_vec(&stream)?, values);
    let mut out = vec![T::zeroed(); values.len()];
    buffer.copy_into(&stream, &mut out)?;
    assert_eq!(out, values);
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Pair {
    key: u32,
    value: f32,
}

#[test]
fn every_element_type_round_trips() -> Result<()> {
    round_trip::<u8>(&(0..=255).collect::<Vec<_>>())?;
    round_trip(&[i8::MIN, -1, 0, i8::MAX])?;
    round_trip(&[u16::MAX, 1, 0])?;
    round_trip(&[i64::MIN, 1, 0])?;
    round_trip(&[1.5f32, -0.0, f32::INFINITY, f32::MIN_POSITIVE])?;
    round_trip(&[1.5f64, f64::MAX])?;
    round_trip(&[f16::from_f32(1.5), f16::MAX])?;
    round_trip(&[bf16::from_f32(1.5), bf16::MIN])?;
    round_trip(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    round_trip(&[Pair { key: 1, value: 2.0 }, Pair { key: 3, value: 4.0 }])
}

#[test]
fn sizes_round_trip() -> Result<()> {
    for len in [0usize, 1, 2, 3, 31, 255, 256, 257, 4095, 4097, 1 << 20] {
        round_trip(&(0..len as u32).collect::<Vec<_>>())?;
    }
    Ok(())
}

#[test]
fn nothing_is_a_length() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut empty = DeviceBuffer::<f32>::zeroed(&stream, 0)?;
    assert!(empty.is_empty());
    assert!(empty.to_vec(&stream)?.is_empty());
    empty.fill_zero(&stream)?;
    empty.copy_from_slice(&stream, &[])?;
    empty.copy_into(&stream, &mut [])?;
    let other = DeviceBuffer::<f32>::from_slice(&stream, &[])?;
    empty.copy_from_device(&stream, &other)?;
    assert!(empty.slice(..)?.is_empty());
    assert!(empty.slice_mut(0..0)?.is_empty());
    Ok(())
}

#[test]
fn elements_without_bytes() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let buffer = DeviceBuffer::<()>::from_slice(&stream, &[(); 5])?;
    assert_eq!(buffer.to_vec(&stream)?, [(); 5]);
    Ok(())
}

#[test]
fn zeroed_is_zero_also_in_memory_used_before() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    for _ in 0..4 {
        let used = DeviceBuffer::from_slice(&stream, &vec![u32::MAX; 1000])?;
        drop(used);
        let buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
        assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == 0));
    }
    Ok(())
}

#[test]
fn views_show_their_part() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let values: Vec<u32> = (0..100).collect();
    let buffer = DeviceBuffer::from_slice(&stream, &values)?;
    assert_eq!(buffer.slice(10..20)?.to_vec(&stream)?, values[10..20]);
    assert_eq!(buffer.slice(..=3)?.to_vec(&stream)?, values[..=3]);
    assert_eq!(buffer.slice(90..)?.slice(5..)?.to_vec(&stream)?, values[95..]);
    assert_eq!(buffer.view().len(), 100);
    assert!(buffer.slice(100..)?.to_vec(&stream)?.is_empty());
    assert_eq!(buffer.slice(10..)?.as_ptr().raw(), buffer.as_ptr().raw() + 40);
    Ok(())
}

#[test]
fn exclusive_views_write_their_part() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 8)?;
    buffer.slice_mut(2..4)?.copy_from_slice(&stream, &[7, 8])?;
    let (mut left, mut right) = buffer.view_mut().split_at_mut(4)?;
    left.view_mut().slice_mut(..1)?.copy_from_slice(&stream, &[1])?;
    right.copy_from_device(&stream, left.view())?;
    assert_eq!(buffer.to_vec(&stream)?, [1, 0, 7, 8, 1, 0, 7, 8]);
    buffer.slice_mut(1..7)?.fill_zero(&stream)?;
    assert_eq!(buffer.to_vec(&stream)?, [1, 0, 0, 0, 0, 0, 0, 8]);
    Ok(())
}

#[test]
fn copies_within_the_device() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let from = DeviceBuffer::from_slice(&stream, &[1u16, 2, 3])?;
    let mut to = DeviceBuffer::<u16>::zeroed(&stream, 3)?;
    to.copy_from_device(&stream, &from)?;
    assert_eq!(to.to_vec(&stream)?, [1, 2, 3]);
    Ok(())
}

#[test]
fn host_memory_is_free_when_a_copy_returns() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let mut values = vec![1u32; 100_000];
    let buffer = DeviceBuffer::from_slice(&stream, &values)?;
    values.fill(2);
    assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == 1));
    Ok(())
}

#[test]
fn a_buffer_follows_its_user_from_stream_to_stream() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let streams = [device.stream()?, device.stream()?, stream];
    let n = 10_000u32;
    for round in 0..30u32 {
        let (writer, reader) = (&streams[round as usize % 3], &streams[(round as usize + 1) % 3]);
        let mut x = DeviceBuffer::<f32>::zeroed(writer, n as usize)?;
        let config = LaunchConfig::linear(n as usize, 128);
        // SAFETY: both buffers have n elements.
        unsafe {
            ironwarp::launch::<crate::common::kernels::fill>(writer, config, (n, round as f32, &mut x))?;
            // Written by one stream, read by another, with no event of the caller's.
            let mut y = DeviceBuffer::<f32>::uninit(reader, n as usize)?;
            ironwarp::launch::<crate::common::kernels::scale>(reader, config, (2.0f32, &x, &mut y))?;
            // Written again by the first, after the second has read it.
            ironwarp::launch::<crate::common::kernels::fill>(writer, config, (n, -1.0f32, &mut x))?;
            let third = &streams[(round as usize + 2) % 3];
            assert!(y.to_vec(third)?.iter().all(|&v| v == 2.0 * round as f32), "round {round}");
        }
    }
    Ok(())
}

#[test]
fn a_writer_waits_for_earlier_readers() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let n = 50_000usize;
    let config = LaunchConfig::linear(n, 128);
    for round in 0..20 {
        let mut x = DeviceBuffer::from_slice(&stream, &vec![round as f32; n])?;
        let mut y = DeviceBuffer::<f32>::zeroed(&other, n)?;
        // SAFETY: both buffers have n elements.
        unsafe {
            ironwarp::launch::<crate::common::kernels::scale>(&other, config, (3.0f32, &x, &mut y))?;
            ironwarp::launch::<crate::common::kernels::fill>(&stream, config, (n as u32, -1.0f32, &mut x))?;
        }
        // Waits for the writer first: it must have come after the reader.
        stream.synchronize()?;
        assert!(y.to_vec(&other)?.iter().all(|&v| v == 3.0 * round as f32), "round {round}");
        assert!(x.to_vec(&stream)?.iter().all(|&v| v == -1.0));
    }
    Ok(())
}

#[test]
fn dropping_while_another_stream_still_reads() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let n = 50_000usize;
    let mut results = Vec::new();
    for round in 0..20 {
        let x = DeviceBuffer::from_slice(&stream, &vec![round as f32; n])?;
        let mut y = DeviceBuffer::<f32>::zeroed(&other, n)?;
        // SAFETY: both buffers have n elements.
        unsafe {
            ironwarp::launch::<crate::common::kernels::scale>(
                &other,
                LaunchConfig::linear(n, 128),
                (3.0f32, &x, &mut y),
            )?
        };
        drop(x);
        // This buffer would get the memory of `x` if that were free already.
        let again = DeviceBuffer::from_slice(&stream, &vec![-1.0f32; n])?;
        results.push((round, y, again));
    }
    for (round, y, _) in &results {
        assert!(y.to_vec(&other)?.iter().all(|&v| v == 3.0 * *round as f32), "round {round}");
    }
    Ok(())
}

#[test]
fn threads_share_a_buffer() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let values: Vec<f32> = (0..5000).map(|i| i as f32).collect();
    let shared = DeviceBuffer::from_slice(&stream, &values)?;
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| -> Result<Vec<f32>> {
                    let stream = device.stream()?;
                    let mut copy = DeviceBuffer::zeroed(&stream, shared.len())?;
                    copy.copy_from_device(&stream, &shared)?;
                    copy.to_vec(&stream)
                })
            })
            .collect();
        for user in users {
            assert_eq!(user.join().expect("no panic")?, values);
        }
        Ok(())
    })
}

#[test]
fn running_out_of_memory_disturbs_nothing() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let kept = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0])?;
    let total = device.memory_info()?.total;
    let asked = 4 * total;
    let error = expect_error(
        "too much",
        DeviceBuffer::<u8>::zeroed(&stream, asked),
        |e| matches!(e, Error::OutOfMemory(o) if o.requested == asked && o.total == total),
    )?;
    assert!(error.is_recoverable());
    assert_eq!(kept.to_vec(&stream)?, [1.0, 2.0]);
    assert_eq!(DeviceBuffer::from_slice(&stream, &[3u8])?.to_vec(&stream)?, [3]);
    Ok(())
}

#[test]
fn pointers_are_numbers() {
    let pointer = DevicePtr::<f32>::from_raw(4096);
    assert_eq!(pointer.raw(), 4096);
    assert_eq!(DevicePtr::<f32>::null().raw(), 0);
}

#[test]
fn the_first_call_of_a_thread_may_be_an_allocation_from_the_cache() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    drop(DeviceBuffer::<u32>::zeroed(&stream, 1000)?);
    stream.synchronize()?;
    // The driver knows no current context on a thread that has not called it.
    let on_a_new_thread = || DeviceBuffer::<u32>::zeroed(&stream, 1000)?.to_vec(&stream);
    let read = std::thread::scope(|threads| threads.spawn(on_a_new_thread).join().expect("no panic"))?;
    assert_eq!(read, [0; 1000]);
    Ok(())
}

#[test]
fn memory_comes_and_goes_by_its_address() -> Result<()> {
    let Bench { stream, .. } = Bench::open()?;
    let ours = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
    let address = ours.into_raw()?;
    // SAFETY: `into_raw` gave up three elements there, and nobody else has them.
    let taken = unsafe { DeviceBuffer::<f32>::from_raw(&stream, address, 3) };
    taken.synchronize()?;
    assert_eq!(taken.to_vec(&stream)?, [1.0, 2.0, 3.0]);
    assert_eq!(taken.into_raw()?, address, "an allocation of the driver's own goes as it came");
    // SAFETY: as above.
    drop(unsafe { DeviceBuffer::<f32>::from_raw(&stream, address, 3) });
    assert_eq!(DeviceBuffer::<u8>::zeroed(&stream, 0)?.into_raw()?, 0);
    Ok(())
}
