//! Launches: validates them, spreads groups of blocks over workers, and reports the first fault.

pub(crate) mod barrier;
pub(crate) mod context;
mod deadlock;
pub(crate) mod flights;
pub(crate) mod group;
mod order;
mod panics;
mod pool;
mod signals;
mod spinning;
mod stack;
pub(crate) mod together;

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::check::{LaunchCheck, unchecked};
use crate::fault::{Fault, FaultKind};
use crate::registry::{KernelEntry, LaunchBounds};
use crate::shared::SHARED_LIMIT;
use crate::{
    LaunchConfig, LaunchStats, MAX_COOPERATIVE_THREADS, MAX_STACK_BYTES, MAX_THREADS_PER_BLOCK, Options, Site,
};

use context::RawFault;
use group::Group;
use order::Permutation;
use together::Membership;
pub use together::when_all_spin;

/// Everything that the workers of one launch share.
pub(crate) struct Launch<'a> {
    pub kernel: &'a str,
    pub config: LaunchConfig,
    pub options: Options,
    pub body: &'a (dyn Fn() + Sync),
    pub check: Option<LaunchCheck>,
    /// Whether a fault runs the destructors of its threads' values; else the values are leaked.
    unwinds: bool,
    pub membership: Membership,
    /// Whether a group has ended with a fault. Groups that only spin then wait for it: no time is given.
    has_failed: AtomicBool,
    /// Blocks that are scheduled together: one, a cluster, or the grid.
    blocks_per_group: u64,
}

/// Runs `entry` once per thread of `config`.
///
/// # Safety
/// `params` points to `entry.params.len()` pointers, each to a readable value of that parameter's type, and
/// the kernel's own safety contract holds for them.
///
/// A fault abandons the stacks of threads that have not ended. So the kernel does not rely on the destructors
/// of its local values: it lends them to no other OS thread ([`std::thread::scope`]), and pins none of them.
///
/// # Errors
/// The first fault found.
pub unsafe fn launch(
    entry: &KernelEntry,
    config: &LaunchConfig,
    params: *const *const c_void,
    options: &Options,
) -> Result<LaunchStats, Box<Fault>> {
    let address = params as usize;
    let invoke = entry.invoke;
    let body = move || {
        // SAFETY: the caller vouches for `params`; they outlive the launch, which ends before this function.
        unsafe { invoke(address as *const *const c_void) }
    };
    let prepare = |check: &mut LaunchCheck| {
        unchecked::tell(entry);
        if !entry.checked {
            check.without_plain();
        }
        // SAFETY: the caller vouches for `params`.
        unsafe { check.allow_params(entry, params) };
    };
    start(entry.name, entry.bounds, config, options, prepare, false, &body)
}

/// Runs a closure once per thread of `config`, as if it were a kernel.
///
/// After a fault the simulated threads that have not ended unwind: the destructors of their values run,
/// outside of the simulation. Two kinds of threads cannot unwind, since they stopped at a plain load or store
/// that the compiler instrumented. The values of a thread that faulted there are leaked, with their stack. If
/// another thread polls there, its values may be lent out for ever, so the process prints the fault and
/// aborts.
///
/// In a program compiled with `panic = "abort"` a fault aborts.
///
/// # Errors
/// The first fault found. [`FaultKind::InvalidLaunch`] if a simulated thread calls this.
pub fn run(
    config: &LaunchConfig,
    options: &Options,
    body: impl Fn() + Sync,
) -> Result<LaunchStats, Box<Fault>> {
    start("closure", LaunchBounds::default(), config, options, |_| {}, true, &body)
}

fn start(
    kernel: &str,
    bounds: LaunchBounds,
    config: &LaunchConfig,
    options: &Options,
    prepare: impl FnOnce(&mut LaunchCheck),
    unwinds: bool,
    body: &(dyn Fn() + Sync),
) -> Result<LaunchStats, Box<Fault>> {
    if let Err(message) = validate(config, bounds).and_then(|()| validate_host(options)) {
        return Err(Box::new(invalid_launch(kernel, message, options.seed)));
    }
    panics::install_hook();
    signals::install();
    let blocks_per_group = if config.cooperative { config.blocks() } else { config.blocks_per_cluster() };
    let (options, membership) = (options.clone(), Membership::begin(kernel, config, options.device));
    let check = options.check.then(|| {
        let mut check = LaunchCheck::new(membership.together.memory.clone());
        prepare(&mut check);
        check
    });
    let has_failed = AtomicBool::new(false);
    Launch {
        kernel,
        config: *config,
        options,
        body,
        check,
        unwinds,
        membership,
        has_failed,
        blocks_per_group,
    }
    .run_groups()
}

/// Checks the conditions that do not depend on the kernel: the caller and the options.
fn validate_host(options: &Options) -> Result<(), String> {
    if context::try_current().is_some() {
        return Err("a simulated thread cannot launch: launch from the host, after this launch".into());
    }
    if options.stack_bytes > MAX_STACK_BYTES {
        return Err(format!(
            "`Options::stack_bytes` is {}; the limit is {MAX_STACK_BYTES}, for each simulated thread",
            options.stack_bytes
        ));
    }
    Ok(())
}

fn validate(config: &LaunchConfig, bounds: LaunchBounds) -> Result<(), String> {
    let LaunchConfig { grid, block, cluster, dynamic_shared, .. } = *config;
    if let Some((name, dims)) = [("grid", grid), ("block", block), ("cluster", cluster)]
        .into_iter()
        .find(|(_, dims)| dims.contains(&0))
    {
        return Err(format!("{name} is {dims:?}; every dimension must be at least 1"));
    }
    let threads = config.threads_per_block();
    if threads > u64::from(MAX_THREADS_PER_BLOCK) {
        return Err(format!("block {block:?} has {threads} threads; the limit is {MAX_THREADS_PER_BLOCK}"));
    }
    if bounds.max_threads != 0 && threads > u64::from(bounds.max_threads) {
        return Err(format!(
            "block {block:?} has {threads} threads; the kernel's launch bounds allow {}",
            bounds.max_threads
        ));
    }
    const MAX_GRID_YZ: u32 = 65_535;
    if grid[0] > i32::MAX as u32 || grid[1] > MAX_GRID_YZ || grid[2] > MAX_GRID_YZ {
        return Err(format!(
            "grid {grid:?} is too large; the limits are [{}, {MAX_GRID_YZ}, {MAX_GRID_YZ}]",
            i32::MAX
        ));
    }
    if config.blocks() > u64::from(u32::MAX) {
        return Err(format!(
            "grid {grid:?} has {} blocks; this executor numbers up to {}",
            config.blocks(),
            u32::MAX
        ));
    }
    if dynamic_shared > SHARED_LIMIT {
        return Err(format!("{dynamic_shared} bytes of dynamic shared memory; the limit is {SHARED_LIMIT}"));
    }
    if (0..3).any(|axis| grid[axis] % cluster[axis] != 0) {
        return Err(format!("grid {grid:?} is no multiple of cluster {cluster:?}"));
    }
    const MAX_CLUSTER: u64 = 16;
    if config.blocks_per_cluster() > MAX_CLUSTER {
        return Err(format!(
            "cluster {cluster:?} has {} blocks; the limit is {MAX_CLUSTER}",
            config.blocks_per_cluster()
        ));
    }
    if config.cooperative && config.blocks() * threads > MAX_COOPERATIVE_THREADS {
        return Err(format!(
            "a cooperative launch of {} blocks of {threads} threads; the limit is {MAX_COOPERATIVE_THREADS} threads in all",
            config.blocks()
        ));
    }
    Ok(())
}

fn invalid_launch(kernel: &str, message: String, seed: u64) -> Fault {
    Fault {
        kind: FaultKind::InvalidLaunch,
        kernel: kernel.into(),
        message,
        site: Site::default(),
        block: [0; 3],
        thread: [0; 3],
        seed,
        access: None,
        other: None,
        waits: Vec::new(),
        remedy: None,
    }
}

impl Launch<'_> {
    /// How long its groups may only spin.
    fn spin_limit(&self) -> Duration {
        if self.has_failed.load(Ordering::Relaxed) { Duration::ZERO } else { self.options.spin_limit }
    }

    fn run_groups(&self) -> Result<LaunchStats, Box<Fault>> {
        let groups = self.config.blocks() / self.blocks_per_group;
        let queue = Queue::new(groups, self.options.seed);
        let most = pool::threads();
        let workers = match self.options.workers {
            0 => most,
            n => n.min(most),
        };
        let others = (groups - 1).min(workers as u64 - 1);
        pool::share(others as usize, &|| self.work(&queue));
        queue.result()
    }

    /// Runs groups from the queue until it is empty or a group before the next one has failed.
    fn work(&self, queue: &Queue) {
        let mut group = Group::new(self, self.blocks_per_group as usize);
        let mut stats = LaunchStats::default();
        while let Some((turn, number)) = queue.take() {
            if let Err(fault) =
                group.run(self.membership.first_block + number * self.blocks_per_group, &mut stats)
            {
                self.has_failed.store(true, Ordering::Relaxed);
                queue.fail(turn, fault);
            }
        }
        queue.add(&stats);
    }

    /// Index in the grid of the block with a number. Blocks of a cluster or cooperative group have
    /// consecutive numbers.
    pub fn block_index(&self, number: u64) -> [u32; 3] {
        block_index(number - self.membership.first_block, self.config.grid, self.config.cluster)
    }
}

/// Index in the grid of the `number`th block of a launch.
fn block_index(number: u64, grid: [u32; 3], cluster: [u32; 3]) -> [u32; 3] {
    let cluster_grid: [u32; 3] = std::array::from_fn(|axis| grid[axis] / cluster[axis]);
    let blocks: u64 = cluster.iter().map(|&n| u64::from(n)).product();
    let outer = unflatten(number / blocks, cluster_grid);
    let inner = unflatten(number % blocks, cluster);
    std::array::from_fn(|axis| outer[axis] * cluster[axis] + inner[axis])
}

/// x, y, z of the `n`th element of a box.
pub(crate) fn unflatten(n: u64, dims: [u32; 3]) -> [u32; 3] {
    let [x, y, _] = dims.map(u64::from);
    [(n % x) as u32, (n / x % y) as u32, (n / (x * y)) as u32]
}

/// The groups still to run, and the results of the others.
struct Queue {
    order: Permutation,
    next: AtomicU64,
    /// Turn of the earliest failure, so that the same seed reports the same fault whichever worker is faster.
    failed_turn: AtomicU64,
    fault: Mutex<Option<Box<Fault>>>,
    stats: Mutex<LaunchStats>,
}

impl Queue {
    fn new(groups: u64, seed: u64) -> Self {
        Self {
            order: Permutation::new(groups, seed),
            next: AtomicU64::new(0),
            failed_turn: AtomicU64::new(u64::MAX),
            fault: Mutex::new(None),
            stats: Mutex::default(),
        }
    }

    /// The next turn and the group whose turn it is.
    fn take(&self) -> Option<(u64, u64)> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        (turn < self.order.len() && turn < self.failed_turn.load(Ordering::Relaxed))
            .then(|| (turn, self.order.get(turn)))
    }

    fn fail(&self, turn: u64, fault: Box<RawFault>) {
        let mut first = self.fault.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let earlier = turn < self.failed_turn.load(Ordering::Relaxed);
        if earlier {
            self.failed_turn.store(turn, Ordering::Relaxed);
        }
        // A group that waits for a failed block hangs: that is not its own fault.
        let hangs = |fault: &Fault| fault.kind == FaultKind::Livelock;
        let replaces = match first.as_deref() {
            Some(known) if hangs(known) != hangs(&fault.fault) => hangs(known),
            _ => earlier,
        };
        if replaces {
            *first = Some(Box::new(fault.resolve()));
        }
    }

    fn add(&self, stats: &LaunchStats) {
        let mut total = self.stats.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        total.blocks += stats.blocks;
        total.threads += stats.threads;
        total.barriers += stats.barriers;
        total.switches += stats.switches;
    }

    fn result(self) -> Result<LaunchStats, Box<Fault>> {
        match self.fault.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(fault) => Err(fault),
            None => Ok(self.stats.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())),
        }
    }
}
