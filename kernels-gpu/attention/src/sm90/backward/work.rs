//! The work of a block: found once, and told to all its threads through shared memory; and its turns, a tile
//! of queries each, of which the producer tells with the tile.

use cuda_std::{cluster, vector};
use layout::UNIT_BYTES;

use super::arguments::Arguments;
use super::config::{BLOCK_N, Config};
use crate::block_lists::{Listing, Walk};
use crate::problem::{KeyTile, KeyTiles, QueryBlocks, Sequence};

/// A block's tile of keys, with its sequence.
#[derive(Clone, Copy)]
pub struct Work {
    /// The tile.
    pub tile: KeyTile,
    /// The sequence.
    pub sequence: Sequence,
    /// How many tiles of queries the block looks at, of all heads that share the keys.
    pub turns: u32,
}

impl Work {
    /// That of the tile of this number; in a fixed order the last tile of a head comes first.
    ///
    /// # Safety
    /// As for [`AttentionParams::sequence`](crate::problem::AttentionParams::sequence) and [`Walk::of`].
    #[inline(always)]
    pub unsafe fn new<C: Config>(number: u32, arguments: &Arguments<'_>) -> Self {
        let params = arguments.params;
        let mut tile = KeyTiles::new(params, BLOCK_N).get(number);
        if arguments.order.is_fixed() {
            let last = params.keys.saturating_sub(1) / BLOCK_N * BLOCK_N;
            tile.first_key = last - tile.first_key;
        }
        // SAFETY: the caller's contract.
        unsafe {
            let sequence = params.sequence(arguments.packing, tile.batch);
            let mut work = Self { tile, sequence, turns: 0 };
            if work.has_keys() {
                let mut head = 0;
                while head < params.group {
                    work.turns += work.walk::<C>(arguments, tile.head * params.group + head).count;
                    head += 1;
                }
            }
            work
        }
    }

    /// Writes it to shared memory.
    ///
    /// # Safety
    /// The address is that of [`Words`](super::config::Words), which nothing else uses yet.
    #[inline(always)]
    pub unsafe fn tell(self, to: u32) {
        let [first, second] = self.words();
        // SAFETY: the caller's contract.
        unsafe {
            vector::store_shared_v4(to, first);
            vector::store_shared_v4(to + UNIT_BYTES, second);
            vector::store_shared(to + 2 * UNIT_BYTES, self.turns);
        }
    }

    /// Writes it to the shared memory of a block of the cluster.
    ///
    /// # Safety
    /// As for [`tell`](Self::tell), for an address in the cluster's window; that block has begun.
    #[inline(always)]
    pub unsafe fn tell_block(self, to: u32) {
        let [first, second] = self.words();
        // SAFETY: the caller's contract.
        unsafe {
            cluster::store_shared_v4(to, first);
            cluster::store_shared_v4(to + UNIT_BYTES, second);
            cluster::store_shared(to + 2 * UNIT_BYTES, self.turns);
        }
    }

    /// All but the turns.
    #[inline(always)]
    const fn words(self) -> [[u32; 4]; 2] {
        let Self { tile: KeyTile { first_key, head, batch }, sequence, .. } = self;
        let Sequence { first_query, queries, first_key: key_row, keys, matrix } = sequence;
        [[first_key, head, batch, matrix], [first_query, queries, key_row, keys]]
    }

    /// Reads it there.
    ///
    /// # Safety
    /// It has been told, and the block has met since.
    #[inline(always)]
    pub unsafe fn told(from: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let [first_key, head, batch, matrix]: [u32; 4] = vector::load_shared_v4(from);
            let [first_query, queries, key_row, keys]: [u32; 4] = vector::load_shared_v4(from + UNIT_BYTES);
            let sequence = Sequence { first_query, queries, first_key: key_row, keys, matrix };
            let turns = vector::load_shared(from + 2 * UNIT_BYTES);
            Self { tile: KeyTile { first_key, head, batch }, sequence, turns }
        }
    }

    /// Whether the tile has keys: some tiles lie beyond the end of their sequence.
    #[inline(always)]
    pub const fn has_keys(self) -> bool {
        self.tile.first_key < self.sequence.keys
    }

    /// The tiles of queries that see its keys by the band.
    #[inline(always)]
    pub fn blocks<C: Config>(self, arguments: &Arguments<'_>) -> QueryBlocks {
        QueryBlocks::new(arguments.params.band, self.sequence, self.tile.first_key, BLOCK_N, C::BLOCK_M)
    }

    /// The tiles of queries of a head that the block looks at.
    ///
    /// # Safety
    /// As for [`Walk::of`].
    #[inline(always)]
    pub unsafe fn walk<C: Config>(self, arguments: &Arguments<'_>, head: u32) -> Walk<QueryBlocks> {
        let KeyTile { first_key, batch, .. } = self.tile;
        let of = Listing { tile: first_key / BLOCK_N, head, batch };
        // SAFETY: the caller's contract.
        unsafe { Walk::of(self.blocks::<C>(arguments), &arguments.lists, of) }
    }
}

/// A tile of queries, in shared memory for as long as its stage is full. Consumers read what they need where
/// they need it: in registers it would be in the way of the products.
#[derive(Clone, Copy)]
pub struct Ticket {
    address: u32,
}

/// A tile of queries, as a [`Ticket`] tells of it.
#[derive(Clone, Copy)]
pub struct Turn {
    /// The tile of its head.
    pub block: u32,
    /// Whether some query does not see some key.
    pub is_partial: bool,
    /// Whether the block has no further turn.
    pub is_last: bool,
    /// The head of queries.
    pub head: u32,
    /// The tile's first row among all padded rows.
    pub row: usize,
}

impl Ticket {
    /// That at this address.
    #[inline(always)]
    pub const fn at(address: u32) -> Self {
        Self { address }
    }

    /// Writes it.
    ///
    /// # Safety
    /// The address is that of [`TicketWords`](super::config::TicketWords), of a stage that is empty.
    #[inline(always)]
    pub unsafe fn write(self, turn: Turn) {
        let Turn { block, is_partial, is_last, head, row } = turn;
        let flags = block << 2 | u32::from(is_partial) << 1 | u32::from(is_last);
        // SAFETY: the caller's contract.
        unsafe { vector::store_shared_v4(self.address, [flags, head, row as u32, (row as u64 >> 32) as u32]) }
    }

    /// Reads it.
    ///
    /// # Safety
    /// The stage is full.
    #[inline(always)]
    pub unsafe fn read(self) -> Turn {
        // SAFETY: the caller's contract.
        let [flags, head, low, high]: [u32; 4] = unsafe { vector::load_shared_v4(self.address) };
        let row = (u64::from(high) << 32 | u64::from(low)) as usize;
        Turn { block: flags >> 2, is_partial: flags & 2 != 0, is_last: flags & 1 != 0, head, row }
    }
}
