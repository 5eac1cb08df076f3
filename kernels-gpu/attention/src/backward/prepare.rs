//! Before the backward pass: a number or two of each row of queries, and zeros for the sums of dQ.

use cuda_std::warp::{FULL_MASK, warp_shuffle_xor};
use cuda_std::{grid, thread, vector};

use super::order::Order;
use crate::decode::config::Element;
use crate::problem::{AttentionParams, Packing, Strides};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Elements of 16 bytes.
const UNIT: u32 = 8;

/// The tile of queries of a block, where a launch has one for each tile of each head of each sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTile {
    /// First query of the sequence.
    pub first_row: u32,
    /// Head of queries.
    pub head: u32,
    /// Sequence.
    pub batch: u32,
}

impl RowTile {
    /// That of this block, in tiles of `tile` queries.
    #[inline(always)]
    #[must_use]
    pub fn of_block(params: &AttentionParams, tile: u32) -> Self {
        let (tiles, heads) = (params.queries.div_ceil(tile.max(1)).max(1), params.heads.max(1));
        let number = thread::block_idx_x();
        let head = number / tiles;
        Self { first_row: number % tiles * tile, head: head % heads, batch: head / heads }
    }
}

/// O or dO: elements of 16 bits.
#[derive(Clone, Copy)]
pub struct Rows {
    /// First element.
    pub data: *const u16,
    /// Where rows begin, at multiples of 16 bytes.
    pub strides: Strides,
}

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// O.
    pub output: Rows,
    /// dO.
    pub gradient: Rows,
    /// Log-sum-exps of the forward pass, as it stores them.
    pub log_sum_exp: *const f32,
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where packed sequences begin.
    pub packing: Packing,
    /// L in base 2, f32 in padded rows.
    pub logarithms: *mut f32,
    /// D, f32 in padded rows.
    pub deltas: *mut f32,
    /// Sums of dQ, f32 in padded rows of `columns`.
    pub sums: *mut f32,
    /// Queries of a tile of the backward pass, to which rows are padded.
    pub tile: u32,
    /// Columns of a row of the sums.
    pub columns: u32,
    /// The order in which the backward pass adds to them.
    pub order: Order,
}

/// The rows of a tile of queries a block.
///
/// # Safety
/// The arguments are as [`Arguments`] says; the launch has a block of [`THREADS`] threads for each tile of
/// each head.
#[inline(always)]
pub unsafe fn run<E: Element>(arguments: Arguments<'_>) {
    let Arguments { params, packing, tile, columns, sums, order, .. } = arguments;
    let RowTile { first_row, head, batch } = RowTile::of_block(params, tile);
    // SAFETY: the caller's contract.
    unsafe {
        grid::wait_dependencies();
        grid::launch_dependents();
        if thread::thread_idx_x() == 0 && thread::block_idx_x() == 0 {
            order.clear_drawn();
        }
        let sequence = params.sequence(packing, batch);
        if first_row >= sequence.queries {
            return;
        }
        let padded = params.padded_row(packing, batch, head, tile) + first_row as usize;
        if thread::thread_idx_x() == 0 {
            order.clear_counts(padded / tile.max(1) as usize);
        }
        let mut index = thread::thread_idx_x();
        while index < tile * columns / 4 {
            vector::store_v4(sums.add(padded * columns as usize).add((index * 4) as usize), [0.0; 4]);
            index += THREADS;
        }
        let units = params.head_size / UNIT;
        // A power of two lanes a row.
        let bits = 32 - units.saturating_sub(1).leading_zeros();
        let (unit, mut row) = (thread::thread_idx_x() & ((1 << bits) - 1), thread::thread_idx_x() >> bits);
        while row < tile {
            let query = first_row + row;
            let is_real = query < sequence.queries;
            let mut sum = 0.0;
            if is_real && unit < units {
                let load = |rows: Rows| -> [u32; 4] {
                    let at = rows.strides.at(sequence.first_query + query, head, sequence.matrix);
                    vector::load_v4(rows.data.add(at + (unit * UNIT) as usize).cast())
                };
                sum = dot::<E>(load(arguments.output), load(arguments.gradient));
            }
            let mut distance = (1 << bits) / 2;
            while distance > 0 {
                sum += warp_shuffle_xor(FULL_MASK, sum, distance, 32).0;
                distance /= 2;
            }
            if unit == 0 {
                let at = padded + row as usize;
                // Rows that see no key, and those of the padding, have weights of zero.
                let mut logarithm = f32::NEG_INFINITY;
                if is_real {
                    let matrix = sequence.matrix as usize * params.heads as usize + head as usize;
                    let place = matrix * params.lse_rows as usize + (sequence.first_query + query) as usize;
                    logarithm = *arguments.log_sum_exp.add(place);
                }
                let logarithm = if logarithm == f32::NEG_INFINITY { f32::INFINITY } else { logarithm };
                *arguments.logarithms.add(at) = logarithm * core::f32::consts::LOG2_E;
                *arguments.deltas.add(at) = sum;
            }
            row += THREADS >> bits;
        }
    }
}

/// The sum of the products of eight elements each.
#[inline(always)]
fn dot<E: Element>(a: [u32; 4], b: [u32; 4]) -> f32 {
    let mut sum = 0.0;
    primitives::unroll!(PAIR in 0..4, {
        let (x, y) = (E::unpack(a[PAIR]), E::unpack(b[PAIR]));
        sum += x[0] * y[0] + x[1] * y[1];
    });
    sum
}
