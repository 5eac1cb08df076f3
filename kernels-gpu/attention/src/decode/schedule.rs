//! How the work is shared out.
//!
//! The chunks of all sequences, for each tile of rows of each head of keys, lie in a line:
//!
//! ```text
//!   sequence 0: head 0, rows 0 | head 0, rows 1 | head 1, rows 0 | ..   sequence 1: head 0, rows 0 | ..
//!   chunk       0 1 2 3 4 5      0 1 2 3 4 5      ..                    0 1 2
//!   block       0 0 0 0 1 1      1 1 2 2 2 2      ..
//! ```
//! Heads of a sequence, whose rows lie beside each other and whose pages are the same, are so read by blocks
//! at the same time.
//!
//! Each block takes as many of them, one behind the other, and the last one what is left. So all blocks are
//! done at the same time, however long the sequences are, and the grid does not depend on their lengths. An
//! item, which is a sequence with a tile of rows, may be cut into several blocks' parts, and a block may have
//! several items.

use cuda_std::thread;
use cuda_std::warp::{FULL_MASK, warp_vote_ballot};
use primitives::op::Operation;
use primitives::unroll;
use primitives::warp::{LANES, broadcast, inclusive_scan, reduce};

use super::config::CHUNK;
use super::problem::{Problem, Span};

/// The part of the line that a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// First chunk.
    pub first: u32,
    /// Chunks; 0 if nothing is left.
    pub count: u32,
    /// Chunks of every block but the last one.
    pub each: u32,
}

impl Share {
    /// That of block `block` of `blocks`, of `all` chunks.
    #[inline(always)]
    #[must_use]
    pub fn new(all: u32, block: u32, blocks: u32) -> Self {
        let each = all.div_ceil(blocks.max(1)).max(1);
        let first = all.min(block.saturating_mul(each));
        Self { first, count: each.min(all - first), each }
    }
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Chunks of the share from here on.
    pub left: u32,
    /// Head of keys.
    pub head: u32,
    /// Tile of rows.
    pub row_tile: u32,
    /// Sequence.
    pub sequence: u32,
    /// Chunk of the item.
    pub chunk: u32,
    /// The sequence's keys.
    pub span: Span,
}

impl Cursor {
    /// First key of the chunk.
    #[inline(always)]
    #[must_use]
    pub const fn key(&self) -> u32 {
        self.span.start() + self.chunk * CHUNK
    }

    /// Whether all chunks of the item lie before this place.
    #[inline(always)]
    #[must_use]
    pub const fn is_at_end(&self) -> bool {
        self.chunk == self.span.chunks()
    }

    /// One chunk on, in the same item.
    #[inline(always)]
    pub const fn step(&mut self) {
        self.left -= 1;
        self.chunk += 1;
    }

    /// From the end of an item to the next one, if the share has one.
    ///
    /// # Safety
    /// As for [`Problem::span`].
    #[inline(always)]
    pub unsafe fn enter_next(&mut self, problem: Problem<'_>) {
        if !self.is_at_end() || self.left == 0 {
            return;
        }
        self.chunk = 0;
        self.row_tile += 1;
        if self.row_tile < problem.params.row_tiles() {
            return;
        }
        self.row_tile = 0;
        self.head += 1;
        if self.head < problem.params.kv_heads {
            return;
        }
        self.head = 0;
        self.sequence += 1;
        // SAFETY: the caller's word; the share ends where the line does.
        self.span = unsafe { problem.span(self.sequence) };
    }
}

/// Sums of numbers of chunks.
#[derive(Clone, Copy)]
struct Chunks;

impl Operation<u32> for Chunks {
    #[inline(always)]
    fn identity(self) -> u32 {
        0
    }

    #[inline(always)]
    fn combine(self, a: u32, b: u32) -> u32 {
        a + b
    }
}

/// Loads of a thread that are under way at a time.
const AT_ONCE: u32 = 4;

impl Problem<'_> {
    /// The share of this block, and where it begins; nothing if there is none left.
    ///
    /// # Safety
    /// As for [`span`](Self::span); the whole warp calls it.
    #[inline(always)]
    pub unsafe fn share(self) -> (Share, Option<Cursor>) {
        let params = self.params;
        let row_tiles = params.row_tiles().max(1);
        let tiles = params.kv_heads * row_tiles;
        // SAFETY: the caller's word.
        let all = unsafe { self.chunks() } * tiles;
        let share = Share::new(all, thread::block_idx_x(), thread::grid_dim_x());
        if share.count == 0 {
            return (share, None);
        }
        // SAFETY: the caller's word; the place is one of the line's.
        let (sequence, place) = unsafe { self.find(share.first, tiles) };
        // SAFETY: as above.
        let span = unsafe { self.span(sequence) };
        let (tile, chunk) = (place / span.chunks(), place % span.chunks());
        let (head, row_tile) = (tile / row_tiles, tile % row_tiles);
        (share, Some(Cursor { left: share.count, head, row_tile, sequence, chunk, span }))
    }

    /// Chunks of one tile of all sequences.
    ///
    /// # Safety
    /// As for [`share`](Self::share).
    #[inline(always)]
    unsafe fn chunks(self) -> u32 {
        let batch = self.params.batch;
        if self.lengths.is_null() {
            return self.params.span(self.params.keys).chunks() * batch;
        }
        let mut sum = 0;
        let mut first = 0;
        while first < batch {
            // SAFETY: the caller's word.
            unroll!(I in 0..4, { sum += unsafe { self.chunks_of_lane(first + I as u32 * LANES) }; });
            first += AT_ONCE * LANES;
        }
        // SAFETY: the whole warp is here.
        unsafe { reduce(Chunks, sum) }
    }

    /// Chunks of the lane's sequence from `first` on; 0 behind the last one.
    ///
    /// # Safety
    /// As for [`span`](Self::span).
    #[inline(always)]
    unsafe fn chunks_of_lane(self, first: u32) -> u32 {
        let sequence = first + thread::thread_idx_x() % LANES;
        // SAFETY: the caller's word.
        if sequence < self.params.batch { unsafe { self.span(sequence) }.chunks() } else { 0 }
    }

    /// The sequence to which a chunk of the line belongs, and its number among the chunks of all tiles there.
    ///
    /// # Safety
    /// As for [`share`](Self::share); there are more chunks, of so many tiles of each sequence.
    #[inline(always)]
    unsafe fn find(self, mut chunk: u32, tiles: u32) -> (u32, u32) {
        if self.lengths.is_null() {
            let each = (self.params.span(self.params.keys).chunks() * tiles).max(1);
            return (chunk / each, chunk % each);
        }
        let mut first = 0;
        loop {
            // SAFETY: the caller's word; the whole warp is here.
            unsafe {
                let own = self.chunks_of_lane(first) * tiles;
                let up_to = inclusive_scan(Chunks, own);
                let holds = warp_vote_ballot(FULL_MASK, up_to > chunk);
                if holds != 0 || first + LANES >= self.params.batch {
                    let lane = holds.trailing_zeros() % LANES;
                    return (first + lane, chunk - broadcast(up_to - own, lane));
                }
                chunk -= broadcast(up_to, LANES - 1);
            }
            first += LANES;
        }
    }
}
