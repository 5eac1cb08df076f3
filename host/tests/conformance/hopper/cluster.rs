//! Places in a cluster, and the shared memory of its blocks.

use conformance::hopper::cluster::{
    MAX_BLOCKS, POSITION_WORDS, RING_WORDS, WAYS, cluster_gather, cluster_positions, cluster_ring,
    cluster_send,
};
use ironwarp::{LaunchConfig, Result, launch};

use super::hopper;
use crate::gpu::{assert_same, words};

/// Threads of a block of the kernels that exchange data.
const THREADS: usize = 32;

#[test]
fn places_in_clusters_of_every_shape() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (grid, cluster) in
        [([3, 1, 1], [1, 1, 1]), ([8, 1, 1], [4, 1, 1]), ([4, 6, 2], [2, 3, 1]), ([2, 4, 4], [1, 2, 2])]
    {
        let [gx, gy, gz] = grid.map(|n: u32| n as usize);
        let mut out = gpu.zeros::<u32>(gx * gy * gz * POSITION_WORDS)?;
        let config = LaunchConfig::new(grid, [64, 1, 1]).cluster(cluster);
        // SAFETY: the words of each block.
        unsafe { launch::<cluster_positions>(&gpu.stream, config, (&mut out,))? };
        let mut want = Vec::new();
        for z in 0..grid[2] {
            for y in 0..grid[1] {
                for x in 0..grid[0] {
                    let block = [x, y, z];
                    let place: [u32; 3] = std::array::from_fn(|axis| block[axis] % cluster[axis]);
                    let id: [u32; 3] = std::array::from_fn(|axis| block[axis] / cluster[axis]);
                    let count: [u32; 3] = std::array::from_fn(|axis| grid[axis] / cluster[axis]);
                    want.push(place[0] + cluster[0] * (place[1] + cluster[1] * place[2]));
                    want.push(cluster.iter().product());
                    want.extend([place, cluster, id, count].concat());
                }
            }
        }
        assert_same(&format!("grid {grid:?}, cluster {cluster:?}"), &gpu.get(&out)?, want);
    }
    Ok(())
}

#[test]
fn blocks_read_and_write_each_others_shared_memory() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (cluster, clusters) in [(1, 2), (2, 3), (4, 1), (8, 2)] {
        let blocks = cluster * clusters;
        let x: Vec<u32> = words(1, blocks * RING_WORDS).iter().map(|x| x >> 1).collect();
        let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(6 * blocks * RING_WORDS)?);
        let config = LaunchConfig::linear(blocks * THREADS, THREADS as u32).cluster([cluster as u32, 1, 1]);
        // SAFETY: a part of `x` and six of `out` for each block.
        unsafe { launch::<cluster_ring>(&gpu.stream, config, (&device_x, &mut out))? };
        let part = |block: usize| &x[block * RING_WORDS..(block + 1) * RING_WORDS];
        let want = (0..blocks).flat_map(|block| {
            let (first, rank) = (block / cluster * cluster, block % cluster);
            let next = part(first + (rank + 1) % cluster);
            let before = part(first + (rank + cluster - 1) % cluster);
            let loaded = next.repeat(3);
            loaded.into_iter().chain((1..=3).flat_map(move |add| before.iter().map(move |x| x + add)))
        });
        assert_same(&format!("{clusters} clusters of {cluster}"), &gpu.get(&out)?, want);
    }
    Ok(())
}

/// Blocks of clusters of several sizes send each other words in the given ways. Not in a launch without
/// clusters: there an H200 reports an illegal instruction for one of the ways.
fn blocks_send(ways: std::ops::Range<usize>) -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    for (cluster, clusters) in [(2, 3), (3, 1), (8, 2)] {
        let blocks = cluster * clusters;
        let x: Vec<u32> = words(2, blocks * RING_WORDS).iter().map(|x| x >> 1).collect();
        for way in ways.clone() {
            let what = format!("{clusters} clusters of {cluster}, way {way}");
            println!("{what}");
            let (device_x, mut out) = (gpu.put(&x)?, gpu.zeros::<u32>(blocks * RING_WORDS)?);
            let config =
                LaunchConfig::linear(blocks * THREADS, THREADS as u32).cluster([cluster as u32, 1, 1]);
            // SAFETY: a part of `x` and of `out` for each block.
            unsafe { launch::<cluster_send>(&gpu.stream, config, (way as u32, &device_x, &mut out))? };
            let add = [1, 2, 3, 0][way];
            let want = (0..blocks).flat_map(|block| {
                let before = block / cluster * cluster + (block % cluster + cluster - 1) % cluster;
                x[before * RING_WORDS..(before + 1) * RING_WORDS].iter().map(|x| x + add)
            });
            assert_same(&what, &gpu.get(&out)?, want);
        }
    }
    Ok(())
}

#[test]
fn blocks_store_asynchronously() -> Result<()> {
    blocks_send(0..WAYS - 1)
}

#[test]
fn blocks_copy_runs_to_each_other() -> Result<()> {
    blocks_send(WAYS - 1..WAYS)
}

#[test]
fn arrivals_from_other_blocks_release_what_they_stored() -> Result<()> {
    let Some(gpu) = hopper()? else { return Ok(()) };
    const ROUNDS: usize = 5;
    for blocks in [1, 2, 7, 8] {
        let mut out = gpu.zeros::<u32>(ROUNDS * MAX_BLOCKS * THREADS)?;
        let config = LaunchConfig::linear(blocks * THREADS, THREADS as u32).cluster([blocks as u32, 1, 1]);
        // SAFETY: one cluster, the words of each round.
        unsafe { launch::<cluster_gather>(&gpu.stream, config, (ROUNDS as u32, &mut out))? };
        let want = (0..ROUNDS).flat_map(|round| {
            (0..MAX_BLOCKS * THREADS).map(move |i| match (i / THREADS, i % THREADS) {
                (rank, t) if rank < blocks => (1000 * rank + t + round) as u32,
                _ => 0,
            })
        });
        assert_same(&format!("{blocks} blocks"), &gpu.get(&out)?, want);
    }
    Ok(())
}
