//! A kernel that dies takes its context with it: every later call returns the same error. A process of its
//! own, since the device is lost to it.

use crate::common::{Bench, kernels};
use ironwarp::{DeviceBuffer, Error, Event, LaunchConfig, PinnedBuffer, Result};

#[test]
fn the_first_error_stays() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1.0f32; 64])?;
    let mut pinned = PinnedBuffer::<f32>::zeroed(&device, 64)?;
    let event = Event::new(&device)?;
    let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]);
    // SAFETY: the kernel dies and touches nothing.
    unsafe { ironwarp::launch::<kernels::die>(&stream, config, ())? };
    let line = line!() - 1;

    let first = stream.synchronize().expect_err("the kernel died");
    let Error::Sticky { first } = first else { panic!("{first:?}") };
    assert!(first.is_sticky());
    let launch = first.suspects.culprit().expect("the launch is named");
    assert_eq!((launch.kernel, launch.location.line(), launch.location.file()), ("die", line, file!()));
    assert_eq!(first.report.is_some(), device.is_software(), "{first}");

    let later: [(&str, Result<()>); 14] = [
        ("synchronize", stream.synchronize()),
        ("device.synchronize", device.synchronize()),
        ("is_idle", stream.is_idle().map(drop)),
        ("record", stream.record(&event)),
        ("wait", stream.wait(&event)),
        ("stream", device.stream().map(drop)),
        ("event", Event::new(&device).map(drop)),
        ("zeroed", DeviceBuffer::<u8>::zeroed(&stream, 8).map(drop)),
        ("to_vec", buffer.to_vec(&stream).map(drop)),
        ("copy", buffer.copy_from_slice(&stream, &[0.0; 64])),
        ("pinned", buffer.copy_into_pinned(&stream, &mut pinned)),
        ("pinned buffer", PinnedBuffer::<u8>::zeroed(&device, 8).map(drop)),
        ("memory_info", device.memory_info().map(drop)),
        // SAFETY: 64 elements.
        ("launch", unsafe { ironwarp::launch::<kernels::fill>(&stream, config, (64u32, 1.0, &mut buffer)) }),
    ];
    for (what, result) in later {
        let error = result.expect_err(what);
        assert!(!error.is_recoverable(), "{what}");
        match error {
            Error::Sticky { first: again } => assert_eq!(again.to_string(), first.to_string(), "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    // Nothing here may panic.
    drop((buffer, pinned, event, stream, device));
    Ok(())
}
