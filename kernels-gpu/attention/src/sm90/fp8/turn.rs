//! Values are turned: from keys below each other, as the copy engine brings them, to keys side by side.
//!
//! A unit of work is 32 keys by 16 columns. `ldmatrix.trans` gives a lane the bytes of two columns, 2 g and
//! 2 g + 1 with `g = lane / 4`, of keys 2 q and 2 q + 1 with `q = lane % 4`, of each 8 keys. Those of one
//! column and 16 keys are a word of the lane, in the order of slots that [`super`] has; `stmatrix` writes the
//! words of four lanes as a piece of 16 bytes. Even columns become the first 8 lines of 16, odd ones the
//! others: 8 lines of one `stmatrix` are 8 neighbours, whose pieces the swizzle puts in different banks.

use cuda_std::misc::{self, permute_bytes};
use cuda_std::warp::{FULL_MASK, sync_warp};
use cuda_std::{fence, matrix, mbarrier};
use layout::UNIT_BYTES;
use primitives::tma::LINE_BYTES;
use primitives::unroll;

use super::config::{BLOCK_N, Config, KEY_BOX, Plan, State, TURNERS};
use crate::score::Identity;
use crate::sm90::schedule::{Followed, Work};

/// Keys of a unit.
const UNIT_KEYS: u32 = 32;
/// Columns of a unit.
const UNIT_COLUMNS: u32 = UNIT_BYTES;
const _: () = assert!(BLOCK_N == 4 * UNIT_KEYS, "four units below each other");

/// Turns all blocks of values.
///
/// # Safety
/// As for [`run`](super::forward::run); the threads of `TURNERS` warps call it after the barriers are made,
/// with their numbers among them.
#[inline(always)]
pub(super) unsafe fn turn<C: Config>(shared: Plan<C>, thread: u32) {
    let mut tiles = Followed::first(shared.board());
    // Of values and of turned values: stages of both go round together.
    let mut state = State::<C>::START;
    let turner = Turner { warp: thread / 32, lane: thread % 32 };
    // SAFETY: the caller's contract. A stage is read once its values have come, and written once the
    // consumers have left it; each warp tells when it is done with both.
    unsafe {
        while let Some(ticket) = tiles.follow() {
            let work = ticket.work::<Identity>();
            let Work { sequence, blocks, .. } = work;
            let count = if work.has_queries() { blocks.count } else { 0 };
            let mut index = 0;
            while index < count {
                let first = blocks.get(index).block * BLOCK_N;
                shared.value_pipeline().consumer_wait(state);
                mbarrier::wait_parity(shared.turned_empty(state.stage), state.phase ^ 1);
                let (from, to) = (shared.values(state.stage), shared.turned(state.stage));
                turner.block::<C>(from, to, sequence.keys - first);
                fence::proxy_async_shared();
                sync_warp(FULL_MASK);
                if turner.lane == 0 {
                    mbarrier::arrive(shared.value_pipeline().empty(state.stage));
                    mbarrier::arrive(shared.turned_full(state.stage));
                }
                state = state.next();
                index += 1;
            }
            tiles.leave();
        }
    }
}

/// A lane of a warp that turns.
#[derive(Clone, Copy)]
struct Turner {
    warp: u32,
    lane: u32,
}

impl Turner {
    /// Turns the warp's part of a block: 16 columns at a time. Of keys from number `keys` on, zeros are
    /// written: they may be another sequence's, and a NaN there would spoil sums although its weight is zero.
    ///
    /// # Safety
    /// The whole warp is here; the stages are full, and empty.
    #[inline(always)]
    unsafe fn block<C: Config>(self, from: u32, to: u32, keys: u32) {
        let mut column = self.warp * UNIT_COLUMNS;
        while column < C::HEAD {
            let (from, to) = (from + self.source(column), to + self.target(column));
            unroll!(PAIR in 0..2, {
                // Two units are under way: more would take more registers than there are.
                let mut words = [[0; 4]; 2];
                unroll!(I in 0..2, {
                    let keys = (2 * PAIR + I) as u32 * UNIT_KEYS;
                    // SAFETY: the caller's contract; a piece of a line of a box.
                    words[I] = unsafe { matrix::ldmatrix_x4_trans(from + keys * LINE_BYTES) };
                });
                unroll!(I in 0..2, {
                    let first = (2 * PAIR + I) as u32 * UNIT_KEYS;
                    if keys < BLOCK_N {
                        self.clear(&mut words[I], first, keys);
                    }
                    // Pieces of other keys of a line differ in other bits: lines begin at multiples of these.
                    // SAFETY: the caller's contract; a piece of a line.
                    unsafe { matrix::stmatrix_x4(to ^ first, by_columns(words[I])) }
                });
            });
            column += TURNERS * UNIT_COLUMNS;
        }
    }

    /// Where the lane reads 16 columns of its key of the first unit, from the stage's begin on.
    #[inline(always)]
    const fn source(self, column: u32) -> u32 {
        let piece = (column % LINE_BYTES / UNIT_BYTES) ^ (self.lane % 8);
        column / LINE_BYTES * KEY_BOX + self.lane * LINE_BYTES + piece * UNIT_BYTES
    }

    /// Where the lane writes keys of the first unit. Matrices: even columns, odd ones, then 16 keys on.
    #[inline(always)]
    const fn target(self, column: u32) -> u32 {
        let (matrix, row) = (self.lane / 8, self.lane % 8);
        let line = column + matrix % 2 * 8 + row;
        line * LINE_BYTES + ((matrix / 2) ^ row) * UNIT_BYTES
    }

    /// Clears the bytes of keys from number `keys` of the block on.
    #[inline(always)]
    fn clear(self, words: &mut [u32; 4], first_key: u32, keys: u32) {
        // Computed here, and not kept over blocks without such keys.
        let first = first_key + misc::opaque(self.lane) % 4 * 2;
        unroll!(M in 0..4, {
            let key = first + 8 * M as u32;
            let low = if key < keys { 0xffff } else { 0 };
            let high = if key + 1 < keys { 0xffff_0000 } else { 0 };
            words[M] &= low | high;
        });
    }
}

/// From two columns of keys `8 m + 2 q` and `8 m + 2 q + 1`, a word for each `m`, to words of a column each.
#[inline(always)]
fn by_columns([a, b, c, d]: [u32; 4]) -> [u32; 4] {
    const EVEN: u32 = 0x6420;
    const ODD: u32 = 0x7531;
    [
        permute_bytes::<EVEN>(a, b),
        permute_bytes::<ODD>(a, b),
        permute_bytes::<EVEN>(c, d),
        permute_bytes::<ODD>(c, d),
    ]
}
