//! The problem as every kernel is told of it, and the part of a tile of queries.

use cuda_std::KernelArgs;

/// A bound of a [`Band`] that no length reaches.
pub const UNBOUNDED: i32 = 1 << 30;
/// Longest sequence. Sums of positions and bounds stay in 32 bits.
pub const MAX_LENGTH: u32 = 1 << 28;

/// The keys that a query sees, counted from its place on the diagonal.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct Band {
    /// Keys before the diagonal, up to [`UNBOUNDED`]. Negative: the band ends that far behind it.
    pub left: i32,
    /// Keys behind the diagonal, up to [`UNBOUNDED`]; 0 is a causal mask.
    pub right: i32,
    /// 1: the diagonal begins in the first query and key. 0: it ends in the last ones.
    pub top_left: u32,
}

/// The arguments that every kernel gets by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct AttentionParams {
    /// Sequences.
    pub batch: u32,
    /// Heads of queries.
    pub heads: u32,
    /// Heads of queries that share a head of keys.
    pub group: u32,
    /// Queries of a sequence; of the longest one where sequences are packed, which ends a longer one. At most
    /// [`MAX_LENGTH`].
    pub queries: u32,
    /// Keys of a sequence, as the queries.
    pub keys: u32,
    /// Elements of a row of each tensor: a multiple of 8. Where values have another head size than queries,
    /// of the tensors whose rows the kernel reads or writes itself; maps have the others'.
    pub head_size: u32,
    /// Rows of the log-sum-exp from a head to the next: `queries`, or those of all packed sequences.
    pub lse_rows: u32,
    /// Keys of all sequences where they are packed; without use where they are not.
    pub key_rows: u32,
    /// Rows of a head's queries, padded to whole tiles, in what the backward pass keeps of them: of a
    /// sequence, or of all packed sequences ([`AttentionParams::padded_row`]).
    pub padded_rows: u32,
    /// Elements of the result from a row to the next.
    pub output_row: u64,
    /// From a head to the next.
    pub output_head: u64,
    /// From a sequence to the next, where they are not packed.
    pub output_matrix: u64,
    /// Which keys a query sees.
    pub band: Band,
    /// Factor of the scores, positive.
    pub scale: f32,
    /// Heads whose keys and values stay in L2 together; see [`Tiles`].
    pub section: u32,
}

/// Elements from a row of a tensor to the next, from a head to the next, from a matrix to the next.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct Strides {
    /// Rows.
    pub row: u64,
    /// Heads.
    pub head: u64,
    /// Matrices of the batch.
    pub matrix: u64,
}

impl Strides {
    /// The element at which a row begins.
    #[inline(always)]
    pub const fn at(self, row: u32, head: u32, matrix: u32) -> usize {
        (row as u64 * self.row + head as u64 * self.head + matrix as u64 * self.matrix) as usize
    }
}

/// A sequence: where its rows begin along the row dimension of the maps, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// First query among all rows.
    pub first_query: u32,
    /// Queries.
    pub queries: u32,
    /// First key among all rows.
    pub first_key: u32,
    /// Keys.
    pub keys: u32,
    /// Matrix of the maps' batch dimension.
    pub matrix: u32,
}

/// Where packed sequences begin, `batch + 1` row numbers each; null where each has its own matrix.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// Of queries.
    pub queries: *const i32,
    /// Of keys.
    pub keys: *const i32,
}

impl Packing {
    /// Each sequence has its own matrix.
    pub const NONE: Self = Self { queries: core::ptr::null(), keys: core::ptr::null() };
}

impl AttentionParams {
    /// Sequence `batch`. Row numbers count as no more than there are rows, and no less than the one before:
    /// no number leads out of the tensors. A sequence longer than the longest that was told ends there, so
    /// that all kernels agree on its tiles, and grids have a block for each.
    ///
    /// # Safety
    /// The pointers of `packing` are null, or valid for reads of `self.batch + 1` row numbers.
    #[inline(always)]
    #[must_use]
    pub unsafe fn sequence(&self, packing: Packing, batch: u32) -> Sequence {
        let Packing { queries, keys } = packing;
        if queries.is_null() {
            return Sequence {
                first_query: 0,
                queries: self.queries,
                first_key: 0,
                keys: self.keys,
                matrix: batch,
            };
        }
        let at = batch as usize;
        // SAFETY: the caller's word.
        let (queries, keys) =
            unsafe { ([*queries.add(at), *queries.add(at + 1)], [*keys.add(at), *keys.add(at + 1)]) };
        let (first_query, queries) = part(queries, self.lse_rows, self.queries);
        let (first_key, keys) = part(keys, self.key_rows, self.keys);
        Sequence { first_query, queries, first_key, keys, matrix: 0 }
    }
}

/// First row and number of rows between two row numbers, of `rows` rows; at most `most`.
#[inline(always)]
fn part([first, end]: [i32; 2], rows: u32, most: u32) -> (u32, u32) {
    let first = within(first, rows);
    (first, (within(end, rows).max(first) - first).min(most))
}

/// A place among `rows`, of 0 to `rows`.
#[inline(always)]
pub(crate) fn within(row: i32, rows: u32) -> u32 {
    if row < 0 { 0 } else { (row as u32).min(rows) }
}

/// The part of a band that a row of queries sees: keys `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visible {
    /// First key, at most the number of keys.
    pub first: u32,
    /// End of the keys.
    pub end: u32,
}

impl Band {
    /// The key on the diagonal of query 0.
    #[inline(always)]
    #[must_use]
    pub const fn diagonal(self, queries: u32, keys: u32) -> i32 {
        if self.top_left != 0 { 0 } else { keys as i32 - queries as i32 }
    }

    /// The keys that the query with this key on its diagonal sees, of `keys`.
    #[inline(always)]
    #[must_use]
    pub fn visible(self, diagonal: i32, keys: u32) -> Visible {
        Visible { first: within(diagonal - self.left, keys), end: within(diagonal + self.right + 1, keys) }
    }
}

/// The blocks of keys of a tile of queries. They are summed from the last to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBlocks {
    /// First block.
    pub first: u32,
    /// End of the blocks; at most `first` if the tile sees no key.
    pub end: u32,
    /// First block that every query sees whole.
    pub first_whole: u32,
    /// End of these.
    pub end_whole: u32,
}

impl KeyBlocks {
    /// Those of `rows` queries from `first_row` on, in blocks of `block` keys.
    #[inline(always)]
    #[must_use]
    pub fn new(band: Band, sequence: Sequence, first_row: u32, rows: u32, block: u32) -> Self {
        let diagonal = band.diagonal(sequence.queries, sequence.keys) + first_row as i32;
        let last_row = sequence.queries.wrapping_sub(first_row).min(rows).wrapping_sub(1);
        let top = band.visible(diagonal, sequence.keys);
        let bottom = band.visible(diagonal + last_row as i32, sequence.keys);
        Self {
            first: top.first / block,
            end: if bottom.end > top.first { bottom.end.div_ceil(block) } else { 0 },
            first_whole: bottom.first.div_ceil(block),
            end_whole: top.end / block,
        }
    }

    /// The same where sequences are not packed.
    #[inline(always)]
    #[must_use]
    pub fn of_dense(params: &AttentionParams, first_row: u32, rows: u32, block: u32) -> Self {
        let AttentionParams { queries, keys, band, .. } = *params;
        let sequence = Sequence { first_query: 0, queries, first_key: 0, keys, matrix: 0 };
        Self::new(band, sequence, first_row, rows, block)
    }

    /// How many they are.
    #[inline(always)]
    #[must_use]
    pub const fn count(self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// Whether some query does not see some key of the block.
    #[inline(always)]
    #[must_use]
    pub const fn is_partial(self, block: u32) -> bool {
        block < self.first_whole || block >= self.end_whole
    }
}

/// A tile of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// First query of the sequence.
    pub first_row: u32,
    /// Head of queries.
    pub head: u32,
    /// Sequence.
    pub batch: u32,
}

/// All tiles, in the order in which blocks take them: heads in sections whose keys and values fit in L2; in a
/// section the last queries first, which see the most keys under a causal mask.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    row_tiles: u32,
    heads: u32,
    all_heads: u32,
    section: u32,
    block_m: u32,
}

impl Tiles {
    /// The tiles of `block_m` queries.
    #[inline(always)]
    #[must_use]
    pub fn new(params: &AttentionParams, block_m: u32) -> Self {
        Self {
            row_tiles: params.queries.div_ceil(block_m).max(1),
            heads: params.heads.max(1),
            all_heads: params.heads * params.batch,
            section: params.section.max(1),
            block_m,
        }
    }

    /// How many there are.
    #[inline(always)]
    #[must_use]
    pub const fn count(self) -> u32 {
        self.row_tiles * self.all_heads
    }

    /// The tile of this number.
    #[inline(always)]
    #[must_use]
    pub fn get(self, number: u32) -> Tile {
        let per_section = (self.section * self.row_tiles).max(1);
        let section = number / per_section;
        let first = section * self.section;
        let width = if self.all_heads - first < self.section { self.all_heads - first } else { self.section };
        let number = number - section * per_section;
        let width = width.max(1);
        let (row, head) = (number / width, first + number % width);
        Tile {
            first_row: (self.row_tiles - 1 - row) * self.block_m,
            head: head % self.heads,
            batch: head / self.heads,
        }
    }
}

impl AttentionParams {
    /// The first row of a head's queries of a sequence among rows that are padded to whole tiles of `tile`
    /// queries: packed sequences begin at multiples of it.
    ///
    /// # Safety
    /// As for [`sequence`](Self::sequence).
    #[inline(always)]
    #[must_use]
    pub unsafe fn padded_row(&self, packing: Packing, batch: u32, head: u32, tile: u32) -> usize {
        let padded = self.padded_rows as usize;
        if packing.queries.is_null() {
            return (batch as usize * self.heads as usize + head as usize) * padded;
        }
        // SAFETY: the caller's word.
        let first = within(unsafe { *packing.queries.add(batch as usize) }, self.lse_rows);
        head as usize * padded + ((first / tile.max(1) + batch) * tile) as usize
    }
}

/// The queries that see a key: `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// First query, at most the number of queries.
    pub first: u32,
    /// End of the queries; at most `first` if none sees it.
    pub end: u32,
}

impl Band {
    /// The queries of a sequence that see this key. None sees one beyond the last.
    #[inline(always)]
    #[must_use]
    pub fn seen_by(self, sequence: Sequence, key: u32) -> Seen {
        let Sequence { queries, keys, .. } = sequence;
        // The query on whose diagonal the key lies.
        let query = key as i32 - self.diagonal(queries, keys);
        let end = if key < keys { within(query + self.left + 1, queries) } else { 0 };
        Seen { first: within(query - self.right, queries), end }
    }
}

/// The tiles of queries that see some key of a tile of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryBlocks {
    /// First tile.
    pub first: u32,
    /// End of the tiles; at most `first` if there is none.
    pub end: u32,
    /// First tile whose queries all see all keys.
    pub first_whole: u32,
    /// End of these.
    pub end_whole: u32,
}

impl QueryBlocks {
    /// Those of `keys` keys from `first_key` on, in tiles of `tile` queries.
    #[inline(always)]
    #[must_use]
    pub fn new(band: Band, sequence: Sequence, first_key: u32, keys: u32, tile: u32) -> Self {
        let last_key = sequence.keys.wrapping_sub(1).min(first_key + keys - 1);
        let (top, bottom) = (band.seen_by(sequence, first_key), band.seen_by(sequence, last_key));
        // Keys beyond the last are seen by none.
        let end_whole = if first_key + keys > sequence.keys { 0 } else { top.end / tile };
        Self {
            first: top.first / tile,
            end: if bottom.end > top.first { bottom.end.div_ceil(tile) } else { 0 },
            first_whole: bottom.first.div_ceil(tile),
            end_whole,
        }
    }

    /// How many they are.
    #[inline(always)]
    #[must_use]
    pub const fn count(self) -> u32 {
        self.end.saturating_sub(self.first)
    }

    /// Whether some query of the tile does not see some key.
    #[inline(always)]
    #[must_use]
    pub const fn is_partial(self, tile: u32) -> bool {
        tile < self.first_whole || tile >= self.end_whole
    }
}

/// A tile of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTile {
    /// First key of the sequence.
    pub first_key: u32,
    /// Head of keys.
    pub head: u32,
    /// Sequence.
    pub batch: u32,
}

/// All tiles of keys, in the order of blocks: heads in sections as [`Tiles`] has them; in a section the first
/// keys first, which the most queries see under a causal mask.
#[derive(Clone, Copy, Debug)]
pub struct KeyTiles {
    key_tiles: u32,
    heads: u32,
    all_heads: u32,
    section: u32,
    block_n: u32,
}

impl KeyTiles {
    /// The tiles of `block_n` keys.
    #[inline(always)]
    #[must_use]
    pub fn new(params: &AttentionParams, block_n: u32) -> Self {
        let heads = (params.heads / params.group.max(1)).max(1);
        Self {
            key_tiles: params.keys.div_ceil(block_n).max(1),
            heads,
            all_heads: heads * params.batch,
            section: (params.section / params.group.max(1)).max(1),
            block_n,
        }
    }

    /// How many there are.
    #[inline(always)]
    #[must_use]
    pub const fn count(self) -> u32 {
        self.key_tiles * self.all_heads
    }

    /// The tile of this number.
    #[inline(always)]
    #[must_use]
    pub fn get(self, number: u32) -> KeyTile {
        let per_section = (self.section * self.key_tiles).max(1);
        let section = number / per_section;
        let first = section * self.section;
        let width = self.all_heads.wrapping_sub(first).min(self.section).max(1);
        let number = number - section * per_section;
        let (key, head) = (number / width, first + number % width);
        KeyTile { first_key: key * self.block_n, head: head % self.heads, batch: head / self.heads }
    }
}

#[cfg(test)]
mod tests {
    use super::{AttentionParams, Band, Packing, Sequence};

    const PARAMS: AttentionParams = AttentionParams {
        batch: 4,
        heads: 1,
        group: 1,
        queries: 50,
        keys: 30,
        head_size: 64,
        lse_rows: 100,
        key_rows: 80,
        padded_rows: 0,
        output_row: 0,
        output_head: 0,
        output_matrix: 0,
        band: Band { left: 0, right: 0, top_left: 0 },
        scale: 1.0,
        section: 1,
    };

    /// Row numbers in the tensors and out of them, that rise and fall, of sequences shorter and longer than
    /// what was told.
    #[test]
    fn sequences_are_parts_of_the_tensors() {
        let queries = [-5, 20, 90, 10, i32::MAX];
        let keys = [i32::MAX, i32::MIN, 29, 60, 30];
        let packing = Packing { queries: queries.as_ptr(), keys: keys.as_ptr() };
        let want = [[0, 20, 80, 0], [20, 50, 0, 29], [90, 0, 29, 30], [10, 50, 60, 0]];
        for (batch, [first_query, queries, first_key, keys]) in (0..).zip(want) {
            // SAFETY: five numbers of each for four sequences.
            let got = unsafe { PARAMS.sequence(packing, batch) };
            assert_eq!(got, Sequence { first_query, queries, first_key, keys, matrix: 0 });
        }
        // SAFETY: no pointers.
        let own = unsafe { PARAMS.sequence(Packing::NONE, 3) };
        assert_eq!(own, Sequence { first_query: 0, queries: 50, first_key: 0, keys: 30, matrix: 3 });
    }
}
