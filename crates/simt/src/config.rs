//! The shape of a launch, its options, and its statistics.

use std::time::Duration;

/// Most threads a block can have.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;

/// Most threads a cooperative launch can have: all of them have a stack at the same time.
pub const MAX_COOPERATIVE_THREADS: u64 = 16_384;

/// Most bytes of stack a simulated thread can have.
pub const MAX_STACK_BYTES: usize = 256 << 20;

/// Most bytes of local memory that a thread of a GPU can have, and so a kernel's locals.
const LOCAL_BYTES: usize = 512 << 10;
/// Bytes of stack that the host's code takes besides: the executor, formatting, and the callbacks.
const HOST_BYTES: usize = 256 << 10;

/// Shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y, z; `[1, 1, 1]` for none.
    pub cluster: [u32; 3],
    /// Bytes of dynamic shared memory a block.
    pub dynamic_shared: u32,
    /// All blocks run at the same time, so that [`crate::grid::sync`] works.
    pub cooperative: bool,
    /// On a GPU it may begin before the launch ahead of it has ended: threads wait
    /// ([`crate::grid::wait_dependencies`]) before they access global memory. Here nothing overlaps; the
    /// checker checks that they wait.
    pub overlapping: bool,
}

impl Default for LaunchConfig {
    fn default() -> Self {
        Self {
            grid: [1; 3],
            block: [1; 3],
            cluster: [1; 3],
            dynamic_shared: 0,
            cooperative: false,
            overlapping: false,
        }
    }
}

impl LaunchConfig {
    /// One-dimensional launch: `blocks` blocks of `threads` threads.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], ..Self::default() }
    }

    /// The same launch with `bytes` of dynamic shared memory.
    pub fn shared(self, bytes: u32) -> Self {
        Self { dynamic_shared: bytes, ..self }
    }

    /// The same launch with all blocks running at the same time.
    pub fn cooperative(self) -> Self {
        Self { cooperative: true, ..self }
    }

    /// The same launch, overlapping the one before it.
    pub fn overlapping(self) -> Self {
        Self { overlapping: true, ..self }
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        volume(self.grid)
    }

    /// Number of threads of a block.
    pub fn threads_per_block(&self) -> u64 {
        volume(self.block)
    }

    /// Number of blocks of a cluster.
    pub fn blocks_per_cluster(&self) -> u64 {
        volume(self.cluster)
    }
}

/// The number of elements of a box; [`u64::MAX`] where there are more.
fn volume(sides: [u32; 3]) -> u64 {
    sides.into_iter().map(u64::from).fold(1, u64::saturating_mul)
}

/// Options for running a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Schedule of threads and blocks. 0 is the natural order; every other value is a random order of its
    /// own.
    pub seed: u64,
    /// Whether accesses are checked.
    pub check: bool,
    /// OS threads that run blocks, that which launches among them; 0 means the most: `RAYON_NUM_THREADS`, or
    /// the cores that the process may use. With 1, races between blocks replay too.
    pub workers: usize,
    /// Bytes of stack a simulated thread, at most [`MAX_STACK_BYTES`]. By default all that a GPU's thread can
    /// have, and some for the host. A kernel that takes more ends the process with a sentence.
    pub stack_bytes: usize,
    /// The number of the device that it runs on, if it may wait for other such launches, and see their
    /// accesses, while they run at the same time. Between devices the checker asks for the scope of the
    /// system. `None`: it runs by itself, whatever runs beside it.
    pub device: Option<u32>,
    /// How long threads may do nothing but spin on atomics before the launch counts as hung.
    pub spin_limit: Duration,
}

impl Default for Options {
    /// Natural order; checking in builds with debug assertions.
    fn default() -> Self {
        Self {
            seed: 0,
            check: cfg!(debug_assertions),
            workers: 0,
            stack_bytes: LOCAL_BYTES + HOST_BYTES,
            spin_limit: Duration::from_secs(10),
            device: None,
        }
    }
}

/// The variables that [`Options::from_env`] reads, each with the greatest of its numbers. The least is 0.
pub const VARIABLES: [(&str, usize); 3] = [(SEED, usize::MAX), (CHECK, 1), (WORKERS, usize::MAX)];
const SEED: &str = "IRONWARP_SEED";
const CHECK: &str = "IRONWARP_CHECK";
const WORKERS: &str = "IRONWARP_WORKERS";

impl Options {
    /// Defaults, overruled by the environment: `IRONWARP_SEED=<number>`, `IRONWARP_CHECK=0|1` and
    /// `IRONWARP_WORKERS=<number>`. A value that cannot be read is ignored with a line on standard error.
    pub fn from_env() -> Self {
        let mut options = Self::default();
        if let Some(seed) = read_env(SEED) {
            options.seed = seed;
        }
        if let Some(check) = read_env::<u8>(CHECK) {
            options.check = check != 0;
        }
        if let Some(workers) = read_env(WORKERS) {
            options.workers = workers;
        }
        options
    }

    /// The same options with another schedule.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same options for a launch on a device that others run beside.
    pub fn device(self, device: u32) -> Self {
        Self { device: Some(device), ..self }
    }

    /// The same options with checking on or off.
    pub fn check(self, check: bool) -> Self {
        Self { check, ..self }
    }
}

fn read_env<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var_os(name).filter(|text| !text.is_empty())?;
    let value = text.to_str().and_then(|text| text.trim().parse().ok());
    if value.is_none() {
        // A number has fewer characters than this.
        let shown: String = text.to_string_lossy().chars().take(100).collect();
        crate::note(format_args!("ironwarp: {name}={shown:?} is not a number and is ignored"));
    }
    value
}

/// Statistics of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchStats {
    /// Blocks that ran.
    pub blocks: u64,
    /// Threads that ran.
    pub threads: u64,
    /// Block-wide and named barriers that completed.
    pub barriers: u64,
    /// The number of switches from one thread to another.
    pub switches: u64,
}
