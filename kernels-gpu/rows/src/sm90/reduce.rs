//! Statistics of a row: warps of all blocks that share it send theirs to each other, and read them a row
//! later, while the next row is on its way.

use super::ring::Shared;
use crate::function::{PARTS, Statistics};
use crate::plan::{EXCHANGES, Plan};
use cuda_std::{cluster, mbarrier, vector};
use primitives::warp::LANES;

/// A thread's place in its block, as far as statistics ask.
#[derive(Clone, Copy)]
pub struct Member {
    /// The thread.
    pub thread: u32,
    /// Its team.
    pub team: u32,
    /// Rank of the block in its cluster.
    pub rank: u32,
}

/// Where the statistics of a team's row go: the `turn`-th of its rows.
///
/// A place is used again [`EXCHANGES`] rows later. A warp that sends for a row has read those of the row two
/// before it, so one that has what all sent for row `n` knows that row `n - 2` has been read by all: it
/// writes to that row's places with row `n + 2`. Asynchronous stores are ordered by nothing that a thread
/// knows: those of a cluster wait until each of its blocks has said that the row has been left ([`left`]).
const _: () = assert!(EXCHANGES == 4);

/// Hands the warp's statistics to all warps of the row's, its own included.
///
/// # Safety
/// All threads of the warp call it, for the team's rows in order.
#[inline(always)]
pub unsafe fn send<S: Statistics<f32>>(plan: &Plan, shared: Shared, own: S, member: Member, turn: u32) -> S {
    // SAFETY: the caller's contract; places of this warp, in this block or one that waits for them.
    unsafe {
        if plan.team <= LANES {
            return own.reduce(plan.team);
        }
        let (of_warp, side) = (own.reduce(LANES), turn % EXCHANGES);
        let (warp, lane) = (member.thread / LANES, member.thread % LANES);
        let bar = shared.control.exchange(side * MAX_TEAMS + member.team);
        let slot = shared.control.parts(side * plan.slots + member.rank * (plan.consumers / LANES) + warp);
        if plan.cluster > 1 {
            if member.thread == 0 {
                mbarrier::arrive_expect_tx(bar, plan.slots * PARTS_BYTES as u32);
            }
            if turn >= EXCHANGES {
                mbarrier::wait_parity_cluster(shared.control.read(side), (turn / EXCHANGES - 1) % 2);
            }
            if lane < plan.cluster {
                // A release to the cluster would wait for the results of the row before.
                let (to, bar) = (cluster::map_shared(slot, lane), cluster::map_shared(bar, lane));
                cluster::store_async_v4(to, of_warp.parts(), bar);
            }
        } else if lane == 0 {
            vector::store_shared_v4(slot, of_warp.parts());
            mbarrier::arrive(bar);
        }
        of_warp
    }
}

/// Most teams of several warps in a block.
pub const MAX_TEAMS: u32 = crate::plan::MAX_CONSUMERS / (2 * LANES);

/// The statistics of the whole row, whose `turn` it is; `sent` is what [`send`] gave for it.
///
/// # Safety
/// As for [`send`], which has been called for the row.
#[inline(always)]
pub unsafe fn receive<S: Statistics<f32>>(
    plan: &Plan,
    shared: Shared,
    sent: S,
    member: Member,
    turn: u32,
) -> S {
    // SAFETY: the caller's contract.
    unsafe {
        if plan.team <= LANES {
            return sent;
        }
        let (side, phase) = (turn % EXCHANGES, turn / EXCHANGES % 2);
        let bar = shared.control.exchange(side * MAX_TEAMS + member.team);
        let lane = member.thread % LANES;
        let load =
            |slot: u32| S::from_parts(vector::load_shared_v4(shared.control.parts(side * plan.slots + slot)));
        if plan.cluster > 1 {
            mbarrier::wait_parity(bar, phase);
            if plan.slots > LANES {
                // Some rounds of 32, whose results go to neighbours.
                let (rounds, mut round) = (plan.slots / LANES, 0);
                let mut all = S::empty();
                while round < rounds {
                    let of_round = load(round * LANES + lane).reduce(LANES);
                    if lane & (rounds - 1) == round {
                        all = of_round;
                    }
                    round += 1;
                }
                return all.reduce(rounds);
            }
            return load(lane & (plan.slots - 1)).reduce(plan.slots);
        }
        mbarrier::wait_parity(bar, phase);
        let warps = plan.team / LANES;
        load(member.team * warps + (lane & (warps - 1))).reduce(warps)
    }
}

/// Says to all blocks of the cluster that this one's warps have read the statistics of the `turn`-th row, and
/// mapped it. The warp that copies does: it stores nothing that the release would wait for.
///
/// # Safety
/// The warp has waited until the row's stage was left.
#[inline(always)]
pub unsafe fn left(plan: &Plan, shared: Shared, lane: u32, turn: u32) {
    if lane < plan.cluster {
        let bar = cluster::map_shared(shared.control.read(turn % EXCHANGES), lane);
        // SAFETY: a barrier of a block that waits for this one before it exits.
        unsafe { mbarrier::arrive_remote(bar) }
    }
}

/// Bytes of what a warp sends.
pub const PARTS_BYTES: usize = PARTS * size_of::<f32>();
