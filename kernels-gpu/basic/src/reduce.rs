//! The sum and the maximum of a f32 vector, the same bits in every run and on every device.
//!
//! ```text
//!   stage 1   x: | tile 0 | tile 1 | .. | tile P-1 | tile P | ..      block b takes tiles b, b + P, b + 2 P, ..
//!             thread: 16 running values -> 1 -> warp (butterfly) -> block (shared) -> partial[b]
//!   stage 2   the same kernel over the partials, with one block
//! ```
//! P = [`partials`]`(n)` depends on nothing but `n`, so the tree has one shape. A thread's running values are
//! chains of `n / (P * TILE)` terms and all else is a binary tree, which keeps the error of the sum near that
//! of a tree over all of `x`.
//!
//! * Sum: 0 for an empty vector. NaN and infinities follow IEEE 754.
//! * Maximum: minus infinity for an empty vector. A NaN anywhere makes the result NaN (which one is not
//!   specified); +0 is greater than -0.
//!
//! `x` may have any alignment: off a 16-byte boundary the loads are 4 bytes wide and the result is the same.

use crate::{VECTOR, is_aligned};
use cuda_std::{kernel, shared_array, thread, vector};
use primitives::block;
use primitives::op::{Max, Operation, Sum};

/// Threads of a block.
pub const THREADS: u32 = 256;
/// 16-byte loads that a thread has under way.
const VECTORS: u32 = 4;
/// Running values of a thread.
const RUNNING: usize = (VECTORS * VECTOR) as usize;
/// Elements that a block takes at a time.
pub const TILE: u32 = THREADS * VECTORS * VECTOR;
/// Most partial results: one tile, so that one block finishes, and many waves of blocks on any device.
pub const MAX_PARTIALS: u32 = TILE;
/// Blocks that fit a multiprocessor at once: enough bytes under way, enough registers for the running values.
const MIN_BLOCKS: u32 = 4;
/// Warps of a block.
const WARPS: usize = block::slots(THREADS);

/// Blocks of stage 1 for `n` elements, each of which leaves one partial result. Never 0.
pub const fn partials(n: usize) -> u32 {
    let tiles = n.div_ceil(TILE as usize);
    if tiles > MAX_PARTIALS as usize {
        MAX_PARTIALS
    } else if tiles == 0 {
        1
    } else {
        tiles as u32
    }
}

/// Writes the sum of the tiles `b, b + gridDim, ..` of `x` to `out[b]`.
///
/// # Safety
/// `out` is valid for a write of one element a block and does not overlap `x`. Blocks of [`THREADS`] threads,
/// at least one.
#[kernel(launch_bounds(THREADS, MIN_BLOCKS))]
pub unsafe fn reduce_sum(x: &[f32], out: *mut f32) {
    // SAFETY: the caller's contract is the same.
    unsafe { reduce(Sum, x, out) }
}

/// Writes the maximum of the tiles `b, b + gridDim, ..` of `x` to `out[b]`.
///
/// # Safety
/// As [`reduce_sum()`].
#[kernel(launch_bounds(THREADS, MIN_BLOCKS))]
pub unsafe fn reduce_max(x: &[f32], out: *mut f32) {
    // SAFETY: the caller's contract is the same.
    unsafe { reduce(Max, x, out) }
}

/// # Safety
/// As [`reduce_sum`].
#[inline(always)]
unsafe fn reduce<O: Operation<f32>>(op: O, x: &[f32], out: *mut f32) {
    const { assert!(VECTORS == 4 && VECTOR == 4) };
    let block_index = thread::block_idx_x();
    // SAFETY: tiles lie inside x; out has an element for every block. All threads reduce; the slots are
    // unused.
    unsafe {
        let running = reduce_tiles(op, x, block_index, thread::grid_dim_x());
        let slots = shared_array![f32; WARPS];
        let value = block::reduce_groups(op, reduce_running(op, running), THREADS, slots);
        if thread::thread_idx_x() == 0 {
            *out.add(block_index as usize) = value;
        }
    }
}

/// This thread's running values over the block's tiles.
///
/// # Safety
/// As [`reduce_sum`].
#[inline(always)]
unsafe fn reduce_tiles<O: Operation<f32>>(op: O, x: &[f32], block: u32, blocks: u32) -> [[f32; 4]; 4] {
    let (n, stride) = (x.len(), blocks as usize * TILE as usize);
    let x = x.as_ptr();
    let vectors = is_aligned(x);
    let mut running = [[op.identity(); 4]; 4];
    let mut start = block as usize * TILE as usize;
    while start < n {
        let left = n - start;
        // SAFETY: start < n; the first two forms are for whole tiles, and vectors for aligned ones.
        let values = unsafe {
            match (left >= TILE as usize, vectors) {
                (true, true) => load_vectors(x.add(start)),
                (true, false) => load_scalars(op, x.add(start), TILE),
                (false, _) => load_scalars(op, x.add(start), left as u32),
            }
        };
        for step in 0..VECTORS as usize {
            for i in 0..VECTOR as usize {
                running[step][i] = op.combine(running[step][i], values[step][i]);
            }
        }
        start += stride;
    }
    running
}

/// Place in the tile of element `i` of this thread's vector `step`.
#[inline(always)]
fn place(step: u32, i: u32) -> u32 {
    (step * THREADS + thread::thread_idx_x()) * VECTOR + i
}

/// This thread's elements of a whole tile.
///
/// # Safety
/// `tile` is readable for a whole tile and aligned to 16 bytes.
#[inline(always)]
unsafe fn load_vectors(tile: *const f32) -> [[f32; 4]; 4] {
    // SAFETY: the caller has a whole tile at a 16-byte boundary.
    [0, 1, 2, 3].map(|step| unsafe { vector::load_stream_v4(tile.add(place(step, 0) as usize)) })
}

/// This thread's elements of a tile of `count`, the identity where there are none.
///
/// # Safety
/// `tile` is readable for `count` elements.
#[inline(always)]
unsafe fn load_scalars<O: Operation<f32>>(op: O, tile: *const f32, count: u32) -> [[f32; 4]; 4] {
    let load = |place: u32| {
        if place < count {
            // SAFETY: the tile has count elements.
            unsafe { vector::load_nc(tile.add(place as usize)) }
        } else {
            op.identity()
        }
    };
    [0, 1, 2, 3].map(|step| [0, 1, 2, 3].map(|i| load(place(step, i))))
}

/// Combines a thread's running values by a tree.
#[inline(always)]
fn reduce_running<O: Operation<f32>>(op: O, running: [[f32; 4]; 4]) -> f32 {
    const { assert!(RUNNING == 16) };
    let four = running.map(|v| op.combine(op.combine(v[0], v[1]), op.combine(v[2], v[3])));
    op.combine(op.combine(four[0], four[1]), op.combine(four[2], four[3]))
}
