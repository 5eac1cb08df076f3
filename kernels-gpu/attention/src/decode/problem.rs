//! The problem as the kernels are told of it.

use cuda_std::KernelArgs;

use super::config::{CHUNK, TILE_ROWS};
use crate::problem::{Band, Strides, Visible, within};

/// The arguments that the kernels get by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct DecodeParams {
    /// Sequences.
    pub batch: u32,
    /// Queries of each sequence, the last ones of it.
    pub queries: u32,
    /// Heads of keys.
    pub kv_heads: u32,
    /// Heads of queries that share a head of keys.
    pub group: u32,
    /// Most keys of a sequence.
    pub keys: u32,
    /// Elements of a row of each tensor: a multiple of 8.
    pub head_size: u32,
    /// Pages of the cache.
    pub pages: u32,
    /// Keys of a page; `keys` where each sequence has a matrix of its own.
    pub page_size: u32,
    /// Page numbers of a sequence in the table.
    pub table_row: u32,
    /// Which keys a query sees.
    pub band: Band,
    /// Factor of the scores in the softmax, positive; 1 behind a score function, which gets them with theirs.
    pub scale: f32,
    /// Where rows of queries lie.
    pub query_strides: Strides,
    /// Where rows of keys lie; the matrices are pages where there is a table.
    pub key_strides: Strides,
    /// Where rows of values lie.
    pub value_strides: Strides,
    /// Where rows of the result lie.
    pub output_strides: Strides,
    /// Last keys of each sequence that are new: as many as queries, or none.
    pub new_keys: u32,
    /// Where rows of new keys lie.
    pub new_key_strides: Strides,
    /// Where rows of new values lie.
    pub new_value_strides: Strides,
    /// Columns of queries and new keys that are rotated: a multiple of 16, or none.
    pub rotated: u32,
    /// 1: the columns `2 i` and `2 i + 1` turn together; 0: the columns `i` and `i + rotated / 2`.
    pub rotates_neighbours: u32,
}

/// The keys of a sequence, and those of them that some query sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Keys.
    pub keys: u32,
    /// First key that some query sees.
    pub first: u32,
    /// End of these keys; 0 if there is none.
    pub end: u32,
}

impl Span {
    /// The key at which the chunks begin.
    #[inline(always)]
    #[must_use]
    pub const fn start(self) -> u32 {
        self.first / CHUNK * CHUNK
    }

    /// Chunks of these keys. A sequence without any has an empty one, which writes its results.
    #[inline(always)]
    #[must_use]
    pub const fn chunks(self) -> u32 {
        let chunks = (self.end - self.start()).div_ceil(CHUNK);
        if chunks == 0 { 1 } else { chunks }
    }
}

/// A row of queries: those of all heads that share a head of keys lie one behind the other, query by query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The query of the sequence.
    pub query: u32,
    /// The head of queries.
    pub head: u32,
}

impl DecodeParams {
    /// Rows of queries that share a head of keys.
    #[inline(always)]
    #[must_use]
    pub const fn rows(&self) -> u32 {
        self.queries * self.group
    }

    /// The first new key of a sequence of so many keys.
    #[inline(always)]
    #[must_use]
    pub const fn first_new(&self, keys: u32) -> u32 {
        keys.saturating_sub(self.new_keys)
    }

    /// Tiles of them.
    #[inline(always)]
    #[must_use]
    pub const fn row_tiles(&self) -> u32 {
        self.rows().div_ceil(TILE_ROWS)
    }

    /// The row of this number among those that share the head `kv_head` of keys.
    #[inline(always)]
    #[must_use]
    pub fn row(&self, kv_head: u32, number: u32) -> Row {
        let group = self.group.max(1);
        Row { query: number / group, head: kv_head * group + number % group }
    }

    /// The keys that a query sees.
    #[inline(always)]
    #[must_use]
    pub fn visible(&self, keys: u32, query: u32) -> Visible {
        self.band.visible(self.band.diagonal(self.queries, keys) + query as i32, keys)
    }

    /// The span of a sequence of so many keys.
    #[inline(always)]
    #[must_use]
    pub fn span(&self, keys: u32) -> Span {
        let first = self.visible(keys, 0).first;
        let end = self.visible(keys, self.queries.saturating_sub(1)).end;
        if first < end { Span { keys, first, end } } else { Span { keys, first: 0, end: 0 } }
    }
}

/// The problem with the lengths of its sequences.
#[derive(Clone, Copy)]
pub struct Problem<'a> {
    /// All but the lengths.
    pub params: &'a DecodeParams,
    /// Keys of each sequence; null where all have as many.
    pub lengths: *const i32,
}

impl Problem<'_> {
    /// The span of a sequence. A length counts as no less than 0, and no more than the most.
    ///
    /// # Safety
    /// The lengths are null, or there is one for each sequence; the sequence is one of them.
    #[inline(always)]
    #[must_use]
    pub unsafe fn span(self, sequence: u32) -> Span {
        let params = self.params;
        if self.lengths.is_null() {
            return params.span(params.keys);
        }
        // SAFETY: the caller's word.
        params.span(within(unsafe { *self.lengths.add(sequence as usize) }, params.keys))
    }
}
