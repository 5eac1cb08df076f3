//! The grid barrier.

use conformance::grid::grid_rounds;
use cuda_std::grid::WORKSPACE_WORDS;
use ironwarp::{LaunchConfig, Result, launch};

use crate::gpu::{Gpu, assert_same, words};

fn oracle(rounds: u32, mut x: Vec<u32>) -> Vec<u32> {
    let n = x.len();
    for _ in 0..rounds {
        x = (0..n).map(|i| x[i].wrapping_mul(3).wrapping_add(x[(i + n / 2) % n])).collect();
    }
    x
}

#[test]
fn blocks_meet() -> Result<()> {
    let gpu = Gpu::open()?;
    for (blocks, block, rounds) in [(1u32, 32u32, 2u32), (2, 64, 5), (8, 96, 10)] {
        let x = words(1, (blocks * block) as usize);
        let (mut out, mut workspace) = (gpu.put(&x)?, gpu.zeros::<u32>(WORKSPACE_WORDS)?);
        let config = LaunchConfig::new([blocks, 1, 1], [block, 1, 1]).cooperative();
        // The workspace is cleared once and serves three launches.
        for _ in 0..3 {
            // SAFETY: a word for each thread, an even number; the workspace was zero.
            unsafe { launch::<grid_rounds>(&gpu.stream, config, (rounds, &mut out, &mut workspace))? };
        }
        assert_same("words", &gpu.get(&out)?, oracle(3 * rounds, x));
    }
    Ok(())
}
