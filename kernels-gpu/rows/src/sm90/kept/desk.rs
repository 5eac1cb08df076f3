//! Words between threads of a row in registers: sums of a block, then of a cluster.

use crate::plan::{CLUSTER_PLACES, KEPT_ALONE_BYTES, KEPT_BYTES, KEPT_WARPS, MAX_CLUSTER, Plan};
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, mbarrier, thread, vector};
use primitives::shared_plan::{Mbarrier, SharedPlan, SharedType};
use primitives::warp::{Exchange, From, LANES, fold_sections};
use primitives::{shared_bytes, shared_plan};

/// Exchanges of a block whose sums of warps lie beside each other.
const SIDES: u32 = 2;

shared_plan! {
    /// Of every block.
    pub struct Desk {
        /// Sums of the block's warps, of a few exchanges.
        warps[SIDES * KEPT_WARPS]: Two,
        /// Says that the block's row has come.
        full[1]: Mbarrier,
        /// The row that comes next.
        next[1]: Word,
        /// Rows begin at a multiple of 128.
        rest: Rest,
    }
}
shared_plan! {
    /// Of blocks in clusters, behind the other.
    pub struct ClusterDesk {
        /// Of the cluster's blocks, of many rows.
        parts[CLUSTER_PLACES * MAX_CLUSTER]: Part,
        /// Says that those of a row have come.
        gathered[CLUSTER_PLACES]: Mbarrier,
        /// Rows begin at a multiple of 128.
        rest: Rest,
    }
}
shared_bytes! {
    /// Two numbers.
    pub struct Two(2 * size_of::<f32>(), align 8);
}
shared_bytes! {
    /// Known to a block of its part of a row.
    pub struct Part(4 * size_of::<f32>(), align 16);
}
shared_bytes! {
    /// A word.
    pub struct Word(size_of::<u32>(), align 4);
}
shared_bytes! {
    /// Nothing.
    pub struct Rest(0, align 128);
}

const _: () = assert!(<Desk as SharedPlan>::TOTAL == KEPT_ALONE_BYTES);
const _: () = assert!(<Desk as SharedPlan>::TOTAL + <ClusterDesk as SharedPlan>::TOTAL == KEPT_BYTES);

/// Rows from one barrier of the cluster to the next: behind it all have read places that are written again
/// before the next one.
const BETWEEN: u32 = CLUSTER_PLACES / 2;
/// Rows from the last wait for it to the arrival at the next.
const LATER: u32 = BETWEEN / 2;

/// Known of the part of a row in a block, or of the row, from whose numbers `pivot` was subtracted.
#[derive(Clone, Copy)]
pub struct Deviations {
    /// Was subtracted.
    pub pivot: f32,
    /// Lacks to the mean.
    pub lacking: f32,
    /// The sum of squares of distances from the mean.
    pub squares: f32,
    /// Of the cluster's first block.
    pub word: f32,
}

/// A thread of a block, and of a cluster.
#[derive(Clone, Copy)]
pub struct Member {
    desk: Desk,
    of_cluster: ClusterDesk,
    /// Number in the block.
    pub thread: u32,
    /// Rank of the block in its cluster.
    pub rank: u32,
}

impl Member {
    /// This thread, with the desks of its block from that shared address on.
    #[inline(always)]
    pub fn new(plan: &Plan, base: u32) -> Self {
        let rank = if plan.cluster > 1 { cluster::block_rank() } else { 0 };
        let of_cluster = ClusterDesk::new(base + KEPT_ALONE_BYTES);
        Self { desk: Desk::new(base), of_cluster, thread: thread::thread_idx_x(), rank }
    }

    /// The barrier that says that the block's row has come.
    #[inline(always)]
    pub fn full(&self) -> u32 {
        self.desk.full(0)
    }

    /// Says which row comes next.
    ///
    /// # Safety
    /// One thread calls it, before it arrives at the barrier of the row.
    #[inline(always)]
    pub unsafe fn publish(&self, row: u32) {
        // SAFETY: the block's own place.
        unsafe { vector::store_shared(self.desk.next(0), row) }
    }

    /// The row that has come.
    ///
    /// # Safety
    /// Its barrier has been waited for.
    #[inline(always)]
    pub unsafe fn published(&self) -> u32 {
        // SAFETY: the block's own place.
        unsafe { vector::load_shared(self.desk.next(0)) }
    }

    /// Makes the barriers, and says so to the cluster.
    ///
    /// # Safety
    /// All threads of the block call it first, and `cluster::wait` behind it where there is a cluster.
    #[inline(always)]
    pub unsafe fn prepare(&self, plan: &Plan) {
        // SAFETY: the block's own places, which nothing uses yet.
        unsafe {
            if self.thread < SIDES * KEPT_WARPS {
                // Those of warps that there are not.
                vector::store_shared_v2(self.desk.warps(self.thread), [0.0f32; 2]);
            }
            if self.thread == 0 {
                mbarrier::init(self.full(), 1);
            }
            if plan.cluster > 1 && self.thread < CLUSTER_PLACES {
                mbarrier::init(self.of_cluster.gathered(self.thread), 1);
            }
            mbarrier::fence_init();
            thread::sync_threads();
            if plan.cluster > 1 {
                cluster::arrive_relaxed();
            }
        }
    }

    /// Sums of the block from those of its threads. Behind it all threads of the block have read what they
    /// read before it.
    ///
    /// Places of a side are written again two exchanges later: all have read them by then, since each comes
    /// to the barrier of the exchange between behind that.
    ///
    /// # Safety
    /// All threads of the block call it, for the two sides in turn.
    #[inline(always)]
    pub unsafe fn of_block<const K: usize>(&self, plan: &Plan, own: [f32; K], side: u32) -> [f32; K] {
        let (lane, warp) = (self.thread % LANES, self.thread / LANES);
        // SAFETY: the caller's contract.
        unsafe {
            let of_warp = fold(own, LANES);
            if plan.consumers == LANES {
                sync_warp(FULL_MASK);
                return of_warp;
            }
            let first = side * KEPT_WARPS;
            if lane == 0 {
                vector::store_shared_v2(self.desk.warps(first + warp), two(of_warp));
            }
            thread::sync_threads();
            fold(load(self.desk.warps(first + lane % KEPT_WARPS)), KEPT_WARPS)
        }
    }

    /// The row's deviations from those of the cluster's blocks. A row has `columns` numbers, each block but
    /// the last has `share` of them, and `inverse` is that of `columns`.
    ///
    /// Means of blocks are counted from the pivot of block 0: in rows of equal numbers they are zeros.
    ///
    /// # Safety
    /// All threads of the cluster call it or [`squares`](Self::squares) once for each of its rows, in order,
    /// with their block's own.
    #[inline(always)]
    pub unsafe fn of_cluster(
        &self,
        plan: &Plan,
        own: Deviations,
        (share, inverse): (u32, f32),
        turn: u32,
    ) -> Deviations {
        // SAFETY: the caller's contract.
        unsafe {
            let [pivot, lacking, squares, word] = self.gather(plan, own, turn);
            let other = self.thread & (plan.cluster - 1);
            let count = (plan.columns - other * share).min(share) as f32;
            let origin = pivot.exchange(From::Lane(0));
            let mean = pivot - origin + lacking;
            let [sum] = fold([count * mean], plan.cluster);
            let of_row = sum * inverse;
            let distance = mean - of_row;
            let [squares] = fold([squares + count * distance * distance], plan.cluster);
            Deviations { lacking: of_row - (own.pivot - origin), squares, word, ..own }
        }
    }

    /// The same where all pivots are 0: the row's squares alone.
    ///
    /// # Safety
    /// As for [`of_cluster`](Self::of_cluster).
    #[inline(always)]
    pub unsafe fn squares(&self, plan: &Plan, own: Deviations, turn: u32) -> Deviations {
        // SAFETY: the caller's contract.
        unsafe {
            let [_, _, squares, word] = self.gather(plan, own, turn);
            let [squares] = fold([squares], plan.cluster);
            Deviations { squares, word, ..own }
        }
    }

    /// Hands the cluster's blocks this block's words, and takes those of the block whose rank is the thread's
    /// number, modulo the cluster.
    ///
    /// # Safety
    /// As for [`of_cluster`](Self::of_cluster).
    #[inline(always)]
    unsafe fn gather(&self, plan: &Plan, own: Deviations, turn: u32) -> [f32; 4] {
        let (place, phase) = (turn % CLUSTER_PLACES, turn / CLUSTER_PLACES % 2);
        let (first, gathered) = (place * MAX_CLUSTER, self.of_cluster.gathered(place));
        // SAFETY: the caller's contract.
        unsafe {
            match turn % BETWEEN {
                LATER => cluster::arrive(),
                0 if turn > 0 => cluster::wait(),
                _ => {}
            }
            if self.thread == 0 {
                mbarrier::arrive_expect_tx(gathered, plan.cluster * Part::BYTES);
            }
            if self.thread < plan.cluster {
                let to = cluster::map_shared(self.of_cluster.parts(first + self.rank), self.thread);
                let words = [own.pivot, own.lacking, own.squares, own.word];
                cluster::store_async_v4(to, words, cluster::map_shared(gathered, self.thread));
            }
            mbarrier::wait_parity(gathered, phase);
            let other = self.thread & (plan.cluster - 1);
            vector::load_shared_v4(self.of_cluster.parts(first + other))
        }
    }
}

/// Whether the threads of a cluster that took so many rows have arrived at a barrier that none waited for.
#[inline(always)]
pub const fn owes_wait(turns: u32) -> bool {
    turns % BETWEEN > LATER || turns > 0 && turns % BETWEEN == 0
}

/// Each of some numbers, added up over every `lanes` neighbours.
///
/// # Safety
/// As for [`fold_sections`].
#[inline(always)]
unsafe fn fold<const K: usize>(mut own: [f32; K], lanes: u32) -> [f32; K] {
    for i in 0..K {
        // SAFETY: the caller's contract.
        own[i] = unsafe { fold_sections(own[i], lanes, |a, b| a + b) };
    }
    own
}

/// One or two numbers as two.
#[inline(always)]
fn two<const K: usize>(numbers: [f32; K]) -> [f32; 2] {
    [numbers[0], numbers[K - 1]]
}

/// One or two numbers at this shared address.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn load<const K: usize>(address: u32) -> [f32; K] {
    // SAFETY: the caller's word.
    let numbers: [f32; 2] = unsafe { vector::load_shared_v2(address) };
    let mut first = [numbers[0]; K];
    for i in 0..K {
        first[i] = numbers[i];
    }
    first
}
