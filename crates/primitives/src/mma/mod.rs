//! Tiles of a product on the tensor cores of sm_80 and later, by `mma.sync`: what every kernel does that
//! brings its operands to shared memory by `cp.async`.
//!
//! ```text
//!   stage 0 | copy c   |          | multiply c |            |          c counts pieces of 64 bytes of k
//!   stage 1 |          | copy c+1 |            | multiply c+1
//!   stage 2 |          |          | copy c+2   |            |          a barrier before each multiplication
//!   after the last one: sums -> shared memory, where the stages were
//! ```
//! A family brings the copies: units of 16 bytes that go to [`stage::place_along`] or
//! [`stage::place_across`] of a stage. An operand lies in a stage with k contiguous (*along*), or with m (n)
//! contiguous (*across*); `ldmatrix` takes both, the second with `.trans`. 32-bit elements of the second are
//! loaded one by one. Both ways are swizzled, so that copies and loads meet all banks.
//!
//! Sums are f32, in the hardware's order within 32 bytes of k and in ascending order beyond.

mod fragments;
pub mod stage;

use crate::pipeline::{CopyPipeline, Stages};
use crate::unroll;
use cuda_std::{mma, thread, vector, warp};
use fragments::Operand;

/// Bytes of k in a stage.
pub const STAGE_K_BYTES: u32 = 64;
/// Bytes of k of one instruction.
const STEP_BYTES: u32 = 32;
/// Stages of the ring.
pub const STAGES: u32 = 4;
/// Floats between rows of the sums beyond their number: lanes of a quad's rows then meet all banks.
const SUMS_PAD: u32 = 8;
/// Bytes of a sum.
const F32: u32 = size_of::<f32>() as u32;

/// An element type that the tensor cores multiply.
pub trait Element {
    /// Bytes of an element.
    const BYTES: u32;
    /// Elements of 16 bytes.
    const UNIT: u32 = 16 / Self::BYTES;
    /// Elements of k in a stage.
    const DEPTH: u32 = STAGE_K_BYTES / Self::BYTES;

    /// A fragment of A by one of B, added to `c`.
    ///
    /// # Safety
    /// The warp is here together.
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];
}

macro_rules! elements {
    ($($doc:literal $name:ident, $bytes:literal, $mma:ident;)*) => { $(
        #[doc = $doc]
        #[derive(Debug, Clone, Copy)]
        pub struct $name;
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
    "f16." F16, 2, m16n8k16_f32_f16;
    "bf16." Bf16, 2, m16n8k16_f32_bf16;
    "f32 of which the instruction reads 19 bits." Tf32, 4, m16n8k8_f32_tf32;
}

/// A block of `DOWN` x `ACROSS` warps, each `ROWS` times 16 rows and `PAIRS` times 16 columns of C.
#[derive(Debug, Clone, Copy)]
pub struct Block<const DOWN: u32, const ACROSS: u32, const ROWS: usize, const PAIRS: usize>;

/// Sums of a warp's 16 x 16 tile: two instructions side by side.
type Pair = [[f32; 4]; 2];

impl<const DOWN: u32, const ACROSS: u32, const ROWS: usize, const PAIRS: usize>
    Block<DOWN, ACROSS, ROWS, PAIRS>
{
    /// Threads of a block.
    pub const THREADS: u32 = DOWN * ACROSS * 32;
    /// Rows of C.
    pub const HEIGHT: u32 = DOWN * Self::WARP_ROWS;
    /// Columns of C.
    pub const WIDTH: u32 = ACROSS * Self::WARP_COLUMNS;
    const WARP_ROWS: u32 = 16 * ROWS as u32;
    const WARP_COLUMNS: u32 = 16 * PAIRS as u32;
    /// Blocks of a multiprocessor: 16 warps share it, with 128 registers a thread.
    pub const RESIDENT: u32 = 512 / Self::THREADS;
    /// Bytes of A in a stage. B lies behind it.
    pub const A_BYTES: u32 = Self::HEIGHT * STAGE_K_BYTES;
    const STAGE_BYTES: u32 = Self::A_BYTES + Self::WIDTH * STAGE_K_BYTES;
    /// Floats from a row of the sums to the next.
    pub const PITCH: u32 = Self::WIDTH + SUMS_PAD;
    /// Dynamic shared memory, bytes.
    pub const SHARED_BYTES: u32 = {
        let (stages, sums) = (STAGES * Self::STAGE_BYTES, Self::HEIGHT * Self::PITCH * F32);
        if stages > sums { stages } else { sums }
    };

    /// Sums the products of `pieces` pieces of k and leaves them in shared memory, where the stages were:
    /// `HEIGHT` rows of `PITCH` floats from `base` on. `copy` starts this thread's copies of a piece into the
    /// stage at a shared address: A first, B behind it. `A_ACROSS` and `B_ACROSS` say which way they lie.
    ///
    /// # Safety
    /// The block calls it together; no thread uses the `SHARED_BYTES` at `base`. `copy` writes all of the
    /// stage that it is given, by `cp.async` or directly, or leaves whole stages as they are.
    #[inline(always)]
    pub unsafe fn products<E: Element, const A_ACROSS: bool, const B_ACROSS: bool>(
        base: u32,
        pieces: u32,
        mut copy: impl FnMut(u32, u32),
    ) {
        // SAFETY: the caller's contract; a barrier parts the last reads of the stages from the writes of the
        // sums.
        unsafe {
            let sums = Self::multiply::<E, A_ACROSS, B_ACROSS>(base, pieces, &mut copy);
            thread::sync_threads();
            Self::stage_sums(base, &sums);
            thread::sync_threads();
        }
    }

    /// The ring: copies of the pieces to come, products of the one that is there.
    ///
    /// # Safety
    /// As for [`products`](Self::products).
    #[inline(always)]
    unsafe fn multiply<E: Element, const A_ACROSS: bool, const B_ACROSS: bool>(
        base: u32,
        pieces: u32,
        copy: &mut impl FnMut(u32, u32),
    ) -> [[Pair; PAIRS]; ROWS] {
        const { assert!(STAGE_K_BYTES == 2 * STEP_BYTES, "two steps a piece") };
        let warp = thread::thread_idx_x() / 32;
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
                if next < pieces {
                    copy(base + pipeline.stage_to_load(), next);
                }
                pipeline.commit();
                next += 1;
            }
            let mut piece = 0;
            while piece < pieces {
                let here = pipeline.wait();
                let next = piece + pipeline.prologue();
                if next < pieces {
                    copy(base + pipeline.stage_to_load(), next);
                }
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
