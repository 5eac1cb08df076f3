//! Many queries against a large corpus: `cosine_tile_f16`, `cosine_tile_bf16`.
//!
//! | | |
//! |---|---|
//! | corpus | `[n, dim]` row-major, f16 or bf16, `1 <= n < 2^32 - 1`, `dim >= 1` |
//! | corpus norms, query norms | one over each, f32 `[n.next_multiple_of(`[`NORMS_AT_ONCE`]`)]` (16-byte aligned) and `[queries]`, from `cosine_norms` |
//! | queries | `[queries, dim]` row-major, the same type, any number |
//! | out | keys ([`crate::key`]), u64 `[queries, slices, k]`, each list sorted: the best of the rows of that slice |
//!
//! A matrix product whose tiles never leave the registers. A block keeps one tile of 128 queries and walks
//! down its slice of the corpus (every `slices`-th tile of 256 rows); blocks that share a slice run side by
//! side, so that a tile of the corpus comes from memory once and from L2 for the others:
//!
//! ```text
//!  block b: queries 128 (b % query_tiles) .., slice b / query_tiles
//!
//!   stage 0 | load c   |          | mma c    |          |          |       c counts chunks of 32 elements of k,
//!   stage 1 |          | load c+1 |          | mma c+1  |          |       through all tiles without a break
//!   stage 2 |          |          | load c+2 |          | mma c+2  |
//!                                                  ^ a barrier before each mma
//!   after a tile's last chunk:  score -> compare with the query's k-th best -> candidates (rare)
//!   when a warp's candidates are half full: all warps sort them into the lists, 16 queries a warp
//! ```
//!
//! A warp computes 64 rows x 64 queries: 4 x 8 `mma` accumulators, 128 registers. A chunk of a tile lies in
//! shared memory as lines of 128 bytes, two rows to a line, its 16-byte units swizzled so that `cp.async` and
//! `ldmatrix` meet all banks.
//!
//! `collect.rs` says how candidates become lists.

use crate::MAX_K;
use crate::collect::{Accumulators, Collector};
use crate::half::{
    Access, Aligned, ELEMENT_BYTES, Half, PIECE, PIECE_BYTES, Unaligned, bf16, f16, is_aligned,
};
use crate::list::{KEY_BYTES, dynamic_shared_address};
use crate::rows::Matrix;
use cuda_std::{async_copy, kernel, matrix, thread, vector, warp};
use layout::swizzle_units;
use primitives::pipeline::{CopyPipeline, Stages};
use primitives::unroll;

/// Rows and queries of a warp.
pub const WARP_TILE: u32 = 64;
/// Warps side by side along the queries.
pub const WARPS_ACROSS: u32 = 2;
/// Warps below each other along the rows.
pub const WARPS_DOWN: u32 = 4;
/// Warps of a block.
pub const WARPS: u32 = WARPS_ACROSS * WARPS_DOWN;
/// Threads of a block.
pub const THREADS: u32 = WARPS * 32;
/// Blocks that a multiprocessor holds: registers allow no more.
pub const BLOCKS_PER_SM: u32 = 1;
/// Rows of a tile.
pub const BLOCK_ROWS: u32 = WARP_TILE * WARPS_DOWN;
/// Queries of a tile.
pub const BLOCK_QUERIES: u32 = WARP_TILE * WARPS_ACROSS;
/// Queries whose lists a warp keeps.
pub const QUERIES_PER_WARP: u32 = BLOCK_QUERIES / WARPS;
/// Elements of `k` in a stage.
pub const BLOCK_K: u32 = 32;
/// Stages of the pipeline.
pub const STAGES: u32 = 3;

/// K of `mma`.
const MMA_K: u32 = 16;
/// Row and column tiles of a warp, in units of `mma`.
pub const ROW_TILES: usize = (WARP_TILE / 16) as usize;
/// Columns of a warp, in units of `mma`.
pub const QUERY_TILES: usize = (WARP_TILE / 8) as usize;

const ROW_BYTES: u32 = BLOCK_K * ELEMENT_BYTES;
const LINE_BYTES: u32 = 128;
const ROWS_BYTES: u32 = BLOCK_ROWS * ROW_BYTES;
const QUERIES_BYTES: u32 = BLOCK_QUERIES * ROW_BYTES;
const NORMS_BYTES: u32 = BLOCK_ROWS * size_of::<f32>() as u32;
const STAGE_BYTES: u32 = ROWS_BYTES + QUERIES_BYTES + NORMS_BYTES;
/// Pieces of a row in a stage.
const PIECES: u32 = BLOCK_K / PIECE;
/// Rows that the block loads at once, a piece a thread.
const ROWS_AT_ONCE: u32 = THREADS / PIECES;
/// Norms in one 16-byte copy: the arrays of the corpus's are padded to it.
pub const NORMS_AT_ONCE: u32 = PIECE_BYTES / size_of::<f32>() as u32;

const _: () = {
    assert!(LINE_BYTES == 2 * ROW_BYTES, "place() puts two rows into a line");
    assert!(STAGE_BYTES.is_multiple_of(LINE_BYTES) && ROWS_BYTES.is_multiple_of(LINE_BYTES));
    assert!(ROWS_AT_ONCE.is_multiple_of(16), "rows that a thread loads must be swizzled alike");
    assert!(BLOCK_ROWS.is_multiple_of(ROWS_AT_ONCE) && BLOCK_QUERIES.is_multiple_of(ROWS_AT_ONCE));
    assert!(BLOCK_ROWS / NORMS_AT_ONCE <= THREADS);
    assert!(BLOCK_QUERIES.is_multiple_of(WARPS));
    assert!(BLOCK_K == 2 * MMA_K && ROW_TILES == 4 && QUERY_TILES == 8, "multiply() counts them out");
};

/// Where things lie in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    k: u32,
    capacity: u32,
}

impl Plan {
    const LISTS: u32 = STAGES * STAGE_BYTES;
    /// Most and fewest candidates that a warp can hold back.
    const CAPACITIES: (u32, u32) = (128, 32);
    /// Bytes of a candidate: key, query, padding.
    pub(crate) const CANDIDATE_BYTES: u32 = 16;

    /// For lists of `k` and `capacity` candidates a warp.
    #[inline(always)]
    pub const fn new(k: u32, capacity: u32) -> Self {
        Plan { k, capacity }
    }

    /// The plan with the most candidates that needs at most `limit` bytes.
    pub const fn fitting(k: u32, limit: u32) -> Option<Self> {
        let (mut capacity, fewest) = Self::CAPACITIES;
        while k <= MAX_K && capacity >= fewest {
            let plan = Self::new(k, capacity);
            if plan.bytes() <= limit {
                return Some(plan);
            }
            capacity /= 2;
        }
        None
    }

    /// Candidates that a warp can hold back.
    #[inline(always)]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Length of the lists.
    #[inline(always)]
    pub const fn k(&self) -> u32 {
        self.k
    }

    /// Offset of the list of query `query` of the tile.
    #[inline(always)]
    pub(crate) const fn list(&self, query: u32) -> u32 {
        Self::LISTS + query * self.k * KEY_BYTES
    }

    /// Offset of candidate `index` of `warp`.
    #[inline(always)]
    pub(crate) const fn candidate(&self, warp: u32, index: u32) -> u32 {
        self.list(BLOCK_QUERIES) + (warp * self.capacity + index) * Self::CANDIDATE_BYTES
    }

    /// Offset of the number of candidates of `warp`.
    #[inline(always)]
    pub(crate) const fn count(&self, warp: u32) -> u32 {
        self.candidate(WARPS, 0) + warp * 4
    }

    /// Offset of the k-th best score of a query, as [`crate::key::ordered`] makes it.
    #[inline(always)]
    pub(crate) const fn threshold(&self, query: u32) -> u32 {
        self.count(WARPS) + query * 4
    }

    /// Offset of one over the norm of a query.
    #[inline(always)]
    pub(crate) const fn query_norm(&self, query: u32) -> u32 {
        self.threshold(BLOCK_QUERIES) + query * 4
    }

    /// Dynamic shared memory of a block.
    #[inline(always)]
    pub const fn bytes(&self) -> u32 {
        self.query_norm(BLOCK_QUERIES)
    }
}

/// Offset within a stage of piece `piece` of row `row`, counting rows of the corpus and then queries.
#[inline(always)]
const fn place(row: u32, piece: u32) -> u32 {
    let (line, unit) = (row / 2, row % 2 * PIECES + piece);
    line * LINE_BYTES + swizzle_units(unit, line) * PIECE_BYTES
}

/// The arguments of a launch, and where the block stands in it.
struct Problem<T> {
    corpus: Matrix<T>,
    corpus_norms: *const f32,
    queries: Matrix<T>,
    query_norms: *const f32,
    /// First query of the block's tile.
    first_query: u32,
    slices: u32,
    slice: u32,
    plan: Plan,
    out: *mut u64,
}

/// Finds the best `k` rows of each slice of an f16 corpus for every f16 query; see the module.
///
/// # Safety
/// Arguments as the module's table says; `grid = slices * queries.div_ceil(`[`BLOCK_QUERIES`]`)` blocks of
/// [`THREADS`] threads with [`Plan::bytes`] of dynamic shared memory, where the plan is that of `k` and
/// `capacity`.
#[kernel(launch_bounds(THREADS, BLOCKS_PER_SM))]
pub unsafe fn cosine_tile_f16(
    corpus: *const f16,
    corpus_norms: *const f32,
    n: u32,
    dim: u32,
    queries: *const f16,
    query_norms: *const f32,
    query_count: u32,
    slices: u32,
    k: u32,
    capacity: u32,
    out: *mut u64,
) {
    let (corpus, queries) = (Matrix { base: corpus, n, dim }, Matrix { base: queries, n: query_count, dim });
    // SAFETY: the caller's contract.
    unsafe { tile(corpus, corpus_norms, queries, query_norms, slices, Plan::new(k, capacity), out) }
}

/// Finds the best `k` rows of each slice of a bf16 corpus for every bf16 query; see the module.
///
/// # Safety
/// As [`cosine_tile_f16()`].
#[kernel(launch_bounds(THREADS, BLOCKS_PER_SM))]
pub unsafe fn cosine_tile_bf16(
    corpus: *const bf16,
    corpus_norms: *const f32,
    n: u32,
    dim: u32,
    queries: *const bf16,
    query_norms: *const f32,
    query_count: u32,
    slices: u32,
    k: u32,
    capacity: u32,
    out: *mut u64,
) {
    let (corpus, queries) = (Matrix { base: corpus, n, dim }, Matrix { base: queries, n: query_count, dim });
    // SAFETY: the caller's contract.
    unsafe { tile(corpus, corpus_norms, queries, query_norms, slices, Plan::new(k, capacity), out) }
}

/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn tile<T: Half>(
    corpus: Matrix<T>,
    corpus_norms: *const f32,
    queries: Matrix<T>,
    query_norms: *const f32,
    slices: u32,
    plan: Plan,
    out: *mut u64,
) {
    // Blocks that share a slice have neighbouring numbers.
    let query_tiles = queries.n.div_ceil(BLOCK_QUERIES).max(1);
    let slice = thread::block_idx_x() / query_tiles;
    let first_query = (thread::block_idx_x() - slice * query_tiles) * BLOCK_QUERIES;
    let problem =
        Problem { corpus, corpus_norms, queries, query_norms, first_query, slices, slice, plan, out };
    // SAFETY: the caller's contract; `Aligned` only where it holds.
    unsafe {
        if is_aligned(corpus.base, corpus.dim) && is_aligned(queries.base, corpus.dim) {
            problem.search::<Aligned>()
        } else {
            problem.search::<Unaligned>()
        }
    }
}

impl<T: Half> Problem<T> {
    /// # Safety
    /// The block calls it together; `A` fits corpus and queries.
    #[inline(always)]
    unsafe fn search<A: Access>(&self) {
        let base = dynamic_shared_address();
        let queries = self.queries.n - self.first_query;
        // SAFETY: the caller's contract; all threads take the same way.
        unsafe {
            let collector = Collector::new(self.plan, base, queries, self.corpus.n);
            collector.prepare(self.query_norms.add(self.first_query as usize));
            let mut feed = Feed::new(self, base);
            let mut ahead = 0;
            while ahead < feed.pipeline.prologue() {
                feed.load::<A>();
                ahead += 1;
            }
            let fragments = Fragments::this(base);
            let (tiles, chunks) = (self.tiles(), self.chunks());
            let mut tile = self.slice;
            while tile < tiles {
                let mut sums: Accumulators = [[[0.0; 4]; QUERY_TILES]; ROW_TILES];
                let mut chunk = 0;
                let mut here = 0;
                while chunk < chunks {
                    here = feed.pipeline.wait();
                    feed.load::<A>();
                    fragments.multiply::<T>(here, &mut sums);
                    feed.pipeline.release();
                    chunk += 1;
                }
                collector.collect(&sums, base + here + ROWS_BYTES + QUERIES_BYTES, tile * BLOCK_ROWS);
                tile += self.slices;
            }
            collector.finish(|query| {
                let list = (self.first_query + query) as usize * self.slices as usize + self.slice as usize;
                self.out.add(list * self.plan.k() as usize)
            });
        }
    }

    #[inline(always)]
    fn tiles(&self) -> u32 {
        self.corpus.n.div_ceil(BLOCK_ROWS)
    }

    #[inline(always)]
    fn chunks(&self) -> u32 {
        self.corpus.dim.div_ceil(BLOCK_K)
    }
}

/// The loading end of the pipeline: which chunk comes next, and where to.
struct Feed<'a, T> {
    problem: &'a Problem<T>,
    base: u32,
    tile: u32,
    chunk: u32,
    pipeline: CopyPipeline<Stages<STAGES>>,
    /// First of the rows that this thread loads, and the piece of it.
    row: u32,
    piece: u32,
}

impl<'a, T: Half> Feed<'a, T> {
    #[inline(always)]
    fn new(problem: &'a Problem<T>, base: u32) -> Self {
        let thread = thread::thread_idx_x();
        let (row, piece) = (thread / PIECES, thread % PIECES);
        let pipeline = CopyPipeline::new(Stages, STAGE_BYTES);
        Feed { problem, base, tile: problem.slice, chunk: 0, pipeline, row, piece }
    }

    /// Starts the loads of the next chunk, if there is one, and closes their group.
    ///
    /// # Safety
    /// The block calls it together, when no thread reads that stage any more; `A` fits corpus and queries.
    #[inline(always)]
    unsafe fn load<A: Access>(&mut self) {
        let problem = self.problem;
        if self.tile < problem.tiles() {
            let stage = self.base + self.pipeline.stage_to_load();
            let rows = stage + place(self.row, self.piece);
            let first_row = self.tile * BLOCK_ROWS;
            // SAFETY: the caller's contract; both parts of the stage have room for all their rows.
            unsafe {
                self.load_rows::<A>(problem.corpus, first_row, BLOCK_ROWS / ROWS_AT_ONCE, rows);
                let queries = rows + ROWS_BYTES;
                self.load_rows::<A>(
                    problem.queries,
                    problem.first_query,
                    BLOCK_QUERIES / ROWS_AT_ONCE,
                    queries,
                );
            }
            self.chunk += 1;
            if self.chunk == problem.chunks() {
                // SAFETY: as above.
                unsafe { self.load_norms(first_row, stage + ROWS_BYTES + QUERIES_BYTES) };
                self.chunk = 0;
                self.tile += problem.slices;
            }
        }
        self.pipeline.commit();
    }

    /// Loads this thread's piece of `count` rows, zeros past the ends of the matrix and of the rows.
    ///
    /// # Safety
    /// As [`Feed::load`]; `target` is where the first piece goes.
    #[inline(always)]
    unsafe fn load_rows<A: Access>(&self, matrix: Matrix<T>, first_row: u32, count: u32, target: u32) {
        let element = self.chunk * BLOCK_K + self.piece * PIECE;
        let mut i = 0;
        while i < count {
            let row = first_row + self.row + i * ROWS_AT_ONCE;
            let inside = row < matrix.n;
            let start = if inside { row as usize * matrix.dim as usize } else { 0 };
            let source = matrix.base.wrapping_add(start);
            let target = target + i * ROWS_AT_ONCE * ROW_BYTES;
            // SAFETY: a piece is read only where it is inside the matrix.
            unsafe {
                if A::WHOLE {
                    let inside = inside && element < matrix.dim;
                    let source = source.wrapping_add(if inside { element as usize } else { 0 });
                    async_copy::copy_cg_zfill(target, source, if inside { PIECE_BYTES } else { 0 });
                } else {
                    let words = if inside { A::piece(source, element, matrix.dim) } else { [0; 4] };
                    vector::store_shared_v4(target, words);
                }
            }
            i += 1;
        }
    }

    /// Loads the norms of a tile's rows, zeros past the end (rounded up to whole copies, as the kernels'
    /// table says).
    ///
    /// # Safety
    /// As [`Feed::load`].
    #[inline(always)]
    unsafe fn load_norms(&self, first_row: u32, target: u32) {
        let thread = thread::thread_idx_x();
        let row = first_row + thread * NORMS_AT_ONCE;
        if thread < BLOCK_ROWS / NORMS_AT_ONCE {
            let inside = row < self.problem.corpus.n;
            let source = self.problem.corpus_norms.wrapping_add(if inside { row as usize } else { 0 });
            // SAFETY: `row` is a multiple of 4, so that the copy is aligned and inside the padded array.
            unsafe {
                async_copy::copy_cg_zfill(
                    target + thread * PIECE_BYTES,
                    source,
                    if inside { PIECE_BYTES } else { 0 },
                )
            };
        }
    }
}

/// Shared addresses, in stage 0, of what this lane gives to `ldmatrix`.
struct Fragments {
    rows: u32,
    queries: u32,
}

impl Fragments {
    #[inline(always)]
    fn this(base: u32) -> Self {
        let (warp, lane) = (thread::thread_idx_x() / 32, warp::lane_id());
        let row = warp / WARPS_ACROSS * WARP_TILE;
        let query = BLOCK_ROWS + warp % WARPS_ACROSS * WARP_TILE;
        // A, 16x16: lanes 0..16 give the rows' first pieces, lanes 16..32 the second ones.
        let rows = base + place(row + lane % 16, lane / 16);
        // B, two tiles of 8 queries: lanes 0..8 and 8..16 the pieces of the first tile, 16..24 and 24..32 of
        // the second.
        let queries = base + place(query + lane / 16 * 8 + lane % 8, lane / 8 % 2);
        Fragments { rows, queries }
    }

    /// Adds the products of the chunk in the stage that begins `stage` bytes after the first.
    ///
    /// # Safety
    /// The warp calls it together, when the stage is loaded.
    #[inline(always)]
    unsafe fn multiply<T: Half>(&self, stage: u32, sums: &mut Accumulators) {
        unroll!(half in 0..2, {
            // The next 16 elements are two pieces on: one bit of the swizzled unit. Sixteen rows are eight
            // lines, which swizzle alike.
            let flip = half as u32 * (MMA_K / PIECE) * PIECE_BYTES;
            let rows = (self.rows + stage) ^ flip;
            let queries = (self.queries + stage) ^ flip;
            let step = 16 * ROW_BYTES;
            // SAFETY: the caller's contract; addresses inside the stage.
            unsafe {
                let mut a = [[0; 4]; ROW_TILES];
                unroll!(tile in 0..4, {
                    a[tile] = matrix::ldmatrix_x4(rows + tile as u32 * step);
                });
                unroll!(pair in 0..4, {
                    let b = matrix::ldmatrix_x4(queries + pair as u32 * step);
                    unroll!(tile in 0..4, {
                        let sums = &mut sums[tile];
                        sums[2 * pair] = T::mma(a[tile], [b[0], b[1]], sums[2 * pair]);
                        sums[2 * pair + 1] = T::mma(a[tile], [b[2], b[3]], sums[2 * pair + 1]);
                    });
                });
            }
        });
    }
}
