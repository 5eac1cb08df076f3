//! One product of each shape and type by one warp. The kernels load the fragments directly from global
//! memory.
//!
//! A is `[16, K]` row-major, B `[8, K]` row-major (that is, `[K, 8]` column-major), C and D `[16, 8]`
//! row-major.

use cuda_std::{kernel, mma, warp};

/// Rows of A, C and D.
pub const M: usize = 16;
/// Columns of B, C and D.
pub const N: usize = 8;

/// The lane's group and its place in the group: the `g` and `t` of the fragment layouts.
#[inline(always)]
fn group_and_place() -> (usize, usize) {
    let lane = warp::lane_id() as usize;
    (lane / 4, lane % 4)
}

/// Two neighbouring 16-bit elements of a row-major matrix of `width`, the first at an even column.
///
/// # Safety
/// In bounds of the matrix, which is 4-byte aligned.
#[inline(always)]
unsafe fn pair(matrix: *const u16, width: usize, row: usize, column: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { *matrix.add(row * width + column).cast::<u32>() }
}

/// A and B for k = 16, 16-bit elements.
///
/// # Safety
/// Whole matrices, 4-byte aligned.
#[inline(always)]
unsafe fn operands_k16(a: *const u16, b: *const u16) -> ([u32; 4], [u32; 2]) {
    const K: usize = 16;
    let (g, t) = group_and_place();
    // SAFETY: rows below 16 and 8, columns below 16.
    unsafe {
        (
            [
                pair(a, K, g, 2 * t),
                pair(a, K, g + 8, 2 * t),
                pair(a, K, g, 2 * t + 8),
                pair(a, K, g + 8, 2 * t + 8),
            ],
            [pair(b, K, g, 2 * t), pair(b, K, g, 2 * t + 8)],
        )
    }
}

/// A and B for k = 8, 16-bit elements.
///
/// # Safety
/// Whole matrices, 4-byte aligned.
#[inline(always)]
unsafe fn operands_k8(a: *const u16, b: *const u16) -> ([u32; 2], u32) {
    const K: usize = 8;
    let (g, t) = group_and_place();
    // SAFETY: rows below 16 and 8, columns below 8.
    unsafe { ([pair(a, K, g, 2 * t), pair(a, K, g + 8, 2 * t)], pair(b, K, g, 2 * t)) }
}

/// # Safety
/// A whole matrix.
#[inline(always)]
unsafe fn load_c(c: *const f32) -> [f32; 4] {
    let (g, t) = group_and_place();
    let first = c.wrapping_add(g * N + 2 * t);
    // SAFETY: rows below 16, columns below 8.
    unsafe { [*first, *first.add(1), *first.add(8 * N), *first.add(8 * N + 1)] }
}

/// # Safety
/// A whole matrix.
#[inline(always)]
unsafe fn store_d(out: *mut f32, d: [f32; 4]) {
    let (g, t) = group_and_place();
    let first = out.wrapping_add(g * N + 2 * t);
    // SAFETY: rows below 16, columns below 8; every element belongs to one lane.
    unsafe {
        *first = d[0];
        *first.add(1) = d[1];
        *first.add(8 * N) = d[2];
        *first.add(8 * N + 1) = d[3];
    }
}

/// # Safety
/// A whole matrix, 4-byte aligned.
#[inline(always)]
unsafe fn load_c_f16(c: *const u16) -> [u32; 2] {
    let (g, t) = group_and_place();
    // SAFETY: rows below 16, columns below 8.
    unsafe { [pair(c, N, g, 2 * t), pair(c, N, g + 8, 2 * t)] }
}

/// # Safety
/// A whole matrix, 4-byte aligned.
#[inline(always)]
unsafe fn store_d_f16(out: *mut u16, d: [u32; 2]) {
    let (g, t) = group_and_place();
    let first = out.wrapping_add(g * N + 2 * t);
    // SAFETY: rows below 16, columns below 8; every element belongs to one lane.
    unsafe {
        *first.cast::<u32>() = d[0];
        *first.add(8 * N).cast::<u32>() = d[1];
    }
}

/// f16, f32 sum, K = 16.
///
/// # Safety
/// One warp; whole matrices, 4-byte aligned.
#[kernel]
pub unsafe fn mma_m16n8k16_f32_f16(a: *const u16, b: *const u16, c: *const f32, out: *mut f32) {
    // SAFETY: the whole warp is here; whole matrices.
    unsafe {
        let (a, b) = operands_k16(a, b);
        store_d(out, mma::m16n8k16_f32_f16(a, b, load_c(c)));
    }
}

/// bf16, f32 sum, K = 16.
///
/// # Safety
/// One warp; whole matrices, 4-byte aligned.
#[kernel]
pub unsafe fn mma_m16n8k16_f32_bf16(a: *const u16, b: *const u16, c: *const f32, out: *mut f32) {
    // SAFETY: the whole warp is here; whole matrices.
    unsafe {
        let (a, b) = operands_k16(a, b);
        store_d(out, mma::m16n8k16_f32_bf16(a, b, load_c(c)));
    }
}

/// f16, f16 sum, K = 16.
///
/// # Safety
/// One warp; whole matrices, 4-byte aligned.
#[kernel]
pub unsafe fn mma_m16n8k16_f16_f16(a: *const u16, b: *const u16, c: *const u16, out: *mut u16) {
    // SAFETY: the whole warp is here; whole matrices.
    unsafe {
        let (a, b) = operands_k16(a, b);
        store_d_f16(out, mma::m16n8k16_f16_f16(a, b, load_c_f16(c)));
    }
}

/// f16, f32 sum, K = 8.
///
/// # Safety
/// One warp; whole matrices, 4-byte aligned.
#[kernel]
pub unsafe fn mma_m16n8k8_f32_f16(a: *const u16, b: *const u16, c: *const f32, out: *mut f32) {
    // SAFETY: the whole warp is here; whole matrices.
    unsafe {
        let (a, b) = operands_k8(a, b);
        store_d(out, mma::m16n8k8_f32_f16(a, b, load_c(c)));
    }
}

/// bf16, f32 sum, K = 8.
///
/// # Safety
/// One warp; whole matrices, 4-byte aligned.
#[kernel]
pub unsafe fn mma_m16n8k8_f32_bf16(a: *const u16, b: *const u16, c: *const f32, out: *mut f32) {
    // SAFETY: the whole warp is here; whole matrices.
    unsafe {
        let (a, b) = operands_k8(a, b);
        store_d(out, mma::m16n8k8_f32_bf16(a, b, load_c(c)));
    }
}

/// f16, f16 sum, K = 8.
///
/// # Safety
/// One warp; whole matrices, 4-byte aligned.
#[kernel]
pub unsafe fn mma_m16n8k8_f16_f16(a: *const u16, b: *const u16, c: *const u16, out: *mut u16) {
    // SAFETY: the whole warp is here; whole matrices.
    unsafe {
        let (a, b) = operands_k8(a, b);
        store_d_f16(out, mma::m16n8k8_f16_f16(a, b, load_c_f16(c)));
    }
}

/// tf32, f32 sum, K = 8. Of the f32 inputs only the upper 19 bits count.
///
/// # Safety
/// One warp; whole matrices.
#[kernel]
pub unsafe fn mma_m16n8k8_f32_tf32(a: *const u32, b: *const u32, c: *const f32, out: *mut f32) {
    const K: usize = 8;
    let (g, t) = group_and_place();
    // SAFETY: the whole warp is here; rows below 16 and 8, columns below 8.
    unsafe {
        let low = a.add(g * K + t);
        let high = low.add(8 * K);
        let a = [*low, *high, *low.add(4), *high.add(4)];
        let b = b.add(g * K + t);
        store_d(out, mma::m16n8k8_f32_tf32(a, [*b, *b.add(4)], load_c(c)));
    }
}

/// tf32, f32 sum, K = 4. Of the f32 inputs only the upper 19 bits count.
///
/// # Safety
/// One warp; whole matrices.
#[kernel]
pub unsafe fn mma_m16n8k4_f32_tf32(a: *const u32, b: *const u32, c: *const f32, out: *mut f32) {
    const K: usize = 4;
    let (g, t) = group_and_place();
    // SAFETY: the whole warp is here; rows below 16 and 8, columns below 4.
    unsafe {
        let low = a.add(g * K + t);
        let a = [*low, *low.add(8 * K)];
        store_d(out, mma::m16n8k4_f32_tf32(a, *b.add(g * K + t), load_c(c)));
    }
}
