//! `y = a x + y` for f32 vectors of any length and alignment.
//!
//! ```text
//!   y:  |head|      tile 0      |      tile 1      | .. | last |
//!        ^ up to the first 16-byte boundary of y: block 0, one element a thread
//!             ^ one tile of TILE elements a block, 16 bytes of x and of y a thread
//! ```
//! Moves 12 bytes an element. Tiles go by 16-byte accesses when `x` has the same offset from a 16-byte
//! boundary as `y`; else, and in the last tile, every access is 4 bytes wide (still whole lines a warp).
//!
//! One vector a thread and 64 warps a multiprocessor keep more loads under way, more evenly, than several
//! vectors a thread: on an H200 4331 GB/s; with two 4268, with four 4258. Loads that bypass L1
//! (`no_allocate`), of either operand, cost 3 to 6 %.
//!
//! Limits: `x` and `y` do not overlap, unless they are the same; as many blocks as [`blocks`] says, all of
//! [`THREADS`] threads.

use crate::{VECTOR, is_aligned};
use cuda_std::{fastmath, grid, kernel, thread, vector};
use layout::UNIT_BYTES;

/// Threads of a block.
pub const THREADS: u32 = 256;
/// Elements of a block.
pub const TILE: u32 = THREADS * VECTOR;

/// Blocks for `n` elements. Never 0.
pub const fn blocks(n: usize) -> usize {
    // The head may push the last elements into one more tile; an empty block is cheaper than knowing the
    // alignment here.
    n / TILE as usize + 1
}

/// `y[i] = a * x[i] + y[i]`, in one rounding.
///
/// # Safety
/// `y` is valid for reads and writes of `x.len()` elements and does not overlap `x`. Blocks of [`THREADS`]
/// threads, [`blocks`] of them.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn saxpy(a: f32, x: &[f32], y: *mut f32) {
    const { assert!(TILE == 4 * THREADS, "scalar_tile counts four elements a thread") };
    let n = x.len();
    let head = elements_to_boundary(y).min(n);
    let lane = thread::thread_idx_x();
    let block = thread::block_idx_x();
    let x = x.as_ptr();
    grid::launch_dependents();
    grid::wait_dependencies();
    // SAFETY: every index below is less than n, and each element belongs to one thread.
    unsafe {
        if block == 0 && (lane as usize) < head {
            let y = y.add(lane as usize);
            *y = fastmath::fma(a, *x.add(lane as usize), *y);
        }
        let start = head + block as usize * TILE as usize;
        if start >= n {
            return;
        }
        let (x, y, left) = (x.add(start), y.add(start), n - start);
        if left >= TILE as usize && is_aligned(x) {
            vector_tile(a, x, y, lane);
        } else {
            scalar_tile(a, x, y, lane, left.min(TILE as usize) as u32);
        }
    }
}

/// Elements in front of the first 16-byte boundary.
#[inline(always)]
fn elements_to_boundary(pointer: *const f32) -> usize {
    let bytes = (pointer as usize).wrapping_neg() % UNIT_BYTES as usize;
    bytes / size_of::<f32>()
}

/// A whole tile with 16-byte accesses.
///
/// # Safety
/// `x` and `y` hold a tile and are aligned to 16 bytes. `lane` is below `THREADS`, and each thread has its
/// own.
#[inline(always)]
unsafe fn vector_tile(a: f32, x: *const f32, y: *mut f32, lane: u32) {
    let place = (lane * VECTOR) as usize;
    // SAFETY: the tile holds TILE elements, x and y are aligned to 16 bytes, and places of different threads
    // are apart.
    unsafe {
        let x: [f32; 4] = vector::load_v4(x.add(place));
        let old: [f32; 4] = vector::load_v4(y.add(place).cast_const());
        vector::store_v4(y.add(place), [0, 1, 2, 3].map(|i| fastmath::fma(a, x[i], old[i])));
    }
}

/// The first `count` elements of a tile with 4-byte accesses, a thread's loads all under way at a time.
///
/// # Safety
/// `x` and `y` hold `count` elements. `lane` is below `THREADS`, and each thread has its own.
#[inline(always)]
unsafe fn scalar_tile(a: f32, x: *const f32, y: *mut f32, lane: u32, count: u32) {
    let places = [0, 1, 2, 3].map(|step| lane + step * THREADS);
    // SAFETY: places below count only, and only this thread touches them.
    unsafe {
        let load = |from: *const f32, place: u32| if place < count { *from.add(place as usize) } else { 0.0 };
        let xs = places.map(|place| load(x, place));
        let ys = places.map(|place| load(y, place));
        for step in 0..4 {
            if places[step] < count {
                *y.add(places[step] as usize) = fastmath::fma(a, xs[step], ys[step]);
            }
        }
    }
}
