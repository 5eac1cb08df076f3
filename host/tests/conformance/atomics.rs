//! Atomic operations.

use conformance::atomics::{
    BINS, OPERATION_WORDS, atomic_compare_and_swap, atomic_exchange, atomic_floats, atomic_histogram,
    atomic_last_block_sum, atomic_operations, atomic_signed_and_wide,
};
use ironwarp::{LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same, words};

const BLOCK: u32 = 128;

#[test]
fn histogram() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = words(1, 1000);
    let (device_x, mut bins) = (gpu.put(&x)?, gpu.zeros::<u32>(BINS)?);
    // SAFETY: blocks have a thread for each bin, and `bins` is zero.
    unsafe {
        launch::<atomic_histogram>(&gpu.stream, LaunchConfig::linear(x.len(), BLOCK), (&device_x, &mut bins))?
    };
    let mut want = vec![0; BINS];
    x.iter().for_each(|&x| want[x as usize % BINS] += 1);
    assert_same("bins", &gpu.get(&bins)?, want);
    Ok(())
}

#[test]
fn operations() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = words(2, 500);
    let start: [u32; OPERATION_WORDS] = [7, 1 << 31, u32::MAX, 0, u32::MAX, 0, 0x1234_5678];
    let (device_x, mut out) = (gpu.put(&x)?, gpu.put(&start)?);
    // SAFETY: a word for each operation.
    unsafe {
        launch::<atomic_operations>(&gpu.stream, LaunchConfig::linear(x.len(), BLOCK), (&device_x, &mut out))?
    };
    let fold = |start: u32, f: fn(u32, u32) -> u32| x.iter().copied().fold(start, f);
    let want = [
        fold(start[0], u32::wrapping_add),
        fold(start[1], u32::wrapping_sub),
        fold(start[2], u32::min),
        fold(start[3], u32::max),
        fold(start[4], |a, b| a & b),
        fold(start[5], |a, b| a | b),
        fold(start[6], |a, b| a ^ b),
    ];
    assert_same("add, sub, min, max, and, or, xor", &gpu.get(&out)?, want);
    Ok(())
}

#[test]
fn signed_and_wide() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<i32> = words(3, 300).iter().map(|&x| x.cast_signed()).collect();
    let (device_x, mut signed, mut wide) =
        (gpu.put(&x)?, gpu.put(&[i32::MAX, i32::MIN])?, gpu.zeros::<u64>(2)?);
    let config = LaunchConfig::linear(x.len(), BLOCK);
    // SAFETY: two words each.
    unsafe { launch::<atomic_signed_and_wide>(&gpu.stream, config, (&device_x, &mut signed, &mut wide))? };
    let squares: Vec<u64> = x.iter().map(|&x| (i64::from(x) * i64::from(x)).cast_unsigned()).collect();
    assert_same(
        "smallest, largest",
        &gpu.get(&signed)?,
        [*x.iter().min().unwrap(), *x.iter().max().unwrap()],
    );
    let sum = squares.iter().copied().fold(0, u64::wrapping_add);
    assert_same("sum, largest square", &gpu.get(&wide)?, [sum, *squares.iter().max().unwrap()]);
    Ok(())
}

#[test]
fn floats_add_exactly_where_they_can() -> Result<()> {
    let gpu = Gpu::open()?;
    let x: Vec<f32> = words(4, 500).iter().map(|x| (x % 2001) as f32 - 1000.0).collect();
    let config = LaunchConfig::linear(x.len(), BLOCK);
    let blocks = config.grid[0] as usize;
    let (device_x, mut single, mut double) =
        (gpu.put(&x)?, gpu.zeros::<f32>(blocks + 1)?, gpu.zeros::<f64>(1)?);
    // SAFETY: a sum for each block and one for all, zero.
    unsafe { launch::<atomic_floats>(&gpu.stream, config, (&device_x, &mut single, &mut double))? };
    let of_blocks = x.chunks(BLOCK as usize).map(|block| block.iter().sum::<f32>());
    let total: f32 = x.iter().sum();
    assert_same("sums of blocks, of all", &gpu.get(&single)?, of_blocks.chain([total]));
    assert_same("sum in f64", &gpu.get(&double)?, [f64::from(total)]);
    Ok(())
}

#[test]
fn exchange_hands_out_every_value_once() -> Result<()> {
    let gpu = Gpu::open()?;
    const N: usize = 320;
    let (mut word, mut out) = (gpu.zeros::<u32>(1)?, gpu.zeros::<u32>(N)?);
    // SAFETY: a place for each thread.
    unsafe { launch::<atomic_exchange>(&gpu.stream, LaunchConfig::linear(N, 64), (&mut word, &mut out))? };
    let mut seen = gpu.get(&out)?;
    seen.extend(gpu.get(&word)?);
    seen.sort_unstable();
    assert_same("values", &seen, 0..=N as u32);
    Ok(())
}

#[test]
fn compare_and_swap_loses_no_update() -> Result<()> {
    let gpu = Gpu::open()?;
    // With equal values every order gives the same result.
    let x = vec![11u32; 200];
    let (device_x, mut word) = (gpu.put(&x)?, gpu.put(&[5u32])?);
    let config = LaunchConfig::linear(x.len(), 64);
    // SAFETY: one word.
    unsafe { launch::<atomic_compare_and_swap>(&gpu.stream, config, (&device_x, &mut word))? };
    let want = x.iter().fold(5u32, |word, &x| word.wrapping_mul(3).wrapping_add(x));
    assert_same("word", &gpu.get(&word)?, [want]);
    Ok(())
}

#[test]
fn the_last_block_sees_all_sums() -> Result<()> {
    let gpu = Gpu::open()?;
    let x = words(5, 10 * BLOCK as usize - 17);
    let config = LaunchConfig::linear(x.len(), BLOCK);
    let mut partial = gpu.zeros::<u32>(config.grid[0] as usize)?;
    let (device_x, mut counter, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(1)?, gpu.zeros::<u32>(1)?);
    // SAFETY: a word for each block; the counter is zero.
    unsafe {
        launch::<atomic_last_block_sum>(
            &gpu.stream,
            config,
            (&device_x, &mut partial, &mut counter, &mut out),
        )?
    };
    assert_same("sum", &gpu.get(&out)?, [x.iter().copied().fold(0, u32::wrapping_add)]);
    Ok(())
}
