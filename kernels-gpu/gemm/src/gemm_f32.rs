//! `C = epilogue(A B)` in f32 without tensor cores, for A, B and C by rows or by columns, of any size.
//!
//! | kernel | a block | for |
//! |---|---|---|
//! | [`gemm_f32`](fn@gemm_f32) | 64 x 128 of `C`, 2 warps beside each other | many tiles |
//! | [`gemm_f32_small`](fn@gemm_f32_small) | 64 x 32 of `C`, 4 warps share a tile's k | few tiles, thin ones |
//!
//! ```text
//!             B tile  DEPTH x COLUMNS         gemm_f32: warps beside each other, 64 x 64 of C each
//!            +-----------+-----------+        a warp:   8 x 4 lanes (interleaved), each 8 x 16
//!            |           |           |        small:    64 x 32 of C; each warp takes a quarter of DEPTH,
//!   A tile   |           |           |                  8 x 8 a lane; they add up in shared memory
//!   64 x     |  warp 0   |  warp 1   |        a lane:   rows in groups of 4, 32 apart,
//!   DEPTH    |           |           |                  columns in groups of 4, 16 apart
//!            +-----------+-----------+
//!
//!   copies    | tile 0 | tile 1 | tile 2 |  tile 3      |  tile 4 ..      cp.async into three stages
//!   compute                     |S  tile 0     |S  tile 1     |S ..       S: wait for copies, one barrier
//! ```
//! The barrier that publishes a tile also tells that all threads have left the stage before, so the next
//! copies start there at once and have two tiles' arithmetic to arrive. For each of the columns of the tile a
//! thread reads its values of `A` and `B` by 16-byte loads without bank conflicts, one column ahead. Four
//! blocks share a multiprocessor, so that one's barrier is filled with the others' arithmetic.
//!
//! Operands are turned on their way to shared memory where they have to be, so no order is copied first.
//! Parts of k may go to different blocks, which [`crate::sm90::split_k`] adds. An element of `C` is a chain
//! of fused multiply-adds for each warp along k and each part, and these are added in order: results are
//! bitwise repeatable, and do not depend on orders and alignment.
//!
//! Limits: [`Tile::blocks`]`(m, n) < 2^31`, sides below 2^31 - 256, `C` overlaps neither `A` nor `B`; one
//! block a tile along x, and a product of the batch along z.

use crate::any::StridedGemm;
use crate::block::{Block, Product};
use crate::epilogue::EpilogueParams;
use cuda_std::{kernel, shared, shared_array};
use layout::UNIT_BYTES;

/// The block of [`gemm_f32`](fn@gemm_f32).
pub(crate) type Large = Block<4, 2, 1, 16, 3>;
/// The block of [`gemm_f32_small`](fn@gemm_f32_small).
pub(crate) type Small = Block<2, 1, 4, 32, 3>;

/// Blocks that fit a multiprocessor at once, so that some compute while others wait: bounds the registers.
pub const RESIDENT: u32 = 4;

/// Which kernel computes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// [`gemm_f32`](fn@gemm_f32).
    Large,
    /// [`gemm_f32_small`](fn@gemm_f32_small).
    Small,
}

impl Tile {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Large, Self::Small];

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

macro_rules! kernels {
    ($($name:ident: $block:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See [`crate::epilogue`], and the module. With `part` the batch is the parts of one product, whose
        /// A and B lie as many of `k` apart; the last one may be shorter.
        ///
        /// # Safety
        /// As for [`gemm_any`](fn@crate::any::gemm_any), with A and B of f32 by rows or by columns, but
        /// [`Tile::blocks`] blocks along x and one for each product along z, of [`Tile::threads`] threads.
        /// Sides are below 2^31 - 256; of parts none is empty.
        #[kernel(launch_bounds($block::THREADS, RESIDENT))]
        pub unsafe fn $name(
            gemm: StridedGemm,
            epilogue: EpilogueParams,
            a: *const u8,
            b: *const u8,
            c: *mut u8,
            part: u32,
        ) {
            let (a, b) = (a.cast(), b.cast());
            let product = Product { gemm: &gemm, epilogue: &epilogue, a, b, c, part };
            let stages = shared::address_of(shared_array![Unit; $block::SHARED_UNITS]);
            // SAFETY: the caller's contract.
            unsafe { $block::run(product, stages) }
        }
    )* };
}

kernels! {
    gemm_f32: Large, "64 x 128 of C a block.";
    gemm_f32_small: Small, "64 x 32 of C a block.";
}
