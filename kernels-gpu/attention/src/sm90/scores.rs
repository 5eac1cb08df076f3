//! From the scores of a block to those of the softmax: the score function, and the masks.

use cuda_std::misc;
use cuda_std::warp::{FULL_MASK, warp_vote_any};
use primitives::unroll;

use super::config::Config;
use super::forward::{Arguments, Consumer};
use super::fragments::{Fragment, Rounded, WORD_COLUMNS, WORD_STEPS, in_row, steps};
use super::line::LEAST_SCALE;
use super::schedule::Ticket;
use crate::block_lists::Listed;
use crate::dropout::First;
use crate::problem::{Band, Visible};
use crate::score::{Position, Real, Scaled, ScoreFunction};

impl<C: Config> Consumer<'_, C> {
    /// A bit for each of a thread's keys of a row.
    const KEYS: u32 = if C::BLOCK_N >= WORD_COLUMNS { u32::MAX } else { (1 << (C::BLOCK_N / 4)) - 1 };

    /// The factor of scores in the softmax: the score function gets them with it.
    #[inline(always)]
    pub(super) fn softmax_scale(self) -> f32 {
        let Arguments { params, function, .. } = self.arguments;
        if C::Function::HAS_SLOPE {
            params.scale.max(LEAST_SCALE)
        } else if C::Function::IS_PLAIN {
            params.scale
        } else {
            function.factor()
        }
    }

    /// Which keys of a block the thread's two rows see, by the band and the function's mask: a bit each.
    /// Asked while the products of the scores are under way. Blocks that are listed as whole are not asked.
    ///
    /// # Safety
    /// As for [`run`](super::forward::run).
    #[inline(always)]
    pub(super) unsafe fn seen(self, ticket: Ticket, listed: Listed) -> [u32; 2] {
        let Listed { block, is_partial } = listed;
        let function = self.arguments.function;
        let mut seen = [u32::MAX; 2];
        // SAFETY: the caller's contract.
        unsafe {
            if C::Function::IS_PLAIN {
                return seen;
            }
            const { assert!(C::Function::IS_PLAIN || C::BLOCK_N <= 128, "a bit for each score of a row") };
            // All are asked: behind a branch, loads of the mask's would wait for each other.
            if is_partial {
                seen = self.in_band(ticket, block);
            }
            if is_partial || ticket.blocks::<C::Function>().is_unlisted() {
                self.for_each(ticket, block, |row, column, at| {
                    seen[row] &= !(u32::from(!function.mask(at)) << column);
                });
            }
        }
        seen
    }

    /// Which keys of a block the band shows to the thread's two rows: a bit each. Bits without a key are set.
    ///
    /// # Safety
    /// As for [`Ticket::place`].
    #[inline(always)]
    unsafe fn in_band(self, ticket: Ticket, block: u32) -> [u32; 2] {
        // SAFETY: the caller's contract.
        let (tile, sequence) = unsafe { ticket.place() };
        let band = self.arguments.params.band;
        let place = Self { thread: misc::opaque(self.thread), ..self };
        let diagonal = band.diagonal(sequence.queries, sequence.keys) + (tile.first_row + place.row()) as i32;
        let column = block * C::BLOCK_N + place.thread % 4 * 2;
        [0, 8].map(|below| {
            let Visible { first, end } = band.visible(diagonal + below, sequence.keys);
            in_row(first, end, column) | !Self::KEYS
        })
    }

    /// Which weights of a block of the thread's two rows are kept by dropout: a bit each.
    ///
    /// # Safety
    /// As for [`run`](super::forward::run).
    #[inline(always)]
    pub(super) unsafe fn drawn(self, ticket: Ticket, listed: Listed) -> [u32; 2] {
        let Some(dropout) = self.arguments.function.dropout() else { return [u32::MAX; 2] };
        // SAFETY: the caller's contract.
        unsafe {
            let (tile, _) = ticket.place();
            let place = Self { thread: misc::opaque(self.thread), ..self };
            let query = tile.first_row + place.row();
            let key = listed.block * C::BLOCK_N + place.thread % 4 * 2;
            dropout.of_queries(First { batch: tile.batch, head: tile.head, query, key }, steps::<C::Scores>())
        }
    }

    /// Rounds the weights, without those that are dropped.
    #[inline(always)]
    pub(super) fn round(self, to: &mut Rounded, weights: &C::Scores, drawn: [u32; 2]) {
        to.set::<C::Element, _>(weights);
        if self.arguments.function.dropout().is_some() {
            to.keep_drawn::<C::Scores>(drawn);
        }
    }

    /// Applies the score function, and hides what is not `seen`; or applies the mask of the band.
    ///
    /// # Safety
    /// As for [`run`](super::forward::run); the whole warpgroup is here.
    #[inline(always)]
    pub(super) unsafe fn modify(
        self,
        scores: &mut C::Scores,
        ticket: Ticket,
        listed: Listed,
        seen: [u32; 2],
    ) {
        let Listed { block, is_partial } = listed;
        let Arguments { params, function, .. } = self.arguments;
        // SAFETY: the caller's contract.
        unsafe {
            if C::Function::IS_PLAIN {
                if is_partial {
                    // Places are computed here, and not kept over blocks without a mask.
                    let place = Self { thread: misc::opaque(self.thread), ..self };
                    let column = block * C::BLOCK_N + place.thread % 4 * 2;
                    hide(scores, params.band, ticket, place.row(), column);
                }
                return;
            }
            let (x, scale) = (scores.as_mut(), params.scale);
            self.for_each(ticket, block, |row, column, at| {
                let x = &mut x[column / 2 * 4 + 2 * row + column % 2];
                *x = function.score(Scaled::score(*x, scale), at).value();
            });
            if warp_vote_any(FULL_MASK, seen != [u32::MAX; 2]) {
                unroll!(ROW in 0..2, {
                    unroll!(COLUMN in 0..32, {
                        if COLUMN < 2 * steps::<C::Scores>() && seen[ROW] & 1 << COLUMN == 0 {
                            x[COLUMN / 2 * 4 + 2 * ROW + COLUMN % 2] = f32::NEG_INFINITY;
                        }
                    });
                });
            }
        }
    }

    /// Calls `each` for all of the thread's scores of a block: with the row and the column among the
    /// thread's, and the position. Rows and columns beyond the last ones have the place of the last ones, so
    /// that no function looks beyond what there is.
    ///
    /// # Safety
    /// As for [`run`](super::forward::run).
    #[inline(always)]
    unsafe fn for_each(self, ticket: Ticket, block: u32, mut each: impl FnMut(usize, usize, Position)) {
        // SAFETY: the caller's contract.
        let (tile, sequence) = unsafe { ticket.place() };
        let band = self.arguments.params.band;
        let place = Self { thread: misc::opaque(self.thread), ..self };
        let row = tile.first_row + place.row();
        let column = block * C::BLOCK_N + place.thread % 4 * 2;
        let diagonal = band.diagonal(sequence.queries, sequence.keys) + row as i32;
        let [last_query, last_key] = [sequence.queries - 1, sequence.keys - 1];
        let distance = (column as i32 - diagonal) as f32;
        // Row by row inside: places with the same distance are beside each other.
        unroll!(STEP in 0..32, {
            if STEP < steps::<C::Scores>() {
                unroll!(ROW in 0..2, {
                    let query = (row + 8 * ROW as u32).min(last_query);
                    unroll!(I in 0..2, {
                        let offset = (8 * STEP + I) as i32;
                        let key = (column + offset as u32).min(last_key);
                        let distance = distance + (offset - 8 * ROW as i32) as f32;
                        let at = Position { batch: tile.batch, head: tile.head, query, key, distance };
                        each(ROW, 2 * STEP + I, at);
                    });
                });
            }
        });
    }
}

/// Sets the scores of keys that a query does not see to minus infinity. The thread's first score is that of
/// row `row` of the tile and of key `column`.
///
/// # Safety
/// As for [`Ticket::place`].
#[inline(always)]
pub(super) unsafe fn hide<S: Fragment>(scores: &mut S, band: Band, ticket: Ticket, row: u32, column: u32) {
    // SAFETY: the caller's contract.
    let (tile, sequence) = unsafe { ticket.place() };
    let diagonal = band.diagonal(sequence.queries, sequence.keys) + (tile.first_row + row) as i32;
    let x = scores.as_mut();
    unroll!(ROW in 0..2, {
        let Visible { first, end } = band.visible(diagonal + 8 * ROW as i32, sequence.keys);
        unroll!(WORD in 0..2, {
            if WORD * WORD_STEPS < steps::<S>() {
                let seen = in_row(first, end, column + WORD as u32 * WORD_COLUMNS);
                unroll!(STEP in 0..16, {
                    let step = WORD * WORD_STEPS + STEP;
                    if step < steps::<S>() {
                        unroll!(I in 0..2, {
                            if seen & 1 << (2 * STEP + I) == 0 {
                                x[4 * step + 2 * ROW + I] = f32::NEG_INFINITY;
                            }
                        });
                    }
                });
            }
        });
    });
}
