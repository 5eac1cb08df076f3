//! The pass of a block: see [`super`] for the picture.

use cuda_std::warp::{FULL_MASK, sync_warp, warp_vote_any};
use cuda_std::{KernelArgs, grid, shared, thread};
use primitives::pipeline::{Block, CopyPipeline};
use primitives::shared_plan::SharedType;
use primitives::unroll;

use super::config::{BLOCK_M, Config, Plan, Queries, Stage, WARP_ROWS};
use super::tile::{
    Place, Registers, Source, Target, add_product, copy, copy_pair, hide_keys, place, products, store,
};
use crate::problem::{AttentionParams, KeyBlocks, Packing, Sequence, Strides, Tile, Tiles};
use crate::softmax::{Rows, scale_rows, sink_of};

/// Where the rows that are read lie.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct InputStrides {
    /// Q.
    pub queries: Strides,
    /// K.
    pub keys: Strides,
    /// V.
    pub values: Strides,
}

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where rows lie.
    pub strides: &'a InputStrides,
    /// Q.
    pub queries: *const u16,
    /// K.
    pub keys: *const u16,
    /// V.
    pub values: *const u16,
    /// Where packed sequences begin.
    pub packing: Packing,
    /// O.
    pub output: *mut u16,
    /// Log-sum-exps, or null.
    pub log_sum_exp: *mut f32,
    /// For each head of queries the score of one more key, whose value is zero; or null.
    pub sinks: *const f32,
}

/// A thread of a block, and the block's tile.
#[derive(Clone, Copy)]
struct Pass<'a, C: Config> {
    arguments: Arguments<'a>,
    shared: Plan<C>,
    tile: Tile,
    sequence: Sequence,
}

/// The tile of the block.
///
/// # Safety
/// The arguments are as their types say. The launch has blocks of [`THREADS`](super::config::THREADS) threads
/// along x, as many as there are [`Tiles`] of [`BLOCK_M`] queries, with `C::SHARED` bytes of dynamic shared
/// memory.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>) {
    const { C::CHECKED };
    let shared = Plan::<C>::new(shared::address_of(shared::dynamic_shared_mem::<u8>()));
    // Earlier grids may still write the operands or read the result.
    grid::wait_dependencies();
    grid::launch_dependents();
    let tile = Tiles::new(arguments.params, BLOCK_M).get(thread::block_idx_x());
    // SAFETY: the caller's contract; all threads of the block are here.
    unsafe {
        let sequence = arguments.params.sequence(arguments.packing, tile.batch);
        if tile.first_row < sequence.queries {
            Pass::<C> { arguments, shared, tile, sequence }.run();
        }
    }
}

impl<C: Config> Pass<'_, C> {
    /// All blocks of keys, and the results.
    ///
    /// # Safety
    /// As for [`run`]; all threads of the block call it.
    #[inline(always)]
    unsafe fn run(self) {
        let Arguments { params, sinks, .. } = self.arguments;
        let blocks = KeyBlocks::new(params.band, self.sequence, self.tile.first_row, BLOCK_M, C::BLOCK_N);
        let mut rows = Rows::new(params.scale);
        // SAFETY: the caller's contract.
        unsafe {
            let mut result = C::Result::zero();
            if blocks.count() > 0 {
                self.blocks(blocks, &mut rows, &mut result);
            }
            let (factors, logarithms) = rows.finish(sink_of(sinks, self.tile.head));
            scale_rows(&mut result, factors);
            store::<C, _>(params, self.shared.queries(), &result, self);
            self.logarithms(logarithms);
        }
    }

    /// The blocks of keys that the tile sees, from the last one on.
    ///
    /// # Safety
    /// As for [`run`](Self::run); there is one.
    #[inline(always)]
    unsafe fn blocks(self, blocks: KeyBlocks, rows: &mut Rows, result: &mut C::Result) {
        let ring_base = self.shared.ring(0);
        let mut ring = CopyPipeline::<C::Stages, Block>::new(C::RING, Stage::<C>::BYTES);
        let (mut ahead, mut now) = (blocks.end, blocks.end);
        let copy_next = |ring: &mut CopyPipeline<C::Stages, Block>, ahead: &mut u32| {
            if *ahead > blocks.first {
                *ahead -= 1;
                // SAFETY: the caller's contract; all threads have left the stage.
                unsafe { self.copy_keys(ring_base + ring.stage_to_load(), *ahead) }
            }
            ring.commit();
        };
        // SAFETY: the caller's contract; a stage is filled when the whole block has left it.
        unsafe {
            // They come with the first keys.
            self.copy_queries();
            let mut stages = ring.prologue();
            while stages > 0 {
                copy_next(&mut ring, &mut ahead);
                stages -= 1;
            }
            while now > blocks.first {
                now -= 1;
                let stage = ring_base + ring.wait();
                copy_next(&mut ring, &mut ahead);
                let mut scores: C::Scores = products::<C, _>(self.shared.queries(), stage);
                if blocks.is_partial(now) {
                    self.hide(&mut scores, now * C::BLOCK_N);
                }
                let factors = rows.push(&mut scores);
                // Maxima seldom rise.
                if warp_vote_any(FULL_MASK, factors[0] != 1.0 || factors[1] != 1.0) {
                    scale_rows(result, factors);
                }
                add_product::<C, _, _>(result, &scores, stage + C::TILE_BYTES);
                ring.release();
            }
            // Results take the place of the queries.
            sync_warp(FULL_MASK);
        }
    }

    /// Starts the copies of the tile's queries. Rows behind the last one, and columns behind the head's,
    /// become zeros.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    unsafe fn copy_queries(self) {
        let Arguments { params, strides, queries, .. } = self.arguments;
        let Self { tile, sequence, .. } = self;
        let row = sequence.first_query + tile.first_row;
        let first = queries.wrapping_add(strides.queries.at(row, tile.head, sequence.matrix));
        let rows = sequence.queries - tile.first_row;
        let from = Source { first, stride: strides.queries.row, rows };
        // SAFETY: the caller's contract.
        unsafe { copy::<C, Queries<C>>(params, self.shared.queries(), from) }
    }

    /// Starts the copies of a block of keys, and of its values: zeros behind the last key.
    ///
    /// # Safety
    /// As for [`run`](Self::run); nobody reads the stage, and the block has a key.
    #[inline(always)]
    unsafe fn copy_keys(self, stage: u32, block: u32) {
        let Arguments { params, strides, keys, values, .. } = self.arguments;
        let Self { tile, sequence, .. } = self;
        let (first, head) = (block * C::BLOCK_N, tile.head / params.group.max(1));
        let rows = sequence.keys - first;
        let row = sequence.first_key + first;
        let pair = [(keys, strides.keys), (values, strides.values)];
        let at = Place { row, head, matrix: sequence.matrix, rows };
        // SAFETY: the caller's contract.
        unsafe { copy_pair::<C, Stage<C>>(params, stage, pair, at) }
    }

    /// Sets the scores of keys that a row does not see to minus infinity, of a block from `first_key` on.
    #[inline(always)]
    fn hide(self, scores: &mut C::Scores, first_key: u32) {
        let Self { sequence, tile, .. } = self;
        hide_keys::<C, _>(self.arguments.params, scores, sequence, tile.first_row, first_key);
    }

    /// Stores the log-sum-exps of the thread's rows, if they are wanted.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    unsafe fn logarithms(self, logarithms: [f32; 2]) {
        let Arguments { params, log_sum_exp, .. } = self.arguments;
        let Self { sequence, tile, .. } = self;
        let (warp, lane) = place();
        if log_sum_exp.is_null() || !lane.is_multiple_of(4) {
            return;
        }
        let head = sequence.matrix as usize * params.heads as usize + tile.head as usize;
        let first = head * params.lse_rows as usize + sequence.first_query as usize;
        unroll!(HALF in 0..2, {
            let row = tile.first_row + warp * WARP_ROWS + lane / 4 + 8 * HALF as u32;
            if row < sequence.queries {
                // SAFETY: a row of the sequence.
                unsafe { *log_sum_exp.add(first + row as usize) = logarithms[HALF] }
            }
        });
    }
}

/// O.
impl<C: Config> Target for Pass<'_, C> {
    #[inline(always)]
    fn first(self) -> *mut u16 {
        let Arguments { params, output, .. } = self.arguments;
        output
            .wrapping_add(self.sequence.matrix as usize * params.output_matrix as usize)
            .wrapping_add(self.tile.head as usize * params.output_head as usize)
    }

    #[inline(always)]
    fn has(self, line: u32) -> bool {
        self.tile.first_row + line < self.sequence.queries
    }

    #[inline(always)]
    fn row(self, line: u32) -> usize {
        let row = self.tile.first_row + line;
        (self.sequence.first_query + row) as usize * self.arguments.params.output_row as usize
    }
}
