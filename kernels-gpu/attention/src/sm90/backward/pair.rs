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
//! Rows of 192 elements have turns of their own (`three_boxes.rs`).

use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{cluster, fence, mbarrier, misc, tma, wgmma};
use primitives::pipeline::PipelineState;
use primitives::shared_plan::SharedType;

use super::config::{Barrier, CONSUMER_KEYS, Config, Of, SCORE_BUFFERS, Scores};
use super::consumer::Consumer;
use super::work::Turn;
use crate::score::ScoreFunction;
use crate::sm90::config::WARPGROUP;
use crate::sm90::fragments::{Boxes, Fragment, Rounded, multiply_lines, multiply_rounded, zero};

impl<C: Config> Consumer<'_, C> {
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
                self.values_turn::<IS_FIRST>(gradient, state, sums)
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
        d_values: &mut C::Gradient,
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
                self.leave_scores(0);
            }
            shared.gradient_pipeline().consumer_wait(state);
            wgmma::fence_registers(d_values);
            weights.fence::<C::Scores>();
            wgmma::fence();
            let tile = Self::boxes(shared.gradients(stage), C::QUERY_BOX);
            multiply_rounded::<C::Element, C::Scores, _>(d_values, &weights, tile, !IS_FIRST);
            wgmma::commit_group();
            if !IS_FIRST {
                mbarrier::wait_parity_cluster(shared.scores_empty(0), stage ^ 1);
            }
            kept.write_registers::<C::Scores>(self.place_of_weights(0), WARP_UNITS);
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
            if !IS_FIRST {
                self.start_part(&mut part, stage ^ 1);
            }
            shared.query_pipeline().consumer_wait(state);
            let (turn, drawn) = (self.ticket(stage).read(), self.drawn(stage));
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut weighted);
            if !IS_FIRST {
                wgmma::fence_registers(&mut part);
                self.leave_scores(0);
                self.add(&part, sums);
            }
            Barrier::Weights(0).sync();
            weights.read_registers::<C::Scores>(self.place_of_weights(0), WARP_UNITS);
            self.subtract(&mut differences, &weighted, (&weighted, &weights), drawn, stage);
            // A warp's weights lie where its dS goes.
            sync_warp(FULL_MASK);
            self.release_gradients(stage);
            self.write(&differences, 0);
            fence::proxy_async_shared();
            Barrier::Consumer(self.consumer).sync();
            if self.thread == 0 {
                self.send_scores(0);
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

    /// Starts the consumer's part of dQ as a group, 64 columns, when dS of both blocks has come, in a turn of
    /// this stage.
    ///
    /// # Safety
    /// The whole warpgroup is here.
    #[inline(always)]
    unsafe fn start_part(self, part: &mut C::QueryGradient, stage: u32) {
        // (Rows of three boxes, which have three stages, do not call it.)
        const { assert!(C::HALVES_BOX || C::STAGES == 2, "a phase for each turn") };
        let shared = self.shared;
        let own = self.keys() + (self.rank * C::OTHER_BOXES + self.consumer) * C::KEY_BOX;
        let other = shared.other_keys(0) + self.consumer * C::KEY_BOX;
        // SAFETY: the caller's contract; a barrier of this block, whose round is the turn.
        unsafe {
            mbarrier::wait_parity_cluster(shared.scores_full(0), stage);
            wgmma::fence();
            self.multiply_scores(part, 0, [own, other]);
            wgmma::commit_group();
        }
    }

    /// Starts `part = dS K` of both blocks' dS of this kept turn and their keys, from these columns of a box
    /// of each on.
    ///
    /// # Safety
    /// The whole warpgroup is here, and dS.
    #[inline(always)]
    pub(super) unsafe fn multiply_scores<F: Fragment>(self, part: &mut F, turn: u32, [own, other]: [u32; 2]) {
        let boxes = |first: u32| -> Boxes { Self::boxes(misc::opaque(first), C::KEY_BOX) };
        // SAFETY: the caller's contract.
        unsafe {
            multiply_lines::<C::Element, _, false>(
                part,
                boxes(self.own_scores(turn)),
                boxes(own),
                CONSUMER_KEYS,
            );
            multiply_lines::<C::Element, _, true>(
                part,
                boxes(self.other_scores(turn)),
                boxes(other),
                CONSUMER_KEYS,
            );
        }
    }

    /// Where dS of the block's own keys is, of a turn that is kept.
    #[inline(always)]
    fn own_scores(self, turn: u32) -> u32 {
        self.shared.scores(SCORE_BUFFERS * turn)
    }

    /// Where that of the other block's keys is.
    #[inline(always)]
    fn other_scores(self, turn: u32) -> u32 {
        self.shared.scores(SCORE_BUFFERS * turn + 1)
    }

    /// Tells both blocks that this warp's products have read dS of this kept turn.
    ///
    /// # Safety
    /// The whole warp is here, once a turn but the first, and so it is.
    #[inline(always)]
    pub(super) unsafe fn leave_scores(self, turn: u32) {
        let lane = self.thread % 32;
        // SAFETY: the caller's contract; blocks of a pair meet at the kernel's end.
        unsafe {
            if lane < C::BLOCKS {
                mbarrier::arrive_remote_async(cluster::map_shared(self.shared.scores_empty(turn), lane));
            }
        }
    }

    /// Sends dS of the block's keys, of this kept turn, to the other block, and says that it is here.
    ///
    /// # Safety
    /// One thread calls it, once a turn; dS has been written and fenced, and its writers have met since. The
    /// other block has read what it got there before.
    #[inline(always)]
    pub(super) unsafe fn send_scores(self, turn: u32) {
        let (shared, other) = (self.shared, self.rank ^ 1);
        // SAFETY: the caller's contract.
        unsafe {
            let to = cluster::map_shared(self.other_scores(turn), other);
            let full = cluster::map_shared(shared.scores_full(turn), other);
            tma::bulk_copy_shared(to, self.own_scores(turn), Scores::<C>::BYTES, full);
            mbarrier::arrive_expect_tx(shared.scores_full(turn), Scores::<C>::BYTES);
        }
    }

    /// The thread's first 16 bytes of rounded weights, in the lines of dS of this kept turn that its warp
    /// writes.
    #[inline(always)]
    pub(super) fn place_of_weights(self, turn: u32) -> u32 {
        let warp = self.thread / 32;
        self.own_scores(turn) + warp * (Scores::<C>::BYTES / WARPS) + self.thread % 32 * layout::UNIT_BYTES
    }
}

/// Bytes of 16 bytes a lane of a warp.
pub(super) const WARP_UNITS: u32 = 32 * layout::UNIT_BYTES;
/// Warps of a consumer.
const WARPS: u32 = WARPGROUP / 32;
