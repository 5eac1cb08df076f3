//! An asynchronous error with several launches under way names them all, in order. A process of its own,
//! since the device is lost to it.

use crate::common::{Bench, kernels};
use ironwarp::{DeviceBuffer, Error, LaunchConfig, Result};

#[test]
fn the_launches_under_way_are_suspects() -> Result<()> {
    testkit::own_process!();
    let Bench { device, stream } = Bench::open()?;
    let other = device.stream()?;
    let config = LaunchConfig::linear(64, 32);
    let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 64)?;
    // SAFETY: 64 elements.
    let mut fill =
        || unsafe { ironwarp::launch::<kernels::fill>(&stream, config, (64u32, 1.0, &mut buffer)) };
    fill()?;
    stream.synchronize()?;
    // SAFETY: the kernel dies and touches nothing.
    unsafe { ironwarp::launch::<kernels::die>(&other, config, ())? };
    let line = line!() - 1;
    // A GPU may be quick enough to fail already here.
    let error = fill().and_then(|()| device.synchronize()).expect_err("the kernel died");

    let Error::Sticky { first } = &error else { panic!("{error:?}") };
    let suspects = &first.suspects;
    let names: Vec<&str> = suspects.launches.iter().map(|launch| launch.kernel).collect();
    assert!(names == ["die", "fill"] || names == ["die"], "{names:?}");
    // A report of the checker has the kernel's name, the line and a hint of its own.
    let is_reported = first.report.is_some();
    assert_eq!(is_reported, device.is_software());
    assert!(!is_reported || names == ["die"], "{names:?}");
    // Other tests of the process get this error too: its first line tells where to look.
    let told = error.to_string();
    let first_line = told.lines().next().unwrap_or_default();
    let cause = format!("since kernel `die` failed, launched at {}:{line}: ", file!());
    assert_eq!(first_line.contains(&cause), names == ["die"], "{first_line}");
    assert!(told.contains("`cargo nextest run`"), "{told}");
    assert_ne!(is_reported, error.to_string().contains("hint: a kernel trapped or died"), "{error}");
    assert_eq!((suspects.launches[0].location.line(), suspects.launches[0].location.file()), (line, file!()));
    assert_eq!((suspects.forgotten, suspects.unseen_work), (0, false));
    assert_eq!(suspects.culprit().is_some(), names.len() == 1);
    let told = if names.len() == 2 {
        "caused by one of these 2 launches, oldest first:\n  `die` from "
    } else {
        "caused by the launch of `die` from "
    };
    assert!(error.to_string().contains(told), "{error}");
    Ok(())
}
