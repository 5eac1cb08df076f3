//! The barriers of a block beside those of its stages. Which threads make them, and which wait.

use cuda_std::{cluster, mbarrier, thread};
use primitives::cluster::Cluster;
use primitives::pipeline::PipelineState;
use primitives::{named_barriers, unroll};

use super::cluster_split_k;
use super::config::{Block, Clusters, Config, MOST_PLACES, Of, WARPGROUP};

const BOTH_CONSUMERS: u32 = 2 * WARPGROUP;

named_barriers! {
    /// The named barriers of a block.
    pub enum Barrier {
        /// The threads of a consumer.
        Consumer[2]: WARPGROUP threads,
        /// Where a consumer waits for its turn to multiply; see [`OrderedBarrier`].
        Order[2]: BOTH_CONSUMERS threads,
    }
}

/// Makes the barriers.
///
/// # Safety
/// One thread of the block calls it, once, before any other use of the barriers.
#[inline(always)]
pub(super) unsafe fn init<C: Config>(block: Block<C>) {
    let consumers = if C::PING_PONG { 1 } else { C::CONSUMERS };
    let arrivals = if C::DIRECT { WARPGROUP } else { 1 };
    // SAFETY: the barriers' own places, which nothing uses yet.
    unsafe {
        block.shared.pipeline().init_for(arrivals, consumers * block.peers());
        let mut consumer = 0;
        while consumer < C::CONSUMERS {
            const { assert!(MOST_PLACES == 4, "counted out") };
            unroll!(PLACE in 0..4, { if (PLACE as u32) < C::PLACES {
                mbarrier::init(block.shared.source(consumer).subtile(PLACE as u32), 1);
            } });
            consumer += 1;
        }
        if C::CLUSTER_K > 1 {
            cluster_split_k::init(block);
        }
    }
}

/// A barrier of all whom the copies concern: the cluster, or the block. The fence has released the barriers.
/// There is no branch on the launch's shape: behind one the assembler would no longer know that the threads
/// of a warp are together, and keep everything in registers of the threads.
///
/// # Safety
/// All threads of the cluster call it, once, after the barriers are made.
#[inline(always)]
pub(super) unsafe fn sync_cluster<C: Config>() {
    // SAFETY: all threads of the cluster are here.
    unsafe {
        if !Clusters::<C>::IS_ALONE {
            cluster::arrive_relaxed();
        }
        if Clusters::<C>::SHARES {
            cluster::wait();
        } else {
            thread::sync_threads();
        }
    }
}

/// The rest of the cluster, where only sums are exchanged: the first copies are under way meanwhile.
///
/// # Safety
/// All threads of the cluster call it, once, after [`sync_cluster`].
#[inline(always)]
pub(super) unsafe fn sync_split_k<C: Config>() {
    if C::CLUSTER_K > 1 {
        // SAFETY: all threads have arrived in `sync_cluster`.
        unsafe { cluster::wait() }
    }
}

/// Whose turn it is to multiply, with [`Config::PING_PONG`].
///
/// Without turns, a consumer that has nothing left to store would wait for a stage while the other one goes
/// round the pipeline: a barrier tells the parity of its phase, so it takes one two rounds early for its own.
#[derive(Clone, Copy)]
pub struct OrderedBarrier {
    /// Which consumer.
    pub consumer: u32,
    /// A tile comes after this one: somebody waits.
    pub is_followed: bool,
}

impl OrderedBarrier {
    /// Waits until the other consumer has issued its products. Not before the first tile of all.
    ///
    /// # Safety
    /// The whole warpgroup is here.
    #[inline(always)]
    pub unsafe fn wait<C: Config>(consumer: u32, is_first: bool) {
        if C::PING_PONG && !is_first {
            // SAFETY: the other consumer arrives for the next tile, as often as tiles follow.
            unsafe { Barrier::Order(consumer).sync() }
        }
    }

    /// Lets the other consumer multiply.
    ///
    /// # Safety
    /// As for [`OrderedBarrier::wait`], once a tile.
    #[inline(always)]
    pub(super) unsafe fn arrive<C: Config>(self) {
        if C::PING_PONG && self.is_followed {
            // SAFETY: as above.
            unsafe { Barrier::Order(1 - self.consumer).arrive() }
        }
    }
}

/// Releases the stages of a tile of which the consumer has nothing to do: power for the others.
///
/// # Safety
/// The whole warpgroup is here, and the stages come, from `state` on.
#[inline(always)]
pub(super) unsafe fn leave<C: Config>(
    block: Block<C>,
    mut state: PipelineState<Of<C>>,
    k_tiles: u32,
    consumer: u32,
    thread: u32,
) {
    // SAFETY: one thread waits for all, since late threads could miss a round; without a cluster it also
    // releases alone.
    unsafe {
        if thread == 0 {
            let mut left = k_tiles;
            while left > 0 {
                block.shared.pipeline().consumer_wait(state);
                block.release(state.stage, thread);
                state = state.next();
                left -= 1;
            }
        }
        Barrier::Consumer(consumer).sync();
    }
}
