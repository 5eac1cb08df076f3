//! Where two blocks share the keys of a head out ([`halves`](super::halves)): sums of dQ by warps beside
//! those that multiply.

use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::wgmma::Accumulator;
use cuda_std::{mbarrier, misc, vector};
use primitives::shared_plan::SharedType;
use primitives::unroll;
use primitives::wgmma::Element16;

use super::arguments::Arguments;
use super::config::{Config, Inbox, Plan};
use super::finish::transpose;
use super::halves::Passes;
use super::main_pass::WARPS;
use super::work::Work;
use crate::sm90::config::WARPGROUP;
use crate::sm90::fragments::steps;

/// Warps that add up parts of dQ.
pub(super) const ADDERS: u32 = 2;

/// A lane of a warp that adds up the block's columns of dQ: of both blocks' keys, pass by pass.
#[derive(Clone, Copy)]
pub(super) struct Adder<'a, C: Config> {
    pub arguments: Arguments<'a>,
    pub shared: Plan<C>,
    /// The block's number in its cluster.
    pub rank: u32,
    /// The warp's number among the adders.
    pub warp: u32,
    pub lane: u32,
}

/// Four numbers of each of four steps of eight columns: what is stored at once.
type Group = [[f32; 4]; 4];
/// Rows of dQ of a warp, and columns of a group.
const WARP_ROWS: u32 = 16;
const GROUP_COLUMNS: u32 = 32;
/// Of the warps of a consumer, how many an adder stands for.
const SHARE: u32 = WARPS / ADDERS;

/// A tile of queries whose dQ is added up.
#[derive(Clone, Copy)]
struct Sum {
    /// The lane's first sum of the tile.
    sums: *mut f32,
    /// The lane's first eight numbers of dQ.
    results: *mut u16,
    /// Rows of dQ from that one on.
    rows: u32,
    /// Whether no sum is there yet.
    is_first: bool,
    /// Whether no part follows.
    is_last: bool,
}

impl<C: Config> Adder<'_, C> {
    /// Groups of a lane in a turn.
    const GROUPS: usize = SHARE as usize * steps::<C::QueryGradient>() / 4;

    /// Adds up the parts of all turns.
    ///
    /// # Safety
    /// As for [`halves::run`](super::halves::run); all lanes of all adders call it after the barriers are
    /// made.
    #[inline(always)]
    pub unsafe fn run(self) {
        let mut number = 0;
        // SAFETY: the caller's contract.
        unsafe {
            loop {
                // Places are computed in each turn, and not kept in registers.
                let (of_turn, turn) = (Self { lane: misc::opaque(self.lane), ..self }, misc::opaque(number));
                let (passes, index) = Passes::of_turn::<C>(self.arguments.params, turn);
                let Some(work) = passes.get::<C>(self.rank) else { break };
                of_turn.add(of_turn.sum(passes, work, index), turn % 2);
                number += 1;
            }
        }
    }

    /// The sum of a turn of a pass.
    #[inline(always)]
    fn sum(self, passes: Passes<'_>, work: Work, index: u32) -> Sum {
        let Arguments { params, rows, queries, .. } = self.arguments;
        let Work { tile, sequence, .. } = work;
        let cluster = Passes::new::<C>(params).number;
        let (block, of_group) = passes.turn::<C>(work, index);
        let first_row = block * C::BLOCK_M;
        let row = (cluster * params.group + of_group) * params.padded_rows + first_row;
        let own = self.rank * (Inbox::<C>::BYTES / 4) + self.first_place();
        let first_row = first_row + self.warp * SHARE * WARP_ROWS + self.lane / 4;
        let column = self.rank * C::QueryGradient::N + self.lane % 4 * 8;
        let head = tile.head * params.group + of_group;
        let at = queries.strides.at(first_row, head, sequence.matrix) + column as usize;
        Sum {
            sums: rows.sums.wrapping_add(row as usize * C::HEAD as usize + own as usize),
            results: queries.data.wrapping_add(at),
            rows: sequence.queries.saturating_sub(first_row),
            is_first: passes.pass == 0,
            is_last: passes.pass + 1 == passes.count::<C>(),
        }
    }

    /// Adds up the parts of a turn of this parity.
    ///
    /// # Safety
    /// The whole warp calls it, once a turn. The sums are the cluster's, and each number of them the lane's.
    #[inline(always)]
    unsafe fn add(self, sum: Sum, parity: u32) {
        const { assert!(Self::GROUPS == 4, "counted out") };
        let full = self.shared.inbox_full(0);
        // SAFETY: the caller's contract; the other block sends its part of each turn, and the block's own
        // consumer writes one.
        unsafe {
            if self.warp == 0 && self.lane == 0 {
                mbarrier::arrive_expect_tx(full, Inbox::<C>::BYTES * (C::CLUSTER - 1));
            }
            let first = self.before(sum, 0);
            mbarrier::wait_parity_cluster(full, parity);
            let second = self.before(sum, 1);
            self.store(sum, self.with_inbox(first, 0), 0);
            let third = self.before(sum, 2);
            self.store(sum, self.with_inbox(second, 1), 1);
            let last = self.before(sum, 3);
            self.store(sum, self.with_inbox(third, 2), 2);
            let last = self.with_inbox(last, 3);
            self.leave_inbox();
            self.store(sum, last, 3);
        }
    }

    /// Where the lane's first numbers lie, among those of a part.
    #[inline(always)]
    const fn first_place(self) -> u32 {
        (self.warp * SHARE * 32 + self.lane) * 4
    }

    /// How far the numbers of a group and step are from these: two groups of a warp, one after the other.
    #[inline(always)]
    const fn place(group: usize, step: usize) -> usize {
        ((group % 2 * 4 + step) * WARPGROUP as usize + group / 2 * 32) * 4
    }

    /// The sums of a group, of the passes before.
    ///
    /// # Safety
    /// As for [`add`](Self::add).
    #[inline(always)]
    unsafe fn before(self, Sum { sums, is_first, .. }: Sum, group: usize) -> Group {
        let mut quads = [[0.0; 4]; 4];
        if !is_first {
            // SAFETY: the caller's contract; the lane has stored them.
            unroll!(STEP in 0..4, {
                quads[STEP] = unsafe { vector::load_l2_v4(sums.add(Self::place(group, STEP))) };
            });
        }
        quads
    }

    /// A group with both blocks' parts, in the order of their keys.
    ///
    /// # Safety
    /// The inbox is full.
    #[inline(always)]
    unsafe fn with_inbox(self, mut quads: Group, group: usize) -> Group {
        let first = self.shared.inbox(0) + self.first_place() * 4;
        unroll!(STEP in 0..4, {
            unroll!(BLOCK in 0..2, {
                let from = first + BLOCK as u32 * Inbox::<C>::BYTES + Self::place(group, STEP) as u32 * 4;
                // SAFETY: the caller's contract.
                let part: [f32; 4] = unsafe { vector::load_shared_v4(from) };
                unroll!(I in 0..4, { quads[STEP][I] += part[I]; });
            });
        });
        quads
    }

    /// Tells that this warp has read the inbox. Another warp tells the other block, as that would have to
    /// wait for what this one has stored.
    ///
    /// # Safety
    /// The whole warp calls it, once a turn.
    #[inline(always)]
    unsafe fn leave_inbox(self) {
        // SAFETY: the caller's contract; the barrier counts each warp once a turn.
        unsafe {
            sync_warp(FULL_MASK);
            if self.lane == 0 {
                mbarrier::arrive(self.shared.inbox_empty(self.rank));
            }
        }
    }

    /// Keeps a group, or rounds and stores it as dQ.
    ///
    /// # Safety
    /// As for [`add`](Self::add).
    #[inline(always)]
    unsafe fn store(self, sum: Sum, quads: Group, group: usize) {
        let Sum { sums, results, rows, is_last, .. } = sum;
        let Arguments { params, queries, .. } = self.arguments;
        // SAFETY: the caller's contract.
        unsafe {
            if !is_last {
                unroll!(STEP in 0..4, { vector::store_v4(sums.add(Self::place(group, STEP)), quads[STEP]); });
                return;
            }
            let column = group as u32 % 2 * GROUP_COLUMNS;
            let is_there = self.rank * C::QueryGradient::N + self.lane % 4 * 8 + column < params.head_size;
            let mut rounded = [[0u32; 4]; 2];
            unroll!(STEP in 0..4, {
                let [a, b, c, d] = quads[STEP].map(|x| x * params.scale);
                rounded[0][STEP] = C::Element::pack(a, b);
                rounded[1][STEP] = C::Element::pack(c, d);
            });
            unroll!(ROW in 0..2, {
                let pairs = transpose(rounded[ROW], self.lane % 4);
                let row = group as u32 / 2 * WARP_ROWS + 8 * ROW as u32;
                if row < rows && is_there {
                    let at = row as usize * queries.strides.row as usize + column as usize;
                    vector::store_v4(results.add(at).cast::<u32>(), pairs);
                }
            });
        }
    }
}
