//! Which tile a block computes next.
//!
//! The first tile of a block has the block's number. When all copies of a tile are under way, the producer
//! asks for the next one and tells the consumers through shared memory. Under a mask tiles take different
//! times, so blocks draw numbers from a counter, and whoever is done first gets the next one; the longest
//! come first ([`Tiles`]). Without a counter a block takes every `gridDim`-th tile.

use cuda_std::atomic::intrinsics::atomic_fetch_inc_relaxed_u32_device;
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{mbarrier, thread, vector};
use primitives::pipeline::PipelineState;

use super::config::{Config, Numbers, Plan, WARPGROUP};
use crate::problem::{AttentionParams, Tiles};

/// Where blocks draw the numbers of tiles: a word of global memory that is 0 between launches, or null.
pub type Counter = *mut u32;

/// Releases of a number: each warp of the consumers'.
#[inline(always)]
pub const fn releases<C: Config>() -> u32 {
    C::CONSUMERS * WARPGROUP / 32
}

/// The producer's side.
pub struct Drawn<C: Config> {
    shared: Plan<C>,
    state: PipelineState<Numbers>,
    counter: Counter,
    /// The tile that the producer works on; at or beyond `count` after the last.
    pub number: u32,
}

impl<C: Config> Drawn<C> {
    /// The block's first tile.
    #[inline(always)]
    pub fn first(shared: Plan<C>, counter: Counter) -> Self {
        Self { shared, state: PipelineState::START, counter, number: thread::block_idx_x() }
    }

    /// Whether there is one.
    #[inline(always)]
    pub fn has_tile(&self, params: &AttentionParams) -> bool {
        self.number < Tiles::new(params, C::BLOCK_M).count()
    }

    /// Draws the next tile, and tells the consumers.
    ///
    /// # Safety
    /// One thread of the block calls it, once a tile, after the barriers are made. The grid has at most a
    /// block for each tile. No other launch that runs uses the counter.
    #[inline(always)]
    pub unsafe fn advance(&mut self, params: &AttentionParams) {
        let blocks = thread::grid_dim_x();
        self.number = if self.counter.is_null() {
            self.number + blocks
        } else {
            // As many numbers are drawn as there are tiles: the first ones are not, and each block draws one
            // in vain. So the last one puts 0 in again.
            let last = Tiles::new(params, C::BLOCK_M).count() - 1;
            // SAFETY: the counter's word.
            unsafe { blocks + atomic_fetch_inc_relaxed_u32_device(self.counter, last) }
        };
        let (schedule, slot) = (self.shared.schedule(), self.state.stage);
        // SAFETY: the caller's contract; nobody reads the slot until it is full.
        unsafe {
            mbarrier::wait_parity(schedule.empty(slot), self.state.phase ^ 1);
            vector::store_shared(self.shared.number(slot), self.number);
            mbarrier::arrive(schedule.full(slot));
        }
        self.state = self.state.next();
    }
}

/// The consumers' side.
pub struct Followed<C: Config> {
    shared: Plan<C>,
    state: PipelineState<Numbers>,
    /// The tile that the consumer works on.
    pub number: u32,
}

impl<C: Config> Followed<C> {
    /// The block's first tile.
    #[inline(always)]
    pub fn first(shared: Plan<C>) -> Self {
        Self { shared, state: PipelineState::START, number: thread::block_idx_x() }
    }

    /// Whether there is one.
    #[inline(always)]
    pub fn has_tile(&self, params: &AttentionParams) -> bool {
        self.number < Tiles::new(params, C::BLOCK_M).count()
    }

    /// Goes on to the next tile.
    ///
    /// # Safety
    /// The whole warp calls it, once a tile.
    #[inline(always)]
    pub unsafe fn advance(&mut self) {
        let schedule = self.shared.schedule();
        // SAFETY: the caller's contract; the slot is full until all warps have released it.
        unsafe {
            schedule.consumer_wait(self.state);
            self.number = vector::load_shared(self.shared.number(self.state.stage));
            sync_warp(FULL_MASK);
            if thread::thread_idx_x().is_multiple_of(32) {
                mbarrier::arrive(schedule.empty(self.state.stage));
            }
        }
        self.state = self.state.next();
    }
}
