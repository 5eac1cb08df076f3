//! Barriers that count arrivals and bytes.

use conformance::hopper::mbarrier::{
    BULK_LEN, MAX_THREADS, QUESTIONS, mbarrier_bulk, mbarrier_copies, mbarrier_parity, mbarrier_rounds,
};
use ironwarp::{LaunchConfig, Result, launch};

use super::hopper;
use crate::gpu::{assert_same, words};

#[test]
fn what_came_before_an_arrival_is_seen_after_the_wait() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (threads, rounds) in [(1, 3), (32, 1), (96, 7), (MAX_THREADS, 20)] {
        let x: Vec<u32> = words(1, threads).iter().map(|x| x >> 1).collect();
        let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(rounds * threads)?);
        let config = LaunchConfig::linear(threads, threads as u32);
        // SAFETY: one block, an element a thread, an output a thread a round.
        unsafe { launch::<mbarrier_rounds>(&gpu.stream, config, (&device_x, rounds as u32, &mut out))? };
        let want = (0..rounds)
            .flat_map(|round| (0..threads).map(move |t| (round, (t + 1 + round) % threads)))
            .map(|(round, other)| x[other] + round as u32);
        assert_same("neighbours", &gpu.get(&out)?, want);
    }
    Ok(())
}

#[test]
fn barriers_are_told_of_copies() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (threads, rounds) in [(1, 3), (32, 1), (96, 7), (MAX_THREADS, 20)] {
        let x = words(4, rounds * threads);
        let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(rounds * threads)?);
        let config = LaunchConfig::linear(threads, threads as u32);
        // SAFETY: one block, an element and an output a thread a round.
        unsafe { launch::<mbarrier_copies>(&gpu.stream, config, (&device_x, rounds as u32, &mut out))? };
        let others =
            (0..rounds).flat_map(|round| (0..threads).map(move |t| (round, (t + 1 + round) % threads)));
        let want =
            others.map(|(round, other)| if other + 1 < threads { x[round * threads + other] } else { 0 });
        assert_same("copies", &gpu.get(&out)?, want);
    }
    Ok(())
}

#[test]
fn parities_tell_phases_apart() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    let mut out = gpu.zeros::<u32>(QUESTIONS)?;
    // SAFETY: one thread.
    unsafe { launch::<mbarrier_parity>(&gpu.stream, LaunchConfig::linear(1, 1), (&mut out,))? };
    // Fresh: phase 0 runs, the one before is over. After 4 of 5 arrivals as before; after 5, phase 0 is over
    // and phase 1 runs; after 5 more phase 1 is over, and phase 2, of parity 0, runs. Then a new barrier of
    // one arrival.
    assert_same("answers", &gpu.get(&out)?, [0, 1, 0, 1, 1, 0, 0, 1, 1]);
    Ok(())
}

#[test]
fn bulk_copies_report_their_bytes() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    // Small integers: the sums are exact.
    let x: Vec<f32> = words(2, BULK_LEN).iter().map(|x| (x % 1000) as f32).collect();
    let before: Vec<f32> = words(3, BULK_LEN).iter().map(|x| (x % 1000) as f32).collect();
    for threads in [32, 128] {
        let (device_x, mut sum) = (gpu.put(&x)?, gpu.put(&before)?);
        let mut out = gpu.zeros::<f32>(BULK_LEN)?;
        let config = LaunchConfig::linear(threads, threads as u32);
        // SAFETY: one block, all three of the kernel's length.
        unsafe { launch::<mbarrier_bulk>(&gpu.stream, config, (&device_x, &mut out, &mut sum))? };
        assert_same("doubled", &gpu.get(&out)?, x.iter().map(|x| 2.0 * x));
        assert_same("added", &gpu.get(&sum)?, x.iter().zip(&before).map(|(x, before)| 2.0 * x + before));
    }
    Ok(())
}
