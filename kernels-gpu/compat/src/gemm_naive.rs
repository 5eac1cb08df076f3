//! A matrix product with one thread per element, directly from global memory.

use cuda_std::kernel;
use cuda_std::thread;

/// `c = alpha * a * b + beta * c`, all row-major: `a` is m x k, `b` is k x n, `c` is m x n.
#[kernel]
#[allow(improper_ctypes_definitions)]
pub unsafe fn gemm_naive(
    a: &[f32],
    b: &[f32],
    c: *mut f32,
    m: usize,
    n: usize,
    k: usize,
    alpha: f32,
    beta: f32,
) {
    let pos = thread::index_2d();
    let (row, col) = (pos.y as usize, pos.x as usize);
    if row >= m || col >= n {
        return;
    }
    let mut acc = 0.0f32;
    for i in 0..k {
        acc += a[row * k + i] * b[i * n + col];
    }
    // SAFETY: `row` and `col` are inside `c`, and every thread has its own element.
    unsafe {
        let out = c.add(row * n + col);
        *out = alpha * acc + beta * *out;
    }
}
