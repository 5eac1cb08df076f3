//! How the results of a block get to memory: whole ones to the result, parts of them to where
//! [`combine`](super::combine) finds them.

use cuda_std::{misc, thread, vector};
use layout::{UNIT_BYTES, swizzle_units};
use primitives::unroll;

use super::config::{Cached, Config, Element, THREADS, TILE_ROWS, UNIT, WARPS};
use super::forward::Pass;
use super::problem::{DecodeParams, Row};
use super::schedule::Cursor;
use crate::softmax::{Total, factor, sink_of};

/// Where results go.
#[derive(Clone, Copy)]
pub struct Outputs {
    /// O.
    pub data: *mut u16,
    /// Log-sum-exps, f32 `[batch, heads, queries]`; or null.
    pub log_sum_exp: *mut f32,
    /// For each head of queries the score of one more key, whose value is zero; or null.
    pub sinks: *const f32,
    /// The parts that blocks leave of the items that they do not compute alone.
    pub parts: Parts,
}

/// Parts of results: each block has a place for the item that it ends, and one for the item that it begins.
#[derive(Clone, Copy)]
pub struct Parts {
    /// For each block the item that it ends and another one began, or zeros: [`Ended`] as words.
    pub ended: *mut u32,
    /// For each place the sums of 16 rows of `HEAD` columns.
    pub sums: *mut f32,
    /// For each place the [`Total`] of 16 rows: two numbers each.
    pub totals: *mut f32,
}

/// Words that a block writes of the item that it ends.
pub const ENDED_WORDS: u32 = 4;
/// Places of a block.
pub const PLACES: u32 = 2;

/// The place of a block's part of an item that began there, or before.
#[inline(always)]
#[must_use]
pub const fn place(block: u32, begins: bool) -> u32 {
    block * PLACES + begins as u32
}

/// An item that a block ends and another one began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The block that began it; all up to the one that ends it have parts of it.
    pub first_block: u32,
    /// Head of keys.
    pub head: u32,
    /// Tile of rows.
    pub row_tile: u32,
    /// Sequence.
    pub sequence: u32,
}

impl Ended {
    /// As words, of which none but the first can tell it from no item.
    #[inline(always)]
    #[must_use]
    pub const fn words(self) -> [u32; 4] {
        [self.first_block + 1, self.head, self.row_tile, self.sequence]
    }

    /// From words.
    #[inline(always)]
    #[must_use]
    pub const fn of_words([first, head, row_tile, sequence]: [u32; 4]) -> Option<Self> {
        if first == 0 { None } else { Some(Self { first_block: first - 1, head, row_tile, sequence }) }
    }
}

impl Outputs {
    /// Says that the block has ended no item yet.
    ///
    /// # Safety
    /// All threads of the block call it; there is a place for each block.
    #[inline(always)]
    pub unsafe fn begin(self) {
        if thread::thread_idx_x() == 0 {
            // SAFETY: the caller's word.
            unsafe { vector::store_v4(self.ended(), [0; 4]) }
        }
    }

    /// The words of this block.
    #[inline(always)]
    fn ended(self) -> *mut u32 {
        self.parts.ended.wrapping_add((thread::block_idx_x() * ENDED_WORDS) as usize)
    }

    /// Stores eight columns of a row of the result, which is divided by its sum, and with the first of them
    /// the log-sum-exp.
    ///
    /// # Safety
    /// It is a row of the result; no other thread stores these columns.
    #[inline(always)]
    pub unsafe fn store<E: Element>(
        self,
        params: &DecodeParams,
        sequence: u32,
        row: Row,
        column: u32,
        values: [f32; 8],
        total: Total,
    ) {
        // SAFETY: the row's head.
        let sink = unsafe { sink_of(self.sinks, row.head) };
        let (inverse, logarithm) = total.finish(factor(params.scale), sink);
        let [a, b, c, d, e, f, g, h] = values.map(|value| value * inverse);
        let words = [E::pack(a, b), E::pack(c, d), E::pack(e, f), E::pack(g, h)];
        let at = params.output_strides.at(row.query, row.head, sequence) + column as usize;
        let heads = params.kv_heads * params.group;
        let place = (sequence as usize * heads as usize + row.head as usize) * params.queries as usize;
        // SAFETY: the caller's word.
        unsafe {
            if column < params.head_size {
                vector::store_v4(self.data.add(at).cast::<u32>(), words);
            }
            if column == 0 && !self.log_sum_exp.is_null() {
                *self.log_sum_exp.add(place + row.query as usize) = logarithm;
            }
        }
    }
}

impl Parts {
    /// Stores eight columns of a part, and with the first of them its total.
    ///
    /// # Safety
    /// There are places for the block; no other thread stores these columns.
    #[inline(always)]
    unsafe fn store<C: Config>(self, place: u32, row: u32, column: u32, values: [f32; 8], total: Total) {
        let row = place as usize * TILE_ROWS as usize + row as usize;
        let [a, b, c, d, e, f, g, h] = values;
        // SAFETY: the caller's word.
        unsafe {
            let to = self.sums.add(row * C::HEAD as usize + column as usize);
            vector::store_v4(to, [a, b, c, d]);
            vector::store_v4(to.add(4), [e, f, g, h]);
            if column == 0 {
                vector::store_v2(self.totals.add(2 * row), [total.max, total.sum]);
            }
        }
    }
}

/// Numbers of f32 of a unit of 16 bytes.
const WORDS: u32 = UNIT_BYTES / 4;

impl<C: Config> Pass<'_, C> {
    /// Adds up what the warps have of an item, and stores it. The warps' results lie in the stage at `stage`
    /// of their rings meanwhile, if they have no place of their own.
    ///
    /// # Safety
    /// All threads of the block call it; the warps have left that stage, and nothing is copied to it before
    /// the block's next barrier.
    #[inline(always)]
    pub unsafe fn finish(
        self,
        stage: u32,
        first: &Cursor,
        end: &Cursor,
        totals: [Total; 2],
        result: &C::Result,
    ) {
        let params = self.arguments.problem.params;
        let is_end = end.is_at_end();
        let rows = (params.rows() - first.row_tile * TILE_ROWS).min(TILE_ROWS);
        // SAFETY: the caller's contract. Behind the barrier all threads read what all have written.
        unsafe {
            self.leave(stage, totals, result);
            thread::sync_threads();
            let mut index = thread::thread_idx_x();
            while index < rows * C::UNITS {
                let (row, column) = (index / C::UNITS, index % C::UNITS * UNIT);
                let (values, total) = self.merge(stage, row, column);
                if is_end && first.chunk == 0 {
                    let place = params.row(first.head, first.row_tile * TILE_ROWS + row);
                    let outputs = self.arguments.outputs;
                    outputs.store::<C::Element>(params, first.sequence, place, column, values, total);
                } else {
                    let place = place(thread::block_idx_x(), first.chunk == 0);
                    self.arguments.outputs.parts.store::<C>(place, row, column, values, total);
                }
                index += THREADS;
            }
            if is_end && first.chunk > 0 && thread::thread_idx_x() == 0 {
                let Cursor { head, row_tile, sequence, .. } = *first;
                // The item is the first one of this block.
                let first_block = (self.share.first - first.chunk) / self.share.each.max(1);
                let ended = Ended { first_block, head, row_tile, sequence };
                vector::store_v4(self.arguments.outputs.ended(), ended.words());
            }
        }
    }

    /// Address of a unit of f32 of a warp's results in a stage.
    #[inline(always)]
    fn unit(self, stage: u32, warp: u32, row: u32, unit: u32) -> u32 {
        let results = if C::OWN_RESULTS > 0 {
            self.shared.results(warp)
        } else {
            self.shared.ring(warp * C::STAGES) + stage
        };
        results + row * (C::HEAD * 4) + swizzle_units(unit, row) * UNIT_BYTES
    }

    /// Leaves the warp's part where all threads can read it.
    ///
    /// # Safety
    /// As for [`finish`](Self::finish).
    #[inline(always)]
    unsafe fn leave(self, stage: u32, totals: [Total; 2], result: &C::Result) {
        // Else the places would be computed in front of the loop over items, and kept beside its results.
        let lane = misc::opaque(self.lane);
        let (row, pair) = (lane / 4, lane % 4);
        let values = result.as_ref();
        unroll!(HALF in 0..2, {
            let row = row + 8 * HALF as u32;
            // SAFETY: this thread's places.
            unsafe {
                if pair == 0 {
                    let Total { max, sum } = totals[HALF];
                    vector::store_shared_v2(self.shared.totals(self.warp * TILE_ROWS + row), [max, sum]);
                }
                unroll!(STEP in 0..16, {
                    if C::Cached::IS_E4M3 && STEP < (C::HEAD / 16) as usize {
                        // Even columns of 16 come before the odd ones.
                        let to = self.unit(stage, self.warp, row, 4 * STEP as u32 + pair);
                        let at = 8 * STEP + 2 * HALF;
                        let four = [values[at], values[at + 4], values[at + 1], values[at + 5]];
                        vector::store_shared_v4(to, four);
                    }
                });
                unroll!(STEP in 0..32, {
                    if !C::Cached::IS_E4M3 && STEP < (C::HEAD / 8) as usize {
                        let to = self.unit(stage, self.warp, row, 2 * STEP as u32 + pair / 2);
                        let at = 4 * STEP + 2 * HALF;
                        vector::store_shared_v2(to + pair % 2 * 8, [values[at], values[at + 1]]);
                    }
                });
            }
        });
    }

    /// Eight columns of a row, of all warps in their order.
    ///
    /// # Safety
    /// As for [`finish`](Self::finish), behind the barrier.
    #[inline(always)]
    unsafe fn merge(self, stage: u32, row: u32, column: u32) -> ([f32; 8], Total) {
        let factor = factor(self.arguments.problem.params.scale);
        let mut parts = [Total::NONE; WARPS as usize];
        let mut total = Total::NONE;
        let mut values = [0.0; 8];
        // SAFETY: what the warps have left.
        unsafe {
            unroll!(WARP in 0..4, {
                let [max, sum] =
                    vector::load_shared_v2::<f32>(self.shared.totals(WARP as u32 * TILE_ROWS + row));
                parts[WARP] = Total { max, sum };
                total.max = cuda_std::fastmath::max(total.max, max);
            });
            unroll!(WARP in 0..4, {
                let weight = parts[WARP].weight(total.max, factor);
                total.sum = cuda_std::fastmath::fma(parts[WARP].sum, weight, total.sum);
                unroll!(HALF in 0..2, {
                    let from = self.unit(stage, WARP as u32, row, column / WORDS + HALF as u32);
                    let sums: [f32; 4] = vector::load_shared_v4(from);
                    unroll!(I in 0..4, {
                        let at = 4 * HALF + I;
                        values[at] = cuda_std::fastmath::fma(sums[I], weight, values[at]);
                    });
                });
            });
        }
        (values, total)
    }
}
