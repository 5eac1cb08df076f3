//! A device nearly full. A process of its own: the software device is made small, before the driver starts.

use ironwarp::{Device, DeviceBuffer, Error, Result};

#[test]
fn memory_that_the_pool_keeps_is_given_back_when_needed() -> Result<()> {
    testkit::own_process!("IRONWARP_SOFT_MEMORY" = "64M");
    let device = Device::open(0)?;
    let stream = device.stream()?;
    let free = device.memory_info()?.free;

    // More than half of the free memory, three times, in rising sizes: each fits only if the one before was
    // really freed.
    for tenths in [5, 6, 7] {
        drop(DeviceBuffer::<u8>::zeroed(&stream, free / 10 * tenths)?);
    }

    // While most memory is in use, a larger request is refused with the figures, and nothing else is
    // affected.
    let kept = DeviceBuffer::<u8>::zeroed(&stream, free / 10 * 6)?;
    let asked = free / 2;
    match DeviceBuffer::<u8>::zeroed(&stream, asked) {
        Err(Error::OutOfMemory(error)) => {
            assert_eq!(error.requested, asked);
            assert!(error.free < asked && asked < error.total, "{error:?}");
            assert!(error.live >= kept.len() && error.live <= error.reserved, "{error:?}");
            // The line that holds most is the one above.
            let holder = &error.holders[0];
            assert!(holder.site.starts_with(file!()) && holder.bytes >= kept.len() as u64, "{error}");
        }
        other => panic!("{other:?}"),
    }
    for part in [kept.slice(..1024)?, kept.slice(kept.len() - 1024..)?] {
        assert_eq!(part.to_vec(&stream)?, [0; 1024]);
    }
    drop(kept);
    drop(DeviceBuffer::<u8>::zeroed(&stream, asked)?);
    Ok(())
}
