//! Values are turned: from keys below each other, as the copy engine brings them, to keys side by side.
//!
//! A unit of work is 128 keys by 16 columns. `ldmatrix.trans` gives a lane the bytes of two columns, 2 g and
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
use primitives::warp::LANES;

use super::config::{Config, LINE_KEYS, Plan, State, TURNERS};
use crate::score::Identity;
use crate::sm90::schedule::Followed;

/// Keys of one `ldmatrix`.
const STEP_KEYS: u32 = 32;
/// Loads of a line.
const STEPS: usize = (LINE_KEYS / STEP_KEYS) as usize;
/// Units of columns beside each other in a box.
const LINE_UNITS: u32 = LINE_BYTES / UNIT_BYTES;
/// Columns of a unit.
const UNIT_COLUMNS: u32 = UNIT_BYTES;

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
    let (lane, row) = (thread % LANES, thread % 8);
    let source = lane * LINE_BYTES + row * UNIT_BYTES;
    let target = (lane / 8 % 2 * 8 + row) * LINE_BYTES + ((lane / 16) ^ row) * UNIT_BYTES;
    let turner = Turner {
        warp: misc::opaque(thread / LANES),
        lane,
        source: misc::opaque(source),
        target: misc::opaque(target),
    };
    // SAFETY: the caller's contract. A stage is read once its values have come, and written once the
    // consumers have left it; each warp tells when it is done with both.
    unsafe {
        while let Some(ticket) = tiles.follow() {
            // Of the tile a block wants little, which is read again for each: registers are few.
            let mut left = if ticket.work::<Identity>().has_queries() { ticket.count() } else { 0 };
            while left > 0 {
                shared.value_pipeline().consumer_wait(state);
                mbarrier::wait_parity(shared.turned_empty(state.stage), state.phase ^ 1);
                let (_, sequence) = ticket.place();
                let block = ticket.get::<Identity>(ticket.count() - left).block;
                turner.block::<C>(state.stage, shared, sequence.keys - block * C::BLOCK_N);
                fence::proxy_async_shared();
                sync_warp(FULL_MASK);
                if turner.lane == 0 {
                    mbarrier::arrive(shared.value_pipeline().empty(state.stage));
                    mbarrier::arrive(shared.turned_full(state.stage));
                }
                state = state.next();
                left -= 1;
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
    /// Where it reads the first columns of its key of the first 32.
    source: u32,
    /// Where it writes keys of the first unit. Matrices: even columns, odd ones, then 16 keys on.
    target: u32,
}

impl Turner {
    /// Turns the warp's units of a block. Of keys from number `keys` on, zeros are written: they may be
    /// another sequence's, and a NaN there would spoil sums although its weight is zero.
    ///
    /// # Safety
    /// The whole warp is here; the stages are full, and empty.
    #[inline(always)]
    unsafe fn block<C: Config>(self, stage: u32, shared: Plan<C>, keys: u32) {
        let columns = C::HEAD / UNIT_COLUMNS;
        let mut unit = self.warp;
        while unit < columns * (C::BLOCK_N / LINE_KEYS) {
            let (column, line) = (unit % columns, unit / columns);
            let from = column / LINE_UNITS * C::KEY_BOX + line * LINE_KEYS * LINE_BYTES;
            let from = shared.values(stage) + from + (self.source ^ (column % LINE_UNITS * UNIT_BYTES));
            let to = line * C::TURNED_BOX + column * UNIT_COLUMNS * LINE_BYTES;
            let to = shared.turned(stage) + to + self.target;
            // Pieces of other keys of a line differ in other bits: lines begin at multiples of these.
            // SAFETY: the caller's contract; pieces of lines of boxes.
            unsafe {
                if keys >= C::BLOCK_N {
                    let mut words = [[0; 4]; STEPS];
                    unroll!(STEP in 0..4, {
                        words[STEP] = matrix::ldmatrix_x4_trans(from + STEP as u32 * STEP_KEYS * LINE_BYTES);
                    });
                    unroll!(STEP in 0..4, {
                        matrix::stmatrix_x4(to ^ (STEP as u32 * STEP_KEYS), by_columns(words[STEP]));
                    });
                } else {
                    // Or the compiler would compute all of it before, for registers that there are not.
                    let (keys, mut key) = (misc::opaque(keys), 0);
                    while key < LINE_KEYS {
                        let mut words = matrix::ldmatrix_x4_trans(from + key * LINE_BYTES);
                        self.clear(&mut words, line * LINE_KEYS + key, keys);
                        matrix::stmatrix_x4(to ^ key, by_columns(words));
                        key = misc::opaque(key + STEP_KEYS);
                    }
                }
            }
            unit += TURNERS;
        }
    }

    /// Clears the bytes of keys from number `keys` of the block on.
    #[inline(always)]
    fn clear(self, words: &mut [u32; 4], first_key: u32, keys: u32) {
        // Computed here, and not kept over blocks without such keys.
        let first = first_key + self.lane % 4 * 2;
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
