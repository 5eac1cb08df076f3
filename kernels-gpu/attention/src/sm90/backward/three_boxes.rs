//! The main pass of rows of 192 elements, and values of 128: a pair of blocks, as `pair.rs` says.
//!
//! ```text
//!   consumer 0   S^T, adding dQ | e^(S - L) | P to shared memory, dV += P^T dO, dQ of the last tile
//!   consumer 1   dP^T | P (dP - D) | dS to both blocks, dK += dS^T Q
//! ```
//! Rows are three boxes, a box and a half for each block ([`Config::HALVES_BOX`]):
//! ```text
//!   columns   0..64     64..96    96..128   128..192
//!   dQ of     block 0   block 0   block 1   block 1
//! ```
//! A product reads a box or a half of it, so a block's part is two products wide. Consumer 0 computes all of
//! it: values of 128 elements leave it the registers, and dS comes from consumer 1. Both blocks have as many
//! products: per 64 keys and 64 queries 192 columns of S, 128 of dV, 128 of dP, 192 of dK, and for dQ of 128
//! keys twice 96, which is 832. Rows of 256 have 1280.
//!
//! dS of two turns is kept. While dS of one is on its way to the other block, or multiplied, consumer 0 gives
//! the next turn's weights to consumer 1. So consumer 0, and the other block, may be a turn ahead.
//!
//! Consumers keep their left operands, K and V, in registers: products of 64 columns would read as much of
//! them from shared memory as of the right ones. Counted, clocks a turn: products 1664, shared memory 1792
//! with what copies bring; 2112 with those left operands there.
//!
//! Shared memory, KiB: K 24, V 16, K of the other block 16, three stages of Q and dO 120, dS 32. Registers of
//! a thread: 64 of dV, 48 of K, 32 of S, 48 of dQ; or 96 of dK, 32 of V, 32 of dP; and rounded weights.

use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{fence, mbarrier, wgmma};
use primitives::pipeline::PipelineState;
use primitives::tma::LINE_BYTES;

use super::config::{Barrier, Config, Of, OfScores, SCORE_BUFFERS};
use super::consumer::Consumer;
use super::pair::WARP_UNITS;
use super::work::Turn;
use crate::score::ScoreFunction;
use crate::sm90::config::BOX_COLUMNS;
use crate::sm90::fragments::{Rounded, multiply_kept, multiply_rounded, zero};

/// Where a consumer is.
struct Progress<C: Config> {
    /// The stage of the turn's queries and gradients.
    tile: PipelineState<Of<C>>,
    /// Where dS of the turn is kept.
    scores: PipelineState<OfScores<C>>,
}

impl<C: Config> Clone for Progress<C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Config> Copy for Progress<C> {}

impl<C: Config> Progress<C> {
    /// That of the first turn.
    const START: Self = Self { tile: PipelineState::START, scores: PipelineState::START };

    /// One turn on.
    #[inline(always)]
    const fn next(self) -> Self {
        Self { tile: self.tile.next(), scores: self.scores.next() }
    }
}

impl<C: Config> Consumer<'_, C> {
    /// Computes the gradients of the block's keys: dV by consumer 0, and dK by consumer 1.
    ///
    /// # Safety
    /// As for [`run`](super::main_pass::run); all threads of all consumers of both blocks call it.
    #[inline(always)]
    pub(super) unsafe fn run_three_boxes(self, has_turns: bool) {
        // SAFETY: the caller's contract.
        unsafe {
            if has_turns {
                self.wait_for_keys();
            }
            if self.consumer == 0 {
                let mut d_values: C::ValueGradient = zero();
                if has_turns {
                    wgmma::fence_registers(&mut d_values);
                    self.sum_values(&mut d_values);
                }
                self.store_values(d_values);
            } else {
                let mut d_keys: C::Gradient = zero();
                if has_turns {
                    wgmma::fence_registers(&mut d_keys);
                    self.sum_keys(&mut d_keys);
                }
                self.store_keys(d_keys);
            }
        }
    }

    /// Sums dV over the tiles of queries, and adds dQ of each to its sums.
    ///
    /// # Safety
    /// As for [`run_three_boxes`](Self::run_three_boxes); there are tiles, and the keys have come.
    #[inline(always)]
    unsafe fn sum_values(self, d_values: &mut C::ValueGradient) {
        let mut place = Progress::<C>::START;
        let mut keys = Rounded::zero();
        // dQ of a tile is added when the scores of the tile after next are under way.
        let mut part: C::QueryGradient = zero();
        let mut sums = core::ptr::null_mut();
        // SAFETY: the caller's contract.
        unsafe {
            keys.read::<C::Gradient>(self.keys(), C::KEY_BOX, self.thread);
            keys.fence::<C::Gradient>();
            // The first turn apart: what passes from a branch to a later one would be live in all turns.
            let mut turn = self.values_turn_of_three::<true>(d_values, &keys, &mut part, [place; 2], sums);
            while !turn.is_last {
                let (before, sums_before) = (place, self.sums(turn.row));
                place = place.next();
                turn = self.values_turn_of_three::<false>(d_values, &keys, &mut part, [before, place], sums);
                sums = sums_before;
            }
            if !sums.is_null() {
                self.add(&part, sums);
            }
            self.start_box_and_half(&mut part, place.scores);
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut part);
            self.add(&part, self.sums(turn.row));
        }
    }

    /// Sums dK over the tiles of queries.
    ///
    /// # Safety
    /// As for [`sum_values`](Self::sum_values).
    #[inline(always)]
    unsafe fn sum_keys(self, d_keys: &mut C::Gradient) {
        let mut place = Progress::<C>::START;
        let mut values = Rounded::zero();
        // SAFETY: the caller's contract.
        unsafe {
            values.read::<C::ValueGradient>(self.values(), C::KEY_BOX, self.thread);
            values.fence::<C::ValueGradient>();
            let mut turn = self.keys_turn_of_three::<true>(d_keys, &values, place);
            while !turn.is_last {
                place = place.next();
                turn = self.keys_turn_of_three::<false>(d_keys, &values, place);
            }
        }
    }

    /// The turn of the consumer that has dV, with the places of the turn before and of its own. The part of
    /// dQ that it finds goes to `sums`, if there are any; it leaves that of the turn before, unless it is the
    /// first one.
    ///
    /// # Safety
    /// As for [`sum_values`](Self::sum_values).
    #[inline(always)]
    unsafe fn values_turn_of_three<const IS_FIRST: bool>(
        self,
        d_values: &mut C::ValueGradient,
        keys: &Rounded,
        part: &mut C::QueryGradient,
        [before, place]: [Progress<C>; 2],
        sums: *mut f32,
    ) -> Turn {
        let (shared, stage, kept_turn) = (self.shared, place.tile.stage, place.scores.stage);
        let mut scores: C::Scores = zero();
        let mut weights = Rounded::zero();
        // SAFETY: the caller's contract. Stages are read between their wait and their release; registers of
        // products under way are left alone until the wait for them.
        unsafe {
            shared.query_pipeline().consumer_wait(place.tile);
            wgmma::fence();
            let queries = Self::boxes(shared.queries(stage), C::QUERY_BOX);
            multiply_kept::<C::Element, C::Gradient, _>(&mut scores, keys, queries);
            wgmma::commit_group();
            let turn = self.ticket(stage).read();
            let seen = if C::Function::IS_IDENTITY { [u32::MAX; 2] } else { self.seen(stage) };
            let drawn = self.drawn(stage);
            if !IS_FIRST && !sums.is_null() {
                self.add(part, sums);
            }
            wgmma::wait_group::<0>();
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
            // Both blocks have read dS that was there before, two turns ago.
            mbarrier::wait_parity_cluster(shared.scores_empty(kept_turn), place.scores.phase ^ 1);
            kept.write_registers::<C::Scores>(self.place_of_weights(kept_turn), WARP_UNITS);
            Barrier::Weights(kept_turn).arrive();
            shared.gradient_pipeline().consumer_wait(place.tile);
            wgmma::fence_registers(d_values);
            weights.fence::<C::Scores>();
            wgmma::fence();
            let tile = Self::boxes(shared.gradients(stage), C::QUERY_BOX);
            multiply_rounded::<C::Element, C::Scores, _>(d_values, &weights, tile, !IS_FIRST);
            wgmma::commit_group();
            if IS_FIRST {
                wgmma::wait_group::<0>();
            } else {
                self.start_box_and_half(part, before.scores);
                wgmma::wait_group::<1>();
            }
            wgmma::fence_registers(d_values);
            self.release_gradients(stage);
            if !IS_FIRST {
                wgmma::wait_group::<0>();
                wgmma::fence_registers(part);
                self.leave_scores(before.scores.stage);
            }
            turn
        }
    }

    /// The turn of the consumer that has dK.
    ///
    /// # Safety
    /// As for [`sum_keys`](Self::sum_keys).
    #[inline(always)]
    unsafe fn keys_turn_of_three<const IS_FIRST: bool>(
        self,
        d_keys: &mut C::Gradient,
        values: &Rounded,
        place: Progress<C>,
    ) -> Turn {
        let (shared, stage, kept_turn) = (self.shared, place.tile.stage, place.scores.stage);
        let mut weighted: C::Scores = zero();
        let (mut weights, mut differences) = (Rounded::zero(), Rounded::zero());
        // SAFETY: as in the turn of the other consumer. dS of two turns ago has been read where weights come.
        unsafe {
            shared.gradient_pipeline().consumer_wait(place.tile);
            wgmma::fence();
            let gradients = Self::boxes(shared.gradients(stage), C::QUERY_BOX);
            multiply_kept::<C::Element, C::ValueGradient, _>(&mut weighted, values, gradients);
            wgmma::commit_group();
            shared.query_pipeline().consumer_wait(place.tile);
            let (turn, drawn) = (self.ticket(stage).read(), self.drawn(stage));
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut weighted);
            Barrier::Weights(kept_turn).sync();
            weights.read_registers::<C::Scores>(self.place_of_weights(kept_turn), WARP_UNITS);
            self.subtract(&mut differences, &weighted, (&weighted, &weights), drawn, stage);
            // A warp's weights lie where its dS goes.
            sync_warp(FULL_MASK);
            self.release_gradients(stage);
            self.write(&differences, SCORE_BUFFERS * kept_turn);
            fence::proxy_async_shared();
            Barrier::Consumer(self.consumer).sync();
            if self.thread == 0 {
                self.send_scores(kept_turn);
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

    /// Starts the block's part of dQ as a group, when dS of both blocks has come: a box and a half.
    ///
    /// # Safety
    /// The whole warpgroup is here; `scores` is where dS of the turn is kept.
    #[inline(always)]
    unsafe fn start_box_and_half(self, part: &mut C::QueryGradient, scores: PipelineState<OfScores<C>>) {
        let shared = self.shared;
        // The first block has the box before that in the middle, the second one behind it.
        let own = self.keys() + self.rank * C::OTHER_BOXES * C::KEY_BOX;
        let other = shared.other_keys(0) + self.rank * C::KEY_BOX;
        let half = self.rank * HALF * ELEMENT_BYTES;
        let middle = [self.keys() + C::KEY_BOX, shared.other_keys(0) + (self.rank ^ 1) * C::KEY_BOX];
        let Some((of_box, of_half)) = box_and_half(part.as_mut()) else { return };
        // SAFETY: the caller's contract; a barrier of this block.
        unsafe {
            mbarrier::wait_parity_cluster(shared.scores_full(scores.stage), scores.phase);
            wgmma::fence();
            self.multiply_scores(of_box, scores.stage, [own, other]);
            self.multiply_scores(of_half, scores.stage, middle.map(|first| first + half));
            wgmma::commit_group();
        }
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
