//! `IRONWARP_LAUNCH_BLOCKING`. A process of its own, since it sets the variable.

use crate::common::{Bench, kernels};
use ironwarp::{Device, DeviceBuffer, Error, LaunchConfig, Result};

const NAME: &str = "IRONWARP_LAUNCH_BLOCKING";

#[test]
fn a_blocking_launch_names_itself() -> Result<()> {
    testkit::own_process!();
    // SAFETY: the only test of this process, and no other thread runs yet.
    unsafe { std::env::set_var(NAME, "yes") };
    match Device::open(0) {
        Err(Error::Environment { name: NAME, value, allowed }) => {
            assert_eq!((&*value, allowed), ("yes", "0, 1"))
        }
        other => panic!("{other:?}"),
    }

    // SAFETY: as above.
    unsafe { std::env::set_var(NAME, "1") };
    let Bench { stream, .. } = Bench::open()?;
    let config = LaunchConfig::linear(32, 32);
    let mut buffer = DeviceBuffer::<f32>::zeroed(&stream, 32)?;
    // SAFETY: 32 elements.
    unsafe { ironwarp::launch::<kernels::fill>(&stream, config, (32u32, 1.0, &mut buffer))? };
    assert!(stream.is_idle()?);

    // SAFETY: the kernel dies and touches nothing.
    let (result, line) = unsafe { (ironwarp::launch::<kernels::die>(&stream, config, ()), line!()) };
    let error = result.expect_err("seen at the launch itself");
    let launch = error.driver_error().and_then(|e| e.suspects.culprit()).expect("the launch is named");
    assert_eq!((launch.kernel, launch.location.line()), ("die", line));
    Ok(())
}
