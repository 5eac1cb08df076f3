//! f32 without tensor cores: [`gemm::gemm_f32`].

use gemm::any::StridedGemm;
use gemm::element::Layout;
use gemm::gemm_f32::{self as kernel, RESIDENT, Tile};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, DeviceViewMut};
use crate::stream::Stream;
use crate::tensor::DType;

use super::any::strided_gemm;
use super::backend::Backend;
use super::config::{Candidate, Config, Kernel, Rejection};
use super::matmul::Matmul;
use super::matrix::{Matrix, MatrixMut};
use super::problem::{Order, Precision, Problem};
use super::repack::MAX_BATCH_BLOCKS;
use super::select::{CandidateSink, DeviceCapabilities};
use super::sm90::{ARCH, beside};
use super::split_k;

pub(super) const BACKEND: Backend = Backend {
    candidates,
    has: |kernel| matches!(kernel, Kernel::F32Large | Kernel::F32Small),
    launch: launch_f32,
};

/// Bytes of an element.
const F32: f64 = size_of::<f32>() as f64;
/// Floating-point operations a microsecond of one multiprocessor, all its blocks at work. The figures are
/// fitted to configurations of 59 products on an H100, 40 of them drawn at random (`benches/NOTES.md`).
const LARGE_FLOPS_PER_US: f64 = 328e3;
const SMALL_FLOPS_PER_US: f64 = 273e3;
/// How many blocks take as long as one that has a multiprocessor to itself: two warps take nearly as long as
/// eight.
const LARGE_ALONE: f64 = 3.9;
const SMALL_ALONE: f64 = 1.24;
/// A launch, the copies of the first tiles, and the end of a block.
const START_US: f64 = 3.26;
/// How much of memory's rate operands and results have.
const READ: f64 = 0.456;
/// Bytes a microsecond that all blocks together take from the L2 cache.
const CACHE_BYTES_PER_US: f64 = 4.69e6;
/// How much of the time of adding parts shows: the launch overlaps the one before.
const ADDING: f64 = 0.71;
/// Numbers of parts of k that are offered beside those that fill waves of blocks.
const FEW_PARTS: [u32; 5] = [2, 4, 8, 16, 32];

/// Shape and factors of `C = alpha A B + beta C`, all matrices row-major and dense.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of source C, what C holds before; with 0, C is not read, so it may hold anything.
    pub beta: f32,
}

impl Gemm {
    /// `C = A B`.
    pub const fn new(m: usize, n: usize, k: usize) -> Self {
        Gemm { m, n, k, alpha: 1.0, beta: 0.0 }
    }
}

/// Queues `C = alpha A B + beta C` for `a: [m, k]`, `b: [k, n]`, `c: [m, n]` in f32, without tensor cores.
/// Any sizes, 0 too: with `k` 0, `C` is scaled by `beta`. Short for a [`Matmul`] of dense matrices.
///
/// # Errors
/// As [`Matmul::run`].
pub fn gemm_f32<'a>(
    stream: &Stream,
    gemm: Gemm,
    a: impl Into<DeviceView<'a, f32>>,
    b: impl Into<DeviceView<'a, f32>>,
    c: impl Into<DeviceViewMut<'a, f32>>,
) -> Result<()> {
    let Gemm { m, n, k, alpha, beta } = gemm;
    let (a, b) = (Matrix::new::<f32>(a, m, k), Matrix::new::<f32>(b, k, n));
    Matmul::new(a, b, MatrixMut::new::<f32>(c, m, n)).alpha(alpha).beta(beta).run(stream)
}

fn candidates(problem: &Problem, device: &DeviceCapabilities, sink: &mut dyn CandidateSink) {
    if let Some(why) = lacks(problem) {
        return sink.reject(Rejection { kernel: Kernel::F32Large.name(), why });
    }
    for tile in Tile::ALL {
        for swap in [false, true] {
            add(tile, swap, problem, device, sink);
        }
    }
}

/// Why the kernels cannot do the problem.
fn lacks(problem: &Problem) -> Option<&'static str> {
    let Problem { a, b, precision, batch, .. } = *problem;
    let rules = [
        ([a.dtype, b.dtype] == [DType::F32; 2], "A and B are f32"),
        (precision == Precision::F32, "multiplies the whole f32, and tf32 is allowed"),
        (a.order != Order::Strided && b.order != Order::Strided, "wants A and B by rows or by columns"),
        (batch <= MAX_BATCH_BLOCKS, "takes up to 65535 products"),
    ];
    rules.iter().find(|(holds, _)| !holds).map(|(_, why)| *why)
}

/// The candidate, and those with k in parts that are estimated to be faster.
fn add(tile: Tile, swap: bool, problem: &Problem, device: &DeviceCapabilities, sink: &mut dyn CandidateSink) {
    let kernel = if tile == Tile::Large { Kernel::F32Large } else { Kernel::F32Small };
    let config = Config { swap, ..Config::new(kernel, tile.shape(), tile.stages()) };
    let whole_us = estimate_us(tile, swap, problem, device);
    // The epilogue of a transpose would add the bias to rows.
    if !swap || problem.epilogue.is_alpha_beta() {
        let why = "f32 multiply-adds on operands as they lie";
        sink.add(Candidate { config, estimate_us: whole_us, why });
    }
    // The kernel that adds the parts' sums is built for Hopper alone.
    if device.arch != ARCH {
        return;
    }
    let [.., depth] = tile.shape();
    let blocks = u32::try_from(blocks(tile, swap, problem)).unwrap_or(u32::MAX);
    let stages = problem.k.div_ceil(depth);
    let mut seen = [0; SEEN];
    let offered = FEW_PARTS
        .into_iter()
        .map(|count| stages.div_ceil(stages.div_ceil(count).max(1)))
        .chain(split_k::counts(blocks, device.sm_count.max(1) * RESIDENT, stages));
    for (place, count) in offered.enumerate() {
        let Some(parts) = split_k::cut(problem, count, depth).filter(|_| !seen.contains(&count)) else {
            continue;
        };
        seen[place % SEEN] = count;
        let estimate_us =
            estimate_us(tile, swap, &parts, device) + ADDING * split_k::estimate_us(problem, count);
        if estimate_us < whole_us {
            let why = "f32 multiply-adds; k is cut into parts, since there are few tiles";
            sink.add(Candidate { config: Config { split_k: count, ..config }, estimate_us, why });
        }
    }
}

/// Numbers of parts that are remembered so that none is offered twice: as many as can be offered.
const SEEN: usize = 16;

/// Blocks of each product.
fn blocks(tile: Tile, swap: bool, problem: &Problem) -> u64 {
    let Problem { m, n, .. } = *problem;
    if swap { tile.blocks(n, m) } else { tile.blocks(m, n) }
}

/// Multiply-adds beside what comes from memory and from the cache.
fn estimate_us(tile: Tile, swap: bool, problem: &Problem, device: &DeviceCapabilities) -> f64 {
    let Problem { m, n, k, batch, .. } = *problem;
    let [rows, columns, depth] = tile.shape();
    let (rate, alone) = match tile {
        Tile::Large => (LARGE_FLOPS_PER_US, LARGE_ALONE),
        Tile::Small => (SMALL_FLOPS_PER_US, SMALL_ALONE),
    };
    let k = f64::from(k.next_multiple_of(depth));
    let of_block = 2.0 * f64::from(rows) * f64::from(columns) * k / rate;
    let (sm_count, blocks) =
        (u64::from(device.sm_count.max(1)), blocks(tile, swap, problem) * u64::from(batch));
    let wave = sm_count * u64::from(RESIDENT);
    let last = (blocks % wave).div_ceil(sm_count) as f64;
    let last = if last > 0.0 { last.max(alone) } else { 0.0 };
    let busy = ((blocks / wave * u64::from(RESIDENT)) as f64 + last) * of_block;
    let cached = blocks as f64 * f64::from(rows + columns) * k * F32 / CACHE_BYTES_PER_US;
    let (m, n) = (f64::from(m), f64::from(n));
    let memory = f64::from(batch) * (m * k + k * n + m * n) * F32 / (READ * device.memory_rate);
    START_US + beside(beside(busy, cached), memory)
}

fn launch_f32(stream: &Stream, problem: &Problem, config: &Config, product: Matmul<'_>) -> Result<()> {
    if config.split_k > 1 {
        return split_k::launch(stream, problem, config, product, |parts, of_parts| {
            launch_blocks(stream, parts, problem.k, config, of_parts)
        });
    }
    launch_blocks(stream, problem, problem.k, config, product)
}

/// A batch of products; or, with `split_k`, the parts of one product, whose whole k is `k`.
fn launch_blocks(
    stream: &Stream,
    problem: &Problem,
    k: u32,
    config: &Config,
    product: Matmul<'_>,
) -> Result<()> {
    let Matmul { a, b, c, .. } = product;
    let (problem, product) = if config.swap {
        let (a, b, c) = (b.transposed(), a.transposed(), c.transposed());
        (Problem { m: problem.n, n: problem.m, ..*problem }, Matmul { a, b, c, ..product })
    } else {
        (*problem, Matmul { a, b, c, ..product })
    };
    let tile = if config.kernel == Kernel::F32Large { Tile::Large } else { Tile::Small };
    let gemm = strided_gemm(&problem, &product);
    let (gemm, part) = if config.split_k > 1 {
        let StridedGemm { a, b, .. } = gemm;
        let a = Layout { batch: u64::from(problem.k) * a.column, ..a };
        let b = Layout { batch: u64::from(problem.k) * b.row, ..b };
        (StridedGemm { k, a, b, ..gemm }, problem.k)
    } else {
        (gemm, 0)
    };
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(tile.blocks(problem.m, problem.n)).unwrap_or(u32::MAX);
    let grid = [blocks, 1, problem.batch];
    let launch_config = LaunchConfig::new(grid, [tile.threads(), 1, 1]).overlapping_previous();
    let Matmul { a, b, c, epilogue, .. } = product;
    let arguments = (gemm, epilogue.args(false), a.data, b.data, c.data, part);
    // SAFETY: the shapes have been checked against the data and each other, types and orders by `lacks`; a
    // transpose has an epilogue of alpha and beta alone, by `add`; parts of k are those of `split_k::cut`, of
    // which none is empty; C is exclusively borrowed and does not overlap itself; for SwiGLU n is even; grid
    // and block are what the kernels ask for, and these wait for earlier launches before they touch memory.
    unsafe {
        match tile {
            Tile::Large => launch::<kernel::gemm_f32>(stream, launch_config, arguments),
            Tile::Small => launch::<kernel::gemm_f32_small>(stream, launch_config, arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::gemm::problem::{EpilogueDesc, Operand};
    use crate::ops::gemm::select::Best;
    use testkit::compare::is_foreseen;
    use testkit::tolerance::GEMM_TIME_F32;

    /// Batch, sides and order, the kernel of the fastest configuration on an H100, microseconds: of the
    /// products that the figures are fitted to.
    type Measured = (u32, [u32; 3], &'static str, Kernel, f64);
    const MEASURED: [Measured; 6] = [
        (1, [40, 80, 3677], "nn", Kernel::F32Small, 7.8),
        (4, [736, 15_184, 176], "nn", Kernel::F32Large, 414.8),
        (1, [4680, 72, 4920], "nn", Kernel::F32Small, 139.0),
        (1, [9, 18_368, 81], "tn", Kernel::F32Small, 11.5),
        (1, [4096, 4096, 4096], "nn", Kernel::F32Large, 3114.1),
        (1, [128, 9896, 117], "nt", Kernel::F32Small, 19.1),
    ];

    #[test]
    fn the_fastest_kernel_is_chosen_and_its_time_foreseen() {
        for (batch, [m, n, k], order, kernel, us) in MEASURED {
            let operand = |is_transposed: bool, rows: u32, columns: u32| {
                let (order, leading) =
                    if is_transposed { (Order::Columns, rows) } else { (Order::Rows, columns) };
                let alignment = if leading.is_multiple_of(4) { 16 } else { 4 };
                let batch_stride = if batch > 1 { u64::from(rows) * u64::from(columns) } else { 0 };
                Operand { dtype: DType::F32, order, leading: u64::from(leading), batch_stride, alignment }
            };
            let (a, b) = (operand(order.starts_with('t'), m, k), operand(order.ends_with('t'), k, n));
            let (c, epilogue) = (operand(false, m, n), EpilogueDesc::default());
            let problem = Problem { m, n, k, batch, a, b, c, precision: Precision::F32, epilogue };
            let mut best = Best::default();
            candidates(&problem, &DeviceCapabilities::H100, &mut best);
            let Candidate { config, estimate_us, .. } = best.best.unwrap();
            assert_eq!(config.kernel, kernel, "{problem}: {config}");
            let is_near = is_foreseen(estimate_us, us, &GEMM_TIME_F32);
            assert!(is_near, "{problem} by {config}: {estimate_us}, took {us}");
        }
    }
}
