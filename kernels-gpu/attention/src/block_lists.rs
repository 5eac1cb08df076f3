//! Lists of the blocks that tiles have to look at, made on the device from a mask: blocks of keys for tiles
//! of queries, in the forward pass; blocks of queries for tiles of keys, in the backward pass.
//!
//! A tile's list has a fixed length, so that nobody waits for the device to know how long it is: the number
//! of blocks, then the blocks in the order in which the tile goes through them, each with a bit that says
//! whether some query does not see some key of it. Tiles without a list look at all blocks of the band, and
//! ask the mask in each.

use cuda_std::{KernelArgs, thread};

use crate::problem::{AttentionParams, KeyBlocks, QueryBlocks, Sequence};
use crate::score::{Position, ScoreFunction};

/// Threads of a block that makes lists.
pub const THREADS: u32 = 256;

/// Where lists are: of `heads` heads and `batch` sequences, each 1 or as many as the problem has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, KernelArgs)]
pub struct ListParams {
    /// Lists of a head: its tiles, of queries or of keys.
    pub tiles: u32,
    /// Words of a list: a number, and as many blocks as there are.
    pub words: u32,
    /// Heads of queries with lists of their own; 1 if all have the same.
    pub heads: u32,
    /// Sequences with lists of their own; 1 if all have the same.
    pub batch: u32,
    /// Queries of a tile or block.
    pub block_m: u32,
    /// Keys of a block or tile.
    pub block_n: u32,
    /// 1 if tiles of keys have lists of queries, 0 if tiles of queries have lists of keys.
    pub of_keys: u32,
}

/// A tile with a list: the number of the tile, its head of queries, and its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Of a head's tiles.
    pub tile: u32,
    /// Head of queries.
    pub head: u32,
    /// Sequence.
    pub batch: u32,
}

impl ListParams {
    /// Words of all lists before that of a tile.
    #[inline(always)]
    const fn first_word(self, Listing { tile, head, batch }: Listing) -> usize {
        // One list for all of them, or one for each.
        let batch = if self.batch == 1 { 0 } else { batch };
        let head = if self.heads == 1 { 0 } else { head };
        let list = (batch as usize * self.heads as usize + head as usize) * self.tiles as usize;
        (list + tile as usize) * self.words as usize
    }
}

/// A block in a list.
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
        params: ListParams { tiles: 1, words: 1, heads: 1, batch: 1, block_m: 1, block_n: 1, of_keys: 0 },
    };

    /// Whether there are none.
    #[inline(always)]
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.words.is_null()
    }
}

/// The blocks of a tile by the band.
pub trait Blocks: Copy {
    /// How many there are.
    fn count(self) -> u32;
    /// The block of this place in the order of the tile, below the count.
    fn block(self, index: u32) -> u32;
    /// Whether some query does not see some key of the block.
    fn is_partial(self, block: u32) -> bool;
}

impl Blocks for KeyBlocks {
    #[inline(always)]
    fn count(self) -> u32 {
        self.count()
    }

    #[inline(always)]
    fn block(self, index: u32) -> u32 {
        self.end - 1 - index
    }

    #[inline(always)]
    fn is_partial(self, block: u32) -> bool {
        self.is_partial(block)
    }
}

impl Blocks for QueryBlocks {
    #[inline(always)]
    fn count(self) -> u32 {
        self.count()
    }

    #[inline(always)]
    fn block(self, index: u32) -> u32 {
        self.first + index
    }

    #[inline(always)]
    fn is_partial(self, block: u32) -> bool {
        self.is_partial(block)
    }
}

/// The blocks that a tile has to look at, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Walk<B> {
    /// Those of the band.
    pub band: B,
    /// The tile's list, or null.
    pub list: *const u32,
    /// How many blocks there are.
    pub count: u32,
}

impl<B: Blocks> Walk<B> {
    /// All blocks of the band.
    #[inline(always)]
    #[must_use]
    pub fn all(band: B) -> Self {
        Self { band, list: core::ptr::null(), count: band.count() }
    }

    /// Those of the tile's list, if there are lists.
    ///
    /// # Safety
    /// The words of `lists` are null, or valid for reads of all lists, and hold those that [`build`] has
    /// written for this very problem.
    #[inline(always)]
    #[must_use]
    pub unsafe fn of(band: B, lists: &Lists, of: Listing) -> Self {
        if lists.is_none() {
            return Self::all(band);
        }
        // SAFETY: the caller's word. No list counts more blocks than it has words for, whatever is written.
        unsafe {
            let list = lists.words.add(lists.params.first_word(of));
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
            let block = self.band.block(index);
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
    let of = Listing { tile, head: list % heads, batch: list / heads };
    let (block_m, block_n) = (lists.block_m.max(1), lists.block_n.max(1));
    let AttentionParams { queries, keys, band, .. } = *params;
    let sequence = Sequence { first_query: 0, queries, first_key: 0, keys, matrix: 0 };
    let of_tile = KeyBlocks::new(band, sequence, tile * block_m, block_m, block_n);
    let of_keys = QueryBlocks::new(band, sequence, tile * block_n, block_n, block_m);
    let is_of_keys = lists.of_keys != 0;
    let blocks = if is_of_keys { of_keys.count() } else { of_tile.count() };
    // SAFETY: the caller's contract; a list for each block of threads.
    let to = unsafe { words.add(lists.first_word(of)) };
    let (mut count, mut index) = (0, 0);
    while index < blocks {
        let block = if is_of_keys { of_keys.block(index) } else { of_tile.block(index) };
        let [row, column] = if is_of_keys { [block, tile] } else { [tile, block] };
        let at = Look { params, function, of, first_query: row * block_m, first_key: column * block_n };
        let (some, all) = at.look(lists);
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
        index += 1;
    }
    if thread::thread_idx_x() == 0 {
        // SAFETY: the first word of the list.
        unsafe { *to = count }
    }
}

/// A tile's queries and a block's keys, or the other way round.
struct Look<'a, F> {
    params: &'a AttentionParams,
    function: &'a F,
    of: Listing,
    first_query: u32,
    first_key: u32,
}

impl<F: ScoreFunction> Look<'_, F> {
    /// Whether a thread's queries see some key that it looks at, and whether they see them all. Queries
    /// beyond the last see none; those of a tile of queries do not count, as nobody stores their results.
    #[inline(always)]
    fn look(&self, lists: ListParams) -> (bool, bool) {
        let Self { params, function, of: Listing { head, batch, .. }, first_query, first_key } = *self;
        let band = params.band;
        let (warp, lane) = (thread::thread_idx_x() / 32, thread::thread_idx_x() % 32);
        let (mut some, mut all) = (false, true);
        let mut row = warp;
        while row < lists.block_m {
            let query = first_query + row;
            if query < params.queries {
                let diagonal = band.diagonal(params.queries, params.keys) + query as i32;
                let visible = band.visible(diagonal, params.keys);
                let mut column = lane;
                while column < lists.block_n {
                    let key = first_key + column;
                    let distance = (key as i32 - diagonal) as f32;
                    let at = Position { batch, head, query, key, distance };
                    let sees = key >= visible.first && key < visible.end && function.mask(at);
                    some |= sees;
                    all &= sees;
                    column += 32;
                }
            } else {
                all &= lists.of_keys == 0;
            }
            row += THREADS / 32;
        }
        (some, all)
    }
}
