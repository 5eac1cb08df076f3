//! The usual tiled product, to time the checker with.

use cuda_std::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x, thread_idx_y};
use cuda_std::{kernel, shared_array};

/// Rows and columns of a tile, and of a block's threads.
pub const TILE: usize = 16;

/// `data` holds A, B and C, each `n` rows of `n` f32: `C = A B`.
#[kernel]
pub unsafe fn timed_product(data: *mut u32, _aux: *mut u32, n: u32) {
    let (left, right) = (shared_array![f32; TILE * TILE], shared_array![f32; TILE * TILE]);
    let (n, x, y) = (n as usize, thread_idx_x() as usize, thread_idx_y() as usize);
    let (row, column) = (block_idx_y() as usize * TILE + y, block_idx_x() as usize * TILE + x);
    let a = data.cast::<f32>();
    unsafe {
        let (b, c) = (a.add(n * n), a.add(2 * n * n));
        let mut sum = 0.0;
        for start in (0..n).step_by(TILE) {
            *left.add(y * TILE + x) = *a.add(row * n + start + x);
            *right.add(y * TILE + x) = *b.add((start + y) * n + column);
            sync_threads();
            for k in 0..TILE {
                sum += *left.add(y * TILE + k) * *right.add(k * TILE + x);
            }
            sync_threads();
        }
        *c.add(row * n + column) = sum;
    }
}
