//! Named barriers.

use conformance::barrier::{ROLE_THREADS, barrier_per_warp, barrier_pipeline, barrier_votes};
use ironwarp::{LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same, words};

#[test]
fn producers_and_consumers_keep_in_step() -> Result<()> {
    let gpu = Gpu::open()?;
    const TILE: usize = ROLE_THREADS as usize;
    for tiles in [1, 2, 3, 17] {
        let x: Vec<u32> = words(1, tiles * TILE).iter().map(|x| x >> 1).collect();
        let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(x.len())?);
        let config = LaunchConfig::linear(2 * TILE, 2 * ROLE_THREADS);
        // SAFETY: one block, whole tiles.
        unsafe { launch::<barrier_pipeline>(&gpu.stream, config, (&device_x, &mut out))? };
        let want: Vec<u32> = x.chunks(TILE).flat_map(|tile| tile.iter().rev().map(|x| 2 * x)).collect();
        assert_same("mirrored and doubled", &gpu.get(&out)?, want);
    }
    Ok(())
}

#[test]
fn halves_of_a_block_vote_apart() -> Result<()> {
    let gpu = Gpu::open()?;
    const N: usize = 192;
    let mixed: Vec<u32> = words(2, N).iter().map(|x| x % 3).collect();
    let one_sided: Vec<u32> = (0..N).map(|i| u32::from(i < N / 2)).collect();
    for predicates in [mixed, one_sided, vec![0; N], vec![5; N]] {
        let (device, mut out) = (gpu.put(&predicates)?, gpu.zeros::<u32>(3 * N)?);
        // SAFETY: one block, an element a thread.
        unsafe {
            launch::<barrier_votes>(&gpu.stream, LaunchConfig::linear(N, N as u32), (&device, &mut out))?
        };
        let counts: Vec<u32> =
            predicates.chunks(N / 2).map(|half| half.iter().filter(|&&p| p != 0).count() as u32).collect();
        let rows: [fn(u32) -> u32; 3] = [|c| c, |c| u32::from(c == N as u32 / 2), |c| u32::from(c > 0)];
        let want =
            rows.iter().flat_map(|row| counts.iter().flat_map(|&c| [row(c); N / 2]).collect::<Vec<u32>>());
        assert_same("count, all, any", &gpu.get(&out)?, want);
    }
    Ok(())
}

#[test]
fn every_warp_has_its_own() -> Result<()> {
    let gpu = Gpu::open()?;
    const N: usize = 15 * 32;
    let x: Vec<u32> = words(3, N).iter().map(|x| x / 2).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(N)?);
    // SAFETY: one block, an element a thread.
    unsafe {
        launch::<barrier_per_warp>(&gpu.stream, LaunchConfig::linear(N, N as u32), (&device_x, &mut out))?
    };
    // Warp w hands on w + 1 times, adding 1 each time.
    let want = (0..N).map(|t| {
        let (warp, lane) = (t / 32, t % 32);
        x[32 * warp + (lane + warp + 1) % 32] + warp as u32 + 1
    });
    assert_same("values", &gpu.get(&out)?, want);
    Ok(())
}
