//! From a warp's accumulators to the lists of its 16 queries: the epilogue of [`crate::sm90`].
//!
//! Nobody else keeps those lists, so there is nothing to agree on with other warps. Nearly every score fails
//! against its query's `k`-th best so far, so the common way is a multiplication and a maximum an element,
//! over the lane's two queries; only when a maximum passes, the columns that it may come from are looked at
//! one by one.
//!
//! That is exact: scores are `sum * row norm * query norm` in this order, a query's norm is not negative, and
//! so the largest product of sum and row norm gives the largest score. The maximum leaves NaN out; a NaN
//! enters a list only as long as that has no number for a threshold, and then everything passes.

use crate::key::{EMPTY, key, may_enter, score_of, split};
use crate::list::{KEY_BYTES, TopList};
use crate::rows::Lane;
use cuda_std::vector;
use cuda_std::warp::{self, FULL_MASK, WarpReductionOp};
use primitives::unroll;
use primitives::warp::broadcast;

/// The sums of 64 queries x 256 rows that one thread of a warpgroup holds, in the order of
/// [`cuda_std::wgmma`].
pub type Accumulators = [f32; 4 * COLUMN_TILES];

/// Columns in units of 8.
const COLUMN_TILES: usize = 32;
/// Queries of a warp: a lane's two are half of them apart.
pub const QUERIES: u32 = 16;
const HALF: u32 = QUERIES / 2;

/// Lists and thresholds of a warp; one copy a lane.
pub struct Offers {
    lists: u32,
    k: u32,
    /// How many of the warp's queries are real.
    real: u32,
    /// Rows of the corpus.
    rows: u32,
    lane: Lane,
    /// One over the norms of the lane's queries.
    norms: [f32; 2],
    /// Their `k`-th best keys.
    worst: [u64; 2],
    /// The scores in those; NaN as long as anything may enter.
    thresholds: [f32; 2],
}

impl Offers {
    /// Empty lists of `k` keys for 16 queries, one after the other from shared address `lists` on; `real` of
    /// the queries exist and have their inverse norms at `norms`.
    ///
    /// # Safety
    /// The warp calls it together, and no other warp uses the lists.
    #[inline(always)]
    pub unsafe fn new(lists: u32, k: u32, real: u32, norms: *const f32, rows: u32) -> Self {
        let lane = Lane::this();
        let mut query = 0;
        while query < QUERIES {
            // SAFETY: this warp's lists.
            unsafe { TopList::new(lists + query * k * KEY_BYTES, k).clear() };
            query += 1;
        }
        let norm = |query: u32| match query < real {
            // SAFETY: the norm of a query that exists.
            true => unsafe { vector::load_nc(norms.add(query as usize)) },
            false => 0.0,
        };
        let threshold = |query: u32| if query < real { f32::NAN } else { f32::INFINITY };
        let queries = [lane.group, lane.group + HALF];
        Offers {
            lists,
            k,
            real,
            rows,
            lane,
            norms: queries.map(norm),
            worst: [EMPTY; 2],
            thresholds: queries.map(threshold),
        }
    }

    #[inline(always)]
    fn list(&self, query: u32) -> TopList {
        TopList::new(self.lists + query * self.k * KEY_BYTES, self.k)
    }

    /// Offers the scores of a tile that begins at row `first_row`; `norms` is the shared address of one over
    /// its rows' norms.
    ///
    /// # Safety
    /// The warp calls it together.
    #[inline(always)]
    pub unsafe fn tile(&mut self, sums: &Accumulators, norms: u32, first_row: u32) {
        let norms = norms + 2 * self.lane.member * size_of::<f32>() as u32;
        let row_norms = |tile: usize| -> [f32; 2] {
            let skipped = (8 * tile * size_of::<f32>()) as u32;
            // SAFETY: a pair of the tile's norms.
            unsafe { vector::load_shared_v2(norms + skipped) }
        };
        let mut best = [f32::NEG_INFINITY; 2];
        unroll!(tile in 0..32, {
            let [first, second] = row_norms(tile);
            best[0] = best[0].max(sums[4 * tile] * first).max(sums[4 * tile + 1] * second);
            best[1] = best[1].max(sums[4 * tile + 2] * first).max(sums[4 * tile + 3] * second);
        });
        let promising = self.may_enter(best[0], 0) | self.may_enter(best[1], 1);
        // SAFETY: the caller's contract; the votes make the branches the whole warp's.
        unsafe {
            if !warp::warp_vote_any(FULL_MASK, promising) {
                return;
            }
            // The norms are read again: next to the accumulators there is no room to keep them.
            warp::sync_warp(FULL_MASK);
            let mut mask = 0u32;
            unroll!(tile in 0..32, {
                let [first, second] = row_norms(tile);
                let passes = self.may_enter(sums[4 * tile] * first, 0)
                    | self.may_enter(sums[4 * tile + 1] * second, 0)
                    | self.may_enter(sums[4 * tile + 2] * first, 1)
                    | self.may_enter(sums[4 * tile + 3] * second, 1);
                mask |= (passes as u32) << tile;
            });
            let mut tiles = warp::warp_reduce(FULL_MASK, mask, WarpReductionOp::Or);
            while tiles != 0 {
                let tile = tiles.trailing_zeros() % COLUMN_TILES as u32;
                let at = norms + 8 * tile * size_of::<f32>() as u32;
                let row = first_row + 8 * tile + 2 * self.lane.member;
                self.columns(pick(sums, tile), vector::load_shared_v2(at), row);
                tiles &= tiles - 1;
            }
        }
    }

    /// Whether a product of sum and row norm may be a score that enters the list of the lane's query `half`.
    #[inline(always)]
    fn may_enter(&self, product: f32, half: usize) -> bool {
        may_enter(product * self.norms[half], self.thresholds[half])
    }

    /// Offers the lane's scores of two rows of the corpus from `row` on, for its two queries.
    ///
    /// # Safety
    /// The warp calls it together.
    #[inline(always)]
    unsafe fn columns(&mut self, sums: [f32; 4], norms: [f32; 2], row: u32) {
        unroll!(i in 0..4, {
            let (half, column) = (i / 2, i % 2);
            let query = self.lane.group + half as u32 * HALF;
            let row = row + column as u32;
            let score = sums[i] * norms[column] * self.norms[half];
            let key = key(score, row);
            let wanted = key > self.worst[half] && row < self.rows && query < self.real;
            // SAFETY: the caller's contract; the ballot makes the loop the whole warp's.
            unsafe {
                let mut waiting = warp::warp_vote_ballot(FULL_MASK, wanted);
                while waiting != 0 {
                    let source = waiting.trailing_zeros();
                    let query = broadcast(query, source);
                    let worst = self.list(query).insert(broadcast(key, source));
                    if query == self.lane.group + half as u32 * HALF {
                        self.worst[half] = worst;
                        self.thresholds[half] = score_of(split(worst).0);
                    }
                    waiting &= waiting - 1;
                }
            }
        });
    }

    /// Writes the list of each real query to where `target` says.
    ///
    /// # Safety
    /// The warp calls it together, last; `target(query)` has room for `k` keys.
    #[inline(always)]
    pub unsafe fn finish(&self, target: impl Fn(u32) -> *mut u64) {
        let mut query = 0;
        while query < QUERIES && query < self.real {
            let (list, out) = (self.list(query), target(query));
            let mut rank = warp::lane_id();
            while rank < self.k {
                // SAFETY: inside the list, and inside its place in the result.
                unsafe { out.add(rank as usize).write(list.get(rank)) };
                rank += warp::WARP_SIZE;
            }
            query += 1;
        }
    }
}

/// The four sums of column tile `tile` of 32, without an address: the array stays in registers.
#[inline(always)]
fn pick(sums: &Accumulators, tile: u32) -> [f32; 4] {
    let mut picked = [0.0; 4];
    unroll!(candidate in 0..32, {
        let is_meant = tile == candidate as u32;
        unroll!(i in 0..4, {
            picked[i] = if is_meant { sums[4 * candidate + i] } else { picked[i] };
        });
    });
    picked
}
