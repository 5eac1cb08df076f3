//! Statistics of rows between the warps that share them: of a block, or of a cluster's blocks.

use super::Kind;
use crate::plan::{
    EXCHANGES, MAX_CLUSTER, Plan, STAY_CLUSTER_BYTES, STAY_CONTROL_BYTES, STAY_PAIR_BYTES, STAY_PLACES,
    STAY_WARPS,
};
use crate::sm90::pair::{HALF, add_half, add_pairs, both};
use crate::sm90::reduce::PARTS_BYTES;
use crate::sm90::turns;
use core::marker::PhantomData;
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, mbarrier, thread, vector};
use primitives::shared_plan::{Mbarrier, SharedPlan};
use primitives::warp::{Exchange, From, LANES, uniform};
use primitives::{shared_bytes, shared_plan};

/// Of a row: sums of the gradient times the weight, and of that times the normalised row.
pub type Pair = [f32; 2];

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
    /// Number of the thread in the block, and of its warp.
    thread: u32,
    warp: u32,
    /// The warp's team in the block; in a cluster, where a block has one, the block's rank.
    part: u32,
    kind: PhantomData<Q>,
}

impl<Q: Kind> Member<Q> {
    /// This warp, with the words of its block from that shared address on.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn new(plan: &Plan, base: u32) -> Self {
        let thread = thread::thread_idx_x();
        // SAFETY: the caller's promise.
        let warp = unsafe { uniform(thread / LANES) };
        Self {
            desk: Desk::new(base),
            of_cluster: ClusterDesk::new(base + STAY_CONTROL_BYTES),
            thread,
            warp,
            part: match Q::is_of_cluster(plan) {
                true => cluster::block_rank(),
                false => (warp * LANES).checked_div(plan.team).unwrap_or(0),
            },
            kind: PhantomData,
        }
    }

    /// Number of the warp in the block.
    #[inline(always)]
    pub fn warp(&self) -> u32 {
        self.warp
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
                self.clear_places(plan);
            }
            mbarrier::fence_init();
            thread::sync_threads();
            if Q::is_of_cluster(plan) {
                cluster::arrive_relaxed();
            }
        }
    }

    /// Writes zeros to the pairs of warps that a cluster has not, which no warp writes.
    ///
    /// # Safety
    /// As for [`prepare`](Self::prepare).
    #[inline(always)]
    unsafe fn clear_places(&self, plan: &Plan) {
        let (of_row, used) = (plan.cluster * STAY_WARPS, plan.cluster * (plan.consumers / LANES));
        let mut at = self.thread;
        while used < of_row && at < STAY_PLACES * STAY_WARPS {
            if at % of_row >= used {
                // SAFETY: the caller's contract; a pair of one thread.
                unsafe { vector::store_shared_v2(self.of_cluster.rest() + at * STAY_PAIR_BYTES, [0.0f32; 2]) }
            }
            at += plan.consumers;
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

    /// Hands the lanes' parts of a row, added up, to the other warps that share it.
    /// [`receive`](Self::receive) takes what this gives.
    ///
    /// A place of a block is used again [`EXCHANGES`] rows later. A warp that sends for a row has received
    /// the row two before it, for which all sent, after they had received the row four before it.
    /// Asynchronous stores to a cluster are not ordered by that: [`turns::order`] does it.
    ///
    /// # Safety
    /// The whole warp calls it, for the rows in order.
    #[inline(always)]
    pub unsafe fn send(&self, plan: &Plan, of_lane: Pair, turn: u32) -> Pair {
        // SAFETY: the caller's promise; the warp's place, and barriers of its block and the cluster's.
        unsafe {
            let own = add_pairs(of_lane, self.lane());
            if Q::is_of_cluster(plan) {
                turns::order(turn, plan.tiles);
                self.send_to_cluster(plan, own, turn);
            } else if plan.team == LANES {
                return both(own);
            } else {
                let side = turn % EXCHANGES;
                // One lane stores both, and arrives: racecheck does not follow another lane's store to the
                // arrival behind `sync_warp`.
                let pair = [own, own.exchange(From::Xor(HALF))];
                // Behind it, no lane reads an exchange that the arrival lets others write again.
                sync_warp(FULL_MASK);
                if self.lane() == 0 {
                    vector::store_shared_v2(self.desk.parts(side * STAY_WARPS + self.warp()), pair);
                    mbarrier::arrive(self.desk.sent(side * STAY_WARPS + self.part));
                }
            }
        }
        [0.0; 2]
    }

    /// The same to every block of the cluster, a lane for each.
    ///
    /// # Safety
    /// As for [`send`](Self::send); all have read what was there.
    #[inline(always)]
    unsafe fn send_to_cluster(&self, plan: &Plan, own: f32, turn: u32) {
        let gathered = self.of_cluster.gathered(turn & (plan.tiles - 1));
        let warps = plan.consumers / LANES;
        // SAFETY: the caller's promise.
        unsafe {
            // Of the lower half, where a lane for each block is.
            let pair = [own, own.exchange(From::Xor(HALF))];
            if self.thread == 0 {
                mbarrier::arrive_expect_tx(gathered, plan.cluster * warps * STAY_PAIR_BYTES);
            }
            let other = self.lane();
            if other < plan.cluster {
                let at = self.pair(plan, turn, self.number(plan));
                let (to, bar) = (cluster::map_shared(at, other), cluster::map_shared(gathered, other));
                cluster::store_async_v2(to, pair, bar);
            }
        }
    }

    /// Where the block has the statistics of that warp of the cluster.
    #[inline(always)]
    fn pair(&self, plan: &Plan, turn: u32, warp: u32) -> u32 {
        let row = (turn & (plan.tiles - 1)) * (plan.cluster * STAY_WARPS * STAY_PAIR_BYTES);
        self.of_cluster.rest() + row + warp * STAY_PAIR_BYTES
    }

    /// Where the sum of the lane's half lies in that place of a warp.
    #[inline(always)]
    fn place_of_half(&self, place: u32) -> u32 {
        self.desk.parts(place) + self.lane() / HALF * size_of::<f32>() as u32
    }

    /// The sums of the whole row.
    ///
    /// # Safety
    /// The whole warp calls it, for a row that it has sent for, with what that gave.
    #[inline(always)]
    pub unsafe fn receive(&self, plan: &Plan, sent: Pair, turn: u32) -> Pair {
        // SAFETY: the caller's promise; places are read behind their barrier.
        unsafe {
            if Q::is_of_cluster(plan) {
                let place = self.of_cluster.gathered(turn & (plan.tiles - 1));
                mbarrier::wait_parity(place, turn >> plan.tiles.trailing_zeros() & 1);
                return both(add_pairs(self.of_lane(plan, turn), self.lane()));
            }
            if plan.team == LANES {
                return sent;
            }
            let side = turn % EXCHANGES * STAY_WARPS;
            mbarrier::wait_parity(self.desk.sent(side + self.part), turn / EXCHANGES % 2);
            let (warps, warp, mut part) = (plan.team / LANES, self.lane() % HALF, 0.0);
            if warp < warps {
                part = vector::load_shared(self.place_of_half(side + self.part * warps + warp));
            }
            both(add_half(part))
        }
    }

    /// The lane's part of the sums of the cluster's warps: one pair of two blocks, or two of four, or four.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive), behind the barrier.
    #[inline(always)]
    unsafe fn of_lane(&self, plan: &Plan, turn: u32) -> Pair {
        const { assert!(MAX_CLUSTER == 8 && STAY_WARPS == HALF, "counted out") };
        let at = self.pair(plan, turn, 0);
        // SAFETY: the caller's promise; warps that there are not have zeros.
        unsafe {
            if plan.cluster == 2 {
                return vector::load_shared_v2(at + self.lane() * STAY_PAIR_BYTES);
            }
            let at = at + self.lane() * 2 * STAY_PAIR_BYTES;
            let [a, b, c, d]: [f32; 4] = vector::load_shared_v4(at);
            let mut pair = [a + c, b + d];
            if plan.cluster == MAX_CLUSTER {
                let [a, b, c, d]: [f32; 4] = vector::load_shared_v4(at + LANES * 2 * STAY_PAIR_BYTES);
                pair = [pair[0] + (a + c), pair[1] + (b + d)];
            }
            pair
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
