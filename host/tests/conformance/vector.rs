//! Vector loads and stores.

use bytemuck::Pod;
use conformance::vector::{
    COPIES, REVERSED, REVERSED_BYTES, SHARED_THREADS, vector_copy_v1, vector_copy_v2, vector_copy_v4,
    vector_elements_by_words, vector_load_if, vector_reverse_elements, vector_shared_mirror,
    vector_widen_b16,
};
use half::bf16;
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
fn words_that_are_not_there_are_zeros() -> Result<()> {
    let gpu = Gpu::open()?;
    let threads = 3 * BLOCK as usize;
    let x = words(8, threads);
    let (device_x, mut out) = (gpu.put(&x)?, gpu.put(&vec![!0u32; 2 * threads])?);
    // SAFETY: a word a thread, and two for its results.
    unsafe {
        launch::<vector_load_if>(&gpu.stream, LaunchConfig::linear(threads, BLOCK), (&device_x, &mut out))?;
    }
    let there = x.iter().enumerate().map(|(i, &word)| if i % 3 == 0 { 0 } else { word });
    let wanted: Vec<u32> = there.clone().chain(there.map(|word| word & 0xffff)).collect();
    assert_same("words or zeros", &gpu.get(&out)?, wanted);
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

#[test]
fn elements_of_every_type() -> Result<()> {
    let gpu = Gpu::open()?;
    let threads = 2 * BLOCK as usize;
    let x: Vec<u8> = words(6, threads * REVERSED_BYTES).iter().map(|&x| x as u8).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u8>(x.len())?);
    // SAFETY: as many bytes a thread; allocations are aligned.
    unsafe {
        launch::<vector_reverse_elements>(
            &gpu.stream,
            LaunchConfig::linear(threads, BLOCK),
            (&device_x, &mut out),
        )?
    };
    let reversed = |part: &[u8]| {
        let (mut want, mut rest) = (Vec::new(), part);
        for (bytes, n) in REVERSED {
            let (array, behind) = rest.split_at(bytes * n);
            want.extend(array.chunks(bytes).rev().flatten());
            rest = behind;
        }
        want.resize(REVERSED_BYTES, 0);
        want
    };
    assert_same("reversed", &gpu.get(&out)?, x.chunks(REVERSED_BYTES).flat_map(reversed));
    Ok(())
}

#[test]
fn elements_as_words() -> Result<()> {
    let gpu = Gpu::open()?;
    const N: usize = SHARED_THREADS as usize;
    let x: Vec<bf16> = words(7, 8 * N).iter().map(|&x| bf16::from_bits(x as u16)).collect();
    let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<bf16>(x.len())?);
    // SAFETY: one block, 8 elements a thread.
    unsafe {
        launch::<vector_elements_by_words>(
            &gpu.stream,
            LaunchConfig::linear(N, SHARED_THREADS),
            (&device_x, &mut out),
        )?
    };
    let got: Vec<u16> = gpu.get(&out)?.iter().map(|x| x.to_bits()).collect();
    assert_same("mirrored", &got, x.iter().rev().map(|x| x.to_bits()));
    Ok(())
}
