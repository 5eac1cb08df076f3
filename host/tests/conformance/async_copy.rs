//! Asynchronous copies.

use conformance::async_copy::{THREADS, async_copy_pipeline, async_copy_sizes, async_copy_zero_fill};
use ironwarp::{LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same, words};

const N: usize = THREADS as usize;

fn one_block() -> LaunchConfig {
    LaunchConfig::linear(N, THREADS)
}

#[test]
fn every_size() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = words(1, 4 * N);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(11 * N)?);
    // SAFETY: four words a thread in, eleven out.
    unsafe { launch::<async_copy_sizes>(&gpu.stream, one_block(), (&device_x, &mut out))? };
    let mirrored =
        |width: usize| x.chunks(4).rev().flat_map(|quad| quad[..width].to_vec()).collect::<Vec<u32>>();
    assert_same(
        "4, 8, 16, 16 bytes",
        &gpu.get(&out)?,
        [mirrored(1), mirrored(2), mirrored(4), mirrored(4)].concat(),
    );
    Ok(())
}

#[test]
fn what_is_missing_becomes_zero() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = words(2, 4 * N);
    // All of 0 to 16 bytes, several times.
    let bytes: Vec<u32> = (0..THREADS).map(|t| t % 17).collect();
    let (device_x, device_bytes, mut out) = (gpu.put(&x)?, gpu.put(&bytes)?, gpu.zeros::<u32>(8 * N)?);
    // SAFETY: four words and a count a thread in, eight words out.
    unsafe {
        launch::<async_copy_zero_fill>(&gpu.stream, one_block(), (&device_x, &device_bytes, &mut out))?
    };
    let mut want: Vec<u8> = bytemuck::cast_slice(&x).to_vec();
    for (copy, &bytes) in want.chunks_mut(16).zip(&bytes) {
        copy[bytes as usize..].fill(0);
    }
    assert_same("bytes", bytemuck::cast_slice(&gpu.get(&out)?), want.repeat(2));
    Ok(())
}

#[test]
fn a_pipeline_keeps_its_groups_apart() -> Result<()> {
    let gpu = Gpu::open()?;
    const TILE: usize = 4 * N;
    for tiles in [0, 1, 2, 3, 4, 11] {
        // Small integers, so that the sums are exact.
        let x: Vec<f32> = words(3, tiles * TILE).iter().map(|x| (x % 1001) as f32 - 500.0).collect();
        let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<f32>(TILE)?);
        // SAFETY: whole tiles in, one out.
        unsafe { launch::<async_copy_pipeline>(&gpu.stream, one_block(), (&device_x, &mut out))? };
        let want = (0..TILE).map(|i| x.chunks(TILE).map(|tile| tile[i]).sum::<f32>() + 0.0);
        assert_same("sums", &gpu.get(&out)?, want);
    }
    Ok(())
}
