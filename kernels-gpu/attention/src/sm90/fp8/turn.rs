//! Values are turned: from keys below each other, as callers have them, to keys side by side, as [`Turned`]
//! says. A kernel of its own, before the main one, which would do it again for each tile of queries.
//!
//! ```text
//!   block   128 keys x 128 columns of a head
//!   warp     32 keys, a row of 128 bytes each
//!   lane     16 of these, by 8 columns: 16 bytes of 8 lines, of which its neighbour has the next 16
//! ```
//! A lane has its keys in registers, and sorts their bytes four by four. No shared memory. Two lanes write a
//! whole sector of 32 bytes: a part of one would be read from memory first.

use cuda_std::misc::permute_bytes;
use cuda_std::{grid, thread, vector};
use primitives::unroll;
use primitives::warp::LANES;

use super::config::{BLOCK_N, Turned};
use crate::problem::{AttentionParams, Packing, Sequence, Strides};

/// Keys of a lane: those whose order in a line is their own.
const KEYS: u32 = 16;
/// Lanes beside each other with the same columns.
const PAIR: u32 = 2;
/// Columns of a lane: those of two words.
const LANE_COLUMNS: u32 = 8;
/// Columns of a block.
pub const COLUMNS: u32 = LANES / PAIR * LANE_COLUMNS;
/// Threads of a block.
pub const THREADS: u32 = BLOCK_N / (PAIR * KEYS) * LANES;

/// The arguments of a launch.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where packed sequences begin.
    pub packing: Packing,
    /// V, e4m3.
    pub values: *const u8,
    /// Where its rows begin, at multiples of 8 bytes.
    pub strides: Strides,
    /// The turned values.
    pub turned: *mut u8,
    /// Bytes of a line of them, a multiple of 128.
    pub line_bytes: u32,
}

/// Blocks of a launch: one for each block of keys, [`COLUMNS`] columns and head.
#[must_use]
pub const fn blocks(params: &AttentionParams) -> u64 {
    let (across, parts) = (params.keys.div_ceil(BLOCK_N) as u64, params.head_size.div_ceil(COLUMNS) as u64);
    across
        * parts
        * params.batch as u64
        * (params.heads / if params.group > 1 { params.group } else { 1 }) as u64
}

/// A lane's place: its first key of a block, and the first of its columns.
#[derive(Clone, Copy)]
struct Lane {
    key: u32,
    column: u32,
    head: u32,
    batch: u32,
}

/// Turns the block's keys, and those of later blocks of a sequence that is longer than was told.
///
/// # Safety
/// The arguments are as [`Arguments`] says; the launch has [`blocks`] blocks of [`THREADS`] threads.
#[inline(always)]
pub unsafe fn run(arguments: Arguments<'_>) {
    let Arguments { params, packing, .. } = arguments;
    let across = params.keys.div_ceil(BLOCK_N).max(1);
    let parts = params.head_size.div_ceil(COLUMNS).max(1);
    let heads = (params.heads / params.group.max(1)).max(1);
    // All heads of a block of keys beside each other: their rows are neighbours in memory.
    let (number, head) = (thread::block_idx_x() / heads, thread::block_idx_x() % heads);
    let (number, part) = (number / parts, number % parts);
    let (batch, mut block) = (number / across, number % across);
    let thread = thread::thread_idx_x();
    let column = part * COLUMNS + thread % LANES / PAIR * LANE_COLUMNS;
    // SAFETY: the caller's contract.
    unsafe {
        grid::wait_dependencies();
        grid::launch_dependents();
        let sequence = params.sequence(packing, batch);
        if column >= Turned::lines(params.head_size) {
            return;
        }
        while block * BLOCK_N < sequence.keys {
            let key = block * BLOCK_N + (thread / LANES * PAIR + thread % PAIR) * KEYS;
            turn(arguments, sequence, Lane { key, column, head, batch });
            block += across;
        }
    }
}

/// Turns a lane's keys of a block.
///
/// # Safety
/// As for [`run`]; the keys' block begins in the sequence, and the columns are among the lines.
#[inline(always)]
unsafe fn turn(arguments: Arguments<'_>, sequence: Sequence, lane: Lane) {
    let Arguments { params, packing, values, strides, turned, line_bytes } = arguments;
    let Lane { key: first, column, head, batch } = lane;
    let heads = (params.heads / params.group.max(1)).max(1);
    // SAFETY: the caller's contract; keys of the sequence and columns of its rows; places of a line that only
    // this thread writes.
    unsafe {
        let from =
            values.wrapping_add(strides.at(sequence.first_key, head, sequence.matrix) + column as usize);
        let mut words: [[u32; 2]; KEYS as usize] = core::mem::zeroed();
        unroll!(KEY in 0..16, {
            let key = first + KEY as u32;
            if key < sequence.keys && column < params.head_size {
                words[KEY] = vector::load_v2(from.wrapping_add((key as u64 * strides.row) as usize).cast());
            }
        });
        let is_packed = !packing.keys.is_null();
        let begin = if is_packed { Turned::first(sequence.first_key, batch) } else { 0 };
        let matrix = sequence.matrix as u64 * heads as u64 + head as u64;
        let pair = column / Turned::COLUMNS * Turned::COLUMNS + column % Turned::COLUMNS / 2;
        let line = matrix * Turned::lines(params.head_size) as u64 + pair as u64;
        let to = turned.add((line * line_bytes as u64 + (begin + first) as u64) as usize);
        unroll!(WORD in 0..2, {
            let mut columns: [[u32; 4]; 4] = core::mem::zeroed();
            unroll!(QUAD in 0..4, {
                let keys = [words[2 * QUAD], words[2 * QUAD + 1], words[2 * QUAD + 8], words[2 * QUAD + 9]];
                let of_columns = transpose(keys.map(|words| words[WORD]));
                unroll!(COLUMN in 0..4, { columns[COLUMN][QUAD] = of_columns[COLUMN]; });
            });
            unroll!(COLUMN in 0..4, {
                // Lines of even columns, then those of odd ones.
                let line = (2 * WORD + COLUMN / 2 + COLUMN % 2 * 8) as u64 * line_bytes as u64;
                vector::store_v4(to.add(line as usize).cast(), columns[COLUMN]);
            });
        });
    }
}

/// From four bytes of each of four keys to four keys of each of four columns.
#[inline(always)]
fn transpose([a, b, c, d]: [u32; 4]) -> [u32; 4] {
    let (low, high) = (permute_bytes::<0x5140>(a, b), permute_bytes::<0x7362>(a, b));
    let (next_low, next_high) = (permute_bytes::<0x5140>(c, d), permute_bytes::<0x7362>(c, d));
    [
        permute_bytes::<0x5410>(low, next_low),
        permute_bytes::<0x7632>(low, next_low),
        permute_bytes::<0x5410>(high, next_high),
        permute_bytes::<0x7632>(high, next_high),
    ]
}

#[cfg(test)]
mod tests {
    use super::transpose;

    #[test]
    fn bytes_of_keys_become_those_of_columns() {
        let keys = [
            [0x00, 0x01, 0x02, 0x03],
            [0x10, 0x11, 0x12, 0x13],
            [0x20, 0x21, 0x22, 0x23],
            [0x30, 0x31, 0x32, 0x33],
        ];
        let columns = transpose(keys.map(u32::from_le_bytes)).map(u32::to_le_bytes);
        for (key, bytes) in keys.iter().enumerate() {
            for (column, byte) in bytes.iter().enumerate() {
                assert_eq!(columns[column][key], *byte);
            }
        }
    }
}
