//! Statistics of rows between the warps that share them: of a block, or of a cluster's blocks.

use super::Pair;
use crate::function::{Statistics, Sums};
use crate::plan::{
    EXCHANGES, Plan, STAY_CLUSTER_BYTES, STAY_CONTROL_BYTES, STAY_PAIR_BYTES, STAY_PLACES, STAY_WARPS,
};
use crate::sm90::reduce::PARTS_BYTES;
use crate::sm90::turns;
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
    /// Of a block in a cluster, behind the other. Behind it lie the statistics of all the cluster's warps, of
    /// [`STAY_PLACES`] rows.
    pub struct ClusterDesk {
        /// Says that those of a row have come.
        gathered[STAY_PLACES]: Mbarrier,
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

/// A warp of those that share a row.
#[derive(Clone, Copy)]
pub struct Member {
    desk: Desk,
    of_cluster: ClusterDesk,
    /// Number in the block.
    pub warp: u32,
    /// The lane.
    pub lane: u32,
    /// The warp's team in the block.
    pub team: u32,
    /// Number of the warp's block in its cluster.
    pub rank: u32,
}

impl Member {
    /// This warp, with the words of its block from that shared address on.
    #[inline(always)]
    pub fn new(plan: &Plan, base: u32) -> Self {
        let thread = thread::thread_idx_x();
        Self {
            desk: Desk::new(base),
            of_cluster: ClusterDesk::new(base + STAY_CONTROL_BYTES),
            warp: thread / LANES,
            lane: thread % LANES,
            team: thread.checked_div(plan.team).unwrap_or(0),
            rank: if plan.cluster > 1 { cluster::block_rank() } else { 0 },
        }
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
            if plan.cluster == 1 {
                let mut at = thread;
                while at < EXCHANGES * STAY_WARPS {
                    mbarrier::init(self.desk.sent(at), plan.team / LANES);
                    at += plan.consumers;
                }
            } else if thread < STAY_PLACES {
                mbarrier::init(self.of_cluster.gathered(thread), 1);
            }
            mbarrier::fence_init();
            thread::sync_threads();
            if plan.cluster > 1 {
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
        if plan.cluster > 1 {
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
            if plan.cluster > 1 {
                turns::order::<STAY_PLACES>(turn);
                return self.send_to_cluster::<T>(plan, own, turn);
            }
            let side = turn % EXCHANGES;
            // Behind it, no lane reads an exchange that the arrival lets others write again.
            sync_warp(FULL_MASK);
            if self.lane == 0 {
                vector::store_shared_v4(self.desk.parts(side * STAY_WARPS + self.warp), own.parts());
                mbarrier::arrive(self.desk.sent(side * STAY_WARPS + self.team));
            }
        }
    }

    /// The same to every block of the cluster, a lane for each.
    ///
    /// # Safety
    /// As for [`send`](Self::send); all have read what was there.
    #[inline(always)]
    unsafe fn send_to_cluster<T: InF32>(&self, plan: &Plan, Sums(own): Pair<T>, turn: u32) {
        let gathered = self.of_cluster.gathered(turn % STAY_PLACES);
        let warps = plan.consumers / LANES;
        // SAFETY: the caller's promise.
        unsafe {
            if self.warp == 0 && self.lane == 0 {
                mbarrier::arrive_expect_tx(gathered, plan.cluster * warps * STAY_PAIR_BYTES);
            }
            if self.lane < plan.cluster {
                let at = self.pair(plan, turn, self.rank * warps + self.warp);
                let (to, bar) =
                    (cluster::map_shared(at, self.lane), cluster::map_shared(gathered, self.lane));
                cluster::store_async_v2(to, own, bar);
            }
        }
    }

    /// Where the block has the statistics of that warp of the cluster.
    #[inline(always)]
    fn pair(&self, plan: &Plan, turn: u32, warp: u32) -> u32 {
        let row = turn % STAY_PLACES * plan.cluster * (plan.consumers / LANES);
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
            if plan.cluster > 1 {
                let place = self.of_cluster.gathered(turn % STAY_PLACES);
                mbarrier::wait_parity(place, turn / STAY_PLACES % 2);
                let mut warp = self.lane;
                while warp < plan.cluster * warps {
                    let [of_g, of_distances]: [f32; 2] = vector::load_shared_v2(self.pair(plan, turn, warp));
                    part = Sums([part.0[0] + of_g, part.0[1] + of_distances]);
                    warp += LANES;
                }
                return part.reduce(LANES);
            }
            let side = turn % EXCHANGES * STAY_WARPS;
            mbarrier::wait_parity(self.desk.sent(side + self.team), turn / EXCHANGES % 2);
            let warp = self.lane % STAY_WARPS;
            if warp < warps {
                let at = self.desk.parts(side + self.team * warps + warp);
                part = Pair::<T>::from_parts(vector::load_shared_v4(at));
            }
            part.reduce(STAY_WARPS)
        }
    }

    /// Behind the last of so many rows: the others may still send to this block.
    ///
    /// # Safety
    /// All threads of the cluster call it, after as many rows.
    #[inline(always)]
    pub unsafe fn leave(&self, plan: &Plan, turns: u32) {
        if plan.cluster > 1 {
            // SAFETY: the caller's contract.
            unsafe {
                turns::leave::<STAY_PLACES>(turns);
                cluster::sync();
            }
        }
    }
}
