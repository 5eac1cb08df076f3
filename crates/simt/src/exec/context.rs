//! State of simulated threads and blocks, and how a thread waits or fails.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};

use super::barrier::Barrier;
use super::group::Group;
use crate::async_copy::CopyQueue;
use crate::barrier::NAMED_BARRIERS;
use crate::bulk::BulkGroups;
use crate::check::{BlockCheck, ThreadCheck};
use crate::cluster::ClusterTurn;
use crate::fault::{Access, AccessKind, Fault, FaultKind, OtherAccess};
use crate::mbarrier::Mbarriers;
use crate::shared::Arena;
use crate::site::{RawSite, Site};
use crate::warp::WarpState;
use crate::wgmma::{Progress, Warpgroup};

pub(crate) type Routine = Coroutine<(), (), (), DefaultStack>;
pub(crate) type Suspender = Yielder<(), ()>;

/// Threads of a warp.
pub(crate) const WARP_SIZE: u32 = 32;

thread_local! {
    /// The simulated thread that runs on this OS thread, or null.
    static CURRENT: Cell<*const Thread> = const { Cell::new(ptr::null()) };
}

pub(crate) fn set_current(thread: *const Thread) {
    CURRENT.set(thread);
}

/// The simulated thread that is running.
#[inline]
pub(crate) fn try_current() -> Option<&'static Thread> {
    // SAFETY: the scheduler sets the pointer to a thread of its group right before it runs that thread and
    // clears it afterwards; the group outlives the run, and callers keep the reference only while the thread
    // runs.
    unsafe { CURRENT.get().as_ref() }
}

/// While this lives, load/store callbacks are ignored, and no other function of this crate may be called.
pub(crate) struct Muted(*const Thread);

impl Muted {
    #[inline(never)]
    pub fn new() -> Self {
        Self(CURRENT.replace(ptr::null()))
    }
}

impl Drop for Muted {
    #[inline(never)]
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// The simulated thread that is running. Without one, panics with a message that names `function`.
#[inline]
#[track_caller]
pub(crate) fn current(function: &str) -> &'static Thread {
    match try_current() {
        Some(thread) => thread,
        None => outside(function),
    }
}

#[cold]
#[track_caller]
fn outside(function: &str) -> ! {
    panic!(
        "{function} was called outside a simulated thread: device functions work only in a kernel that runs \
         through simt::launch, simt::run or the software driver"
    )
}

/// The event that a simulated thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// None: it runs or is ready to run.
    Nothing,
    /// A barrier of its block.
    Barrier { id: u32, expected: u32 },
    /// The other lanes of a warp operation.
    Warp { op: &'static str, mask: u32 },
    /// The other threads of its warpgroup.
    Warpgroup { op: &'static str, number: u32 },
    /// The warp to come to rest, see [`crate::warp::active_mask`].
    ActiveMask,
    /// All threads of the grid.
    Grid,
    /// All threads of the cluster.
    Cluster,
    /// A phase of an mbarrier of its block; with `gives_up`, only while other threads can go on.
    Mbarrier { offset: u32, parity: u32, gives_up: bool },
    /// Its own bulk groups, all but the latest `pending`.
    BulkGroups { pending: u32 },
    /// None: the thread has ended.
    Exited,
}

/// A panic that the hook saw.
pub(crate) struct Panicked {
    pub message: String,
    pub site: Site,
}

/// A simulated thread.
pub(crate) struct Thread {
    group: Cell<*const Group<'static>>,
    /// Its block, one of the group's.
    block: Cell<*const Block>,
    /// Whether accesses are checked.
    checked: Cell<bool>,
    /// Position among the group's threads.
    pub slot: u32,
    /// Position among the group's blocks.
    pub block_slot: u32,
    /// Position in its block.
    pub rank: u32,
    /// `threadIdx`.
    pub index: [u32; 3],
    pub routine: Cell<Option<Routine>>,
    pub suspender: Cell<*const Suspender>,
    /// Lowest and highest address of the stack it runs on.
    pub stack: Cell<(usize, usize)>,
    pub wait: Cell<Wait>,
    pub wait_site: Cell<RawSite>,
    /// Result of the operation that it waited for: a barrier reduction or an active mask.
    pub answer: Cell<u32>,
    /// The number of atomic operations since it last yielded.
    pub spins: Cell<u32>,
    pub panicked: RefCell<Option<Panicked>>,
    /// Whether it stopped for good at its own fault.
    pub failed: Cell<bool>,
    pub copies: RefCell<CopyQueue>,
    pub products: Progress,
    pub bulk: RefCell<BulkGroups>,
    pub cluster_turn: Cell<ClusterTurn>,
    pub check: ThreadCheck,
}

/// A block of simulated threads.
pub(crate) struct Block {
    /// Number in the launch, unique.
    pub number: Cell<u64>,
    /// `blockIdx`.
    pub index: Cell<[u32; 3]>,
    pub threads: u32,
    /// Threads that have not ended.
    pub live: Cell<u32>,
    pub barriers: [Barrier; NAMED_BARRIERS],
    pub mbarriers: RefCell<Mbarriers>,
    pub warps: Box<[WarpState]>,
    pub warpgroups: Box<[Warpgroup]>,
    pub arena: Arena,
    pub check: BlockCheck,
}

/// A fault before its source lines are looked up, which needs more stack than a simulated thread has.
pub(crate) struct RawFault {
    pub fault: Fault,
    pub site: Option<RawSite>,
    pub other_site: RawSite,
}

impl RawFault {
    pub fn resolve(self) -> Fault {
        let mut fault = self.fault;
        if let Some(site) = self.site {
            fault.site = site.resolve();
        }
        if let Some(other) = &mut fault.other {
            other.site = self.other_site.resolve();
        }
        fault
    }
}

/// The other access of a race, as the checker remembers it.
pub(crate) struct RawOther {
    pub kind: AccessKind,
    pub site: RawSite,
    pub block: u64,
    pub rank: u32,
}

impl Thread {
    pub fn new(group: *const Group<'static>, slot: u32, block_slot: u32, rank: u32, index: [u32; 3]) -> Self {
        Self {
            group: Cell::new(group),
            block: Cell::new(ptr::null()),
            checked: Cell::new(false),
            slot,
            block_slot,
            rank,
            index,
            routine: Cell::new(None),
            suspender: Cell::new(ptr::null()),
            stack: Cell::new((0, 0)),
            wait: Cell::new(Wait::Nothing),
            wait_site: Cell::default(),
            answer: Cell::new(0),
            spins: Cell::new(0),
            panicked: RefCell::default(),
            failed: Cell::new(false),
            copies: RefCell::default(),
            products: Progress::default(),
            bulk: RefCell::default(),
            cluster_turn: Cell::default(),
            check: ThreadCheck::default(),
        }
    }

    #[inline]
    pub fn set_group(&self, group: *const Group<'static>) {
        self.group.set(group);
        let group = self.group();
        self.block.set(&raw const group.blocks[self.block_slot as usize]);
        self.checked.set(group.launch.check.is_some());
    }

    #[inline]
    pub fn group(&self) -> &Group<'static> {
        // SAFETY: `Group::run` points every thread at its group before it runs any, and the group outlives
        // them.
        unsafe { &*self.group.get() }
    }

    #[inline]
    pub fn block(&self) -> &Block {
        // SAFETY: `set_group` points at a block of the group, which outlives the run and whose blocks
        // stay where they are.
        unsafe { &*self.block.get() }
    }

    #[inline]
    pub fn lane(&self) -> u32 {
        self.rank % WARP_SIZE
    }

    #[inline]
    pub fn warp(&self) -> &WarpState {
        &self.block().warps[(self.rank / WARP_SIZE) as usize]
    }

    /// Whether accesses are checked.
    #[inline]
    pub fn checked(&self) -> bool {
        self.checked.get()
    }

    /// Whether an address is on the thread's own stack.
    #[inline]
    pub fn is_on_stack(&self, address: usize) -> bool {
        let (low, high) = self.stack.get();
        (low..high).contains(&address)
    }

    /// Prepares the thread for its next block.
    pub fn reset(&self) {
        self.wait.set(Wait::Nothing);
        self.spins.set(0);
        self.panicked.take();
        self.failed.set(false);
        self.copies.borrow_mut().clear();
        self.products.reset();
        self.bulk.take();
        self.cluster_turn.take();
        self.check.reset();
    }

    /// Suspends the thread until [`Group::wake`].
    #[inline]
    pub fn wait_for(&self, wait: Wait, location: &'static Location<'static>) {
        self.wait.set(wait);
        self.wait_site.set(RawSite::of(location));
        self.suspend();
    }

    /// Yields to the other threads that are ready.
    pub fn give_way(&self, site: RawSite) {
        self.spins.set(0);
        self.wait_site.set(site);
        let group = self.group();
        group.note_spin();
        group.wake(self.slot);
        self.suspend();
    }

    #[inline]
    fn suspend(&self) {
        self.group().suspended.set(self.slot);
        // SAFETY: the coroutine body that runs this thread set the pointer to its own yielder, which lives as
        // long as the body does; this code runs on that coroutine.
        unsafe { (*self.suspender.get()).suspend(()) };
    }

    /// Ends the launch with a fault at `location`.
    #[cold]
    pub fn fail(&self, kind: FaultKind, location: &'static Location<'static>, message: String) -> ! {
        self.fail_access(kind, RawSite::of(location), message, None, None)
    }

    /// Ends the launch with a fault about an access.
    #[cold]
    pub fn fail_access(
        &self,
        kind: FaultKind,
        site: RawSite,
        message: String,
        access: Option<Access>,
        other: Option<RawOther>,
    ) -> ! {
        self.end(site, self.fault(kind, site, message, access, other))
    }

    /// Ends the launch with a fault at `site`.
    #[cold]
    pub fn end(&self, site: RawSite, fault: RawFault) -> ! {
        self.raise(fault);
        self.failed.set(true);
        self.wait_site.set(site);
        loop {
            // Never resumed. The scheduler may unwind it from outside, unless the fault comes from a
            // load/store callback: the code that calls those has no landing pads for them.
            self.suspend();
        }
    }

    /// Records a fault of this thread, or the suspicion that probably explains it.
    pub fn raise(&self, fault: RawFault) {
        let suspicion = self.block().check.suspicion.take().filter(|_| !fault.fault.kind.is_race());
        self.group().raise(suspicion.unwrap_or(fault));
    }

    /// The fault of an access, not raised yet.
    pub fn fault(
        &self,
        kind: FaultKind,
        site: RawSite,
        message: String,
        access: Option<Access>,
        other: Option<RawOther>,
    ) -> RawFault {
        let group = self.group();
        let other_site = other.as_ref().map(|other| other.site).unwrap_or_default();
        let other = other.map(|other| {
            let (kind, site) = (other.kind, Site::default());
            let thread = |shape| super::unflatten(other.rank.into(), shape);
            match group.launch.membership.elsewhere(other.block as u32) {
                Some(away) => OtherAccess {
                    kind,
                    site,
                    block: away.block,
                    thread: thread(away.shape),
                    launch: Some((away.kernel, away.device)),
                },
                None => OtherAccess {
                    kind,
                    site,
                    block: group.launch.block_index(other.block),
                    thread: thread(group.launch.config.block),
                    launch: None,
                },
            }
        });
        let fault = Fault {
            kind,
            kernel: group.launch.kernel.into(),
            message,
            site: Site::default(),
            block: self.block().index.get(),
            thread: self.index,
            seed: group.launch.options.seed,
            access,
            other,
            waits: Vec::new(),
            remedy: None,
        };
        RawFault { fault, site: Some(site), other_site }
    }

    /// The fault for a panic that left the kernel.
    pub fn panic_fault(&self) -> RawFault {
        let panicked = self.panicked.take();
        let (message, site) = match panicked {
            Some(panicked) => (panicked.message, panicked.site),
            None => ("unwound without a panic message".into(), Site::default()),
        };
        let mut raw = self.fault(FaultKind::Panic, RawSite::default(), message, None, None);
        raw.fault.site = site;
        raw.site = None;
        raw
    }
}
