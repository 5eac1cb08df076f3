//! Statistics of rows between the warps that share them: of a block, or of a cluster's blocks.

use super::{Kind, Pair};
use crate::function::{Statistics, Sums};
use crate::plan::{
    EXCHANGES, MAX_CLUSTER, Plan, STAY_CLUSTER_BYTES, STAY_CONTROL_BYTES, STAY_PAIR_BYTES, STAY_PLACES,
    STAY_WARPS,
};
use crate::sm90::reduce::PARTS_BYTES;
use crate::sm90::turns;
use core::marker::PhantomData;
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, mbarrier, thread, vector};
use primitives::element::InF32;
use primitives::shared_plan::{Mbarrier, SharedPlan};
use primitives::warp::LANES;
use primitives::{shared_bytes, shared_plan};

shared_plan! {
    /// Words between warps of a block.
    pub struct Desk {
        /// Of the block's warps, of a few rows.
        parts[EXCHANGES * STAY_WARPS]: Parts,
        /// Says to a team that those of its warps have come.
        sent[EXCHANGES * STAY_WARPS]: Mbarrier,
        /// The rest begins at a multiple of 128.
        rest: Rest,
    }
}
shared_plan! {
    /// Of a block in a cluster, behind the other. Behind it lie the statistics of all the cluster's warps, in
    /// a place for each of some rows.
    pub struct ClusterDesk {
        /// Says that those of a row have come.
        gathered[STAY_PLACES / 2]: Mbarrier,
        /// The rest begins at a multiple of 128.
        rest: Rest,
    }
}
shared_bytes! {
    /// Statistics.
    pub struct Parts(PARTS_BYTES, align 16);
}
shared_bytes! {
    /// Nothing.
    pub struct Rest(0, align 128);
}

const _: () = assert!(<Desk as SharedPlan>::TOTAL == STAY_CONTROL_BYTES);
const _: () = assert!(<ClusterDesk as SharedPlan>::TOTAL == STAY_CLUSTER_BYTES);
const _: () = assert!(STAY_PLACES / MAX_CLUSTER >= turns::LEAST_PLACES);

/// A warp of those that share a row.
#[derive(Clone, Copy)]
pub struct Member<Q> {
    desk: Desk,
    of_cluster: ClusterDesk,
    /// Number of the thread in the block.
    thread: u32,
    /// The warp's team in the block; in a cluster, where a block has one, the block's rank.
    part: u32,
    kind: PhantomData<Q>,
}

impl<Q: Kind> Member<Q> {
    /// This warp, with the words of its block from that shared address on.
    #[inline(always)]
    pub fn new(plan: &Plan, base: u32) -> Self {
        let thread = thread::thread_idx_x();
        Self {
            desk: Desk::new(base),
            of_cluster: ClusterDesk::new(base + STAY_CONTROL_BYTES),
            thread,
            part: match Q::is_of_cluster(plan) {
                true => cluster::block_rank(),
                false => thread.checked_div(plan.team).unwrap_or(0),
            },
            kind: PhantomData,
        }
    }

    /// Number of the warp in the block.
    #[inline(always)]
    pub fn warp(&self) -> u32 {
        self.thread / LANES
    }

    /// The lane.
    #[inline(always)]
    pub fn lane(&self) -> u32 {
        self.thread % LANES
    }

    /// The warp's team in the block.
    #[inline(always)]
    pub fn team(&self, plan: &Plan) -> u32 {
        if Q::is_of_cluster(plan) { 0 } else { self.part }
    }

    /// Number of the warp among those that share a row.
    #[inline(always)]
    pub fn number(&self, plan: &Plan) -> u32 {
        let warps = plan.team / LANES;
        if Q::is_of_cluster(plan) { self.part * warps + self.warp() } else { self.warp() - self.part * warps }
    }

    /// Makes the barriers, and says so to the cluster.
    ///
    /// # Safety
    /// All threads of the block call it first, and [`meet`](Self::meet) behind it.
    #[inline(always)]
    pub unsafe fn prepare(&self, plan: &Plan) {
        let thread = thread::thread_idx_x();
        // SAFETY: barriers' own places, which nothing uses yet.
        unsafe {
            if !Q::is_of_cluster(plan) {
                let mut at = thread;
                while at < EXCHANGES * STAY_WARPS {
                    mbarrier::init(self.desk.sent(at), plan.team / LANES);
                    at += plan.consumers;
                }
            } else {
                let mut at = thread;
                while at < plan.tiles {
                    mbarrier::init(self.of_cluster.gathered(at), 1);
                    at += plan.consumers;
                }
            }
            mbarrier::fence_init();
            thread::sync_threads();
            if Q::is_of_cluster(plan) {
                cluster::arrive_relaxed();
            }
        }
    }

    /// Waits until the barriers of all blocks of the cluster are made.
    ///
    /// # Safety
    /// As for [`prepare`](Self::prepare).
    #[inline(always)]
    pub unsafe fn meet(&self, plan: &Plan) {
        if Q::is_of_cluster(plan) {
            // SAFETY: the caller's contract.
            unsafe { cluster::wait() }
        }
    }

    /// Hands the warp's part of a row to the others that share it.
    ///
    /// A place of a block is used again [`EXCHANGES`] rows later. A warp that sends for a row has received
    /// the row two before it, for which all sent, after they had received the row four before it.
    /// Asynchronous stores to a cluster are not ordered by that: [`turns::order`] does it.
    ///
    /// # Safety
    /// The whole warp calls it, for the rows in order.
    #[inline(always)]
    pub unsafe fn send<T: InF32>(&self, plan: &Plan, own: Pair<T>, turn: u32) {
        // SAFETY: the caller's promise; the warp's place, and barriers of its block and the cluster's.
        unsafe {
            if Q::is_of_cluster(plan) {
                turns::order(turn, plan.tiles);
                return self.send_to_cluster::<T>(plan, own, turn);
            }
            let side = turn % EXCHANGES;
            // Behind it, no lane reads an exchange that the arrival lets others write again.
            sync_warp(FULL_MASK);
            if self.lane() == 0 {
                vector::store_shared_v4(self.desk.parts(side * STAY_WARPS + self.warp()), own.parts());
                mbarrier::arrive(self.desk.sent(side * STAY_WARPS + self.part));
            }
        }
    }

    /// The same to every block of the cluster, a lane for each.
    ///
    /// # Safety
    /// As for [`send`](Self::send); all have read what was there.
    #[inline(always)]
    unsafe fn send_to_cluster<T: InF32>(&self, plan: &Plan, Sums(own): Pair<T>, turn: u32) {
        let gathered = self.of_cluster.gathered(turn & (plan.tiles - 1));
        let warps = plan.consumers / LANES;
        // SAFETY: the caller's promise.
        unsafe {
            if self.thread == 0 {
                mbarrier::arrive_expect_tx(gathered, plan.cluster * warps * STAY_PAIR_BYTES);
            }
            let other = self.lane();
            if other < plan.cluster {
                let at = self.pair(plan, turn, self.number(plan));
                let (to, bar) = (cluster::map_shared(at, other), cluster::map_shared(gathered, other));
                cluster::store_async_v2(to, own, bar);
            }
        }
    }

    /// Where the block has the statistics of that warp of the cluster.
    #[inline(always)]
    fn pair(&self, plan: &Plan, turn: u32, warp: u32) -> u32 {
        let row = (turn & (plan.tiles - 1)) * plan.cluster * (plan.consumers / LANES);
        self.of_cluster.rest() + (row + warp) * STAY_PAIR_BYTES
    }

    /// That of the whole row.
    ///
    /// # Safety
    /// The whole warp calls it, for a row that it has sent for.
    #[inline(always)]
    pub unsafe fn receive<T: InF32>(&self, plan: &Plan, turn: u32) -> Pair<T> {
        let warps = plan.team / LANES;
        let mut part = Pair::<T>::empty();
        // SAFETY: the caller's promise; places are read behind their barrier.
        unsafe {
            if Q::is_of_cluster(plan) {
                let place = self.of_cluster.gathered(turn & (plan.tiles - 1));
                mbarrier::wait_parity(place, turn >> plan.tiles.trailing_zeros() & 1);
                let mut warp = self.lane();
                while warp < plan.cluster * warps {
                    let [of_g, of_distances]: [f32; 2] = vector::load_shared_v2(self.pair(plan, turn, warp));
                    part = Sums([part.0[0] + of_g, part.0[1] + of_distances]);
                    warp += LANES;
                }
                return part.reduce(LANES);
            }
            let side = turn % EXCHANGES * STAY_WARPS;
            mbarrier::wait_parity(self.desk.sent(side + self.part), turn / EXCHANGES % 2);
            let warp = self.lane() % STAY_WARPS;
            if warp < warps {
                let at = self.desk.parts(side + self.part * warps + warp);
                part = Pair::<T>::from_parts(vector::load_shared_v4(at));
            }
            part.reduce(STAY_WARPS)
        }
    }

    /// Behind the last of so many rows: no block of a cluster ends before all have their statistics.
    ///
    /// # Safety
    /// All threads of the cluster call it, after as many rows.
    #[inline(always)]
    pub unsafe fn leave(&self, plan: &Plan, turns: u32) {
        if Q::is_of_cluster(plan) {
            // SAFETY: the caller's contract.
            unsafe {
                turns::leave(turns, plan.tiles);
                cluster::sync();
            }
        }
    }
}
