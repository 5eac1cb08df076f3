//! Products of groups of rows ([`crate::groups`]), by the mainloop of all others.
//!
//! ```text
//!          A, C                      tile          rows of the tile behind the group's end are the next group's: they are loaded and
//!   g 0  | 0 1 1 1 .. |  128 rows    0, 1, ..      multiplied by the wrong matrix, and not stored. Whole tiles leave by the copy engine,
//!        | 2 3 3 3 .. |  70 rows     2, 3, ..      a group's last one by the threads.
//!   g 1  | 4 5 5 5 .. |  90 rows     4, 5, ..
//! ```
//! Tiles are 128 x 128, one consumer's: small, since they decide how much of the last wave is idle and what a
//! group's last tile wastes, and stores hide behind the other consumer's products. 128 x 256 by both is 8 %
//! slower on an H200 (8 groups of about 512 rows, n 4096, k 14336) to 2 % faster (n and k swapped).
//!
//! The host does not know the number of tiles at the launch. As many blocks as run at once count through the
//! groups, each for itself.

use layout::grouped_tile;
use primitives::cluster::cluster_of_grid;

use super::column_store::WIDE_PAIRS;
use super::config::{Clusters, Config, EpiloguePlan};
use super::epilogue::{Output, store_with};
use super::fusion::{Columns, FragmentCoord, Fusion, Pairs, StandardFusion};
use super::instances::{GemmArguments, Inputs};
use super::mainloop::{InAccumulators, run};
use super::operands::{Element16, Operands};
use super::tile_scheduler::{GemmShape, TileCoord, TileScheduler, first_of};
use crate::groups::Groups;

/// The tiles of all groups, group after group.
#[derive(Clone, Copy)]
pub struct GroupScheduler {
    groups: Groups,
    next: u32,
    step: u32,
    /// Number of the first tile of the group.
    first: u32,
    /// Rows and columns of tiles of the group.
    rows: u32,
    columns: u32,
    raster_group: u32,
    /// Behind the last column.
    right: u32,
}

impl GroupScheduler {
    /// This cluster's, of a product of `groups`.
    #[inline(always)]
    pub fn new<C: Config>(shape: &GemmShape, groups: Groups) -> Self {
        let (next, step) = cluster_of_grid::<Clusters<C>>();
        let columns = shape.n.div_ceil(C::BLOCK_N * C::CLUSTER_N);
        let GemmShape { raster_group, n: right, .. } = *shape;
        Self { groups, next, step, first: 0, rows: 0, columns, raster_group, right }
    }
}

impl<C: Config> TileScheduler<C> for GroupScheduler {
    const READS: bool = true;

    #[inline(always)]
    fn has_tile(&mut self) -> bool {
        while self.next - self.first >= self.rows * self.columns {
            let tiles = self.rows * self.columns;
            // SAFETY: the offsets are the launch's.
            let Some(group) = (unsafe { self.groups.next() }) else { return false };
            self.first += tiles;
            self.rows = (group.end - group.begin).div_ceil(C::BLOCK_M * C::CLUSTER_M);
        }
        true
    }

    #[inline(always)]
    fn advance(&mut self, tiles: u32) {
        self.next += tiles * self.step;
    }

    #[inline(always)]
    fn coord(&self, place: [u32; 2]) -> TileCoord {
        let group = self.groups.last();
        let tile = grouped_tile(self.next - self.first, self.rows, self.columns, self.raster_group);
        let [row, column] = first_of::<C>([C::CLUSTER_M, C::CLUSTER_N], tile, place, C::BLOCK_N);
        TileCoord {
            row: group.begin + row,
            column,
            batch: 0,
            group: group.index,
            end: group.end,
            right: self.right,
            is_bounded: true,
        }
    }
}

/// The family's fusion, with scales and a bias of each group.
struct GroupFusion<'a, H> {
    fusion: StandardFusion<'a, H>,
    /// Columns of the product.
    n: u32,
}

impl<H> Clone for GroupFusion<'_, H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for GroupFusion<'_, H> {}

impl<H: Element16> Fusion for GroupFusion<'_, H> {
    #[inline(always)]
    unsafe fn enter(&mut self, group: u32) {
        self.fusion.enter_group(group, self.n);
    }

    #[inline(always)]
    unsafe fn prepare(&mut self, columns: Columns, thread: u32) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.fusion.prepare(columns, thread) }
    }

    #[inline(always)]
    unsafe fn apply<const N: usize>(&mut self, at: FragmentCoord, x: &mut Pairs<N>) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.fusion.apply(at, x) }
    }

    const BY_COLUMN: bool = true;

    #[inline(always)]
    unsafe fn factor(&self) -> f32 {
        // SAFETY: the caller's contract is the same.
        unsafe { self.fusion.factor() }
    }

    #[inline(always)]
    unsafe fn apply_by_column(
        &mut self,
        factor: f32,
        vector: u32,
        x: &mut Pairs<WIDE_PAIRS>,
        source: impl Fn() -> Pairs<WIDE_PAIRS>,
    ) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.fusion.apply_by_column(factor, vector, x, source) }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.fusion.finish() }
    }
}

/// Products of groups of rows. The shape's `m` is the rows of all groups, and its batch 1.
///
/// # Safety
/// As [`run`], with what the arguments describe: maps of A and of the result for one matrix and of B for one
/// of each group.
#[inline(always)]
pub(super) unsafe fn grouped<C: Config<Stored = <C as Config>::Tile, EpiloguePlan = EpiloguePlan<C>>>(
    inputs: Inputs<'_>,
) {
    let Inputs { maps, arguments, data, offsets, .. } = inputs;
    let GemmArguments { shape, output, epilogue, groups, .. } = arguments;
    let output = Output::new(data, output);
    let fusion: StandardFusion<'_, <C::Operands as Operands>::Element16> =
        StandardFusion::new(epilogue, output);
    let fusion = GroupFusion { fusion, n: shape.n };
    let scheduler = GroupScheduler::new::<C>(shape, Groups::new(offsets, groups, shape.m));
    // SAFETY: the caller's contract.
    unsafe {
        run::<C, _, _, _>(maps, *shape, scheduler, InAccumulators, store_with(maps, *shape, output, fusion))
    }
}
