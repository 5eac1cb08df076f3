//! Many queries against a large corpus on Hopper: `cosine_wgmma_f16`, `cosine_wgmma_bf16`, and the same for
//! longer lists.
//!
//! | | |
//! |---|---|
//! | queries | map of `[1, queries, dim]`, boxes of [`BLOCK_K`] x [`BLOCK_QUERIES`] x 1, swizzle of 128 bytes |
//! | corpus | map of `[1, n, dim]`, boxes of [`BLOCK_K`] x [`BLOCK_ROWS`] x 1, the same swizzle; `1 <= n <= `[`MAX_ROWS`] |
//! | corpus norms, query norms | one over each, f32 `[n.next_multiple_of(`[`NORMS_AT_ONCE`]`)]` (16-byte aligned) and `[queries]` |
//! | out | keys ([`crate::key`]), u64 `[queries, slices, k]`, each list sorted: the best of the rows of that slice |
//!
//! A matrix product whose tiles never leave the registers: the mainloop is that of [`gemm::sm90`], whose
//! consumers multiply 64 queries with 256 rows of the corpus each; in place of a result's way to memory a
//! warp compares the scores of its 16 queries with their `k`-th best so far (`offer.rs`).
//!
//! ```text
//!             256 rows of the corpus        block (x, y): queries 128 x .., every `slices`-th tile of 256 rows from y on
//!            +----------------------+
//!            |   stage: 64 of dim   |       producer     empty? k=0 | empty? k=1 | ...                      (1 thread)
//!  +-----+   +----------------------+       consumer 0   ask for the norms | 4 wgmma k=0 | k=1 | ... | offer the scores | ...
//!  | 128 |   | consumer 0: 64 queries|      consumer 1   the same, for its own queries
//!  | que |   +----------------------+
//!  | ries|   | consumer 1: 64 queries|
//!  +-----+   +----------------------+
//! ```
//! Blocks that hold different queries walk the same tiles side by side, so that a row comes from memory once
//! and from L2 for the others.

mod offer;

use crate::half::ELEMENT_BYTES;
pub use crate::half::PIECE_BYTES;
use crate::list::KEY_BYTES;
use core::marker::PhantomData;
use cuda_std::tma::TensorMap;
use cuda_std::wgmma::{BF16, F16, Operand};
use cuda_std::{async_copy, grid, kernel, thread};
use gemm::sm90::barriers::Barrier;
use gemm::sm90::config::{Block, Config, Plan, WARPGROUP};
use gemm::sm90::epilogue::Epilogue;
use gemm::sm90::mainloop::{InAccumulators, Maps, run};
use gemm::sm90::operands::{Element16, Pair};
use gemm::sm90::tile_scheduler::{GemmShape, TileCoord, TileScheduler};
use offer::{Accumulators, Offers, QUERIES as WARP_QUERIES};
use primitives::shared_plan::SharedPlan;
use primitives::tma::LINE_BYTES;
use primitives::{shared_bytes, shared_plan};

/// Threads of a block.
pub const THREADS: u32 = <Search<F16, SHORT_K> as Config>::THREADS;
/// Queries of a tile.
pub const BLOCK_QUERIES: u32 = <Search<F16, SHORT_K> as Config>::BLOCK_M;
/// Rows of a tile.
pub const BLOCK_ROWS: u32 = <Search<F16, SHORT_K> as Config>::BLOCK_N;
/// Elements of `dim` in a stage.
pub const BLOCK_K: u32 = LINE_BYTES / ELEMENT_BYTES;
/// Longest list that leaves room for four stages.
pub const SHORT_K: u32 = 32;
/// Longest list: three stages are left. Two would not hide the copies.
pub const LONG_K: u32 = 80;
/// Most rows of the corpus, and most queries: coordinates of a copy are signed.
pub const MAX_ROWS: u32 = i32::MAX as u32 - BLOCK_ROWS;
/// Norms in one 16-byte piece: the corpus's array is padded to it.
pub const NORMS_AT_ONCE: u32 = PIECE_BYTES / size_of::<f32>() as u32;

/// Queries of a consumer.
const CONSUMER_QUERIES: u32 = 64;
/// Threads of a consumer that copy a piece of the norms.
const NORM_PIECES: u32 = BLOCK_ROWS / NORMS_AT_ONCE;

const _: () = {
    assert!(<Search<F16, SHORT_K> as Config>::STAGES == 4 && <Search<F16, LONG_K> as Config>::STAGES == 3);
    assert!(NORM_PIECES <= WARPGROUP, "a thread copies one piece at most");
};

/// Dynamic shared memory of a block for lists of `k`, at most [`LONG_K`].
pub const fn shared_bytes(k: u32) -> u32 {
    if k <= SHORT_K { Plan::<Search<F16, SHORT_K>>::TOTAL } else { Plan::<Search<F16, LONG_K>>::TOTAL }
}

/// The product of queries and corpus, with room for lists of `K` keys.
pub struct Search<T, const K: u32>(PhantomData<T>);

impl<T, const K: u32> Clone for Search<T, K> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const K: u32> Copy for Search<T, K> {}

impl<T: Operand + Element16 + 'static, const K: u32> Config for Search<T, K> {
    type Operands = Pair<T, T, T, 0, 0>;
    type Tile = [Accumulators; 1];
    type Stored = Self::Tile;
    type EpiloguePlan = ListsPlan<Longest<K>>;
    const CONSUMERS: u32 = 2;
    const PING_PONG: bool = false;
    const CLUSTER_M: u32 = 1;
    const CLUSTER_N: u32 = 1;
    const TRANSPOSED: bool = false;
}

/// Longest list that a consumer has room for.
pub trait ListLength {
    /// Keys.
    const KEYS: u32;
}

/// A [`ListLength`] of `K`.
pub struct Longest<const K: u32>;

impl<const K: u32> ListLength for Longest<K> {
    const KEYS: u32 = K;
}

shared_plan! {
    /// Shared memory of a consumer's epilogue.
    pub struct ListsPlan<L: ListLength> {
        /// One over the norms of a tile's rows.
        norms: Norms,
        /// The lists of the consumer's queries, one behind the other as long as the launch says.
        lists: Keys<L>,
    }
}

shared_bytes! {
    /// A number for each row of a tile.
    pub struct Norms(BLOCK_ROWS * size_of::<f32>() as u32, align PIECE_BYTES);
}

shared_bytes! {
    /// A consumer's lists, as long as they can be.
    pub struct Keys<L: ListLength>(CONSUMER_QUERIES * L::KEYS * KEY_BYTES, align 8);
}

/// The arguments of a launch.
struct Arguments<'a> {
    queries: &'a TensorMap,
    corpus: &'a TensorMap,
    corpus_norms: *const f32,
    rows: u32,
    dim: u32,
    query_norms: *const f32,
    query_count: u32,
    k: u32,
    out: *mut u64,
}

/// Kernels: name, type, longest list.
macro_rules! kernels {
    ($(#[kernel] fn $name:ident: $type:ident, $longest:ident;)*) => {
        $(
            #[doc = concat!("Finds the best `k`, at most [`", stringify!($longest), "`], rows of each slice of a corpus for every query, in ", stringify!($type), "; see the module.")]
            ///
            /// # Safety
            /// Arguments as the module's table says; `grid = [queries.div_ceil(`[`BLOCK_QUERIES`]`), slices]`
            /// blocks of [`THREADS`] threads with [`shared_bytes()`] of dynamic shared memory.
            #[kernel(launch_bounds(THREADS, 1))]
            pub unsafe fn $name(
                queries: &TensorMap,
                corpus: &TensorMap,
                corpus_norms: *const f32,
                rows: u32,
                dim: u32,
                query_norms: *const f32,
                query_count: u32,
                k: u32,
                out: *mut u64,
            ) {
                let arguments =
                    Arguments { queries, corpus, corpus_norms, rows, dim, query_norms, query_count, k, out };
                // SAFETY: the caller's contract.
                unsafe { search::<Longest<$longest>, Search<$type, $longest>>(arguments) }
            }
        )*
    };
}

kernels! {
    #[kernel] fn cosine_wgmma_f16: F16, SHORT_K;
    #[kernel] fn cosine_wgmma_bf16: BF16, SHORT_K;
    #[kernel] fn cosine_wgmma_long_f16: F16, LONG_K;
    #[kernel] fn cosine_wgmma_long_bf16: BF16, LONG_K;
}

/// The work of a kernel.
///
/// # Safety
/// As the kernels.
#[inline(always)]
unsafe fn search<
    L: ListLength,
    C: Config<Tile = [Accumulators; 1], Stored = [Accumulators; 1], EpiloguePlan = ListsPlan<L>>,
>(
    arguments: Arguments<'_>,
) {
    let Arguments { queries, corpus, rows, dim, query_count, .. } = arguments;
    let shape = GemmShape::new([query_count, rows, dim], 1, 1);
    // Nothing is stored by a map.
    let maps = Maps { a: queries, b: corpus, c: queries, source: queries };
    let scheduler = Slice { rows, tile: thread::block_idx_y() };
    // SAFETY: the caller's contract: the maps have this product's boxes, and the launch is one of blocks
    // without clusters.
    unsafe {
        run::<C, _, _, _>(maps, shape, scheduler, InAccumulators, |block, thread| {
            Lists::new(arguments, block, thread)
        });
    }
}

/// The tiles of a block's slice of the corpus.
#[derive(Clone, Copy)]
struct Slice {
    rows: u32,
    tile: u32,
}

impl<C: Config> TileScheduler<C> for Slice {
    #[inline(always)]
    fn has_tile(&mut self) -> bool {
        self.tile < self.rows.div_ceil(C::BLOCK_N)
    }

    #[inline(always)]
    fn advance(&mut self, tiles: u32) {
        self.tile += tiles * thread::grid_dim_y();
    }

    #[inline(always)]
    fn coord(&self, _: [u32; 2]) -> TileCoord {
        let (row, column) = (thread::block_idx_x() * C::BLOCK_M, self.tile * C::BLOCK_N);
        TileCoord {
            row,
            column,
            batch: 0,
            group: 0,
            end: row + C::BLOCK_M,
            right: self.rows,
            is_bounded: false,
        }
    }
}

/// A consumer's lists, and the norms of the rows that are offered to them.
struct Lists {
    offers: Offers,
    corpus_norms: *const f32,
    rows: u32,
    /// Shared address of the tile's norms.
    norms: u32,
    /// The consumer's barrier, and the thread's number in the consumer.
    barrier: Barrier,
    thread: u32,
    /// Where the warp's first list goes, and from one query's to the next one's.
    out: *mut u64,
    out_step: usize,
}

impl Lists {
    /// Empty ones.
    ///
    /// # Safety
    /// The arguments are a kernel's, and the consumer's memory is not used yet.
    #[inline(always)]
    unsafe fn new<L: ListLength, C: Config<EpiloguePlan = ListsPlan<L>>>(
        arguments: Arguments<'_>,
        block: Block<C>,
        thread: u32,
    ) -> Self {
        let Arguments { corpus_norms, rows, query_norms, query_count, k, out, .. } = arguments;
        let (consumer, thread) = (thread / WARPGROUP, thread % WARPGROUP);
        // A warp keeps the lists of its own queries.
        let of_consumer = thread / 32 * WARP_QUERIES;
        let query = thread::block_idx_x() * C::BLOCK_M + consumer * C::CONSUMER_ROWS + of_consumer;
        let shared = block.shared.epilogue(consumer);
        let lists = shared.lists() + of_consumer * k * KEY_BYTES;
        let real = query_count.saturating_sub(query);
        let slices = thread::grid_dim_y() as usize;
        let first = (query as usize * slices + thread::block_idx_y() as usize) * k as usize;
        // Earlier grids may still write the norms.
        grid::wait_dependencies();
        // SAFETY: this warp's lists, and norms of queries that there are.
        let offers = unsafe { Offers::new(lists, k, real, query_norms.wrapping_add(query as usize), rows) };
        Lists {
            offers,
            corpus_norms,
            rows,
            norms: shared.norms(),
            barrier: Barrier::Consumer(consumer),
            thread,
            out: out.wrapping_add(first),
            out_step: slices * k as usize,
        }
    }
}

impl<C: Config<Tile = [Accumulators; 1], Stored = [Accumulators; 1]>> Epilogue<C> for Lists {
    /// Asks for the norms of the tile's rows; they come while it is multiplied.
    #[inline(always)]
    unsafe fn prepare(&mut self, tile: TileCoord) {
        // SAFETY: after the barrier no thread reads the last tile's norms. Behind the last row nothing is
        // read; up to there norms are padded to whole pieces.
        unsafe {
            self.barrier.sync();
            if self.thread < NORM_PIECES {
                let row = tile.column + self.thread * NORMS_AT_ONCE;
                let is_there = row < self.rows;
                let from = self.corpus_norms.wrapping_add(if is_there { row as usize } else { 0 });
                let to = self.norms + self.thread * PIECE_BYTES;
                async_copy::copy_cg_zfill(to, from, if is_there { PIECE_BYTES } else { 0 });
            }
        }
    }

    /// Offers the scores to the lists.
    #[inline(always)]
    unsafe fn store(&mut self, sums: &C::Tile, tile: TileCoord) {
        async_copy::wait_all();
        // SAFETY: the whole warpgroup is here; all norms have come.
        unsafe {
            self.barrier.sync();
            self.offers.tile(&sums[0], self.norms, tile.column);
        }
    }

    #[inline(always)]
    unsafe fn finish(&mut self) {
        // SAFETY: the warp's own places in the result.
        unsafe { self.offers.finish(|query| self.out.add(query as usize * self.out_step)) }
    }
}
