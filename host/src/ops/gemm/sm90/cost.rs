//! How long a kernel of [`gemm::sm90`] should take.
//!
//! Full waves of clusters of tiles, times steps of 128 bytes of k, times the longest of three: the
//! multiplications (and some of the copies), the copies from the L2 cache, and what a multiprocessor takes
//! in. Stores follow; where C's elements are stored one at a time, everything else waits for them. Memory
//! cannot be faster than it is: each operand comes from it once, or, where both do not fit in the cache,
//! once for each wave that needs it. The figures are fitted to a sweep of one H200 (`benches/NOTES.md`).

use gemm::sm90::instances::Entry;

use super::candidates::{View, clusters, copy_straddles, resident, straddles};
use super::maps::{K_BYTES, paired};
use crate::ops::gemm::config::Repack;
use crate::ops::gemm::problem::{Operand, Order, Problem};
use crate::ops::gemm::repack;
use crate::ops::gemm::select::DeviceCapabilities;

/// Rates of one multiprocessor in a microsecond: operations on 16-bit types, bytes that it asks the L2 cache
/// for, bytes that come into shared memory (64 a clock), and bytes of C that go out.
const FLOPS_PER_US: f64 = 8.36e6;
const LOAD_BYTES_PER_US: f64 = 139e3;
const INTAKE_BYTES_PER_US: f64 = 125e3;
const STORE_BYTES_PER_US: f64 = 26.6e3;
/// Elements of C in at most 16 bits that a multiprocessor stores in a microsecond one at a time: 8337 x 6785
/// x 159 and 17464 x 18099 x 400 on an H200.
const STORED_ALONE_PER_US: f64 = 1.5e3;
/// The same where all but the ends of rows leaves 16 bytes at once.
const STORED_BY_ROWS_PER_US: f64 = 4.7e3;
/// Bytes that the whole device reads from memory in a microsecond.
const MEMORY_BYTES_PER_US: f64 = 4.65e6;
/// Bytes of the L2 cache.
const CACHE_BYTES: f64 = 50e6;
/// Of two things that go on at a time, how much of the shorter one still shows.
const SHOWS: f64 = 0.267;
/// How much of a store shows that the next tile's first copies follow.
const FOLLOWED: f64 = 0.7;
/// The same with ping-pong, where fewer columns than these go through the epilogue at a time: next to 192
/// accumulators.
const NARROW: f64 = 0.38;
const WIDE_CHUNK: u32 = 32;
/// How much longer a store takes through the epilogue.
const THROUGH_EPILOGUE: f64 = 4.0;
/// A launch, and the first stage's way.
const START_US: f64 = 2.0;
/// How much longer steps take where k is shared out although there are tiles for all multiprocessors. Why has
/// not been found.
const SHARED_AGAIN: f64 = 1.15;
/// Bytes that a multiprocessor gets of another's shared memory.
const EXCHANGE_BYTES_PER_US: f64 = 40e3;
/// How much longer clusters of blocks take to start.
const CLUSTER_US: f64 = 0.89;

/// Microseconds of a product, with the copies of operands that come first.
pub(super) fn estimate_us(
    entry: &Entry,
    view: &View,
    problem: &Problem,
    [to_a, to_b]: [Repack; 2],
    device: &DeviceCapabilities,
) -> f64 {
    let Problem { k, batch, .. } = *problem;
    let copies = repack::estimate_us(to_a, view.m, k, batch, view.a.dtype.size())
        + repack::estimate_us(to_b, k, view.n, batch, view.b.dtype.size());
    let [across_m, across_n, shares] = entry.cluster;
    let start = if across_m * across_n * shares > 1 { START_US + CLUSTER_US } else { START_US };
    let waves = f64::from(clusters(entry, view, batch).div_ceil(resident(entry, device)));
    let [_, _, block_k] = entry.block;
    let steps = waves * f64::from(k.div_ceil(block_k).div_ceil(shares));
    let store = exchange_us(entry) + store_us(entry, problem) / f64::from(shares);
    // With ping-pong, stores hide behind the other consumer's multiplications, but for the last one.
    let is_slow = entry.chunk_columns < WIDE_CHUNK && !problem.epilogue.is_plain();
    let shown = if !entry.ping_pong {
        FOLLOWED
    } else if is_slow {
        NARROW
    } else {
        0.0
    };
    let followed = shown * (waves - 1.0);
    let again = if shares > 1 && waves > 1.0 { SHARED_AGAIN } else { 1.0 };
    let tiles = again * steps * step_us(entry, view, k, [to_a, to_b]) + (1.0 + followed) * store;
    let tiles = beside(tiles, waves * stored_alone_us(entry, view, problem));
    let memory = memory_bytes(entry, view, problem, waves, device) / MEMORY_BYTES_PER_US;
    start + copies + beside(tiles, memory)
}

/// Time of two things that go on at once, microseconds.
pub(in crate::ops::gemm) fn beside(a: f64, b: f64) -> f64 {
    a.max(b) + SHOWS * a.min(b)
}

/// A stage's multiplications and copies.
fn step_us(entry: &Entry, view: &View, k: u32, [to_a, to_b]: [Repack; 2]) -> f64 {
    // Rows of the box, of lines of so many elements.
    let lines = |operand: &Operand, to: Repack, length: u32, rows: u32| {
        let is_across = match to {
            Repack::No => straddles(operand),
            Repack::Rows | Repack::Columns | Repack::DenseRows => {
                copy_straddles(length, operand.dtype.size())
            }
        };
        f64::from(rows * K_BYTES * if is_across { 2 } else { 1 })
    };
    let [block_m, block_n, _] = entry.block;
    // Blocks of a cluster ask for a part each of what they share, but take in all of it.
    let [across_m, across_n, _] = entry.cluster;
    let (length_a, length_b) =
        (if entry.trans_a { view.m } else { k }, if entry.trans_b { view.n } else { k });
    let loads = lines(&view.a, to_a, length_a, block_m / across_n)
        + lines(&view.b, to_b, length_b, block_n / across_m);
    // In the multiplications of 16-bit types that take as long: the tensor cores take bytes.
    let flops = 2.0 * f64::from(block_m) * f64::from(block_n) * f64::from(K_BYTES / 2);
    let intake = f64::from((block_m + block_n) * K_BYTES);
    let (flops, loads) = (flops / FLOPS_PER_US, loads / LOAD_BYTES_PER_US);
    (flops + SHOWS * loads.min(flops)).max(loads).max(intake / INTAKE_BYTES_PER_US)
}

fn store_us(entry: &Entry, problem: &Problem) -> f64 {
    let [block_m, block_n, _] = entry.block;
    let ways = if problem.epilogue.is_plain() { 1.0 } else { THROUGH_EPILOGUE };
    ways * f64::from(block_m * block_n) * problem.c.dtype.size() as f64 / STORE_BYTES_PER_US
}

/// A tile's store of one element at a time, where C has no pairs of elements that can be stored at once.
fn stored_alone_us(entry: &Entry, view: &View, problem: &Problem) -> f64 {
    let Problem { m, n, c, epilogue, .. } = problem;
    let length = if c.order == Order::Rows { *n / epilogue.activation.columns() } else { *m };
    if c.dtype.size() > 2 || paired(c, length as usize) {
        return 0.0;
    }
    let [block_m, block_n, _] = entry.block;
    let rate = if entry.by_rows && c.dtype.size() == 2 { STORED_BY_ROWS_PER_US } else { STORED_ALONE_PER_US };
    f64::from(block_m.min(view.m)) * f64::from(block_n.min(view.n)) / rate
}

/// Until a block has the sums of the other shares of k.
fn exchange_us(entry: &Entry) -> f64 {
    let ([block_m, block_n, _], [.., shares]) = (entry.block, entry.cluster);
    let sums = block_m * block_n / shares * (shares - 1);
    f64::from(sums) * size_of::<f32>() as f64 / EXCHANGE_BYTES_PER_US
}

/// Bytes that come from memory and go there.
fn memory_bytes(
    entry: &Entry,
    view: &View,
    problem: &Problem,
    waves: f64,
    device: &DeviceCapabilities,
) -> f64 {
    let (m, n, batch) = (f64::from(view.m), f64::from(view.n), f64::from(problem.batch));
    let line = f64::from(problem.k) * view.a.dtype.size() as f64;
    let once = (m + n) * line * batch;
    // The tiles of a wave make a square.
    let [block_m, block_n, _] = entry.block;
    let side = (f64::from(device.sm_count / entry.cluster[2]) * f64::from(block_m * block_n)).sqrt();
    let again = waves * (m.min(side) + n.min(side)) * line;
    let operands = if once > CACHE_BYTES { once.max(again) } else { once };
    operands + m * n * batch * problem.c.dtype.size() as f64
}

#[cfg(test)]
mod tests {
    use crate::ops::gemm::EpilogueDesc;
    use crate::ops::gemm::config::{Candidate, Rejection};
    use crate::ops::gemm::problem::{Operand, Order, Precision, Problem};
    use crate::ops::gemm::select::{CandidateSink, DeviceCapabilities};
    use crate::ops::gemm::sm90::{ARCH, BACKEND};
    use crate::tensor::DType;

    struct Best(Option<Candidate>);

    impl CandidateSink for Best {
        fn add(&mut self, candidate: Candidate) {
            if self.0.is_none_or(|best| candidate.estimate_us < best.estimate_us) {
                self.0 = Some(candidate);
            }
        }
        fn reject(&mut self, _: Rejection) {}
    }

    /// `C = A B^T` on an H200.
    fn chosen(sides: (u32, u32, u32), dtype: DType, c: DType) -> Candidate {
        chosen_with(EpilogueDesc::default(), sides, dtype, c)
    }

    fn chosen_with(epilogue: EpilogueDesc, sides: (u32, u32, u32), dtype: DType, c: DType) -> Candidate {
        chosen_of(epilogue, sides, dtype, c, false)
    }

    /// The same, or of `C = A^T B`, as gradients of weights are.
    fn chosen_of(
        epilogue: EpilogueDesc,
        (m, n, k): (u32, u32, u32),
        dtype: DType,
        c: DType,
        of_weights: bool,
    ) -> Candidate {
        let operand = |dtype: DType, order, leading: u32| {
            let row = u64::from(leading) * dtype.size() as u64;
            let alignment = if row.is_multiple_of(16) { 16 } else { dtype.size() as u32 };
            Operand { dtype, order, leading: u64::from(leading), batch_stride: 0, alignment }
        };
        let (a, b) = if of_weights {
            (operand(dtype, Order::Columns, m), operand(dtype, Order::Rows, n))
        } else {
            (operand(dtype, Order::Rows, k), operand(dtype, Order::Columns, k))
        };
        let c = operand(c, Order::Rows, n);
        let problem = Problem { m, n, k, batch: 1, a, b, c, precision: Precision::Tf32, epilogue };
        let mut best = Best(None);
        (BACKEND.candidates)(
            &problem,
            &DeviceCapabilities { arch: ARCH, sm_count: 132, shared_bytes: 227 << 10 },
            &mut best,
        );
        best.0.unwrap()
    }

    /// On an H200, with a bias; consumers that take turns hide the longer store: 207 us where 128 x 256 took
    /// 217 and 225. Next to 192 accumulators it takes too long for that where k is short: 8192 x 8192 x 2048
    /// 462 us, next to 128 433; 4096 x 14336 x 4096 (with `gelu`) 634 and 627.
    #[test]
    fn epilogues_go_where_their_stores_are_hidden() {
        let epilogue = EpilogueDesc { bias: Some(DType::BF16), ..EpilogueDesc::default() };
        for sides in [(1024, 4096, 4096), (4096, 4096, 4096), (8192, 8192, 2048), (4096, 14_336, 4096)] {
            let name = chosen_with(epilogue, sides, DType::BF16, DType::BF16).config.to_string();
            assert!(name.contains("_128x128_pp"), "{sides:?}: {name}");
        }
    }

    /// Of C with an odd number of columns, k contiguous in both operands; on an H100, microseconds.
    #[test]
    fn rows_that_begin_anywhere_take_longer() {
        let measured = [
            ((8337, 6785, 159), 110.2),
            ((17_464, 18_099, 400), 762.0),
            ((712, 5771, 1120), 28.2),
            ((200, 31_713, 2480), 78.2),
            ((4096, 50_257, 768), 580.0),
        ];
        for (sides, us) in measured {
            let Candidate { estimate_us, .. } = chosen(sides, DType::BF16, DType::BF16);
            assert!((estimate_us / us).ln().abs() < 0.25, "{sides:?}: {estimate_us} us, measured {us}");
        }
    }

    /// On an H100 these were the fastest configurations, or within 8 % of that, of shapes that the figures
    /// were not fitted to; with the time of the fastest, microseconds.
    #[test]
    fn the_estimates_find_what_is_fast_off_the_list() {
        type Measured<'a> = ((u32, u32, u32), bool, f64, &'a [&'a str]);
        let measured: [Measured<'_>; 8] = [
            ((768, 768, 32_768), true, 62.9, &["_128x256", "_128x192_pp"]),
            ((768, 3072, 32_768), true, 209.2, &["_128x128_pp", "_128x192_pp"]),
            ((2304, 768, 32_768), true, 191.7, &["_128x128_pp", "_128x256"]),
            ((1600, 1600, 16_384), true, 133.3, &["_128x192_pp"]),
            ((4096, 4096, 8192), true, 379.5, &["_128x256"]),
            ((200, 13_824, 5120), false, 61.1, &["_128x256_2x1"]),
            ((384, 3584, 3584), false, 20.2, &["_128x128_pp"]),
            ((5120, 5120, 5120), false, 386.0, &["_256x192", "_128x256", "_256x128"]),
        ];
        for (sides, of_weights, us, fastest) in measured {
            let none = EpilogueDesc::default();
            let Candidate { config, estimate_us, .. } =
                chosen_of(none, sides, DType::BF16, DType::BF16, of_weights);
            let name = config.kernel.name();
            assert!(fastest.iter().any(|end| name.ends_with(end)), "{sides:?}: {config}");
            assert!((estimate_us / us).ln().abs() < 0.25, "{sides:?}: {estimate_us} us, measured {us}");
        }
    }

    /// On an H200 these were the fastest of the table, or within 3 % of that; with the time of the fastest,
    /// microseconds.
    #[test]
    fn the_estimates_find_what_was_fastest_by_measurement() {
        type Measured<'a> = ((u32, u32, u32), DType, f64, &'a [&'a str]);
        let measured: [Measured<'_>; 45] = [
            ((512, 512, 512), DType::BF16, 2.8, &["_64x32_t", "_64x64"]),
            ((768, 768, 768), DType::BF16, 4.8, &["_64x128"]),
            ((1024, 1024, 1024), DType::BF16, 5.6, &["_64x128"]),
            ((1536, 1536, 1536), DType::BF16, 12.4, &["_128x144"]),
            ((2048, 2048, 2048), DType::BF16, 24.5, &["_128x128_pp", "_128x256_2x1"]),
            ((3072, 3072, 3072), DType::BF16, 76.8, &["_128x192_pp"]),
            ((4096, 4096, 4096), DType::BF16, 193.0, &["_128x256_2x1"]),
            ((6144, 6144, 6144), DType::BF16, 668.8, &["_256x192", "_128x192_pp"]),
            (
                (8192, 8192, 8192),
                DType::BF16,
                1380.7,
                &["_128x192_pp", "_256x192", "_128x256_2x1", "_128x256", "_256x128"],
            ),
            ((1000, 1000, 1000), DType::BF16, 7.8, &["_64x128_2x1"]),
            ((3000, 3000, 3000), DType::BF16, 83.5, &["_128x192_pp"]),
            ((16, 28_672, 8192), DType::BF16, 110.7, &["_128x16_t"]),
            ((16, 8192, 8192), DType::BF16, 33.1, &["_64x16_t", "_128x16_t", "_64x32_t"]),
            ((64, 6144, 4096), DType::BF16, 15.4, &["_64x48"]),
            ((64, 8192, 8192), DType::BF16, 34.5, &["_64x128", "_64x64"]),
            ((128, 4096, 4096), DType::BF16, 14.0, &["_64x64"]),
            ((128, 28_672, 8192), DType::BF16, 118.6, &["_128x256"]),
            ((256, 4096, 14_336), DType::BF16, 47.3, &["_128x128_k2"]),
            ((256, 8192, 8192), DType::BF16, 50.9, &["_128x128_pp"]),
            ((512, 4096, 4096), DType::BF16, 24.8, &["_128x128_pp"]),
            ((1024, 2048, 8192), DType::BF16, 46.5, &["_128x128_pp"]),
            ((1024, 6144, 4096), DType::BF16, 69.7, &["_128x192_pp"]),
            ((2048, 8192, 2048), DType::BF16, 91.6, &["_128x256_2x1"]),
            ((2048, 4096, 11_008), DType::BF16, 266.0, &["_128x256", "_256x128", "_128x256_2x1"]),
            ((2048, 12_288, 4096), DType::BF16, 296.0, &["_256x192", "_128x256_2x1"]),
            ((64, 64, 16_384), DType::BF16, 6.3, &["_64x16_t"]),
            ((128, 128, 65_536), DType::BF16, 14.3, &["_64x32_t", "_128x16_t"]),
            ((256, 256, 32_768), DType::BF16, 15.1, &["_64x64", "_64x128"]),
            ((512, 512, 16_384), DType::BF16, 18.9, &["_64x128"]),
            ((1024, 1024, 1024), DType::F8E4M3, 4.2, &["_64x128"]),
            ((2048, 2048, 2048), DType::F8E4M3, 13.8, &["_128x128_pp"]),
            ((4096, 4096, 4096), DType::F8E4M3, 103.5, &["_128x128_pp", "_128x256"]),
            (
                (8192, 8192, 8192),
                DType::F8E4M3,
                708.7,
                &["_128x192_pp", "_128x256", "_256x128", "_128x128_pp"],
            ),
            ((16, 8192, 8192), DType::F8E4M3, 18.4, &["_64x16_t"]),
            ((128, 28_672, 8192), DType::F8E4M3, 68.3, &["_128x128_pp", "_128x256"]),
            ((1024, 6144, 4096), DType::F8E4M3, 36.8, &["_128x128_pp"]),
            (
                (4096, 14_336, 4096),
                DType::F8E4M3,
                371.9,
                &["_128x192_pp", "_128x256", "_256x128", "_128x128_pp"],
            ),
            ((4096, 4096, 14_336), DType::F8E4M3, 358.1, &["_128x256", "_256x128"]),
            ((1024, 1024, 1024), DType::F32, 12.5, &["_64x128"]),
            ((2048, 2048, 2048), DType::F32, 48.1, &["_128x256", "_128x256_2x1"]),
            ((4096, 4096, 4096), DType::F32, 415.8, &["_128x256_2x1"]),
            ((16, 8192, 8192), DType::F32, 67.1, &["_64x16_t"]),
            ((128, 28_672, 8192), DType::F32, 248.6, &["_128x256"]),
            ((1024, 6144, 4096), DType::F32, 165.0, &["_128x128_pp"]),
            ((4096, 4096, 14_336), DType::F32, 1180.9, &["_128x256", "_128x256_2x1"]),
        ];
        for (sides, dtype, us, fastest) in measured {
            let c = match dtype {
                DType::F8E4M3 => DType::BF16,
                other => other,
            };
            let Candidate { config, estimate_us, .. } = chosen(sides, dtype, c);
            let name = config.kernel.name();
            assert!(fastest.iter().any(|end| name.ends_with(end)), "{sides:?} {dtype}: {config}");
            assert!(
                (estimate_us / us).ln().abs() < 0.25,
                "{sides:?} {dtype}: {estimate_us} us, measured {us}"
            );
        }
    }
}
