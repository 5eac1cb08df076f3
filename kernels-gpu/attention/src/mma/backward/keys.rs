//! dK and dV of a tile of keys. [`super`] has the picture.

use cuda_std::{async_copy, grid, shared, thread, vector};
use layout::UNIT_BYTES;
use primitives::unroll;
use primitives::warp::LANES;

use super::arguments::Arguments;
use super::config::{Config, OfKeys, Own, Plan, Stage};
use super::ring::go_round;
use super::scores::{of_columns, subtract, weigh};
use crate::backward::ResultStrides;
use crate::decode::config::Element;
use crate::mma::tile::{
    Place, Registers, Shape, TensorRows, add_product, copy_pair, first_line, groups, hide, place, products,
    rounded, store,
};
use crate::problem::{KeyTile, KeyTiles, QueryBlocks, Seen, Sequence, Strides, Visible};
use crate::softmax::{factor, scale_rows};

/// dK and dV.
#[derive(Clone, Copy)]
pub struct Results {
    /// dK.
    pub keys: *mut u16,
    /// dV.
    pub values: *mut u16,
    /// Where their rows begin, at multiples of 16 bytes.
    pub strides: ResultStrides,
}

/// A thread of a block, and the block's tile.
#[derive(Clone, Copy)]
struct Pass<'a, C: Config> {
    arguments: Arguments<'a>,
    results: Results,
    shared: Plan<C>,
    tile: KeyTile,
    sequence: Sequence,
    blocks: QueryBlocks,
}

/// A tile of queries that sees some of the keys.
#[derive(Clone, Copy)]
struct Turn {
    /// Head of queries.
    head: u32,
    /// The tile among those of the sequence.
    block: u32,
}

/// All turns: the tiles of a head, and of the next head.
#[derive(Clone)]
struct Turns {
    next: Turn,
    /// End of the heads.
    end: u32,
    blocks: QueryBlocks,
}

impl Iterator for Turns {
    type Item = Turn;

    #[inline(always)]
    fn next(&mut self) -> Option<Turn> {
        let turn = self.next;
        if turn.head >= self.end {
            return None;
        }
        self.next.block += 1;
        if self.next.block == self.blocks.end {
            self.next = Turn { head: turn.head + 1, block: self.blocks.first };
        }
        Some(turn)
    }
}

/// The tile of the block.
///
/// # Safety
/// The arguments are as their types say. The launch has blocks of [`OfKeys::<C>::THREADS`](OfKeys) threads
/// along x, as many as there are [`KeyTiles`] of `C::OWN` keys, with `C::SHARED` bytes of dynamic shared
/// memory.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>, results: Results) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    // Earlier grids may still write the operands or read the results.
    grid::wait_dependencies();
    grid::launch_dependents();
    let params = arguments.params;
    let tile = KeyTiles::new(params, C::OWN).get(thread::block_idx_x());
    // SAFETY: the caller's contract; all threads of the block are here.
    unsafe {
        let sequence = params.sequence(arguments.packing, tile.batch);
        if tile.first_key < sequence.keys {
            let blocks = QueryBlocks::new(params.band, sequence, tile.first_key, C::OWN, C::OTHER);
            Pass::<C> { arguments, results, shared, tile, sequence, blocks }.run();
        }
    }
}

impl<C: Config> Pass<'_, C> {
    /// All turns, and the results.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the block call it.
    #[inline(always)]
    unsafe fn run(self) {
        // SAFETY: the caller's contract.
        unsafe {
            if C::IS_SHARED {
                let mut sums = C::Sums::zero();
                self.turns(|turn, stage| self.add_to_one(turn, stage, &mut sums));
                if Self::has_keys() {
                    self.store_keys(sums);
                } else {
                    self.store_values(&sums);
                }
            } else {
                let (mut keys, mut values) = (C::Sums::zero(), C::Sums::zero());
                self.turns(|turn, stage| self.add_to_both(turn, stage, &mut keys, &mut values));
                self.store_keys(keys);
                self.store_values(&values);
            }
        }
    }

    /// Calls `each` for every turn, with its stage.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    unsafe fn turns(self, each: impl FnMut(Turn, u32)) {
        let Self { tile, blocks, sequence, .. } = self;
        let params = self.arguments.params;
        let first = tile.head * params.group;
        let end = if blocks.count() > 0 { first + params.group } else { first };
        let turns = Turns { next: Turn { head: first, block: blocks.first }, end, blocks };
        // SAFETY: the caller's contract; a stage is filled when the whole block has left it.
        unsafe {
            // They come with the first queries.
            if end > first {
                let rows = sequence.keys - tile.first_key;
                let row = sequence.first_key + tile.first_key;
                let at = Place { row, head: tile.head, matrix: sequence.matrix, rows };
                copy_pair::<OfKeys<C>, Own<C>>(params, self.shared.own(0), self.arguments.keys(), at);
            }
            go_round::<C, _>(self.shared.ring(0), turns, |turn, stage| self.copy_queries(turn, stage), each);
        }
    }

    /// Starts the copies of a turn's queries and gradients, and of the numbers of their rows: zeros behind
    /// the last query.
    ///
    /// # Safety
    /// As for [`run`](Self::run); nobody reads the stage.
    #[inline(always)]
    unsafe fn copy_queries(self, turn: Turn, stage: u32) {
        let Arguments { params, packing, logarithms, deltas, .. } = self.arguments;
        let Self { sequence, tile, .. } = self;
        let first = turn.block * C::OTHER;
        let row = sequence.first_query + first;
        let (rows, matrix) = (sequence.queries - first, sequence.matrix);
        let at = Place { row, head: turn.head, matrix, rows };
        // SAFETY: the caller's contract; rows of L and D are padded to whole tiles.
        unsafe {
            copy_pair::<OfKeys<C>, Stage<C>>(params, stage, self.arguments.queries(), at);
            let row = params.padded_row(packing, tile.batch, turn.head, C::OTHER) + first as usize;
            let (thread, units) = (thread::thread_idx_x(), C::OTHER / 4);
            if thread < 2 * units {
                let from = if thread < units { logarithms } else { deltas };
                let to = Self::logarithms(stage) + thread * UNIT_BYTES;
                async_copy::copy_cg(to, from.add(row + (thread % units * 4) as usize));
            }
        }
    }

    /// Where L of a stage's rows lies; D lies behind it.
    #[inline(always)]
    const fn logarithms(stage: u32) -> u32 {
        stage + 2 * C::OTHER_BYTES
    }

    /// Whether the warp has dK, where two share a row. The other one has dV.
    #[inline(always)]
    fn has_keys() -> bool {
        place().0 % 2 == 1
    }

    /// Adds a turn to dK and dV.
    ///
    /// # Safety
    /// The whole warp calls it; the stage is full.
    #[inline(always)]
    unsafe fn add_to_both(self, turn: Turn, stage: u32, keys: &mut C::Sums, values: &mut C::Sums) {
        let (shared, queries, gradients) = (self.shared, stage, stage + C::OTHER_BYTES);
        // SAFETY: the caller's contract.
        unsafe {
            let mut weights: C::Scores = products::<OfKeys<C>, _>(shared.own(0), queries);
            self.weigh(&mut weights, turn, stage);
            let mut differences: C::Scores = products::<OfKeys<C>, _>(shared.own(1), gradients);
            self.subtract(&mut differences, &weights, stage);
            add_product::<OfKeys<C>, _, _>(values, &weights, gradients);
            add_product::<OfKeys<C>, _, _>(keys, &differences, queries);
        }
    }

    /// Adds a turn to dK, or to dV: to that of the warp. The warp with dV makes the weights for both.
    ///
    /// # Safety
    /// All threads of the block call it; the stage is full.
    #[inline(always)]
    unsafe fn add_to_one(self, turn: Turn, stage: u32, sums: &mut C::Sums) {
        let (warp, lane) = place();
        // K with Q, or V with dO.
        let [own, other] =
            if Self::has_keys() { [self.shared.own(1), C::OTHER_BYTES] } else { [self.shared.own(0), 0] };
        // SAFETY: the caller's contract. Weights are written again after the next wait for a stage, when the
        // block has met.
        unsafe {
            let mut scores: C::Scores = products::<OfKeys<C>, _>(own, stage + other);
            let kept = self.shared.weights(warp / OfKeys::<C>::SHARERS) + lane * UNIT_BYTES;
            let at = |group: usize| kept + group as u32 * (LANES * UNIT_BYTES);
            if !Self::has_keys() {
                self.weigh(&mut scores, turn, stage);
                unroll!(GROUP in 0..4, {
                    if GROUP < groups::<C::Scores>() {
                        vector::store_shared_v4(at(GROUP), rounded::<C::Element>(scores.as_ref(), GROUP));
                    }
                });
            }
            thread::sync_threads();
            if Self::has_keys() {
                let mut weights = C::Scores::zero();
                unroll!(GROUP in 0..4, {
                    if GROUP < groups::<C::Scores>() {
                        let words: [u32; 4] = vector::load_shared_v4(at(GROUP));
                        unroll!(PAIR in 0..4, {
                            let [low, high] = C::Element::unpack(words[PAIR]);
                            weights.as_mut()[8 * GROUP + 2 * PAIR] = low;
                            weights.as_mut()[8 * GROUP + 2 * PAIR + 1] = high;
                        });
                    }
                });
                self.subtract(&mut scores, &weights, stage);
            }
            // Of dO for dV, of Q for dK.
            add_product::<OfKeys<C>, _, _>(sums, &scores, stage + (C::OTHER_BYTES - other));
        }
    }

    /// Makes weights of a turn's scores.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    unsafe fn weigh(self, scores: &mut C::Scores, turn: Turn, stage: u32) {
        let (warp, lane) = place();
        let params = self.arguments.params;
        if self.blocks.is_partial(turn.block) {
            let key = self.tile.first_key + first_line::<OfKeys<C>>(warp) + lane / 4;
            let rows = [key, key + 8].map(|key| {
                let Seen { first, end } = params.band.seen_by(self.sequence, key);
                Visible { first, end }
            });
            hide(scores, rows, turn.block * C::OTHER + lane % 4 * 2);
        }
        let from = Self::logarithms(stage) + lane % 4 * 8;
        // SAFETY: the logarithms of two queries.
        let of = |step: usize| of_columns(unsafe { vector::load_shared_v2(from + step as u32 * 32) });
        weigh(scores, factor(params.scale), of);
    }

    /// Makes dS of a turn's dP.
    ///
    /// # Safety
    /// As for [`weigh`](Self::weigh).
    #[inline(always)]
    unsafe fn subtract(self, weighted: &mut C::Scores, weights: &C::Scores, stage: u32) {
        let from = Self::logarithms(stage) + C::OTHER * 4 + place().1 % 4 * 8;
        // SAFETY: the numbers of two queries.
        let of = |step: usize| of_columns(unsafe { vector::load_shared_v2(from + step as u32 * 32) });
        subtract(weighted, weights, of);
    }

    /// Stores dK of the warp's keys, through a place that no other warp reads: that of K, or, where two warps
    /// share them, of V.
    ///
    /// # Safety
    /// The whole warp calls it, after its turns.
    #[inline(always)]
    unsafe fn store_keys(self, mut sums: C::Sums) {
        scale_rows(&mut sums, [self.arguments.params.scale; 2]);
        let Results { keys, strides, .. } = self.results;
        let through = self.shared.own(if C::IS_SHARED { 1 } else { 0 });
        // SAFETY: the caller's contract.
        unsafe { self.store(through, &sums, keys, strides.keys) }
    }

    /// The same of dV, through the other place.
    ///
    /// # Safety
    /// As for [`store_keys`](Self::store_keys).
    #[inline(always)]
    unsafe fn store_values(self, sums: &C::Sums) {
        let Results { values, strides, .. } = self.results;
        let through = self.shared.own(if C::IS_SHARED { 0 } else { 1 });
        // SAFETY: the caller's contract.
        unsafe { self.store(through, sums, values, strides.values) }
    }

    /// # Safety
    /// As for [`store_keys`](Self::store_keys).
    #[inline(always)]
    unsafe fn store(self, through: u32, sums: &C::Sums, data: *mut u16, strides: Strides) {
        let Self { tile, sequence, .. } = self;
        let to = TensorRows {
            data,
            strides,
            matrix: sequence.matrix,
            head: tile.head,
            sequence: sequence.first_key,
            tile: tile.first_key,
            end: sequence.keys,
        };
        // SAFETY: the caller's contract.
        unsafe { store::<OfKeys<C>, _>(self.arguments.params, through, sums, to) }
    }
}
