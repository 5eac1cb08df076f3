//! Stream-K (Osama et al., 2023): where tiles do not make whole waves, the stages of some of them are dealt
//! out evenly to all clusters, so that none is idle in the last wave.
//!
//! ```text
//!   tiles of 6 stages      | tile 0    | tile 1    | tile 2    |     3 cut tiles for 4 clusters: 18 stages
//!   shares, by unit        |000000000|000000000|00000000|00000000|   5, 5, 4, 4
//!                            unit 0    unit 1    unit 2   unit 3     ticket 3, 2, 1, 0
//!
//!   unit 0   all but the last stage of tile 0: stores it, when it has unit 1's sums
//!   unit 1   the end of tile 0: hands its sums over; then the beginning of tile 1, which it stores
//! ```
//! * **Cut tiles** are the first ones: a wave of them and what is left over, so that a share is one to two
//!   tiles long; all of them where they are fewer than clusters. Clusters begin with their share. Whole tiles
//!   follow, wave after wave, in which clusters that had to wait catch up.
//! * **A tile is stored by the unit that has its first stage.** That is the last piece of its share, and the
//!   others are the first ones of theirs: their sums have mostly come by then.
//! * **Sums** of the others go through memory in f32 ([`Partials`]), one tile a unit at most, and are added
//!   in ascending order of k. So results repeat bit for bit; they depend on the number of clusters.
//! * **Units are given out as clusters begin**, the highest one first: each takes a ticket. So a cluster waits
//!   for clusters that have begun, and a piece for which others wait is the first of its unit. Nothing waits
//!   for ever, in whichever order blocks begin and however few run at once.

use cuda_std::{KernelArgs, cluster, misc, shared, thread, vector};
use primitives::cluster::cluster_of_grid;

use super::config::{Block, Config, Of, Plan, WARPGROUP};
use super::partials::{Partials, Piece};
use super::tile_scheduler::{GemmShape, PersistentScheduler, Segment, TileCoord, TileScheduler};

/// How tiles are cut. A unit is a cluster of the grid; all of them have a share.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct StreamK {
    /// Tiles that are cut: the first ones. 0 for none.
    pub tiles: u32,
    /// Stages of a share.
    pub stages: u32,
    /// Shares that have one more: the first ones.
    pub longer: u32,
}

impl StreamK {
    /// All tiles are whole.
    pub const NONE: Self = Self { tiles: 0, stages: 0, longer: 0 };

    /// The first `tiles` tiles, of `k_tiles` stages each, in `units` shares. Each has a stage: there are 1 to
    /// `tiles * k_tiles` units, which is less than 2^31.
    #[must_use]
    pub const fn new(tiles: u32, k_tiles: u32, units: u32) -> Self {
        let all = tiles * k_tiles;
        Self { tiles, stages: all / units, longer: all % units }
    }

    /// The unit of the cluster with this ticket, of so many.
    #[inline(always)]
    #[must_use]
    pub const fn unit(ticket: u32, clusters: u32) -> u32 {
        clusters - 1 - ticket
    }

    /// First stage of a unit's share, among the stages of all cut tiles. Behind the last unit their number.
    #[inline(always)]
    #[must_use]
    pub const fn begin(self, unit: u32) -> u32 {
        unit * self.stages + if unit < self.longer { unit } else { self.longer }
    }

    /// The first tile of which a unit has a piece.
    #[inline(always)]
    #[must_use]
    pub const fn first_tile(self, unit: u32, k_tiles: u32) -> u32 {
        // `max` is for the compiler, which sees a division by 0.
        self.begin(unit) / if k_tiles == 0 { 1 } else { k_tiles }
    }

    /// Does the unit's share go on behind this tile, of which it has a piece?
    #[inline(always)]
    #[must_use]
    pub const fn goes_on(self, unit: u32, tile: u32, k_tiles: u32) -> bool {
        (tile + 1) * k_tiles < self.begin(unit + 1)
    }

    /// Does the unit store this tile, of which it has a piece? It has the first stage then.
    #[inline(always)]
    #[must_use]
    pub const fn stores(self, unit: u32, tile: u32, k_tiles: u32) -> bool {
        self.begin(unit) <= tile * k_tiles
    }

    /// The stages of this tile that the unit has, which has some.
    #[inline(always)]
    #[must_use]
    pub const fn segment(self, unit: u32, tile: u32, k_tiles: u32) -> Segment {
        let first = self.begin(unit).saturating_sub(tile * k_tiles);
        let end = self.begin(unit + 1) - tile * k_tiles;
        Segment { first, end: if end < k_tiles { end } else { k_tiles } }
    }

    /// Has this unit, behind the one that stores the tile, a piece of it too? Then so have those in between.
    #[inline(always)]
    #[must_use]
    pub const fn adds(self, unit: u32, tile: u32, k_tiles: u32) -> bool {
        self.begin(unit) < (tile + 1) * k_tiles
    }
}

/// A cluster's share of the cut tiles, then its whole tiles. As of [`PersistentScheduler`], derived numbers
/// are computed for each.
#[derive(Clone, Copy)]
pub struct StreamKScheduler {
    /// At the number of the tile. Whole ones go on as ever.
    tiles: PersistentScheduler,
    cut: StreamK,
    partials: Partials,
}

impl StreamKScheduler {
    /// This cluster's. `partials` is looked at where tiles are cut.
    #[inline(always)]
    pub fn new<C: Config>(shape: &GemmShape, cut: StreamK, partials: Partials) -> Self {
        const { assert!(C::CLUSTER_K == 1, "one way to cut k at a time") };
        Self { tiles: PersistentScheduler::new::<C>(shape), cut, partials }
    }

    /// This cluster's unit, once [`begin`](TileScheduler::begin) has found it. It waits in shared memory,
    /// where it takes no register.
    #[inline(always)]
    fn unit<C: Config>() -> u32 {
        let base = shared::address_of(shared::dynamic_shared_mem::<u8>());
        // SAFETY: `begin` has written it, in front of a barrier.
        unsafe { vector::load_shared(Plan::<C>::new(misc::opaque(base)).unit(0)) }
    }

    /// Is the tile one of those that are cut?
    #[inline(always)]
    const fn is_cut(&self) -> bool {
        self.tiles.next < self.cut.tiles
    }
}

impl<C: Config> TileScheduler<C> for StreamKScheduler {
    const CUTS: bool = true;

    #[inline(always)]
    unsafe fn begin(&self, block: Block<C>, thread: u32) {
        if self.cut.tiles == 0 {
            return;
        }
        // SAFETY: all threads of the cluster are here. One writes the unit for all its blocks, in front of a
        // barrier of all of them; they live until they meet again.
        unsafe {
            let place = block.shared.unit(0);
            if thread == 0 && (C::CLUSTER == 1 || cluster::block_rank() == 0) {
                let (_, clusters) = cluster_of_grid::<Of<C>>();
                let unit = StreamK::unit(self.partials.take_ticket(clusters), clusters);
                if C::CLUSTER == 1 {
                    vector::store_shared(place, unit);
                } else {
                    let mut rank = 0;
                    while rank < C::CLUSTER {
                        cluster::store_shared(cluster::map_shared(place, rank), unit);
                        rank += 1;
                    }
                }
            }
            if C::CLUSTER == 1 {
                thread::sync_threads();
            } else {
                cluster::sync();
            }
        }
    }

    #[inline(always)]
    fn enter(&mut self) {
        if self.cut.tiles > 0 {
            self.tiles.next = self.cut.first_tile(Self::unit::<C>(), self.tiles.shape.k_tiles::<C>());
        }
    }

    #[inline(always)]
    fn has_tile(&mut self) -> bool {
        TileScheduler::<C>::has_tile(&mut self.tiles)
    }

    #[inline(always)]
    fn advance(&mut self, tiles: u32) {
        let mut left = tiles;
        while left > 0 && self.is_cut() {
            let goes_on =
                self.cut.goes_on(Self::unit::<C>(), self.tiles.next, self.tiles.shape.k_tiles::<C>());
            self.tiles.next =
                if goes_on { self.tiles.next + 1 } else { self.cut.tiles + cluster_of_grid::<Of<C>>().0 };
            left -= 1;
        }
        if left > 0 {
            TileScheduler::<C>::advance(&mut self.tiles, left);
        }
    }

    #[inline(always)]
    fn coord(&self, place: [u32; 2]) -> TileCoord {
        TileScheduler::<C>::coord(&self.tiles, place)
    }

    #[inline(always)]
    fn segment(&self, k_tiles: u32) -> Segment {
        if self.is_cut() {
            self.cut.segment(Self::unit::<C>(), self.tiles.next, k_tiles)
        } else {
            Segment { first: 0, end: k_tiles }
        }
    }

    #[inline(always)]
    fn stores(&self) -> bool {
        !self.is_cut() || self.cut.stores(Self::unit::<C>(), self.tiles.next, self.tiles.shape.k_tiles::<C>())
    }

    #[inline(always)]
    fn derive_again(&mut self, nothing: u32) {
        self.tiles.next += nothing;
    }

    #[inline(always)]
    unsafe fn complete(&self, sums: &mut C::Stored, block: Block<C>, thread: u32) {
        if !self.is_cut() {
            return;
        }
        let (cut, tile, k_tiles) = (self.cut, self.tiles.next, self.tiles.shape.k_tiles::<C>());
        let (unit, thread) = (Self::unit::<C>(), misc::opaque(thread));
        let piece = Piece::<C>::new(block.coord, thread / WARPGROUP, thread % WARPGROUP);
        // SAFETY: the whole warpgroup is here; the unit hands over one piece at most, that of the only tile
        // that it has begun in the middle of. Those that are waited for come, in every unit that has some.
        unsafe {
            if cut.stores(unit, tile, k_tiles) {
                let mut other = unit + 1;
                while cut.adds(other, tile, k_tiles) {
                    self.partials.add(piece, other, sums);
                    other += 1;
                }
            } else {
                self.partials.hand_over(piece, unit, sums);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StreamK;

    /// The pieces of a unit: tile, first stage, end.
    fn pieces(cut: StreamK, unit: u32, k_tiles: u32) -> Vec<(u32, u32, u32)> {
        let mut pieces = Vec::new();
        let mut tile = cut.first_tile(unit, k_tiles);
        loop {
            let segment = cut.segment(unit, tile, k_tiles);
            pieces.push((tile, segment.first, segment.end));
            if !cut.goes_on(unit, tile, k_tiles) {
                return pieces;
            }
            tile += 1;
        }
    }

    fn check(tiles: u32, k_tiles: u32, units: u32) {
        let what = format!("{tiles} tiles of {k_tiles} in {units}");
        let cut = StreamK::new(tiles, k_tiles, units);
        let mut seen = vec![0; (tiles * k_tiles) as usize];
        let mut stored = vec![0; tiles as usize];
        let (mut least, mut most) = (u32::MAX, 0);
        for ticket in 0..units {
            let unit = StreamK::unit(ticket, units);
            let mut stages = 0;
            for (index, &(tile, first, end)) in pieces(cut, unit, k_tiles).iter().enumerate() {
                assert!(tile < tiles && first < end && end <= k_tiles, "{what}: {tile} {first} {end}");
                (first..end).for_each(|stage| seen[(tile * k_tiles + stage) as usize] += 1);
                stages += end - first;
                let stores = cut.stores(unit, tile, k_tiles);
                assert_eq!(stores, first == 0, "{what}");
                // One piece is handed over at most, and it waits for nothing.
                assert!(stores || index == 0, "{what}");
                if !stores {
                    continue;
                }
                stored[tile as usize] += 1;
                // Those whose sums it adds have the rest of the tile, in order; they have begun before.
                let mut next = end;
                let mut other = unit + 1;
                while cut.adds(other, tile, k_tiles) {
                    assert!(other < units && units - 1 - other < ticket, "{what}");
                    let (of, first, end) = pieces(cut, other, k_tiles)[0];
                    assert_eq!((of, first), (tile, next), "{what}");
                    next = end;
                    other += 1;
                }
                assert_eq!(next, k_tiles, "{what}: tile {tile}");
            }
            (least, most) = (least.min(stages), most.max(stages));
        }
        assert!(seen.iter().all(|&times| times == 1), "{what}: {seen:?}");
        assert!(stored.iter().all(|&times| times == 1), "{what}: {stored:?}");
        assert!(most - least <= 1, "{what}: {least} to {most} stages");
        assert_eq!(cut.begin(units), tiles * k_tiles, "{what}");
    }

    #[test]
    fn every_stage_is_summed_once_and_every_tile_stored_once() {
        for tiles in 1..9 {
            for k_tiles in 1..9 {
                (1..=(tiles * k_tiles).min(12)).for_each(|units| check(tiles, k_tiles, units));
            }
        }
    }

    #[test]
    fn the_picture_in_the_documentation() {
        let cut = StreamK::new(3, 6, 4);
        assert_eq!(pieces(cut, 0, 6), [(0, 0, 5)]);
        assert_eq!(pieces(cut, 1, 6), [(0, 5, 6), (1, 0, 4)]);
        assert_eq!(pieces(cut, 2, 6), [(1, 4, 6), (2, 0, 2)]);
        assert_eq!(pieces(cut, 3, 6), [(2, 2, 6)]);
    }

    /// As many clusters as an H200 has, and more tiles than those.
    #[test]
    fn large_grids() {
        for tiles in [1, 7, 64, 131, 132, 133, 200, 263] {
            for k_tiles in [17, 64, 255] {
                check(tiles, k_tiles, 132.min(tiles * k_tiles));
                check(tiles, k_tiles, 66.min(tiles * k_tiles));
            }
        }
    }
}
