//! Memory that moves from buffer to buffer.

use ironwarp::{DeviceBuffer, PinnedBuffer, Result, with_oom_retry};

use super::plain;

/// A buffer dropped while another stream uses it; its memory is asked for again.
pub fn reuse() -> Result<()> {
    let (device, stream) = plain()?;
    let other = device.stream()?;
    let values = [1u32, 2, 3, 4];
    let x = DeviceBuffer::from_slice(&stream, &values)?;
    let mut y = DeviceBuffer::<u32>::zeroed(&other, values.len())?;
    y.copy_from_device(&other, &x)?;
    drop(x);
    let z = DeviceBuffer::<u32>::zeroed(&stream, values.len())?;
    assert_eq!(y.to_vec(&other)?, values);
    assert_eq!(z.to_vec(&stream)?, [0; 4]);
    Ok(())
}

/// Memory kept for later is given back.
pub fn trim() -> Result<()> {
    let (device, stream) = plain()?;
    for bytes in [1 << 10, 3 << 20, 20 << 20] {
        drop(DeviceBuffer::<u8>::zeroed(&stream, bytes)?);
    }
    drop(PinnedBuffer::<u8>::zeroed(&device, 100)?);
    device.trim_pool()?;
    assert_eq!((device.memory_stats().reserved, device.pinned_stats().reserved), (0, 0));
    DeviceBuffer::<u8>::zeroed(&stream, 100)?.to_vec(&stream).map(drop)
}

/// A limit below the first request.
pub fn limit() -> Result<()> {
    let (device, stream) = plain()?;
    device.set_memory_limit(Some(4 << 20));
    let (batch, buffer) =
        with_oom_retry(&device, 8, |batch| DeviceBuffer::<u8>::zeroed(&stream, batch << 20))?;
    assert_eq!((batch, buffer.len()), (4, 4 << 20));
    stream.synchronize()
}
