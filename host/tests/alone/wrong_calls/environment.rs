//! Wrong values of environment variables. Each is tried in a process of its own, which opens a device,
//! allocates and launches.

use std::process::Command;

use ironwarp::Result;

use super::Calls;
use crate::common::Bench;

/// Set in the process that tries the value.
const PROBE: &str = "IRONWARP_TEST_PROBE";
/// The text that it writes before the error.
const REFUSED: &str = "refused: ";

const SOFT: &[(&str, &str)] = &[
    ("IRONWARP_SOFT_DEVICES", "0"),
    ("IRONWARP_SOFT_DEVICES", "65"),
    ("IRONWARP_SOFT_DEVICES", "-1"),
    ("IRONWARP_SOFT_DEVICES", "two"),
    ("IRONWARP_SOFT_MEMORY", "lots"),
    ("IRONWARP_SOFT_MEMORY", "1"),
    ("IRONWARP_SOFT_MEMORY", "4X"),
    ("IRONWARP_SOFT_MEMORY", "99999999999T"),
    ("IRONWARP_SEED", "abc"),
    ("IRONWARP_CHECK", "yes"),
    ("IRONWARP_DRIVER", "cuda"),
    ("IRONWARP_DRIVER", "SOFT"),
    ("IRONWARP_DRIVER", "soft,nvidia"),
];

const ANY: &[(&str, &str)] = &[
    ("IRONWARP_FAULT", "cuMemAlloc_v2"),
    ("IRONWARP_FAULT", "cuMemAlloc_v2:1"),
    ("IRONWARP_FAULT", "cuMemAlloc_v2:0:2"),
    ("IRONWARP_FAULT", "cuMemAlloc_v2:x:2"),
    ("IRONWARP_FAULT", "cuMemAlloc_v2:1:NO_SUCH_CODE"),
    ("IRONWARP_FAULT", "cuMemAlloc_v2:1:2:sometimes"),
    ("IRONWARP_FAULT", "cuNoSuchFunction:1:2"),
    ("IRONWARP_LAUNCH_BLOCKING", "yes"),
    ("IRONWARP_LAUNCH_BLOCKING", "2"),
    ("IRONWARP_LAUNCH_BLOCKING", " 1"),
    ("IRONWARP_ALLOCATOR", "none"),
    ("IRONWARP_ALLOCATOR", "Caching"),
    ("IRONWARP_ALLOCATOR_DEBUG", "maybe"),
    ("IRONWARP_ALLOCATOR_DEBUG", "-1"),
];

pub(crate) fn table(calls: &mut Calls) {
    for (name, value) in SOFT {
        refused(calls, name, value, &[("IRONWARP_DRIVER", "soft")]);
    }
    for (name, value) in ANY {
        refused(calls, name, value, &[]);
    }
}

fn refused(calls: &mut Calls, name: &str, value: &str, beside: &[(&str, &str)]) {
    let program = std::env::current_exe().expect("this program is a file");
    let mut command = Command::new(program);
    command.args(["--exact", "wrong_calls::environment::probe", "--nocapture"]).env(PROBE, "1");
    command.envs(beside.iter().copied()).env(name, value);
    let output = command.output().expect("this program starts again");
    let text = String::from_utf8_lossy(&output.stdout);
    let what = format!("{name}={value}");
    let Some((_, error)) = text.split_once(REFUSED) else {
        panic!("{what}: {text}{}", String::from_utf8_lossy(&output.stderr))
    };
    assert!(output.status.success(), "{what}: {error}");
    assert!(error.contains(name) && error.contains(value), "{what} is not named: {error}");
    assert!(error.contains("\nhint: "), "{what}: no hint: {error}");
    calls.count();
}

/// The test that the other processes run.
#[test]
fn probe() -> Result<()> {
    if std::env::var_os(PROBE).is_none() {
        return Ok(());
    }
    if let Err(error) = Bench::open() {
        println!("{REFUSED}{error}");
    }
    Ok(())
}
