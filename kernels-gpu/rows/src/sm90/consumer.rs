//! The threads that work on rows in the ring, and the order in which they come to them.

use super::producer::produce;
use super::reduce::Member;
use super::ring::{Cursor, Shared};
use crate::function::Tensors;
use crate::plan::Plan;
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, grid, mbarrier, misc, thread};
use primitives::element::InF32;
use primitives::warp::LANES;

/// A consumer: a thread of the team that has a row.
pub(super) struct Consumer<'a, T> {
    pub plan: &'a Plan,
    pub shared: Shared,
    pub tensors: Tensors<T>,
    /// Number in the block: behind the consumers are those that copy.
    pub thread: u32,
    /// Number in the team.
    pub member: u32,
    /// Number of the team.
    pub team: u32,
    /// Rank of the block in its cluster.
    pub rank: u32,
}

/// Waits for the other blocks of the cluster: they may still send to this one.
///
/// # Safety
/// All threads of the cluster call it last.
#[inline(always)]
pub(super) unsafe fn leave(plan: &Plan) {
    if plan.cluster > 1 {
        // SAFETY: the caller's contract.
        unsafe { cluster::sync() }
    }
}

/// Prepares the block: the thread's part, the first tile, and the distance to the next.
///
/// # Safety
/// As for [`super::columns::run`].
#[inline(always)]
pub(super) unsafe fn begin<T>(plan: &Plan, tensors: Tensors<T>) -> (Consumer<'_, T>, [u32; 2]) {
    grid::launch_dependents();
    let thread = thread::thread_idx_x();
    // SAFETY: the caller's contract.
    let shared = unsafe { Shared::new(plan) };
    let shift = plan.cluster.trailing_zeros();
    let rank = if plan.cluster > 1 { cluster::block_rank() } else { 0 };
    let tiles = [thread::block_idx_x() >> shift, plan.step];
    let (team, member) = plan.member(thread);
    grid::wait_dependencies();
    (Consumer { plan, shared, tensors, thread, member, team, rank }, tiles)
}

/// The rows of a team: which one is taken in, and which one is mapped, at the same time or a row later.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// Tile that is taken in.
    pub taken: u32,
    /// Tile that is mapped.
    pub mapped: u32,
    /// Tiles from one to the next.
    pub step: u32,
    /// Number of the taken tile among the block's.
    pub turn: u32,
    /// Where the taken tile begins in the ring.
    pub ahead: Cursor,
}

impl Walk {
    /// From the first tile on.
    #[inline(always)]
    pub const fn new([first, step]: [u32; 2]) -> Self {
        Self { taken: first, mapped: first, step, turn: 0, ahead: Cursor::START }
    }

    /// The turn of the tile to be mapped now; none as long as the first one is the only one.
    #[inline(always)]
    pub const fn map(&self, plan: &Plan) -> Option<u32> {
        if plan.ahead == 0 {
            Some(self.turn)
        } else if self.turn > 0 {
            Some(self.turn - 1)
        } else {
            None
        }
    }

    /// The stage of the mapped tile: that of the taken one, or the one before.
    #[inline(always)]
    pub const fn behind(&self, plan: &Plan) -> u32 {
        let stage = self.ahead.stage;
        if plan.ahead == 0 {
            stage
        } else if stage == 0 {
            plan.stages - 1
        } else {
            stage - 1
        }
    }

    /// One row on.
    #[inline(always)]
    pub fn next(&mut self, plan: &Plan) {
        if self.map(plan).is_some() {
            self.mapped += self.step;
        }
        self.ahead = self.ahead.next(plan);
        self.taken += self.step;
        self.turn += 1;
    }
}

impl<T: InF32> Consumer<'_, T> {
    /// Fills the ring: for the threads behind the consumers.
    ///
    /// # Safety
    /// As for [`super::columns::run`].
    #[inline(always)]
    pub unsafe fn produce(&self, tiles: [u32; 2]) {
        let lane = self.thread - self.plan.consumers;
        // SAFETY: the caller's contract.
        unsafe { produce(self.plan, self.shared, &self.tensors, lane, self.rank, tiles) }
    }

    /// The team's row of a tile: its number, and whether it exists. One that does not has the last row's.
    #[inline(always)]
    pub fn row(&self, tile: u32) -> (u64, bool) {
        // Computed again for each row, as places of statistics are.
        let (team, _) = self.plan.member(misc::opaque(self.thread));
        let number = tile * self.plan.tile + team;
        let last = self.plan.rows as u32 - 1;
        (number.min(last).into(), number <= last)
    }

    /// Waits until the stage is full.
    ///
    /// # Safety
    /// The cursor is the consumers'.
    #[inline(always)]
    pub unsafe fn wait(&self, cursor: Cursor) {
        // SAFETY: a barrier of this block.
        unsafe { mbarrier::wait_parity(self.shared.control.full(cursor.stage), cursor.phase) }
    }

    /// Leaves the stage.
    ///
    /// # Safety
    /// As for [`wait`](Self::wait). The whole warp calls it, and reads the stage no more.
    #[inline(always)]
    pub unsafe fn release(&self, stage: u32) {
        // SAFETY: a barrier of this block; all lanes are here.
        unsafe {
            sync_warp(FULL_MASK);
            if self.thread.is_multiple_of(LANES) {
                mbarrier::arrive(self.shared.control.empty(stage));
            }
        }
    }

    /// The thread's place among those that exchange statistics. Places that follow from it are computed again
    /// for each row: kept, they would take registers from sums.
    #[inline(always)]
    pub fn of_exchange(&self) -> Member {
        let thread = misc::opaque(self.thread);
        Member { thread, team: self.plan.member(thread).0 }
    }
}
