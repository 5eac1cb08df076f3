//! Statistics of a row: warps of a block send theirs to each other, blocks of a cluster those of all their
//! warps, and read them a row later, while the next row is on its way.

use super::ring::{Cursor, Shared};
use crate::function::{PARTS, Statistics};
use crate::plan::{EXCHANGES, MAX_CLUSTER, Plan};
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, mbarrier, vector};
use primitives::warp::LANES;

/// A thread's place in its block, as far as statistics ask.
#[derive(Clone, Copy)]
pub struct Member {
    /// The thread.
    pub thread: u32,
    /// Its team.
    pub team: u32,
}

/// Where the statistics of a team's row go: the `turn`-th of its rows.
///
/// A place is used again [`EXCHANGES`] rows later. A warp that sends for a row has read those of the row two
/// before it, so one that has what all sent for row `n` knows that row `n - 2` has been read by all: it
/// writes to that row's places with row `n + 2`. Asynchronous stores are ordered by nothing that a thread
/// knows: those of a cluster wait until each of its blocks has said that the row has been left ([`left`]).
const _: () = assert!(EXCHANGES == 4);

/// Hands the warp's statistics to all warps of the team, its own included; in a cluster to the warp that
/// hands the block's on.
///
/// # Safety
/// All threads of the warp call it, for the team's rows in order.
#[inline(always)]
pub unsafe fn send<S: Statistics<f32>>(plan: &Plan, shared: Shared, own: S, member: Member, turn: u32) -> S {
    // SAFETY: the caller's contract; a place of this warp, which all have left.
    unsafe {
        if plan.team <= LANES {
            return own.reduce(plan.team);
        }
        let (of_warp, side) = (own.reduce(LANES), turn % EXCHANGES);
        let (warp, lane) = (member.thread / LANES, member.thread % LANES);
        if plan.cluster > 1 && turn >= EXCHANGES {
            mbarrier::wait_parity_cluster(shared.control.read(side), (turn / EXCHANGES - 1) % 2);
        }
        if lane == 0 {
            vector::store_shared_v4(shared.control.parts(side * plan.slots + warp), of_warp.parts());
            mbarrier::arrive(shared.control.exchange(side * MAX_TEAMS + member.team));
        }
        of_warp
    }
}

/// Most teams of several warps in a block.
pub const MAX_TEAMS: u32 = crate::plan::MAX_CONSUMERS / (2 * LANES);

/// Hands the statistics of the block's warps, added up, to all blocks of the cluster, for all its rows. A
/// message from each block to each is what a row takes: from each warp it took longer than the row's bytes
/// where a cluster had 64 warps or more.
///
/// # Safety
/// One whole warp calls it, in a cluster of several blocks, whose consumers send for the same tiles.
#[inline(always)]
pub unsafe fn hand_on<S: Statistics<f32>>(
    plan: &Plan,
    shared: Shared,
    [lane, rank]: [u32; 2],
    [mut tile, step]: [u32; 2],
) {
    let (mut turn, mut cursor) = (0, Cursor::START);
    while tile < plan.tiles {
        let (side, phase) = (turn % EXCHANGES, turn / EXCHANGES % 2);
        // SAFETY: the warps' places, behind the barrier that says they are written; places of blocks that
        // wait for this one, and have said that they read what was there.
        unsafe {
            mbarrier::wait_parity(shared.control.exchange(side * MAX_TEAMS), phase);
            let of_warp = load(shared.control.parts(side * plan.slots + (lane & (plan.slots - 1))));
            let of_block = S::reduce(of_warp, plan.slots);
            let gathered = shared.control.gathered(side);
            sync_warp(FULL_MASK);
            if lane == 0 {
                mbarrier::arrive(shared.control.empty(cursor.stage));
                mbarrier::arrive_expect_tx(gathered, plan.cluster * PARTS_BYTES as u32);
            }
            if turn >= EXCHANGES {
                mbarrier::wait_parity_cluster(shared.control.read(side), (turn / EXCHANGES - 1) % 2);
            }
            if lane < plan.cluster {
                // A release to the cluster would wait for the results of the row before.
                let slot = shared.control.of_blocks(side * MAX_CLUSTER + rank);
                let (to, bar) = (cluster::map_shared(slot, lane), cluster::map_shared(gathered, lane));
                cluster::store_async_v4(to, of_block.parts(), bar);
            }
        }
        cursor = cursor.next(plan);
        tile += step;
        turn += 1;
    }
}

/// The statistics at this shared address.
///
/// # Safety
/// They are there.
#[inline(always)]
unsafe fn load<S: Statistics<f32>>(address: u32) -> S {
    // SAFETY: the caller's word.
    S::from_parts(unsafe { vector::load_shared_v4(address) })
}

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
        let lane = member.thread % LANES;
        if plan.cluster > 1 {
            mbarrier::wait_parity(shared.control.gathered(side), phase);
            let block = lane & (plan.cluster - 1);
            return S::reduce(load(shared.control.of_blocks(side * MAX_CLUSTER + block)), plan.cluster);
        }
        mbarrier::wait_parity(shared.control.exchange(side * MAX_TEAMS + member.team), phase);
        let warps = plan.team / LANES;
        let warp = member.team * warps + (lane & (warps - 1));
        S::reduce(load(shared.control.parts(side * plan.slots + warp)), warps)
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
