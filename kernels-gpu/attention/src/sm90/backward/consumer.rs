//! A thread of a consumer, and what consumers do in every kernel of the backward pass: weights and dS of a
//! tile, and the sums of dQ.

use cuda_std::fastmath::{ex2_approx, fma};
use cuda_std::{mbarrier, misc, vector, wgmma};
use primitives::cluster::ClusterCoord;
use primitives::pipeline::{Pipeline, PipelineState};
use primitives::tma::LINE_BYTES;
use primitives::unroll;

use super::arguments::Arguments;
use super::config::{Barrier, CONSUMER_KEYS, Config, Of, Plan};
use super::work::{Ticket, Turn, Work};
use crate::dropout::First;
use crate::problem::{KeyTile, Seen};
use crate::score::ScoreFunction;
use crate::sm90::config::WARPGROUP;
use crate::sm90::fragments::{Boxes, Rounded, in_row, multiply, steps};

/// A thread of a consumer.
#[derive(Clone, Copy)]
pub struct Consumer<'a, C: Config> {
    pub(super) arguments: Arguments<'a>,
    pub(super) function: &'a C::Function,
    pub(super) shared: Plan<C>,
    /// The block's number in its pair; 0 without one.
    pub(super) rank: u32,
    /// The consumer's number in the block.
    pub(super) consumer: u32,
    /// The thread's in the consumer.
    pub(super) thread: u32,
    /// Where the keys and values are, with their work.
    pub(super) place: PipelineState<Of<C>>,
}

/// The weights that dropout leaves of a thread's part of a tile.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    /// A bit for each query, for both keys.
    pub kept: [u32; 2],
    /// Factor of what is kept.
    pub factor: f32,
}

impl<C: Config> Consumer<'_, C> {
    /// The first of the consumer's keys among those of the tile: consumers share a block's keys out, or have
    /// the same ones in a pair of blocks.
    #[inline(always)]
    pub(super) const fn own_keys(self) -> u32 {
        (if C::BLOCKS == 2 { self.rank } else { self.consumer }) * CONSUMER_KEYS
    }

    /// Bytes from a box of the block's keys to the consumer's lines.
    #[inline(always)]
    pub(super) const fn first_line(self) -> u32 {
        if C::BLOCKS == 2 { 0 } else { self.consumer * CONSUMER_KEYS * LINE_BYTES }
    }

    /// The work of the tile of keys.
    ///
    /// # Safety
    /// It has been told, and the block has met since, or K has come.
    #[inline(always)]
    pub(super) unsafe fn work(self) -> Work {
        // SAFETY: the caller's contract.
        unsafe { Work::told(self.shared.work(self.place.stage)) }
    }

    /// Where K is.
    #[inline(always)]
    pub(super) fn keys(self) -> u32 {
        self.shared.keys(self.place.stage)
    }

    /// Where V is.
    #[inline(always)]
    pub(super) fn values(self) -> u32 {
        self.shared.values(self.place.stage)
    }

    /// Waits until K and V have come.
    ///
    /// # Safety
    /// The barriers have been made.
    #[inline(always)]
    pub(super) unsafe fn wait_for_keys(self) {
        let PipelineState { stage, phase, .. } = self.place;
        // SAFETY: the caller's contract.
        unsafe {
            mbarrier::wait_parity(self.shared.keys_full(stage), phase);
            mbarrier::wait_parity(self.shared.values_full(stage), phase);
        }
    }

    /// Where the producer tells of a stage's tile of queries.
    #[inline(always)]
    pub(super) fn ticket(self, stage: u32) -> Ticket {
        Ticket::at(self.shared.tickets(stage))
    }

    /// Starts `S^T = K Q^T` as a group, when the queries have come.
    ///
    /// # Safety
    /// The whole warpgroup is here; K has come.
    #[inline(always)]
    pub(super) unsafe fn start_scores(self, scores: &mut C::Scores, state: PipelineState<Of<C>>) {
        let queries = Self::boxes(self.shared.queries(state.stage), C::QUERY_BOX);
        // SAFETY: the caller's contract.
        unsafe {
            self.shared.query_pipeline().consumer_wait(state);
            wgmma::fence();
            multiply::<C::Element, _, false>(scores, self.own_lines(self.keys()), queries, C::HEAD);
            wgmma::commit_group();
        }
    }

    /// Starts `dP^T = V dO^T` as a group, when the gradients have come.
    ///
    /// # Safety
    /// The whole warpgroup is here; V has come.
    #[inline(always)]
    pub(super) unsafe fn start_weighted(self, weighted: &mut C::Scores, state: PipelineState<Of<C>>) {
        let gradients = Self::boxes(self.shared.gradients(state.stage), C::QUERY_BOX);
        // SAFETY: the caller's contract.
        unsafe {
            self.shared.gradient_pipeline().consumer_wait(state);
            wgmma::fence();
            let values = self.own_lines(self.values());
            multiply::<C::Element, _, false>(weighted, values, gradients, C::VALUE_HEAD);
            wgmma::commit_group();
        }
    }

    /// The consumer's lines of a block of keys.
    #[inline(always)]
    fn own_lines(self, keys: u32) -> Boxes {
        Self::boxes(misc::opaque(keys) + self.first_line(), C::KEY_BOX)
    }

    /// Boxes of shared memory as an operand.
    #[inline(always)]
    pub(super) const fn boxes(first: u32, stride: u32) -> Boxes {
        if C::CLUSTER > 1 { Boxes::in_cluster(first, stride) } else { Boxes { first, stride } }
    }

    /// Makes weights of scores: `2^(c s - L)`.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    pub(super) unsafe fn weigh(self, scores: &mut C::Scores, stage: u32) {
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

    /// Rounds weights, without those that are dropped; and gives all of them, rounded.
    #[inline(always)]
    pub(super) fn round(self, to: &mut Rounded, weights: &C::Scores, drawn: Option<Drawn>) -> Rounded {
        to.set::<C::Element, _>(weights);
        let all = *to;
        if let Some(Drawn { kept, .. }) = drawn {
            to.keep::<C::Scores>(kept);
        }
        all
    }

    /// Which weights of the stage's tile are kept by dropout: a bit for each of the thread's queries, for
    /// both keys; and the factor of gradients of those weights. None where nothing is dropped.
    ///
    /// # Safety
    /// The stage is full; the whole warp is here.
    #[inline(always)]
    pub(super) unsafe fn drawn(self, stage: u32) -> Option<Drawn> {
        let dropout = self.function.dropout()?;
        // SAFETY: the caller's contract; the block has met since the work was told.
        unsafe {
            let (Turn { block, head, .. }, Work { tile, .. }) = (self.ticket(stage).read(), self.work());
            let thread = misc::opaque(self.thread);
            let key = Self { thread, ..self }.first_key(tile);
            let query = block * C::BLOCK_M + thread % 4 * 2;
            let kept = dropout.of_keys(First { batch: tile.batch, head, query, key }, steps::<C::Scores>());
            Some(Drawn { kept, factor: dropout.scale })
        }
    }

    /// `dS = P (dP - D)`, rounded, of weights in f32, or of rounded ones ([`Config::KEEPS_WEIGHTS`]).
    /// Gradients of weights that are dropped count as 0, the others by their factor.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    pub(super) unsafe fn subtract(
        self,
        to: &mut Rounded,
        weighted: &C::Scores,
        (weights, rounded): (&C::Scores, &Rounded),
        drawn: Option<Drawn>,
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
                    let [low, high] = [0, 1].map(|i| {
                        let x = x[place + i];
                        let difference = match drawn {
                            None => x - deltas[i],
                            Some(Drawn { kept, factor }) => {
                                fma(only(x, kept[ROW], 2 * STEP + i), factor, -deltas[i])
                            }
                        };
                        p[i] * difference
                    });
                    to.set_pair::<C::Element>(pair, low, high);
                });
            }
        });
    }

    /// The first of the thread's two keys; the other one is 8 behind it.
    #[inline(always)]
    pub(super) fn first_key(self, tile: KeyTile) -> u32 {
        tile.first_key + self.own_keys() + self.thread / 32 * 16 + self.thread % 32 / 4
    }

    /// Clears the weights of keys that a query does not see.
    ///
    /// # Safety
    /// As for [`run`](super::main_pass::run).
    #[inline(always)]
    pub(super) unsafe fn mask(self, weights: &mut C::Scores, block: u32) {
        // SAFETY: the block has met since the work was told.
        let Work { tile, sequence, .. } = unsafe { self.work() };
        // Places are computed here, and not kept beside the products.
        let thread = misc::opaque(self.thread);
        let first_key = Self { thread, ..self }.first_key(tile);
        // From the thread's first query of the tile.
        let column = block * C::BLOCK_M + thread % 4 * 2;
        let x = weights.as_mut();
        unroll!(ROW in 0..2, {
            let Seen { first, end } = self.arguments.params.band.seen_by(sequence, first_key + 8 * ROW as u32);
            let seen = in_row(first, end, column);
            unroll!(STEP in 0..16, {
                if STEP < steps::<C::Scores>() {
                    unroll!(I in 0..2, {
                        if seen & 1 << (2 * STEP + I) == 0 {
                            x[4 * STEP + 2 * ROW + I] = 0.0;
                        }
                    });
                }
            });
        });
    }

    /// Writes dS to this buffer in shared memory.
    ///
    /// # Safety
    /// The whole warpgroup is here, and all have read the buffer.
    #[inline(always)]
    pub(super) unsafe fn write(self, differences: &Rounded, buffer: u32) {
        let to = self.shared.scores(buffer) + self.first_line();
        // SAFETY: the caller's contract.
        unsafe { differences.write::<C::Scores>(to, C::KEY_BOX, self.thread) }
    }

    /// Leaves the stage of queries, warp by warp.
    ///
    /// # Safety
    /// The whole warpgroup is here, and its products that read the stage are over; since a warp's lanes read
    /// the stage's numbers they have met.
    #[inline(always)]
    pub(super) unsafe fn release_queries(self, stage: u32) {
        // SAFETY: the caller's contract.
        unsafe { self.leave(self.shared.query_pipeline(), stage) }
    }

    /// Leaves the stage of gradients.
    ///
    /// # Safety
    /// As for [`release_queries`](Self::release_queries).
    #[inline(always)]
    pub(super) unsafe fn release_gradients(self, stage: u32) {
        // SAFETY: the caller's contract.
        unsafe { self.leave(self.shared.gradient_pipeline(), stage) }
    }

    /// Leaves a stage of a pipeline.
    ///
    /// # Safety
    /// As for [`release_queries`](Self::release_queries).
    #[inline(always)]
    unsafe fn leave(self, pipeline: Pipeline<Of<C>>, stage: u32) {
        let (lane, of_pair) = (self.thread % 32, ClusterCoord::<Of<C>>::of_rank(0));
        // SAFETY: the caller's contract; blocks of a pair meet at the kernel's end.
        unsafe {
            // Rows of other sequences may have been cleared.
            if C::BLOCKS == 2 && self.arguments.is_packed::<C>() {
                pipeline.consumer_release_written(stage, lane, of_pair);
            } else {
                pipeline.consumer_release(stage, lane, of_pair);
            }
        }
    }

    /// Where the thread adds its part of dQ of the tile of queries with this first row.
    #[inline(always)]
    pub(super) fn sums(self, row: usize) -> *mut f32 {
        let part = self.rank * C::PART_CONSUMERS + self.consumer;
        let own = (part * (C::BLOCK_M * C::HEAD / C::PARTS) + misc::opaque(self.thread) * 4) as usize;
        self.arguments.rows.sums.wrapping_add(row * C::HEAD as usize + own)
    }

    /// Adds the consumer's part of dQ to the sums, when it is its turn.
    ///
    /// # Safety
    /// They are the thread's ([`sums`](Self::sums)); the whole warpgroup is here.
    #[inline(always)]
    pub(super) unsafe fn add(self, part: &C::QueryGradient, sums: *mut f32) {
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

/// `x` if this bit is set, else 0, whatever `x` is. With a condition the assembler gets a branch for each
/// score, around what makes it.
#[inline(always)]
pub(super) fn only(x: f32, bits: u32, bit: usize) -> f32 {
    let mask = (bits << (31 - bit)).cast_signed() >> 31;
    f32::from_bits(x.to_bits() & mask.cast_unsigned())
}
