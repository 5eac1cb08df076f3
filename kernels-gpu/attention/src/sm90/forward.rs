//! The forward pass: a producer copies, consumers multiply, exponentiate and store. [`super`] has the
//! picture.

use cuda_std::tma::TensorMap;
use cuda_std::warp::{FULL_MASK, warp_shuffle_idx};
use cuda_std::{fence, grid, mbarrier, misc, registers, shared, thread, tma, vector, wgmma};
use primitives::named_barriers;
use primitives::pipeline::{Pipeline, PipelineState};
use primitives::shared_plan::SharedType;
use primitives::tma::LINE_BYTES;

use super::config::{Alone, BOX_COLUMNS, CONSUMER_ROWS, Config, Of, Plan, Queries, QueriesOf, WARPGROUP};
use super::fragments::{Boxes, Rounded, multiply, multiply_rounded, scale_rows, zero};
use super::line::{self, Biases};
use super::schedule::{Counter, Drawn, Followed, Ticket, Work, releases};
use crate::block_lists::{Listing, Lists, Walk};
use crate::problem::{AttentionParams, KeyBlocks, Packing, Tiles};
use crate::score::ScoreFunction;
use crate::softmax::{Rows, sink_of};

const PAIR: u32 = 2 * WARPGROUP;
const TRIPLE: u32 = 3 * WARPGROUP;

named_barriers! {
    /// The named barriers of a block.
    pub enum Barrier {
        /// The threads of a consumer.
        Consumer[3]: WARPGROUP threads,
        /// Where a consumer waits for its turn to issue products.
        Turn[3]: PAIR threads,
        /// All of two consumers.
        Two[1]: PAIR threads,
        /// All of three consumers.
        Three[1]: TRIPLE threads,
    }
}

/// Maps of `[batch, heads, rows, d]`, d contiguous, in boxes of 64 columns with a swizzle of 128 bytes: 64
/// rows of `queries` and `output`, `BLOCK_N` rows of `keys` and `values`.
#[derive(Clone, Copy)]
pub struct Maps {
    /// Q.
    pub queries: *const TensorMap,
    /// K.
    pub keys: *const TensorMap,
    /// V.
    pub values: *const TensorMap,
    /// O; null where results do not leave by the copy engine.
    pub output: *const TensorMap,
}

/// Where results go beside the map.
#[derive(Clone, Copy)]
pub struct Outputs {
    /// O: rows of packed sequences whose tile reaches into the next sequence.
    pub data: *mut u8,
    /// Log-sum-exps, f32 `[batch, heads, queries]`, or `[heads, rows]` of packed sequences; or null.
    pub log_sum_exp: *mut f32,
}

/// The arguments of a launch with a score function.
#[derive(Clone, Copy)]
pub struct Arguments<'a, F> {
    /// The maps.
    pub maps: Maps,
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where packed sequences begin.
    pub packing: Packing,
    /// The results.
    pub outputs: Outputs,
    /// For each head of queries the score of one more key, whose value is zero; or null.
    pub sinks: *const f32,
    /// Where blocks draw the numbers of tiles.
    pub counter: Counter,
    /// The score function.
    pub function: &'a F,
    /// Which blocks of keys tiles look at.
    pub lists: Lists,
}

/// Registers of a producer's and a consumer's thread, for two consumers and for three.
pub(super) const REGISTERS: [[u32; 2]; 2] = [[40, 232], [32, 160]];

/// Attention of all tiles of queries, by the whole grid.
///
/// # Safety
/// The arguments are as [`Maps`], [`Outputs`] and [`AttentionParams`] say. The launch has blocks of
/// `C::THREADS` threads along x with `C::SHARED` bytes of dynamic shared memory.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_, C::Function>) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    let thread = thread::thread_idx_x();
    // SAFETY: one thread makes the barriers before all meet; a warpgroup has one role; the caller's contract.
    unsafe {
        if thread == 0 {
            tma::prefetch(arguments.maps.queries);
            tma::prefetch(arguments.maps.keys);
            tma::prefetch(arguments.maps.values);
            let mut place = 0;
            while place < C::CONSUMERS * C::QUERY_STAGES {
                mbarrier::init(shared.queries_full(place), 1);
                mbarrier::init(shared.queries_empty(place), 1);
                place += 1;
            }
            shared.key_pipeline().init(C::CONSUMERS);
            shared.value_pipeline().init(C::CONSUMERS);
            shared.schedule().init(releases(C::CONSUMERS));
            mbarrier::fence_init();
        }
        if C::Function::HAS_SLOPE {
            line::write_columns(shared, thread);
        }
        thread::sync_threads();
        // Earlier grids may still write the operands or read the result.
        grid::wait_dependencies();
        grid::launch_dependents();
        if thread < WARPGROUP {
            if C::CONSUMERS == 2 {
                registers::set_max_registers_dec::<{ REGISTERS[0][0] }>();
            } else {
                registers::set_max_registers_dec::<{ REGISTERS[1][0] }>();
            }
            if thread == 0 {
                produce::<C>(arguments, shared);
            }
        } else {
            if C::CONSUMERS == 2 {
                registers::set_max_registers_inc::<{ REGISTERS[0][1] }>();
            } else {
                registers::set_max_registers_inc::<{ REGISTERS[1][1] }>();
            }
            let thread = thread - WARPGROUP;
            // The assembler keeps what a warp's lanes agree on in registers of the warp.
            let (consumer, _) = warp_shuffle_idx(FULL_MASK, thread / WARPGROUP, 0, 32);
            let thread = thread % WARPGROUP;
            Consumer::<C> { arguments, shared, consumer, thread }.run();
        }
    }
}

impl<F: ScoreFunction> Arguments<'_, F> {
    /// The tile of this number, with its blocks if it begins in its sequence: of so many queries, and keys.
    ///
    /// # Safety
    /// As for [`AttentionParams::sequence`] and [`Walk::of`].
    #[inline(always)]
    pub(super) unsafe fn work(&self, number: u32, [block_m, block_n]: [u32; 2]) -> Work {
        let tile = Tiles::new(self.params, block_m).get(number);
        // SAFETY: the caller's contract.
        let sequence = unsafe { self.params.sequence(self.packing, tile.batch) };
        let band = self.params.band;
        let blocks = KeyBlocks::new(band, sequence, tile.first_row, block_m, block_n);
        let tile_number = tile.first_row / block_m;
        let of = Listing { tile: tile_number, head: tile.head, batch: tile.batch };
        let blocks = if F::IS_PLAIN {
            // A function that masks nothing has no lists of its own.
            Walk::all(blocks)
        } else {
            // SAFETY: the caller's contract.
            unsafe { Walk::of(blocks, &self.lists, of) }
        };
        Work { tile, sequence, blocks }
    }

    #[inline(always)]
    pub(super) const fn is_packed(&self) -> bool {
        !self.packing.queries.is_null()
    }
}

/// Fills the stages for one tile after the other.
///
/// # Safety
/// As for [`run`]; one thread calls it after the barriers are made.
#[inline(always)]
unsafe fn produce<C: Config>(arguments: Arguments<'_, C::Function>, shared: Plan<C>) {
    let Arguments { maps, params, .. } = arguments;
    let tiles = Tiles::new(params, C::BLOCK_M).count();
    let mut drawn = Drawn::first(shared.board(), arguments.counter, tiles);
    let (mut keys, mut values) = (PipelineState::START, PipelineState::START);
    let mut queries = PipelineState::START;
    while let Some(number) = drawn.number() {
        // SAFETY: the caller's contract. A stage that was acquired is empty, and expects a block's bytes; a
        // consumer has left its queries when their barrier says so, and before the first tile.
        unsafe {
            let work = arguments.work(number, [C::BLOCK_M, C::BLOCK_N]);
            drawn.tell(Some(work), |_| ());
            let Work { tile, sequence, blocks } = work;
            if work.has_queries() && blocks.count > 0 {
                let head = (tile.head / params.group.max(1)) as i32;
                let load = |map: *const TensorMap,
                            pipeline: Pipeline<Of<C>>,
                            state,
                            [to, boxes]: [u32; 2],
                            block: u32| {
                    let full = pipeline.producer_acquire(state, boxes * C::KEY_BOX);
                    let row = (sequence.first_key + block * C::BLOCK_N) as i32;
                    let mut column = 0;
                    while column < boxes {
                        let coords = [(column * BOX_COLUMNS) as i32, row, head, sequence.matrix as i32];
                        tma::load_4d(to + column * C::KEY_BOX, map, full, coords);
                        column += 1;
                    }
                };
                let load_values = |state: PipelineState<Of<C>>, block: u32| {
                    let to = |stage: u32| [shared.values(stage), C::VALUE_BOXES];
                    load(maps.values, shared.value_pipeline(), state, to(state.stage), block);
                };
                let (mut index, mut earlier) = (0, 0);
                while index < blocks.count {
                    let block = blocks.get(index).block;
                    let to = |stage: u32| [shared.keys(stage), C::BOXES];
                    load(maps.keys, shared.key_pipeline(), keys, to(keys.stage), block);
                    keys = keys.next();
                    if index == 0 {
                        load_queries::<C>(arguments, shared, work, queries);
                        queries = queries.next();
                    } else {
                        load_values(values, earlier);
                        values = values.next();
                    }
                    earlier = block;
                    index += 1;
                }
                load_values(values, earlier);
                values = values.next();
            }
            drawn.draw();
        }
    }
    // SAFETY: the caller's contract.
    unsafe { drawn.tell(None, |_| ()) }
}

/// Starts the copies of all consumers' queries.
///
/// # Safety
/// As for [`produce`]; `state` is the producer's, and counts the tiles with keys before this one.
#[inline(always)]
unsafe fn load_queries<C: Config>(
    arguments: Arguments<'_, C::Function>,
    shared: Plan<C>,
    work: Work,
    state: PipelineState<QueriesOf<C>>,
) {
    let map = arguments.maps.queries;
    let Work { tile, sequence, .. } = work;
    let mut consumer = 0;
    while consumer < C::CONSUMERS {
        let row = (sequence.first_query + tile.first_row + consumer * CONSUMER_ROWS) as i32;
        let place = place_of(state, consumer);
        let full = shared.queries_full(place);
        // SAFETY: the caller's contract; the phase before the first counts as over.
        unsafe {
            mbarrier::wait_parity(shared.queries_empty(place), state.phase ^ 1);
            mbarrier::arrive_expect_tx(full, Queries::<C>::BYTES);
            let mut column = 0;
            while column < C::BOXES {
                let coords = [(column * BOX_COLUMNS) as i32, row, tile.head as i32, sequence.matrix as i32];
                tma::load_4d(shared.queries(place) + column * C::QUERY_BOX, map, full, coords);
                column += 1;
            }
        }
        consumer += 1;
    }
}

/// The place of a consumer's queries of this stage.
#[inline(always)]
const fn place_of<C: Config>(state: PipelineState<QueriesOf<C>>, consumer: u32) -> u32 {
    state.stage * C::CONSUMERS + consumer
}

/// A thread of a consumer.
#[derive(Clone, Copy)]
pub(super) struct Consumer<'a, C: Config> {
    pub arguments: Arguments<'a, C::Function>,
    pub shared: Plan<C>,
    pub consumer: u32,
    /// Number in the warpgroup.
    pub thread: u32,
}

/// Where a consumer is in the pipelines.
struct Progress<C> {
    keys: PipelineState<Of<C>>,
    values: PipelineState<Of<C>>,
    queries: PipelineState<QueriesOf<C>>,
}

impl<C: Config> Consumer<'_, C> {
    /// Computes the consumer's rows of one tile after the other.
    ///
    /// # Safety
    /// As for [`run`]; all threads of all consumers call it.
    #[inline(always)]
    unsafe fn run(self) {
        let mut tiles = Followed::first(self.shared.board());
        let (keys, values) = (PipelineState::START, PipelineState::START);
        let mut at = Progress { keys, values, queries: PipelineState::START };
        // SAFETY: the caller's contract. The first turn is the first consumer's; the last one is taken back.
        unsafe {
            if C::TURNS && self.consumer + 1 == C::CONSUMERS {
                Barrier::Turn(0).arrive();
            }
            while let Some(ticket) = tiles.follow() {
                let work = ticket.work::<C::Function>();
                if work.has_queries() {
                    if work.blocks.count > 0 {
                        self.tile(ticket, &mut at);
                    } else {
                        self.beside().nothing(work);
                    }
                }
                tiles.leave();
            }
            if C::TURNS && self.consumer == 0 {
                Barrier::Turn(0).sync();
            }
            tma::wait_group::<0>();
        }
    }

    /// The rows of a tile that sees keys.
    ///
    /// # Safety
    /// The whole warpgroup is here, and the producer brings the tile.
    #[inline(always)]
    unsafe fn tile(self, ticket: Ticket, at: &mut Progress<C>) {
        let Self { shared, consumer, thread, .. } = self;
        let place = place_of(at.queries, consumer);
        let queries = shared.queries(place);
        let mut rows = Rows::new(self.softmax_scale());
        let mut scores: C::Scores = zero();
        let mut result: C::Result = zero();
        let mut weights = Rounded::zero();
        let mut index = 0;
        // SAFETY: the caller's contract. Stages are read between their wait and their release; registers of
        // products under way are left alone until the wait for them.
        unsafe {
            let listed = ticket.get::<C::Function>(index);
            let mut biases = self.biases(ticket, listed.block);
            self.begin(&mut scores, &mut rows, &mut biases);
            mbarrier::wait_parity(shared.queries_full(place), at.queries.phase);
            shared.key_pipeline().consumer_wait(at.keys);
            wgmma::fence_registers(&mut scores);
            biases.fence::<C>();
            wgmma::fence();
            self.multiply_scores(&mut scores, &biases, queries, at.keys.stage);
            wgmma::commit_group();
            let (seen, drawn) = (self.seen(ticket, listed), self.drawn(ticket, listed));
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut scores);
            self.release_keys(at);
            self.clear_foreign_values(ticket, at);
            self.modify(&mut scores, ticket, listed, seen);
            rows.push(&mut scores);
            self.round(&mut weights, &scores, drawn);
            while index + 1 < ticket.count() {
                let is_first = index == 0;
                index += 1;
                let listed = ticket.get::<C::Function>(index);
                // Without lists the blocks are neighbours.
                biases.next::<C>();
                self.begin(&mut scores, &mut rows, &mut biases);
                shared.key_pipeline().consumer_wait(at.keys);
                if C::TURNS {
                    Barrier::Turn(consumer).sync();
                }
                wgmma::fence_registers(&mut scores);
                wgmma::fence_registers(&mut result);
                weights.fence::<C::Scores>();
                biases.fence::<C>();
                wgmma::fence();
                // Else the loop would keep a descriptor for each product.
                let queries = misc::opaque(queries);
                self.multiply_scores(&mut scores, &biases, queries, at.keys.stage);
                wgmma::commit_group();
                shared.value_pipeline().consumer_wait(at.values);
                // Again behind a loop: the assembler would add one of its own.
                wgmma::fence();
                self.multiply_values(&mut result, &weights, at.values.stage, !is_first);
                wgmma::commit_group();
                if C::TURNS {
                    Barrier::Turn((consumer + 1) % C::CONSUMERS).arrive();
                }
                let (seen, drawn) = (self.seen(ticket, listed), self.drawn(ticket, listed));
                wgmma::wait_group::<1>();
                wgmma::fence_registers(&mut scores);
                self.release_keys(at);
                self.modify(&mut scores, ticket, listed, seen);
                let factors = rows.push(&mut scores);
                wgmma::wait_group::<0>();
                wgmma::fence_registers(&mut result);
                self.release_values(at);
                scale_rows(&mut result, factors);
                self.round(&mut weights, &scores, drawn);
            }
            if C::OWN_OUTPUT && thread == 0 {
                mbarrier::arrive(shared.queries_empty(place));
            }
            shared.value_pipeline().consumer_wait(at.values);
            wgmma::fence_registers(&mut result);
            weights.fence::<C::Scores>();
            wgmma::fence();
            self.multiply_values(&mut result, &weights, at.values.stage, index != 0);
            wgmma::commit_group();
            let work = ticket.work::<C::Function>();
            biases.end::<C>(&mut rows);
            let (factors, logarithms) = rows.finish(sink_of(self.arguments.sinks, work.tile.head));
            let factors = self.arguments.function.dropout().map_or(factors, |d| factors.map(|x| x * d.scale));
            self.beside().logarithms(work, logarithms);
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut result);
            self.release_values(at);
            scale_rows(&mut result, factors);
            self.store(work, &result);
        }
        at.queries = at.queries.next();
    }

    /// Starts `S = Q K^T`, with the biases.
    ///
    /// # Safety
    /// As for [`multiply`]; the stage is full.
    #[inline(always)]
    unsafe fn multiply_scores(self, scores: &mut C::Scores, biases: &Biases, queries: u32, stage: u32) {
        let queries = Boxes { first: queries, stride: C::QUERY_BOX };
        let keys = Boxes { first: self.shared.keys(stage), stride: C::KEY_BOX };
        // SAFETY: the caller's contract.
        unsafe {
            if C::Function::HAS_SLOPE {
                self.multiply_biases(scores, biases);
                multiply::<C::Element, _, true>(scores, queries, keys, C::HEAD)
            } else {
                multiply::<C::Element, _, false>(scores, queries, keys, C::HEAD)
            }
        }
    }

    /// Starts `O += P V`, or `O = P V` without `accumulate`.
    ///
    /// # Safety
    /// As for [`multiply_rounded`]; the stage is full.
    #[inline(always)]
    unsafe fn multiply_values(self, result: &mut C::Result, weights: &Rounded, stage: u32, accumulate: bool) {
        let values = Boxes { first: self.shared.values(stage), stride: C::KEY_BOX };
        // SAFETY: the caller's contract.
        unsafe { multiply_rounded::<C::Element, C::Scores, _>(result, weights, values, accumulate) }
    }

    /// Leaves the stage of keys.
    ///
    /// # Safety
    /// The whole warpgroup is here, and its products that read the stage are over.
    #[inline(always)]
    unsafe fn release_keys(self, at: &mut Progress<C>) {
        // SAFETY: the caller's contract.
        unsafe {
            self.shared.key_pipeline().consumer_release(at.keys.stage, self.thread, Alone::<C>::of_rank(0))
        }
        at.keys = at.keys.next();
    }

    /// Leaves the stage of values.
    ///
    /// # Safety
    /// As for [`release_keys`](Self::release_keys).
    #[inline(always)]
    unsafe fn release_values(self, at: &mut Progress<C>) {
        let pipeline = self.shared.value_pipeline();
        // SAFETY: the caller's contract.
        unsafe { pipeline.consumer_release(at.values.stage, self.thread, Alone::<C>::of_rank(0)) }
        at.values = at.values.next();
    }

    /// Number of the thread's first row in the tile; the other one is 8 below.
    #[inline(always)]
    pub const fn row(self) -> u32 {
        self.beside().row()
    }

    /// Clears the values behind the last key of a packed sequence: they are another sequence's, and what is
    /// infinite or no number there would spoil sums although its weight is zero.
    ///
    /// # Safety
    /// All consumers are here, with the same work, before their products of the tile's first values.
    #[inline(always)]
    unsafe fn clear_foreign_values(self, ticket: Ticket, at: &Progress<C>) {
        if !self.arguments.is_packed() {
            return;
        }
        // SAFETY: the caller's contract.
        let work = unsafe { ticket.work::<C::Function>() };
        // SAFETY: the caller's contract.
        let last = unsafe { work.blocks.get(0) }.block;
        let first = work.sequence.keys - last * C::BLOCK_N;
        if first >= C::BLOCK_N {
            return;
        }
        // SAFETY: the caller's contract; rows of a stage that is full, each written by one thread.
        unsafe {
            self.shared.value_pipeline().consumer_wait(at.values);
            let units = (C::BLOCK_N - first) * (LINE_BYTES / layout::UNIT_BYTES);
            let mut unit = self.consumer * WARPGROUP + self.thread;
            while unit < units {
                let mut column = 0;
                while column < C::VALUE_BOXES {
                    let line = self.shared.values(at.values.stage) + column * C::KEY_BOX + first * LINE_BYTES;
                    vector::store_shared_v4(line + unit * layout::UNIT_BYTES, [0u32; 4]);
                    column += 1;
                }
                unit += C::CONSUMERS * WARPGROUP;
            }
            fence::proxy_async_shared();
            if C::CONSUMERS == 2 { Barrier::Two(0).sync() } else { Barrier::Three(0).sync() }
        }
    }
}
