//! Clusters: blocks that run at the same time, can wait for each other and reach each other's shared memory.
//!
//! An address in the cluster's window is a `u32`, as on a GPU: the top 8 bits hold the rank of a block, the
//! low bits an offset in its shared memory. A block's own addresses have its own rank, so that [`map_shared`]
//! changes the top bits alone.

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::panic::Location;

use crate::check::{self, Access, ClusterRelease, space};
use crate::config::LaunchConfig;
use crate::exec::context::{Block, RawOther, Thread, WARP_SIZE, Wait, current};
use crate::exec::unflatten;
use crate::fault::{AccessKind, FaultKind, Index};
use crate::site::RawSite;

/// The number of low bits that hold the address in a block's shared memory.
const RANK_SHIFT: u32 = 24;

/// These bits.
const OFFSET: u32 = (1 << RANK_SHIFT) - 1;

/// A bit of all addresses in a cluster, those of the first block too. No GPU sets it. It is above all
/// offsets, and none of the 18 bits of an address that a `wgmma` descriptor has room for.
pub(crate) const MARK: u32 = 1 << 19;

/// Shared memory of a block of the cluster.
#[derive(Clone, Copy)]
pub(crate) struct Target<'t> {
    pub block: &'t Block,
    /// Position among the group's blocks.
    pub block_slot: u32,
    /// Address in the block's shared window.
    pub offset: u32,
}

/// The state of a thread at its cluster's barrier.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ClusterTurn {
    /// It may arrive.
    #[default]
    Idle,
    /// It has arrived in this turn of the barrier and has to wait.
    Arrived(u32),
}

/// The barrier of a cluster.
#[derive(Default)]
pub(crate) struct ClusterBarrier {
    turn: Cell<u32>,
    arrived: Cell<u32>,
    live: Cell<u32>,
    threads: u32,
    waiters: RefCell<Vec<u32>>,
    /// For each warp, the lanes that have arrived and where.
    warps: RefCell<Vec<(u32, RawSite)>>,
    /// The knowledge that the arrivals of this turn publish, and that of the turn before.
    open: RefCell<ClusterRelease>,
    done: RefCell<ClusterRelease>,
}

impl ClusterBarrier {
    /// The barriers of the clusters of a group of `blocks` blocks.
    pub fn all(config: &LaunchConfig, blocks: usize) -> Box<[Self]> {
        let of_one = config.blocks_per_cluster() as usize;
        let threads = of_one as u32 * config.threads_per_block() as u32;
        (0..blocks / of_one).map(|_| Self { threads, ..Self::default() }).collect()
    }

    pub fn reset(&self) {
        self.turn.set(0);
        self.arrived.set(0);
        self.live.set(self.threads);
        self.waiters.borrow_mut().clear();
        self.warps.borrow_mut().clear();
        self.open.take();
        self.done.take();
    }
}

/// Number of the thread's cluster in its group, and of the cluster's first block there.
fn own(thread: &Thread) -> (usize, u32) {
    let blocks = thread.group().launch.config.blocks_per_cluster() as u32;
    let number = thread.block_slot / blocks;
    (number as usize, number * blocks)
}

/// The bits above the offset of addresses of the thread's own shared memory.
#[inline]
pub(crate) fn own_bits(thread: &Thread) -> u32 {
    match thread.group().launch.config.blocks_per_cluster() {
        1 => 0,
        _ => MARK | (thread.block_slot - own(thread).1) << RANK_SHIFT,
    }
}

/// The offset of an address of the thread's own shared memory; of another one, a number beyond all offsets.
#[inline]
pub(crate) fn own_offset(thread: &Thread, address: u32) -> u32 {
    address.checked_sub(own_bits(thread)).unwrap_or(u32::MAX)
}

/// Rank of the block in its cluster (`%cluster_ctarank`).
#[track_caller]
pub fn block_rank() -> u32 {
    let thread = current("simt::cluster::block_rank");
    thread.block_slot - own(thread).1
}

/// Blocks of the cluster (`%cluster_nctarank`).
#[track_caller]
pub fn blocks() -> u32 {
    current("simt::cluster::blocks").group().launch.config.blocks_per_cluster() as u32
}

/// Position of the block in its cluster (`%cluster_ctaid`).
#[track_caller]
pub fn block_idx() -> [u32; 3] {
    unflatten(block_rank().into(), dim())
}

/// Blocks of the cluster in each dimension (`%cluster_nctaid`).
#[track_caller]
pub fn dim() -> [u32; 3] {
    current("simt::cluster::dim").group().launch.config.cluster
}

/// Position of the cluster in the grid (`%clusterid`).
#[track_caller]
pub fn id() -> [u32; 3] {
    let block = current("simt::cluster::id").block().index.get();
    let dim = dim();
    std::array::from_fn(|axis| block[axis] / dim[axis])
}

/// Clusters of the grid in each dimension (`%nclusterid`).
#[track_caller]
pub fn count() -> [u32; 3] {
    let LaunchConfig { grid, cluster, .. } = current("simt::cluster::count").group().launch.config;
    std::array::from_fn(|axis| grid[axis] / cluster[axis])
}

/// Arrives at the cluster's barrier and publishes the thread's accesses (`barrier.cluster.arrive.release`).
#[track_caller]
#[inline(never)]
pub fn arrive() {
    arrive_at(true, Location::caller());
}

/// Arrives, and publishes only what an earlier fence covers (`barrier.cluster.arrive.relaxed`).
#[track_caller]
#[inline(never)]
pub fn arrive_relaxed() {
    arrive_at(false, Location::caller());
}

/// Waits until all threads of the cluster that have not ended have arrived, and acquires the knowledge that
/// they published (`barrier.cluster.wait.acquire`).
#[track_caller]
#[inline(never)]
pub fn wait() {
    wait_at(Location::caller());
}

/// Arrives and waits.
#[track_caller]
#[inline(never)]
pub fn sync() {
    let location = Location::caller();
    arrive_at(true, location);
    wait_at(location);
}

fn arrive_at(release: bool, location: &'static Location<'static>) {
    let thread = current("simt::cluster::arrive");
    let barrier = &thread.group().clusters[own(thread).0];
    if thread.cluster_turn.get() != ClusterTurn::Idle {
        let message =
            "the thread arrives at the cluster's barrier a second time without waiting between".into();
        thread.fail(FaultKind::ClusterInvalid, location, message);
    }
    same_line_in_warp(thread, barrier, location);
    if thread.checked() {
        barrier.open.borrow_mut().add(thread, release);
    }
    thread.cluster_turn.set(ClusterTurn::Arrived(barrier.turn.get()));
    barrier.arrived.set(barrier.arrived.get() + 1);
    try_complete(thread, barrier);
}

fn wait_at(location: &'static Location<'static>) {
    let thread = current("simt::cluster::wait");
    let barrier = &thread.group().clusters[own(thread).0];
    let ClusterTurn::Arrived(turn) = thread.cluster_turn.take() else {
        let message = "the thread waits at the cluster's barrier without having arrived".into();
        thread.fail(FaultKind::ClusterInvalid, location, message)
    };
    if barrier.turn.get() == turn {
        barrier.waiters.borrow_mut().push(thread.slot);
        thread.wait_for(Wait::Cluster, location);
    }
    // The next turn cannot end before this thread arrives again, so this is the knowledge of its own turn.
    if thread.checked() {
        barrier.done.borrow().acquire(thread);
    }
}

/// The barrier is aligned: the lanes of a warp must arrive in the same instruction.
fn same_line_in_warp(thread: &Thread, barrier: &ClusterBarrier, location: &'static Location<'static>) {
    let site = RawSite::of(location);
    let warp = warp_of(thread);
    let mut warps = barrier.warps.borrow_mut();
    if warps.len() <= warp {
        warps.resize(warp + 1, (0, RawSite::default()));
    }
    let (lanes, first_site) = &mut warps[warp];
    if *lanes == 0 {
        *first_site = site;
    }
    let other_site = *first_site;
    let other_lane = lanes.trailing_zeros();
    *lanes |= 1 << thread.lane();
    drop(warps);
    if other_site != site {
        let rank = thread.rank - thread.lane() + other_lane;
        let block = thread.block().number.get();
        let other = RawOther { kind: AccessKind::Wait, site: other_site, block, rank };
        let message = "lanes of one warp arrive at the cluster's barrier in different places".into();
        thread.fail_access(FaultKind::BarrierDivergence, site, message, None, Some(other));
    }
}

/// Number of the thread's warp in its cluster.
fn warp_of(thread: &Thread) -> usize {
    let block = thread.block_slot - own(thread).1;
    (block * thread.block().threads.div_ceil(WARP_SIZE) + thread.rank / WARP_SIZE) as usize
}

/// Ends the barrier's turn if all threads that have not ended have arrived.
fn try_complete(thread: &Thread, barrier: &ClusterBarrier) {
    if barrier.arrived.get() != barrier.live.get() || barrier.arrived.get() == 0 {
        return;
    }
    if let Some((warp, site)) = torn_warp(thread, barrier) {
        let message = format!(
            "some lanes of warp {warp} of the cluster have ended, others arrive at the cluster's barrier, which is for whole warps"
        );
        thread.fail_access(FaultKind::BarrierDivergence, site, message, None, None);
    }
    barrier.turn.set(barrier.turn.get() + 1);
    barrier.arrived.set(0);
    barrier.warps.borrow_mut().clear();
    barrier.done.replace(barrier.open.take());
    thread.group().wake_all(&barrier.waiters.take(), 0);
}

/// A warp of which some but not all existing lanes have arrived, and the place of their arrival.
fn torn_warp(thread: &Thread, barrier: &ClusterBarrier) -> Option<(usize, RawSite)> {
    let block = thread.block();
    let per_block = block.threads.div_ceil(WARP_SIZE) as usize;
    let existing = |warp: usize| {
        let first = (warp % per_block) as u32 * WARP_SIZE;
        u32::MAX >> (WARP_SIZE - WARP_SIZE.min(block.threads - first))
    };
    barrier
        .warps
        .borrow()
        .iter()
        .enumerate()
        .find(|(warp, (lanes, _))| *lanes != 0 && *lanes != existing(*warp))
        .map(|(warp, (_, site))| (warp, *site))
}

/// Handles the end of a thread: the barrier waits for one thread less.
pub(crate) fn thread_ends(thread: &Thread) {
    let barrier = &thread.group().clusters[own(thread).0];
    barrier.live.set(barrier.live.get() - 1);
    if let ClusterTurn::Arrived(turn) = thread.cluster_turn.get()
        && turn == barrier.turn.get()
    {
        // The thread arrived and ended without waiting.
        barrier.arrived.set(barrier.arrived.get() - 1);
    }
    try_complete(thread, barrier);
}

/// The address in the cluster's window of the same shared variable in the block of `rank`; `addr` is its
/// address in the caller's shared window (`mapa.shared::cluster`).
#[track_caller]
#[inline(never)]
pub fn map_shared(addr: u32, rank: u32) -> u32 {
    let location = Location::caller();
    let thread = current("simt::cluster::map_shared");
    let blocks = thread.group().launch.config.blocks_per_cluster() as u32;
    if rank >= blocks {
        let message = format!("rank {rank} in a cluster of {blocks} blocks");
        thread.fail(FaultKind::ClusterInvalid, location, message);
    }
    if !thread.block().arena.has(own_offset(thread, addr), 0) {
        let message = format!("{addr:#x} is no address of the block's own shared window");
        thread.fail(FaultKind::WildPointer, location, message);
    }
    addr & OFFSET | rank << RANK_SHIFT
}

/// Whether an address is one that [`map_shared`] gives.
pub(crate) fn is_mapped(thread: &Thread, address: u32) -> bool {
    let blocks = thread.group().launch.config.blocks_per_cluster() as u32;
    address >> RANK_SHIFT < blocks && thread.block().arena.has(offset_of(thread, address), 1)
}

/// Whether an address was one of the block's own before it was cut to the bits of an offset.
pub(crate) fn lacks_bits(thread: &Thread, address: u32) -> bool {
    own_bits(thread) != 0 && thread.block().arena.has(address, 1)
}

/// The offset in a block's shared memory that an address of the cluster's window holds.
fn offset_of(thread: &Thread, address: u32) -> u32 {
    (address & OFFSET).wrapping_sub(own_bits(thread) & MARK)
}

/// The block and offset of an address of the cluster's window.
pub(crate) fn resolve<'t>(
    thread: &'t Thread,
    address: u32,
    op: &str,
    location: &'static Location<'static>,
) -> Target<'t> {
    let (_, first) = own(thread);
    let blocks = thread.group().launch.config.blocks_per_cluster() as u32;
    let rank = address >> RANK_SHIFT;
    if lacks_bits(thread, address) {
        space::fail_outside_window(thread, address, location);
    }
    if rank >= blocks {
        let message = format!("{op}: {address:#x} is no address of the cluster's shared window");
        thread.fail(FaultKind::WildPointer, location, message);
    }
    of_block(thread, first + rank, offset_of(thread, address), op, location)
}

/// Shared memory of the block of `rank` in the thread's cluster.
pub(crate) fn of_rank<'t>(
    thread: &'t Thread,
    rank: u32,
    offset: u32,
    op: &str,
    location: &'static Location<'static>,
) -> Target<'t> {
    of_block(thread, own(thread).1 + rank, offset, op, location)
}

fn of_block<'t>(
    thread: &'t Thread,
    block_slot: u32,
    offset: u32,
    op: &str,
    location: &'static Location<'static>,
) -> Target<'t> {
    let block = &thread.group().blocks[block_slot as usize];
    if block.live.get() == 0 {
        let message = format!("{op} reaches into block {}, which has ended", Index(block.index.get()));
        thread.fail(FaultKind::ClusterInvalid, location, message);
    }
    Target { block, block_slot, offset }
}

/// Loads a value from shared memory of a block of the cluster (`ld.shared::cluster`).
///
/// # Safety
/// The address holds a value of type `T`, or checking is on.
#[track_caller]
pub unsafe fn load_shared<T: Copy>(addr: u32) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    let from = locate(addr, size_of::<T>(), AccessKind::Read, Location::caller());
    // SAFETY: `locate` has checked that the bytes are in an arena; the caller vouches for their contents.
    unsafe {
        copy(from, value.as_mut_ptr().cast(), size_of::<T>());
        value.assume_init()
    }
}

/// Stores a value to shared memory of a block of the cluster (`st.shared::cluster`).
///
/// # Safety
/// The kernel may write to the address, or checking is on.
#[track_caller]
pub unsafe fn store_shared<T: Copy>(addr: u32, value: T) {
    let to = locate(addr, size_of::<T>(), AccessKind::Write, Location::caller());
    // SAFETY: `locate` has checked that the bytes are in an arena.
    unsafe { copy(std::ptr::from_ref(&value).cast(), to, size_of::<T>()) };
}

// The rest is not generic, so that it is compiled here, without load/store callbacks.

/// # Safety
/// Both ranges are valid and do not overlap.
#[inline(never)]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: forwarded from the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

#[inline(never)]
fn locate(addr: u32, size: usize, kind: AccessKind, location: &'static Location<'static>) -> *mut u8 {
    let thread = current("simt::cluster::load_shared");
    let target = resolve(thread, addr, "an access to the cluster's shared memory", location);
    let pointer = target.block.arena.at(target.offset);
    let site = RawSite::of(location);
    let access = Access { address: pointer as usize, size, align: size, kind, site };
    if !target.block.arena.has(target.offset, size) {
        let message = format!("{addr:#x} is no address of the cluster's shared window");
        thread.fail_access(FaultKind::OutOfBounds, site, message, None, None);
    }
    if thread.checked() {
        if std::ptr::eq(target.block, thread.block()) {
            check::typed_access(thread, access);
        } else {
            check::require_aligned(thread, access);
            check::remote_access(thread, target.block, access, true);
        }
    }
    pointer
}
