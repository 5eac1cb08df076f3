//! After the backward pass: dQ from its sums.

use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use cuda_std::wgmma::Accumulator;
use cuda_std::{grid, thread, vector};
use primitives::unroll;
use primitives::wgmma::Element16;

use super::arguments::QueryResults;
use super::config::Config;
use crate::backward::order::MAX_PARTS;
use crate::backward::prepare::RowTile;
use crate::problem::{AttentionParams, Packing, Sequence, Strides};
use crate::sm90::config::WARPGROUP;
use crate::sm90::fragments::steps;

/// Columns of eight of each of four lanes.
const GROUP_COLUMNS: u32 = 32;
/// Threads of a block, at most: a warpgroup for each part of dQ.
pub const MAX_THREADS: u32 = MAX_PARTS * WARPGROUP;

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// Sums of dQ, as the backward pass adds them.
    pub sums: *const f32,
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where packed sequences begin.
    pub packing: Packing,
    /// dQ, 16 bits an element.
    pub gradient: *mut u16,
    /// Where its rows begin.
    pub strides: Strides,
}

/// A tile of queries a block.
///
/// # Safety
/// The arguments are as [`Arguments`] says; the launch has a block, of a warpgroup for each part of dQ, for
/// each tile of each head.
#[inline(always)]
pub unsafe fn run<C: Config>(arguments: Arguments<'_>) {
    let Arguments { sums, params, packing, gradient, strides } = arguments;
    let RowTile { first_row, head, batch } = RowTile::of_block(params, C::BLOCK_M);
    // SAFETY: the caller's contract; the places of a thread's registers are those of the backward pass.
    unsafe {
        grid::wait_dependencies();
        grid::launch_dependents();
        let sequence = params.sequence(packing, batch);
        if first_row >= sequence.queries {
            return;
        }
        let padded = params.padded_row(packing, batch, head, C::BLOCK_M) + first_row as usize;
        let (part, thread) = (thread::thread_idx_x() / WARPGROUP, thread::thread_idx_x() % WARPGROUP);
        let first = part * (C::BLOCK_M * C::HEAD / C::PARTS);
        let from = sums.add(padded * C::HEAD as usize + (first + thread * 4) as usize);
        let rows = Rows { params, results: QueryResults { data: gradient, strides }, sequence, head };
        let quad = |step: usize| vector::load_v4(from.add(step * 4 * WARPGROUP as usize));
        store_rows::<C>(rows, first_row, [part, thread], quad);
    }
}

/// Rows of dQ: those of a head of a sequence.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// The problem.
    pub params: &'a AttentionParams,
    /// The tensor.
    pub results: QueryResults,
    /// The sequence.
    pub sequence: Sequence,
    /// The head of queries.
    pub head: u32,
}

/// Stores a thread's numbers of a part of dQ, of the tile of queries with this first row: scaled and rounded.
/// `quad` gives the four numbers of a step of eight columns.
///
/// # Safety
/// The whole warp calls it; the rows are as they say.
#[inline(always)]
pub(super) unsafe fn store_rows<C: Config>(
    rows: Rows<'_>,
    first_row: u32,
    [part, thread]: [u32; 2],
    quad: impl Fn(usize) -> [f32; 4],
) {
    let Rows { params, results: QueryResults { data, strides }, sequence, head } = rows;
    let (row, column) = if C::BLOCK_M == 128 { (part * 64, 0) } else { (0, part * C::QueryGradient::N) };
    let row = first_row + row + thread / 32 * 16 + thread % 32 / 4;
    // After the exchange a lane has eight columns beside each other.
    let column = column + thread % 4 * 8;
    // SAFETY: the caller's contract.
    unsafe {
        unroll!(GROUP in 0..4, {
            if 4 * GROUP < steps::<C::QueryGradient>() {
                let mut rows = [[0u32; 4]; 2];
                unroll!(STEP in 0..4, {
                    let [a, b, c, d] = quad(4 * GROUP + STEP).map(|x| x * params.scale);
                    rows[0][STEP] = C::Element::pack(a, b);
                    rows[1][STEP] = C::Element::pack(c, d);
                });
                // Half a box lies behind a whole one in registers, and before it in rows of the second part.
                let groups = C::QueryGradient::N / GROUP_COLUMNS;
                let group = if C::HALVES_BOX { (GROUP as u32 + part) % groups } else { GROUP as u32 };
                let column = column + GROUP_COLUMNS * group;
                unroll!(ROW in 0..2, {
                    let query = row + 8 * ROW as u32;
                    let pairs = transpose(rows[ROW], thread % 4);
                    if query < sequence.queries && column < params.head_size {
                        let at = strides.at(sequence.first_query + query, head, sequence.matrix);
                        let to = data.add(at + column as usize).cast::<u32>();
                        if C::IS_WHOLE {
                            vector::store_stream_v4(to, pairs);
                        } else {
                            vector::store_v4(to, pairs);
                        }
                    }
                });
            }
        });
    }
}

/// Of four lanes that have four words each, makes word `i` of lane `j` word `j` of lane `i`.
///
/// # Safety
/// The whole warp calls it; `lane` is the number among the four.
#[inline(always)]
unsafe fn transpose(mut words: [u32; 4], lane: u32) -> [u32; 4] {
    unroll!(ROUND in 0..2, {
        let bit = 1 << ROUND;
        let is_upper = lane & bit as u32 != 0;
        unroll!(PAIR in 0..2, {
            let low = if ROUND == 0 { 2 * PAIR } else { PAIR };
            let given = if is_upper { words[low] } else { words[low + bit] };
            // SAFETY: the whole warp is here.
            let (got, _) = unsafe { warp_shuffle_xor(FULL_MASK, given, bit as u32, 32) };
            if is_upper {
                words[low] = got;
            } else {
                words[low + bit] = got;
            }
        });
    });
    words
}
