//! The shape of a launch.

use std::fmt;

/// Grid, block, cluster and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks along x, y, z. With a 0 the launch does nothing and succeeds.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes. Above 48 KiB, the launch opts in by itself.
    pub shared_bytes: u32,
    /// Blocks of a cluster along x, y, z, each a divisor of the grid's; `[1, 1, 1]` is no cluster.
    pub cluster: [u32; 3],
    /// Whether all blocks are resident at once, so that the grid can synchronise.
    pub cooperative: bool,
    /// Whether it may start while the launch before it in the stream still runs.
    pub overlapping: bool,
}

/// Blocks along y and along z of a grid, at most, on every device.
pub(crate) const MAX_BLOCKS: u32 = 65_535;
/// Threads that a `u32`, such as `cuda_std::thread::index_1d`, tells apart.
const MOST_LINEAR_THREADS: usize = 1 << u32::BITS;

impl LaunchConfig {
    /// `grid` blocks of `block` threads.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        LaunchConfig { grid, block, shared_bytes: 0, cluster: [1; 3], cooperative: false, overlapping: false }
    }

    /// One thread for each of `n` elements, in blocks of `block` threads; the last block may have threads to
    /// spare.
    ///
    /// The launch refuses more blocks than a grid holds, and more than 2^32 threads in all: beyond them
    /// `cuda_std::thread::index_1d` begins at 0 again, and two threads have one element. For more elements
    /// let each thread take several, in a loop that goes on by the number of threads.
    pub const fn linear(n: usize, block: u32) -> Self {
        let per_block = if block == 0 { 1 } else { block as usize };
        let blocks = n.div_ceil(per_block);
        let too_many = blocks > u32::MAX as usize || blocks.saturating_mul(per_block) > MOST_LINEAR_THREADS;
        let blocks = if too_many { u32::MAX } else { blocks as u32 }; // no grid holds so many
        Self::new([blocks, 1, 1], [block, 1, 1])
    }

    /// The same with `bytes` of dynamic shared memory a block.
    #[must_use]
    pub const fn with_shared(self, bytes: u32) -> Self {
        LaunchConfig { shared_bytes: bytes, ..self }
    }

    /// The same, in clusters of `blocks` blocks along x, y, z (`cuda_std::cluster`). Needs compute capability
    /// 9.0.
    ///
    /// Up to 8 blocks work on every such device, up to 16 where the device has room for them.
    #[must_use]
    pub const fn cluster(self, blocks: [u32; 3]) -> Self {
        LaunchConfig { cluster: blocks, ..self }
    }

    /// The same, starting as soon as the kernel launched before it in the stream lets it
    /// (`cuda_std::grid::launch_dependents`, or the end of its blocks) instead of after its end. Nothing
    /// overlaps on devices before compute capability 9.0, of kernels compiled for architectures before sm_90,
    /// and on the software driver.
    ///
    /// Each thread of the kernel must call `cuda_std::grid::wait_dependencies` before it touches global
    /// memory; the executor's checker checks this. On an H200 kernels in a row then take 0.5 to 1 us less of
    /// the device's time, in graphs too, and their launches 0.5 us less of the host's.
    #[must_use]
    pub const fn overlapping_previous(self) -> Self {
        LaunchConfig { overlapping: true, ..self }
    }

    /// The same, with all blocks resident at once.
    #[must_use]
    pub const fn cooperative(self) -> Self {
        LaunchConfig { cooperative: true, ..self }
    }

    /// Blocks in all.
    pub const fn blocks(&self) -> u64 {
        // Saturates only beyond real grids, which have at most 2^31 x 2^16 x 2^16 blocks.
        (self.grid[0] as u64).saturating_mul(self.grid[1] as u64).saturating_mul(self.grid[2] as u64)
    }

    /// Blocks of a cluster.
    pub const fn blocks_per_cluster(&self) -> u64 {
        (self.cluster[0] as u64).saturating_mul(self.cluster[1] as u64).saturating_mul(self.cluster[2] as u64)
    }

    /// Threads of a block.
    pub const fn threads_per_block(&self) -> u64 {
        (self.block[0] as u64).saturating_mul(self.block[1] as u64).saturating_mul(self.block[2] as u64)
    }
}

impl fmt::Display for LaunchConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LaunchConfig { grid, block, shared_bytes, cluster, cooperative, overlapping } = self;
        write!(f, "grid {grid:?}, block {block:?}, {shared_bytes} bytes of dynamic shared memory")?;
        if *cluster != [1; 3] {
            write!(f, ", cluster {cluster:?}")?;
        }
        if *cooperative {
            f.write_str(", cooperative")?;
        }
        if *overlapping { f.write_str(", overlapping the previous launch") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::LaunchConfig;

    /// Spare threads count too: with index 0 they would have the first element once more.
    #[test]
    fn linear_has_no_two_threads_of_one_index() {
        const ALL: usize = 1 << 32;
        let blocks = |n, block| LaunchConfig::linear(n, block).grid[0];
        assert_eq!([blocks(0, 256), blocks(1, 256), blocks(256, 256), blocks(257, 256)], [0, 1, 1, 2]);
        assert_eq!([blocks(ALL, 256), blocks(ALL - 1, 4)], [1 << 24, 1 << 30]);
        for (n, block) in [(ALL + 1, 256), (ALL, 96), (ALL, 1), (ALL - 1, 1), (usize::MAX, 256), (ALL, 0)] {
            assert_eq!(blocks(n, block), u32::MAX, "{n} in blocks of {block}");
        }
    }
}
