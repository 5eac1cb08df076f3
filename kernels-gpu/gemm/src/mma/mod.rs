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
//! * **Copies** (`stage`) are `cp.async` of 16 bytes where an operand's lines begin at 16-byte boundaries,
//!   with zeros outside of the matrix. Other operands, whatever their strides, go element by element to the
//!   same places: 32 bits by `cp.async` too, 16 bits by way of registers.
//! * **Orders.** An operand lies in a stage as it lies in memory: with k contiguous, or with m (n)
//!   contiguous. `ldmatrix` takes both, the second with `.trans`; 32-bit elements of the second are loaded
//!   one by one (`fragments`). Both ways are swizzled, so that copies and loads meet all banks.
//! * **Sums** are f32, in the hardware's order within 32 bytes of k and in ascending order beyond: results
//!   are bitwise repeatable and depend neither on alignment nor on orders. tf32 takes an f32 without its low
//!   13 bits.
//!
//! Limits: sides below 2^31 - 256; one block a tile along x, batches along z (a block takes every
//! `gridDim.z`-th).

mod fragments;
mod stage;

use crate::any::{Epilogue, StridedGemm, Sums, TileCoord};
use crate::element::Layout;
use crate::epilogue::{EpilogueParams, GroupInputs};
use cuda_std::{kernel, mma, shared, thread, vector, warp};
use fragments::Operand;
use layout::grouped_tile;
use primitives::pipeline::{CopyPipeline, Stages};
use primitives::unroll;
use stage::Lines;

/// Bytes of k in a stage.
const STAGE_K_BYTES: u32 = 64;
/// Bytes of k of one instruction.
const STEP_BYTES: u32 = 32;
/// Stages of the ring.
const STAGES: u32 = 4;
/// Tiles of C of a raster group: blocks walk down so many before they go to the next column of tiles.
const RASTER_GROUP: u32 = 8;
/// Floats between rows of the sums beyond their number: lanes of a quad's rows then meet all banks.
const SUMS_PAD: u32 = 8;
/// Bytes of a sum.
const F32: u32 = size_of::<f32>() as u32;

/// An element type that the tensor cores multiply.
trait Element {
    const BYTES: u32;
    /// Elements of 16 bytes.
    const UNIT: u32 = 16 / Self::BYTES;
    /// Elements of k in a stage.
    const DEPTH: u32 = STAGE_K_BYTES / Self::BYTES;

    /// # Safety
    /// The warp is here together.
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];
}

macro_rules! elements {
    ($($name:ident, $bytes:literal, $mma:ident;)*) => { $(
        struct $name;
        impl Element for $name {
            const BYTES: u32 = $bytes;
            #[inline(always)]
            unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
                // SAFETY: the caller's contract.
                unsafe { mma::$mma(a, b, c) }
            }
        }
    )* };
}

elements! {
    F16, 2, m16n8k16_f32_f16;
    Bf16, 2, m16n8k16_f32_bf16;
    Tf32, 4, m16n8k8_f32_tf32;
}

/// A block of `DOWN` x `ACROSS` warps, each `ROWS` times 16 rows and `PAIRS` times 16 columns of C.
struct Block<const DOWN: u32, const ACROSS: u32, const ROWS: usize, const PAIRS: usize>;
type Large = Block<2, 4, 4, 2>;
type Small = Block<2, 2, 2, 2>;

/// Sums of a warp's 16 x 16 tile: two instructions side by side.
type Pair = [[f32; 4]; 2];

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

impl<const DOWN: u32, const ACROSS: u32, const ROWS: usize, const PAIRS: usize>
    Block<DOWN, ACROSS, ROWS, PAIRS>
{
    const THREADS: u32 = DOWN * ACROSS * 32;
    const HEIGHT: u32 = DOWN * Self::WARP_ROWS;
    const WIDTH: u32 = ACROSS * Self::WARP_COLUMNS;
    const WARP_ROWS: u32 = 16 * ROWS as u32;
    const WARP_COLUMNS: u32 = 16 * PAIRS as u32;
    /// 16 warps share a multiprocessor: 128 registers a thread.
    const RESIDENT: u32 = 512 / Self::THREADS;
    const A_BYTES: u32 = Self::HEIGHT * STAGE_K_BYTES;
    const STAGE_BYTES: u32 = Self::A_BYTES + Self::WIDTH * STAGE_K_BYTES;
    const PITCH: u32 = Self::WIDTH + SUMS_PAD;
    const SHARED_BYTES: u32 = {
        let (stages, sums) = (STAGES * Self::STAGE_BYTES, Self::HEIGHT * Self::PITCH * F32);
        if stages > sums { stages } else { sums }
    };

    /// Takes the way that fits the operands' orders.
    ///
    /// # Safety
    /// As the kernels.
    #[inline(always)]
    unsafe fn run<E: Element>(gemm: &StridedGemm, operands: [*const u8; 2], epilogue: Epilogue<'_>) {
        let StridedGemm { a, b, .. } = *gemm;
        // SAFETY: the caller's contract; all threads take the same way.
        unsafe {
            match (runs_across(a.row, a.column), runs_across(b.column, b.row)) {
                (false, false) => Self::products::<E, false, false>(gemm, operands, epilogue),
                (false, true) => Self::products::<E, false, true>(gemm, operands, epilogue),
                (true, false) => Self::products::<E, true, false>(gemm, operands, epilogue),
                (true, true) => Self::products::<E, true, true>(gemm, operands, epilogue),
            }
        }
    }

    /// The block's tile of every product of the batch that falls to it.
    ///
    /// # Safety
    /// As the kernels; `A_ACROSS`, `B_ACROSS` say which operands are staged with k in rows.
    #[inline(always)]
    unsafe fn products<E: Element, const A_ACROSS: bool, const B_ACROSS: bool>(
        gemm: &StridedGemm,
        [a, b]: [*const u8; 2],
        epilogue: Epilogue<'_>,
    ) {
        let StridedGemm { m, n, k, batch, a: a_layout, b: b_layout, .. } = *gemm;
        let (rows, columns) = (m.div_ceil(Self::HEIGHT), n.div_ceil(Self::WIDTH));
        let (row, column) = grouped_tile(thread::block_idx_x(), rows, columns, RASTER_GROUP);
        let (row, column) = (row * Self::HEIGHT, column * Self::WIDTH);
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        let mut index = thread::block_idx_z();
        while index < batch {
            let Layout { row: a_row, column: a_column, batch: a_batch, .. } = a_layout;
            let Layout { row: b_row, column: b_column, batch: b_batch, .. } = b_layout;
            let feed = Feed::<E> {
                a: Lines::new::<E, A_ACROSS>(a, a_batch, index, [a_row, a_column], row, m, k),
                b: Lines::new::<E, B_ACROSS>(b, b_batch, index, [b_column, b_row], column, n, k),
                element: core::marker::PhantomData,
            };
            // SAFETY: the caller's contract; a barrier parts the last reads of the stages from the writes of
            // the sums, and another the reads of the sums from the next copies.
            unsafe {
                let sums = Self::multiply::<E, A_ACROSS, B_ACROSS>(&feed, base, k);
                thread::sync_threads();
                Self::stage_sums(base, &sums);
                thread::sync_threads();
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

    /// The ring: copies of the pieces to come, products of the one that is there.
    ///
    /// # Safety
    /// The block calls it together; no thread uses the stages at `base`.
    #[inline(always)]
    unsafe fn multiply<E: Element, const A_ACROSS: bool, const B_ACROSS: bool>(
        feed: &Feed<E>,
        base: u32,
        k: u32,
    ) -> [[Pair; PAIRS]; ROWS] {
        let (warp, pieces) = (thread::thread_idx_x() / 32, k.div_ceil(E::DEPTH));
        let a = Operand::<E, A_ACROSS>::left(base, warp / ACROSS * Self::WARP_ROWS, Self::HEIGHT);
        let b = base + Self::A_BYTES;
        let b = Operand::<E, B_ACROSS>::right(b, warp % ACROSS * Self::WARP_COLUMNS, Self::WIDTH);
        // SAFETY: floats of zero bits are 0; the caller's contract; a stage is read after the wait for
        // its copies, and written again after the next wait.
        unsafe {
            let mut sums: [[Pair; PAIRS]; ROWS] = core::mem::zeroed();
            let mut pipeline: CopyPipeline<Stages<STAGES>> = CopyPipeline::new(Stages, Self::STAGE_BYTES);
            let mut next = 0;
            while next < pipeline.prologue() {
                Self::copy::<E, A_ACROSS, B_ACROSS>(feed, base + pipeline.stage_to_load(), next, pieces);
                pipeline.commit();
                next += 1;
            }
            let mut piece = 0;
            while piece < pieces {
                let here = pipeline.wait();
                let next = piece + pipeline.prologue();
                Self::copy::<E, A_ACROSS, B_ACROSS>(feed, base + pipeline.stage_to_load(), next, pieces);
                pipeline.commit();
                unroll!(STEP in 0..2, {
                    let mut left = [[0; 4]; ROWS];
                    unroll!(I in 0..4, {
                        if I < ROWS { left[I] = a.left_tile(here, STEP, I as u32); }
                    });
                    unroll!(J in 0..2, {
                        if J < PAIRS {
                            let right = b.right_pair(here, STEP, J as u32);
                            unroll!(I in 0..4, {
                                if I < ROWS {
                                    let pair = &mut sums[I][J];
                                    pair[0] = E::mma(left[I], [right[0], right[1]], pair[0]);
                                    pair[1] = E::mma(left[I], [right[2], right[3]], pair[1]);
                                }
                            });
                        }
                    });
                });
                pipeline.release();
                piece += 1;
            }
            sums
        }
    }

    /// Starts the copies of a piece, if there is one.
    ///
    /// # Safety
    /// The block calls it together; no thread uses the stage.
    #[inline(always)]
    unsafe fn copy<E: Element, const A_ACROSS: bool, const B_ACROSS: bool>(
        feed: &Feed<E>,
        stage: u32,
        piece: u32,
        pieces: u32,
    ) {
        if piece < pieces {
            // SAFETY: the caller's contract; both parts of the stage have room.
            unsafe {
                feed.a.copy::<E, A_ACROSS>(stage, Self::HEIGHT, piece * E::DEPTH, Self::THREADS);
                let stage = stage + Self::A_BYTES;
                feed.b.copy::<E, B_ACROSS>(stage, Self::WIDTH, piece * E::DEPTH, Self::THREADS);
            }
        }
    }

    /// Writes this thread's sums to shared memory, rows of `PITCH` floats.
    ///
    /// # Safety
    /// Nobody else uses the memory.
    #[inline(always)]
    unsafe fn stage_sums(to: u32, sums: &[[Pair; PAIRS]; ROWS]) {
        let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / 32);
        let row = warp / ACROSS * Self::WARP_ROWS + lane / 4;
        let column = warp % ACROSS * Self::WARP_COLUMNS + lane % 4 * 2;
        let first = to + (row * Self::PITCH + column) * F32;
        unroll!(I in 0..4, {
            if I < ROWS {
                unroll!(J in 0..4, {
                    if J < 2 * PAIRS {
                        let four = sums[I][J / 2][J % 2];
                        let at = first + (I as u32 * 16 * Self::PITCH + J as u32 * 8) * F32;
                        // SAFETY: inside of the block's rows and columns.
                        unsafe {
                            vector::store_shared_v2(at, [four[0], four[1]]);
                            vector::store_shared_v2(at + 8 * Self::PITCH * F32, [four[2], four[3]]);
                        }
                    }
                });
            }
        });
    }
}

/// Where a block's pieces come from.
struct Feed<E> {
    a: Lines,
    b: Lines,
    element: core::marker::PhantomData<E>,
}

const _: () = {
    assert!(STAGE_K_BYTES == 2 * STEP_BYTES, "multiply() takes two steps");
    assert!(Large::THREADS * 16 * 2 == Large::HEIGHT * STAGE_K_BYTES, "a thread copies two units of A");
    assert!(Small::THREADS * 16 * 2 == Small::HEIGHT * STAGE_K_BYTES, "a thread copies two units of A");
};
