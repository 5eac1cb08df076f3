//! Devices: counting, opening, properties.

use crate::common::expect_error;
use ironwarp::{Device, Error, Result};

#[test]
fn there_is_a_device() -> Result<()> {
    assert!(Device::count()? >= 1);
    Ok(())
}

#[test]
fn handles_of_one_device_are_equal() -> Result<()> {
    let first = Device::open(0)?;
    let second = Device::open(0)?;
    assert_eq!(first, second);
    assert_eq!(first, first.clone());
    assert_eq!(first.ordinal(), 0);
    Ok(())
}

#[test]
fn a_device_opens_again_after_its_last_handle_is_gone() -> Result<()> {
    for _ in 0..3 {
        let device = Device::open(0)?;
        device.stream()?.synchronize()?;
    }
    Ok(())
}

#[test]
fn ordinals_beyond_the_last_are_refused() -> Result<()> {
    let count = Device::count()?;
    for ordinal in [count, count + 1, i32::MAX as u32, u32::MAX] {
        let error = expect_error(
            "open",
            Device::open(ordinal),
            |e| matches!(e, Error::NoSuchDevice { ordinal: o, count: c } if *o == ordinal && *c == count),
        )?;
        assert!(error.is_recoverable());
    }
    Ok(())
}

#[test]
fn properties_make_sense() -> Result<()> {
    let device = Device::open(0)?;
    let properties = device.properties();
    assert!(!device.name().is_empty());
    assert!(device.arch().major >= 8, "{}", device.arch());
    assert!(properties.sm_count >= 1);
    assert_eq!(properties.warp_size, 32);
    assert_eq!(properties.max_threads_per_block, 1024);
    assert!(properties.max_block[0] >= 1024 && properties.max_grid[0] >= 65_535, "{properties:?}");
    assert!(properties.shared_per_block >= 48 * 1024);
    assert!(properties.shared_per_block_optin >= properties.shared_per_block);
    assert!(properties.cooperative_launch);
    let memory = device.memory_info()?;
    assert!(memory.free <= memory.total);
    assert!(memory.total as u64 <= properties.total_memory);
    Ok(())
}

#[test]
fn names_say_what_they_are() -> Result<()> {
    let device = Device::open(0)?;
    assert_eq!(device.is_software(), device.name().contains("software"), "{device:?}");
    assert!(format!("{device:?}").contains(device.name()));
    Ok(())
}

#[test]
fn many_threads_open_at_once() -> Result<()> {
    let handles: Vec<_> = (0..16)
        .map(|_| {
            std::thread::spawn(|| {
                let device = Device::open(0)?;
                device.stream()?.synchronize()?;
                device.synchronize()
            })
        })
        .collect();
    for handle in handles {
        handle.join().expect("no panic")?;
    }
    Ok(())
}

#[test]
fn the_stack_grows() -> Result<()> {
    let device = Device::open(0)?;
    let before = device.stack_limit()?;
    device.set_stack_limit(before + 1024)?;
    assert!(device.stack_limit()? >= before + 1024);
    for bytes in [(512 << 10) + 1, usize::MAX] {
        expect_error("stack", device.set_stack_limit(bytes), |e| {
            matches!(e, Error::InvalidArgument { argument: "bytes", .. })
        })?;
    }
    device.set_stack_limit(before)
}
