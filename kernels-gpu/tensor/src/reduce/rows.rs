//! How rows are shared among threads, for every reduction along rows.
//!
//! A row is cut into chunks where there are few rows. A chunk is read by a thread, some warps, or a block
//! ([`primitives::row::read`]), whose states are then combined.

use crate::{THREADS, VECTOR_BYTES};
use cuda_std::thread;
use primitives::block;
use primitives::op::Operation;
use primitives::row::Part;
use primitives::warp::{self, Exchange, LANES};

pub use primitives::row::UNROLL;

/// Warps of a block.
pub const WARPS: usize = block::slots(THREADS);
/// Longest rows for a thread alone, elements.
const THREAD_ELEMENTS: u64 = 16;
/// Longest rows for a warp alone, bytes.
const WARP_BYTES: u64 = 4096;
/// Chunks of rows that keep every device busy, many times over.
const ENOUGH: u64 = 4096;

/// How rows are shared among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rows {
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub columns: u64,
    /// Elements of a chunk; the last one of a row may have fewer.
    pub chunk: u64,
    /// Chunks of a row. More than one only for fewer than 2^31 chunks in all.
    pub chunks: u32,
    /// `2^shift` threads share a chunk.
    pub shift: u32,
}

impl Rows {
    /// The plan for `rows` of `columns` elements of `size` bytes. Where there are enough rows, a thread reads
    /// `share` vectors.
    pub const fn new(rows: u64, columns: u64, size: usize, share: u64) -> Self {
        let vector = (VECTOR_BYTES / size) as u64;
        let shift = if columns <= THREAD_ELEMENTS {
            0
        } else if columns.saturating_mul(size as u64) <= WARP_BYTES {
            LANES.ilog2()
        } else if rows < ENOUGH {
            THREADS.ilog2()
        } else {
            let threads = columns / (vector * share);
            if threads > THREADS as u64 {
                THREADS.ilog2()
            } else if threads < LANES as u64 {
                LANES.ilog2()
            } else {
                threads.ilog2()
            }
        };
        let tile = vector * THREADS as u64 * UNROLL as u64;
        let wanted = if rows == 0 || rows >= ENOUGH { 1 } else { ENOUGH / rows };
        let most = columns.div_ceil(tile);
        let chunks = if most < wanted { most } else { wanted };
        // Whole vectors: chunks begin at a boundary when rows do.
        let chunk = if chunks <= 1 { columns } else { columns.div_ceil(chunks).next_multiple_of(vector) };
        let chunks = if chunk == 0 { 1 } else { columns.div_ceil(chunk) };
        Self { rows, columns, chunk, chunks: chunks as u32, shift }
    }

    /// One chunk a row, shared by a block.
    pub const fn whole(rows: u64, columns: u64) -> Self {
        Self { rows, columns, chunk: columns, chunks: 1, shift: THREADS.ilog2() }
    }

    /// Blocks, of [`THREADS`] threads.
    pub const fn blocks(&self) -> u64 {
        (self.rows * self.chunks as u64).div_ceil((THREADS >> self.shift) as u64)
    }
}

/// A chunk of a row, as one of its threads sees it.
pub struct Chunk {
    /// Its index among all chunks of all rows. A chunk beyond the last has no elements and no result.
    pub index: u64,
    /// Its row.
    pub row: u64,
    /// The first element's place in the row.
    pub start: u64,
    /// Its elements.
    pub len: u64,
    /// This thread among those that share the chunk.
    pub thread: u64,
    /// Threads that share the chunk.
    pub threads: u64,
    /// Is it one of the plan's chunks?
    exists: bool,
}

impl Rows {
    /// The calling thread's chunk.
    #[inline(always)]
    pub fn chunk(&self) -> Chunk {
        let (shift, thread) = (self.shift & 31, thread::thread_idx_x());
        let index =
            u64::from(thread::block_idx_x()) * u64::from(THREADS >> shift) + u64::from(thread >> shift);
        let (row, chunk) = if self.chunks > 1 {
            let chunks = self.chunks.max(1);
            (u64::from(index as u32 / chunks), u64::from(index as u32 % chunks))
        } else {
            (index, 0)
        };
        let start = chunk * self.chunk;
        let exists = row < self.rows;
        let len = if exists { self.chunk.min(self.columns.saturating_sub(start)) } else { 0 };
        let threads = 1u32 << shift;
        let thread = u64::from(thread & (threads - 1));
        Chunk { index, row, start, len, thread, threads: threads.into(), exists }
    }
}

impl Chunk {
    /// This thread's part of it.
    #[inline(always)]
    pub fn part(&self) -> Part {
        Part { len: self.len, thread: self.thread, threads: self.threads }
    }

    /// Is it this thread that writes the chunk's result?
    #[inline(always)]
    pub fn is_written_here(&self) -> bool {
        self.exists && self.thread == 0
    }
}

/// Combines the states of a chunk's threads; each of them gets the result.
///
/// # Safety
/// Every thread of the block calls it. `slots` is shared memory for a state a warp, which no thread uses
/// since the last barrier.
#[inline(always)]
pub unsafe fn combine<S: Exchange, O: Operation<S>>(op: O, chunk: &Chunk, state: S, slots: *mut S) -> S {
    // The same way for all threads of the block: its chunks have equally many threads.
    // SAFETY: the caller's contract; threads of a chunk are one, a warp, or a power of two of warps.
    unsafe {
        if chunk.threads == 1 {
            return state;
        }
        let of_warp = warp::reduce(op, state);
        if chunk.threads <= u64::from(LANES) {
            return of_warp;
        }
        block::reduce_warps(op, of_warp, chunk.threads as u32, slots)
    }
}

#[cfg(test)]
mod tests {
    use super::{Rows, UNROLL};

    #[test]
    fn chunks_cover_rows() {
        for size in [1, 2, 4, 8] {
            for rows in [1, 2, 7, 100, 4095, 4096, 1 << 20] {
                for columns in [0, 1, 16, 17, 1000, 4096, 16_384, 16_385, 1 << 20, (1 << 28) + 3] {
                    let plan = Rows::new(rows, columns, size, UNROLL as u64);
                    let what = format!("{rows} x {columns} x {size}: {plan:?}");
                    assert!(plan.chunks >= 1 && plan.chunk * u64::from(plan.chunks) >= columns, "{what}");
                    assert!(
                        plan.chunks == 1 || plan.chunk * (u64::from(plan.chunks) - 1) < columns,
                        "{what}"
                    );
                    assert!(
                        plan.chunks == 1 || plan.shift == 8 && rows * u64::from(plan.chunks) <= 4096,
                        "{what}"
                    );
                    assert!(plan.chunk < 1 << 32, "{what}");
                }
            }
        }
    }
}
