//! What a launch multiplies, and which tiles a cluster takes.

use cuda_std::tma::TensorMap;
use cuda_std::{cluster, thread};
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
    /// Product of the batch.
    pub batch: u32,
}

/// The tiles of a cluster, one after the other.
#[derive(Clone, Copy)]
pub struct Walk {
    next: u32,
    step: u32,
    rows: u32,
    columns: u32,
    count: u32,
    band: u32,
}

impl Walk {
    /// This cluster's walk.
    #[inline(always)]
    pub fn new<C: Config>(problem: &Problem) -> Self {
        let rows = problem.m.div_ceil(C::BLOCK_M * C::CLUSTER_M);
        let columns = problem.n.div_ceil(C::BLOCK_N * C::CLUSTER_N);
        let (next, step) = if C::CLUSTER > 1 {
            (cluster::id()[0], cluster::count()[0])
        } else {
            (thread::block_idx_x(), thread::grid_dim_x())
        };
        Self { next, step, rows, columns, count: rows * columns * problem.batch, band: problem.band }
    }

    /// Leaves `tiles` tiles out.
    #[inline(always)]
    pub fn skip(&mut self, tiles: u32) {
        self.next += tiles * self.step;
    }

    /// Whether a tile is left.
    #[inline(always)]
    pub fn is_left(&self) -> bool {
        self.next < self.count
    }

    /// Whether another tile follows it.
    #[inline(always)]
    pub fn is_followed(&self) -> bool {
        self.next + self.step < self.count
    }

    /// Where the cluster's next tile begins, in tiles of a cluster.
    #[inline(always)]
    pub fn cluster_tile(&self) -> (u32, u32, u32) {
        let plane = self.rows * self.columns;
        // Without a batch no division.
        let batch = if self.count == plane { 0 } else { self.next / if plane == 0 { 1 } else { plane } };
        let (row, column) = grouped_tile(self.next - batch * plane, self.rows, self.columns, self.band);
        (row, column, batch)
    }
}

impl Problem {
    /// Stages' worth of k.
    #[inline(always)]
    pub fn k_tiles<C: Config>(&self) -> u32 {
        self.k.div_ceil(<C::Operands as Operands>::BLOCK_K)
    }
}
