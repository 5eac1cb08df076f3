//! A warpgroup that multiplies, exponentiates and stores.

use cuda_std::convert::{bf16x2_from_f32, e4m3x4_from_f32};
use cuda_std::fastmath::fma;
use cuda_std::wgmma::{self, E4M3};
use cuda_std::{mbarrier, misc, vector};
use layout::wgmma::{K_BYTES, Swizzle, advance, descriptor};
use primitives::tma::LINE_BYTES;
use primitives::unroll;

use super::config::{Alone, CONSUMERS, Config, LINE_KEYS, Plan, QUERY_BOX, State};
use super::forward::Arguments;
use super::scales::TileHeads;
use super::softmax::{Rows, WEIGHT_UNIT};
use crate::block_lists::Listed;
use crate::problem::Band;
use crate::score::Identity;
use crate::sm90::forward::Barrier;
use crate::sm90::fragments::{Boxes, Fragment, multiply, scale_rows, steps, zero};
use crate::sm90::results::Beside;
use crate::sm90::schedule::{Followed, Ticket, Work};
use crate::sm90::scores::hide;
use crate::softmax::sink_of;

/// Most products of k of one instruction in a block of keys.
const MAX_STEPS: usize = 8;
/// Steps of a line of turned values.
const LINE_STEPS: usize = (LINE_KEYS / K_BYTES) as usize;

/// Columns whose products are summed apart from those of other blocks.
const PART_COLUMNS: u32 = 128;
/// Bytes of their turned values, of a line's keys.
const PART_BYTES: u32 = PART_COLUMNS * LINE_BYTES;
/// A thread's part of them.
type Part = [f32; PART_COLUMNS as usize / 2];

/// The weights of a block, rounded: registers of a left operand.
#[derive(Clone, Copy)]
struct Weights([[u32; 4]; MAX_STEPS]);

impl Weights {
    #[inline(always)]
    const fn zero() -> Self {
        Self([[0; 4]; MAX_STEPS])
    }

    /// Keeps the compiler from moving writes of the registers behind this place.
    #[inline(always)]
    fn fence<S: Fragment>(&mut self) {
        unroll!(STEP in 0..8, {
            if STEP < steps::<S>() / 4 {
                wgmma::fence_operand(&mut self.0[STEP]);
            }
        });
    }

    /// Rounds a block's weights. A register has two neighbours of 8 keys and two of the next 8.
    #[inline(always)]
    fn set<S: Fragment>(&mut self, scores: &S) {
        let x = scores.as_ref();
        unroll!(STEP in 0..8, {
            if STEP < steps::<S>() / 4 {
                unroll!(I in 0..4, {
                    let first = 16 * STEP + I / 2 * 8 + I % 2 * 2;
                    self.0[STEP][I] = e4m3x4_from_f32([x[first], x[first + 1], x[first + 4], x[first + 5]]);
                });
            }
        });
    }
}

/// A thread of a consumer.
#[derive(Clone, Copy)]
pub(super) struct Consumer<'a, C: Config> {
    pub arguments: Arguments<'a>,
    pub shared: Plan<C>,
    pub consumer: u32,
    /// Number in the warpgroup.
    pub thread: u32,
}

/// Where a consumer is in the pipelines.
struct Progress<C: Config> {
    keys: State<C>,
    values: State<C>,
    /// Parity of the number of tiles with keys so far.
    parity: u32,
}

/// The scales of a tile.
struct Factors {
    heads: TileHeads,
    /// The factor of scores, but for that of the keys.
    queries: f32,
    /// The factor of a block's scores.
    scores: f32,
    /// The scale of the last block of values: the unit of the sums.
    unit: f32,
}

impl Factors {
    /// Goes on to a block. Returns the factor of sums in front of it, which are in an older unit. A block of
    /// zeros, whose scale may be 0, has any unit.
    ///
    /// # Safety
    /// As for [`TileHeads::queries`].
    #[inline(always)]
    unsafe fn next(&mut self, arguments: Arguments<'_>, block: u32) -> f32 {
        // SAFETY: the caller's word.
        unsafe {
            if arguments.scales.keys.blocks > 1 {
                self.scores = self.heads.factor(arguments, self.queries, block);
            }
            if arguments.scales.values.blocks <= 1 {
                return 1.0;
            }
            let scale = self.heads.values(arguments, block);
            if scale == 0.0 {
                return 1.0;
            }
            let change = self.unit / scale;
            self.unit = scale;
            change
        }
    }
}

impl<'a, C: Config> Consumer<'a, C> {
    /// Computes the consumer's rows of one tile after the other.
    ///
    /// # Safety
    /// As for [`run`](super::forward::run); all threads of all consumers call it.
    #[inline(always)]
    pub unsafe fn run(self) {
        let mut tiles = Followed::first(self.shared.board());
        let mut at = Progress { keys: State::<C>::START, values: State::<C>::START, parity: 0 };
        // SAFETY: the caller's contract. The first turn is the first consumer's; the last one is taken back.
        unsafe {
            if self.consumer + 1 == CONSUMERS {
                Barrier::Turn(0).arrive();
            }
            while let Some(ticket) = tiles.follow() {
                let work = ticket.work::<Identity>();
                if work.has_queries() {
                    if work.blocks.count > 0 {
                        let heads = TileHeads { address: self.shared.heads(tiles.slot()) };
                        self.tile(ticket, heads, &mut at);
                    } else {
                        self.beside().nothing(work);
                    }
                }
                tiles.leave();
            }
            if self.consumer == 0 {
                Barrier::Turn(0).sync();
            }
        }
    }

    /// The rows of a tile that sees keys.
    ///
    /// # Safety
    /// The whole warpgroup is here, and the producer brings the tile.
    #[inline(always)]
    unsafe fn tile(self, ticket: Ticket, heads: TileHeads, at: &mut Progress<C>) {
        let mut rows = Rows::NONE;
        let mut result: C::Result = zero();
        // SAFETY: the caller's contract.
        unsafe {
            let queries = heads.queries(self.arguments, ticket.place().0.first_row);
            let first = ticket.get::<Identity>(0).block;
            let scores = heads.factor(self.arguments, queries, first);
            let mut sums = Factors { heads, queries, scores, unit: heads.values(self.arguments, first) };
            mbarrier::wait_parity(self.shared.queries_full(self.consumer), at.parity);
            self.add_blocks(ticket, &mut sums, at, &mut rows, &mut result);
            let work = ticket.work::<Identity>();
            let (factors, logarithms) = rows.finish(sink_of(self.arguments.base.sinks, work.tile.head));
            self.beside().logarithms(work, logarithms);
            scale_rows(&mut result, factors.map(|factor| factor * WEIGHT_UNIT * sums.unit));
            self.store(work, &result);
        }
        at.parity ^= 1;
    }

    /// Sums of all blocks, one after the other: a part of the results takes the registers of the scores. What
    /// overlaps is the other consumer's: while one has its turn, products of a block's values and of the next
    /// one's scores, the other one computes its softmax.
    ///
    /// # Safety
    /// As for [`tile`](Self::tile); the queries have come.
    #[inline(always)]
    unsafe fn add_blocks(
        self,
        ticket: Ticket,
        sums: &mut Factors,
        at: &mut Progress<C>,
        rows: &mut Rows,
        result: &mut C::Result,
    ) {
        let Self { arguments, shared, consumer, .. } = self;
        let queries = shared.queries(consumer);
        let (mut index, mut change) = (0, 1.0);
        let mut scores: C::Scores = zero();
        // SAFETY: the caller's contract. Stages are read between their wait and their release; registers of
        // products under way are left alone until the wait for them.
        unsafe {
            shared.key_pipeline().consumer_wait(at.keys);
            self.multiply_scores(&mut scores, queries, at.keys.stage);
            loop {
                self.release_keys(at);
                let is_last = index + 1 == ticket.count();
                if is_last {
                    self.release_queries();
                }
                self.hide(&mut scores, ticket, ticket.get::<Identity>(index));
                let factors = rows.push(&mut scores, sums.scores).map(|factor| factor * change);
                let mut weights = Weights::zero();
                weights.set(&scores);
                index += 1;
                if !is_last {
                    change = sums.next(arguments, ticket.get::<Identity>(index).block);
                    shared.key_pipeline().consumer_wait(at.keys);
                }
                mbarrier::wait_parity(shared.turned_full(at.values.stage), at.values.phase);
                Barrier::Turn(consumer).sync();
                unroll!(PART in 0..2, {
                    if PART < parts::<C>() {
                        let mut part: Part = zero();
                        self.multiply_values(&mut part, &mut weights, at.values.stage, PART);
                        add(result, factors, &part, PART);
                    }
                });
                self.release_values(at);
                if is_last {
                    break;
                }
                scores = zero();
                // Else the loop would keep a descriptor for each product.
                self.multiply_scores(&mut scores, misc::opaque(queries), at.keys.stage);
                Barrier::Turn((consumer + 1) % CONSUMERS).arrive();
            }
            Barrier::Turn((consumer + 1) % CONSUMERS).arrive();
        }
    }

    /// `S = Q K^T`.
    ///
    /// # Safety
    /// As for [`multiply`]; the stage is full.
    #[inline(always)]
    unsafe fn multiply_scores(self, scores: &mut C::Scores, queries: u32, stage: u32) {
        let queries = Boxes { first: queries, stride: QUERY_BOX };
        let keys = Boxes { first: self.shared.keys(stage), stride: C::KEY_BOX };
        // SAFETY: the caller's contract.
        unsafe {
            wgmma::fence_registers(scores);
            wgmma::fence();
            multiply::<E4M3, _, false>(scores, queries, keys, C::HEAD);
            wgmma::commit_group();
            wgmma::wait_group::<0>();
            wgmma::fence_registers(scores);
        }
    }

    /// `O = P V`, of 128 columns.
    ///
    /// # Safety
    /// As for [`wgmma::mma_ra`]; the stage is full.
    #[inline(always)]
    unsafe fn multiply_values(self, part: &mut Part, weights: &mut Weights, stage: u32, number: usize) {
        weights.fence::<C::Scores>();
        // SAFETY: the caller's contract.
        unsafe { wgmma::fence() }
        let first = self.shared.turned(stage) + number as u32 * PART_BYTES;
        let start = advance(descriptor(0, 0, Swizzle::B128.period(), Swizzle::B128), first);
        unroll!(STEP in 0..8, {
            if STEP < steps::<C::Scores>() / 4 {
                let line = (STEP / LINE_STEPS) as u32 * C::TURNED_BOX;
                let values = advance(start, line + (STEP % LINE_STEPS) as u32 * K_BYTES);
                // SAFETY: the caller's contract.
                unsafe {
                    if STEP == 0 {
                        wgmma::mma_ra_overwrite::<E4M3, E4M3, _, 0>(part, &weights.0[STEP], values);
                    } else {
                        wgmma::mma_ra::<E4M3, E4M3, _, 0>(part, &weights.0[STEP], values, true);
                    }
                }
            }
        });
        // SAFETY: the caller's contract.
        unsafe {
            wgmma::commit_group();
            wgmma::wait_group::<0>();
            wgmma::fence_registers(part);
        }
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
        if self.thread == 0 {
            // SAFETY: the caller's contract.
            unsafe { mbarrier::arrive(self.shared.turned_empty(at.values.stage)) }
        }
        at.values = at.values.next();
    }

    /// Tells that the queries have been read.
    ///
    /// # Safety
    /// The products that read them are over.
    #[inline(always)]
    unsafe fn release_queries(self) {
        if self.thread == 0 {
            // SAFETY: the caller's contract.
            unsafe { mbarrier::arrive(self.shared.queries_empty(self.consumer)) }
        }
    }

    /// Sets the scores of keys that a query does not see to minus infinity.
    ///
    /// # Safety
    /// As for [`Ticket::place`].
    #[inline(always)]
    unsafe fn hide(self, scores: &mut C::Scores, ticket: Ticket, Listed { block, is_partial }: Listed) {
        if !is_partial {
            return;
        }
        // Places are computed here, and not kept over blocks without a mask.
        let place = Self { thread: misc::opaque(self.thread), ..self };
        let column = block * C::BLOCK_N + place.thread % 4 * 2;
        let band = self.arguments.base.params.band;
        // Nor is what the band says, which the producer asks too.
        let band = Band { top_left: misc::opaque(band.top_left), ..band };
        // SAFETY: the caller's contract.
        unsafe { hide(scores, band, ticket, place.beside().row(), column) }
    }

    /// Stores what goes beside the tile.
    #[inline(always)]
    const fn beside(self) -> Beside<'a> {
        let base = self.arguments.base;
        let (params, outputs, sinks) = (base.params, base.outputs, base.sinks);
        Beside { params, outputs, sinks, consumer: self.consumer, thread: self.thread }
    }

    /// Stores the results of the thread's rows: four neighbours at a time.
    ///
    /// # Safety
    /// As for [`run`](super::forward::run).
    #[inline(always)]
    unsafe fn store(self, work: Work, result: &C::Result) {
        let Work { tile, sequence, .. } = work;
        let base = self.arguments.base;
        let x = result.as_ref();
        let matrix = sequence.matrix as usize * base.params.output_matrix as usize;
        let head = matrix + tile.head as usize * base.params.output_head as usize;
        let column = self.thread % 4 * 4;
        unroll!(ROW in 0..2, {
            let row = tile.first_row + self.beside().row() + 8 * ROW as u32;
            if row < sequence.queries {
                let at = head + (sequence.first_query + row) as usize * base.params.output_row as usize;
                // SAFETY: a row of the sequence.
                let to = unsafe { base.outputs.data.cast::<u16>().add(at + column as usize) };
                unroll!(STEP in 0..16, {
                    if STEP < steps::<C::Result>() / 2 && column + 16 * (STEP as u32) < base.params.head_size {
                        let even = 8 * STEP + 2 * ROW;
                        let odd = even + 4;
                        let four = [
                            bf16x2_from_f32(x[even], x[odd]),
                            bf16x2_from_f32(x[even + 1], x[odd + 1]),
                        ];
                        // SAFETY: four elements of the row, which has a multiple of four.
                        unsafe { vector::store_v2(to.add(16 * STEP).cast::<u32>(), four) }
                    }
                });
            }
        });
    }
}

/// `sum = factor * sum + part`, by rows; the part of this number.
#[inline(always)]
fn add<F: Fragment>(sum: &mut F, factors: [f32; 2], part: &Part, number: usize) {
    let sum = sum.as_mut();
    unroll!(STEP in 0..16, {
        unroll!(I in 0..4, {
            let at = number * part.len() + 4 * STEP + I;
            sum[at] = fma(sum[at], factors[I / 2], part[4 * STEP + I]);
        });
    });
}

/// Parts of a thread's results.
const fn parts<C: Config>() -> usize {
    (C::HEAD / PART_COLUMNS) as usize
}
