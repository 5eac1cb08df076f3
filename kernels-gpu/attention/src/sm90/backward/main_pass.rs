//! dK and dV, and the sums of dQ. [`super`] has the picture.

use cuda_std::tma::TensorMap;
use cuda_std::warp::{FULL_MASK, sync_warp, warp_shuffle_idx};
use cuda_std::wgmma::Accumulator;
use cuda_std::{cluster, fence, grid, mbarrier, misc, registers, shared, thread, tma, wgmma};
use primitives::pipeline::{Pipeline, PipelineState};
use primitives::shared_plan::SharedType;

use super::arguments::Arguments;
use super::config::{
    BLOCK_N, CONSUMER_KEYS, CONSUMERS, Config, Gradients, Keys, Of, Plan, Queries, SCORE_BUFFERS, Statistics,
    Values,
};
use super::consumer::Consumer;
use super::order::give_turns;
use super::work::{Ticket, Turn, Work};
use crate::block_lists::Listed;
use crate::score::ScoreFunction;
use crate::sm90::config::{BOX_COLUMNS, WARPGROUP};
use crate::sm90::fragments::{Rounded, multiply_lines, multiply_rounded, zero};

/// Warps of a consumer.
pub(super) const WARPS: u32 = WARPGROUP / 32;
/// A bit for each block of a pair.
const BOTH: u16 = 0b11;
/// Registers of a producer's and of a consumer's thread.
pub(super) const REGISTERS: [u32; 2] = [40, 232];

/// The gradients of one tile of keys a block of threads, or a pair of them.
///
/// # Safety
/// The arguments are as [`Arguments`] and its parts say. The launch has `C::BLOCKS` blocks of
/// [`super::config::THREADS`] threads for each tile of keys, in clusters of as many, with `C::SHARED` bytes
/// of dynamic shared memory.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>, function: &C::Function) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    let thread = thread::thread_idx_x();
    let rank = if C::BLOCKS == 2 { cluster::block_rank() } else { 0 };
    // SAFETY: one thread makes the barriers before all meet; a warpgroup has one role; the caller's contract.
    unsafe {
        if thread == 0 {
            tma::prefetch(arguments.maps.keys);
            tma::prefetch(arguments.maps.queries);
            make_barriers(shared);
        }
        // Earlier grids may still write the operands or read the results.
        grid::wait_dependencies();
        grid::launch_dependents();
        tell_work(&arguments, shared, rank);
        if thread < WARPGROUP {
            registers::set_max_registers_dec::<{ REGISTERS[0] }>();
            if thread == 0 {
                produce::<C>(arguments, shared, rank);
            } else if thread / 32 > 0 && thread / 32 <= C::PART_CONSUMERS && arguments.order.is_fixed() {
                give_turns::<C>(arguments, shared, [rank, thread / 32 - 1]);
            }
        } else {
            registers::set_max_registers_inc::<{ REGISTERS[1] }>();
            let thread = thread - WARPGROUP;
            // The assembler keeps what a warp's lanes agree on in registers of the warp.
            let (consumer, _) = warp_shuffle_idx(FULL_MASK, thread / WARPGROUP, 0, 32);
            let thread = thread % WARPGROUP;
            let place = PipelineState::START;
            Consumer::<C> { arguments, function, shared, rank, consumer, thread, place }.run();
        }
        // The other block still arrives at this one's barriers.
        if C::BLOCKS == 2 {
            sync_warp(FULL_MASK);
            cluster::sync();
        }
    }
}

/// Makes the barriers.
///
/// # Safety
/// One thread calls it, before anything uses the shared memory.
#[inline(always)]
unsafe fn make_barriers<C: Config>(shared: Plan<C>) {
    let warps = CONSUMERS * WARPS * C::BLOCKS;
    // SAFETY: the caller's contract.
    unsafe {
        mbarrier::init(shared.keys_full(0), 1);
        mbarrier::init(shared.values_full(0), 1);
        let of_scores = |turn: u32| {
            mbarrier::init(shared.scores_full(turn), if C::BLOCKS == 2 { 1 } else { warps });
            if C::BLOCKS == 2 {
                mbarrier::init(shared.scores_empty(turn), C::PARTS * WARPS);
            }
        };
        of_scores(0);
        if C::SCORE_TURNS == 2 {
            of_scores(1);
        }
        shared.query_pipeline().init(warps);
        shared.gradient_pipeline().init(warps);
        mbarrier::fence_init();
    }
}

/// Finds the work of the block, or of its pair, and meets with all whom it concerns.
///
/// # Safety
/// All threads call it, once, after the barriers were made.
#[inline(always)]
unsafe fn tell_work<C: Config>(arguments: &Arguments<'_>, shared: Plan<C>, rank: u32) {
    let order = arguments.order;
    // One block of a pair draws, and tells both.
    let is_shared = C::BLOCKS == 2 && order.is_fixed();
    // SAFETY: the caller's contract; both blocks of a pair have begun when they have met.
    unsafe {
        if !is_shared && thread::thread_idx_x() == 0 {
            let number = order.draw(thread::block_idx_x() / C::BLOCKS);
            Work::new::<C>(number, arguments).tell(shared.work(0));
        }
        if C::BLOCKS == 1 {
            thread::sync_threads();
            return;
        }
        cluster::sync();
        if is_shared {
            if rank == 0 && thread::thread_idx_x() == 0 {
                let work = Work::new::<C>(order.draw(0), arguments);
                work.tell_block(cluster::map_shared(shared.work(0), 0));
                work.tell_block(cluster::map_shared(shared.work(0), 1));
            }
            cluster::sync();
        }
    }
}

/// Brings the keys and values, then queries and gradients tile by tile, of all heads that share the keys.
/// Each block of a pair brings half of a tile's columns to both.
///
/// # Safety
/// As for [`run`]; one thread calls it after the barriers are made.
#[inline(always)]
unsafe fn produce<C: Config>(arguments: Arguments<'_>, shared: Plan<C>, rank: u32) {
    let Arguments { maps, params, packing, rows, .. } = arguments;
    // SAFETY: the caller's contract. A stage that was acquired is empty, and expects the bytes of its copies.
    unsafe {
        let work = Work::told(shared.work(0));
        if work.turns == 0 {
            return;
        }
        let Work { tile, sequence, turns } = work;
        let matrix = sequence.matrix as i32;
        // To this block; or to both blocks of the pair.
        let load = |map: *const TensorMap, full: u32, to: u32, column: u32, row: u32, head: u32| {
            tma::load_4d(to, map, full, [(column * BOX_COLUMNS) as i32, row as i32, head as i32, matrix]);
        };
        let load_half = |map: *const TensorMap, full: u32, to: u32, boxes: u32, row: u32, head: u32| {
            let half = boxes / C::BLOCKS;
            let mut column = rank * half;
            // The second block brings the one that is left.
            let end = column + half + rank * (boxes % C::BLOCKS);
            while column < end {
                let to = to + column * C::QUERY_BOX;
                if C::BLOCKS == 1 {
                    load(map, full, to, column, row, head);
                } else {
                    let coords = [(column * BOX_COLUMNS) as i32, row as i32, head as i32, matrix];
                    tma::load_4d_multicast(to, map, full, coords, BOTH);
                }
                column += 1;
            }
        };
        let wait = |pipeline: Pipeline<Of<C>>, state| {
            if C::BLOCKS == 2 {
                pipeline.producer_wait_written(state);
            } else {
                pipeline.producer_wait(state);
            }
        };
        let first_key = sequence.first_key + tile.first_key;
        let own = first_key + rank * CONSUMER_KEYS;
        mbarrier::arrive_expect_tx(shared.keys_full(0), Keys::<C>::BYTES + C::OTHER_BOXES * C::KEY_BOX);
        let mut column = 0;
        while column < C::BOXES {
            load(
                maps.keys,
                shared.keys_full(0),
                shared.keys(0) + column * C::KEY_BOX,
                column,
                own,
                tile.head,
            );
            column += 1;
        }
        let mut column = 0;
        while column < C::OTHER_BOXES {
            let other = first_key + (rank ^ 1) * CONSUMER_KEYS;
            let to = shared.other_keys(column);
            let of_tile = rank * (C::BOXES - C::OTHER_BOXES) + column;
            load(maps.keys, shared.keys_full(0), to, of_tile, other, tile.head);
            column += 1;
        }
        mbarrier::arrive_expect_tx(shared.values_full(0), Values::<C>::BYTES);
        let mut column = 0;
        while column < C::VALUE_BOXES {
            let to = shared.values(0) + column * C::KEY_BOX;
            load(maps.values, shared.values_full(0), to, column, own, tile.head);
            column += 1;
        }
        let mut state = PipelineState::START;
        let query_bytes = Queries::<C>::BYTES + Statistics::<C>::BYTES;
        let gradient_bytes = Gradients::<C>::BYTES + Statistics::<C>::BYTES;
        let mut left = turns;
        let mut head = tile.head * params.group;
        let last = head + params.group;
        while head < last {
            let padded = params.padded_row(packing, tile.batch, head, C::BLOCK_M);
            let walk = work.walk::<C>(&arguments, head);
            let mut index = 0;
            while index < walk.count {
                let Listed { block, is_partial } = walk.get(index);
                let row = sequence.first_query + block * C::BLOCK_M;
                let at = padded + (block * C::BLOCK_M) as usize;
                let stage = state.stage;
                left -= 1;
                wait(shared.query_pipeline(), state);
                let turn = Turn { block, is_partial, is_last: left == 0, head, row: at };
                Ticket::at(shared.tickets(stage)).write(turn);
                let full = shared.query_pipeline().producer_expect(state, query_bytes);
                load_half(maps.queries, full, shared.queries(stage), C::BOXES, row, head);
                tma::bulk_load(shared.logarithms(stage), rows.logarithms.add(at), C::BLOCK_M * 4, full);
                wait(shared.gradient_pipeline(), state);
                let full = shared.gradient_pipeline().producer_expect(state, gradient_bytes);
                load_half(maps.gradients, full, shared.gradients(stage), C::VALUE_BOXES, row, head);
                tma::bulk_load(shared.deltas(stage), rows.deltas.add(at), C::BLOCK_M * 4, full);
                state = state.next();
                index += 1;
            }
            head += 1;
        }
    }
}

impl<C: Config> Consumer<'_, C> {
    /// Computes the gradients of the consumer's keys.
    ///
    /// # Safety
    /// As for [`run`]; all threads of all consumers call it.
    #[inline(always)]
    unsafe fn run(self) {
        // SAFETY: the caller's contract.
        unsafe {
            let work = self.work();
            if !work.has_keys() {
                return;
            }
            if C::BLOCKS == 2 {
                if C::HALVES_BOX {
                    self.run_three_boxes(work.turns > 0);
                } else {
                    self.run_in_pair(work.turns > 0);
                }
                return;
            }
            let mut gradients: [C::Gradient; 2] = [zero(), zero()];
            if work.turns > 0 {
                self.sum(&mut gradients, PipelineState::START);
            }
            self.store(gradients);
        }
    }

    /// Sums dK and dV over the tiles of queries, from this state of their pipeline on, and passes dQ of each
    /// on. Gives the state behind them.
    ///
    /// # Safety
    /// As for [`run`]; there are tiles.
    #[inline(always)]
    pub(super) unsafe fn sum(
        self,
        gradients: &mut [C::Gradient; 2],
        first: PipelineState<Of<C>>,
    ) -> PipelineState<Of<C>> {
        let Self { shared, .. } = self;
        let mut state = first;
        // Those of the tile before.
        let mut sums = core::ptr::null_mut();
        let mut scores: C::Scores = zero();
        let mut weighted: C::Scores = zero();
        let (mut weights, mut differences) = (Rounded::zero(), Rounded::zero());
        let mut is_first = true;
        let [d_keys, d_values] = gradients;
        // SAFETY: the caller's contract. Stages are read between their wait and their release; registers of
        // products under way are left alone until the wait for them.
        unsafe {
            // Set before any product is under way.
            wgmma::fence_registers(d_keys);
            wgmma::fence_registers(d_values);
            self.wait_for_keys();
            if self.is_packed() {
                self.clear_foreign_keys();
            }
            loop {
                let stage = state.stage;
                if self.is_packed() {
                    self.clear_foreign_queries(state);
                }
                self.start_scores(&mut scores, state);
                self.start_weighted(&mut weighted, state);
                let seen = if C::Function::IS_IDENTITY { [u32::MAX; 2] } else { self.seen(stage) };
                let drawn = self.drawn(stage);
                wgmma::wait_group::<1>();
                wgmma::fence_registers(&mut scores);
                // The product's own registers are not to be read while it is under way.
                let kept = if C::Function::IS_IDENTITY {
                    self.weigh(&mut scores, stage);
                    let Turn { block, is_partial, .. } = self.ticket(stage).read();
                    if is_partial {
                        self.mask(&mut scores, block);
                    }
                    self.round(&mut weights, &scores, drawn)
                } else {
                    self.weigh_with_function(&mut scores, &mut weights, stage, seen)
                };
                wgmma::fence_registers(d_values);
                weights.fence::<C::Scores>();
                wgmma::fence();
                let tile = Self::boxes(shared.gradients(stage), C::QUERY_BOX);
                multiply_rounded::<C::Element, C::Scores, _>(d_values, &weights, tile, !is_first);
                wgmma::commit_group();
                wgmma::wait_group::<1>();
                wgmma::fence_registers(&mut weighted);
                self.subtract(&mut differences, &weighted, (&scores, &kept), drawn, stage);
                if !is_first {
                    self.wait_for_scores(stage ^ 1);
                }
                self.write(&differences, stage);
                wgmma::fence_registers(d_keys);
                differences.fence::<C::Scores>();
                let tile = Self::boxes(shared.queries(stage), C::QUERY_BOX);
                // In one branch each: what passes from a branch to a later one would be live in all turns.
                if is_first {
                    wgmma::fence();
                    multiply_rounded::<C::Element, C::Scores, _>(d_keys, &differences, tile, false);
                    wgmma::commit_group();
                    fence::proxy_async_shared();
                } else {
                    let mut part: C::QueryGradient = zero();
                    wgmma::fence();
                    self.multiply_sums(&mut part, stage ^ 1);
                    wgmma::commit_group();
                    multiply_rounded::<C::Element, C::Scores, _>(d_keys, &differences, tile, true);
                    wgmma::commit_group();
                    // Of dS, here where it need not wait for what is added.
                    fence::proxy_async_shared();
                    self.pass_on::<1>(&mut part, state, sums);
                }
                let Turn { row, is_last, .. } = self.ticket(stage).read();
                sums = self.sums(row);
                self.share();
                wgmma::wait_group::<0>();
                wgmma::fence_registers(d_keys);
                wgmma::fence_registers(d_values);
                self.release(stage);
                state = state.next();
                is_first = false;
                if is_last {
                    break;
                }
            }
            let last = state.stage ^ 1;
            let mut part: C::QueryGradient = zero();
            self.wait_for_scores(last);
            wgmma::fence();
            self.multiply_sums(&mut part, last);
            wgmma::commit_group();
            self.pass_on::<0>(&mut part, state, sums);
        }
        state
    }

    /// Whether rows of other sequences may be in tiles.
    #[inline(always)]
    const fn is_packed(self) -> bool {
        !C::IS_WHOLE && self.arguments.is_packed::<C>()
    }

    /// Passes on the part of dQ of the turn before this state of the pipeline, whose sums are at `sums`, when
    /// all but `PENDING` groups of products are over.
    ///
    /// # Safety
    /// As for [`add`](Self::add), or [`leave_part`](Self::leave_part).
    #[inline(always)]
    unsafe fn pass_on<const PENDING: u32>(
        self,
        part: &mut C::QueryGradient,
        state: PipelineState<Of<C>>,
        sums: *mut f32,
    ) {
        // SAFETY: the caller's contract.
        unsafe {
            if C::IS_WHOLE {
                self.leave_part::<PENDING>(part, state);
            } else {
                wgmma::wait_group::<PENDING>();
                wgmma::fence_registers(part);
                self.add(part, sums);
            }
        }
    }

    /// Tells both consumers that this one has written dS of its turn, and has read that of the turn before.
    ///
    /// # Safety
    /// The whole warpgroup is here, once a turn, and so it is; its threads have fenced what they wrote.
    #[inline(always)]
    unsafe fn share(self) {
        // SAFETY: the caller's contract; the barrier counts each warp once a turn.
        unsafe {
            sync_warp(FULL_MASK);
            if self.thread.is_multiple_of(32) {
                mbarrier::arrive(self.shared.scores_full(0));
            }
        }
    }

    /// Waits until both consumers have shared dS of this buffer, in the turn before or in the last one.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn wait_for_scores(self, stage: u32) {
        const { assert!(SCORE_BUFFERS == 2 && (C::BLOCKS == 2 || C::STAGES == 2), "a phase for each buffer") };
        // SAFETY: a barrier of this block, in whose round `n` buffer `n % 2` is shared.
        unsafe { mbarrier::wait_parity(self.shared.scores_full(0), stage) }
    }

    /// Starts the consumer's half of `dQ = dS K`.
    ///
    /// # Safety
    /// The whole warpgroup is here, and dS has been shared.
    #[inline(always)]
    unsafe fn multiply_sums(self, part: &mut C::QueryGradient, stage: u32) {
        let (scores, keys) = (self.shared.scores(stage), misc::opaque(self.keys()));
        // 64 queries, and half of the columns, or all.
        let (scores, keys) = if C::BLOCK_M == 128 {
            (scores + self.consumer * C::KEY_BOX, keys)
        } else {
            let column = self.consumer * C::QueryGradient::N;
            (scores, keys + column / BOX_COLUMNS * C::KEY_BOX + column % BOX_COLUMNS * 2)
        };
        let (scores, keys) = (Self::boxes(scores, C::KEY_BOX), Self::boxes(keys, C::KEY_BOX));
        // SAFETY: the caller's contract.
        unsafe { multiply_lines::<C::Element, _, false>(part, scores, keys, BLOCK_N) }
    }

    /// Leaves the stage of queries and of gradients, warp by warp.
    ///
    /// # Safety
    /// As for [`release_queries`](Self::release_queries) and its neighbour.
    #[inline(always)]
    unsafe fn release(self, stage: u32) {
        // SAFETY: the caller's contract.
        unsafe {
            self.release_queries(stage);
            self.release_gradients(stage);
        }
    }
}
