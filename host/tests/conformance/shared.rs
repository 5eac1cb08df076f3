//! Static and dynamic shared memory.

use conformance::shared::{
    TILE, shared_dynamic_rotate, shared_static_transpose, shared_tree_sum, shared_two_arrays,
};
use ironwarp::{LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same, words};

#[test]
fn a_static_outside_of_the_kernel() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<f32> = (0..TILE * TILE).map(|i| i as f32).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<f32>(x.len())?);
    let config = LaunchConfig::linear(x.len(), x.len() as u32);
    // SAFETY: one block of a thread an element.
    unsafe { launch::<shared_static_transpose>(&gpu.stream, config, (&device_x, &mut out))? };
    assert_same("tile", &gpu.get(&out)?, (0..x.len()).map(|i| x[i % TILE * TILE + i / TILE]));
    Ok(())
}

#[test]
fn an_array_in_the_kernel() -> Result<()> {
    let gpu = Gpu::open()?;
    const BLOCK: usize = 256;
    // Small integers, so that every order of addition gives the same sum.
    let x: Vec<f32> = words(1, 3 * BLOCK).iter().map(|x| (x % 2001) as f32 - 1000.0).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<f32>(3)?);
    let config = LaunchConfig::linear(x.len(), BLOCK as u32);
    // SAFETY: an element a thread, a sum a block.
    unsafe { launch::<shared_tree_sum>(&gpu.stream, config, (&device_x, &mut out))? };
    assert_same("sums", &gpu.get(&out)?, x.chunks(BLOCK).map(|block| block.iter().sum()));
    Ok(())
}

#[test]
fn dynamic_memory() -> Result<()> {
    let gpu = Gpu::open()?;
    for block in [32usize, 96, 1024] {
        let x = words(2, 2 * block);
        let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(x.len())?);
        let config = LaunchConfig::linear(x.len(), block as u32).with_shared(4 * block as u32);
        // SAFETY: a word of shared memory a thread.
        unsafe { launch::<shared_dynamic_rotate>(&gpu.stream, config, (&device_x, &mut out))? };
        let rotated = x.chunks(block).flat_map(|b| [&b[1..], &b[..1]].concat());
        assert_same("rotated", &gpu.get(&out)?, rotated);
    }
    Ok(())
}

#[test]
fn two_arrays_do_not_overlap() -> Result<()> {
    let gpu = Gpu::open()?;
    let mut out = gpu.zeros::<u64>(64)?;
    // SAFETY: one block of 64 threads.
    unsafe { launch::<shared_two_arrays>(&gpu.stream, LaunchConfig::linear(64, 64), (&mut out,))? };
    assert_same("sums", &gpu.get(&out)?, (0..64).map(|t| 1001 * (63 - t)));
    Ok(())
}
