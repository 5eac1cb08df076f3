//! Which tiles a block computes, and in which order.
//!
//! ```text
//!   PersistentScheduler     clusters 0, 1, 2 .. take tiles 0, 1, 2 .., then the next ones behind the grid's last
//!   raster group of 2       0 2 4 6     tiles that run at a time touch few rows and few columns,
//!                           1 3 5 7     so their operands meet in the L2 cache
//! ```

use cuda_std::{KernelArgs, misc};
use layout::grouped_tile;
use primitives::cluster::{Cluster, cluster_of_grid};

use super::config::{Clusters, Config};
use super::operands::Operands;

/// Shape of a product, as every kernel here gets it by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, KernelArgs)]
pub struct GemmShape {
    /// Rows of A. Tiles of the whole batch are counted in 32 bits.
    pub m: u32,
    /// Columns of B.
    pub n: u32,
    /// Columns of A, rows of B. At least 1.
    pub k: u32,
    /// Products: the third dimension of the operands' maps, 1 for one product.
    pub batch: u32,
    /// Rows of clusters' tiles in a raster group ([`layout::grouped_tile`]). At least 1.
    pub raster_group: u32,
    /// Where the batch is parts of products, the first one of each, then the second ones: from the first k of
    /// a part to that of the next, a multiple of a stage's. 0: it is a batch of products.
    pub part_k: u32,
    /// How many products are in parts then. At least 1.
    pub products: u32,
    /// Rows of the boxes of A's map, if it is contiguous along k: a multiple of 8 that divides a block's part
    /// of the tile, or at least m. Boxes outside of the matrix are left out, in any order of A. 0: a box is
    /// the part, and all come. Else boxes of an A that is contiguous along m, and that blocks do not share,
    /// are [`box_width`](primitives::tma::box_width) wide.
    pub box_m: u32,
    /// The same for B and n.
    pub box_n: u32,
    /// Columns of a block's tile in kernels of [`Config::NARROWS`]: a multiple of 8, and the result, if the
    /// copy engine stores it, has 16-bit elements or f32, and all of the product's columns. More than the
    /// tile has: all.
    pub tile_n: u32,
    /// Blocks of a cluster below and beside each other, in kernels of [`Config::ANY_CLUSTER`]: powers of two
    /// that [`Major::can_share`](primitives::tma::Major::can_share) allows B's and A's tile.
    pub cluster: [u32; 2],
}

impl GemmShape {
    /// A batch of products, each with its k in one piece, and with boxes that are a block's whole part.
    #[inline(always)]
    pub const fn new([m, n, k]: [u32; 3], batch: u32, raster_group: u32) -> Self {
        let (tile_n, cluster) = (u32::MAX, [1; 2]);
        Self { m, n, k, batch, raster_group, part_k: 0, products: 1, box_m: 0, box_n: 0, tile_n, cluster }
    }

    /// Where the operands of a tile begin: their k, and their matrices in the maps of A and of B.
    #[inline(always)]
    pub fn origin(&self, tile: TileCoord) -> (u32, [u32; 2]) {
        if self.part_k == 0 {
            (0, [tile.batch, tile.group])
        } else if self.products == 1 {
            (tile.batch * self.part_k, [0; 2])
        } else {
            // `max` is for the compiler, which sees a division by 0.
            let products = self.products.max(1);
            (tile.batch / products * self.part_k, [tile.batch % products; 2])
        }
    }

    /// Columns of a block's tile.
    #[inline(always)]
    pub fn columns<C: Config>(&self) -> u32 {
        if C::NARROWS { misc::opaque(self.tile_n).min(C::BLOCK_N) } else { C::BLOCK_N }
    }

    /// Stages' worth of k.
    #[inline(always)]
    pub fn k_tiles<C: Config>(&self) -> u32 {
        misc::opaque(self.k).div_ceil(<C::Operands as Operands>::BLOCK_K)
    }
}

/// Stages, of `k_tiles`, of the `index`-th share of k, which takes every [`Config::CLUSTER_K`]-th one. At
/// least one, of zeros where k ends before.
#[inline(always)]
pub(super) fn share<C: Config>(k_tiles: u32, index: u32) -> u32 {
    if C::CLUSTER_K == 1 { k_tiles } else { k_tiles.saturating_sub(index).div_ceil(C::CLUSTER_K).max(1) }
}

/// Where a block's tile is.
#[derive(Clone, Copy)]
pub struct TileCoord {
    /// First row.
    pub row: u32,
    /// First column.
    pub column: u32,
    /// Matrix of A and of the result.
    pub batch: u32,
    /// Matrix of B.
    pub group: u32,
    /// Behind the product's last row.
    pub end: u32,
    /// Behind the tile's last column, or the product's.
    pub right: u32,
    /// Whether the rows from `end` on are another product's.
    pub is_bounded: bool,
}

/// The tiles of a cluster, one after the other.
pub trait TileScheduler<C: Config>: Copy {
    /// Whether it reads memory to find its tiles, which earlier launches may still write.
    const READS: bool = false;

    /// Whether a tile is left. Asked before the tile is looked at.
    fn has_tile(&mut self) -> bool;

    /// Leaves `tiles` tiles out.
    fn advance(&mut self, tiles: u32);

    /// The tile of this block, which has a place in its cluster: rows, then columns.
    fn coord(&self, place: [u32; 2]) -> TileCoord;

    /// Stages of the tile, at least 1; of no meaning where none is left.
    #[inline(always)]
    fn k_tiles(&self, shape: &GemmShape) -> u32 {
        shape.k_tiles::<C>()
    }

    /// Whether another tile follows.
    #[inline(always)]
    fn is_followed(&self) -> bool {
        let mut next = *self;
        next.advance(1);
        next.has_tile()
    }
}

/// The tiles of the whole batch. Derived numbers are computed for each: registers are too few to keep them.
#[derive(Clone, Copy)]
pub struct PersistentScheduler {
    shape: GemmShape,
    next: u32,
}

impl PersistentScheduler {
    /// This cluster's.
    #[inline(always)]
    pub fn new<C: Config>(shape: &GemmShape) -> Self {
        let (next, _) = cluster_of_grid::<Clusters<C>>();
        Self { shape: *shape, next }
    }

    /// Rows and columns of clusters' tiles.
    #[inline(always)]
    fn sides<C: Config>(&self) -> [u32; 2] {
        let GemmShape { m, n, .. } = self.shape;
        let cluster = Clusters::<C>::of(&self.shape);
        // `max` is for the compiler, which sees a division by 0.
        let columns = misc::opaque(n).div_ceil(self.shape.columns::<C>().max(1));
        [of_clusters(misc::opaque(m).div_ceil(C::BLOCK_M), cluster.m()), of_clusters(columns, cluster.n())]
    }

    /// The tile's product of the batch, of planes of so many tiles.
    #[inline(always)]
    fn batch_of(&self, plane: u32) -> u32 {
        // Without a batch no division.
        if self.shape.batch == 1 { 0 } else { self.next / if plane == 0 { 1 } else { plane } }
    }

    /// The tile's product of the batch.
    #[inline(always)]
    pub fn batch<C: Config>(&self) -> u32 {
        let [rows, columns] = self.sides::<C>();
        self.batch_of(rows * columns)
    }
}

impl<C: Config> TileScheduler<C> for PersistentScheduler {
    #[inline(always)]
    fn has_tile(&mut self) -> bool {
        let [rows, columns] = self.sides::<C>();
        self.next < rows * columns * self.shape.batch
    }

    #[inline(always)]
    fn advance(&mut self, tiles: u32) {
        let (_, step) = cluster_of_grid::<Clusters<C>>();
        self.next += tiles * misc::opaque(step);
    }

    #[inline(always)]
    fn coord(&self, place: [u32; 2]) -> TileCoord {
        let [rows, columns] = self.sides::<C>();
        let plane = rows * columns;
        let batch = self.batch_of(plane);
        let group = misc::opaque(self.shape.raster_group);
        let GemmShape { m, n, .. } = self.shape;
        let width = self.shape.columns::<C>();
        let tile = grouped_tile(self.next - batch * plane, rows, columns, group);
        let cluster = Clusters::<C>::of(&self.shape);
        let [row, column] = first_of::<C>([cluster.m(), cluster.n()], tile, place, width);
        let right = if C::NARROWS { n.min(column + width) } else { n };
        TileCoord { row, column, batch, group: batch, end: m, right, is_bounded: false }
    }
}

/// How many clusters have so many tiles, each `across` of them: a power of two, so that kernels whose
/// clusters the launch shapes divide no numbers of the launch.
#[inline(always)]
const fn of_clusters(tiles: u32, across: u32) -> u32 {
    (tiles + across - 1) >> across.trailing_zeros()
}

/// First row and column of the tile, of so many columns, of the block at `place` in the cluster, `across`
/// blocks below and beside each other, that computes tile `tile`.
#[inline(always)]
pub(super) fn first_of<C: Config>(
    across: [u32; 2],
    tile: (u32, u32),
    place: [u32; 2],
    width: u32,
) -> [u32; 2] {
    [(tile.0 * across[0] + place[0]) * C::BLOCK_M, (tile.1 * across[1] + place[1]) * width]
}
