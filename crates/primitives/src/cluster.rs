//! A block's place in its cluster, and whom it shares operands with.
//!
//! A cluster is a box of M x N x K blocks. Blocks of a row (the same m) share rows of the left operand,
//! blocks of a column (the same n) columns of the right one, and blocks along k take a share of k each. Ranks
//! count m first, then n, then k.

use core::marker::PhantomData;

use cuda_std::{cluster, thread};

/// The shape of a cluster.
pub trait ClusterShape {
    /// Blocks below each other.
    const M: u32;
    /// Blocks beside each other.
    const N: u32;
    /// Blocks that share k out.
    const K: u32;
    /// Blocks of a cluster.
    const BLOCKS: u32 = Self::M * Self::N * Self::K;
    /// Blocks whose multicast copies write a block's shared memory, itself included: its row's and its
    /// column's.
    const PEERS: u32 = Self::M + Self::N - 1;
}

/// Where a block is in its cluster.
pub struct ClusterCoord<S> {
    /// Its row.
    pub row: u32,
    /// Its column.
    pub column: u32,
    /// Its share of k.
    pub share: u32,
    shape: PhantomData<fn() -> S>,
}

impl<S> Clone for ClusterCoord<S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for ClusterCoord<S> {}

impl<S: ClusterShape> ClusterCoord<S> {
    /// That of this block.
    #[inline(always)]
    #[must_use]
    pub fn this() -> Self {
        Self::of_rank(if S::BLOCKS > 1 { cluster::block_rank() } else { 0 })
    }

    /// That of the block with this rank.
    #[inline(always)]
    #[must_use]
    pub const fn of_rank(rank: u32) -> Self {
        Self { row: rank % S::M, column: rank / S::M % S::N, share: rank / (S::M * S::N), shape: PhantomData }
    }

    /// Rank of the `index`-th of the block's [peers](ClusterShape::PEERS): those of its column, then those of
    /// its row without itself. Of its own share of k, which is the only one where blocks share operands.
    #[inline(always)]
    #[must_use]
    pub const fn peer(self, index: u32) -> u32 {
        let (row, column) = if index < S::M {
            (index, self.column)
        } else {
            let other = index - S::M;
            (self.row, if other < self.column { other } else { other + 1 })
        };
        row + column * S::M
    }

    /// A bit for the rank of each block of the row.
    #[inline(always)]
    #[must_use]
    pub const fn row_mask(self) -> u16 {
        let mut mask = 0;
        let mut column = 0;
        while column < S::N {
            mask |= 1 << (self.row + column * S::M);
            column += 1;
        }
        mask
    }

    /// A bit for the rank of each block of the column.
    #[inline(always)]
    #[must_use]
    pub const fn column_mask(self) -> u16 {
        ((1 << S::M) - 1) << (self.column * S::M)
    }
}

/// Number of this block's cluster along x, and of clusters in the grid.
#[inline(always)]
#[must_use]
pub fn cluster_of_grid<S: ClusterShape>() -> (u32, u32) {
    if S::BLOCKS > 1 {
        (cluster::id()[0], cluster::count()[0])
    } else {
        (thread::block_idx_x(), thread::grid_dim_x())
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterCoord, ClusterShape};

    struct TwoByThree;

    impl ClusterShape for TwoByThree {
        const M: u32 = 2;
        const N: u32 = 3;
        const K: u32 = 1;
    }

    /// A block hears from itself and from all that write its row or its column, each once.
    #[test]
    fn peers_are_the_blocks_of_the_row_and_of_the_column() {
        for rank in 0..TwoByThree::BLOCKS {
            let coord = ClusterCoord::<TwoByThree>::of_rank(rank);
            let mut peers = 0u16;
            for index in 0..TwoByThree::PEERS {
                let bit = 1 << coord.peer(index);
                assert_eq!(peers & bit, 0, "rank {rank} has peer {index} twice");
                peers |= bit;
            }
            assert_eq!(peers, coord.row_mask() | coord.column_mask(), "rank {rank}");
            assert_eq!(coord.row_mask() & coord.column_mask(), 1 << rank);
            assert_eq!((coord.row_mask().count_ones(), coord.column_mask().count_ones()), (3, 2));
        }
    }
}
