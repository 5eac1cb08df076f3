//! Elections, and launches that overlap.

use conformance::hopper::grid::grid_overlapping_step;
use conformance::hopper::warp::{ELECTIONS, warp_elect};
use ironwarp::{LaunchConfig, Result, launch};

use super::hopper;
use crate::gpu::{assert_same, words};

#[test]
fn one_lane_of_a_warp_is_elected() -> Result<()> {
    const THREADS: usize = 96;
    let Some(gpu) = hopper()? else { return Ok(()) };
    let mut out = gpu.zeros::<u32>(ELECTIONS * THREADS)?;
    // SAFETY: whole warps, a word for each thread and election.
    unsafe { launch::<warp_elect>(&gpu.stream, LaunchConfig::linear(THREADS, THREADS as u32), (&mut out,))? };
    let out = gpu.get(&out)?;
    for election in out.chunks(THREADS) {
        assert_eq!(election, &out[..THREADS], "the same lane each time");
        assert!(election.chunks(32).all(|warp| warp.iter().sum::<u32>() == 1), "{election:?}");
    }
    Ok(())
}

#[test]
fn overlapping_launches_wait_for_the_one_before() -> Result<()> {
    const LAUNCHES: usize = 50;
    let Some(gpu) = hopper()? else { return Ok(()) };
    for len in [1, 1000, 100_000] {
        let x = words(1, len);
        let mut device = gpu.put(&x)?;
        let config = LaunchConfig::linear(len, 128).overlapping_previous();
        for _ in 0..LAUNCHES {
            // SAFETY: a thread an element.
            unsafe { launch::<grid_overlapping_step>(&gpu.stream, config, (&mut device,))? };
        }
        let step = |x: u32| x.wrapping_mul(3).wrapping_add(1);
        assert_same("steps", &gpu.get(&device)?, x.iter().map(|&x| (0..LAUNCHES).fold(x, |x, _| step(x))));
    }
    Ok(())
}
