//! The pass of a block: see [`super`] for the picture.

use cuda_std::warp::{FULL_MASK, sync_warp, warp_vote_any};
use cuda_std::{KernelArgs, async_copy, grid, matrix, misc, shared, thread, vector};
use layout::{UNIT_BYTES, swizzle_units};
use primitives::pipeline::{Block, CopyPipeline};
use primitives::shared_plan::SharedType;
use primitives::unroll;
use primitives::warp::LANES;

use super::config::{BLOCK_M, Config, Plan, STEP_KEYS, Stage, WARP_ROWS};
use crate::decode::config::{Element, UNIT};
use crate::lines::Lines;
use crate::problem::{AttentionParams, KeyBlocks, Packing, Sequence, Strides, Tile, Tiles, Visible};
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
        // SAFETY: the caller's contract. Arrays of f32 may be all zero bits.
        unsafe {
            let mut result: C::Result = core::mem::zeroed();
            if blocks.count() > 0 {
                self.blocks(blocks, &mut rows, &mut result);
            }
            let (factors, logarithms) = rows.finish(sink_of(sinks, self.tile.head));
            scale_rows(&mut result, factors);
            self.store(&result);
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
                let mut scores = self.scores(stage);
                if blocks.is_partial(now) {
                    self.hide(&mut scores, now * C::BLOCK_N);
                }
                let factors = rows.push(&mut scores);
                // Maxima seldom rise.
                if warp_vote_any(FULL_MASK, factors[0] != 1.0 || factors[1] != 1.0) {
                    scale_rows(result, factors);
                }
                self.add_values(stage + C::TILE_BYTES, &scores, result);
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
        let Arguments { strides, queries, .. } = self.arguments;
        let Self { tile, sequence, .. } = self;
        let row = sequence.first_query + tile.first_row;
        let first = queries.wrapping_add(strides.queries.at(row, tile.head, sequence.matrix));
        let rows = sequence.queries - tile.first_row;
        // SAFETY: the caller's contract.
        unsafe { self.copy::<{ BLOCK_M }>(self.shared.queries(), first, strides.queries.row, rows) }
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
        unroll!(WHICH in 0..2, {
            let (data, strides) = [(keys, strides.keys), (values, strides.values)][WHICH];
            let from = data.wrapping_add(strides.at(row, head, sequence.matrix));
            let to = stage + WHICH as u32 * C::TILE_BYTES;
            // SAFETY: the caller's contract.
            unsafe {
                if C::BLOCK_N == 64 {
                    self.copy::<64>(to, from, strides.row, rows);
                } else {
                    self.copy::<32>(to, from, strides.row, rows);
                }
            }
        });
    }

    /// Starts the thread's copies of `LINES` rows: one unit of 16 bytes of every `C::ROWS`-th one. Those of
    /// rows behind `rows`, and of columns behind the head's, are zeros.
    ///
    /// # Safety
    /// So many rows are readable from there on; nobody reads where they come to.
    #[inline(always)]
    unsafe fn copy<const LINES: u32>(self, to: u32, from: *const u16, stride: u64, rows: u32) {
        // Opaque, so that each block computes these numbers anew and keeps none in registers.
        let thread = misc::opaque(thread::thread_idx_x());
        let (row, unit) = (thread / C::UNITS, thread % C::UNITS);
        let has_column = unit * UNIT < self.arguments.params.head_size;
        let column = if has_column { unit * UNIT } else { 0 };
        unroll!(I in 0..16, {
            if (I as u32) < LINES / C::ROWS {
                let line = row + I as u32 * C::ROWS;
                let (is_there, at) = (line < rows, line.min(rows - 1));
                let source = from.wrapping_add((u64::from(at) * stride) as usize + column as usize);
                let place = to + line * C::ROW_BYTES + swizzle_units(unit, line) * UNIT_BYTES;
                let bytes = if is_there && has_column { UNIT_BYTES } else { 0 };
                // SAFETY: a unit of a row that there is; this thread's place.
                unsafe { async_copy::copy_cg_zfill(place, source, bytes) }
            }
        });
    }

    /// Number of the thread's warp, and of the thread in it.
    #[inline(always)]
    fn place(self) -> (u32, u32) {
        let thread = thread::thread_idx_x();
        (thread / LANES, thread % LANES)
    }

    /// `S = Q K^T` of the warp's rows.
    ///
    /// # Safety
    /// The whole warp calls it; the stage is full.
    #[inline(always)]
    unsafe fn scores(self, stage: u32) -> C::Scores {
        let (warp, lane) = self.place();
        // Matrices: rows 0.. and 8.., unit 0; then unit 1.
        let line = warp * WARP_ROWS + lane % 16;
        let rows = Lines::of_tile(self.shared.queries(), C::ROW_BYTES, line, lane / 16);
        // Matrices: keys 0.., unit 0 and unit 1; then keys 8...
        let keys = Lines::of_tile(stage, C::ROW_BYTES, lane / 16 * 8 + lane % 8, lane / 8 % 2);
        // SAFETY: arrays of f32 may be all zero bits.
        let mut scores: C::Scores = unsafe { core::mem::zeroed() };
        let x = scores.as_mut();
        unroll!(STEP in 0..16, {
            if STEP < (C::HEAD / 16) as usize {
                // SAFETY: units of the queries; the whole warp is here.
                let a = unsafe { matrix::ldmatrix_x4(rows.at(STEP)) };
                unroll!(GROUP in 0..8, {
                    if GROUP < (C::BLOCK_N / STEP_KEYS) as usize {
                        let at = keys.at(STEP) + GROUP as u32 * (STEP_KEYS * C::ROW_BYTES);
                        // SAFETY: units of the stage; the whole warp is here.
                        unsafe {
                            let b = matrix::ldmatrix_x4(at);
                            multiply::<C::Element>(x, 8 * GROUP, a, [b[0], b[1]]);
                            multiply::<C::Element>(x, 8 * GROUP + 4, a, [b[2], b[3]]);
                        }
                    }
                });
            }
        });
        scores
    }

    /// `O += P V` of the warp's rows.
    ///
    /// # Safety
    /// The whole warp calls it; the values lie there.
    #[inline(always)]
    unsafe fn add_values(self, values: u32, weights: &C::Scores, result: &mut C::Result) {
        let (_, lane) = self.place();
        // Matrices: keys 0.. and 8.., unit 0; then unit 1.
        let lines = Lines::of_tile(values, C::ROW_BYTES, lane % 16, lane / 16);
        let (x, result) = (weights.as_ref(), result.as_mut());
        unroll!(GROUP in 0..8, {
            if GROUP < (C::BLOCK_N / STEP_KEYS) as usize {
                let pack = |at: usize| C::Element::pack(x[8 * GROUP + at], x[8 * GROUP + at + 1]);
                let a = [pack(0), pack(2), pack(4), pack(6)];
                unroll!(PAIR in 0..16, {
                    if PAIR < (C::HEAD / 16) as usize {
                        let at = lines.at(PAIR) + GROUP as u32 * (STEP_KEYS * C::ROW_BYTES);
                        // SAFETY: units of the stage; the whole warp is here.
                        unsafe {
                            let b = matrix::ldmatrix_x4_trans(at);
                            multiply::<C::Element>(result, 8 * PAIR, a, [b[0], b[1]]);
                            multiply::<C::Element>(result, 8 * PAIR + 4, a, [b[2], b[3]]);
                        }
                    }
                });
            }
        });
    }

    /// Sets the scores of keys that a row does not see to minus infinity, of a block from `first_key` on.
    #[inline(always)]
    fn hide(self, scores: &mut C::Scores, first_key: u32) {
        let Self { sequence, tile, .. } = self;
        let (warp, lane) = self.place();
        let band = self.arguments.params.band;
        let row = tile.first_row + warp * WARP_ROWS + lane / 4;
        let diagonal = band.diagonal(sequence.queries, sequence.keys) + row as i32;
        let rows = [band.visible(diagonal, sequence.keys), band.visible(diagonal + 8, sequence.keys)];
        let key = first_key + lane % 4 * 2;
        let x = scores.as_mut();
        unroll!(STEP in 0..16, {
            if STEP < (C::BLOCK_N / 8) as usize {
                unroll!(I in 0..4, {
                    let key = key + 8 * STEP as u32 + (I % 2) as u32;
                    let Visible { first, end } = rows[I / 2];
                    if key < first || key >= end {
                        x[4 * STEP + I] = f32::NEG_INFINITY;
                    }
                });
            }
        });
    }

    /// Stores the results of the warp's rows, through the place of its queries.
    ///
    /// # Safety
    /// The whole warp calls it, and has read its queries.
    #[inline(always)]
    unsafe fn store(self, result: &C::Result) {
        let Arguments { params, output, .. } = self.arguments;
        let Self { sequence, tile, shared, .. } = self;
        let (warp, lane) = self.place();
        let place =
            |line: u32, unit| shared.queries() + line * C::ROW_BYTES + swizzle_units(unit, line) * UNIT_BYTES;
        let first = warp * WARP_ROWS;
        let values = result.as_ref();
        // SAFETY: places of the warp's rows; rows of the sequence.
        unsafe {
            unroll!(STEP in 0..32, {
                if STEP < C::UNITS as usize {
                    unroll!(HALF in 0..2, {
                        let to = place(first + lane / 4 + 8 * HALF as u32, STEP as u32) + lane % 4 * 4;
                        let at = 4 * STEP + 2 * HALF;
                        vector::store_shared(to, C::Element::pack(values[at], values[at + 1]));
                    });
                }
            });
            sync_warp(FULL_MASK);
            let to = output
                .wrapping_add(sequence.matrix as usize * params.output_matrix as usize)
                .wrapping_add(tile.head as usize * params.output_head as usize);
            let mut index = lane;
            while index < WARP_ROWS * C::UNITS {
                let (line, unit) = (first + index / C::UNITS, index % C::UNITS);
                let row = tile.first_row + line;
                if row < sequence.queries && unit * UNIT < params.head_size {
                    let words: [u32; 4] = vector::load_shared_v4(place(line, unit));
                    let row = (sequence.first_query + row) as usize * params.output_row as usize;
                    vector::store_v4(to.wrapping_add(row + (unit * UNIT) as usize).cast::<u32>(), words);
                }
                index += LANES;
            }
        }
    }

    /// Stores the log-sum-exps of the thread's rows, if they are wanted.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(always)]
    unsafe fn logarithms(self, logarithms: [f32; 2]) {
        let Arguments { params, log_sum_exp, .. } = self.arguments;
        let Self { sequence, tile, .. } = self;
        let (warp, lane) = self.place();
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

/// Adds a product to four of a thread's sums, from `at` on.
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
unsafe fn multiply<E: Element>(sums: &mut [f32], at: usize, a: [u32; 4], b: [u32; 2]) {
    let four = [sums[at], sums[at + 1], sums[at + 2], sums[at + 3]];
    // SAFETY: the caller's contract.
    let four = unsafe { E::multiply(a, b, four) };
    unroll!(I in 0..4, { sums[at + I] = four[I]; });
}
