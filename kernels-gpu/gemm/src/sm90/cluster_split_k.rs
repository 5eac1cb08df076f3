//! Split-K within a cluster, for few tiles and long k: each of two blocks sums a share of k of the same tile,
//! then stores one half of the tile's columns, for which it gets the other block's sums.
//!
//! ```text
//!                          left half      right half
//!   block 0, stages 0 2 4  stores     --> sends         for each row of the tile
//!   block 1, stages 1 3 5  sends <--      stores
//! ```
//! They take k in turns, so that they read the two halves of 256 bytes side by side: 2 % faster than each a
//! half of k, where B comes from memory (H200, 256 x 4096 x 14336).
//!
//! Sums go from registers to the other block's shared memory (`st.async`) and complete on a barrier there: a
//! block waits only for the sums that it needs. Each element is the sum of the same two numbers, whichever
//! block adds them, so results are bitwise repeatable. Through global memory ([`split_k`](super::split_k))
//! all sums would be written and read again.
//!
//! The inbox is not a stage of the pipeline, so that the next tile's copies go on meanwhile. It is empty when
//! the consumer has read it, which it tells the other block if that has another tile.
//!
//! Two blocks, no more: a cluster stays within a processing cluster of the device, of 16 or 18
//! multiprocessors of an H200 less those that are switched off. So not even 32 clusters of four, or 16 of
//! eight, run at once, and a second round takes as long as the first.

use cuda_std::{cluster, mbarrier, vector};
use primitives::pipeline::PipelineState;
use primitives::shared_plan::SharedType;
use primitives::{shared_bytes, unroll};

use super::barriers::Barrier;
use super::config::{Block, Config, Of, WARPGROUP};
use super::mainloop::{Mainloop, Task};
use super::operands::AccumulatorTile;

shared_bytes! {
    /// The sums that a consumer stores, in f32.
    pub struct Inbox<C: Config>(C::CONSUMER_ROWS * C::STORED_N * 4, align 16);
}

/// Bytes that a thread sends at a time.
const QUAD_BYTES: u32 = 16;
/// Bytes from a quad of a thread to its next one: a warp's accesses lie side by side.
const STRIDE: u32 = WARPGROUP * QUAD_BYTES;

/// In two shares of k, one a block of the cluster.
#[derive(Clone, Copy)]
pub struct ClusterSplitK;

impl<C: Config> Mainloop<C> for ClusterSplitK {
    #[inline(always)]
    unsafe fn accumulate(self, task: Task<C>, state: &mut PipelineState<Of<C>>) -> C::Stored {
        const { assert!(C::CLUSTER_K == 2) };
        let exchange = Exchange {
            block: task.block,
            consumer: task.order.consumer,
            other: 1 - task.block.coord.share,
            thread: task.thread,
        };
        // SAFETY: the whole warpgroup is here, in both blocks for the same tiles: each sends what the other
        // expects.
        unsafe {
            let tile = task.sum(state);
            let mut sums = if exchange.other == 1 {
                exchange.send(half::<C>(&tile, 1), task.parity);
                half::<C>(&tile, 0)
            } else {
                exchange.send(half::<C>(&tile, 0), task.parity);
                half::<C>(&tile, 1)
            };
            exchange.add(&mut sums, task.parity);
            if task.order.is_followed {
                exchange.clear();
            }
            sums
        }
    }
}

/// Repeats a block for each four accumulators of a group of what a block stores.
macro_rules! each_quad {
    ($group:ident, $quad:ident of $config:ident $body:block) => {
        unroll!($group in 0..2, { if $group < $config::Stored::GROUPS {
            unroll!($quad in 0..8, { if $quad < quads::<$config>() $body });
        } });
    };
}

/// How many a group has.
const fn quads<C: Config>() -> usize {
    (C::STORED_N / 8) as usize
}

/// The accumulators that the block of this number stores.
#[inline(always)]
fn half<C: Config>(tile: &C::Tile, index: usize) -> C::Stored {
    const { assert!(quads::<C>() <= 8 && C::Stored::GROUPS <= 2, "counted out") };
    let mut half = C::Stored::zero();
    let first = index * 4 * quads::<C>();
    each_quad!(GROUP, QUAD of C {
        unroll!(I in 0..4, { half.set(GROUP, 4 * QUAD + I, tile.get(GROUP, first + 4 * QUAD + I)); });
    });
    half
}

/// Makes the barriers. One thread does it; a fence and a barrier of the cluster follow.
///
/// # Safety
/// The shared memory is this block's, and nothing uses it yet.
#[inline(always)]
pub(super) unsafe fn init<C: Config>(block: Block<C>) {
    let shared = block.shared;
    let mut consumer = 0;
    while consumer < C::CONSUMERS {
        // SAFETY: the barriers' own places, and the caller says that they are unused.
        unsafe {
            mbarrier::init(shared.inbox_full(consumer), 1);
            mbarrier::init(shared.other_empty(consumer), 1);
            mbarrier::arrive_expect_tx(shared.inbox_full(consumer), Inbox::<C>::BYTES);
        }
        consumer += 1;
    }
}

/// A consumer's part of the exchange, as one of its threads sees it.
struct Exchange<C: Config> {
    block: Block<C>,
    consumer: u32,
    /// The other block, whose inbox lies in the same place.
    other: u32,
    thread: u32,
}

impl<C: Config> Exchange<C> {
    /// The thread's place for a quad.
    #[inline(always)]
    fn place(&self, group: usize, quad: usize) -> u32 {
        let first = self.block.shared.inbox(self.consumer) + self.thread * QUAD_BYTES;
        first + (group * quads::<C>() + quad) as u32 * STRIDE
    }

    /// Sends the other block the sums that it stores.
    ///
    /// # Safety
    /// The whole warpgroup is here; the other block expects them.
    #[inline(always)]
    unsafe fn send(&self, sums: C::Stored, parity: u32) {
        // SAFETY: before the first tile all inboxes are empty: the phase before the first counts as over. The
        // other block lives until all that is sent to it has come.
        unsafe {
            mbarrier::wait_parity_cluster(self.block.shared.other_empty(self.consumer), parity ^ 1);
            let to = cluster::map_shared(self.place(0, 0), self.other);
            let full = cluster::map_shared(self.block.shared.inbox_full(self.consumer), self.other);
            each_quad!(GROUP, QUAD of C {
                let [a, b, c, d] = [4 * QUAD, 4 * QUAD + 1, 4 * QUAD + 2, 4 * QUAD + 3];
                let quad = [sums.get(GROUP, a), sums.get(GROUP, b), sums.get(GROUP, c), sums.get(GROUP, d)];
                cluster::store_async_v4(to + (GROUP * quads::<C>() + QUAD) as u32 * STRIDE, quad, full);
            });
        }
    }

    /// Adds what the other block sends.
    ///
    /// # Safety
    /// The whole warpgroup is here; the other block sends.
    #[inline(always)]
    unsafe fn add(&self, sums: &mut C::Stored, parity: u32) {
        // SAFETY: an initialised barrier of this block; places of the inbox, which is full then.
        unsafe {
            mbarrier::wait_parity_cluster(self.block.shared.inbox_full(self.consumer), parity);
            each_quad!(GROUP, QUAD of C {
                let quad: [f32; 4] = vector::load_shared_v4(self.place(GROUP, QUAD));
                unroll!(I in 0..4, {
                    let index = 4 * QUAD + I;
                    sums.set(GROUP, index, sums.get(GROUP, index) + quad[I]);
                });
            });
        }
    }

    /// Lets the other block send the next tile's.
    ///
    /// # Safety
    /// The whole warpgroup is here, and the other block has another tile too.
    #[inline(always)]
    unsafe fn clear(&self) {
        // SAFETY: initialised barriers; the other block waits for this before it ends. All have read the
        // inbox before it is said to be empty, and it expects the next bytes before they are sent.
        unsafe {
            Barrier::Consumer(self.consumer).sync();
            if self.thread == 0 {
                mbarrier::arrive_expect_tx(self.block.shared.inbox_full(self.consumer), Inbox::<C>::BYTES);
                let empty = self.block.shared.other_empty(self.consumer);
                mbarrier::arrive_remote(cluster::map_shared(empty, self.other));
            }
        }
    }
}
