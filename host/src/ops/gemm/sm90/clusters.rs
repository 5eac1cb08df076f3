//! Clusters of blocks: which shapes are tried, and how many run at a time.

use gemm::sm90::instances::Entry;

use super::candidates::View;
use crate::ops::gemm::select::DeviceCapabilities;

/// Blocks of a cluster below and beside each other. Over 30 products on an H200, with the kernels that take
/// them, the fastest configuration without these takes 1.015 of the time, without those of four in a line
/// 1.003; clusters of eight gained nothing.
pub(super) const CLUSTERS: [[u32; 2]; 6] = [[1, 1], [2, 1], [1, 2], [2, 2], [4, 1], [1, 4]];

/// Is this a shape of the kernel's clusters, and are there as many tiles on both sides? Clusters of the
/// widest tiles gained nothing but in pairs.
pub(super) fn in_reach(entry: &Entry, [across_m, across_n]: [u32; 2], view: &View) -> bool {
    let [block_m, block_n, _] = entry.block;
    let own = entry.cluster[..2] == [across_m, across_n];
    let fits = across_m <= view.m.div_ceil(block_m) && across_n <= view.n.div_ceil(block_n);
    let gains = block_n < WIDEST || [across_m, across_n] == PAIR_DOWN;
    (own || fits && gains) && entry.can_cluster([across_m, across_n])
}

/// Blocks of a pair below each other.
const PAIR_DOWN: [u32; 2] = [2, 1];
/// Columns of the widest tiles.
const WIDEST: u32 = 256;

/// Is this no cluster, or are clusters of this shape the kernel's own, or were kernels' own before launches
/// said which, so that many products have been timed with them?
pub(super) fn is_timed(entry: &Entry) -> bool {
    let [_, block_n, _] = entry.block;
    let [across_m, across_n, _] = entry.cluster;
    let shape = [across_m, across_n];
    !entry.any_cluster
        || shape == [1; 2]
        || shape == PAIR_DOWN && block_n == WIDEST
        || shape == [2; 2] && entry.a.bytes() == 1
}

/// Clusters' worth of tiles of so many columns.
pub(super) fn clusters(entry: &Entry, width: u32, view: &View, batch: u32) -> u32 {
    let [block_m, ..] = entry.block;
    let [across_m, across_n, _] = entry.cluster;
    let down = u64::from(view.m.div_ceil(block_m * across_m));
    let tiles = down * u64::from(view.n.div_ceil(width * across_n)) * u64::from(batch);
    // Kernels count tiles in 32 bits; what does not fit in them does not fit in memory either.
    u32::try_from(tiles).unwrap_or(u32::MAX).max(1)
}

/// Clusters that run at once: their blocks fill a multiprocessor each.
pub(super) fn resident(entry: &Entry, device: &DeviceCapabilities) -> u32 {
    let [in_reach, all] = OF_LARGE_CLUSTERS;
    let sm_count = if blocks(entry) > PAIR { device.sm_count * in_reach / all } else { device.sm_count };
    (sm_count / blocks(entry)).max(1)
}

/// Blocks of a cluster that fits wherever multiprocessors are left: they come in pairs.
pub(super) const PAIR: u32 = 2;
/// How many of how many multiprocessors larger clusters reach: each takes those of one group. 30 clusters of
/// four blocks, and 15 of eight, run at once on an H200, which has 132. A launch asks the driver.
const OF_LARGE_CLUSTERS: [u32; 2] = [10, 11];

/// Blocks of a cluster.
pub(super) fn blocks(entry: &Entry) -> u32 {
    entry.cluster.iter().product()
}
