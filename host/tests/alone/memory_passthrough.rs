//! Buffers with a driver allocation each. A process of its own: the mode is chosen before the device is
//! opened.

use crate::common::Bench;
use crate::common::kernels::fill;
use ironwarp::{Device, DeviceBuffer, Error, LaunchConfig, PinnedBuffer, Result, launch};

#[test]
fn each_buffer_is_an_allocation() -> Result<()> {
    testkit::own_process!();
    // SAFETY: the only test of this process, and no other thread runs yet.
    unsafe { std::env::set_var("IRONWARP_ALLOCATOR", "cashing") };
    match Device::open(0).map(drop) {
        Err(Error::Environment { name: "IRONWARP_ALLOCATOR", value, .. }) => assert_eq!(value, "cashing"),
        other => panic!("{other:?}"),
    }
    // SAFETY: as above; the device was not opened.
    unsafe { std::env::set_var("IRONWARP_ALLOCATOR", "passthrough") };
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    for round in 0..10u32 {
        let mut x = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
        let pinned = PinnedBuffer::from_slice(&device, &vec![round; 1000])?;
        let y = DeviceBuffer::from_pinned(&other, &pinned)?;
        // SAFETY: it has 1000 elements.
        unsafe { launch::<fill>(&other, LaunchConfig::linear(1000, 128), (1000u32, round as f32, &mut x))? };
        assert_eq!(x.to_vec(&stream)?, [round as f32; 1000]);
        assert_eq!(y.to_vec(&stream)?, [round; 1000]);
    }
    assert_eq!((device.memory_stats().reserves, device.pinned_stats().reserves), (0, 0));
    let asked = 4 * device.memory_info()?.total;
    match DeviceBuffer::<u8>::zeroed(&stream, asked) {
        Err(Error::OutOfMemory(error)) => assert_eq!((error.requested, error.reserved), (asked, 0)),
        other => panic!("{other:?}"),
    }
    device.trim_pool()
}
