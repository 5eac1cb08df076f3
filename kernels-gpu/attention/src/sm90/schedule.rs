//! Which tile a block computes next.
//!
//! The first tile of a block has the block's number. When all copies of a tile are under way, the producer
//! asks for the next one and tells the consumers through shared memory. Under a mask tiles take different
//! times, so blocks draw numbers from a counter, and whoever is done first gets the next one; the longest
//! come first ([`Tiles`](crate::problem::Tiles)). Without a counter a block takes every `gridDim`-th tile.
//!
//! The producer tells of a tile in shared memory ([`Ticket`]), where it stays while the consumers compute
//! the tile. They read of it what they need, where they need it: in registers it would be in the way of the
//! products.

use cuda_std::atomic::intrinsics::atomic_fetch_inc_relaxed_u32_device;
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{mbarrier, thread, vector};
use primitives::pipeline::{Pipeline, PipelineState};
use primitives::shared_plan::SharedType;

use super::config::{TicketBytes, Tickets, WARPGROUP};
use crate::block_lists::{Listed, Walk};
use crate::problem::{KeyBlocks, Sequence, Tile};
use crate::score::ScoreFunction;

/// Where blocks draw the numbers of tiles: a word of global memory that is 0 between launches, or null.
pub type Counter = *mut u32;

/// Releases of a ticket: each warp of so many consumers.
#[inline(always)]
pub const fn releases(consumers: u32) -> u32 {
    consumers * WARPGROUP / 32
}

/// Where tickets lie in shared memory, with their barriers.
#[derive(Clone, Copy)]
pub struct Board {
    /// The barriers.
    pub barriers: Pipeline<Tickets>,
    /// The first ticket.
    pub first: u32,
}

impl Board {
    #[inline(always)]
    const fn ticket(self, slot: u32) -> Ticket {
        Ticket { address: self.first + slot * TicketBytes::BYTES }
    }
}

/// A tile with its sequence and its blocks of keys.
#[derive(Clone, Copy)]
pub struct Work {
    /// The tile.
    pub tile: Tile,
    /// Its sequence.
    pub sequence: Sequence,
    /// Its blocks.
    pub blocks: Walk<KeyBlocks>,
}

impl Work {
    /// Whether the tile has queries.
    #[inline(always)]
    #[must_use]
    pub const fn has_queries(&self) -> bool {
        self.tile.first_row < self.sequence.queries
    }
}

/// Words of a ticket: units of four.
pub const TICKET_WORDS: u32 = 16;
const UNIT: u32 = 16;

/// A [`Work`] in shared memory. Its last unit says whether there is one.
#[derive(Clone, Copy)]
pub struct Ticket {
    address: u32,
}

impl Ticket {
    /// Writes it; `None` says that there is no tile left.
    ///
    /// # Safety
    /// The ticket is the caller's alone.
    #[inline(always)]
    unsafe fn write(self, work: Option<Work>) {
        let Self { address } = self;
        // SAFETY: the caller's word; the ticket's units.
        unsafe {
            if let Some(Work { tile, sequence, blocks }) = work {
                let band = blocks.band;
                let list = blocks.list as usize as u64;
                let Sequence { first_query, queries, first_key, keys, matrix } = sequence;
                vector::store_shared_v4(address, [tile.first_row, tile.head, tile.batch, matrix]);
                vector::store_shared_v4(address + UNIT, [first_query, queries, first_key, keys]);
                let ends = [band.first, band.end, band.first_whole, band.end_whole];
                vector::store_shared_v4(address + 2 * UNIT, ends);
                vector::store_shared_v4(
                    address + 3 * UNIT,
                    [list as u32, (list >> 32) as u32, blocks.count, 1],
                );
            } else {
                vector::store_shared(address + 3 * UNIT + 12, 0u32);
            }
        }
    }

    /// Whether there is a tile.
    ///
    /// # Safety
    /// The ticket has been written, and is not written again meanwhile.
    #[inline(always)]
    unsafe fn is_valid(self) -> bool {
        // SAFETY: the caller's word.
        unsafe { vector::load_shared::<u32>(self.address + 3 * UNIT + 12) != 0 }
    }

    /// The tile and its sequence.
    ///
    /// # Safety
    /// As for [`work`](Self::work).
    #[inline(always)]
    pub unsafe fn place(self) -> (Tile, Sequence) {
        // SAFETY: the caller's word.
        let ([first_row, head, batch, matrix], [first_query, queries, first_key, keys]): (
            [u32; 4],
            [u32; 4],
        ) = unsafe { (vector::load_shared_v4(self.address), vector::load_shared_v4(self.address + UNIT)) };
        (Tile { first_row, head, batch }, Sequence { first_query, queries, first_key, keys, matrix })
    }

    /// Its blocks. There are lists only for score functions.
    ///
    /// # Safety
    /// As for [`work`](Self::work).
    #[inline(always)]
    pub unsafe fn blocks<F: ScoreFunction>(self) -> Walk<KeyBlocks> {
        // SAFETY: the caller's word.
        let ([first, end, first_whole, end_whole], [low, high, count, _]): ([u32; 4], [u32; 4]) = unsafe {
            (vector::load_shared_v4(self.address + 2 * UNIT), vector::load_shared_v4(self.address + 3 * UNIT))
        };
        let list = if F::IS_PLAIN {
            core::ptr::null()
        } else {
            (u64::from(high) << 32 | u64::from(low)) as usize as *const u32
        };
        Walk { band: KeyBlocks { first, end, first_whole, end_whole }, list, count }
    }

    /// How many blocks there are.
    ///
    /// # Safety
    /// As for [`work`](Self::work).
    #[inline(always)]
    pub unsafe fn count(self) -> u32 {
        // SAFETY: the caller's word.
        unsafe { vector::load_shared(self.address + 3 * UNIT + 8) }
    }

    /// Block `index`, below the count.
    ///
    /// # Safety
    /// As for [`work`](Self::work).
    #[inline(always)]
    pub unsafe fn get<F: ScoreFunction>(self, index: u32) -> Listed {
        // SAFETY: the caller's word.
        unsafe { self.blocks::<F>().get(index) }
    }

    /// All of it.
    ///
    /// # Safety
    /// The thread has followed to it and not left it; there is a tile.
    #[inline(always)]
    pub unsafe fn work<F: ScoreFunction>(self) -> Work {
        // SAFETY: the caller's word.
        unsafe {
            let (tile, sequence) = self.place();
            Work { tile, sequence, blocks: self.blocks::<F>() }
        }
    }
}

/// The producer's side.
pub struct Drawn {
    board: Board,
    state: PipelineState<Tickets>,
    counter: Counter,
    tiles: u32,
    number: u32,
}

impl Drawn {
    /// Before the block's first tile, of so many tiles in all.
    #[inline(always)]
    pub fn first(board: Board, counter: Counter, tiles: u32) -> Self {
        Self { board, state: PipelineState::START, counter, tiles, number: thread::block_idx_x() }
    }

    /// The number of the tile, if there is one.
    #[inline(always)]
    pub fn number(&self) -> Option<u32> {
        if self.number < self.tiles { Some(self.number) } else { None }
    }

    /// Tells the consumers, once `also` has written what a kernel of its own kind tells of the tile, by the
    /// number of the ticket.
    ///
    /// # Safety
    /// One thread of the block calls it, once a tile and once behind the last one, after the barriers are
    /// made.
    #[inline(always)]
    pub unsafe fn tell(&mut self, work: Option<Work>, also: impl FnOnce(u32)) {
        let (schedule, slot) = (self.board.barriers, self.state.stage);
        // SAFETY: the caller's contract; nobody reads the ticket until it is full.
        unsafe {
            mbarrier::wait_parity(schedule.empty(slot), self.state.phase ^ 1);
            self.board.ticket(slot).write(work);
            also(slot);
            mbarrier::arrive(schedule.full(slot));
        }
        self.state = self.state.next();
    }

    /// Draws the next tile.
    ///
    /// # Safety
    /// One thread of the block calls it, once a tile. The grid has at most a block for each tile. No other
    /// launch that runs uses the counter.
    #[inline(always)]
    pub unsafe fn draw(&mut self) {
        let blocks = thread::grid_dim_x();
        self.number = if self.counter.is_null() {
            self.number + blocks
        } else {
            // As many numbers are drawn as there are tiles: the first ones are not, and each block draws one
            // in vain. So the last one puts 0 in again.
            // SAFETY: the counter's word.
            unsafe { blocks + atomic_fetch_inc_relaxed_u32_device(self.counter, self.tiles - 1) }
        };
    }
}

/// The consumers' side.
pub struct Followed {
    board: Board,
    state: PipelineState<Tickets>,
}

impl Followed {
    /// Before the block's first tile.
    #[inline(always)]
    pub fn first(board: Board) -> Self {
        Self { board, state: PipelineState::START }
    }

    /// Waits for a tile; `None` behind the last one.
    ///
    /// # Safety
    /// The whole warp calls it; the producer tells.
    #[inline(always)]
    pub unsafe fn follow(&self) -> Option<Ticket> {
        let ticket = self.board.ticket(self.state.stage);
        // SAFETY: the caller's contract; the ticket is full until all warps have left it.
        unsafe {
            self.board.barriers.consumer_wait(self.state);
            if ticket.is_valid() { Some(ticket) } else { None }
        }
    }

    /// The number of the ticket.
    #[inline(always)]
    pub const fn slot(&self) -> u32 {
        self.state.stage
    }

    /// Leaves the tile.
    ///
    /// # Safety
    /// The whole warp calls it, once for each ticket, and does not read it again.
    #[inline(always)]
    pub unsafe fn leave(&mut self) {
        // SAFETY: the caller's contract.
        unsafe {
            sync_warp(FULL_MASK);
            if thread::thread_idx_x().is_multiple_of(32) {
                mbarrier::arrive(self.board.barriers.empty(self.state.stage));
            }
        }
        self.state = self.state.next();
    }
}
