//! Positions, block barriers, fences.

use conformance::thread::{
    POSITION_WORDS, thread_barrier_votes, thread_grid_stride, thread_index_2d, thread_positions,
};
use ironwarp::{LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same};

#[test]
fn every_thread_knows_its_place() -> Result<()> {
    let gpu = Gpu::open()?;
    let (grid, block) = ([3, 2, 2], [8, 3, 4]);
    let threads = (grid.iter().product::<u32>() * block.iter().product::<u32>()) as usize;
    let mut out = gpu.zeros::<u32>(threads * POSITION_WORDS)?;
    // SAFETY: room for every thread.
    unsafe { launch::<thread_positions>(&gpu.stream, LaunchConfig::new(grid, block), (&mut out,))? };
    let got = gpu.get(&out)?;
    // Blocks and threads count x fastest, then y, then z.
    let places = |size: [u32; 3]| {
        (0..size[2]).flat_map(move |z| (0..size[1]).flat_map(move |y| (0..size[0]).map(move |x| [x, y, z])))
    };
    let want =
        places(grid).flat_map(|b| places(block).flat_map(move |t| [t, b, block, grid].into_iter().flatten()));
    assert_same("positions", &got, want);
    Ok(())
}

#[test]
fn two_dimensions() -> Result<()> {
    let gpu = Gpu::open()?;
    let (width, height) = (37u32, 21u32);
    let mut out = gpu.zeros::<u32>((width * height) as usize)?;
    let config = LaunchConfig::new([width.div_ceil(16), height.div_ceil(8), 1], [16, 8, 1]);
    // SAFETY: room for the image.
    unsafe { launch::<thread_index_2d>(&gpu.stream, config, (width, height, &mut out))? };
    let want = (0..height).flat_map(|y| (0..width).map(move |x| y * 1000 + x));
    assert_same("image", &gpu.get(&out)?, want);
    Ok(())
}

#[test]
fn grid_stride_meets_each_element_once() -> Result<()> {
    let gpu = Gpu::open()?;
    for n in [1u32, 63, 64, 1000] {
        let mut out = gpu.put(&(0..n).collect::<Vec<u32>>())?;
        // SAFETY: `n` words.
        unsafe {
            launch::<thread_grid_stride>(
                &gpu.stream,
                LaunchConfig::new([3, 1, 1], [64, 1, 1]),
                (n, &mut out),
            )?
        };
        assert_same("words", &gpu.get(&out)?, 1..=n);
    }
    Ok(())
}

#[test]
fn the_barrier_counts() -> Result<()> {
    let gpu = Gpu::open()?;
    const BLOCK: usize = 96;
    // One block is mixed, one all true, one all false; there are predicates other than 0 and 1.
    let predicates: Vec<u32> =
        (0..3 * BLOCK as u32).map(|i| [i % 3 * 7, i + 1, 0][i as usize / BLOCK]).collect();
    let mut out = gpu.zeros::<u32>(3 * predicates.len())?;
    let x = gpu.put(&predicates)?;
    let config = LaunchConfig::linear(predicates.len(), BLOCK as u32);
    // SAFETY: an element for each thread, three of `out`.
    unsafe { launch::<thread_barrier_votes>(&gpu.stream, config, (&x, &mut out))? };
    let counts: Vec<u32> =
        predicates.chunks(BLOCK).map(|block| block.iter().filter(|&&p| p != 0).count() as u32).collect();
    let per_thread =
        |f: &dyn Fn(u32) -> u32| counts.iter().flat_map(|&c| [f(c); BLOCK]).collect::<Vec<u32>>();
    let want = [
        per_thread(&|c| c),
        per_thread(&|c| u32::from(c == BLOCK as u32)),
        per_thread(&|c| u32::from(c > 0)),
    ];
    assert_same("count, all, any", &gpu.get(&out)?, want.concat());
    Ok(())
}
