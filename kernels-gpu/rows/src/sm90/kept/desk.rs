//! Words between threads of a row in registers: sums of a block, then of a cluster.

use super::{Kind, has_cluster};
use crate::plan::{
    CLUSTER_PLACES, CLUSTER_TURNS, DRAWN_BYTES, KEPT_ALONE_BYTES, KEPT_BYTES, KEPT_WARPS, MAX_CLUSTER, Plan,
};
use crate::sm90::pair::{HALF, add_pairs, both};
use crate::sm90::turns;
use cuda_std::fastmath::{fma, max_nan};
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, mbarrier, thread, vector};
use primitives::shared_plan::{Mbarrier, SharedPlan, SharedType};
use primitives::warp::{Exchange, From, LANES, fold_sections};
use primitives::{shared_bytes, shared_plan};

/// Exchanges of a block whose sums of warps lie beside each other.
const SIDES: u32 = 3;

shared_plan! {
    /// Of every block.
    pub struct Desk {
        /// Sums of the block's warps, of a few exchanges.
        warps[SIDES * KEPT_WARPS]: Two,
        /// Says that the block's row has come.
        full[1]: Mbarrier,
        /// Where blocks draw, the row that comes next.
        next[1]: Word,
        /// Rows begin at a multiple of 128.
        rest: Rest,
    }
}
shared_plan! {
    /// Of blocks in clusters, behind the other.
    pub struct ClusterDesk {
        /// Of the cluster's blocks, of all rows: a place is written once.
        parts[CLUSTER_TURNS * MAX_CLUSTER]: Part,
        /// Says that those of a row have come.
        gathered[CLUSTER_TURNS]: Mbarrier,
        /// Rows begin at a multiple of 128.
        rest: Rest,
    }
}
shared_plan! {
    /// The same of blocks that draw rows, any number of them.
    pub struct DrawnDesk {
        /// Of the cluster's blocks, of many rows: places are written again.
        parts[CLUSTER_PLACES * MAX_CLUSTER]: Part,
        /// Says that those of a row have come.
        gathered[CLUSTER_PLACES]: Mbarrier,
        /// Rows begin at a multiple of 128.
        rest: Rest,
    }
}
shared_bytes! {
    /// A row's number.
    pub struct Word(size_of::<u32>(), align 4);
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
    /// Nothing.
    pub struct Rest(0, align 128);
}

const _: () = assert!(<Desk as SharedPlan>::TOTAL == KEPT_ALONE_BYTES);
const _: () = assert!(<Desk as SharedPlan>::TOTAL + <ClusterDesk as SharedPlan>::TOTAL == KEPT_BYTES);
const _: () = assert!(<Desk as SharedPlan>::TOTAL + <DrawnDesk as SharedPlan>::TOTAL == DRAWN_BYTES);
const _: () = assert!(CLUSTER_PLACES >= turns::LEAST_PLACES);

/// Known of the part of a row in a block, or of the row, from whose numbers `pivot` was subtracted.
#[derive(Clone, Copy)]
pub struct Deviations {
    /// Was subtracted.
    pub pivot: f32,
    /// Lacks to the mean.
    pub lacking: f32,
    /// The sum of squares of distances from the mean.
    pub squares: f32,
    /// To the cluster, from its first block.
    pub word: f32,
}

/// A thread of a block, and of a cluster.
#[derive(Clone, Copy)]
pub struct Member {
    desk: Desk,
    of_cluster: ClusterDesk,
    drawn: DrawnDesk,
    /// Number in the block.
    pub thread: u32,
    /// Rank of the block in its cluster.
    pub rank: u32,
}

impl Member {
    /// This thread, with the desks of its block from that shared address on.
    #[inline(always)]
    pub fn new<Q: Kind>(plan: &Plan, base: u32) -> Self {
        let rank = if has_cluster::<Q>(plan) { cluster::block_rank() } else { 0 };
        let behind = base + KEPT_ALONE_BYTES;
        let (of_cluster, drawn) = (ClusterDesk::new(behind), DrawnDesk::new(behind));
        Self { desk: Desk::new(base), of_cluster, drawn, thread: thread::thread_idx_x(), rank }
    }

    /// The barrier that says that the block's row has come.
    #[inline(always)]
    pub fn full(&self) -> u32 {
        self.desk.full(0)
    }

    /// Says which row comes next.
    ///
    /// # Safety
    /// One thread calls it, when all have read the last one, and before it arrives at the row's barrier.
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

    /// The barrier of this place of the cluster's exchanges.
    #[inline(always)]
    fn gathered<Q: Kind>(&self, place: u32) -> u32 {
        if Q::DRAWS { self.drawn.gathered(place) } else { self.of_cluster.gathered(place) }
    }

    /// A block's part there.
    #[inline(always)]
    fn part<Q: Kind>(&self, place: u32, rank: u32) -> u32 {
        let part = place * MAX_CLUSTER + rank;
        if Q::DRAWS { self.drawn.parts(part) } else { self.of_cluster.parts(part) }
    }

    /// Makes the barriers, those of a cluster for so many rows or places, and says so to the cluster.
    ///
    /// # Safety
    /// All threads of the block call it first, and `cluster::wait` behind it where there is a cluster.
    #[inline(always)]
    pub unsafe fn prepare<Q: Kind>(&self, plan: &Plan, rows: u32) {
        let is_of_cluster = has_cluster::<Q>(plan) && self.thread < rows;
        // SAFETY: the block's own places, which nothing uses yet.
        unsafe {
            if self.thread < SIDES * KEPT_WARPS {
                // Those of warps that there are not.
                vector::store_shared_v2(self.desk.warps(self.thread), [0.0f32; 2]);
            }
            if self.thread == 0 {
                mbarrier::init(self.full(), 1);
            }
            if is_of_cluster {
                mbarrier::init(self.gathered::<Q>(self.thread), 1);
            }
            mbarrier::fence_init();
            thread::sync_threads();
            if is_of_cluster && !Q::DRAWS {
                let gathered = self.gathered::<Q>(self.thread);
                mbarrier::arrive_expect_tx(gathered, plan.cluster * Part::BYTES);
            }
            if has_cluster::<Q>(plan) {
                cluster::arrive_relaxed();
            }
        }
    }

    /// The sum of the block from those of its threads. Behind it all threads of the block have read what they
    /// read before it.
    ///
    /// Places of a side are written again two exchanges later: all have read them by then, since each comes
    /// to the barrier of the exchange between behind that.
    ///
    /// # Safety
    /// All threads of the block call it, for two sides in turn, or for one that no neighbouring exchange has.
    #[inline(always)]
    pub unsafe fn of_block(&self, plan: &Plan, own: f32, side: u32) -> f32 {
        // SAFETY: the caller's contract.
        unsafe {
            let of_warp = fold([own], LANES)[0];
            if plan.consumers == LANES {
                sync_warp(FULL_MASK);
                return of_warp;
            }
            fold([self.beside(of_warp, LANES, side)], KEPT_WARPS)[0]
        }
    }

    /// The same of two sums at once: half of the lanes have one of them, the others the other one.
    ///
    /// # Safety
    /// As for [`of_block`](Self::of_block).
    #[inline(always)]
    pub unsafe fn pair_of_block(&self, plan: &Plan, own: [f32; 2], side: u32) -> [f32; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let mut sum = add_pairs(own, self.thread % LANES);
            if plan.consumers == LANES {
                sync_warp(FULL_MASK);
            } else {
                [sum] = fold([self.beside(sum, HALF, side)], KEPT_WARPS);
            }
            both(sum)
        }
    }

    /// A sum of this warp for that of another warp, each of its own `lanes`: that of the warp whose number is
    /// the lane, modulo the warps.
    ///
    /// # Safety
    /// As for [`of_block`](Self::of_block).
    #[inline(always)]
    unsafe fn beside(&self, sum: f32, lanes: u32, side: u32) -> f32 {
        let (lane, warp) = (self.thread % LANES, self.thread / LANES);
        let (first, which) = (side * KEPT_WARPS, lane / lanes * size_of::<f32>() as u32);
        // SAFETY: the caller's contract.
        unsafe {
            if lane % lanes == 0 {
                vector::store_shared(self.desk.warps(first + warp) + which, sum);
            }
            thread::sync_threads();
            vector::load_shared(self.desk.warps(first + lane % KEPT_WARPS) + which)
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
    pub unsafe fn of_cluster<Q: Kind>(
        &self,
        plan: &Plan,
        own: Deviations,
        (share, inverse): (u32, f32),
        turn: u32,
    ) -> Deviations {
        // SAFETY: the caller's contract.
        unsafe {
            let [pivot, lacking, squares, word] = self.gather::<Q>(plan, own, turn);
            let (other, weight) = (self.thread & (plan.cluster - 1), weight(plan));
            let count = (plan.columns - other * share).min(share) as f32 * weight;
            let origin = pivot.exchange(From::Lane(0));
            let mean = pivot - origin + lacking;
            let of_mean = count * mean;
            let [sum, squares] = fold([of_mean, fma(of_mean, mean, squares * weight)], MAX_CLUSTER);
            let of_row = sum * inverse;
            // Block 0, whose mean is 0 here, has an eighth of the row or more: at least that share of the
            // squares is left, so three bits are lost at most.
            let squares = max_nan(fma(-sum, of_row, squares), 0.0);
            Deviations { lacking: of_row - (own.pivot - origin), squares, word, ..own }
        }
    }

    /// The same where all pivots are 0: the row's squares alone.
    ///
    /// # Safety
    /// As for [`of_cluster`](Self::of_cluster).
    #[inline(always)]
    pub unsafe fn squares<Q: Kind>(&self, plan: &Plan, own: Deviations, turn: u32) -> Deviations {
        // SAFETY: the caller's contract.
        unsafe {
            let [_, _, squares, word] = self.gather::<Q>(plan, own, turn);
            let [squares] = fold([squares * weight(plan)], MAX_CLUSTER);
            Deviations { squares, word, ..own }
        }
    }

    /// Hands the cluster's blocks this block's words, and takes those of the block whose rank is the thread's
    /// number, modulo the cluster.
    ///
    /// # Safety
    /// As for [`of_cluster`](Self::of_cluster); where blocks draw, [`turns::leave`] at the end.
    #[inline(always)]
    unsafe fn gather<Q: Kind>(&self, plan: &Plan, own: Deviations, turn: u32) -> [f32; 4] {
        let (place, phase) =
            if Q::DRAWS { (turn % CLUSTER_PLACES, turn / CLUSTER_PLACES % 2) } else { (turn, 0) };
        let gathered = self.gathered::<Q>(place);
        // SAFETY: the caller's contract.
        unsafe {
            if Q::DRAWS {
                turns::order(turn, CLUSTER_PLACES);
                if self.thread == 0 {
                    mbarrier::arrive_expect_tx(gathered, plan.cluster * Part::BYTES);
                }
            }
            if self.thread < plan.cluster {
                let to = cluster::map_shared(self.part::<Q>(place, self.rank), self.thread);
                let words = [own.pivot, own.lacking, own.squares, own.word];
                cluster::store_async_v4(to, words, cluster::map_shared(gathered, self.thread));
            }
            mbarrier::wait_parity(gathered, phase);
            let other = self.thread & (plan.cluster - 1);
            vector::load_shared_v4(self.part::<Q>(place, other))
        }
    }
}

/// How much a block's part counts where lanes have those of all blocks of a cluster, of some several times.
/// A power of two: what is added up then is as exact.
#[inline(always)]
fn weight(plan: &Plan) -> f32 {
    plan.cluster as f32 * (1.0 / MAX_CLUSTER as f32)
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
