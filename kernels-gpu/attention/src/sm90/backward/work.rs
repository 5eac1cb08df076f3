//! The work of a block: found once, and told to all its threads through shared memory.

use cuda_std::vector;

use super::arguments::Arguments;
use super::config::{BLOCK_N, Config};
use crate::problem::{KeyTile, KeyTiles, QueryBlocks, Sequence};

/// A block's tile of keys, with its sequence.
#[derive(Clone, Copy)]
pub struct Work {
    /// The tile.
    pub tile: KeyTile,
    /// The sequence.
    pub sequence: Sequence,
}

impl Work {
    /// That of the tile of this number.
    ///
    /// # Safety
    /// As for [`AttentionParams::sequence`](crate::problem::AttentionParams::sequence).
    #[inline(always)]
    pub unsafe fn new(number: u32, arguments: &Arguments<'_>) -> Self {
        let tile = KeyTiles::new(arguments.params, BLOCK_N).get(number);
        // SAFETY: the caller's contract.
        let sequence = unsafe { arguments.params.sequence(arguments.packing, tile.batch) };
        Self { tile, sequence }
    }

    /// Writes it to shared memory.
    ///
    /// # Safety
    /// The address is that of [`Words`](super::config::Words), which nothing else uses yet.
    #[inline(always)]
    pub unsafe fn tell(self, to: u32) {
        let Self { tile: KeyTile { first_key, head, batch }, sequence } = self;
        let Sequence { first_query, queries, first_key: key_row, keys, matrix } = sequence;
        // SAFETY: the caller's contract.
        unsafe {
            vector::store_shared_v4(to, [first_key, head, batch, matrix]);
            vector::store_shared_v4(to + layout::UNIT_BYTES, [first_query, queries, key_row, keys]);
        }
    }

    /// Reads it there.
    ///
    /// # Safety
    /// It has been told, and the block has met since.
    #[inline(always)]
    pub unsafe fn told(from: u32) -> Self {
        // SAFETY: the caller's contract.
        let ([first_key, head, batch, matrix], [first_query, queries, key_row, keys]): ([u32; 4], [u32; 4]) =
            unsafe { (vector::load_shared_v4(from), vector::load_shared_v4(from + layout::UNIT_BYTES)) };
        let sequence = Sequence { first_query, queries, first_key: key_row, keys, matrix };
        Self { tile: KeyTile { first_key, head, batch }, sequence }
    }

    /// Whether the tile has keys: some tiles lie beyond the end of their sequence.
    #[inline(always)]
    pub const fn has_keys(self) -> bool {
        self.tile.first_key < self.sequence.keys
    }

    /// The tiles of queries that see its keys.
    #[inline(always)]
    pub fn blocks<C: Config>(self, arguments: &Arguments<'_>) -> QueryBlocks {
        QueryBlocks::new(arguments.params.band, self.sequence, self.tile.first_key, BLOCK_N, C::BLOCK_M)
    }
}
