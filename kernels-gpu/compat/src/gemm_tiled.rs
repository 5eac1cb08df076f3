//! The product by tiles in shared memory. One tile is a flat array, the other is nested: users write both.

use cuda_std::address_space;
use cuda_std::kernel;
use cuda_std::thread;

/// Side of a tile and of a block.
const TILE: usize = 16;

// Declared outside the kernel on purpose.
#[address_space(shared)]
static mut B_TILE: [[f32; TILE]; TILE] = [[0.0; TILE]; TILE];

/// `c = alpha * a * b + beta * c`, all row-major: `a` is m x k, `b` is k x n, `c` is m x n.
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn gemm_tiled(
    a: &[f32],
    b: &[f32],
    c: *mut f32,
    m: usize,
    n: usize,
    k: usize,
    alpha: f32,
    beta: f32,
) {
    const TILE_LEN: usize = TILE * TILE;

    #[address_space(shared)]
    static mut A_TILE: [f32; TILE_LEN] = [0.; TILE_LEN];

    let tx = thread::thread_idx_x() as usize;
    let ty = thread::thread_idx_y() as usize;
    let row = thread::block_idx_y() as usize * TILE + ty;
    let col = thread::block_idx_x() as usize * TILE + tx;

    let mut acc = 0.0f32;
    for start in (0..k).step_by(TILE) {
        let from_a = if row < m && start + tx < k { a[row * k + start + tx] } else { 0.0 };
        let from_b = if col < n && start + ty < k { b[(start + ty) * n + col] } else { 0.0 };
        // SAFETY: every thread has its own element, and the barrier below ends the writes.
        unsafe {
            A_TILE[ty * TILE + tx] = from_a;
            B_TILE[ty][tx] = from_b;
        }
        thread::sync_threads();

        for i in 0..TILE {
            // SAFETY: the tiles are only read until the next barrier.
            acc += unsafe { A_TILE[ty * TILE + i] * B_TILE[i][tx] };
        }
        thread::sync_threads();
    }

    if row < m && col < n {
        // SAFETY: `row` and `col` are inside `c`, and every thread has its own element.
        unsafe {
            let out = c.add(row * n + col);
            *out = alpha * acc + beta * *out;
        }
    }
}
