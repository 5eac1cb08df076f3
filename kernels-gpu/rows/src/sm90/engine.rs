//! The work of consumers with a row in the ring.

use super::producer::produce;
use super::reduce::{Member, receive, send};
use super::ring::{Cursor, Piece, Shared, Staged};
use crate::function::{RowFunction, Statistics, Tensors};
use crate::plan::Plan;
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, grid, mbarrier, misc, thread};
use primitives::access::VECTOR_BYTES;
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

/// Applies the function to all rows.
///
/// # Safety
/// As for [`crate::direct::run`], and the plan is one for this engine; all tensors of a row lie alike within
/// 16 bytes.
#[inline(always)]
pub unsafe fn run<T: InF32, F: RowFunction<T>, const N: usize>(
    plan: &Plan,
    function: &F,
    tensors: &Tensors<T>,
) {
    // SAFETY: the caller's contract; the branches are those of warps.
    unsafe {
        let (consumer, tiles) = begin(plan, *tensors);
        if consumer.thread >= plan.consumers {
            consumer.produce(tiles);
        } else {
            consumer.run::<F, N>(function, tiles);
        }
        leave(plan);
    }
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
/// As for [`run`].
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
    /// Where the mapped tile begins.
    pub behind: Cursor,
}

impl Walk {
    /// From the first tile on.
    #[inline(always)]
    pub const fn new([first, step]: [u32; 2]) -> Self {
        Self { taken: first, mapped: first, step, turn: 0, ahead: Cursor::START, behind: Cursor::START }
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

    /// One row on.
    #[inline(always)]
    pub fn next(&mut self, plan: &Plan) {
        if self.map(plan).is_some() {
            self.mapped += self.step;
        }
        self.ahead = self.ahead.skip(plan, plan.chunks);
        self.taken += self.step;
        self.turn += 1;
    }
}

impl<T: InF32> Consumer<'_, T> {
    /// Fills the ring: for the threads behind the consumers.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    pub unsafe fn produce(&self, tiles: [u32; 2]) {
        let lane = self.thread - self.plan.consumers;
        // SAFETY: the caller's contract.
        unsafe { produce(self.plan, self.shared, &self.tensors, lane, self.rank, tiles) }
    }

    /// The team's row of a tile: its number, and whether it exists. One that does not has the last row's.
    #[inline(always)]
    pub fn row(&self, tile: u32) -> (u64, bool) {
        let number = tile * self.plan.tile + self.team;
        let last = self.plan.rows as u32 - 1;
        (number.min(last).into(), number <= last)
    }

    /// The `index`-th `N` elements of a chunk that begins with vector `chunk` of the piece.
    #[inline(always)]
    pub fn place<const N: usize>(
        &self,
        row: &Tensors<T>,
        piece: &Piece,
        stage: u32,
        [chunk, index]: [u32; 2],
    ) -> Staged<T> {
        let plan = self.plan;
        let of_team = self.team * plan.row_bytes + index * (N * size_of::<T>()) as u32;
        let address = self.shared.ring + stage * plan.stage_bytes + of_team;
        let column = piece.span.vector::<T>(piece.first + chunk) + index * N as u32;
        Staged { address, part: plan.part_bytes, outputs: *row, column }
    }

    /// First vector of a chunk, and how often it has `N` elements.
    #[inline(always)]
    pub fn chunk<const N: usize>(&self, piece: &Piece, chunk: u32) -> (u32, u32) {
        let (first, vectors) = piece.chunk(self.plan, chunk);
        (first, vectors * (VECTOR_BYTES / (N * size_of::<T>())) as u32)
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
    pub unsafe fn release(&self, cursor: Cursor) {
        // SAFETY: a barrier of this block; all lanes are here.
        unsafe {
            sync_warp(FULL_MASK);
            if self.thread.is_multiple_of(LANES) {
                mbarrier::arrive(self.shared.control.empty(cursor.stage));
            }
        }
    }

    /// Edges of the row: the first block of a cluster has them.
    #[inline(always)]
    fn edges(&self, piece: &Piece) -> u32 {
        if self.rank == 0 { piece.span.edges } else { 0 }
    }

    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn run<F: RowFunction<T>, const N: usize>(&self, function: &F, tiles: [u32; 2]) {
        let plan = self.plan;
        let mut walk = Walk::new(tiles);
        // SAFETY: the caller's contract; a stage is read between its wait and its release.
        unsafe {
            let [mut coming, mut taken] = [function.begin(self.row(walk.taken).0); 2];
            let mut sent = F::Statistics::empty();
            while walk.mapped < plan.tiles {
                let (mut of_row, mut received) = (taken, sent);
                if walk.taken < plan.tiles {
                    taken = coming;
                    let (row, piece, _) = self.of_tile(walk.taken);
                    // Of the last row there is none: its own do as well.
                    coming = function.begin(self.row(walk.taken + walk.step).0);
                    let mut statistics = self.take::<F, N>(function, taken, &row, &piece, walk.ahead);
                    let mut edge = self.member;
                    while edge < self.edges(&piece) {
                        let place = row.place(piece.span.edge::<T>(edge));
                        statistics = RowFunction::take::<1>(function, taken, statistics, &place);
                        edge += plan.team;
                    }
                    sent = send(plan, self.shared, statistics, self.of_exchange(), walk.turn);
                }
                if let Some(turn) = walk.map(plan) {
                    if plan.ahead == 0 {
                        (of_row, received) = (taken, sent);
                    }
                    let (row, piece, (number, exists)) = self.of_tile(walk.mapped);
                    let statistics = receive(plan, self.shared, received, self.of_exchange(), turn);
                    let is_first = exists && self.member == 0 && self.rank == 0;
                    let of = function.finish(of_row, statistics, number, plan.columns, is_first);
                    walk.behind = self.map::<F, N>(function, of, &row, &piece, walk.behind);
                }
                walk.next(plan);
            }
        }
    }

    /// A tile's row of the team, the block's part of it, its number, and whether it exists.
    #[inline(always)]
    pub fn of_tile(&self, tile: u32) -> (Tensors<T>, Piece, (u64, bool)) {
        let (number, exists) = self.row(tile);
        let row = self.tensors.row(self.plan, number);
        let piece = Piece::of(self.plan, row.inputs[0], self.rank, exists);
        (row, piece, (number, exists))
    }

    /// The thread's place among those that exchange statistics.
    #[inline(always)]
    pub const fn of_exchange(&self) -> Member {
        Member { thread: self.thread, team: self.team, rank: self.rank }
    }

    /// The thread's statistics of the vectors of the row that begins at the cursor.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    pub(super) unsafe fn take<F: RowFunction<T>, const N: usize>(
        &self,
        function: &F,
        of_row: F::Row,
        row: &Tensors<T>,
        piece: &Piece,
        mut cursor: Cursor,
    ) -> F::Statistics {
        let (plan, mut statistics, mut chunk) = (self.plan, F::Statistics::empty(), 0);
        // SAFETY: the caller's contract; each place has one thread.
        unsafe {
            while chunk < plan.chunks {
                self.wait(cursor);
                let (first, count) = self.chunk::<N>(piece, chunk);
                let mut index = misc::opaque(self.member);
                while index < count {
                    let place = self.place::<N>(row, piece, cursor.stage, [first, index]);
                    statistics = RowFunction::take::<N>(function, of_row, statistics, &place);
                    index += plan.team;
                }
                cursor = cursor.next(plan);
                chunk += 1;
            }
        }
        statistics
    }

    /// Writes the results of the row, leaves its stages, and returns where the next row begins.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn map<F: RowFunction<T>, const N: usize>(
        &self,
        function: &F,
        of: F::Of,
        row: &Tensors<T>,
        piece: &Piece,
        mut cursor: Cursor,
    ) -> Cursor {
        let (plan, mut chunk) = (self.plan, 0);
        // SAFETY: the caller's contract; each place has one thread.
        unsafe {
            while chunk < plan.chunks {
                let (first, count) = self.chunk::<N>(piece, chunk);
                let mut index = misc::opaque(self.member);
                while index < count {
                    let place = self.place::<N>(row, piece, cursor.stage, [first, index]);
                    RowFunction::map::<N>(function, of, &place);
                    index += plan.team;
                }
                self.release(cursor);
                cursor = cursor.next(plan);
                chunk += 1;
            }
            let mut edge = self.member;
            while edge < self.edges(piece) {
                RowFunction::map::<1>(function, of, &row.place(piece.span.edge::<T>(edge)));
                edge += plan.team;
            }
        }
        cursor
    }
}
