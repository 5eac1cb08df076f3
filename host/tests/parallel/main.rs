//! Groups of devices. Each test has a process of its own, which the software driver gives eight devices; on a
//! machine with GPUs, groups are as large as there are GPUs.

mod checkpoints;
mod failures;
mod graphs;
mod metrics;
mod moments;
mod moments_rank;
mod nccl;
mod nccl_failures;
mod ops_collectives;
mod ops_fused;
mod processes;
mod processes_failures;
mod ranks;
mod runner;
mod sequences;

use ironwarp::parallel::{Group, GroupOptions};
use ironwarp::{Device, Error, Result};
use std::time::Duration;

/// The first devices, as many as there are but at most `most`. `None`, and the test is skipped, with one.
fn devices(most: u32) -> Result<Option<Vec<Device>>> {
    let count = Device::count()?.min(most);
    if count < 2 {
        testkit::skip("no second GPU");
        return Ok(None);
    }
    (0..count).map(Device::open).collect::<Result<Vec<_>, Error>>().map(Some)
}

/// The groups to test: the first 2, 3, 4 and 8 devices, as far as they are there.
fn groups() -> Result<Vec<Vec<Device>>> {
    let all = devices(8)?.unwrap_or_default();
    Ok([2, 3, 4, 8]
        .into_iter()
        .filter(|&ranks| ranks <= all.len())
        .map(|ranks| all[..ranks].to_vec())
        .collect())
}

/// A group whose ranks wait for `milliseconds` at most.
fn impatient(devices: &[Device], milliseconds: u64) -> Result<Group> {
    Group::with_options(
        devices,
        GroupOptions { timeout: Duration::from_millis(milliseconds), ..GroupOptions::default() },
    )
}
