//! A block's place in its cluster, and whom it shares operands with.
//!
//! A cluster is a box of M x N x K blocks. Blocks of a row (the same m) share rows of the left operand,
//! blocks of a column (the same n) columns of the right one, and blocks along k take a share of k each. Ranks
//! count m first, then n, then k.

use core::marker::PhantomData;

use cuda_std::{cluster, thread};

/// Blocks of a cluster, at most, that every device takes.
pub const MOST_BLOCKS: u32 = 8;

/// The shape of a cluster that the compiler knows.
pub trait ClusterShape {
    /// Blocks below each other.
    const M: u32;
    /// Blocks beside each other.
    const N: u32;
    /// Blocks that share k out.
    const K: u32;
    /// Blocks of a cluster.
    const BLOCKS: u32 = Self::M * Self::N * Self::K;
}

/// The shape of a cluster: [`Fixed`], or a number of the launch.
pub trait Cluster: Copy {
    /// Whether the compiler knows that a block is alone.
    const IS_ALONE: bool;

    /// Blocks below each other.
    fn m(self) -> u32;
    /// Blocks beside each other.
    fn n(self) -> u32;

    /// Blocks whose multicast copies write a block's shared memory, itself included: its row's and its
    /// column's.
    #[inline(always)]
    #[must_use]
    fn peers(self) -> u32 {
        self.m() + self.n() - 1
    }

    /// Row, column and share of k of the block with this rank.
    #[inline(always)]
    #[must_use]
    fn place(self, rank: u32) -> [u32; 3] {
        // `max` is for the compiler, which sees a division by 0.
        let (m, n) = (self.m().max(1), self.n().max(1));
        [rank % m, rank / m % n, rank / m / n]
    }
}

/// The [`Cluster`] of a [`ClusterShape`].
pub struct Fixed<S>(PhantomData<fn() -> S>);

impl<S> Clone for Fixed<S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Fixed<S> {}

impl<S: ClusterShape> Cluster for Fixed<S> {
    const IS_ALONE: bool = S::BLOCKS == 1;

    #[inline(always)]
    fn m(self) -> u32 {
        S::M
    }

    #[inline(always)]
    fn n(self) -> u32 {
        S::N
    }
}

/// Where a block is in its cluster.
#[derive(Clone, Copy)]
pub struct Coord<S> {
    /// Its row.
    pub row: u32,
    /// Its column.
    pub column: u32,
    /// Its share of k.
    pub share: u32,
    /// The cluster.
    pub cluster: S,
}

/// The [`Coord`] in a cluster whose shape the compiler knows.
pub type ClusterCoord<S> = Coord<Fixed<S>>;

impl<S: ClusterShape> ClusterCoord<S> {
    /// That of this block.
    #[inline(always)]
    #[must_use]
    pub fn this() -> Self {
        Self::within(Fixed(PhantomData))
    }

    /// That of the block with this rank.
    #[inline(always)]
    #[must_use]
    pub fn of_rank(rank: u32) -> Self {
        Self::of_rank_in(Fixed(PhantomData), rank)
    }
}

impl<S: Cluster> Coord<S> {
    /// That of this block, in a cluster of this shape.
    #[inline(always)]
    #[must_use]
    pub fn within(cluster: S) -> Self {
        Self::of_rank_in(cluster, if S::IS_ALONE { 0 } else { cluster::block_rank() })
    }

    /// That of the block with this rank, in a cluster of this shape.
    #[inline(always)]
    #[must_use]
    pub fn of_rank_in(cluster: S, rank: u32) -> Self {
        let [row, column, share] = cluster.place(rank);
        Self { row, column, share, cluster }
    }

    /// Rank of the `index`-th of the block's [peers](Cluster::peers): those of its column, then those of its
    /// row without itself. Of its own share of k, which is the only one where blocks share operands.
    #[inline(always)]
    #[must_use]
    pub fn peer(self, index: u32) -> u32 {
        let m = self.cluster.m();
        let (row, column) = if index < m {
            (index, self.column)
        } else {
            let other = index - m;
            (self.row, if other < self.column { other } else { other + 1 })
        };
        row + column * m
    }

    /// A bit for the rank of each block of the row.
    #[inline(always)]
    #[must_use]
    pub fn row_mask(self) -> u16 {
        let mut mask = 0;
        // No loop up to a number of the launch, which the compiler would not unroll.
        for column in 0..MOST_BLOCKS {
            if column < self.cluster.n() {
                mask |= 1 << (self.row + column * self.cluster.m());
            }
        }
        mask
    }

    /// A bit for the rank of each block of the column.
    #[inline(always)]
    #[must_use]
    pub fn column_mask(self) -> u16 {
        ((1 << self.cluster.m()) - 1) << (self.column * self.cluster.m())
    }
}

/// Number of this block's cluster along x, and of clusters in the grid.
#[inline(always)]
#[must_use]
pub fn cluster_of_grid<S: Cluster>() -> (u32, u32) {
    if S::IS_ALONE {
        (thread::block_idx_x(), thread::grid_dim_x())
    } else {
        (cluster::id()[0], cluster::count()[0])
    }
}

#[cfg(test)]
mod tests {
    use super::{Cluster, ClusterCoord, ClusterShape};

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
            for index in 0..coord.cluster.peers() {
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
