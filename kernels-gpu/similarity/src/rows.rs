//! Streams rows of a matrix through the registers of a warp: 16 rows at a time, straight from global memory.
//!
//! A lane `(g, t) = (lane / 4, lane % 4)` loads pieces of rows `g` and `g + 8`: in step `s` elements
//! `32 s + 8 t .. 32 s + 8 t + 8`. `mma` wants other elements in that lane, but a dot product does not care in which
//! order `k` is summed, as long as both sides agree: words 0, 1 of the pieces feed one `mma`, words 2, 3 another, and
//! the queries are read in the same pattern. So every byte is loaded once, 16 bytes a lane, with no shuffle:
//!
//! ```text
//!            k = 0        8        16       24       32
//!  row g     | piece t=0 | t=1    | t=2    | t=3    |      a0 = words 0 (mma 0), 2 (mma 1)    of row g
//!  row g+8   | piece t=0 | t=1    | t=2    | t=3    |      a1 = the same                      of row g + 8
//!                                                           a2 = words 1 (mma 0), 3 (mma 1)    of row g
//!                                                           a3 = the same                      of row g + 8
//! ```
//!
//! Norms come from the tensor cores too. Register for register, A's rows 0..8 laid out as above are B's columns 0..8, so
//! `mma(A, (a0, a2))` and `mma(A, (a1, a3))` hold the squares of the norms on their diagonals.

use crate::half::{Access, Half, PIECE};
use crate::list::shuffle;
#[allow(unused_imports)] // The host has its own `f32::sqrt`.
use cuda_std::float::GpuFloat;
use cuda_std::warp;

/// Rows that a warp works on together: the M of `mma`.
pub const ROWS: u32 = 16;
/// Elements of a row that a warp loads with one instruction a lane.
pub const STEP: u32 = 4 * PIECE;
/// Steps that are in flight together: 16 rows x 256 bytes, 4 KiB a warp.
pub const STEPS: usize = 4;
/// Elements of a row in a chunk of [`STEPS`] steps.
pub const CHUNK: u32 = STEP * STEPS as u32;

/// Half of [`ROWS`]: the lane's two rows are this far apart.
const HALF_ROWS: u32 = ROWS / 2;

/// Chunks of a row of `dim` elements.
#[inline(always)]
pub const fn chunks(dim: u32) -> u32 {
    dim.div_ceil(CHUNK)
}

/// Which rows and columns of the fragments are this lane's.
#[derive(Clone, Copy)]
pub struct Lane {
    /// `lane / 4`: row of A, column of B.
    pub group: u32,
    /// `lane % 4`: piece of a step; pair of columns of the accumulator.
    pub member: u32,
}

impl Lane {
    /// This lane.
    #[inline(always)]
    pub fn this() -> Self {
        Self::of(warp::lane_id())
    }

    /// Lane number `lane`.
    #[inline(always)]
    pub fn of(lane: u32) -> Self {
        Lane { group: lane / 4, member: lane % 4 }
    }
}

/// A chunk of the lane's two rows.
#[derive(Clone, Copy)]
pub struct Chunk {
    upper: [[u32; 4]; STEPS],
    lower: [[u32; 4]; STEPS],
}

impl Chunk {
    /// A fragment: which of the two `mma`s of a step it is for is `half`, 0 or 1.
    #[inline(always)]
    pub fn a(&self, step: usize, half: usize) -> [u32; 4] {
        let (upper, lower) = (&self.upper[step], &self.lower[step]);
        [upper[2 * half], lower[2 * half], upper[2 * half + 1], lower[2 * half + 1]]
    }
}

/// A matrix `[n, dim]`, row-major, in global memory.
#[derive(Clone, Copy)]
pub struct Matrix<T> {
    /// Its first element.
    pub base: *const T,
    /// Number of rows, at least 1.
    pub n: u32,
    /// Elements of a row, at least 1.
    pub dim: u32,
}

impl<T: Half> Matrix<T> {
    /// Blocks of [`ROWS`] rows, the last one perhaps not full.
    #[inline(always)]
    pub fn row_blocks(self) -> u32 {
        self.n.div_ceil(ROWS)
    }

    #[inline(always)]
    fn row(self, row: u32) -> *const T {
        // Rows past the end repeat the last one; the callers leave their results out.
        let row = if row < self.n { row } else { self.n - 1 };
        self.base.wrapping_add(row as usize * self.dim as usize)
    }

    /// Loads chunk `chunk` of rows `16 block .. 16 block + 16`.
    ///
    /// # Safety
    /// The matrix is readable, nobody writes it, and it is aligned as `A` needs it.
    #[inline(always)]
    pub unsafe fn load<A: Access>(self, block: u32, chunk: u32, lane: Lane) -> Chunk {
        let upper = self.row(block * ROWS + lane.group);
        let lower = self.row(block * ROWS + lane.group + HALF_ROWS);
        let first = chunk * CHUNK + lane.member * PIECE;
        // SAFETY: rows inside the matrix; `piece` stays inside the row.
        let load = |row, step: usize| unsafe { A::piece(row, first + step as u32 * STEP, self.dim) };
        Chunk {
            upper: [load(upper, 0), load(upper, 1), load(upper, 2), load(upper, 3)],
            lower: [load(lower, 0), load(lower, 1), load(lower, 2), load(lower, 3)],
        }
    }
}

const _: () = assert!(STEPS == 4, "Matrix::load names each step");

/// What is done with the rows of a [`Matrix::stream`].
pub trait Consumer {
    /// Takes chunk `chunk` of the current rows.
    ///
    /// # Safety
    /// The warp calls it together.
    unsafe fn chunk(&mut self, rows: &Chunk, chunk: u32);

    /// Ends rows `16 block .. 16 block + 16`, some of which may be past the end.
    ///
    /// # Safety
    /// The warp calls it together.
    unsafe fn finish(&mut self, block: u32);
}

impl<T: Half> Matrix<T> {
    /// Feeds a consumer with every `stride`-th block of rows from `block` on, the next chunk always on its way.
    ///
    /// # Safety
    /// The warp calls it together; the rest as for [`Matrix::load`].
    #[inline(always)]
    pub unsafe fn stream<A: Access>(self, block: u32, stride: u32, lane: Lane, consumer: &mut impl Consumer) {
        let (blocks, chunks) = (self.row_blocks(), chunks(self.dim));
        let mut block = block;
        if block >= blocks {
            return;
        }
        // SAFETY: the caller's contract; blocks and chunks inside the matrix.
        unsafe {
            let mut coming = self.load::<A>(block, 0, lane);
            while block < blocks {
                let next_block = block + stride;
                let mut chunk = 0;
                while chunk < chunks {
                    let mut here = coming;
                    if !A::WHOLE {
                        // Putting pieces together needs the registers that reading ahead would.
                        here = self.load::<A>(block, chunk, lane);
                    } else if chunk + 1 < chunks {
                        coming = self.load::<A>(block, chunk + 1, lane);
                    } else if next_block < blocks {
                        coming = self.load::<A>(next_block, 0, lane);
                    }
                    consumer.chunk(&here, chunk);
                    chunk += 1;
                }
                consumer.finish(block);
                block = next_block;
            }
        }
    }
}

/// Sums of squares of the 16 rows, as two accumulators of which the diagonals count.
#[derive(Clone, Copy)]
pub struct Squares {
    upper: [f32; 4],
    lower: [f32; 4],
}

impl Squares {
    /// No terms yet.
    pub const ZERO: Squares = Squares { upper: [0.0; 4], lower: [0.0; 4] };

    /// Adds the squares of a fragment's elements.
    ///
    /// # Safety
    /// The whole warp calls it together.
    #[inline(always)]
    pub unsafe fn add<T: Half>(&mut self, a: [u32; 4]) {
        // SAFETY: the caller's contract.
        unsafe {
            self.upper = T::mma(a, [a[0], a[2]], self.upper);
            self.lower = T::mma(a, [a[1], a[3]], self.lower);
        }
    }

    /// One over the norm of the lane's two rows (see [`inverse_norm`]).
    ///
    /// # Safety
    /// The whole warp calls it together.
    #[inline(always)]
    pub unsafe fn inverse_norms(&self, lane: Lane) -> [f32; 2] {
        // Row g meets column g in the lane of that group whose pair of columns holds g.
        let source = lane.group * 4 + lane.group / 2;
        let odd = lane.group % 2 == 1;
        let upper = if odd { self.upper[1] } else { self.upper[0] };
        let lower = if odd { self.lower[3] } else { self.lower[2] };
        // The lane that holds the diagonal of group g is in group g, so its own parity chose the element.
        // SAFETY: the caller's contract; `source < 32`.
        let diagonal = |value: f32| unsafe { f32::from_bits(shuffle(value.to_bits(), source)) };
        [inverse_norm(diagonal(upper)), inverse_norm(diagonal(lower))]
    }
}

/// `1 / sqrt(squares)`, correctly rounded twice; 0 for a zero vector, so that its scores are 0.
#[inline(always)]
pub fn inverse_norm(squares: f32) -> f32 {
    if squares == 0.0 { 0.0 } else { 1.0 / squares.sqrt() }
}
