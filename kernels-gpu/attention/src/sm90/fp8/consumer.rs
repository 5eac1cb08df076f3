//! A warpgroup that multiplies, exponentiates and stores.

use cuda_std::convert::{bf16x2_from_f32, e4m3x2_from_f32};
use cuda_std::fastmath::fma;
use cuda_std::wgmma::{self, E4M3};
use cuda_std::{mbarrier, misc, vector};
use layout::wgmma::{K_BYTES, Swizzle, advance, descriptor};
use primitives::named_barriers;
use primitives::pipeline::PipelineState;
use primitives::unroll;

use super::config::{Alone, BLOCK_N, CONSUMERS, Config, KEY_BOX, Of, Plan, QUERY_BOX, Scores};
use super::forward::Arguments;
use super::scales::TileHeads;
use super::softmax::{Rows, WEIGHT_UNIT};
use crate::score::Identity;
use crate::sm90::config::WARPGROUP;
use crate::sm90::fragments::{Boxes, Fragment, multiply, scale_rows, steps, zero};
use crate::sm90::results::Beside;
use crate::sm90::schedule::{Followed, Ticket, Work};
use crate::sm90::scores::hide;
use crate::softmax::sink_of;

const PAIR: u32 = CONSUMERS * WARPGROUP;

named_barriers! {
    /// The named barriers of a block.
    pub enum Barrier {
        /// Where a consumer waits for its turn to issue products.
        Turn[2]: PAIR threads,
    }
}

/// Products of k of one instruction in a block of keys.
const STEPS: usize = (BLOCK_N / K_BYTES) as usize;

/// The weights of a block, rounded: registers of a left operand.
#[derive(Clone, Copy)]
struct Weights([[u32; 4]; STEPS]);

impl Weights {
    #[inline(always)]
    const fn zero() -> Self {
        Self([[0; 4]; STEPS])
    }

    /// Keeps the compiler from moving writes of the registers behind this place.
    #[inline(always)]
    fn fence(&mut self) {
        unroll!(STEP in 0..4, { wgmma::fence_operand(&mut self.0[STEP]); });
    }

    /// Rounds a block's weights. A register has two neighbours of 8 keys and two of the next 8.
    #[inline(always)]
    fn set(&mut self, x: &Scores) {
        unroll!(STEP in 0..4, {
            unroll!(I in 0..4, {
                let first = 16 * STEP + I / 2 * 8 + I % 2 * 2;
                let low = e4m3x2_from_f32(x[first], x[first + 1]);
                let high = e4m3x2_from_f32(x[first + 4], x[first + 5]);
                self.0[STEP][I] = u32::from(low) | u32::from(high) << 16;
            });
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
struct Progress<C> {
    keys: PipelineState<Of<C>>,
    values: PipelineState<Of<C>>,
    /// Parity of the number of tiles with keys so far.
    parity: u32,
}

/// The unit of sums so far: the scale of the last block of values.
#[derive(Clone, Copy)]
struct Unit(f32);

impl Unit {
    /// Goes on to a block's unit, and returns the factor of what is in the old one. A block of zeros, whose
    /// scale may be 0, has any.
    #[inline(always)]
    fn change(&mut self, scale: f32) -> f32 {
        if scale == 0.0 {
            return 1.0;
        }
        let factor = self.0 / scale;
        self.0 = scale;
        factor
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
        let mut at = Progress { keys: PipelineState::START, values: PipelineState::START, parity: 0 };
        // SAFETY: the caller's contract. The first turn is the first consumer's; the last one is taken back.
        unsafe {
            if C::TURNS && self.consumer + 1 == CONSUMERS {
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
            if C::TURNS && self.consumer == 0 {
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
        let Self { arguments, shared, consumer, thread } = self;
        let queries = shared.queries(consumer);
        let mut rows = Rows::NONE;
        let mut scores: Scores = zero();
        let mut result: C::Result = zero();
        let mut weights = Weights::zero();
        let mut index = 0;
        // SAFETY: the caller's contract. Stages are read between their wait and their release; registers of
        // products under way are left alone until the wait for them.
        unsafe {
            let query_scale = heads.queries(arguments, ticket.place().0.first_row);
            let mut listed = ticket.get::<Identity>(index);
            let mut unit = Unit(heads.values(arguments, listed.block));
            mbarrier::wait_parity(shared.queries_full(consumer), at.parity);
            shared.key_pipeline().consumer_wait(at.keys);
            wgmma::fence_registers(&mut scores);
            wgmma::fence();
            self.multiply_scores(&mut scores, queries, at.keys.stage);
            wgmma::commit_group();
            let factor = heads.factor(arguments, query_scale, listed.block);
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut scores);
            self.release_keys(at);
            if listed.is_partial {
                self.hide(&mut scores, ticket, listed.block);
            }
            // Of sums in front of the block whose products are under way.
            let mut earlier = rows.push(&mut scores, factor);
            weights.set(&scores);
            while index + 1 < ticket.count() {
                let is_first = index == 0;
                index += 1;
                listed = ticket.get::<Identity>(index);
                shared.key_pipeline().consumer_wait(at.keys);
                if C::TURNS {
                    Barrier::Turn(consumer).sync();
                }
                let mut part: C::Result = zero();
                wgmma::fence_registers(&mut scores);
                wgmma::fence_registers(&mut result);
                weights.fence();
                wgmma::fence();
                // Else the loop would keep a descriptor for each product.
                let queries = misc::opaque(queries);
                self.multiply_scores(&mut scores, queries, at.keys.stage);
                wgmma::commit_group();
                mbarrier::wait_parity(shared.turned_full(at.values.stage), at.values.phase);
                // Again behind a loop: the assembler would add one of its own.
                wgmma::fence();
                if C::IN_PARTS {
                    self.multiply_values(&mut part, &weights, at.values.stage, false);
                } else {
                    self.multiply_values(&mut result, &weights, at.values.stage, !is_first);
                }
                wgmma::commit_group();
                if C::TURNS {
                    Barrier::Turn((consumer + 1) % CONSUMERS).arrive();
                }
                let factor = heads.factor(arguments, query_scale, listed.block);
                let change = unit.change(heads.values(arguments, listed.block));
                wgmma::wait_group::<1>();
                wgmma::fence_registers(&mut scores);
                self.release_keys(at);
                if listed.is_partial {
                    self.hide(&mut scores, ticket, listed.block);
                }
                let factors = rows.push(&mut scores, factor).map(|factor| factor * change);
                wgmma::wait_group::<0>();
                if C::IN_PARTS {
                    wgmma::fence_registers(&mut part);
                    add(&mut result, earlier, &part);
                    earlier = factors;
                } else {
                    wgmma::fence_registers(&mut result);
                    scale_rows(&mut result, factors);
                }
                self.release_values(at);
                weights.set(&scores);
            }
            if thread == 0 {
                mbarrier::arrive(shared.queries_empty(consumer));
            }
            mbarrier::wait_parity(shared.turned_full(at.values.stage), at.values.phase);
            let mut part: C::Result = zero();
            wgmma::fence_registers(&mut result);
            weights.fence();
            wgmma::fence();
            if C::IN_PARTS {
                self.multiply_values(&mut part, &weights, at.values.stage, false);
            } else {
                self.multiply_values(&mut result, &weights, at.values.stage, index != 0);
            }
            wgmma::commit_group();
            let work = ticket.work::<Identity>();
            let (factors, logarithms) = rows.finish(sink_of(self.arguments.base.sinks, work.tile.head));
            self.beside().logarithms(work, logarithms);
            wgmma::wait_group::<0>();
            if C::IN_PARTS {
                wgmma::fence_registers(&mut part);
                add(&mut result, earlier, &part);
            } else {
                wgmma::fence_registers(&mut result);
            }
            self.release_values(at);
            scale_rows(&mut result, factors.map(|factor| factor * WEIGHT_UNIT * unit.0));
            self.store(work, &result);
        }
        at.parity ^= 1;
    }

    /// Starts `S = Q K^T`.
    ///
    /// # Safety
    /// As for [`multiply`]; the stage is full.
    #[inline(always)]
    unsafe fn multiply_scores(self, scores: &mut Scores, queries: u32, stage: u32) {
        let queries = Boxes { first: queries, stride: QUERY_BOX };
        let keys = Boxes { first: self.shared.keys(stage), stride: KEY_BOX };
        // SAFETY: the caller's contract.
        unsafe { multiply::<E4M3, _>(scores, queries, keys, C::HEAD) }
    }

    /// Starts `O += P V`, or `O = P V` without `accumulate`.
    ///
    /// # Safety
    /// As for [`wgmma::mma_ra`]; the stage is full.
    #[inline(always)]
    unsafe fn multiply_values(self, result: &mut C::Result, weights: &Weights, stage: u32, accumulate: bool) {
        let first = self.shared.turned(stage);
        let start = advance(descriptor(0, 0, Swizzle::B128.period(), Swizzle::B128), first);
        unroll!(STEP in 0..4, {
            let values = advance(start, STEP as u32 * K_BYTES);
            // SAFETY: the caller's contract.
            unsafe {
                if C::IN_PARTS && STEP == 0 {
                    wgmma::mma_ra_overwrite::<E4M3, E4M3, _, 0>(result, &weights.0[STEP], values);
                } else {
                    let accumulate = STEP != 0 || accumulate;
                    wgmma::mma_ra::<E4M3, E4M3, _, 0>(result, &weights.0[STEP], values, accumulate);
                }
            }
        });
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

    /// Leaves the stage of turned values.
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

    /// Sets the scores of keys that a query does not see to minus infinity.
    ///
    /// # Safety
    /// As for [`Ticket::place`].
    #[inline(always)]
    unsafe fn hide(self, scores: &mut Scores, ticket: Ticket, block: u32) {
        // Places are computed here, and not kept over blocks without a mask.
        let place = Self { thread: misc::opaque(self.thread), ..self };
        let column = block * BLOCK_N + place.thread % 4 * 2;
        // SAFETY: the caller's contract.
        unsafe { hide(scores, self.arguments.base.params.band, ticket, place.beside().row(), column) }
    }

    /// What is stored beside the tile.
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

/// `sum = factor * sum + part`, by rows.
#[inline(always)]
fn add<F: Fragment>(sum: &mut F, factors: [f32; 2], part: &F) {
    let (sum, part) = (sum.as_mut(), part.as_ref());
    unroll!(STEP in 0..32, {
        if STEP < (F::N / 8) as usize {
            unroll!(I in 0..4, {
                sum[4 * STEP + I] = fma(sum[4 * STEP + I], factors[I / 2], part[4 * STEP + I]);
            });
        }
    });
}
