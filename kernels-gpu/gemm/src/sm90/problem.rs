//! What a launch multiplies, and which tiles a cluster takes.

use cuda_std::tma::TensorMap;
use cuda_std::{cluster, misc, thread};
use layout::grouped_tile;

use super::config::Config;
use super::operands::Operands;

/// Shape of a product, as every kernel here gets it by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Rows of A. Tiles of the whole batch are counted in 32 bits.
    pub m: u32,
    /// Columns of B.
    pub n: u32,
    /// Columns of A, rows of B. At least 1.
    pub k: u32,
    /// Products: the third dimension of the operands' maps, 1 for one product.
    pub batch: u32,
    /// Rows of clusters' tiles that are walked column by column before the next ones; at least 1. See
    /// [`layout::grouped_tile`].
    pub band: u32,
}

/// Maps of the operands and of the result.
///
/// | map | dimensions, the contiguous one first | box |
/// |---|---|---|
/// | `a`, `TRANS_A` 0 | k, m, batch | 128 bytes of k x `BLOCK_M / CLUSTER_N` x 1 |
/// | `a`, `TRANS_A` 1 | m, k, batch | 64 x 64 x 1 |
/// | `b`, `TRANS_B` 0 | k, n, batch | 128 bytes of k x `BLOCK_N / CLUSTER_M` x 1 |
/// | `b`, `TRANS_B` 1 | n, k, batch | 64 x 64 x 1 |
/// | `d` | n, m, batch | `STORE_COLUMNS` x 64 x 1 |
/// | `d`, transposed | m, n, batch | 64 x `STORE_COLUMNS` x 1 |
///
/// Swizzles are of 128 bytes (`d`: of the box's width; none for 16 bytes). `d` is looked at only when [`Output::copied`](super::store::Output::copied) says so.
#[derive(Clone, Copy)]
pub struct Maps {
    /// A.
    pub a: *const TensorMap,
    /// B.
    pub b: *const TensorMap,
    /// The result, for stores by the copy engine.
    pub d: *const TensorMap,
}

/// Where a block's tile begins.
#[derive(Clone, Copy)]
pub struct Corner {
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
    /// The rows from `end` on are another product's.
    pub is_bounded: bool,
}

/// The tiles of a cluster, one after the other.
pub trait Walk<C: Config>: Copy {
    /// Whether a tile is left. Asked before the tile is looked at.
    fn is_left(&mut self) -> bool;

    /// Leaves `tiles` tiles out.
    fn skip(&mut self, tiles: u32);

    /// Where the tile of this block begins, which has a place in its cluster: rows, then columns.
    fn corner(&self, place: [u32; 2]) -> Corner;

    /// Whether another tile follows.
    #[inline(always)]
    fn is_followed(&self) -> bool {
        let mut next = *self;
        next.skip(1);
        next.is_left()
    }
}

/// The tiles of the whole batch. What follows from the problem is computed for each: next to the accumulators there is no room to keep it.
#[derive(Clone, Copy)]
pub struct Tiles {
    problem: Problem,
    next: u32,
}

impl Tiles {
    /// This cluster's.
    #[inline(always)]
    pub fn new<C: Config>(problem: &Problem) -> Self {
        let (next, _) = cluster_of_grid::<C>();
        Self { problem: *problem, next }
    }

    /// Rows and columns of clusters' tiles.
    #[inline(always)]
    fn sides<C: Config>(&self) -> [u32; 2] {
        let Problem { m, n, .. } = self.problem;
        [
            misc::opaque(m).div_ceil(C::BLOCK_M * C::CLUSTER_M),
            misc::opaque(n).div_ceil(C::BLOCK_N * C::CLUSTER_N),
        ]
    }
}

/// Number of this block's cluster, and of clusters in the grid.
#[inline(always)]
pub(super) fn cluster_of_grid<C: Config>() -> (u32, u32) {
    if C::CLUSTER > 1 {
        (cluster::id()[0], cluster::count()[0])
    } else {
        (thread::block_idx_x(), thread::grid_dim_x())
    }
}

impl<C: Config> Walk<C> for Tiles {
    #[inline(always)]
    fn is_left(&mut self) -> bool {
        let [rows, columns] = self.sides::<C>();
        self.next < rows * columns * self.problem.batch
    }

    #[inline(always)]
    fn skip(&mut self, tiles: u32) {
        let (_, step) = cluster_of_grid::<C>();
        self.next += tiles * misc::opaque(step);
    }

    #[inline(always)]
    fn corner(&self, place: [u32; 2]) -> Corner {
        let [rows, columns] = self.sides::<C>();
        let plane = rows * columns;
        // Without a batch no division.
        let batch = if self.problem.batch == 1 { 0 } else { self.next / if plane == 0 { 1 } else { plane } };
        let band = misc::opaque(self.problem.band);
        let [row, column] =
            first_of::<C>(grouped_tile(self.next - batch * plane, rows, columns, band), place);
        Corner { row, column, batch, group: batch, end: self.problem.m, is_bounded: false }
    }
}

/// First row and column of the tile of the block at `place` in a cluster, which takes the `tile`-th part of the result.
#[inline(always)]
pub(super) fn first_of<C: Config>(tile: (u32, u32), place: [u32; 2]) -> [u32; 2] {
    [(tile.0 * C::CLUSTER_M + place[0]) * C::BLOCK_M, (tile.1 * C::CLUSTER_N + place[1]) * C::BLOCK_N]
}

impl Problem {
    /// Stages' worth of k.
    #[inline(always)]
    pub fn k_tiles<C: Config>(&self) -> u32 {
        misc::opaque(self.k).div_ceil(<C::Operands as Operands>::BLOCK_K)
    }

    /// How many of them the `index`-th share of k has, of which it takes every [`Config::CLUSTER_K`]-th: at least one, which is zero where k
    /// ends before.
    #[inline(always)]
    pub fn share<C: Config>(&self, index: u32) -> u32 {
        let all = self.k_tiles::<C>();
        if C::CLUSTER_K == 1 { all } else { all.saturating_sub(index).div_ceil(C::CLUSTER_K).max(1) }
    }
}
