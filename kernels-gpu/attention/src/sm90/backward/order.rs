//! The order in which blocks add to the sums of dQ.
//!
//! It is free, or fixed: then each tile of queries counts the blocks that have added to it, and a block adds
//! when all blocks of larger keys that the tile sees have. Under a causal mask a block begins with the
//! queries of its diagonal, which see no larger keys, and blocks of larger keys have been to the next queries
//! before it: nobody waits. Two warps beside the producer's, one for each consumer, wait for that and count,
//! so that consumers only meet with them:
//!
//! ```text
//!   consumer   dQ | Turn: wait | add | Added | dK, the next tile ...
//!   its warp   wait for the count | Turn | Added: wait | fence | count
//! ```
//! Blocks draw their tiles of keys, the last ones of a head first, so that whichever block waits for another,
//! that one has begun before it: none waits for a block that has no room on the device yet.

use cuda_std::atomic::intrinsics::{atomic_fetch_add_relaxed_u32_device, atomic_load_acquire_32_device};
use cuda_std::thread;
use cuda_std::warp::{FULL_MASK, sync_warp};

use super::arguments::Arguments;
use super::config::{BLOCK_N, Barrier, Config, Plan};
use super::work::Work;
use crate::problem::{Band, KeyBlocks, Sequence};

/// How many blocks add to a tile of queries before that of key tile `key_tile`: those of larger keys.
#[inline(always)]
fn rank<C: Config>(band: Band, sequence: Sequence, block: u32, key_tile: u32) -> u32 {
    let seen = KeyBlocks::new(band, sequence, block * C::BLOCK_M, C::BLOCK_M, BLOCK_N);
    seen.end - 1 - key_tile
}

/// Lets a consumer, of a block with this rank in its pair, add to the sums of one tile after the other, each
/// when it is the block's turn.
///
/// # Safety
/// A warp for each consumer calls it, after the work has been told; the counts are as
/// [`Order`](crate::backward::order::Order) says.
#[inline(always)]
pub(super) unsafe fn give_turns<C: Config>(
    arguments: Arguments<'_>,
    shared: Plan<C>,
    [block_rank, consumer]: [u32; 2],
) {
    let Arguments { params, packing, order, .. } = arguments;
    // SAFETY: the caller's contract.
    unsafe {
        let work = Work::told(shared.work(0));
        let blocks = work.blocks::<C>(&arguments);
        if !work.has_keys() || blocks.count() == 0 {
            return;
        }
        let is_counting = thread::thread_idx_x().is_multiple_of(32);
        let mut head = work.tile.head * params.group;
        let last = head + params.group;
        while head < last {
            let first = params.padded_row(packing, work.tile.batch, head, C::BLOCK_M);
            let first = first / C::BLOCK_M as usize;
            let mut block = blocks.first;
            while block < blocks.end {
                let rank = rank::<C>(params.band, work.sequence, block, work.tile.first_key / BLOCK_N);
                let count = order.count(first + block as usize, block_rank * C::PART_CONSUMERS + consumer);
                if is_counting {
                    while atomic_load_acquire_32_device(count) < rank {}
                }
                sync_warp(FULL_MASK);
                Barrier::Turn(consumer).arrive();
                Barrier::Added(consumer).sync();
                if is_counting {
                    // The additions of the consumer's threads come before the count.
                    thread::device_fence();
                    atomic_fetch_add_relaxed_u32_device(count, 1);
                }
                block += 1;
            }
            head += 1;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::rank;
    use crate::problem::{Band, QueryBlocks, Sequence, UNBOUNDED};
    use crate::sm90::backward::config::{BLOCK_N, Config};
    use crate::sm90::backward::instances::{Bf16Head64, Bf16Head128};

    /// Each tile of queries is added to by blocks of rank 0, 1, 2 and so on, or a block would wait for ever.
    fn check<C: Config>(band: Band, queries: u32, keys: u32) {
        let sequence = Sequence { first_query: 0, queries, first_key: 0, keys, matrix: 0 };
        let mut added = vec![0; queries.div_ceil(C::BLOCK_M) as usize];
        for key_tile in (0..keys.div_ceil(BLOCK_N)).rev() {
            let blocks = QueryBlocks::new(band, sequence, key_tile * BLOCK_N, BLOCK_N, C::BLOCK_M);
            for block in blocks.first..blocks.end.max(blocks.first) {
                let got = rank::<C>(band, sequence, block, key_tile);
                let want = &mut added[block as usize];
                assert_eq!(got, *want, "{band:?}, {queries} on {keys}, tile {block}, keys {key_tile}");
                *want += 1;
            }
        }
    }

    /// Bands, and lengths of queries and keys, that begin and end within tiles and between them.
    pub(in crate::sm90::backward) fn bands() -> impl Iterator<Item = (Band, u32, u32)> {
        let bounds = [0, 1, 63, 64, 127, 128, 200, 500, UNBOUNDED];
        let lengths = [(1, 1), (1, 700), (700, 1), (64, 128), (65, 129), (700, 700), (333, 900), (900, 333)];
        let sides = bounds.into_iter().flat_map(move |left| bounds.map(|right| (left, right)));
        let bands = sides.flat_map(|(left, right)| [0, 1].map(|top_left| Band { left, right, top_left }));
        bands.flat_map(move |band| lengths.map(|(queries, keys)| (band, queries, keys)))
    }

    #[test]
    fn ranks_count_the_blocks_before() {
        for (band, queries, keys) in bands() {
            check::<Bf16Head64>(band, queries, keys);
            check::<Bf16Head128>(band, queries, keys);
        }
    }
}
