//! f32 without tensor cores: [`gemm::gemm_f32`].

use gemm::gemm_f32::{self as kernel, Tile};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::{DeviceView, DeviceViewMut};
use crate::stream::Stream;
use crate::tensor::DType;

use super::backend::Backend;
use super::config::{Candidate, Config, Kernel, Rejection, Repack};
use super::epilogue::Epilogue;
use super::matmul::Matmul;
use super::matrix::{Matrix, MatrixMut};
use super::problem::{EpilogueDesc, Operand, Order, Precision, Problem};
use super::repack;
use super::select::{CandidateSink, DeviceCapabilities};

pub(super) const BACKEND: Backend = Backend {
    candidates,
    has: |kernel| matches!(kernel, Kernel::F32Large | Kernel::F32Small),
    launch: launch_f32,
};

/// Bytes of an element.
const F32: usize = size_of::<f32>();
/// Floating-point operations a microsecond on an H200 of 132 multiprocessors, at 4096 cubed.
const LARGE_FLOPS_PER_US: f64 = 46.7e6;
const SMALL_FLOPS_PER_US: f64 = 33.8e6;
const MEASURED_SM_COUNT: f64 = 132.0;
/// Blocks side by side on a multiprocessor.
const RESIDENT: u32 = 4;
/// How many blocks take as long as one that has a multiprocessor to itself: 144 x 152 x 680 by 15 small
/// blocks, and 8 x 11960 x 96 by 94 large ones, took 18 and 5 us on an H100.
const ALONE: f64 = 1.65;
/// How much slower the other tile is taken to be.
const OTHER_TILE: f64 = 1.5;
/// A launch, and the copy of a tile before the first multiplication.
const START_US: f64 = 4.0;

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

/// Queues `C = alpha A B + beta C` for `a: [m, k]`, `b: [k, n]`, `c: [m, n]` in f32, without tensor cores:
/// every element is one chain of fused multiply-adds in the order of `k`. Any sizes, 0 too: with `k` 0, `C`
/// is scaled by `beta`. Short for a [`Matmul`] of dense matrices.
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
    let Problem { m, n, k, batch, a, b, c, .. } = *problem;
    let reject = |sink: &mut dyn CandidateSink, why| sink.reject(Rejection { kernel: "gemm_f32", why });
    if [a.dtype, b.dtype, c.dtype] != [DType::F32; 3] {
        return reject(sink, "every operand is f32");
    }
    if problem.precision != Precision::F32 {
        return reject(sink, "multiplies the whole f32, and tf32 is allowed");
    }
    if batch != 1 {
        return reject(sink, "takes no batches");
    }
    let EpilogueDesc { factor, source, .. } = problem.epilogue;
    if problem.epilogue != (EpilogueDesc { factor, source, ..EpilogueDesc::default() }) {
        return reject(sink, "its epilogue is alpha and beta");
    }
    let (Some(to_a), Some(to_b)) = (dense(&a, m, k), dense(&b, k, n)) else {
        return reject(sink, "wants dense rows; copies have such only for multiples of 4 columns");
    };
    if !is_dense(&c, m, n) {
        return reject(sink, "wants C in dense rows");
    }
    let copies =
        repack::estimate_us(to_a, &a, [m, k], 1, device) + repack::estimate_us(to_b, &b, [k, n], 1, device);
    let chosen = Tile::choose(m, n, device.sm_count);
    let estimate_us = START_US + copies + busy_us(chosen, m, n, k, device.sm_count);
    for (tile, kernel) in [(Tile::Large, Kernel::F32Large), (Tile::Small, Kernel::F32Small)] {
        let config = Config { repack: [to_a, to_b], ..Config::new(kernel, tile.shape(), tile.stages()) };
        let candidate = if tile == chosen {
            let why =
                "the faster tile where measured: the large one from half of the multiprocessors occupied";
            Candidate { config, estimate_us, why }
        } else {
            let why = "the other tile; how much slower has not been measured for each shape";
            Candidate { config, estimate_us: OTHER_TILE * estimate_us, why }
        };
        sink.add(candidate);
    }
}

/// Is the product one that [`gemm_f32`] can ask for, with its promise of one chain of multiply-adds?
pub(super) fn is_promised(problem: &Problem) -> bool {
    let Problem { m, n, k, batch, a, b, c, precision, epilogue } = *problem;
    let EpilogueDesc { factor, source, .. } = epilogue;
    [a.dtype, b.dtype, c.dtype] == [DType::F32; 3]
        && precision == Precision::F32
        && batch == 1
        && epilogue == (EpilogueDesc { factor, source, ..EpilogueDesc::default() })
        && is_dense(&a, m, k)
        && is_dense(&b, k, n)
        && is_dense(&c, m, n)
}

/// Time of the multiplications: whole waves of blocks, then those of the last one.
fn busy_us(tile: Tile, m: u32, n: u32, k: u32, sm_count: u32) -> f64 {
    let rate = match tile {
        Tile::Large => LARGE_FLOPS_PER_US,
        Tile::Small => SMALL_FLOPS_PER_US,
    };
    let [rows, columns, _] = tile.shape();
    let flops = 2.0 * f64::from(rows) * f64::from(columns) * f64::from(k);
    let (sm_count, blocks) = (u64::from(sm_count.max(1)), tile.blocks(m, n));
    let wave = sm_count * u64::from(RESIDENT);
    let last = (blocks % wave).div_ceil(sm_count) as f64;
    let last = if last > 0.0 { last.max(ALONE) } else { 0.0 };
    let on_each = (blocks / wave * u64::from(RESIDENT)) as f64 + last;
    on_each * flops * MEASURED_SM_COUNT / rate
}

/// Are the elements in one piece, row behind row?
fn is_dense(operand: &Operand, rows: u32, columns: u32) -> bool {
    let follows = operand.leading == u64::from(columns) || rows <= 1;
    (operand.order == Order::Rows && follows) || columns == 0
}

/// The copy that gives the operand dense rows, if one can.
fn dense(operand: &Operand, rows: u32, columns: u32) -> Option<Repack> {
    if is_dense(operand, rows, columns) {
        return Some(Repack::No);
    }
    repack::can_be_dense(columns as usize, F32).then_some(Repack::DenseRows)
}

fn launch_f32(stream: &Stream, problem: &Problem, config: &Config, product: Matmul<'_>) -> Result<()> {
    let Matmul { a, b, c, epilogue: Epilogue { alpha, beta, .. }, .. } = product;
    let Problem { m, n, k, .. } = *problem;
    let tile = if config.kernel == Kernel::F32Large { Tile::Large } else { Tile::Small };
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(tile.blocks(m, n)).unwrap_or(u32::MAX);
    let launch_config = LaunchConfig::new([blocks, 1, 1], [tile.threads(), 1, 1]);
    let (a, b) = (a.data.cast::<f32>(), b.data.cast::<f32>());
    let arguments = (m, n, k, alpha, a, b, beta, c.data.cast::<f32>());
    // SAFETY: all three are dense and row-major, by `candidates` or as copies, with lengths that have been
    // checked; C is exclusively borrowed; grid and block are what the kernel asks for.
    unsafe {
        match tile {
            Tile::Large => launch::<kernel::gemm_f32>(stream, launch_config, arguments),
            Tile::Small => launch::<kernel::gemm_f32_small>(stream, launch_config, arguments),
        }
    }
}
