//! Red zones and poison. A process of its own: they are enabled before the device is opened. The software
//! driver's checker is off, since it would find the stray writes first.

use crate::common::Bench;
use crate::common::kernels::fill;
use ironwarp::{DeviceBuffer, DevicePtr, Error, LaunchConfig, Result, Stream, launch};

const LEN: usize = 100;

/// Writes `count` elements, beginning `elements` before or after the buffer's first.
fn write_at(stream: &Stream, buffer: &DeviceBuffer<f32>, elements: i64, count: u32) -> Result<()> {
    let address = buffer.as_ptr().raw().wrapping_add_signed(elements * size_of::<f32>() as i64);
    let config = LaunchConfig::linear(count as usize, 32);
    // SAFETY: the writes lie in the buffer and its red zones.
    unsafe { launch::<fill>(stream, config, (count, 1.0f32, DevicePtr::<f32>::from_raw(address))) }
}

#[test]
fn a_write_beside_a_buffer_is_told() -> Result<()> {
    testkit::own_process!("IRONWARP_ALLOCATOR_DEBUG" = "1", "IRONWARP_CHECK" = "0");
    let Bench { device, stream } = Bench::open()?;

    // SAFETY: the read sees the poison.
    let buffer = unsafe { DeviceBuffer::<u32>::uninit(&stream, LEN)? };
    assert_eq!(buffer.to_vec(&stream)?, [u32::MAX; LEN], "a buffer that nobody has written is poison");
    drop(buffer);

    for (elements, count, offset) in [
        (0, LEN as u32, None),
        (0, LEN as u32 + 1, Some(4 * LEN as isize)),
        (LEN as i64 + 10, 3, Some(4 * (LEN as isize + 10))),
        (-1, 1, Some(-4)),
        (-128, 1, Some(-512)),
    ] {
        let buffer = DeviceBuffer::<f32>::zeroed(&stream, LEN)?;
        let line = line!() - 1;
        write_at(&stream, &buffer, elements, count)?;
        drop(buffer);
        match (device.check_memory(), offset) {
            (Ok(()), None) => {}
            (Err(Error::Overrun(found)), Some(offset)) => {
                assert_eq!((found.bytes, found.offset), (4 * LEN, offset));
                assert_eq!(found.site, format!("{}:{line}", file!()));
                device.check_memory()?; // told once
            }
            (other, _) => panic!("{count} elements at {elements}: {other:?}"),
        }
    }

    // A buffer used on two streams, without an overrun.
    let other = device.stream()?;
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1.0f32; LEN])?;
    buffer.fill_zero(&other)?;
    assert_eq!(buffer.to_vec(&stream)?, [0.0; LEN]);
    drop(buffer);
    device.check_memory()
}
