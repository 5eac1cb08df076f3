//! Vector loads and stores.

use bytemuck::Pod;
use conformance::vector::{
    COPIES, SHARED_THREADS, vector_copy_v1, vector_copy_v2, vector_copy_v4, vector_shared_mirror,
    vector_widen_b16,
};
use ironwarp::{LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same, words};

const BLOCK: u32 = 64;

fn repeated<T: Pod>(x: &[T]) -> Vec<u32> {
    let words: &[u32] = bytemuck::cast_slice(x);
    words.repeat(COPIES)
}

#[test]
fn words_pairs_and_quads_of_global_memory() -> Result<()> {
    let gpu = Gpu::open()?;
    let threads = 3 * BLOCK as usize;
    let config = LaunchConfig::linear(threads, BLOCK);
    let x = words(1, threads);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(COPIES * x.len())?);
    // SAFETY: a word a thread.
    unsafe { launch::<vector_copy_v1>(&gpu.stream, config, (&device_x, &mut out))? };
    assert_same("words", &gpu.get(&out)?, repeated(&x));

    let x: Vec<i32> = words(2, 2 * threads).iter().map(|x| x.cast_signed()).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<i32>(COPIES * x.len())?);
    // SAFETY: two words a thread; allocations are aligned.
    unsafe { launch::<vector_copy_v2>(&gpu.stream, config, (&device_x, &mut out))? };
    assert_same("pairs", bytemuck::cast_slice(&gpu.get(&out)?), repeated(&x));

    // Any bits, NaN too: a copy must not touch them.
    let x: Vec<f32> = words(3, 4 * threads).iter().map(|&x| f32::from_bits(x)).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<f32>(COPIES * x.len())?);
    // SAFETY: four words a thread; allocations are aligned.
    unsafe { launch::<vector_copy_v4>(&gpu.stream, config, (&device_x, &mut out))? };
    assert_same("quads", bytemuck::cast_slice(&gpu.get(&out)?), repeated(&x));
    Ok(())
}

#[test]
fn shared_memory_at_every_width() -> Result<()> {
    let gpu = Gpu::open()?;
    const N: usize = SHARED_THREADS as usize;
    let x = words(4, 4 * N);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(9 * N)?);
    // SAFETY: one block, four words a thread in, nine out.
    unsafe {
        launch::<vector_shared_mirror>(
            &gpu.stream,
            LaunchConfig::linear(N, SHARED_THREADS),
            (&device_x, &mut out),
        )?
    };
    let mirrored =
        |width: usize| x.chunks(4).rev().flat_map(|quad| quad[..width].to_vec()).collect::<Vec<u32>>();
    let low_bits = |mask: u32| mirrored(1).into_iter().map(|x| x & mask).collect::<Vec<u32>>();
    let want = [mirrored(4), mirrored(2), mirrored(1), low_bits(0xffff), low_bits(0xff)];
    assert_same("quads, pairs, words, 16 bits, bytes", &gpu.get(&out)?, want.concat());
    Ok(())
}

#[test]
fn sixteen_bits_of_global_memory() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<u16> = words(5, 128).iter().map(|&x| x as u16).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(x.len())?);
    // SAFETY: an element a thread.
    unsafe {
        launch::<vector_widen_b16>(&gpu.stream, LaunchConfig::linear(x.len(), BLOCK), (&device_x, &mut out))?
    };
    assert_same("widened", &gpu.get(&out)?, x.iter().map(|&x| u32::from(x)));
    Ok(())
}
