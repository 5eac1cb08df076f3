//! Many queries against a large corpus on Hopper: `cosine_wgmma_f16`, `cosine_wgmma_bf16`.
//!
//! | | |
//! |---|---|
//! | queries | map of `[queries, dim]`, boxes of [`BLOCK_K`] x [`BLOCK_QUERIES`], swizzle of 128 bytes |
//! | corpus | map of `[n, dim]`, boxes of [`BLOCK_K`] x [`BLOCK_ROWS`], the same swizzle; `1 <= n <= `[`MAX_ROWS`] |
//! | corpus norms, query norms | one over each, f32 `[n.next_multiple_of(`[`NORMS_AT_ONCE`]`)]` (16-byte aligned) and `[queries]` |
//! | out | keys ([`crate::key`]), u64 `[queries, slices, k]`, each list sorted: the best of the rows of that slice |
//!
//! A matrix product whose tiles never leave the registers: `wgmma` multiplies 64 queries with 256 rows of the corpus, and a warp
//! compares the scores of its 16 queries with their `k`-th best so far (`offer.rs`).
//!
//! ```text
//!             256 rows of the corpus        block (x, y): queries 128 x .., every `slices`-th tile of 256 rows from y on
//!            +----------------------+
//!            |   stage: 64 of dim   |       copies       empty? k=0 | empty? k=1 | ...               (1 thread)
//!  +-----+   +----------------------+       consumer 0        full? 4 wgmma k=0 | k=1 | ... | offer the scores | ...
//!  | 128 |   | consumer 0: 64 queries|      consumer 1        the same, for its own queries
//!  | que |   +----------------------+
//!  | ries|   | consumer 1: 64 queries|
//!  +-----+   +----------------------+
//! ```
//! A stage is empty when both consumers have left it. Blocks that hold different queries walk the same tiles side by side, so that a row
//! comes from memory once and from L2 for the others.
//!
//! The norms of a tile's rows come with its last stage, which is why that one is left only after the scores have been offered.

mod offer;

use crate::MAX_K;
use crate::half::ELEMENT_BYTES;
pub use crate::half::PIECE_BYTES;
use crate::list::{KEY_BYTES, dynamic_shared_address};
use crate::unroll::unroll;
use cuda_std::tma::{self, TensorMap};
use cuda_std::wgmma::{self as tensor_cores, BF16, F16, Operand};
use cuda_std::{barrier, fence, kernel, mbarrier, registers, thread, vector};
use layout::wgmma::{K_BYTES, Swizzle, advance, descriptor};
use offer::{Accumulators, Offers};

/// Threads of a warpgroup.
const WARPGROUP: u32 = 128;
/// Warpgroups that multiply; one more copies.
const CONSUMERS: u32 = 2;
/// Threads of a block.
pub const THREADS: u32 = WARPGROUP * (1 + CONSUMERS);
/// Queries of a consumer: the M of `wgmma`.
const CONSUMER_QUERIES: u32 = 64;
/// Queries of a tile.
pub const BLOCK_QUERIES: u32 = CONSUMERS * CONSUMER_QUERIES;
/// Rows of a tile: the N of `wgmma`.
pub const BLOCK_ROWS: u32 = 256;
/// Elements of `dim` in a stage: as many as the swizzle spans.
pub const BLOCK_K: u32 = SWIZZLE.span() / ELEMENT_BYTES;
/// Most rows of the corpus, and most queries: coordinates of a copy are signed.
pub const MAX_ROWS: u32 = i32::MAX as u32 - BLOCK_ROWS;
/// Norms in one 16-byte piece: the corpus's array is padded to it.
pub const NORMS_AT_ONCE: u32 = PIECE_BYTES / size_of::<f32>() as u32;

const SWIZZLE: Swizzle = Swizzle::B128;
const LINE_BYTES: u32 = SWIZZLE.span();
const QUERIES_BYTES: u32 = BLOCK_QUERIES * LINE_BYTES;
const ROWS_BYTES: u32 = BLOCK_ROWS * LINE_BYTES;
const NORMS_BYTES: u32 = BLOCK_ROWS * size_of::<f32>() as u32;
const STAGE_BYTES: u32 = QUERIES_BYTES + ROWS_BYTES + NORMS_BYTES;
/// Products of a stage.
const STEPS: u32 = LINE_BYTES / K_BYTES;

/// Registers of a thread that copies, and of one that multiplies: 128 x 40 + 256 x 232 of 65,536.
const PRODUCER_REGISTERS: u32 = 40;
const CONSUMER_REGISTERS: u32 = 232;
/// Barrier at which the first consumer's warps meet; the other's follows. Number 0 is the block's.
const FIRST_CONSUMER_BARRIER: u32 = 1;

const _: () = {
    assert!(STAGE_BYTES.is_multiple_of(SWIZZLE.period()), "stages begin where the swizzle's pattern does");
    assert!(STEPS == 4, "multiply() counts them out");
};

/// Where things lie in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    k: u32,
    stages: u32,
}

impl Plan {
    /// Most and fewest stages: more hide nothing more, fewer do not hide the copies.
    const STAGES: (u32, u32) = (4, 3);

    /// For lists of `k` and so many stages.
    #[inline(always)]
    pub const fn new(k: u32, stages: u32) -> Self {
        Plan { k, stages }
    }

    /// The plan with the most stages that needs at most `limit` bytes.
    pub const fn fitting(k: u32, limit: u32) -> Option<Self> {
        let (mut stages, fewest) = Self::STAGES;
        while k <= MAX_K && stages >= fewest {
            let plan = Self::new(k, stages);
            if plan.bytes() <= limit {
                return Some(plan);
            }
            stages -= 1;
        }
        None
    }

    /// Length of the lists.
    #[inline(always)]
    pub const fn k(&self) -> u32 {
        self.k
    }

    /// Stages of the ring.
    #[inline(always)]
    pub const fn stages(&self) -> u32 {
        self.stages
    }

    /// Offset of the barrier that says that a stage is full.
    #[inline(always)]
    const fn full(&self, stage: u32) -> u32 {
        self.stages * STAGE_BYTES + stage * mbarrier::BYTES
    }

    /// Offset of the barrier that says that a stage is empty.
    #[inline(always)]
    const fn empty(&self, stage: u32) -> u32 {
        self.full(self.stages + stage)
    }

    /// Offset of the list of query `query` of the tile.
    #[inline(always)]
    pub(crate) const fn list(&self, query: u32) -> u32 {
        self.empty(self.stages) + query * self.k * KEY_BYTES
    }

    /// Dynamic shared memory of a block.
    #[inline(always)]
    pub const fn bytes(&self) -> u32 {
        self.list(BLOCK_QUERIES)
    }
}

/// The arguments of a launch, and where the block stands in it.
struct Problem<'a> {
    queries: &'a TensorMap,
    corpus: &'a TensorMap,
    corpus_norms: *const f32,
    rows: u32,
    dim: u32,
    query_norms: *const f32,
    query_count: u32,
    plan: Plan,
    base: u32,
    out: *mut u64,
}

/// Finds the best `k` rows of each slice of an f16 corpus for every f16 query; see the module.
///
/// # Safety
/// Arguments as the module's table says; `grid = [queries.div_ceil(`[`BLOCK_QUERIES`]`), slices]` blocks of [`THREADS`] threads with
/// [`Plan::bytes`] of dynamic shared memory, where the plan is that of `k` and `stages`.
#[kernel(launch_bounds(THREADS, 1))]
pub unsafe fn cosine_wgmma_f16(
    queries: &TensorMap,
    corpus: &TensorMap,
    corpus_norms: *const f32,
    n: u32,
    dim: u32,
    query_norms: *const f32,
    query_count: u32,
    k: u32,
    stages: u32,
    out: *mut u64,
) {
    let plan = Plan::new(k, stages);
    let problem =
        Problem::new(queries, corpus, (corpus_norms, n, dim), (query_norms, query_count), plan, out);
    // SAFETY: the caller's contract.
    unsafe { problem.search::<F16>() }
}

/// Finds the best `k` rows of each slice of a bf16 corpus for every bf16 query; see the module.
///
/// # Safety
/// As [`cosine_wgmma_f16`].
#[kernel(launch_bounds(THREADS, 1))]
pub unsafe fn cosine_wgmma_bf16(
    queries: &TensorMap,
    corpus: &TensorMap,
    corpus_norms: *const f32,
    n: u32,
    dim: u32,
    query_norms: *const f32,
    query_count: u32,
    k: u32,
    stages: u32,
    out: *mut u64,
) {
    let plan = Plan::new(k, stages);
    let problem =
        Problem::new(queries, corpus, (corpus_norms, n, dim), (query_norms, query_count), plan, out);
    // SAFETY: the caller's contract.
    unsafe { problem.search::<BF16>() }
}

/// A place in the ring: which stage, and the parity of its round.
#[derive(Clone, Copy)]
struct Position {
    stage: u32,
    parity: u32,
}

impl Position {
    const START: Self = Self { stage: 0, parity: 0 };

    #[inline(always)]
    fn next(self, plan: Plan) -> Self {
        if self.stage + 1 == plan.stages {
            Self { stage: 0, parity: self.parity ^ 1 }
        } else {
            Self { stage: self.stage + 1, ..self }
        }
    }
}

impl<'a> Problem<'a> {
    #[inline(always)]
    fn new(
        queries: &'a TensorMap,
        corpus: &'a TensorMap,
        (corpus_norms, rows, dim): (*const f32, u32, u32),
        (query_norms, query_count): (*const f32, u32),
        plan: Plan,
        out: *mut u64,
    ) -> Self {
        let base = dynamic_shared_address();
        Problem { queries, corpus, corpus_norms, rows, dim, query_norms, query_count, plan, base, out }
    }

    /// # Safety
    /// All threads of the block call it together.
    #[inline(always)]
    unsafe fn search<T: Operand>(&self) {
        let thread = thread::thread_idx_x();
        // SAFETY: one thread makes the barriers before all meet; roles are those of whole warpgroups.
        unsafe {
            self.clear_norms();
            if thread == 0 {
                self.make_barriers();
            }
            thread::sync_threads();
            if thread < WARPGROUP {
                registers::set_max_registers_dec::<PRODUCER_REGISTERS>();
                if thread == 0 {
                    self.copy();
                }
            } else {
                registers::set_max_registers_inc::<CONSUMER_REGISTERS>();
                self.consume::<T>((thread - WARPGROUP) / WARPGROUP, thread % WARPGROUP);
            }
        }
    }

    /// Clears the norms of all stages: past the end of the corpus nothing is copied there.
    ///
    /// # Safety
    /// Nobody uses the stages yet. A barrier must follow.
    #[inline(always)]
    unsafe fn clear_norms(&self) {
        let mut at = thread::thread_idx_x() * PIECE_BYTES;
        while at < self.plan.stages * NORMS_BYTES {
            let stage = at / NORMS_BYTES;
            // SAFETY: a piece of the stage's norms.
            unsafe { vector::store_shared_v4(self.norms(stage) + at % NORMS_BYTES, [0.0f32; 4]) };
            at += THREADS * PIECE_BYTES;
        }
        fence::proxy_async_shared();
    }

    /// # Safety
    /// One thread calls it, before all others use the barriers.
    #[inline(always)]
    unsafe fn make_barriers(&self) {
        let mut stage = 0;
        while stage < self.plan.stages {
            // SAFETY: the barriers' own places.
            unsafe {
                mbarrier::init(self.full(stage), 1);
                mbarrier::init(self.empty(stage), CONSUMERS);
            }
            stage += 1;
        }
        mbarrier::fence_init();
    }

    #[inline(always)]
    fn full(&self, stage: u32) -> u32 {
        self.base + self.plan.full(stage)
    }

    #[inline(always)]
    fn empty(&self, stage: u32) -> u32 {
        self.base + self.plan.empty(stage)
    }

    /// Where a stage begins: queries, rows, norms.
    #[inline(always)]
    fn stage(&self, stage: u32) -> u32 {
        self.base + stage * STAGE_BYTES
    }

    #[inline(always)]
    fn norms(&self, stage: u32) -> u32 {
        self.stage(stage) + QUERIES_BYTES + ROWS_BYTES
    }

    #[inline(always)]
    fn tiles(&self) -> u32 {
        self.rows.div_ceil(BLOCK_ROWS)
    }

    /// Stages of a tile.
    #[inline(always)]
    fn chunks(&self) -> u32 {
        self.dim.div_ceil(BLOCK_K)
    }

    #[inline(always)]
    fn first_query(&self) -> u32 {
        thread::block_idx_x() * BLOCK_QUERIES
    }

    /// Fills stages with one tile after the other.
    ///
    /// # Safety
    /// One thread of the block calls it.
    #[inline(always)]
    unsafe fn copy(&self) {
        let (slices, chunks) = (thread::grid_dim_y(), self.chunks());
        let mut position = Position::START;
        let mut tile = thread::block_idx_y();
        while tile < self.tiles() {
            let first_row = tile * BLOCK_ROWS;
            let mut chunk = 0;
            while chunk < chunks {
                let norms = if chunk + 1 == chunks { self.rows_left(first_row) } else { 0 };
                // SAFETY: the stage is empty once waited for, and expects the bytes of all copies into it.
                unsafe {
                    mbarrier::wait_parity(self.empty(position.stage), position.parity ^ 1);
                    self.fill(position.stage, first_row, chunk, norms);
                }
                position = position.next(self.plan);
                chunk += 1;
            }
            tile += slices;
        }
    }

    /// Norms of the tile that begins at `first_row`, in whole pieces.
    #[inline(always)]
    fn rows_left(&self, first_row: u32) -> u32 {
        (self.rows - first_row).min(BLOCK_ROWS).next_multiple_of(NORMS_AT_ONCE)
    }

    /// Starts the copies of a chunk of the queries and of the tile's rows, and of the tile's first `norms` norms.
    ///
    /// # Safety
    /// One thread calls it, when the stage is empty.
    #[inline(always)]
    unsafe fn fill(&self, stage: u32, first_row: u32, chunk: u32, norms: u32) {
        let (to, full) = (self.stage(stage), self.full(stage));
        let element = (chunk * BLOCK_K) as i32;
        let norm_bytes = norms * size_of::<f32>() as u32;
        // SAFETY: the parts of the stage have room for their boxes; norms are padded to whole pieces.
        unsafe {
            mbarrier::arrive_expect_tx(full, QUERIES_BYTES + ROWS_BYTES + norm_bytes);
            tma::load_2d(to, self.queries, full, [element, self.first_query() as i32]);
            tma::load_2d(to + QUERIES_BYTES, self.corpus, full, [element, first_row as i32]);
            if norms > 0 {
                let from = self.corpus_norms.add(first_row as usize);
                tma::bulk_load(self.norms(stage), from, norm_bytes, full);
            }
        }
    }

    /// Multiplies what comes and offers the scores to the lists of the consumer's queries.
    ///
    /// # Safety
    /// All threads of a warpgroup call it together.
    #[inline(always)]
    unsafe fn consume<T: Operand>(&self, consumer: u32, thread: u32) {
        // SAFETY: a warp keeps the lists of its own 16 queries; the rest is the caller's contract.
        unsafe {
            let first = self.first_query();
            let query = consumer * CONSUMER_QUERIES + thread / 32 * 16;
            let real = self.query_count.saturating_sub(first + query);
            let norms = self.query_norms.wrapping_add((first + query) as usize);
            let mut offers =
                Offers::new(self.base + self.plan.list(query), self.plan.k, real, norms, self.rows);
            let (slices, chunks) = (thread::grid_dim_y(), self.chunks());
            let mut position = Position::START;
            let mut tile = thread::block_idx_y();
            while tile < self.tiles() {
                let sums = self.multiply::<T>(&mut position, consumer, thread, chunks);
                let last = if position.stage == 0 { self.plan.stages - 1 } else { position.stage - 1 };
                offers.tile(&sums, self.norms(last), tile * BLOCK_ROWS);
                // The norms have been read by all of the consumer's warps.
                barrier::sync(FIRST_CONSUMER_BARRIER + consumer, WARPGROUP);
                self.release(last, thread);
                tile += slices;
            }
            offers.finish(|query_of_warp| {
                let list = (first + query + query_of_warp) as usize * slices as usize;
                self.out.add((list + thread::block_idx_y() as usize) * self.plan.k as usize)
            });
        }
    }

    /// The product of the consumer's queries and the next tile; all its stages but the last are released.
    ///
    /// # Safety
    /// As [`Problem::consume`].
    #[inline(always)]
    unsafe fn multiply<T: Operand>(
        &self,
        position: &mut Position,
        consumer: u32,
        thread: u32,
        chunks: u32,
    ) -> Accumulators {
        // SAFETY: zeros are floats; the first product does not read them. The stage is full until it is released, after the
        // products that read it; the accumulators are touched before the first product and after the last.
        unsafe {
            let mut sums: Accumulators = core::mem::zeroed();
            let mut previous = position.stage;
            let mut chunk = 0;
            // At least once: `dim` is not 0.
            loop {
                mbarrier::wait_parity(self.full(position.stage), position.parity);
                let stage = self.stage(position.stage);
                let queries = stage + consumer * CONSUMER_QUERIES * LINE_BYTES;
                let a = descriptor(queries, 0, SWIZZLE.period(), SWIZZLE);
                let b = descriptor(stage + QUERIES_BYTES, 0, SWIZZLE.period(), SWIZZLE);
                tensor_cores::fence_registers(&mut sums);
                tensor_cores::fence();
                unroll!(step in 0..4, {
                    let skipped = step as u32 * K_BYTES;
                    let (a, b) = (advance(a, skipped), advance(b, skipped));
                    tensor_cores::mma::<T, T, _, 0, 0>(&mut sums, a, b, skipped > 0 || chunk > 0);
                });
                tensor_cores::commit_group();
                tensor_cores::wait_group::<1>();
                tensor_cores::fence_registers(&mut sums);
                if chunk > 0 {
                    self.release(previous, thread);
                }
                previous = position.stage;
                *position = position.next(self.plan);
                chunk += 1;
                if chunk >= chunks {
                    break;
                }
            }
            tensor_cores::wait_group::<0>();
            tensor_cores::fence_registers(&mut sums);
            sums
        }
    }

    /// Tells that the consumer has left the stage.
    ///
    /// # Safety
    /// The warpgroup calls it together, once a round, when nothing of it reads the stage any more.
    #[inline(always)]
    unsafe fn release(&self, stage: u32, thread: u32) {
        if thread == 0 {
            // SAFETY: the stage's barrier.
            unsafe { mbarrier::arrive(self.empty(stage)) }
        }
    }
}
