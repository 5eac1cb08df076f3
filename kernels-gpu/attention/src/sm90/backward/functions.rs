//! Weights of scores that go through a score function, and what dS takes of them.
//!
//! With `f` the score function, `P = e^(f(scale S) - L)` and `dS = P f' (dP - D)`: `f'` comes from the same
//! call, as the derivative of a [`Dual`]. dV takes `P`; dS takes `P f'` where it takes `P` else, so the
//! derivatives need no registers of their own.

use cuda_std::fastmath::{ex2_approx, fma};
use cuda_std::{misc, vector};
use primitives::unroll;

use super::config::Config;
use super::main_pass::Consumer;
use super::work::{Turn, Work};
use crate::problem::Seen;
use crate::score::{Dual, Position, ScoreFunction};
use crate::sm90::fragments::{Rounded, steps};

impl<C: Config> Consumer<'_, C> {
    /// Makes weights of scores, and gives them with the derivatives of the score function: rounded; or in f32
    /// in place of the scores ([`Config::KEEPS_WEIGHTS`]). Tiles that are listed as whole, and those that the
    /// band shows whole where no tiles are listed, go without a part of the questions.
    ///
    /// # Safety
    /// As for [`run`](super::main_pass::run); the stage is full.
    #[inline(always)]
    pub(super) unsafe fn weigh_with_function(
        self,
        scores: &mut C::Scores,
        weights: &mut Rounded,
        stage: u32,
    ) -> Rounded {
        // SAFETY: the caller's contract.
        unsafe {
            let turn = self.ticket(stage).read();
            if turn.is_partial {
                self.weigh_as::<true, true>(scores, weights, stage, turn)
            } else if self.arguments.lists.is_none() {
                self.weigh_as::<false, true>(scores, weights, stage, turn)
            } else {
                self.weigh_as::<false, false>(scores, weights, stage, turn)
            }
        }
    }

    /// The same, in the `BAND` of the problem, and asking the `MASK` of the function.
    ///
    /// Rows and columns beyond the last ones have the place of the last ones, so that no function looks
    /// beyond what there is; they have no weight. They are in tiles that are partial.
    ///
    /// # Safety
    /// As for [`weigh_with_function`](Self::weigh_with_function).
    #[inline(always)]
    unsafe fn weigh_as<const BAND: bool, const MASK: bool>(
        self,
        scores: &mut C::Scores,
        weights: &mut Rounded,
        stage: u32,
        turn: Turn,
    ) -> Rounded {
        let params = self.arguments.params;
        // SAFETY: the block has met since the work was told.
        let Work { tile, sequence, .. } = unsafe { Work::told(self.shared.work()) };
        // Places are computed here, and not kept beside the products.
        let thread = misc::opaque(self.thread);
        let first_key = Self { thread, ..self }.first_key(tile);
        let column = turn.block * C::BLOCK_M + thread % 4 * 2;
        let diagonal = params.band.diagonal(sequence.queries, sequence.keys) + column as i32;
        let last = [sequence.queries - 1, sequence.keys - 1];
        let [last_query, last_key] = if BAND { last } else { [u32::MAX; 2] };
        let seen = [first_key, first_key + 8]
            .map(|key| if BAND { in_tile(params.band.seen_by(sequence, key), column) } else { u32::MAX });
        let from = self.shared.logarithms(stage) + thread % 4 * 8;
        let mut kept = Rounded::zero();
        let x = scores.as_mut();
        unroll!(STEP in 0..16, {
            if STEP < steps::<C::Scores>() {
                // SAFETY: the logarithms of two queries.
                let logarithms: [f32; 2] = unsafe { vector::load_shared_v2(from + STEP as u32 * 32) };
                unroll!(ROW in 0..2, {
                    let (place, pair) = (4 * STEP + 2 * ROW, 2 * STEP + ROW);
                    let key = first_key + 8 * ROW as u32;
                    let distance = (key as i32 - diagonal) as f32;
                    let [low, high] = [0, 1].map(|i| {
                        let offset = (8 * STEP + i) as u32;
                        let at = Position {
                            batch: tile.batch,
                            head: turn.head,
                            query: (column + offset).min(last_query),
                            key: key.min(last_key),
                            distance: distance - offset as f32,
                        };
                        let score = self.function.score(Dual::score(x[place + i] * params.scale), at);
                        let exponent = fma(score.value, core::f32::consts::LOG2_E, -logarithms[i]);
                        let weight = ex2_approx(exponent);
                        let is_seen = (!BAND || seen[ROW] & 1 << (2 * STEP + i) != 0)
                            & (!MASK || self.function.mask(at));
                        if is_seen { [weight, weight * score.derivative] } else { [0.0; 2] }
                    });
                    weights.set_pair::<C::Element>(pair, low[0], high[0]);
                    if C::KEEPS_WEIGHTS {
                        x[place] = low[1];
                        x[place + 1] = high[1];
                    } else {
                        kept.set_pair::<C::Element>(pair, low[1], high[1]);
                    }
                });
            }
        });
        kept
    }
}

/// Which of a thread's queries of a tile are among these, a bit each. `column` is the first of them; the
/// others are those of an accumulator's row, two of every eight.
#[inline(always)]
fn in_tile(Seen { first, end }: Seen, column: u32) -> u32 {
    let below = |end: u32| {
        let end = end.saturating_sub(column);
        let bits = end / 8 * 2 + (end % 8).min(2);
        if bits < 32 { (1 << bits) - 1 } else { u32::MAX }
    };
    below(end) & !below(first)
}

#[cfg(test)]
mod tests {
    use super::in_tile;
    use crate::problem::Seen;

    /// Against asking each of a thread's 32 queries.
    #[test]
    fn bits_are_the_queries_that_see_the_key() {
        let column = 130;
        let query = |bit: u32| column + bit / 2 * 8 + bit % 2;
        for first in 120..270 {
            for end in [first - 1, first, first + 1, first + 9, first + 30, 300] {
                let want = (0..32).filter(|&bit| (first..end).contains(&query(bit)));
                let want = want.fold(0, |bits, bit| bits | 1 << bit);
                assert_eq!(in_tile(Seen { first, end }, column), want, "{first}..{end}");
            }
        }
    }
}
