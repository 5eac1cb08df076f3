//! The gradient of a bias that was added to scores, summed over the sequences and heads that share a number
//! of it: of each score `dS = P (dP - D)`, with `P = e^(scale Q K^T + bias - L)`, `dP = dO V^T`, and `D` the
//! row's product of dO and O.
//!
//! A kernel of its own: it computes scores once more, and the backward pass stays as it is.
//!
//! ```text
//!   block         64 queries x 32 keys of the bias; adds the dS of its sequences and heads, in order
//!   warp          16 of the queries
//!   registers     S, dP and the sums, f32, as the tensor cores lay them out
//! ```
//! Fragments are read from global memory where they lie, four bytes a lane: rows of 16 bytes and any strides,
//! and no shared memory. It is the simple way, which reads each key once a warp and waits for memory. All
//! sums are f32 in a fixed order, so that results repeat bit for bit.

use core::f32::consts::LOG2_E;
use core::mem;

use cuda_std::fastmath::{ex2_approx, fma};
use cuda_std::warp::{FULL_MASK, lane_id, warp_shuffle_xor};
use cuda_std::{KernelArgs, grid, kernel, thread};
use num::{bf16, f16};
use primitives::unroll;
use primitives::warp::LANES;

use crate::decode::config::Element;
use crate::functions::Bias;
use crate::problem::{AttentionParams, Strides, Visible};

/// Warps of a block.
const WARPS: u32 = 4;
/// Threads of a block.
pub const THREADS: u32 = WARPS * LANES;
/// Queries of a warp: the rows of an instruction.
const WARP_QUERIES: u32 = 16;
/// Queries of a block.
pub const TILE_QUERIES: u32 = WARPS * WARP_QUERIES;
/// Keys of an instruction.
const STEP_KEYS: u32 = 8;
/// Instructions for the keys of a block. More need more registers than there are.
const STEPS: usize = 4;
/// Keys of a block.
pub const TILE_KEYS: u32 = STEPS as u32 * STEP_KEYS;
/// Columns of an instruction.
const STEP_COLUMNS: u32 = 16;

/// Where rows of the operands begin, at multiples of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct OperandStrides {
    /// Of Q.
    pub queries: Strides,
    /// Of K.
    pub keys: Strides,
    /// Of V.
    pub values: Strides,
    /// Of O.
    pub output: Strides,
    /// Of dO.
    pub gradient: Strides,
}

/// How many matrices of the bias there are.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Matrices {
    /// 1, or one for each sequence.
    pub sequences: u32,
    /// 1, or one for each head of queries.
    pub heads: u32,
}

/// The arguments of a launch, each valid for the rows of the problem.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The problem: not packed, with at least one query and one key.
    pub params: &'a AttentionParams,
    /// The numbers that were added to scores.
    pub bias: Bias,
    /// Q.
    pub queries: *const u16,
    /// K.
    pub keys: *const u16,
    /// V.
    pub values: *const u16,
    /// O.
    pub output: *const u16,
    /// dO.
    pub gradient: *const u16,
    /// Where their rows begin.
    pub strides: OperandStrides,
    /// L, `[sequences][heads][queries]`.
    pub log_sum_exp: *const f32,
    /// The matrices of the bias.
    pub matrices: Matrices,
    /// Their gradients, dense: `[sequences][heads][queries][keys]`.
    pub result: *mut f32,
}

/// A lane's part of a tile: two queries, 8 apart, and two of every eight keys.
#[derive(Clone, Copy)]
struct Part {
    /// Matrix of the bias.
    sequence: u32,
    head: u32,
    first_query: u32,
    first_key: u32,
    lane: u32,
}

impl Part {
    /// That of this thread. Tiles of keys follow each other first, then those of queries, then matrices.
    #[inline(always)]
    fn of_thread(params: &AttentionParams, matrices: Matrices) -> Self {
        let (across, down) =
            (params.keys.div_ceil(TILE_KEYS).max(1), params.queries.div_ceil(TILE_QUERIES).max(1));
        let (number, warp) = (thread::block_idx_x(), thread::thread_idx_x() / LANES);
        let (row, heads) = (number / across, matrices.heads.max(1));
        let matrix = row / down;
        Self {
            sequence: matrix / heads,
            head: matrix % heads,
            first_query: row % down * TILE_QUERIES + warp * WARP_QUERIES,
            first_key: number % across * TILE_KEYS,
            lane: lane_id(),
        }
    }

    #[inline(always)]
    fn queries(self) -> [u32; 2] {
        [0, 8].map(|below| self.first_query + self.lane / 4 + below)
    }

    /// The key of an element of an instruction's result.
    #[inline(always)]
    fn key(self, step: usize, i: usize) -> u32 {
        self.first_key + STEP_KEYS * step as u32 + self.lane % 4 * 2 + i as u32
    }

    /// Whether some query of the warp may see some key of the tile.
    #[inline(always)]
    fn is_seen(self, params: &AttentionParams) -> bool {
        let last_query = (self.first_query + WARP_QUERIES).min(params.queries).wrapping_sub(1);
        let top = visible(params, self.first_query);
        let bottom = visible(params, last_query);
        self.first_query < params.queries
            && top.first < self.first_key + TILE_KEYS
            && bottom.end > self.first_key
    }
}

/// The keys that a query sees.
#[inline(always)]
fn visible(params: &AttentionParams, query: u32) -> Visible {
    let AttentionParams { band, queries, keys, .. } = *params;
    band.visible(band.diagonal(queries, keys) + query as i32, keys)
}

/// A tile of one matrix of the bias a block.
///
/// # Safety
/// The arguments are as [`Arguments`] says; the launch has a block of [`THREADS`] threads for each tile.
#[inline(always)]
pub unsafe fn run<E: Element>(arguments: Arguments<'_>) {
    let Arguments { params, matrices, result, .. } = arguments;
    grid::wait_dependencies();
    grid::launch_dependents();
    let part = Part::of_thread(params, matrices);
    // SAFETY: floats of zero bits are 0; the caller's contract: sequences and heads are those of the problem,
    // and the result has a place for each query and key of a matrix.
    unsafe {
        let mut sums: [[f32; 4]; STEPS] = mem::zeroed();
        if part.is_seen(params) {
            let all =
                |matrices: u32, own: u32, count: u32| if matrices == 1 { [0, count] } else { [own, own + 1] };
            let [mut sequence, last_sequence] = all(matrices.sequences, part.sequence, params.batch);
            let [first_head, last_head] = all(matrices.heads, part.head, params.heads);
            while sequence < last_sequence {
                let mut head = first_head;
                while head < last_head {
                    add::<E>(arguments, part, [sequence, head], &mut sums);
                    head += 1;
                }
                sequence += 1;
            }
        }
        let matrix = u64::from(part.sequence * matrices.heads + part.head) * u64::from(params.queries);
        let rows = part.queries();
        unroll!(STEP in 0..4, {
            unroll!(I in 0..4, {
                let (query, key) = (rows[I / 2], part.key(STEP, I % 2));
                if query < params.queries && key < params.keys {
                    let place = (matrix + u64::from(query)) * u64::from(params.keys) + u64::from(key);
                    *result.add(place as usize) = sums[STEP][I];
                }
            });
        });
    }
}

/// Adds dS of a sequence and a head of queries.
///
/// # Safety
/// As for [`run`]; the whole warp is here, and there are such a sequence and head.
#[inline(always)]
unsafe fn add<E: Element>(
    arguments: Arguments<'_>,
    part: Part,
    [sequence, head]: [u32; 2],
    sums: &mut [[f32; 4]; STEPS],
) {
    let Arguments { params, bias, log_sum_exp, strides, .. } = arguments;
    let kv_head = head / params.group.max(1);
    // Beyond the last ones stand the last ones, whose results nobody takes.
    let rows = part.queries().map(|query| query.min(params.queries - 1));
    let column = part.lane % 4 * 2;
    // SAFETY: floats of zero bits are 0; the caller's contract.
    unsafe {
        let mut scores: [[f32; 4]; STEPS] = mem::zeroed();
        let mut of_weights: [[f32; 4]; STEPS] = mem::zeroed();
        let mut deltas = [0.0; 2];
        let mut first_column = 0;
        while first_column < params.head_size {
            // Rows are multiples of 8 elements: the second half of a step may not be there.
            let (near, has_far) = (first_column + column, first_column + 8 < params.head_size);
            let load = |data: *const u16, from: usize| {
                let pair = data.add(from + near as usize).cast::<u32>();
                [*pair, if has_far { *pair.add(4) } else { 0 }]
            };
            let left = |data: *const u16, strides: Strides| {
                let [top, bottom] = rows.map(|row| load(data, strides.at(row, head, sequence)));
                [top[0], bottom[0], top[1], bottom[1]]
            };
            let queries = left(arguments.queries, strides.queries);
            let gradient = left(arguments.gradient, strides.gradient);
            let output = left(arguments.output, strides.output);
            unroll!(I in 0..4, {
                let (x, y) = (E::unpack(gradient[I]), E::unpack(output[I]));
                deltas[I % 2] += x[0] * y[0] + x[1] * y[1];
            });
            unroll!(STEP in 0..4, {
                let key = part.first_key + STEP_KEYS * STEP as u32 + part.lane / 4;
                let key = key.min(params.keys - 1);
                let keys = load(arguments.keys, strides.keys.at(key, kv_head, sequence));
                scores[STEP] = E::multiply(queries, keys, scores[STEP]);
                let values = load(arguments.values, strides.values.at(key, kv_head, sequence));
                of_weights[STEP] = E::multiply(gradient, values, of_weights[STEP]);
            });
            first_column += STEP_COLUMNS;
        }
        // Lanes of a quad have columns of the same rows.
        let deltas = deltas.map(|sum| {
            let sum = sum + warp_shuffle_xor(FULL_MASK, sum, 1, 32).0;
            sum + warp_shuffle_xor(FULL_MASK, sum, 2, 32).0
        });
        let matrix = u64::from(sequence) * bias.matrix + u64::from(head) * bias.head;
        unroll!(ROW in 0..2, {
            let row = rows[ROW];
            let place = (sequence * params.heads + head) as usize * params.lse_rows as usize;
            let logarithm = *log_sum_exp.add(place + row as usize);
            // The weights of a row that sees no key are zero.
            let logarithm = if logarithm == f32::NEG_INFINITY { f32::INFINITY } else { logarithm * LOG2_E };
            let seen = visible(params, row);
            unroll!(STEP in 0..4, {
                unroll!(I in 0..2, {
                    let key = part.key(STEP, I);
                    if key >= seen.first && key < seen.end {
                        let place = matrix.wrapping_add(u64::from(row).wrapping_mul(bias.row));
                        let of_row = bias.data.offset(place as isize);
                        let score = fma(scores[STEP][2 * ROW + I], params.scale, *of_row.add(key as usize));
                        let weight = ex2_approx(fma(score, LOG2_E, -logarithm));
                        let by_score = of_weights[STEP][2 * ROW + I] - deltas[ROW];
                        sums[STEP][2 * ROW + I] = fma(weight, by_score, sums[STEP][2 * ROW + I]);
                    }
                });
            });
        });
    }
}

/// Kernels: name and type.
macro_rules! kernels {
    ($(#[kernel] fn $name:ident: $element:ident;)*) => { $(
        #[doc = concat!("The gradient of a bias of scores in ", stringify!($element), "; see the module.")]
        ///
        /// # Safety
        /// As [`run`].
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $name(
            params: AttentionParams,
            bias: Bias,
            queries: *const u16,
            keys: *const u16,
            values: *const u16,
            output: *const u16,
            gradient: *const u16,
            strides: OperandStrides,
            log_sum_exp: *const f32,
            matrices: Matrices,
            result: *mut f32,
        ) {
            let arguments = Arguments {
                params: &params,
                bias,
                queries,
                keys,
                values,
                output,
                gradient,
                strides,
                log_sum_exp,
                matrices,
                result,
            };
            // SAFETY: the caller's contract.
            unsafe { run::<$element>(arguments) }
        }
    )* };
}

kernels! {
    #[kernel] fn attention_bias_gradient_bf16: bf16;
    #[kernel] fn attention_bias_gradient_f16: f16;
}
