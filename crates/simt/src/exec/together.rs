//! Launches that run at the same time: on several devices, or on several streams of one.
//!
//! They may wait for each other, and they see each other's memory. So all launches of devices
//! ([`Options::device`](crate::Options)) that run now share the
//! watch for hangs, the numbers of blocks, and the checker's history of global memory. A launch that begins
//! while no other runs starts afresh.
//!
//! A launch comes after all that ended before it began, whatever ordered them: ends are counted, and a launch
//! notes the count when it begins. It knows what those launches had learnt of others that still run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use super::spinning::Progress;
use crate::check::{GlobalMemory, Learnt};

/// Shared by launches that run at the same time.
#[derive(Default)]
pub(crate) struct Together {
    pub progress: Progress,
    pub memory: Arc<GlobalMemory>,
    /// In the order of their blocks.
    members: RwLock<Vec<Member>>,
    ends: AtomicU32,
    /// The knowledge of launches that have ended.
    learnt: Learnt,
}

/// A launch, as the others see it.
struct Member {
    first_block: u64,
    device: u32,
    kernel: String,
    grid: [u32; 3],
    cluster: [u32; 3],
    block: [u32; 3],
    /// How many had ended before it did; [`RUNS`] while it runs.
    ended: AtomicU32,
}

/// More than any number of launches.
pub(crate) const RUNS: u32 = u32::MAX;

/// The launches that run now.
static NOW: Mutex<Weak<Together>> = Mutex::new(Weak::new());

/// The place of a launch among those that run at the same time. It ends with this value.
pub(crate) struct Membership {
    pub together: Arc<Together>,
    /// The number of its first block; those of the others are different.
    pub first_block: u64,
    blocks: u64,
    pub device: u32,
    number: usize,
    /// How many launches had ended when it began.
    pub begun: u32,
    /// All blocks with lower numbers are of launches that had ended when it began.
    settled: u64,
    /// The knowledge of these.
    pub known: Learnt,
    /// The knowledge of its own blocks that have ended.
    pub learnt: Learnt,
}

/// A block of another launch.
pub(crate) struct Elsewhere {
    pub kernel: String,
    pub device: u32,
    pub block: [u32; 3],
    /// The shape of its block.
    pub shape: [u32; 3],
}

impl Membership {
    pub fn begin(kernel: &str, config: &crate::LaunchConfig, device: Option<u32>) -> Self {
        let blocks = config.blocks();
        // Locked until the launch is a member: one that begins beside it counts its blocks too.
        let mut now = device.is_some().then(|| NOW.lock().unwrap_or_else(PoisonError::into_inner));
        let together = now.as_deref_mut().map_or_else(Arc::default, |now| Together::with_room(now, blocks));
        let device = device.unwrap_or_default();
        let mut members = together.members.write().unwrap_or_else(PoisonError::into_inner);
        let (number, first_block) = (members.len(), together.next_block(&members));
        members.push(Member {
            first_block,
            device,
            kernel: kernel.into(),
            grid: config.grid,
            cluster: config.cluster,
            block: config.block,
            ended: AtomicU32::new(RUNS),
        });
        let begun = together.ends.load(Ordering::Relaxed);
        let mut running = members.iter().filter(|member| member.ended.load(Ordering::Relaxed) == RUNS);
        let settled = running.next().map_or(first_block, |first| first.first_block);
        drop(members);
        drop(now);
        let known = together.learnt.copy();
        Self {
            together,
            first_block,
            blocks,
            device,
            number,
            begun,
            settled,
            known,
            learnt: Learnt::default(),
        }
    }

    /// Whether no other launch has run meanwhile.
    pub fn is_alone(&self) -> bool {
        self.together.members.read().unwrap_or_else(PoisonError::into_inner).len() == 1
    }

    /// Whether a block, by its number's low 32 bits, is of this launch.
    #[inline(always)]
    pub fn has(&self, block: u32) -> bool {
        u64::from(block.wrapping_sub(self.first_block as u32)) < self.blocks
    }

    /// Whether the launch of a block had ended when this one began, as far as that is known at a glance.
    pub fn is_settled(&self, block: u32) -> bool {
        u64::from(block) < self.settled
    }

    /// How many launches had ended when that of a block did; [`RUNS`] while it runs.
    pub fn ended(&self, block: u32) -> u32 {
        if self.has(block) { RUNS } else { self.together.with(block, |it| it.ended.load(Ordering::Relaxed)) }
    }

    /// Whether a block is of another launch, which still runs.
    pub fn runs_elsewhere(&self, block: u32) -> bool {
        !self.has(block) && self.ended(block) == RUNS
    }

    /// Whether a block runs on this launch's device.
    pub fn is_beside(&self, block: u32) -> bool {
        self.has(block) || self.together.with(block, |other| other.device) == self.device
    }

    /// A block of another launch.
    pub fn elsewhere(&self, block: u32) -> Option<Elsewhere> {
        let describe = |other: &Member| Elsewhere {
            kernel: other.kernel.clone(),
            device: other.device,
            block: super::block_index(u64::from(block) - other.first_block, other.grid, other.cluster),
            shape: other.block,
        };
        (!self.has(block)).then(|| self.together.with(block, describe))
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.together.learnt.join(&self.learnt);
        self.together.memory.forget_freed();
        let members = self.together.members.write().unwrap_or_else(PoisonError::into_inner);
        let ended = self.together.ends.fetch_add(1, Ordering::Relaxed);
        members[self.number].ended.store(ended, Ordering::Relaxed);
    }
}

impl Together {
    /// The launches that run now, or none of them if they leave no room for so many blocks more.
    fn with_room(now: &mut Weak<Self>, blocks: u64) -> Arc<Self> {
        now.upgrade().filter(|together| together.has_room(blocks)).unwrap_or_else(|| {
            let together = Arc::new(Together::default());
            *now = Arc::downgrade(&together);
            together
        })
    }

    fn has_room(&self, blocks: u64) -> bool {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        self.next_block(&members) + blocks <= u64::from(u32::MAX)
    }

    fn next_block(&self, members: &[Member]) -> u64 {
        let after =
            |last: &Member| last.first_block + last.grid.iter().map(|&n| u64::from(n)).product::<u64>();
        members.last().map_or(0, after)
    }

    /// The launch of a block.
    fn with<R>(&self, block: u32, ask: impl FnOnce(&Member) -> R) -> R {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let after = members.partition_point(|member| member.first_block <= u64::from(block));
        ask(&members[after - 1])
    }
}

static WHEN_ALL_SPIN: OnceLock<fn()> = OnceLock::new();

/// Lets `call` be called, now and then, while all launches that run do nothing but spin: they may wait for a
/// launch that is still in a queue. The first function given stays. It is called on small stacks.
pub fn when_all_spin(call: fn()) {
    // A second function has no use: there is one software driver.
    let _ = WHEN_ALL_SPIN.set(call);
}

pub(super) fn tell_that_all_spin() {
    if let Some(call) = WHEN_ALL_SPIN.get() {
        call();
    }
}
