//! The kernels on the executor, with the checker on, under 20 schedules: nothing is reported, no bit changes,
//! and the result is right.

use ironwarp_similarity::half::f16;
use ironwarp_similarity::{
    cosine_merge, cosine_norms_f16, cosine_stream_f16, cosine_tile_f16, cosine_wgmma_f16, merge, norms, sm90,
    stream, tile,
};
use reference::cosine::Checker;
use simt::tensor_map::{DataType, Description, Interleave, L2Promotion, OobFill, Swizzle, encode};
use simt::{LaunchConfig, Options};
use testkit::tolerance;

const SEEDS: u64 = 20;
const DIM: u32 = 24;
const ROWS: u32 = 520;
const K: u32 = 12;

/// A buffer that the executor knows as global memory.
struct Global<T> {
    data: Vec<T>,
}

impl<T: Copy> Global<T> {
    fn new(data: Vec<T>, label: &str) -> Self {
        simt::memory::track(data.as_ptr(), size_of_val(data.as_slice()), label);
        Global { data }
    }

    /// The address, in a form that threads may share.
    fn address(&mut self) -> usize {
        self.data.as_mut_ptr() as usize
    }
}

impl<T> Drop for Global<T> {
    fn drop(&mut self) {
        simt::memory::untrack(self.data.as_ptr());
    }
}

/// Vectors with many equal scores: what depends on the schedule would show in the ties.
fn vectors(count: u32, dim: u32, label: &str) -> Global<f16> {
    let element = |i: u32| f16::from_f32((i.wrapping_mul(2_654_435_761) >> 30) as f32 - 1.0);
    Global::new((0..count * dim).map(element).collect(), label)
}

/// Runs `body` once for each thread and fails with the checker's report if it finds a fault.
fn run(seed: u64, config: LaunchConfig, body: impl Fn() + Sync) {
    let options = Options { seed, check: true, ..Options::from_env() };
    if let Err(fault) = simt::run(&config, &options, body) {
        panic!("{fault}");
    }
}

fn inverse_norms(seed: u64, vectors: &mut Global<f16>, count: u32, dim: u32) -> Global<f32> {
    let padded = count.next_multiple_of(tile::NORMS_AT_ONCE) as usize;
    let mut out = Global::new(vec![0f32; padded], "norms");
    let (from, to) = (vectors.address(), out.address());
    run(seed, LaunchConfig::linear(2, norms::THREADS).shared(norms::SHARED_BYTES), || {
        // SAFETY: `count` vectors of `dim`, and room for as many norms.
        unsafe { cosine_norms_f16(from as *const f16, count, dim, to as *mut f32) }
    });
    out
}

fn merged(seed: u64, keys: &mut Global<u64>, queries: u32, lists: u32) -> (Vec<u32>, Vec<u32>) {
    let len = (queries * K) as usize;
    let (mut scores, mut rows) =
        (Global::new(vec![0f32; len], "scores"), Global::new(vec![0u32; len], "rows"));
    let (keys, to_scores, to_rows) = (keys.address(), scores.address(), rows.address());
    let config = LaunchConfig::linear(queries, merge::THREADS).shared(merge::shared_bytes(K));
    run(seed, config, || {
        // SAFETY: `[queries, lists, K]` keys, and room for `[queries, K]` results.
        unsafe { cosine_merge(keys as *const u64, lists, K, to_scores as *mut f32, to_rows as *mut u32) }
    });
    (scores.data.iter().map(|score| score.to_bits()).collect(), rows.data.clone())
}

/// Scores' bits and rows of one search.
type Found = (Vec<u32>, Vec<u32>);

const FEW: u32 = 11;

fn search_few(seed: u64) -> Found {
    const QUERIES: u32 = FEW;
    const BLOCKS: u32 = 3;
    const DEPTH: u32 = 3;
    let (mut corpus, mut queries) = (vectors(ROWS, DIM, "corpus"), vectors(QUERIES, DIM, "queries"));
    let mut norms = inverse_norms(seed, &mut queries, QUERIES, DIM);
    let mut keys = Global::new(vec![0u64; (QUERIES * BLOCKS * K) as usize], "keys");
    let plan = stream::Plan::new(DIM, QUERIES, K, DEPTH);
    let config = LaunchConfig::linear(BLOCKS, stream::THREADS).shared(plan.bytes());
    let (from, with, scale, to) = (corpus.address(), queries.address(), norms.address(), keys.address());
    run(seed, config, || {
        let (from, with) = (from as *const f16, with as *const f16);
        // SAFETY: the buffers above, of the sizes that the kernel's table gives.
        unsafe {
            cosine_stream_f16(from, ROWS, DIM, with, scale as *const f32, QUERIES, K, DEPTH, to as *mut u64)
        }
    });
    merged(seed, &mut keys, QUERIES, BLOCKS)
}

const MANY: u32 = 36;

fn search_many(seed: u64) -> Found {
    const QUERIES: u32 = MANY;
    const SLICES: u32 = 2;
    let (mut corpus, mut queries) = (vectors(ROWS, DIM, "corpus"), vectors(QUERIES, DIM, "queries"));
    let mut row_norms = inverse_norms(seed, &mut corpus, ROWS, DIM);
    let mut norms = inverse_norms(seed, &mut queries, QUERIES, DIM);
    let mut keys = Global::new(vec![0u64; (QUERIES * SLICES * K) as usize], "keys");
    let plan = tile::Plan::new(K, 32);
    let blocks = SLICES * QUERIES.div_ceil(tile::BLOCK_QUERIES);
    let config = LaunchConfig::linear(blocks, tile::THREADS).shared(plan.bytes());
    let (from, with, to) = (corpus.address(), queries.address(), keys.address());
    let (row_scale, scale) = (row_norms.address(), norms.address());
    run(seed, config, || {
        let (from, with) = (from as *const f16, with as *const f16);
        let (row_scale, scale) = (row_scale as *const f32, scale as *const f32);
        // SAFETY: the buffers above, of the sizes that the kernel's table gives.
        unsafe {
            cosine_tile_f16(
                from,
                row_scale,
                ROWS,
                DIM,
                with,
                scale,
                QUERIES,
                SLICES,
                K,
                plan.capacity(),
                to as *mut u64,
            )
        }
    });
    merged(seed, &mut keys, QUERIES, SLICES)
}

/// A map of `rows` vectors in boxes of `box_rows`.
fn map(vectors: &mut Global<f16>, rows: u32, dim: u32, box_rows: u32) -> cuda_std::tma::TensorMap {
    let row_bytes = u64::from(dim) * size_of::<f16>() as u64;
    cuda_std::tma::TensorMap::from_words(encode(&Description {
        address: vectors.address() as u64,
        data_type: DataType::F16,
        rank: 3,
        dims: [dim.into(), rows.into(), 1, 1, 1],
        strides: [row_bytes, row_bytes * u64::from(rows), 0, 0],
        box_dims: [sm90::BLOCK_K, box_rows, 1, 1, 1],
        element_strides: [1; 5],
        interleave: Interleave::None,
        swizzle: Swizzle::B128,
        l2_promotion: L2Promotion::None,
        oob_fill: OobFill::Zeros,
        pixels: None,
    }))
}

/// Two tiles of queries and five of rows in one slice, through a ring that goes round more than once.
mod wide {
    pub const QUERIES: u32 = ironwarp_similarity::sm90::BLOCK_QUERIES + 16;
    pub const ROWS: u32 = 4 * ironwarp_similarity::sm90::BLOCK_ROWS + 40;
    pub const DIM: u32 = ironwarp_similarity::sm90::BLOCK_K + 8;
    pub const SLICES: u32 = 1;
}

fn search_wgmma(seed: u64) -> Found {
    use wide::{DIM, QUERIES, ROWS, SLICES};
    let (mut corpus, mut queries) = (vectors(ROWS, DIM, "corpus"), vectors(QUERIES, DIM, "queries"));
    let mut row_norms = inverse_norms(seed, &mut corpus, ROWS, DIM);
    let mut norms = inverse_norms(seed, &mut queries, QUERIES, DIM);
    let mut keys = Global::new(vec![0u64; (QUERIES * SLICES * K) as usize], "keys");
    let config = LaunchConfig {
        grid: [QUERIES.div_ceil(sm90::BLOCK_QUERIES), SLICES, 1],
        ..LaunchConfig::linear(1, sm90::THREADS).shared(sm90::shared_bytes(K))
    };
    let query_map = map(&mut queries, QUERIES, DIM, sm90::BLOCK_QUERIES);
    let corpus_map = map(&mut corpus, ROWS, DIM, sm90::BLOCK_ROWS);
    let (row_scale, scale, to) = (row_norms.address(), norms.address(), keys.address());
    run(seed, config, || {
        let (row_scale, scale) = (row_scale as *const f32, scale as *const f32);
        let to = to as *mut u64;
        // SAFETY: the buffers above, of the sizes that the kernel's table gives.
        unsafe { cosine_wgmma_f16(&query_map, &corpus_map, row_scale, ROWS, DIM, scale, QUERIES, K, to) }
    });
    merged(seed, &mut keys, QUERIES, SLICES)
}

fn same_under_all_seeds(search: impl Fn(u64) -> Found) -> Found {
    let first = search(0);
    for seed in 1..SEEDS {
        assert!(search(seed) == first, "seed {seed} gives another result than seed 0");
    }
    first
}

/// Compares with the best rows of all, found in f64.
fn is_right((scores, rows): &Found, count: u32, queries: u32, dim: u32) {
    let (corpus, queries) = (vectors(count, dim, "corpus"), vectors(queries, dim, "queries"));
    let scores: Vec<f32> = scores.iter().map(|bits| f32::from_bits(*bits)).collect();
    let checker = Checker::new(&corpus.data, &queries.data, dim as usize, K as usize);
    let allowed = tolerance::COSINE_SCORE.for_terms(dim as usize).allowed(1.0);
    checker.check(&scores, rows, allowed).unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn few_queries() {
    is_right(&same_under_all_seeds(search_few), ROWS, FEW, DIM);
}

#[test]
fn many_queries() {
    is_right(&same_under_all_seeds(search_many), ROWS, MANY, DIM);
}

#[test]
fn many_queries_on_hopper() {
    is_right(&same_under_all_seeds(search_wgmma), wide::ROWS, wide::QUERIES, wide::DIM);
}
