//! Lists of the blocks of keys that tiles of queries have to look at, made on the device from a mask.
//!
//! A tile's list has a fixed length, so that nobody waits for the device to know how long it is: the number
//! of blocks, then the blocks from the last to the first, each with a bit that says whether some query does
//! not see some key of it. Tiles without a list look at all blocks of the band, and ask the mask in each.

use cuda_std::{KernelArgs, thread};

use crate::problem::{AttentionParams, KeyBlocks, Tile};
use crate::score::{Position, ScoreFunction};

/// Threads of a block that makes lists.
pub const THREADS: u32 = 256;

/// Where lists are: of `heads` heads and `batch` sequences, each 1 or as many as the problem has.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct ListParams {
    /// Lists of a head: the tiles of queries.
    pub tiles: u32,
    /// Words of a list: a number, and as many blocks as there are.
    pub words: u32,
    /// Heads of queries with lists of their own; 1 if all have the same.
    pub heads: u32,
    /// Sequences with lists of their own; 1 if all have the same.
    pub batch: u32,
    /// Queries of a tile.
    pub block_m: u32,
    /// Keys of a block.
    pub block_n: u32,
}

impl ListParams {
    /// Words of all lists before that of a tile.
    #[inline(always)]
    const fn first_word(self, tile: Tile) -> usize {
        // One list for all of them, or one for each.
        let batch = if self.batch == 1 { 0 } else { tile.batch };
        let head = if self.heads == 1 { 0 } else { tile.head };
        let list = (batch as usize * self.heads as usize + head as usize) * self.tiles as usize;
        (list + self.tile_of(tile.first_row)) * self.words as usize
    }

    /// The number of the tile that begins with this query.
    #[inline(always)]
    const fn tile_of(self, row: u32) -> usize {
        match row.checked_div(self.block_m) {
            Some(tile) => tile as usize,
            None => 0,
        }
    }
}

/// A block of keys in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number.
    pub block: u32,
    /// Whether the mask has to be asked.
    pub is_partial: bool,
}

impl Listed {
    /// As a list has it.
    #[inline(always)]
    #[must_use]
    pub const fn to_word(self) -> u32 {
        self.block << 1 | self.is_partial as u32
    }

    /// From a list.
    #[inline(always)]
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        Self { block: word >> 1, is_partial: word & 1 != 0 }
    }
}

/// All lists of a launch, or none.
#[derive(Clone, Copy, Debug)]
pub struct Lists {
    /// The words, or null.
    pub words: *const u32,
    /// Where they are.
    pub params: ListParams,
}

impl Lists {
    /// No lists.
    pub const NONE: Self = Self {
        words: core::ptr::null(),
        params: ListParams { tiles: 1, words: 1, heads: 1, batch: 1, block_m: 1, block_n: 1 },
    };
}

/// The blocks that a tile has to look at, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Those of the band.
    pub band: KeyBlocks,
    /// The tile's list, or null.
    pub list: *const u32,
    /// How many blocks there are.
    pub count: u32,
}

impl Walk {
    /// All blocks of the band.
    #[inline(always)]
    #[must_use]
    pub const fn all(band: KeyBlocks) -> Self {
        Self { band, list: core::ptr::null(), count: band.count() }
    }

    /// Those of the tile's list, if there are lists.
    ///
    /// # Safety
    /// The words of `lists` are null, or valid for reads of all lists, and hold those that [`build`] has
    /// written for this very problem.
    #[inline(always)]
    #[must_use]
    pub unsafe fn of(band: KeyBlocks, lists: &Lists, tile: Tile) -> Self {
        if lists.words.is_null() {
            return Self::all(band);
        }
        // SAFETY: the caller's word. No list counts more blocks than it has words for, whatever is written.
        unsafe {
            let list = lists.words.add(lists.params.first_word(tile));
            let most = lists.params.words - 1;
            let count = *list;
            Self { band, list, count: if count < most { count } else { most } }
        }
    }

    /// Block `index`, below `count`.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    #[inline(always)]
    #[must_use]
    pub unsafe fn get(&self, index: u32) -> Listed {
        if self.list.is_null() {
            let block = self.band.end - 1 - index;
            return Listed { block, is_partial: self.band.is_partial(block) };
        }
        // SAFETY: the caller's word.
        Listed::from_word(unsafe { *self.list.add(1 + index as usize) })
    }

    /// Whether the mask has to be asked in blocks that the band shows whole.
    #[inline(always)]
    #[must_use]
    pub const fn is_unlisted(&self) -> bool {
        self.list.is_null()
    }
}

/// Makes the lists.
///
/// # Safety
/// `words` is valid for writes of all lists that `lists` tells of. The launch has a block of [`THREADS`]
/// threads for each list.
#[inline(always)]
pub unsafe fn build<F: ScoreFunction>(
    params: &AttentionParams,
    lists: ListParams,
    function: &F,
    words: *mut u32,
) {
    let number = thread::block_idx_x();
    let (tiles, heads) = (lists.tiles.max(1), lists.heads.max(1));
    let (tile, list) = (number % tiles, number / tiles);
    let tile = Tile { first_row: tile * lists.block_m, head: list % heads, batch: list / heads };
    let at = KeyBlocks::of_dense(params, tile.first_row, lists.block_m, lists.block_n.max(1));
    // SAFETY: the caller's contract; a list for each block.
    let to = unsafe { words.add(lists.first_word(tile)) };
    let mut count = 0;
    let mut block = at.end;
    while block > at.first {
        block -= 1;
        let (some, all) = look(params, lists, function, tile, block);
        let is_seen = thread::sync_threads_or(some.into()) != 0;
        let is_whole = thread::sync_threads_and(all.into()) != 0;
        if is_seen && count + 1 < lists.words {
            count += 1;
            if thread::thread_idx_x() == 0 {
                let listed = Listed { block, is_partial: !is_whole };
                // SAFETY: a word of the list.
                unsafe { *to.add(count as usize) = listed.to_word() }
            }
        }
    }
    if thread::thread_idx_x() == 0 {
        // SAFETY: the first word of the list.
        unsafe { *to = count }
    }
}

/// Whether a thread's queries see some key of a block that it looks at, and whether they see them all.
#[inline(always)]
fn look<F: ScoreFunction>(
    params: &AttentionParams,
    lists: ListParams,
    function: &F,
    tile: Tile,
    block: u32,
) -> (bool, bool) {
    let band = params.band;
    let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
    let (mut some, mut all) = (false, true);
    let mut row = warp;
    while row < lists.block_m {
        let query = tile.first_row + row;
        if query < params.queries {
            let diagonal = band.diagonal(params.queries, params.keys) + query as i32;
            let visible = band.visible(diagonal, params.keys);
            let mut column = lane;
            while column < lists.block_n {
                let key = block * lists.block_n + column;
                let distance = (key as i32 - diagonal) as f32;
                let at = Position { batch: tile.batch, head: tile.head, query, key, distance };
                let sees = key >= visible.first && key < visible.end && function.mask(at);
                some |= sees;
                all &= sees;
                column += 32;
            }
        }
        row += THREADS / 32;
    }
    (some, all)
}
