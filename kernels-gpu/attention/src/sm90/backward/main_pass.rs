//! dK and dV, and the sums of dQ. [`super`] has the picture.

use cuda_std::fastmath::{ex2_approx, fma};
use cuda_std::tma::TensorMap;
use cuda_std::warp::{FULL_MASK, sync_warp, warp_shuffle_idx};
use cuda_std::wgmma::Accumulator;
use cuda_std::{fence, grid, mbarrier, misc, registers, shared, thread, tma, vector, wgmma};
use primitives::cluster::ClusterCoord;
use primitives::pipeline::{Depth, PipelineState};
use primitives::shared_plan::SharedType;
use primitives::tma::LINE_BYTES;
use primitives::unroll;

use super::arguments::Arguments;
use super::config::{
    BLOCK_N, Barrier, CONSUMER_KEYS, CONSUMERS, Config, KEY_BOX, Keys, Of, Plan, Queries, SCORE_BUFFERS,
    Statistics,
};
use super::order::give_turns;
use super::work::{Ticket, Turn, Work};
use crate::block_lists::Listed;
use crate::problem::{KeyTile, Seen};
use crate::score::ScoreFunction;
use crate::sm90::config::{BOX_COLUMNS, WARPGROUP};
use crate::sm90::fragments::{Boxes, Rounded, multiply, multiply_lines, multiply_rounded, steps, zero};

/// Warps of a consumer.
const WARPS: u32 = WARPGROUP / 32;
/// Registers of a producer's and of a consumer's thread.
const REGISTERS: [u32; 2] = [40, 232];

/// The gradients of one block of keys a block of threads.
///
/// # Safety
/// The arguments are as [`Arguments`] and its parts say. The launch has a block of
/// [`super::config::THREADS`] threads for each tile of keys, with `C::SHARED` bytes of dynamic shared memory.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>, function: &C::Function) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    let thread = thread::thread_idx_x();
    // SAFETY: one thread makes the barriers before all meet; a warpgroup has one role; the caller's contract.
    unsafe {
        if thread == 0 {
            tma::prefetch(arguments.maps.keys);
            tma::prefetch(arguments.maps.queries);
            mbarrier::init(shared.keys_full(), 1);
            mbarrier::init(shared.values_full(), 1);
            mbarrier::init(shared.scores_full(), CONSUMERS * WARPS);
            shared.query_pipeline().init(CONSUMERS * WARPS);
            shared.gradient_pipeline().init(CONSUMERS * WARPS);
            mbarrier::fence_init();
        }
        // Earlier grids may still write the operands or read the results.
        grid::wait_dependencies();
        grid::launch_dependents();
        if thread == 0 {
            Work::new::<C>(arguments.order.draw(), &arguments).tell(shared.work());
        }
        thread::sync_threads();
        if thread < WARPGROUP {
            registers::set_max_registers_dec::<{ REGISTERS[0] }>();
            if thread == 0 {
                produce::<C>(arguments, shared);
            } else if thread / 32 > 0 && thread / 32 <= CONSUMERS && arguments.order.is_fixed() {
                give_turns::<C>(arguments, shared, thread / 32 - 1);
            }
        } else {
            registers::set_max_registers_inc::<{ REGISTERS[1] }>();
            let thread = thread - WARPGROUP;
            // The assembler keeps what a warp's lanes agree on in registers of the warp.
            let (consumer, _) = warp_shuffle_idx(FULL_MASK, thread / WARPGROUP, 0, 32);
            let thread = thread % WARPGROUP;
            Consumer::<C> { arguments, function, shared, consumer, thread }.run();
        }
    }
}

/// Brings the keys and values, then queries and gradients tile by tile, of all heads that share the keys.
///
/// # Safety
/// As for [`run`]; one thread calls it after the barriers are made.
#[inline(always)]
unsafe fn produce<C: Config>(arguments: Arguments<'_>, shared: Plan<C>) {
    let Arguments { maps, params, packing, rows, .. } = arguments;
    // SAFETY: the caller's contract. A stage that was acquired is empty, and expects the bytes of its copies.
    unsafe {
        let work = Work::told(shared.work());
        if work.turns == 0 {
            return;
        }
        let Work { tile, sequence, turns } = work;
        let matrix = sequence.matrix as i32;
        let load = |map: *const TensorMap, full: u32, to: u32, stride: u32, row: u32, head: u32| {
            let mut column = 0;
            while column < C::BOXES {
                let coords = [(column * BOX_COLUMNS) as i32, row as i32, head as i32, matrix];
                tma::load_4d(to + column * stride, map, full, coords);
                column += 1;
            }
        };
        let key = sequence.first_key + tile.first_key;
        mbarrier::arrive_expect_tx(shared.keys_full(), Keys::<C>::BYTES);
        load(maps.keys, shared.keys_full(), shared.keys(), KEY_BOX, key, tile.head);
        mbarrier::arrive_expect_tx(shared.values_full(), Keys::<C>::BYTES);
        load(maps.values, shared.values_full(), shared.values(), KEY_BOX, key, tile.head);
        let mut state = PipelineState::START;
        let bytes = Queries::<C>::BYTES + Statistics::<C>::BYTES;
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
                shared.query_pipeline().producer_wait(state);
                let turn = Turn { block, is_partial, is_last: left == 0, head, row: at };
                Ticket::at(shared.tickets(stage)).write(turn);
                let full = shared.query_pipeline().producer_expect(state, bytes);
                load(maps.queries, full, shared.queries(stage), C::QUERY_BOX, row, head);
                tma::bulk_load(shared.logarithms(stage), rows.logarithms.add(at), C::BLOCK_M * 4, full);
                let full = shared.gradient_pipeline().producer_acquire(state, bytes);
                load(maps.gradients, full, shared.gradients(stage), C::QUERY_BOX, row, head);
                tma::bulk_load(shared.deltas(stage), rows.deltas.add(at), C::BLOCK_M * 4, full);
                state = state.next();
                index += 1;
            }
            head += 1;
        }
    }
}

/// A thread of a consumer.
#[derive(Clone, Copy)]
pub struct Consumer<'a, C: Config> {
    pub(super) arguments: Arguments<'a>,
    pub(super) function: &'a C::Function,
    pub(super) shared: Plan<C>,
    pub(super) consumer: u32,
    /// Number in the warpgroup.
    pub(super) thread: u32,
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
            let work = Work::told(self.shared.work());
            if !work.has_keys() {
                return;
            }
            let mut gradients: [C::Gradient; 2] = [zero(), zero()];
            if work.turns > 0 {
                self.sum(&mut gradients);
            }
            self.store(gradients);
        }
    }

    /// Where the producer tells of a stage's tile of queries.
    #[inline(always)]
    pub(super) fn ticket(self, stage: u32) -> Ticket {
        Ticket::at(self.shared.tickets(stage))
    }

    /// Sums dK and dV over the tiles of queries, and adds dQ of each to its sums.
    ///
    /// # Safety
    /// As for [`run`]; there are tiles.
    #[inline(always)]
    unsafe fn sum(self, gradients: &mut [C::Gradient; 2]) {
        let Self { shared, .. } = self;
        let mut state = PipelineState::<Of<C>>::START;
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
            mbarrier::wait_parity(shared.keys_full(), 0);
            mbarrier::wait_parity(shared.values_full(), 0);
            if self.arguments.is_packed() {
                self.clear_foreign_keys();
            }
            loop {
                let stage = state.stage;
                if self.arguments.is_packed() {
                    self.clear_foreign_queries(state);
                }
                self.start_scores(&mut scores, state);
                self.start_weighted(&mut weighted, state);
                let seen = if C::Function::IS_IDENTITY { [u32::MAX; 2] } else { self.seen(stage) };
                wgmma::wait_group::<1>();
                wgmma::fence_registers(&mut scores);
                // The product's own registers are not to be read while it is under way.
                let kept = if C::Function::IS_IDENTITY {
                    self.weigh(&mut scores, stage);
                    let Turn { block, is_partial, .. } = self.ticket(stage).read();
                    if is_partial {
                        self.mask(&mut scores, block);
                    }
                    weights.set::<C::Element, _>(&scores);
                    weights
                } else {
                    self.weigh_with_function(&mut scores, &mut weights, stage, seen)
                };
                wgmma::fence_registers(d_values);
                weights.fence::<C::Scores>();
                wgmma::fence();
                let tile = Boxes { first: shared.gradients(stage), stride: C::QUERY_BOX };
                multiply_rounded::<C::Element, C::Scores, _>(d_values, &weights, tile, !is_first);
                wgmma::commit_group();
                wgmma::wait_group::<1>();
                wgmma::fence_registers(&mut weighted);
                self.subtract(&mut differences, &weighted, (&scores, &kept), stage);
                if !is_first {
                    self.wait_for_scores(stage ^ 1);
                }
                self.write(&differences, stage);
                wgmma::fence_registers(d_keys);
                differences.fence::<C::Scores>();
                let tile = Boxes { first: shared.queries(stage), stride: C::QUERY_BOX };
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
                    wgmma::wait_group::<1>();
                    wgmma::fence_registers(&mut part);
                    self.add(&part, sums);
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
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut part);
            self.add(&part, sums);
        }
    }

    /// Starts `S^T = K Q^T` as a group, when the queries have come.
    ///
    /// # Safety
    /// The whole warpgroup is here; K has come.
    #[inline(always)]
    unsafe fn start_scores(self, scores: &mut C::Scores, state: PipelineState<Of<C>>) {
        let queries = Boxes { first: self.shared.queries(state.stage), stride: C::QUERY_BOX };
        // SAFETY: the caller's contract.
        unsafe {
            self.shared.query_pipeline().consumer_wait(state);
            wgmma::fence();
            multiply::<C::Element, _>(scores, self.own_lines(self.shared.keys()), queries, C::HEAD);
            wgmma::commit_group();
        }
    }

    /// Starts `dP^T = V dO^T` as a group, when the gradients have come.
    ///
    /// # Safety
    /// The whole warpgroup is here; V has come.
    #[inline(always)]
    unsafe fn start_weighted(self, weighted: &mut C::Scores, state: PipelineState<Of<C>>) {
        let gradients = Boxes { first: self.shared.gradients(state.stage), stride: C::QUERY_BOX };
        // SAFETY: the caller's contract.
        unsafe {
            self.shared.gradient_pipeline().consumer_wait(state);
            wgmma::fence();
            multiply::<C::Element, _>(weighted, self.own_lines(self.shared.values()), gradients, C::HEAD);
            wgmma::commit_group();
        }
    }

    /// The consumer's lines of a block of keys.
    #[inline(always)]
    fn own_lines(self, keys: u32) -> Boxes {
        let first = misc::opaque(keys) + self.consumer * CONSUMER_KEYS * LINE_BYTES;
        Boxes { first, stride: KEY_BOX }
    }

    /// Makes weights of scores: `2^(c s - L)`.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    unsafe fn weigh(self, scores: &mut C::Scores, stage: u32) {
        let factor = self.arguments.params.scale * core::f32::consts::LOG2_E;
        let from = self.shared.logarithms(stage) + self.thread % 4 * 8;
        let x = scores.as_mut();
        unroll!(STEP in 0..16, {
            if STEP < steps::<C::Scores>() {
                // SAFETY: the logarithms of two queries.
                let logarithms: [f32; 2] = unsafe { vector::load_shared_v2(from + STEP as u32 * 32) };
                unroll!(I in 0..4, {
                    let place = 4 * STEP + I;
                    x[place] = ex2_approx(fma(x[place], factor, -logarithms[I % 2]));
                });
            }
        });
    }

    /// `dS = P (dP - D)`, rounded, of weights in f32, or of rounded ones ([`Config::KEEPS_WEIGHTS`]).
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    unsafe fn subtract(
        self,
        to: &mut Rounded,
        weighted: &C::Scores,
        (weights, rounded): (&C::Scores, &Rounded),
        stage: u32,
    ) {
        let from = self.shared.deltas(stage) + self.thread % 4 * 8;
        let (x, p) = (weighted.as_ref(), weights.as_ref());
        unroll!(STEP in 0..16, {
            if STEP < steps::<C::Scores>() {
                // SAFETY: the numbers of two queries.
                let deltas: [f32; 2] = unsafe { vector::load_shared_v2(from + STEP as u32 * 32) };
                unroll!(ROW in 0..2, {
                    let (place, pair) = (4 * STEP + 2 * ROW, 2 * STEP + ROW);
                    let p = if C::KEEPS_WEIGHTS {
                        [p[place], p[place + 1]]
                    } else {
                        rounded.pair::<C::Element>(pair)
                    };
                    let [low, high] = [0, 1].map(|i| p[i] * (x[place + i] - deltas[i]));
                    to.set_pair::<C::Element>(pair, low, high);
                });
            }
        });
    }

    /// The first of the thread's two keys; the other one is 8 behind it.
    #[inline(always)]
    pub(super) fn first_key(self, tile: KeyTile) -> u32 {
        tile.first_key + self.consumer * CONSUMER_KEYS + self.thread / 32 * 16 + self.thread % 32 / 4
    }

    /// Clears the weights of keys that a query does not see.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn mask(self, weights: &mut C::Scores, block: u32) {
        // SAFETY: the block has met since the work was told.
        let Work { tile, sequence, .. } = unsafe { Work::told(self.shared.work()) };
        // Places are computed here, and not kept beside the products.
        let thread = misc::opaque(self.thread);
        let first_key = Self { thread, ..self }.first_key(tile);
        // From the thread's first query of the tile.
        let column = (block * C::BLOCK_M + thread % 4 * 2) as i32;
        let x = weights.as_mut();
        unroll!(ROW in 0..2, {
            let Seen { first, end } = self.arguments.params.band.seen_by(sequence, first_key + 8 * ROW as u32);
            let (first, end) = (first as i32 - column, end as i32 - column);
            unroll!(STEP in 0..16, {
                if STEP < steps::<C::Scores>() {
                    unroll!(I in 0..2, {
                        let query = (8 * STEP + I) as i32;
                        if query < first || query >= end {
                            x[4 * STEP + 2 * ROW + I] = 0.0;
                        }
                    });
                }
            });
        });
    }

    /// Writes dS to shared memory.
    ///
    /// # Safety
    /// The whole warpgroup is here, and both consumers have read the buffer.
    #[inline(always)]
    unsafe fn write(self, differences: &Rounded, stage: u32) {
        let to = self.shared.scores(stage) + self.consumer * CONSUMER_KEYS * LINE_BYTES;
        // SAFETY: the caller's contract.
        unsafe { differences.write::<C::Scores>(to, KEY_BOX, self.thread) }
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
                mbarrier::arrive(self.shared.scores_full());
            }
        }
    }

    /// Waits until both consumers have shared dS of this buffer, in the turn before or in the last one.
    ///
    /// # Safety
    /// As for [`run`].
    #[inline(always)]
    unsafe fn wait_for_scores(self, stage: u32) {
        const { assert!(SCORE_BUFFERS == 2 && <Of<C> as Depth>::STAGES == 2, "a phase for each buffer") };
        // SAFETY: a barrier of this block, in whose round `n` buffer `n % 2` is shared.
        unsafe { mbarrier::wait_parity(self.shared.scores_full(), stage) }
    }

    /// Starts the consumer's half of `dQ = dS K`.
    ///
    /// # Safety
    /// The whole warpgroup is here, and dS has been shared.
    #[inline(always)]
    unsafe fn multiply_sums(self, part: &mut C::QueryGradient, stage: u32) {
        let (scores, keys) = (self.shared.scores(stage), misc::opaque(self.shared.keys()));
        // 64 queries, and half of the columns, or all.
        let (scores, keys) = if C::BLOCK_M == 128 {
            (scores + self.consumer * KEY_BOX, keys)
        } else {
            let column = self.consumer * C::QueryGradient::N;
            (scores, keys + column / BOX_COLUMNS * KEY_BOX + column % BOX_COLUMNS * 2)
        };
        let (scores, keys) =
            (Boxes { first: scores, stride: KEY_BOX }, Boxes { first: keys, stride: KEY_BOX });
        // SAFETY: the caller's contract.
        unsafe { multiply_lines::<C::Element, _>(part, scores, keys, BLOCK_N) }
    }

    /// Leaves the stage of queries and of gradients, warp by warp.
    ///
    /// # Safety
    /// The whole warpgroup is here, and its products that read the stages are over; since a warp's lanes read
    /// the stages' numbers they have met.
    #[inline(always)]
    unsafe fn release(self, stage: u32) {
        let alone = ClusterCoord::<Of<C>>::of_rank(0);
        // SAFETY: the caller's contract.
        unsafe {
            let lane = self.thread % 32;
            self.shared.query_pipeline().consumer_release(stage, lane, alone);
            self.shared.gradient_pipeline().consumer_release(stage, lane, alone);
        }
    }

    /// Where the thread adds its part of dQ of the tile of queries with this first row.
    #[inline(always)]
    fn sums(self, row: usize) -> *mut f32 {
        let half = self.consumer * (C::BLOCK_M / 2 * C::HEAD);
        let own = (half + misc::opaque(self.thread) * 4) as usize;
        self.arguments.rows.sums.wrapping_add(row * C::HEAD as usize + own)
    }

    /// Adds the consumer's half of dQ to the sums, when it is its turn.
    ///
    /// # Safety
    /// They are the thread's ([`sums`](Self::sums)); the whole warpgroup is here.
    #[inline(always)]
    unsafe fn add(self, part: &C::QueryGradient, sums: *mut f32) {
        let is_fixed = self.arguments.order.is_fixed();
        if is_fixed {
            // SAFETY: the whole warpgroup is here; a warp gives the turn.
            unsafe { Barrier::Turn(self.consumer).sync() }
        }
        let x = part.as_ref();
        unroll!(STEP in 0..16, {
            if STEP < steps::<C::QueryGradient>() {
                let at = 4 * STEP;
                let values = [x[at], x[at + 1], x[at + 2], x[at + 3]];
                // SAFETY: the caller's contract; places of the tile's sums.
                unsafe { vector::red_add_v4(sums.add(STEP * 4 * WARPGROUP as usize), values) }
            }
        });
        if is_fixed {
            // SAFETY: as above; the warp waits for it.
            unsafe { Barrier::Added(self.consumer).arrive() }
        }
    }
}
