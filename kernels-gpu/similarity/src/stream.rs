//! Few queries against a large corpus: `cosine_stream_f16`, `cosine_stream_bf16`.
//!
//! | | |
//! |---|---|
//! | corpus | `[n, dim]` row-major, f16 or bf16, `1 <= n < 2^32 - 1`, `dim >= 1` |
//! | queries | `[queries, dim]` row-major, the same type, `1 <= queries <= `[`MAX_QUERIES`] |
//! | inverse norms | of the queries, f32 `[queries]`, from `cosine_norms` |
//! | out | keys ([`crate::key`]), u64 `[queries, grid, k]`, each list sorted: the best of the rows that the block saw |
//!
//! The corpus is read once, and nothing else matters: 2 bytes pay for `2 * queries` operations. Each warp
//! works alone on 16 rows at a time (see `rows.rs`) with up to 16 KiB always on their way, computes norms and
//! dot products from the same registers, and looks at its scores only to see that none beats its list:
//!
//! ```text
//!  warp 0   [ rows 0..16   ][ rows 16 W..16 W + 16 ] ...      W = warps of the grid
//!  warp 1   [ rows 16..32  ][ ...
//!             |copy chunk c+4 | mma chunk c: norms, queries 0..8 (and 8..16) |
//!             |............................ after the last chunk: score, compare with the k-th best, rarely insert |
//!  block    merges the lists of its warps, one warp a query
//! ```
//!
//! Shared memory ([`Plan`]): the warps' rings; the queries, padded with zeros to whole chunks, each 64 bytes
//! past a multiple of 128 apart so that the 16-byte loads of a B fragment meet all banks; then a list for
//! each warp and query.

use crate::MAX_K;
use crate::half::{
    Access, Aligned, ELEMENT_BYTES, Half, PIECE, PIECE_BYTES, Unaligned, bf16, f16, is_aligned,
};
use crate::key::{EMPTY, key, may_enter, score_of, split};
use crate::list::{KEY_BYTES, TopList, dynamic_shared_address};
use crate::rows::{CHUNK, Chunk, Consumer, DEPTHS, Lane, Matrix, ROWS, Ring, STEP, Squares, chunks};
use cuda_std::warp::FULL_MASK;
use cuda_std::{kernel, thread, vector, warp};
use primitives::unroll;
use primitives::warp::broadcast;

/// Warps of a block.
pub const WARPS: u32 = 8;
/// Threads of a block.
pub const THREADS: u32 = WARPS * 32;
/// Rows that a block works on at a time.
pub const ROWS_PER_BLOCK: u32 = WARPS * ROWS;
/// Blocks that a multiprocessor holds: the rings of one take most of its shared memory.
pub const BLOCKS_PER_SM: u32 = 1;
/// Queries of one `mma`.
pub const QUERY_TILE: u32 = 8;
/// Most queries of a launch.
pub const MAX_QUERIES: u32 = 2 * QUERY_TILE;

const NORM_BYTES: u32 = size_of::<f32>() as u32;

/// Where things lie in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Stages of a warp's ring.
    depth: u32,
    /// Bytes from one query to the next.
    pitch: u32,
    /// Bytes before the queries.
    queries_at: u32,
    /// Bytes before one over the norm of each query, zeros up to [`MAX_QUERIES`].
    norms: u32,
    /// Bytes before the lists.
    lists: u32,
    /// Bytes in all.
    bytes: u32,
    queries: u32,
    k: u32,
}

impl Plan {
    /// For `queries` of `dim` elements, lists of `k` and rings of `depth` stages, 2 to 5. The sizes must fit
    /// in 32 bits (see [`Plan::fitting`]).
    #[inline(always)]
    pub const fn new(dim: u32, queries: u32, k: u32, depth: u32) -> Self {
        let pitch = chunks(dim) * CHUNK * ELEMENT_BYTES + 64;
        let queries_at = Ring::bytes(WARPS, depth);
        let norms = queries_at + queries * pitch;
        let lists = norms + MAX_QUERIES * NORM_BYTES;
        let bytes = lists + WARPS * queries * k * KEY_BYTES;
        Plan { depth, pitch, queries_at, norms, lists, bytes, queries, k }
    }

    /// The plan with the deepest rings that needs no more than `limit` bytes, for any `dim`.
    pub const fn fitting(dim: u32, queries: u32, k: u32, limit: u32) -> Option<Self> {
        // The queries alone must fit, which also keeps the sums below within 32 bits.
        if queries > MAX_QUERIES || k > MAX_K || dim > limit / ELEMENT_BYTES {
            return None;
        }
        let (mut depth, fewest) = DEPTHS;
        while depth >= fewest {
            let plan = Self::new(dim, queries, k, depth);
            if plan.bytes <= limit {
                return Some(plan);
            }
            depth -= 1;
        }
        None
    }

    /// Stages of a warp's ring.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Dynamic shared memory of a block.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline(always)]
    fn query(&self, base: u32, query: u32) -> u32 {
        base + self.queries_at + query * self.pitch
    }

    #[inline(always)]
    fn norm(&self, base: u32, query: u32) -> u32 {
        base + self.norms + query * NORM_BYTES
    }

    #[inline(always)]
    fn lists(&self, base: u32, warp: u32) -> u32 {
        base + self.lists + warp * self.queries * self.k * KEY_BYTES
    }
}

const _: () =
    assert!((CHUNK * ELEMENT_BYTES).is_multiple_of(128), "the pitch must be 64 past a multiple of 128");

/// The arguments of a launch, and where the warp stands in it.
struct Problem<T> {
    corpus: Matrix<T>,
    queries: Matrix<T>,
    inverse_norms: *const f32,
    plan: Plan,
    /// Start of the dynamic shared memory.
    base: u32,
    /// Shared address of this warp's lists.
    lists: u32,
    warp: u32,
    lane: Lane,
}

/// Streams an f16 corpus past up to 16 f16 queries; see the module.
///
/// # Safety
/// Arguments as the module's table says; blocks of [`THREADS`] threads with [`Plan::bytes`] of dynamic shared
/// memory, where the plan is that of `dim`, `query_count`, `k` and `depth`.
#[kernel(launch_bounds(THREADS, BLOCKS_PER_SM))]
pub unsafe fn cosine_stream_f16(
    corpus: *const f16,
    n: u32,
    dim: u32,
    queries: *const f16,
    inverse_norms: *const f32,
    query_count: u32,
    k: u32,
    depth: u32,
    out: *mut u64,
) {
    let (corpus, queries) = (Matrix { base: corpus, n, dim }, Matrix { base: queries, n: query_count, dim });
    // SAFETY: the caller's contract.
    unsafe { stream(corpus, queries, inverse_norms, Plan::new(dim, query_count, k, depth), out) }
}

/// Streams a bf16 corpus past up to 16 bf16 queries; see the module.
///
/// # Safety
/// As [`cosine_stream_f16()`].
#[kernel(launch_bounds(THREADS, BLOCKS_PER_SM))]
pub unsafe fn cosine_stream_bf16(
    corpus: *const bf16,
    n: u32,
    dim: u32,
    queries: *const bf16,
    inverse_norms: *const f32,
    query_count: u32,
    k: u32,
    depth: u32,
    out: *mut u64,
) {
    let (corpus, queries) = (Matrix { base: corpus, n, dim }, Matrix { base: queries, n: query_count, dim });
    // SAFETY: the caller's contract.
    unsafe { stream(corpus, queries, inverse_norms, Plan::new(dim, query_count, k, depth), out) }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn stream<T: Half>(
    corpus: Matrix<T>,
    queries: Matrix<T>,
    inverse_norms: *const f32,
    plan: Plan,
    out: *mut u64,
) {
    let (base, warp) = (dynamic_shared_address(), thread::thread_idx_x() / 32);
    let lists = plan.lists(base, warp);
    let problem = Problem { corpus, queries, inverse_norms, plan, base, lists, warp, lane: Lane::this() };
    let aligned = is_aligned(corpus.base, corpus.dim) && is_aligned(queries.base, corpus.dim);
    let wide = queries.n > QUERY_TILE;
    // SAFETY: the caller's contract; `Aligned` only where it holds. The barriers are reached by all threads.
    unsafe {
        problem.clear_lists();
        match (aligned, wide) {
            (true, false) => problem.search::<Aligned, 1>(),
            (true, true) => problem.search::<Aligned, 2>(),
            (false, false) => problem.search::<Unaligned, 1>(),
            (false, true) => problem.search::<Unaligned, 2>(),
        }
        thread::sync_threads();
        problem.merge(out);
    }
}

impl<T: Half> Problem<T> {
    /// This warp's list of a query.
    #[inline(always)]
    fn list(&self, query: u32) -> TopList {
        TopList::new(self.lists + query * self.plan.k * KEY_BYTES, self.plan.k)
    }

    /// # Safety
    /// The warp calls it together.
    #[inline(always)]
    unsafe fn clear_lists(&self) {
        let mut query = 0;
        while query < self.queries.n {
            // SAFETY: this warp's list.
            unsafe { self.list(query).clear() };
            query += 1;
        }
    }

    /// Copies the queries and their norms to shared memory, zeros after their ends.
    ///
    /// # Safety
    /// The block calls it together; `A` fits the queries.
    #[inline(always)]
    unsafe fn stage_queries<A: Access>(&self) {
        let query = thread::thread_idx_x();
        if query < MAX_QUERIES {
            let real = query < self.queries.n;
            // SAFETY: `query` is one of the queries where it is real, and there is room for all.
            unsafe {
                let norm = if real { vector::load_nc(self.inverse_norms.add(query as usize)) } else { 0.0 };
                vector::store_shared(self.plan.norm(self.base, query), norm);
            }
        }
        let pieces = chunks(self.corpus.dim) * (CHUNK / PIECE);
        let mut query = self.warp;
        while query < self.queries.n {
            let row = self.queries.base.wrapping_add(query as usize * self.corpus.dim as usize);
            let target = self.plan.query(self.base, query);
            let mut piece = warp::lane_id();
            while piece < pieces {
                // SAFETY: `query` is a row; its place in shared memory has room for all pieces.
                unsafe {
                    let words = A::piece(row, piece * PIECE, self.corpus.dim);
                    vector::store_shared_v4(target + piece * PIECE_BYTES, words);
                }
                piece += 32;
            }
            query += WARPS;
        }
    }

    /// Looks through this warp's rows for up to `8 * TILES` queries.
    ///
    /// # Safety
    /// The block calls it together; `A` fits corpus and queries.
    #[inline(always)]
    unsafe fn search<A: Access, const TILES: usize>(&self) {
        // SAFETY: the caller's contract; blocks and chunks within the matrix.
        unsafe {
            self.stage_queries::<A>();
            thread::sync_threads();
            let warp = thread::block_idx_x() * WARPS + self.warp;
            let stride = thread::grid_dim_x() * WARPS;
            let ring = Ring::of(self.base, self.warp, self.plan.depth);
            self.corpus.stream::<A>(warp, stride, self.lane, ring, &mut Tiles::<T, TILES>::new(self));
        }
    }

    /// Merges the warps' lists, one warp a query, and writes the result.
    ///
    /// # Safety
    /// The block calls it together, after a barrier; `out` has room for `[queries, grid, k]` keys.
    #[inline(always)]
    unsafe fn merge(&self, out: *mut u64) {
        let k = self.plan.k;
        let mut query = self.warp;
        while query < self.queries.n {
            let list = |warp| TopList::new(self.plan.lists(self.base, warp) + query * k * KEY_BYTES, k);
            let best = list(0);
            let mut other = 1;
            while other < WARPS {
                // SAFETY: after the barrier only this warp uses the lists of this query.
                unsafe { best.merge(list(other)) };
                other += 1;
            }
            let list = query as usize * thread::grid_dim_x() as usize + thread::block_idx_x() as usize;
            let mut rank = warp::lane_id();
            while rank < k {
                // SAFETY: `rank < k`, in list `list` of `queries * grid`.
                unsafe { out.add(list * k as usize + rank as usize).write(best.get(rank)) };
                rank += 32;
            }
            query += WARPS;
        }
    }
}

const _: () = assert!(MAX_QUERIES == 2 * QUERY_TILE, "`insert` counts two tiles out");

/// Accumulators of 16 rows against `8 * TILES` queries, and the scores to beat.
struct Tiles<'a, T, const TILES: usize> {
    problem: &'a Problem<T>,
    squares: Squares,
    dots: [[f32; 4]; TILES],
    /// Shared address of the row of B that this lane loads.
    query: [u32; TILES],
    /// Score of the k-th best so far; NaN while there is none, or when it is one. Of a column without a query
    /// infinity, which no score beats.
    threshold: [[f32; 2]; TILES],
}

impl<'a, T: Half, const TILES: usize> Tiles<'a, T, TILES> {
    #[inline(always)]
    fn new(problem: &'a Problem<T>) -> Self {
        let (queries, lane) = (problem.queries.n, problem.lane);
        let mut new = Tiles {
            problem,
            squares: Squares::ZERO,
            dots: [[0.0; 4]; TILES],
            query: [0; TILES],
            threshold: [[f32::INFINITY; 2]; TILES],
        };
        let mut tile = 0;
        while tile < TILES {
            let first = tile as u32 * QUERY_TILE;
            // Columns without a query repeat the last one.
            let row = (first + lane.group).min(queries - 1);
            new.query[tile] = problem.plan.query(problem.base, row) + lane.member * PIECE_BYTES;
            let is_query = |column| first + column_of(lane, column) < queries;
            new.threshold[tile] =
                [0, 1].map(|column| if is_query(column) { f32::NAN } else { f32::INFINITY });
            tile += 1;
        }
        new
    }

    /// Offers each score that its list might want.
    ///
    /// # Safety
    /// The warp calls it together.
    #[inline(always)]
    unsafe fn insert(&mut self, row: u32, scores: &[[f32; 4]; TILES]) {
        let problem = self.problem;
        let lane = problem.lane;
        unroll!(place in 0..8, {
            let tile = place / 4;
            let column = place % 2;
            if tile < TILES {
                let row = row + (place as u32 % 4) / 2 * (ROWS / 2);
                let query = tile as u32 * QUERY_TILE + column_of(lane, column);
                let score = scores[tile][place % 4];
                let wanted = row < problem.corpus.n
                    && query < problem.queries.n
                    && may_enter(score, self.threshold[tile][column]);
                let candidate = if wanted { key(score, row) } else { EMPTY };
                // SAFETY: the caller's contract; lists are those of this warp.
                let mut waiting = unsafe { warp::warp_vote_ballot(FULL_MASK, wanted) };
                while waiting != 0 {
                    let source = waiting.trailing_zeros();
                    let target = tile as u32 * QUERY_TILE + column_of(Lane::of(source), column);
                    // SAFETY: as above; `target` is a query because `source` voted.
                    let worst = unsafe {
                        problem.list(target).insert(broadcast(candidate, source))
                    };
                    if query == target {
                        self.threshold[tile][column] = score_of(split(worst).0);
                    }
                    waiting &= waiting - 1;
                }
            }
        });
    }
}

impl<T: Half, const TILES: usize> Consumer for Tiles<'_, T, TILES> {
    /// Adds a chunk's products.
    #[inline(always)]
    unsafe fn chunk(&mut self, rows: &Chunk, chunk: u32) {
        let offset = chunk * CHUNK * ELEMENT_BYTES;
        unroll!(step in 0..4, {
            let step_offset = offset + step as u32 * STEP * ELEMENT_BYTES;
            let halves = [rows.a(step, 0), rows.a(step, 1)];
            // SAFETY: the caller's contract; every query has all its chunks in shared memory.
            unsafe {
                unroll!(tile in 0..2, {
                    if tile < TILES {
                        let b = vector::load_shared_v4::<u32>(self.query[tile] + step_offset);
                        self.dots[tile] = T::mma(halves[0], [b[0], b[1]], self.dots[tile]);
                        self.dots[tile] = T::mma(halves[1], [b[2], b[3]], self.dots[tile]);
                    }
                });
                self.squares.add::<T>(halves[0]);
                self.squares.add::<T>(halves[1]);
            }
        });
    }

    /// Offers the scores of the 16 rows of `block` to the warp's lists.
    #[inline(always)]
    unsafe fn finish(&mut self, block: u32) {
        // SAFETY: the caller's contract.
        let norms = unsafe { self.squares.inverse_norms(self.problem.lane) };
        let row = block * ROWS + self.problem.lane.group;
        let mut query_norms = [[0.0; 2]; TILES];
        unroll!(tile in 0..2, {
            if tile < TILES {
                let query = tile as u32 * QUERY_TILE + column_of(self.problem.lane, 0);
                // SAFETY: there is room for [`MAX_QUERIES`]; `query` is even, and so the pair aligned.
                query_norms[tile] =
                    unsafe { vector::load_shared_v2(self.problem.plan.norm(self.problem.base, query)) };
            }
        });
        let mut scores = [[0.0; 4]; TILES];
        let mut promising = false;
        unroll!(place in 0..8, {
            let tile = place / 4;
            let i = place % 4;
            if tile < TILES {
                let score = self.dots[tile][i] * norms[i / 2] * query_norms[tile][i % 2];
                scores[tile][i] = score;
                promising |= may_enter(score, self.threshold[tile][i % 2]);
            }
        });
        // SAFETY: the caller's contract; the vote makes the branch the whole warp's.
        unsafe {
            if warp::warp_vote_any(FULL_MASK, promising) {
                self.insert(row, &scores);
            }
        }
        self.squares = Squares::ZERO;
        self.dots = [[0.0; 4]; TILES];
    }
}

/// Column within its tile of the lane's accumulators `column` and `column + 2`.
#[inline(always)]
fn column_of(lane: Lane, column: usize) -> u32 {
    2 * lane.member + column as u32
}
