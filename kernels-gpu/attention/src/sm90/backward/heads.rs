//! Whole heads: whose turn is which, and when a part of dQ may be left.
//!
//! A block has the tiles of keys of one head after the other. Every other tile looks at its queries from the
//! last to the first, so what is used again soonest was used last, where it does not all stay in L2.
//!
//! Or two blocks share the tiles out, so that half as many heads are under way as there are blocks, and what
//! is used again stays in L2. Tiles of as many turns go to both in turn; under a causal mask the first one
//! has the most, and they go there and back:
//!
//! ```text
//!   block 0   tile 0 | tile 2 | tile 4 ...        0 | 3 | 4 | 7 ...
//!   block 1   tile 1 | tile 3 | tile 5 ...        1 | 2 | 5 | 6 ...
//! ```
//! Every tile looks at its queries from the last to the first then, and adds its part of dQ to that of the
//! tile before, which is the other block's as a rule, a turn ahead. Each block counts the turns whose parts
//! it has left. Two warps beside the producer's, one for each consumer, wait for the other block's count and
//! raise their own, as in [`order`](super::order).
//!
//! Both blocks run at the same time, since they are a cluster. A turn waits for turns of tiles before its own
//! alone, so none waits for ever.

use cuda_std::atomic::intrinsics::{atomic_fetch_add_release_u32_device, atomic_load_acquire_32_device};
use cuda_std::thread;
use cuda_std::warp::{FULL_MASK, sync_warp};

use super::arguments::Arguments;
use super::config::{BLOCK_N, Barrier, CONSUMERS, Config};
use super::queries::Part;
use super::work::{Turn, Work};
use crate::problem::{AttentionParams, Band, KeyBlocks, KeyTile, QueryBlocks, Sequence};

/// The tiles of keys of the heads of a block, or of a pair, one head after the other.
#[derive(Clone, Copy)]
pub(super) struct Tiles<'a> {
    params: &'a AttentionParams,
    /// The head, among those of all sequences.
    number: u32,
    first_key: u32,
    /// Tiles before this one, of all those heads.
    count: u32,
    /// Whether tiles of a head have more turns than others.
    is_uneven: bool,
}

/// A tile of keys with its sequence and its turns, and the tiles of queries that see it.
pub(super) type Tile = (Work, QueryBlocks);

impl<'a> Tiles<'a> {
    #[inline(always)]
    pub fn new<C: Config>(params: &'a AttentionParams) -> Self {
        let last = params.keys.saturating_sub(1) / BLOCK_N * BLOCK_N;
        let [first, last] = [0, last].map(|key| blocks::<C>(params, key).count());
        Self { params, number: pair::<C>(), first_key: 0, count: 0, is_uneven: first != last }
    }

    /// The tile; none behind the last one.
    #[inline(always)]
    fn get<C: Config>(self) -> Option<Tile> {
        let params = self.params;
        let heads = (params.heads / params.group.max(1)).max(1);
        if self.number >= heads * params.batch {
            return None;
        }
        let (head, batch) = (self.number % heads, self.number / heads);
        let tile = KeyTile { first_key: self.first_key, head, batch };
        let blocks = blocks::<C>(params, self.first_key);
        Some((Work { tile, sequence: sequence(params, batch), turns: blocks.count() * params.group }, blocks))
    }

    /// The block's next tile, from this one on.
    #[inline(always)]
    pub fn own<C: Config>(&mut self) -> Option<Tile> {
        while owner::<C>(self.count, self.is_uneven) != rank::<C>() {
            self.advance::<C>();
        }
        self.get::<C>()
    }

    /// One tile on.
    #[inline(always)]
    pub fn advance<C: Config>(&mut self) {
        self.count += 1;
        self.first_key += BLOCK_N;
        if self.first_key >= self.params.keys {
            self.first_key = 0;
            self.number += thread::grid_dim_x() / C::SHARERS;
        }
    }
}

/// Number of the block, or of its pair.
#[inline(always)]
fn pair<C: Config>() -> u32 {
    thread::block_idx_x() / C::SHARERS
}

/// Number of the block in its pair.
#[inline(always)]
fn rank<C: Config>() -> u32 {
    thread::block_idx_x() % C::SHARERS
}

/// Which block of the pair has a tile.
#[inline(always)]
const fn owner<C: Config>(count: u32, is_uneven: bool) -> u32 {
    (if is_uneven { count.div_ceil(2) } else { count }) % C::SHARERS
}

/// A sequence that is not packed.
#[inline(always)]
pub(super) const fn sequence(params: &AttentionParams, batch: u32) -> Sequence {
    Sequence { first_query: 0, queries: params.queries, first_key: 0, keys: params.keys, matrix: batch }
}

/// The tiles of queries that see the tile of keys that begins there.
#[inline(always)]
fn blocks<C: Config>(params: &AttentionParams, first_key: u32) -> QueryBlocks {
    QueryBlocks::new(params.band, sequence(params, 0), first_key, BLOCK_N, C::BLOCK_M)
}

/// A turn of a tile of keys.
#[derive(Clone, Copy)]
pub(super) struct OfTurn {
    /// The tile of queries.
    pub block: u32,
    /// The head among those that share the keys.
    pub of_group: u32,
    /// Whether some query does not see some key.
    is_partial: bool,
    /// Whether it is the last one.
    is_last: bool,
}

impl OfTurn {
    /// The tile's turn of this number.
    #[inline(always)]
    pub fn new<C: Config>((work, blocks): Tile, index: u32) -> Self {
        let is_forward = C::SHARERS == 1 && (work.tile.first_key / BLOCK_N).is_multiple_of(2);
        let turn = if is_forward { index } else { work.turns - 1 - index };
        let of_head = blocks.count().max(1);
        let (of_group, block) = (turn / of_head, blocks.first + turn % of_head);
        Self { block, of_group, is_partial: blocks.is_partial(block), is_last: index + 1 == work.turns }
    }

    /// The turn and its part of dQ, as consumers need to know them.
    #[inline(always)]
    pub fn tell<C: Config>(self, params: &AttentionParams, work: Work) -> (Turn, Part) {
        let (Self { block, of_group, is_partial, is_last }, Work { tile, sequence, .. }) = (self, work);
        let head = tile.head * params.group + of_group;
        let of_matrix = (tile.batch * params.heads + head) as usize * params.padded_rows as usize;
        let first_row = block * C::BLOCK_M;
        let turn = Turn { block, is_partial, is_last, head, row: of_matrix + first_row as usize };
        let [is_first, is_of_last] = ends::<C>(params.band, sequence, block, tile.first_key / BLOCK_N);
        let row = (pair::<C>() * params.group + of_group) * params.padded_rows + first_row;
        (turn, Part { row, block, head, is_first, is_last: is_of_last })
    }
}

/// Whether the part of dQ of a tile of queries that this tile of keys has is the first one, and the last one.
#[inline(always)]
fn ends<C: Config>(band: Band, sequence: Sequence, block: u32, key_tile: u32) -> [bool; 2] {
    let seen = KeyBlocks::new(band, sequence, block * C::BLOCK_M, C::BLOCK_M, BLOCK_N);
    [key_tile == seen.first, key_tile + 1 == seen.end]
}

/// How many turns of the other block of a pair are over when a part of dQ may be left. Numbers go round, as
/// counts do.
#[derive(Clone, Copy)]
struct Before {
    /// Its turns in tiles before this one.
    turns: u32,
    /// Its turns before this head.
    of_heads: u32,
    /// Of its last tile, for which these count too: tiles of queries of a head, and the first of them.
    of_head: u32,
    first: u32,
}

impl Before {
    const NONE: Self = Self { turns: 0, of_heads: 0, of_head: 0, first: 0 };

    /// A head begins.
    #[inline(always)]
    const fn begin_head(&mut self) {
        self.of_heads = self.turns;
    }

    /// The other block has this tile.
    #[inline(always)]
    fn pass(&mut self, (work, blocks): Tile) {
        self.turns = self.turns.wrapping_add(work.turns);
        (self.of_head, self.first) = (blocks.count(), blocks.first);
    }

    /// Those that a turn waits for, if its part comes to the sums. The first part takes the place of what
    /// heads before left there. The others follow that of the tile before, of this block or of the other one.
    #[inline(always)]
    fn of(self, turn: OfTurn, [is_first, is_last]: [bool; 2], is_own_before: bool) -> Option<u32> {
        if is_first && is_last {
            None
        } else if is_first || is_own_before {
            Some(self.of_heads)
        } else {
            // Back from the last queries: as many turns are left as there are tiles of queries before.
            let left = turn.of_group * self.of_head + turn.block - self.first;
            Some(self.turns.wrapping_sub(left))
        }
    }
}

/// Lets a consumer leave its parts of dQ, one after the other, each when its turn has come.
///
/// # Safety
/// A warp for each consumer calls it, with the consumer's number; the counts are as
/// [`Order`](crate::backward::order::Order) says, and both blocks of the pair run.
#[inline(always)]
pub(super) unsafe fn give_turns<C: Config>(arguments: Arguments<'_>, consumer: u32) {
    let Arguments { params, order, .. } = arguments;
    let count = |rank: u32| order.count(pair::<C>() as usize, rank * CONSUMERS + consumer);
    let (own, other) = (count(rank::<C>()), count(rank::<C>() ^ 1));
    let is_counting = thread::thread_idx_x().is_multiple_of(32);
    let mut tiles = Tiles::new::<C>(params);
    let mut before = Before::NONE;
    let mut is_own_before = false;
    while let Some(tile) = tiles.get::<C>() {
        if tiles.first_key == 0 {
            before.begin_head();
        }
        let is_own = owner::<C>(tiles.count, tiles.is_uneven) == rank::<C>();
        if is_own {
            let mut index = 0;
            while index < tile.0.turns {
                let turn = OfTurn::new::<C>(tile, index);
                let Work { tile: KeyTile { first_key, .. }, sequence, .. } = tile.0;
                let ends = ends::<C>(params.band, sequence, turn.block, first_key / BLOCK_N);
                let wanted = before.of(turn, ends, is_own_before);
                // SAFETY: the caller's contract.
                unsafe {
                    if let (true, Some(wanted)) = (is_counting, wanted) {
                        while !has_reached(atomic_load_acquire_32_device(other), wanted) {}
                    }
                    sync_warp(FULL_MASK);
                    Barrier::Turn(consumer).arrive();
                    Barrier::Added(consumer).sync();
                    if is_counting {
                        // Parts that the consumer's threads left come before the count.
                        atomic_fetch_add_release_u32_device(own, 1);
                    }
                }
                index += 1;
            }
        } else {
            before.pass(tile);
        }
        is_own_before = is_own;
        tiles.advance::<C>();
    }
}

/// Whether a count that goes round has come to a number that it is less than 2^31 turns away from.
#[inline(always)]
const fn has_reached(count: u32, wanted: u32) -> bool {
    count.wrapping_sub(wanted).cast_signed() >= 0
}

#[cfg(test)]
mod tests {
    use super::{Before, OfTurn, Tile, ends, owner};
    use crate::problem::{Band, KeyBlocks, KeyTile, QueryBlocks, Sequence};
    use crate::sm90::backward::config::{BLOCK_N, Config, Whole};
    use crate::sm90::backward::instances::{Bf16Head64, Bf16Head128};
    use crate::sm90::backward::order::tests::bands;
    use crate::sm90::backward::work::Work;

    /// Each tile of queries that some key is seen by has one first part and one last one, in the order of
    /// keys; the others are those that zeros are written for.
    fn check<C: Config>(band: Band, queries: u32, keys: u32) {
        let sequence = Sequence { first_query: 0, queries, first_key: 0, keys, matrix: 0 };
        let blocks = (0..keys.div_ceil(BLOCK_N))
            .map(|tile| QueryBlocks::new(band, sequence, tile * BLOCK_N, BLOCK_N, C::BLOCK_M));
        let blocks: Vec<_> = blocks.collect();
        for block in 0..queries.div_ceil(C::BLOCK_M) {
            let tiles = (0..).zip(&blocks).filter(|(_, of)| (of.first..of.end).contains(&block));
            let got: Vec<_> = tiles.map(|(tile, _)| ends::<C>(band, sequence, block, tile)).collect();
            let last = got.len().saturating_sub(1);
            let want: Vec<_> = (0..got.len()).map(|part| [part == 0, part == last]).collect();
            assert_eq!(got, want, "{band:?}, {queries} on {keys}, tile {block}");
            let seen = KeyBlocks::new(band, sequence, block * C::BLOCK_M, C::BLOCK_M, BLOCK_N);
            assert_eq!(got.is_empty(), seen.count() == 0, "{band:?}, {queries} on {keys}, tile {block}");
        }
    }

    #[test]
    fn parts_have_one_first_and_one_last() {
        for (band, queries, keys) in bands() {
            check::<Bf16Head64>(band, queries, keys);
            check::<Bf16Head128>(band, queries, keys);
        }
    }

    /// A turn of the block of this rank waits for that of the same queries in the tile before, if that is the
    /// other block's, and for nothing in its first head else.
    fn check_waits<C: Config>(band: Band, [queries, keys]: [u32; 2], rank: u32) {
        let sequence = Sequence { first_query: 0, queries, first_key: 0, keys, matrix: 0 };
        let tile = |first_key| {
            let blocks = QueryBlocks::new(band, sequence, first_key, BLOCK_N, C::BLOCK_M);
            let tile = KeyTile { first_key, head: 0, batch: 0 };
            (Work { tile, sequence, turns: blocks.count() }, blocks)
        };
        let tiles: Vec<Tile> = (0..keys.div_ceil(BLOCK_N)).map(|number| tile(number * BLOCK_N)).collect();
        let turns = |tile: Tile| (0..tile.0.turns).map(move |index| OfTurn::new::<C>(tile, index));
        let is_uneven = tiles[0].1.count() != tiles[tiles.len() - 1].1.count();
        let (mut before, mut others, mut is_own_before) = (Before::NONE, Vec::new(), false);
        for (number, &tile) in (0..).zip(&tiles) {
            let is_own = owner::<C>(number, is_uneven) == rank;
            if !is_own {
                before.pass(tile);
                others.extend(turns(tile).map(|turn| (number, turn.block)));
            }
            for turn in turns(tile).filter(|_| is_own) {
                let ends = ends::<C>(band, sequence, turn.block, number);
                let want = match ends {
                    [true, true] => None,
                    [false, _] if !is_own_before => {
                        let place = others.iter().position(|of| *of == (number - 1, turn.block));
                        Some(place.expect("the tile before sees the queries") as u32 + 1)
                    }
                    _ => Some(0),
                };
                let got = before.of(turn, ends, is_own_before);
                assert_eq!(got, want, "{band:?}, {queries} on {keys}, keys {number}, queries {}", turn.block);
            }
            is_own_before = is_own;
        }
    }

    #[test]
    fn turns_wait_for_the_tile_before() {
        for (band, queries, keys) in bands() {
            for rank in 0..Whole::<Bf16Head128>::SHARERS {
                check_waits::<Whole<Bf16Head128>>(band, [queries, keys], rank);
            }
        }
    }
}
