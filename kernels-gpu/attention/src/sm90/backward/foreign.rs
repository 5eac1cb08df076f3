//! Rows of packed sequences in a tile that reaches into the next sequence: they are another sequence's, and
//! what is infinite or no number there would spoil sums although its weight is zero. So they are cleared.

use cuda_std::{fence, vector};
use primitives::pipeline::PipelineState;
use primitives::tma::LINE_BYTES;

use super::config::{BLOCK_N, Barrier, CONSUMER_KEYS, CONSUMERS, Config, Of};
use super::consumer::Consumer;
use super::work::Work;
use crate::sm90::config::WARPGROUP;

/// Lines of a tile in boxes, `stride` bytes apart.
#[derive(Clone, Copy)]
struct Lines {
    first: u32,
    end: u32,
    boxes: u32,
    stride: u32,
}

impl Lines {
    /// Fills them with zeros, in the tile at `tile`.
    ///
    /// # Safety
    /// `threads` threads call it, each with its number; nothing else uses the lines.
    #[inline(always)]
    unsafe fn clear(self, tile: u32, thread: u32, threads: u32) {
        let mut place = self.first * LINE_BYTES + thread * layout::UNIT_BYTES;
        while place < self.end * LINE_BYTES {
            let mut column = 0;
            while column < self.boxes {
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
            let Work { tile, sequence, .. } = self.work();
            let first = sequence.keys.saturating_sub(tile.first_key + self.own_keys());
            if first >= CONSUMER_KEYS {
                return;
            }
            let lines = Lines { first, end: CONSUMER_KEYS, boxes: C::BOXES, stride: C::KEY_BOX };
            lines.clear(self.keys() + self.first_line(), self.thread, WARPGROUP);
            lines.clear(self.values() + self.first_line(), self.thread, WARPGROUP);
            fence::proxy_async_shared();
            Barrier::Consumer(self.consumer).sync();
        }
    }

    /// The same in a pair of blocks, where consumers have the same keys, and read some of the other block.
    ///
    /// # Safety
    /// As for [`clear_foreign_keys`](Self::clear_foreign_keys); all threads of both consumers call it.
    #[inline(always)]
    pub unsafe fn clear_foreign_keys_of_pair(self) {
        // SAFETY: the caller's contract; lines that no product reads yet.
        unsafe {
            let Work { tile, sequence, .. } = self.work();
            if tile.first_key + BLOCK_N <= sequence.keys {
                return;
            }
            let thread = self.consumer * WARPGROUP + self.thread;
            let lines = |rank: u32, boxes: u32| {
                let first = sequence.keys.saturating_sub(tile.first_key + rank * CONSUMER_KEYS);
                Lines { first, end: CONSUMER_KEYS, boxes, stride: C::KEY_BOX }
            };
            let own = lines(self.rank, C::BOXES);
            own.clear(self.keys(), thread, CONSUMERS * WARPGROUP);
            own.clear(self.values(), thread, CONSUMERS * WARPGROUP);
            lines(self.rank ^ 1, C::OTHER_BOXES).clear(
                self.shared.other_keys(0),
                thread,
                CONSUMERS * WARPGROUP,
            );
            fence::proxy_async_shared();
            Barrier::Two(0).sync();
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
            let Work { sequence, .. } = self.work();
            let first = sequence.queries - self.ticket(stage).read().block * C::BLOCK_M;
            if first >= C::BLOCK_M {
                return;
            }
            shared.gradient_pipeline().consumer_wait(state);
            let lines = Lines { first, end: C::BLOCK_M, boxes: C::BOXES, stride: C::QUERY_BOX };
            let thread = self.consumer * WARPGROUP + self.thread;
            lines.clear(shared.queries(stage), thread, CONSUMERS * WARPGROUP);
            lines.clear(shared.gradients(stage), thread, CONSUMERS * WARPGROUP);
            fence::proxy_async_shared();
            Barrier::Two(0).sync();
        }
    }
}
