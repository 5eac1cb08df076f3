//! From a tile of accumulators to lists of the best rows: the epilogue of [`crate::tile`].
//!
//! Nearly every score fails against its query's k-th best so far, so the common way is two multiplications
//! and a comparison an element. Those that pass become candidates (key and query) in the warp's own part of a
//! buffer in shared memory. When a warp's part is more than half full, and at the end, all warps go through
//! all candidates, each for the 16 queries whose lists it keeps, and raise those queries' thresholds.
//!
//! A part that overflows (in a slice's first tiles nearly every score passes) makes the block sort at once
//! and the warp offer the rest of its tile again, against the raised thresholds.
//!
//! A score equal to the k-th best passes only if the list may hold rows of the same tile, which is when the
//! tile is offered again: rows of earlier tiles are lower and win ties.

use crate::key::{ORDERED_EMPTY, ORDERED_NEVER, join, may_enter, ordered, score_of, split};
use crate::list::TopList;
use crate::rows::Lane;
use crate::tile::{
    BLOCK_QUERIES, Plan, QUERIES_PER_WARP, QUERY_TILES, ROW_TILES, WARP_TILE, WARPS, WARPS_ACROSS,
};
use cuda_std::warp::FULL_MASK;
use cuda_std::{thread, vector, warp};
use primitives::unroll;
use primitives::warp::broadcast;

/// The sums of a warp's 64 rows x 64 queries that one lane holds.
pub type Accumulators = [[[f32; 4]; QUERY_TILES]; ROW_TILES];

const _: () =
    assert!(4 * QUERY_TILES == u32::BITS as usize, "a lane's scores of a row tile are a bit each in a mask");
const _: () = assert!(ROW_TILES == 4 && QUERY_TILES == 8, "counted out below");

/// Which of a lane's 32 scores of a row tile is meant: row half, query tile, column.
#[inline(always)]
fn row_of(score: u32) -> u32 {
    score % 4 / 2 * 8
}

#[inline(always)]
fn query_of(score: u32) -> u32 {
    score / 4 * 8 + score % 2
}

/// Lists, thresholds and candidates of a block; one copy a thread.
pub struct Collector {
    plan: Plan,
    base: u32,
    /// Queries from the tile's first one on.
    queries: u32,
    /// Rows of the corpus.
    rows: u32,
    warp: u32,
    lane: Lane,
    /// Candidates that the warp holds.
    count: core::cell::Cell<u32>,
}

impl Collector {
    /// For a tile of which `queries` are real, and a corpus of `rows`.
    #[inline(always)]
    pub fn new(plan: Plan, base: u32, queries: u32, rows: u32) -> Self {
        Collector {
            plan,
            base,
            queries,
            rows,
            warp: thread::thread_idx_x() / 32,
            lane: Lane::this(),
            count: core::cell::Cell::new(0),
        }
    }

    #[inline(always)]
    fn list(&self, query: u32) -> TopList {
        TopList::new(self.base + self.plan.list(query), self.plan.k())
    }

    /// Empties lists and thresholds and fetches the norms of the tile's queries. A barrier must follow.
    ///
    /// # Safety
    /// The block calls it together; `norms` holds one over the norm of each of the tile's queries.
    #[inline(always)]
    pub unsafe fn prepare(&self, norms: *const f32) {
        let mut query = thread::thread_idx_x();
        while query < BLOCK_QUERIES {
            let real = query < self.queries;
            // SAFETY: `query` is one of the tile's, and one of the norms'.
            unsafe {
                let norm = if real { vector::load_nc(norms.add(query as usize)) } else { 0.0 };
                vector::store_shared(self.base + self.plan.query_norm(query), norm);
                let threshold = if real { ORDERED_EMPTY } else { ORDERED_NEVER };
                vector::store_shared(self.base + self.plan.threshold(query), threshold);
            }
            query += WARPS * 32;
        }
        let first = self.warp * QUERIES_PER_WARP;
        let mut query = first;
        while query < first + QUERIES_PER_WARP {
            // SAFETY: this warp keeps that list.
            unsafe { self.list(query).clear() };
            query += 1;
        }
    }

    /// Offers the scores of a tile that begins at row `first_row`; `norms` is the shared address of one over
    /// its rows' norms.
    ///
    /// # Safety
    /// The block calls it together.
    #[inline(always)]
    pub unsafe fn collect(&self, sums: &Accumulators, norms: u32, first_row: u32) {
        let mut pending = [u32::MAX; ROW_TILES];
        let mut again = false;
        loop {
            // SAFETY: the caller's contract; the barriers inside part pushing from sorting.
            unsafe {
                let overflow = self.push(sums, norms, first_row, &mut pending, again);
                let crowded = overflow || self.count.get() > self.plan.capacity() / 2;
                self.publish();
                if thread::sync_threads_or(crowded as u32) == 0 {
                    return;
                }
                self.sort();
                if thread::sync_threads_or(overflow as u32) == 0 {
                    return;
                }
            }
            again = true;
        }
    }

    /// Sorts what is left and writes the list of each of the tile's queries to where `target` says.
    ///
    /// # Safety
    /// The block calls it together, once, last; `target(query)` has room for `k` keys.
    #[inline(always)]
    pub unsafe fn finish(&self, target: impl Fn(u32) -> *mut u64) {
        // SAFETY: the caller's contract.
        unsafe {
            self.publish();
            thread::sync_threads();
            self.sort();
            let first = self.warp * QUERIES_PER_WARP;
            let mut query = first;
            while query < first + QUERIES_PER_WARP && query < self.queries {
                let (list, out) = (self.list(query), target(query));
                let mut rank = warp::lane_id();
                while rank < self.plan.k() {
                    out.add(rank as usize).write(list.get(rank));
                    rank += 32;
                }
                query += 1;
            }
        }
    }

    /// Tells the other warps how many candidates this one holds. A barrier must follow.
    ///
    /// # Safety
    /// The warp calls it together, after a barrier that followed the last [`Collector::sort`].
    #[inline(always)]
    unsafe fn publish(&self) {
        if warp::lane_id() == 0 {
            // SAFETY: this warp's count.
            unsafe { vector::store_shared(self.base + self.plan.count(self.warp), self.count.get()) };
        }
    }

    /// Makes candidates of the scores that pass, of those still `pending`; says whether some did not fit.
    ///
    /// # Safety
    /// The warp calls it together, while no warp sorts.
    #[inline(always)]
    unsafe fn push(
        &self,
        sums: &Accumulators,
        norms: u32,
        first_row: u32,
        pending: &mut [u32; ROW_TILES],
        ties: bool,
    ) -> bool {
        let first_query = self.warp % WARPS_ACROSS * WARP_TILE + 2 * self.lane.member;
        let warp_row = self.warp / WARPS_ACROSS * WARP_TILE + self.lane.group;
        let mut query_norms = [[0.0; 2]; QUERY_TILES];
        let mut thresholds = [[0.0; 2]; QUERY_TILES];
        unroll!(tile in 0..8, {
            let query = first_query + tile as u32 * 8;
            // SAFETY: queries of the tile; `query` is even, and so the pairs aligned.
            unsafe {
                query_norms[tile] = vector::load_shared_v2(self.base + self.plan.query_norm(query));
                let [first, second] = vector::load_shared_v2(self.base + self.plan.threshold(query));
                thresholds[tile] = [score_of(first), score_of(second)];
            }
        });
        let mut overflow = false;
        unroll!(tile in 0..4, {
            let row = warp_row + tile as u32 * 16;
            // SAFETY: rows of the tile.
            let row_norms: [f32; 2] =
                unsafe { [vector::load_shared(norms + row * 4), vector::load_shared(norms + (row + 8) * 4)] };
            let passes = |column: usize, i: usize| {
                let value = sums[tile][column][i] * row_norms[i / 2] * query_norms[column][i % 2];
                may_enter(value, thresholds[column][i % 2])
            };
            let mut promising = false;
            unroll!(column in 0..8, {
                unroll!(i in 0..4, {
                    promising |= passes(column, i);
                });
            });
            // SAFETY: the caller's contract; the vote makes the branch the whole warp's.
            unsafe {
                if warp::warp_vote_any(FULL_MASK, promising) {
                    let mut mask = 0;
                    unroll!(column in 0..8, {
                        unroll!(i in 0..4, {
                            mask |= (passes(column, i) as u32) << (4 * column + i);
                        });
                    });
                    mask &= pending[tile];
                    let row = first_row + row;
                    overflow |= self.push_some(&sums[tile], row_norms, row, first_query, ties, &mut mask);
                    pending[tile] = mask;
                }
            }
        });
        overflow
    }

    /// Makes candidates of the scores in `mask`, a lane's first one after the other, and leaves in it those
    /// that did not fit.
    ///
    /// # Safety
    /// As [`Collector::push`].
    #[inline(always)]
    unsafe fn push_some(
        &self,
        sums: &[[f32; 4]; QUERY_TILES],
        row_norms: [f32; 2],
        row: u32,
        first_query: u32,
        ties: bool,
        mask: &mut u32,
    ) -> bool {
        let capacity = self.plan.capacity();
        // SAFETY: the caller's contract; all lanes run the loop as often as each other, as the vote says.
        unsafe {
            while warp::warp_vote_any(FULL_MASK, *mask != 0) {
                if self.count.get() == capacity {
                    return true;
                }
                let score = mask.trailing_zeros() % 32;
                let (row, query) = (row + row_of(score), first_query + query_of(score));
                let row_norm = if row_of(score) == 0 { row_norms[0] } else { row_norms[1] };
                let query_norm: f32 = vector::load_shared(self.base + self.plan.query_norm(query));
                let high = ordered(pick(sums, score) * row_norm * query_norm);
                let threshold: u32 = vector::load_shared(self.base + self.plan.threshold(query));
                let wanted =
                    *mask != 0 && row < self.rows && (high > threshold || (ties && high == threshold));
                let wanting = warp::warp_vote_ballot(FULL_MASK, wanted);
                let before = wanting & ((1 << warp::lane_id()) - 1);
                let index = self.count.get() + before.count_ones();
                let fits = index < capacity;
                if wanted && fits {
                    let place = self.base + self.plan.candidate(self.warp, index);
                    vector::store_shared_v4(place, [!row, high, query, 0]);
                }
                if !wanted || fits {
                    *mask &= mask.wrapping_sub(1);
                }
                self.count.set((self.count.get() + wanting.count_ones()).min(capacity));
            }
        }
        false
    }

    /// Sorts all candidates of this warp's queries into their lists, raises the thresholds, forgets the
    /// candidates. A barrier must come before and after.
    ///
    /// # Safety
    /// The block calls it together, after [`Collector::publish`].
    #[inline(always)]
    unsafe fn sort(&self) {
        let mut other = 0;
        while other < WARPS {
            // SAFETY: counts and candidates are read by all and written by none; lists and thresholds are
            // this warp's.
            unsafe {
                let count: u32 = vector::load_shared(self.base + self.plan.count(other));
                let mut first = 0;
                while first < count {
                    let index = first + warp::lane_id();
                    let mut candidate = [0; 4];
                    if index < count {
                        candidate =
                            vector::load_shared_v4::<u32>(self.base + self.plan.candidate(other, index));
                    }
                    self.insert(candidate, index < count);
                    first += 32;
                }
            }
            other += 1;
        }
        self.count.set(0);
    }

    /// Inserts the lanes' candidates that are of this warp's queries.
    ///
    /// # Safety
    /// As [`Collector::sort`].
    #[inline(always)]
    unsafe fn insert(&self, [low, high, query, _]: [u32; 4], real: bool) {
        // SAFETY: the caller's contract; the ballot makes the loop the whole warp's.
        unsafe {
            let mine = real && query / QUERIES_PER_WARP == self.warp;
            let mut waiting = warp::warp_vote_ballot(FULL_MASK, mine);
            while waiting != 0 {
                let source = waiting.trailing_zeros();
                let query = broadcast(query, source);
                let worst = self.list(query).insert(broadcast(join(high, low), source));
                if warp::lane_id() == 0 {
                    let threshold = self.base + self.plan.threshold(query);
                    vector::store_shared(threshold, split(worst).0);
                }
                waiting &= waiting - 1;
            }
        }
    }
}

/// Score `index` of 32, without an address: the array stays in registers.
#[inline(always)]
fn pick(sums: &[[f32; 4]; QUERY_TILES], index: u32) -> f32 {
    let bit = |bit: u32| index >> bit & 1 == 1;
    let mut columns = [0.0; QUERY_TILES];
    unroll!(column in 0..8, {
        let [a, b, c, d] = sums[column];
        let (first, second) = if bit(0) { (b, d) } else { (a, c) };
        columns[column] = if bit(1) { second } else { first };
    });
    unroll!(i in 0..4, {
        columns[i] = if bit(2) { columns[2 * i + 1] } else { columns[2 * i] };
    });
    unroll!(i in 0..2, {
        columns[i] = if bit(3) { columns[2 * i + 1] } else { columns[2 * i] };
    });
    if bit(4) { columns[1] } else { columns[0] }
}
