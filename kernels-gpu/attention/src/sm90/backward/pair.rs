//! The main pass of long rows: two blocks of a cluster have 64 keys each.
//!
//! ```text
//!   consumer 0   S^T | e^(S - L) beside dQ of the last tile | P to shared memory, dV += P^T dO
//!   consumer 1   dP^T beside dQ of the last tile | P (dP - D) | dS to both blocks, dK += dS^T Q
//! ```
//! Accumulators of 128 keys by 256 columns are more than a block's registers. So a block has 64 keys, of
//! which one consumer sums dV and the other one dK. P goes from the one to the other in the order of
//! registers, through the place where dS will be. Each block computes half of the columns of dQ, of the keys
//! of both: it needs dS of the other block, which comes through the cluster's shared memory, and those
//! columns of the other block's keys. So as many numbers are added to the sums of dQ as by a block of 128
//! keys. Both blocks need the same queries and gradients; each brings half of the columns to both.
//!
//! Shared memory, KiB: K and V 64, K of the other block 16, two stages of Q and dO 128, dS of both blocks 16.
//! Registers of a thread: 128 of dV or dK, 32 of S or dP, 32 of dQ, 16 or 32 of rounded weights.
//!
//! Rows of 192 elements are three boxes, a box and a half for each block ([`Config::HALVES_BOX`]):
//! ```text
//!   columns   0..64     64..96    96..128   128..192
//!   dQ of     block 0   block 0   block 1   block 1
//! ```
//! A product reads a box or a half of it, so a block's part is two products wide. Consumer 0 computes all of
//! it: values of 128 elements leave it the registers, and dS, for which all consumers wait, comes from
//! consumer 1. Both blocks have as many products: per 64 keys and 64 queries 192 columns of S, 128 of dV, 128
//! of dP, 192 of dK, and for dQ of 128 keys twice 96, which is 832. Rows of 256 have 1280.
//!
//! Shared memory, KiB: K 24, V 16, K of the other block 16, two stages of Q and dO 80, dS 16. Registers of a
//! thread: 64 of dV, 32 of S, 48 of dQ; or 96 of dK, 32 of dP; and rounded weights.

use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, fence, mbarrier, misc, tma, wgmma};
use primitives::pipeline::{Depth, PipelineState};
use primitives::shared_plan::SharedType;
use primitives::tma::LINE_BYTES;

use super::config::{Barrier, CONSUMER_KEYS, CONSUMERS, Config, Of, Scores};
use super::consumer::Consumer;
use super::work::Turn;
use crate::score::ScoreFunction;
use crate::sm90::config::{BOX_COLUMNS, WARPGROUP};
use crate::sm90::fragments::{
    Boxes, Fragment, Rounded, first_columns, multiply_lines, multiply_rounded, zero,
};

impl<C: Config> Consumer<'_, C> {
    /// Whether the consumer of dK computes a part of dQ too.
    const KEYS_HAVE_PART: bool = C::PART_CONSUMERS == CONSUMERS;

    /// Computes the gradients of the block's keys.
    ///
    /// # Safety
    /// As for [`run`](super::main_pass::run); all threads of all consumers of both blocks call it.
    #[inline(always)]
    pub(super) unsafe fn run_in_pair(self, has_turns: bool) {
        let mut gradient: C::Gradient = zero();
        // SAFETY: the caller's contract.
        unsafe {
            if has_turns {
                wgmma::fence_registers(&mut gradient);
                self.wait_for_keys();
                if self.arguments.is_packed::<C>() {
                    self.clear_foreign_keys_of_pair();
                }
                if self.consumer == 0 {
                    self.sum_in_pair::<false>(&mut gradient);
                } else {
                    self.sum_in_pair::<true>(&mut gradient);
                }
            }
            self.store_in_pair(gradient);
        }
    }
    /// Sums dK of the block's keys (`OF_KEYS`) or dV over the tiles of queries, and adds dQ to its sums.
    ///
    /// # Safety
    /// As for [`run_in_pair`](Self::run_in_pair); there are tiles, and the keys have come.
    #[inline(always)]
    unsafe fn sum_in_pair<const OF_KEYS: bool>(self, gradient: &mut C::Gradient) {
        let mut state = PipelineState::<Of<C>>::START;
        // SAFETY: the caller's contract.
        unsafe {
            // The first turn apart: what passes from a branch to a later one would be live in all turns.
            let mut turn = self.turn::<OF_KEYS, true>(gradient, state, core::ptr::null_mut());
            while !turn.is_last {
                let sums = self.sums(turn.row);
                state = state.next();
                turn = self.turn::<OF_KEYS, false>(gradient, state, sums);
            }
            if OF_KEYS && !Self::KEYS_HAVE_PART {
                return;
            }
            let mut part: C::QueryGradient = zero();
            self.start_part(&mut part, state.stage);
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut part);
            self.add(&part, self.sums(turn.row));
        }
    }

    /// A tile of queries; `sums` are those of the tile before, unless it is the first.
    ///
    /// # Safety
    /// As for [`sum_in_pair`](Self::sum_in_pair).
    #[inline(always)]
    unsafe fn turn<const OF_KEYS: bool, const IS_FIRST: bool>(
        self,
        gradient: &mut C::Gradient,
        state: PipelineState<Of<C>>,
        sums: *mut f32,
    ) -> Turn {
        // SAFETY: the caller's contract.
        unsafe {
            if self.arguments.is_packed::<C>() {
                self.clear_foreign_queries(state);
            }
            if OF_KEYS {
                self.keys_turn::<IS_FIRST>(gradient, state, sums)
            } else {
                self.values_turn::<IS_FIRST>(first_columns(gradient), state, sums)
            }
        }
    }

    /// The turn of the consumer that has dV.
    ///
    /// # Safety
    /// As for [`turn`](Self::turn).
    #[inline(always)]
    unsafe fn values_turn<const IS_FIRST: bool>(
        self,
        d_values: &mut C::ValueGradient,
        state: PipelineState<Of<C>>,
        sums: *mut f32,
    ) -> Turn {
        let (shared, stage) = (self.shared, state.stage);
        let mut scores: C::Scores = zero();
        let mut part: C::QueryGradient = zero();
        let mut weights = Rounded::zero();
        // SAFETY: the caller's contract. Stages are read between their wait and their release; registers of
        // products under way are left alone until the wait for them.
        unsafe {
            self.start_scores(&mut scores, state);
            let turn = self.ticket(stage).read();
            let seen = if C::Function::IS_IDENTITY { [u32::MAX; 2] } else { self.seen(stage) };
            let drawn = self.drawn(stage);
            if IS_FIRST {
                wgmma::wait_group::<0>();
            } else {
                self.start_part(&mut part, stage ^ 1);
                wgmma::wait_group::<1>();
            }
            wgmma::fence_registers(&mut scores);
            // The product's own registers are not to be read while it is under way.
            let kept = if C::Function::IS_IDENTITY {
                self.weigh(&mut scores, stage);
                if turn.is_partial {
                    self.mask(&mut scores, turn.block);
                }
                self.round(&mut weights, &scores, drawn)
            } else {
                self.weigh_with_function(&mut scores, &mut weights, stage, seen)
            };
            sync_warp(FULL_MASK);
            self.release_queries(stage);
            if !IS_FIRST {
                wgmma::wait_group::<0>();
                wgmma::fence_registers(&mut part);
                self.leave_scores();
            }
            shared.gradient_pipeline().consumer_wait(state);
            wgmma::fence_registers(d_values);
            weights.fence::<C::Scores>();
            wgmma::fence();
            let tile = Self::boxes(shared.gradients(stage), C::QUERY_BOX);
            multiply_rounded::<C::Element, C::Scores, _>(d_values, &weights, tile, !IS_FIRST);
            wgmma::commit_group();
            if !IS_FIRST {
                mbarrier::wait_parity_cluster(shared.scores_empty(), stage ^ 1);
            }
            kept.write_registers::<C::Scores>(self.place_of_weights(), WARP_UNITS);
            Barrier::Weights(0).arrive();
            if !IS_FIRST {
                self.add(&part, sums);
            }
            wgmma::wait_group::<0>();
            wgmma::fence_registers(d_values);
            self.release_gradients(stage);
            turn
        }
    }

    /// The turn of the consumer that has dK.
    ///
    /// # Safety
    /// As for [`turn`](Self::turn).
    #[inline(always)]
    unsafe fn keys_turn<const IS_FIRST: bool>(
        self,
        d_keys: &mut C::Gradient,
        state: PipelineState<Of<C>>,
        sums: *mut f32,
    ) -> Turn {
        let (shared, stage) = (self.shared, state.stage);
        let mut weighted: C::Scores = zero();
        let mut part: C::QueryGradient = zero();
        let (mut weights, mut differences) = (Rounded::zero(), Rounded::zero());
        // SAFETY: as in the turn of the other consumer.
        unsafe {
            self.start_weighted(&mut weighted, state);
            if !IS_FIRST && Self::KEYS_HAVE_PART {
                self.start_part(&mut part, stage ^ 1);
            }
            shared.query_pipeline().consumer_wait(state);
            let (turn, drawn) = (self.ticket(stage).read(), self.drawn(stage));
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut weighted);
            if !IS_FIRST && Self::KEYS_HAVE_PART {
                wgmma::fence_registers(&mut part);
                self.leave_scores();
                self.add(&part, sums);
            }
            Barrier::Weights(0).sync();
            weights.read_registers::<C::Scores>(self.place_of_weights(), WARP_UNITS);
            self.subtract(&mut differences, &weighted, (&weighted, &weights), drawn, stage);
            // A warp's weights lie where its dS goes.
            sync_warp(FULL_MASK);
            self.release_gradients(stage);
            self.write(&differences, 0);
            fence::proxy_async_shared();
            Barrier::Consumer(self.consumer).sync();
            if self.thread == 0 {
                self.send_scores();
            }
            wgmma::fence_registers(d_keys);
            differences.fence::<C::Scores>();
            wgmma::fence();
            let tile = Self::boxes(shared.queries(stage), C::QUERY_BOX);
            multiply_rounded::<C::Element, C::Scores, _>(d_keys, &differences, tile, !IS_FIRST);
            wgmma::commit_group();
            wgmma::wait_group::<0>();
            wgmma::fence_registers(d_keys);
            self.release_queries(stage);
            turn
        }
    }

    /// Starts the consumer's part of dQ as a group, when dS of both blocks has come, in a turn of this stage:
    /// 64 columns, or, where blocks halve a box, a box and their half of it.
    ///
    /// # Safety
    /// The whole warpgroup is here.
    #[inline(always)]
    unsafe fn start_part(self, part: &mut C::QueryGradient, stage: u32) {
        const { assert!(<Of<C> as Depth>::STAGES == 2, "a phase for each turn") };
        let shared = self.shared;
        let own = self.keys() + (self.rank * C::OTHER_BOXES + self.consumer) * C::KEY_BOX;
        // The first block brings its box before that in the middle, the second one behind it.
        let place = if C::HALVES_BOX { self.rank } else { self.consumer };
        let other = shared.other_keys(0) + place * C::KEY_BOX;
        // SAFETY: the caller's contract; a barrier of this block, whose round is the turn.
        unsafe {
            mbarrier::wait_parity_cluster(shared.scores_full(), stage);
            wgmma::fence();
            if C::HALVES_BOX {
                let Some((of_box, of_half)) = box_and_half(part.as_mut()) else { return };
                self.multiply_scores(of_box, [own, other]);
                let half = self.rank * HALF * ELEMENT_BYTES;
                let middle = [self.keys() + C::KEY_BOX, shared.other_keys(0) + (self.rank ^ 1) * C::KEY_BOX];
                self.multiply_scores(of_half, middle.map(|first| first + half));
            } else {
                self.multiply_scores(part, [own, other]);
            }
            wgmma::commit_group();
        }
    }

    /// Starts `part = dS K` of both blocks' dS and keys, from these columns of a box of each on.
    ///
    /// # Safety
    /// The whole warpgroup is here, and dS.
    #[inline(always)]
    unsafe fn multiply_scores<F: Fragment>(self, part: &mut F, [own, other]: [u32; 2]) {
        let shared = self.shared;
        let boxes = |first: u32| -> Boxes { Self::boxes(misc::opaque(first), C::KEY_BOX) };
        // SAFETY: the caller's contract.
        unsafe {
            multiply_lines::<C::Element, _, false>(part, boxes(shared.scores(0)), boxes(own), CONSUMER_KEYS);
            multiply_lines::<C::Element, _, true>(part, boxes(shared.scores(1)), boxes(other), CONSUMER_KEYS);
        }
    }

    /// Tells both blocks that this warp's products have read dS.
    ///
    /// # Safety
    /// The whole warp is here, once a turn but the first, and so it is.
    #[inline(always)]
    unsafe fn leave_scores(self) {
        let lane = self.thread % 32;
        // SAFETY: the caller's contract; blocks of a pair meet at the kernel's end.
        unsafe {
            if lane < C::BLOCKS {
                mbarrier::arrive_remote_async(cluster::map_shared(self.shared.scores_empty(), lane));
            }
        }
    }

    /// Sends dS of the block's keys to the other block, and says that it is here.
    ///
    /// # Safety
    /// One thread calls it, once a turn; dS has been written and fenced, and its writers have met since. The
    /// other block has read what it got in the turn before.
    #[inline(always)]
    unsafe fn send_scores(self) {
        let (shared, other) = (self.shared, self.rank ^ 1);
        // SAFETY: the caller's contract.
        unsafe {
            let to = cluster::map_shared(shared.scores(1), other);
            let full = cluster::map_shared(shared.scores_full(), other);
            tma::bulk_copy_shared(to, shared.scores(0), Scores::<C>::BYTES, full);
            mbarrier::arrive_expect_tx(shared.scores_full(), Scores::<C>::BYTES);
        }
    }

    /// The thread's first 16 bytes of rounded weights, in the lines of dS that its warp writes.
    #[inline(always)]
    fn place_of_weights(self) -> u32 {
        let warp = self.thread / 32;
        self.shared.scores(0) + warp * (Scores::<C>::BYTES / WARPS) + self.thread % 32 * layout::UNIT_BYTES
    }
}

/// Columns of half a box.
const HALF: u32 = BOX_COLUMNS / 2;
/// Bytes of an element of keys.
const ELEMENT_BYTES: u32 = LINE_BYTES / BOX_COLUMNS;
/// A thread's numbers of 64 queries by a box, and by half a box.
const OF_BOX: usize = BOX_COLUMNS as usize / 2;
const OF_HALF: usize = HALF as usize / 2;

/// A thread's part of dQ of a box and a half.
#[inline(always)]
fn box_and_half(part: &mut [f32]) -> Option<(&mut [f32; OF_BOX], &mut [f32; OF_HALF])> {
    let (of_box, rest) = part.split_first_chunk_mut()?;
    Some((of_box, rest.first_chunk_mut()?))
}

/// Bytes of 16 bytes a lane of a warp.
const WARP_UNITS: u32 = 32 * layout::UNIT_BYTES;
/// Warps of a consumer.
const WARPS: u32 = WARPGROUP / 32;
