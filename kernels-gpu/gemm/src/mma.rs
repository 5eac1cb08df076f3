//! `C = epilogue(A B)` on the tensor cores of sm_80 and later, by `mma.sync`: f16, bf16, and f32 read as
//! tf32, for any strides, sizes and alignments.
//!
//! | kernel | A and B | a block |
//! |---|---|---|
//! | `gemm_mma_f16`, `gemm_mma_bf16`, `gemm_mma_tf32` | f16, bf16, f32 | 128 x 128 of `C`: 2 x 4 warps, each 64 x 32 |
//! | the same with `_small` | | 64 x 64 of `C`: 2 x 2 warps, each 32 x 32 |
//!
//! ```text
//!   stage 0 | copy c   |          | multiply c |            |          c counts pieces of 64 bytes of k
//!   stage 1 |          | copy c+1 |            | multiply c+1
//!   stage 2 |          |          | copy c+2   |            |          a barrier before each multiplication
//!   after the last one: sums -> shared memory, where the stages were -> epilogue -> C
//! ```
//! * **Copies** ([`stage`](primitives::mma::stage)) are `cp.async` of 16 bytes where an operand's lines begin
//!   at 16-byte boundaries, with zeros outside of the matrix. Other operands, whatever their strides, go
//!   element by element to the same places: 32 bits by `cp.async` too, 16 bits by way of registers.
//! * **Orders.** An operand lies in a stage as it lies in memory: with k contiguous, or with m (n)
//!   contiguous. `ldmatrix` takes both, the second with `.trans`; 32-bit elements of the second are loaded
//!   one by one. Both ways are swizzled, so that copies and loads meet all banks.
//! * **Sums** are f32, in the hardware's order within 32 bytes of k and in ascending order beyond: results
//!   are bitwise repeatable and depend neither on alignment nor on orders. tf32 takes an f32 without its low
//!   13 bits.
//!
//! Limits: sides below 2^31 - 256; one block a tile along x, batches along z (a block takes every
//! `gridDim.z`-th).

use crate::any::{Epilogue, StridedGemm, Sums, TileCoord};
use crate::element::Layout;
use crate::epilogue::{EpilogueParams, GroupInputs};
use cuda_std::{grid, kernel, shared, thread};
use layout::grouped_tile;
use primitives::mma::stage::Lines;
use primitives::mma::{Bf16, Block, Element, F16, STAGE_K_BYTES, STAGES, Tf32};

/// Tiles of C of a raster group: blocks walk down so many before they go to the next column of tiles.
const RASTER_GROUP: u32 = 8;

type Large = Block<2, 4, 4, 2>;
type Small = Block<2, 2, 2, 2>;

/// Which block computes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tile {
    /// 128 x 128.
    Large,
    /// 64 x 64.
    Small,
}

impl Tile {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Large, Self::Small];

    /// Rows and columns of C of a block.
    pub const fn sides(self) -> [u32; 2] {
        match self {
            Self::Large => [Large::HEIGHT, Large::WIDTH],
            Self::Small => [Small::HEIGHT, Small::WIDTH],
        }
    }

    /// Columns of A in a stage, for elements of so many bytes.
    pub const fn depth(self, element_bytes: u32) -> u32 {
        STAGE_K_BYTES / element_bytes
    }

    /// Stages of the ring.
    pub const fn stages(self) -> u32 {
        STAGES
    }

    /// Blocks along x for an `m x n` product.
    pub const fn blocks(self, m: u32, n: u32) -> u64 {
        let [height, width] = self.sides();
        m.div_ceil(height) as u64 * n.div_ceil(width) as u64
    }

    /// Threads of a block.
    pub const fn threads(self) -> u32 {
        match self {
            Self::Large => Large::THREADS,
            Self::Small => Small::THREADS,
        }
    }

    /// Blocks that share a multiprocessor, as far as registers go.
    pub const fn resident(self) -> u32 {
        match self {
            Self::Large => Large::RESIDENT,
            Self::Small => Small::RESIDENT,
        }
    }

    /// Dynamic shared memory of a block, bytes.
    pub const fn shared_bytes(self) -> u32 {
        match self {
            Self::Large => Large::SHARED_BYTES,
            Self::Small => Small::SHARED_BYTES,
        }
    }
}

macro_rules! kernels {
    ($($name:ident: $block:ident, $element:ident, $doc:literal;)*) => { $(
        #[doc = $doc]
        /// See [`crate::epilogue`], and the module. The types of A and B that their layouts name are not
        /// looked at.
        ///
        /// # Safety
        /// As for [`gemm_any`](fn@crate::any::gemm_any), but [`Tile::blocks`] blocks along x, of
        /// [`Tile::threads`] threads with [`Tile::shared_bytes`] of dynamic shared memory.
        #[kernel(launch_bounds($block::THREADS, $block::RESIDENT))]
        pub unsafe fn $name(
            gemm: StridedGemm,
            epilogue: EpilogueParams,
            a: *const u8,
            b: *const u8,
            c: *mut u8,
        ) {
            // Earlier grids may still write what this one reads, or read C.
            grid::wait_dependencies();
            grid::launch_dependents();
            // SAFETY: the caller's contract.
            unsafe {
                let epilogue = Epilogue::new(&gemm, c, &epilogue, GroupInputs::first(&epilogue));
                $block::run::<$element>(&gemm, [a, b], epilogue);
            }
        }
    )* };
}

kernels! {
    gemm_mma_f16: Large, F16, "f16, 128 x 128 a block.";
    gemm_mma_bf16: Large, Bf16, "bf16, 128 x 128 a block.";
    gemm_mma_tf32: Large, Tf32, "f32 as tf32, 128 x 128 a block.";
    gemm_mma_f16_small: Small, F16, "f16, 64 x 64 a block.";
    gemm_mma_bf16_small: Small, Bf16, "bf16, 64 x 64 a block.";
    gemm_mma_tf32_small: Small, Tf32, "f32 as tf32, 64 x 64 a block.";
}

/// Is the element in the next row (of A; column, of B) the next one in memory, and that in the next column
/// not? Such operands are staged that way round.
#[inline(always)]
const fn runs_across(across: u64, along_k: u64) -> bool {
    across == 1 && along_k != 1
}

/// The tiles of a product that a block computes.
trait Tiles {
    /// Takes the way that fits the operands' orders.
    ///
    /// # Safety
    /// As the kernels.
    unsafe fn run<E: Element>(gemm: &StridedGemm, operands: [*const u8; 2], epilogue: Epilogue<'_>);

    /// The block's tile of every product of the batch that falls to it.
    ///
    /// # Safety
    /// As the kernels; `A_ACROSS`, `B_ACROSS` say which operands are staged with k in rows.
    unsafe fn product_tiles<E: Element, const A_ACROSS: bool, const B_ACROSS: bool>(
        gemm: &StridedGemm,
        operands: [*const u8; 2],
        epilogue: Epilogue<'_>,
    );
}

impl<const DOWN: u32, const ACROSS: u32, const ROWS: usize, const PAIRS: usize> Tiles
    for Block<DOWN, ACROSS, ROWS, PAIRS>
{
    #[inline(always)]
    unsafe fn run<E: Element>(gemm: &StridedGemm, operands: [*const u8; 2], epilogue: Epilogue<'_>) {
        let StridedGemm { a, b, .. } = *gemm;
        // SAFETY: the caller's contract; all threads take the same way.
        unsafe {
            match (runs_across(a.row, a.column), runs_across(b.column, b.row)) {
                (false, false) => Self::product_tiles::<E, false, false>(gemm, operands, epilogue),
                (false, true) => Self::product_tiles::<E, false, true>(gemm, operands, epilogue),
                (true, false) => Self::product_tiles::<E, true, false>(gemm, operands, epilogue),
                (true, true) => Self::product_tiles::<E, true, true>(gemm, operands, epilogue),
            }
        }
    }

    #[inline(always)]
    unsafe fn product_tiles<E: Element, const A_ACROSS: bool, const B_ACROSS: bool>(
        gemm: &StridedGemm,
        [a, b]: [*const u8; 2],
        epilogue: Epilogue<'_>,
    ) {
        const {
            // Each thread copies as many units as the others.
            assert!((Self::HEIGHT * STAGE_K_BYTES).is_multiple_of(Self::THREADS * 16));
            assert!((Self::WIDTH * STAGE_K_BYTES).is_multiple_of(Self::THREADS * 16));
        }
        let StridedGemm { m, n, k, batch, a: a_layout, b: b_layout, .. } = *gemm;
        let (rows, columns) = (m.div_ceil(Self::HEIGHT), n.div_ceil(Self::WIDTH));
        let (row, column) = grouped_tile(thread::block_idx_x(), rows, columns, RASTER_GROUP);
        let (row, column) = (row * Self::HEIGHT, column * Self::WIDTH);
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let mut index = thread::block_idx_z();
        while index < batch {
            let Layout { row: a_row, column: a_column, batch: a_batch, .. } = a_layout;
            let Layout { row: b_row, column: b_column, batch: b_batch, .. } = b_layout;
            let a = Lines::new::<E, A_ACROSS>(a, a_batch, index, [a_row, a_column], row, m, k);
            let b = Lines::new::<E, B_ACROSS>(b, b_batch, index, [b_column, b_row], column, n, k);
            // SAFETY: the caller's contract; both parts of a stage have room; a barrier parts the reads of
            // the sums from the next copies.
            unsafe {
                Self::products::<E, A_ACROSS, B_ACROSS>(base, k.div_ceil(E::DEPTH), |stage, piece| {
                    a.copy::<E, A_ACROSS>(stage, Self::HEIGHT, piece * E::DEPTH, Self::THREADS);
                    let stage = stage + Self::A_BYTES;
                    b.copy::<E, B_ACROSS>(stage, Self::WIDTH, piece * E::DEPTH, Self::THREADS);
                });
                let staged = Sums {
                    address: base,
                    rows: Self::HEIGHT,
                    columns: Self::WIDTH,
                    pitch: Self::PITCH,
                    threads: Self::THREADS,
                };
                epilogue.store(staged, TileCoord { batch: index, row, column });
                thread::sync_threads();
            }
            index += thread::grid_dim_z();
        }
    }
}
