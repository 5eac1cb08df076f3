//! `ldmatrix` and `stmatrix`, alone and together with `mma`.

use cuda_std::{kernel, matrix, mma, shared, shared_array, thread, vector, warp};

/// Lanes of the only warp.
pub const LANES: usize = 32;
/// 16-byte rows of four 8x8 matrices.
pub const ROWS: usize = 32;
/// Bytes of a row.
const ROW_BYTES: u32 = 16;
/// Words that [`matrix_load()`] writes: one, two and four matrices, as stored and transposed.
pub const LOAD_WORDS: usize = 2 * (1 + 2 + 4) * LANES;

/// The address of a lane's row. The rows of each matrix are stored in the opposite order, so an instruction
/// that ignored the addresses would give wrong results.
#[inline(always)]
fn row_address(tile: u32, lane: u32) -> u32 {
    tile + ROW_BYTES * (ROWS as u32 - 1 - lane)
}

/// Stores one row of 8 elements per lane, loads 1, 2 and 4 matrices, then the same transposed. Register `m`
/// of a load is a row of 32 words of `out`.
///
/// # Safety
/// One warp; `x` is 32 rows of 8 16-bit elements, 16-byte aligned; `out` holds [`LOAD_WORDS`].
#[kernel]
pub unsafe fn matrix_load(x: &[u16], out: *mut u32) {
    let tile = shared::address_of(shared_array![[u16; 8]; ROWS]);
    let lane = warp::lane_id();
    let row = row_address(tile, lane);
    // SAFETY: 32 rows of 16 bytes; a barrier separates the writes from the reads; the whole warp is here.
    unsafe {
        let mine: [u32; 4] = vector::load_nc_v4(x.as_ptr().add(8 * lane as usize).cast());
        vector::store_shared_v4(row, mine);
        thread::sync_threads();
        let out = out.add(lane as usize);
        let put = |at: usize, word: u32| out.add(at * LANES).write(word);
        put(0, matrix::ldmatrix_x1(row));
        let two = matrix::ldmatrix_x2(row);
        put(1, two[0]);
        put(2, two[1]);
        let four = matrix::ldmatrix_x4(row);
        put(3, four[0]);
        put(4, four[1]);
        put(5, four[2]);
        put(6, four[3]);
        put(7, matrix::ldmatrix_x1_trans(row));
        let two = matrix::ldmatrix_x2_trans(row);
        put(8, two[0]);
        put(9, two[1]);
        let four = matrix::ldmatrix_x4_trans(row);
        put(10, four[0]);
        put(11, four[1]);
        put(12, four[2]);
        put(13, four[3]);
    }
}

/// Words of the tile that a [`matrix_store()`] writes.
pub const STORE_WORDS: usize = ROWS * 4;

/// Fills the tile with ones, stores `count` (1, 2 or 4) matrices from registers, and writes the tile out.
///
/// # Safety
/// One warp; `x` is 4 words per lane (register `m` of lane `l` at `32 m + l`); `out` holds [`STORE_WORDS`],
/// 16-byte aligned; `count` is 1, 2 or 4.
#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
#[kernel]
pub unsafe fn matrix_store(x: &[u32], count: u32, transposed: u32, out: *mut u32) {
    let tile = shared::address_of(shared_array![[u16; 8]; ROWS]);
    let lane = warp::lane_id();
    let row = row_address(tile, lane);
    // SAFETY: 32 rows of 16 bytes; barriers separate the accesses; `count` and `transposed` are the same for
    // the whole warp.
    unsafe {
        let x = x.as_ptr().add(lane as usize);
        let r = [*x, *x.add(LANES), *x.add(2 * LANES), *x.add(3 * LANES)];
        vector::store_shared_v4(row, [u32::MAX; 4]);
        thread::sync_threads();
        match (count, transposed != 0) {
            (1, false) => matrix::stmatrix_x1(row, r[0]),
            (1, true) => matrix::stmatrix_x1_trans(row, r[0]),
            (2, false) => matrix::stmatrix_x2(row, [r[0], r[1]]),
            (2, true) => matrix::stmatrix_x2_trans(row, [r[0], r[1]]),
            (_, false) => matrix::stmatrix_x4(row, r),
            (_, true) => matrix::stmatrix_x4_trans(row, r),
        }
        thread::sync_threads();
        let mine: [u32; 4] = vector::load_shared_v4(row);
        vector::store_v4(out.add(4 * lane as usize), mine);
    }
}

/// Side of the tiles of [`matrix_multiply()`].
pub const SIDE: usize = 16;

/// `D = A B` for 16x16 tiles of f16, all row-major, with an f32 result. This is the usual path of a GEMM's
/// inner loop: `ldmatrix` loads A, and `ldmatrix` with `trans` loads B, which `mma` needs column-major.
///
/// # Safety
/// One warp; `a`, `b` (both 16-byte aligned) and `out` are whole tiles.
#[kernel]
pub unsafe fn matrix_multiply(a: *const u16, b: *const u16, out: *mut f32) {
    const TILE_ROW_BYTES: u32 = 2 * SIDE as u32;
    let a_tile = shared::address_of(shared_array![[u16; SIDE]; SIDE]);
    let b_tile = shared::address_of(shared_array![[u16; SIDE]; SIDE]);
    let lane = warp::lane_id();
    // Each lane copies half a row of each tile.
    let (half_row, offset) = (8 * lane as usize, ROW_BYTES * lane);
    // Four 8x8 matrices: lanes 0..16 give the row addresses of the left two, 16..32 those of the right two.
    let corner = lane % 16 * TILE_ROW_BYTES + lane / 16 * ROW_BYTES;
    let (g, t) = (lane as usize / 4, lane as usize % 4);
    // SAFETY: whole tiles; a barrier separates the writes from the reads; the whole warp is here.
    unsafe {
        let piece: [u32; 4] = vector::load_nc_v4(a.add(half_row).cast());
        vector::store_shared_v4(a_tile + offset, piece);
        let piece: [u32; 4] = vector::load_nc_v4(b.add(half_row).cast());
        vector::store_shared_v4(b_tile + offset, piece);
        thread::sync_threads();
        let a = matrix::ldmatrix_x4(a_tile + corner);
        // Registers 0 and 1 are k = 0..8 and 8..16 of the left 8 columns, 2 and 3 those of the right ones.
        let b = matrix::ldmatrix_x4_trans(b_tile + corner);
        let left = mma::m16n8k16_f32_f16(a, [b[0], b[1]], [0.0; 4]);
        let right = mma::m16n8k16_f32_f16(a, [b[2], b[3]], [0.0; 4]);
        let first = out.add(g * SIDE + 2 * t);
        vector::store_v2(first, [left[0], left[1]]);
        vector::store_v2(first.add(8 * SIDE), [left[2], left[3]]);
        vector::store_v2(first.add(8), [right[0], right[1]]);
        vector::store_v2(first.add(8 * SIDE + 8), [right[2], right[3]]);
    }
}
