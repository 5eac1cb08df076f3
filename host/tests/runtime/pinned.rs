//! Page-locked memory: queued copies, and automatic waits for them.

use crate::common::Bench;
use ironwarp::{DeviceBuffer, PinnedBuffer, Result};

#[test]
fn there_and_back() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    for len in [0usize, 1, 1000, 100_000] {
        let values: Vec<u32> = (0..len as u32).collect();
        let from = PinnedBuffer::from_slice(&device, &values)?;
        assert_eq!(from.len(), len);
        let buffer = DeviceBuffer::from_pinned(&stream, &from)?;
        let mut to = PinnedBuffer::<u32>::zeroed(&device, len)?;
        buffer.copy_into_pinned(&stream, &mut to)?;
        // The caller does not synchronise: the read waits.
        assert_eq!(to.as_slice()?, values);
    }
    Ok(())
}

#[test]
fn writing_waits_for_the_copy_that_reads() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let mut from = PinnedBuffer::from_slice(&device, &vec![1u32; 1 << 20])?;
    let buffer = DeviceBuffer::from_pinned(&stream, &from)?;
    from.as_mut_slice()?.fill(2);
    assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == 1));
    Ok(())
}

#[test]
fn dropping_waits_for_the_copy() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let buffer =
        DeviceBuffer::from_pinned(&stream, &PinnedBuffer::from_slice(&device, &vec![5u32; 1 << 18])?)?;
    assert!(buffer.to_vec(&stream)?.iter().all(|&v| v == 5));
    buffer.copy_into_pinned(&stream, &mut PinnedBuffer::zeroed(&device, 1 << 18)?)?;
    stream.synchronize()
}

#[test]
fn transfers_of_two_streams_keep_their_order() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let mut staging = PinnedBuffer::from_slice(&device, &vec![1u32; 1 << 16])?;
    let ones = DeviceBuffer::from_pinned(&stream, &staging)?;
    let twos = DeviceBuffer::from_slice(&other, &vec![2u32; 1 << 16])?;
    // Overwrites data that the first stream may still be reading.
    twos.copy_into_pinned(&other, &mut staging)?;
    // Reads data that the second stream may still be writing.
    let copy = DeviceBuffer::from_pinned(&stream, &staging)?;
    assert!(ones.to_vec(&stream)?.iter().all(|&v| v == 1));
    assert!(copy.to_vec(&stream)?.iter().all(|&v| v == 2));
    assert!(staging.as_slice()?.iter().all(|&v| v == 2));
    Ok(())
}

#[test]
fn parts_of_buffers() -> Result<()> {
    let Bench { device, stream } = Bench::open()?;
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 10)?;
    buffer.slice_mut(3..5)?.copy_from_pinned(&stream, &PinnedBuffer::from_slice(&device, &[7, 8])?)?;
    let mut out = PinnedBuffer::<u8>::zeroed(&device, 4)?;
    buffer.slice(2..6)?.copy_into_pinned(&stream, &mut out)?;
    assert_eq!(out.as_slice()?, [0, 7, 8, 0]);
    Ok(())
}
