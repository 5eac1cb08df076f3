//! Weights of scores that go through a score function, and what dS takes of them.
//!
//! With `f` the score function, `P = e^(f(scale S) - L)` and `dS = P f' (dP - D)`: `f'` comes from the same
//! call, as the derivative of a [`Dual`]. dV takes `P`; dS takes `P f'` where it takes `P` else, so the
//! derivatives need no registers of their own.

use core::f32::consts::LOG2_E;

use cuda_std::fastmath::ex2_approx;
use cuda_std::warp::{FULL_MASK, warp_vote_any};
use cuda_std::{misc, vector};
use primitives::unroll;

use super::config::Config;
use super::consumer::{Consumer, only};
use super::work::{Turn, Work};
use crate::problem::Seen;
use crate::score::{Dual, Position, Real, Scaled, ScoreFunction};
use crate::sm90::fragments::{Rounded, in_row, steps};

/// Where a thread's scores of a tile stand: two keys, 8 apart, and two of every eight queries.
#[derive(Clone, Copy)]
struct Places {
    batch: u32,
    head: u32,
    first_query: u32,
    first_key: u32,
    /// The key on the first query's diagonal.
    diagonal: i32,
    /// The last query and key that there are.
    last: [u32; 2],
}

impl Places {
    /// That of a query and a key. With `LIMITED`, those beyond the last ones have the place of the last ones,
    /// so that no function looks beyond what there is.
    #[inline(always)]
    fn get<const LIMITED: bool>(self, step: usize, i: usize, row: usize) -> Position {
        let offset = (8 * step + i) as u32;
        let (query, key) = (self.first_query + offset, self.first_key + 8 * row as u32);
        let distance = (key as i32 - self.diagonal) as f32 - offset as f32;
        let [last_query, last_key] = if LIMITED { self.last } else { [u32::MAX; 2] };
        let (query, key) = (query.min(last_query), key.min(last_key));
        Position { batch: self.batch, head: self.head, query, key, distance }
    }
}

impl<C: Config> Consumer<'_, C> {
    /// Bits of a thread's queries of a tile.
    const QUERIES: u32 = if C::BLOCK_M == 128 { u32::MAX } else { (1 << (C::BLOCK_M / 4)) - 1 };

    /// Places are computed where they are needed, and not kept beside the products.
    ///
    /// # Safety
    /// As for [`seen`](Self::seen).
    #[inline(always)]
    unsafe fn places(self, turn: Turn) -> Places {
        // SAFETY: the block has met since the work was told.
        let Work { tile, sequence, .. } = unsafe { self.work() };
        let thread = misc::opaque(self.thread);
        let first_query = turn.block * C::BLOCK_M + thread % 4 * 2;
        Places {
            batch: tile.batch,
            head: turn.head,
            first_query,
            first_key: Self { thread, ..self }.first_key(tile),
            diagonal: self.arguments.params.band.diagonal(sequence.queries, sequence.keys)
                + first_query as i32,
            last: [sequence.queries - 1, sequence.keys - 1],
        }
    }

    /// Which of the thread's queries see its two keys, by the band and the function's mask: a bit each. Asked
    /// while the products of the scores are under way. Whole tiles of a list are not asked.
    ///
    /// # Safety
    /// As for [`run`](super::main_pass::run); the stage is full.
    #[inline(always)]
    pub(super) unsafe fn seen(self, stage: u32) -> [u32; 2] {
        // SAFETY: the caller's contract.
        unsafe {
            let turn = self.ticket(stage).read();
            if turn.is_partial {
                self.ask::<true>(turn)
            } else if self.arguments.lists.is_none() {
                self.ask::<false>(turn)
            } else {
                [u32::MAX; 2]
            }
        }
    }

    /// The same, in the `BAND` of the problem, or where it shows all.
    ///
    /// # Safety
    /// As for [`seen`](Self::seen).
    #[inline(always)]
    unsafe fn ask<const BAND: bool>(self, turn: Turn) -> [u32; 2] {
        // SAFETY: the caller's contract.
        let (places, Work { sequence, .. }) = unsafe { (self.places(turn), self.work()) };
        let band = self.arguments.params.band;
        let mut seen = [0, 8].map(|below| {
            if !BAND {
                return u32::MAX;
            }
            let Seen { first, end } = band.seen_by(sequence, places.first_key + below);
            in_row(first, end, places.first_query) | !Self::QUERIES
        });
        unroll!(STEP in 0..16, {
            if STEP < steps::<C::Scores>() {
                unroll!(I in 0..2, {
                    unroll!(ROW in 0..2, {
                        // All are asked: behind a branch, loads of the mask's would wait for each other.
                        let is_hidden = !self.function.mask(places.get::<BAND>(STEP, I, ROW));
                        seen[ROW] &= !(u32::from(is_hidden) << (2 * STEP + I));
                    });
                });
            }
        });
        seen
    }

    /// Makes weights of scores, and gives them with the derivatives of the score function: rounded; or in f32
    /// in place of the scores ([`Config::KEEPS_WEIGHTS`]). What is not among the `seen` has no weight.
    ///
    /// # Safety
    /// As for [`seen`](Self::seen); the whole warpgroup is here.
    #[inline(always)]
    pub(super) unsafe fn weigh_with_function(
        self,
        scores: &mut C::Scores,
        weights: &mut Rounded,
        stage: u32,
        seen: [u32; 2],
    ) -> Rounded {
        // SAFETY: the caller's contract.
        unsafe {
            if warp_vote_any(FULL_MASK, seen != [u32::MAX; 2]) {
                self.weigh_as::<true>(scores, weights, stage, seen)
            } else {
                self.weigh_as::<false>(scores, weights, stage, seen)
            }
        }
    }

    /// The same, where some may be `HIDDEN`. Else all places are there.
    ///
    /// # Safety
    /// As for [`weigh_with_function`](Self::weigh_with_function).
    #[inline(always)]
    unsafe fn weigh_as<const HIDDEN: bool>(
        self,
        scores: &mut C::Scores,
        weights: &mut Rounded,
        stage: u32,
        seen: [u32; 2],
    ) -> Rounded {
        // SAFETY: the caller's contract.
        let places = unsafe { self.places(self.ticket(stage).read()) };
        let from = self.shared.logarithms(stage) + places.first_query % 8 * 4;
        let mut kept = Rounded::zero();
        let factor = self.function.factor();
        let x = scores.as_mut();
        unroll!(STEP in 0..16, {
            if STEP < steps::<C::Scores>() {
                // SAFETY: the logarithms of two queries.
                let logarithms: [f32; 2] = unsafe { vector::load_shared_v2(from + STEP as u32 * 32) };
                unroll!(ROW in 0..2, {
                    let (place, pair) = (4 * STEP + 2 * ROW, 2 * STEP + ROW);
                    let [low, high] = [0, 1].map(|i| {
                        let score = Scaled::score(x[place + i], self.arguments.params.scale);
                        let place = places.get::<HIDDEN>(STEP, i, ROW);
                        let score = self.function.score(Dual::score(score), place).parts();
                        let [score, derivative] = score.map(|part| part * factor);
                        let weight = ex2_approx((score * LOG2_E - logarithms[i]).value());
                        let kept = weight * derivative.value();
                        if HIDDEN { [weight, kept].map(|x| only(x, seen[ROW], 2 * STEP + i)) } else { [weight, kept] }
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
