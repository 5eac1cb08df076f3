//! `C = alpha A B + beta C` in f32, for row-major `A: [m, k]`, `B: [k, n]`, `C: [m, n]` of any size, without
//! tensor cores.
//!
//! | kernel | a block | for |
//! |---|---|---|
//! | [`gemm_f32`](fn@gemm_f32) | 64 x 128 of `C`, 8 x 8 a thread | results that fill the device |
//! | [`gemm_f32_small`](fn@gemm_f32_small) | 64 x 32 of `C`, 4 x 4 a thread | smaller ones: four times the blocks ([`Tile::choose`]) |
//!
//! ```text
//!             B tile  DEPTH x COLUMNS                   gemm_f32: 4 warps beside each other, each 64 x 32 of C
//!            +-----+-----+-----+-----+                  a warp:   8 x 4 lanes (interleaved), each 8 x 8 of C
//!   A tile   |     |     |     |     |                  a lane:   rows in groups of 4, 32 apart,
//!   ROWS x   |  0  |  1  |  2  |  3  |                            columns in groups of 4, 16 apart
//!   DEPTH    |     |     |     |     |
//!            +-----+-----+-----+-----+
//!
//!   copies    | tile 0 | tile 1 | tile 2 |  tile 3      |  tile 4 ..      cp.async into three stages
//!   compute                     |S  tile 0     |S  tile 1     |S ..       S: wait for the oldest copies, one barrier
//! ```
//! The barrier that publishes a tile also tells that all threads have left the stage before, so the next
//! copies start there at once and have two tiles' arithmetic to arrive. For each of the columns of the tile a
//! thread reads its values of `A` and `B` by 16-byte loads without bank conflicts, one column ahead. Four
//! blocks of 128 threads share a multiprocessor, so that one's barrier is filled with the others' arithmetic;
//! 8 x 16 accumulators a thread, for a quarter less shared memory traffic but half as many warps, gain 4 % at
//! 2048 and nothing at 8192, and lose 40 % at 1024.
//!
//! Each element of `C` is one chain of fused multiply-adds over k in ascending order, whatever the shape and
//! the kernel: results are bitwise repeatable, and do not depend on alignment.
//!
//! With `beta` 0, `C` is not read. `k` may be 0.
//!
//! Limits: [`Tile::blocks`]`(m, n) < 2^31`, sides at most [`MAX_SIDE`], `C` overlaps neither `A` nor `B`.

use crate::block::{Block, DenseShape, Epilogue, Shape};
use cuda_std::{kernel, shared, shared_array};
use layout::UNIT_BYTES;

/// The block of [`gemm_f32`](fn@gemm_f32).
pub(crate) type Large = Block<2, 2, 1, 4, 16, 3>;
/// The block of [`gemm_f32_small`](fn@gemm_f32_small).
pub(crate) type Small = Block<1, 1, 2, 2, 32, 3>;

/// Largest `m`, `n` or `k`: leaves room to round up to whole tiles in 32 bits.
pub const MAX_SIDE: u32 = u32::MAX - 256;
/// Blocks that fit a multiprocessor at once, so that some compute while others wait; bounds the registers at
/// 128.
const MIN_BLOCKS: u32 = 4;

/// Which kernel computes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// [`gemm_f32`](fn@gemm_f32).
    Large,
    /// [`gemm_f32_small`](fn@gemm_f32_small).
    Small,
}

impl Tile {
    /// The faster one for an `m x n` result on a device of so many multiprocessors: the large tile is faster
    /// from about half of them occupied.
    pub const fn choose(m: u32, n: u32, multiprocessors: u32) -> Self {
        if Self::Large.blocks(m, n) * 2 < multiprocessors as u64 { Self::Small } else { Self::Large }
    }

    /// Blocks for an `m x n` result.
    pub const fn blocks(self, m: u32, n: u32) -> u64 {
        match self {
            Self::Large => Large::count(m, n),
            Self::Small => Small::count(m, n),
        }
    }

    /// Rows and columns of C of a block, and columns of A that it loads at a time.
    pub const fn shape(self) -> [u32; 3] {
        match self {
            Self::Large => [Large::ROWS, Large::COLUMNS, Large::DEPTH],
            Self::Small => [Small::ROWS, Small::COLUMNS, Small::DEPTH],
        }
    }

    /// Tiles of A and B in shared memory at a time.
    pub const fn stages(self) -> u32 {
        match self {
            Self::Large => Large::STAGES,
            Self::Small => Small::STAGES,
        }
    }

    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        match self {
            Self::Large => Large::THREADS,
            Self::Small => Small::THREADS,
        }
    }
}

/// A 16-byte unit of shared memory.
#[repr(C, align(16))]
struct Unit([u8; UNIT_BYTES as usize]);

/// `C = alpha A B + beta C`, by [`Tile::Large`].
///
/// # Safety
/// `a` holds `m * k` elements, `b` `k * n`, and `c` is valid for reads and writes of `m * n` and overlaps
/// neither. Sides at most [`MAX_SIDE`]; [`Tile::blocks`] blocks of [`Tile::threads`] threads.
#[kernel(launch_bounds(Large::THREADS, MIN_BLOCKS))]
pub unsafe fn gemm_f32(m: u32, n: u32, k: u32, alpha: f32, a: &[f32], b: &[f32], beta: f32, c: *mut f32) {
    let problem = DenseShape { m, n, k, a: a.as_ptr(), b: b.as_ptr() };
    let stages = shared::address_of(shared_array![Unit; Large::SHARED_UNITS]);
    // SAFETY: the caller's contract.
    unsafe { Large::run(problem, Epilogue { alpha, beta, c }, stages) }
}

/// `C = alpha A B + beta C`, by [`Tile::Small`].
///
/// # Safety
/// As [`gemm_f32`](fn@gemm_f32).
#[kernel(launch_bounds(Small::THREADS, MIN_BLOCKS))]
pub unsafe fn gemm_f32_small(
    m: u32,
    n: u32,
    k: u32,
    alpha: f32,
    a: &[f32],
    b: &[f32],
    beta: f32,
    c: *mut f32,
) {
    let problem = DenseShape { m, n, k, a: a.as_ptr(), b: b.as_ptr() };
    let stages = shared::address_of(shared_array![Unit; Small::SHARED_UNITS]);
    // SAFETY: the caller's contract.
    unsafe { Small::run(problem, Epilogue { alpha, beta, c }, stages) }
}

#[cfg(test)]
mod tests {
    use super::Tile;

    #[test]
    fn small_results_get_small_tiles() {
        for side in [1, 64, 512, 600] {
            assert_eq!(Tile::choose(side, side, 132), Tile::Small, "{side}");
        }
        for side in [1024, 2048, 4097] {
            assert_eq!(Tile::choose(side, side, 132), Tile::Large, "{side}");
        }
    }
}
