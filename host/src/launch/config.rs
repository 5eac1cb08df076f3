//! The shape of a launch, and the record of where one was made.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// Grid, block and dynamic shared memory of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks along x, y, z. With a 0 the launch is nothing at all and succeeds.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, bytes. Above what is given without asking (48 KiB), the launch opts in by itself.
    pub shared_bytes: u32,
    /// Are all blocks resident at once, so that the grid can synchronise?
    pub cooperative: bool,
}

impl LaunchConfig {
    /// `grid` blocks of `block` threads.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        LaunchConfig { grid, block, shared_bytes: 0, cooperative: false }
    }

    /// One thread for each of `n` elements, in blocks of `block` threads; the last block may have threads to spare.
    /// More blocks than a grid holds become an error of the launch.
    pub const fn linear(n: usize, block: u32) -> Self {
        let per_block = if block == 0 { 1 } else { block as usize };
        let blocks = n.div_ceil(per_block);
        let blocks = if blocks > u32::MAX as usize { u32::MAX } else { blocks as u32 };
        Self::new([blocks, 1, 1], [block, 1, 1])
    }

    /// The same with `bytes` of dynamic shared memory a block.
    #[must_use]
    pub const fn with_shared(self, bytes: u32) -> Self {
        LaunchConfig { shared_bytes: bytes, ..self }
    }

    /// The same, with all blocks resident at once.
    #[must_use]
    pub const fn cooperative(self) -> Self {
        LaunchConfig { cooperative: true, ..self }
    }

    /// Blocks in all.
    pub const fn blocks(&self) -> u64 {
        // Cannot overflow where it matters: a real grid has at most 2^31 x 2^16 x 2^16 blocks.
        (self.grid[0] as u64).saturating_mul(self.grid[1] as u64).saturating_mul(self.grid[2] as u64)
    }

    /// Threads of a block.
    pub const fn threads_per_block(&self) -> u64 {
        (self.block[0] as u64).saturating_mul(self.block[1] as u64).saturating_mul(self.block[2] as u64)
    }
}

impl fmt::Display for LaunchConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LaunchConfig { grid, block, shared_bytes, cooperative } = self;
        write!(f, "grid {grid:?}, block {block:?}, {shared_bytes} bytes of dynamic shared memory")?;
        if *cooperative { f.write_str(", cooperative") } else { Ok(()) }
    }
}

/// Which kernel was launched, how, and from which line.
#[derive(Debug, Clone)]
pub struct LaunchSite {
    /// The kernel.
    pub kernel: Arc<str>,
    /// How.
    pub config: LaunchConfig,
    /// The line of the caller.
    pub location: &'static Location<'static>,
}

impl fmt::Display for LaunchSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` from {} ({})", self.kernel, self.location, self.config)
    }
}
