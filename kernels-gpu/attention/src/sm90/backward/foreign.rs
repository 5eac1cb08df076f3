//! Rows of packed sequences in a tile that reaches into the next sequence: they are another sequence's, and
//! what is infinite or no number there would spoil sums although its weight is zero. So they are cleared.

use cuda_std::{fence, vector};
use primitives::pipeline::PipelineState;
use primitives::tma::LINE_BYTES;

use super::config::{Barrier, CONSUMER_KEYS, CONSUMERS, Config, KEY_BOX, Of};
use super::main_pass::Consumer;
use super::work::Work;
use crate::sm90::config::WARPGROUP;

/// Lines of a tile in boxes, `stride` bytes apart.
#[derive(Clone, Copy)]
struct Lines {
    first: u32,
    end: u32,
    stride: u32,
}

impl Lines {
    /// Fills them with zeros, in the tile at `tile`.
    ///
    /// # Safety
    /// `threads` threads call it, each with its number; nothing else uses the lines.
    #[inline(always)]
    unsafe fn clear<C: Config>(self, tile: u32, thread: u32, threads: u32) {
        let mut place = self.first * LINE_BYTES + thread * layout::UNIT_BYTES;
        while place < self.end * LINE_BYTES {
            let mut column = 0;
            while column < C::BOXES {
                // SAFETY: the caller's contract.
                unsafe { vector::store_shared_v4(tile + column * self.stride + place, [0u32; 4]) }
                column += 1;
            }
            place += threads * layout::UNIT_BYTES;
        }
    }
}

impl<C: Config> Consumer<'_, C> {
    /// Clears the consumer's keys and values behind the last one of a packed sequence.
    ///
    /// # Safety
    /// As for [`run`](super::main_pass::run); K and V have come, and no product reads them yet.
    #[inline(always)]
    pub unsafe fn clear_foreign_keys(self) {
        // SAFETY: the caller's contract. The other consumer reads these keys when this one has shared dS.
        unsafe {
            let Work { tile, sequence, .. } = Work::told(self.shared.work());
            let own = tile.first_key + self.consumer * CONSUMER_KEYS;
            let first = sequence.keys.saturating_sub(own);
            if first >= CONSUMER_KEYS {
                return;
            }
            let lines = Lines { first, end: CONSUMER_KEYS, stride: KEY_BOX };
            let above = self.consumer * CONSUMER_KEYS * LINE_BYTES;
            lines.clear::<C>(self.shared.keys() + above, self.thread, WARPGROUP);
            lines.clear::<C>(self.shared.values() + above, self.thread, WARPGROUP);
            fence::proxy_async_shared();
            Barrier::Consumer(self.consumer).sync();
        }
    }

    /// Clears the queries and gradients behind the last one of a packed sequence, as the keys.
    ///
    /// # Safety
    /// As for [`run`](super::main_pass::run); all threads of both consumers call it for the turn, before its
    /// products.
    #[inline(always)]
    pub unsafe fn clear_foreign_queries(self, state: PipelineState<Of<C>>) {
        let (shared, stage) = (self.shared, state.stage);
        // SAFETY: the caller's contract; the block has met since; rows of stages that are full.
        unsafe {
            shared.query_pipeline().consumer_wait(state);
            let Work { sequence, .. } = Work::told(shared.work());
            let first = sequence.queries - self.ticket(stage).read().block * C::BLOCK_M;
            if first >= C::BLOCK_M {
                return;
            }
            shared.gradient_pipeline().consumer_wait(state);
            let lines = Lines { first, end: C::BLOCK_M, stride: C::QUERY_BOX };
            let thread = self.consumer * WARPGROUP + self.thread;
            lines.clear::<C>(shared.queries(stage), thread, CONSUMERS * WARPGROUP);
            lines.clear::<C>(shared.gradients(stage), thread, CONSUMERS * WARPGROUP);
            fence::proxy_async_shared();
            Barrier::Two(0).sync();
        }
    }
}
