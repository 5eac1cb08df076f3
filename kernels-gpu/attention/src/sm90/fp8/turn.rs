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
/// Units that a warp has under way.
const UNDER_WAY: usize = 2;

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
    /// Turns the warp's part of a block. Of keys from number `keys` on, zeros are written: they may be
    /// another sequence's, and what is no number there would spoil sums although its weight is zero.
    ///
    /// # Safety
    /// The whole warp is here; the stages are full, and empty.
    #[inline(always)]
    unsafe fn block<C: Config>(self, from: u32, to: u32, keys: u32) {
        let units = BLOCK_N / UNIT_KEYS * (C::HEAD / UNIT_COLUMNS);
        let mut unit = self.warp;
        while unit < units {
            // Addresses are computed for each unit: they would hold registers.
            let turner = Self { lane: misc::opaque(self.lane), ..self };
            let mut words = [[0; 4]; UNDER_WAY];
            unroll!(AT in 0..2, {
                let unit = unit + AT as u32 * TURNERS;
                if unit < units {
                    // SAFETY: the caller's contract.
                    words[AT] = unsafe { turner.load(from, unit) };
                }
            });
            unroll!(AT in 0..2, {
                let unit = unit + AT as u32 * TURNERS;
                if unit < units {
                    if keys < BLOCK_N {
                        turner.clear(&mut words[AT], unit, keys);
                    }
                    // SAFETY: the caller's contract.
                    unsafe { turner.store(to, unit, words[AT]) }
                }
            });
            unit += UNDER_WAY as u32 * TURNERS;
        }
    }

    /// First key and first column of a unit: warps go through the columns of 32 keys.
    #[inline(always)]
    const fn place(unit: u32) -> [u32; 2] {
        const KEY_UNITS: u32 = BLOCK_N / UNIT_KEYS;
        [unit % KEY_UNITS * UNIT_KEYS, unit / KEY_UNITS * UNIT_COLUMNS]
    }

    /// The bytes of two columns of keys `8 m + 2 q` and `8 m + 2 q + 1`, a word for each `m`.
    ///
    /// # Safety
    /// As for [`block`](Self::block).
    #[inline(always)]
    unsafe fn load(self, from: u32, unit: u32) -> [u32; 4] {
        let [first_key, column] = Self::place(unit);
        let key = first_key + self.lane;
        let piece = (column % LINE_BYTES / UNIT_BYTES) ^ (key % 8);
        let address = from + column / LINE_BYTES * KEY_BOX + key * LINE_BYTES + piece * UNIT_BYTES;
        // SAFETY: the caller's contract; a piece of a line of a box.
        unsafe { matrix::ldmatrix_x4_trans(address) }
    }

    /// Clears the bytes of keys from number `keys` of the block on.
    #[inline(always)]
    fn clear(self, words: &mut [u32; 4], unit: u32, keys: u32) {
        let first = Self::place(unit)[0] + self.lane % 4 * 2;
        unroll!(M in 0..4, {
            let key = first + 8 * M as u32;
            let low = if key < keys { 0xffff } else { 0 };
            let high = if key + 1 < keys { 0xffff_0000 } else { 0 };
            words[M] &= low | high;
        });
    }

    /// Writes the columns as lines.
    ///
    /// # Safety
    /// As for [`block`](Self::block).
    #[inline(always)]
    unsafe fn store(self, to: u32, unit: u32, [a, b, c, d]: [u32; 4]) {
        const EVEN: u32 = 0x6420;
        const ODD: u32 = 0x7531;
        let turned = [
            permute_bytes::<EVEN>(a, b),
            permute_bytes::<ODD>(a, b),
            permute_bytes::<EVEN>(c, d),
            permute_bytes::<ODD>(c, d),
        ];
        let [first_key, column] = Self::place(unit);
        // Matrices: even columns, odd ones, then 16 keys on.
        let (matrix, row) = (self.lane / 8, self.lane % 8);
        let line = column + matrix % 2 * 8 + row;
        let piece = (first_key / UNIT_BYTES + matrix / 2) ^ row;
        // SAFETY: the caller's contract; a piece of a line.
        unsafe { matrix::stmatrix_x4(to + line * LINE_BYTES + piece * UNIT_BYTES, turned) }
    }
}
