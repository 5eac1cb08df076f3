//! The tensor cores of every device: [`gemm::mma`].
//!
//! The kernels take operands of any strides. Those whose lines do not begin at 16-byte boundaries are read
//! element by element, or copied first, whichever is estimated to be faster.

use cuda_std::kernel::Kernel as KernelType;
use gemm::mma::{self as kernel, Tile};

use crate::error::Result;
use crate::launch::{LaunchArgs, LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::DType;

use super::any::strided_gemm;
use super::backend::Backend;
use super::config::{Candidate, Config, Kernel, Rejection, Repack};
use super::matmul::Matmul;
use super::matrix::ROW_ALIGNMENT;
use super::problem::{Operand, Order, Precision, Problem};
use super::repack::{self, MAX_BATCH_BLOCKS};
use super::select::{CandidateSink, DeviceCapabilities};

pub(super) const BACKEND: Backend = Backend {
    candidates,
    has: |kernel| matches!(kernel, Kernel::MmaLarge | Kernel::MmaSmall),
    launch: launch_mma,
};

/// Floating-point operations a microsecond of one multiprocessor with 16-bit elements, all its warps at work.
/// The figures are fitted to half of a hundred products, most of few rows or of odd ones, on an H100
/// (`benches/NOTES.md`).
const FLOPS_PER_US: f64 = 2.9e6;
/// The small tile moves twice the bytes for the same products.
const SMALL_TILE: f64 = 1.16;
/// How much slower the products are when an operand is read element by element, and how much of memory's rate
/// such reading has.
const BY_ELEMENTS: f64 = 1.95;
const BY_ELEMENTS_READ: f64 = 0.205;
/// How much of memory's rate other reading has.
const READ: f64 = 0.95;
/// How much slower products of 32-bit elements are, of which an instruction takes half as many.
const TF32: f64 = 2.0;
/// How much of that is left where a multiprocessor has half of its blocks or fewer: 16 x 9664 x 2904 with B
/// as `[k, n]`, 75 us by the small tile and 106 by the large one on an H100.
const TF32_ALONE: f64 = 0.7;
/// A launch, and the copies before the first multiplication.
const START_US: f64 = 3.5;
/// Elements of C that a multiprocessor stores in a microsecond. Short products wait for that: 200704 x 64 x
/// 64 took 61 us and 200704 x 256 x 64 208 us on an H100, 1577 x 12488 x 88 95 us on an H200.
const STORED_PER_US: f64 = 1.8e3;
/// Those of the last block, which has a multiprocessor to itself.
const LAST_STORED_PER_US: f64 = 1.24e3;
/// How much longer a store takes that is more than the product.
const EPILOGUE: f64 = 1.8;
/// Of two things that go on at a time, how much of the shorter one still shows.
const SHOWS: f64 = 0.48;

fn candidates(problem: &Problem, device: &DeviceCapabilities, sink: &mut dyn CandidateSink) {
    let reject = |sink: &mut dyn CandidateSink, why| sink.reject(Rejection { kernel: "gemm_mma", why });
    let Problem { a, b, precision, .. } = problem;
    match (a.dtype, b.dtype) {
        (DType::F32, DType::F32) if *precision == Precision::F32 => {
            return reject(sink, "reads f32 as tf32, which is not allowed");
        }
        (DType::F32, DType::F32) | (DType::F16, DType::F16) | (DType::BF16, DType::BF16) => {}
        _ => return reject(sink, "A and B are both f16, both bf16, or both f32"),
    }
    for tile in Tile::ALL {
        let direct = [Repack::No; 2];
        add(problem, device, sink, tile, direct, "tensor cores on operands as they lie");
        let aligned = [aligning(a), aligning(b)];
        if aligned != direct {
            add(problem, device, sink, tile, aligned, "tensor cores on aligned copies");
        }
    }
}

/// The copy that lets lines be read 16 bytes at a time, where they cannot.
fn aligning(operand: &Operand) -> Repack {
    match operand.order {
        Order::Rows | Order::Columns if u64::from(operand.alignment) >= ROW_ALIGNMENT => Repack::No,
        Order::Columns => Repack::Columns,
        Order::Rows | Order::Strided => Repack::Rows,
    }
}

fn add(
    problem: &Problem,
    device: &DeviceCapabilities,
    sink: &mut dyn CandidateSink,
    tile: Tile,
    repack: [Repack; 2],
    why: &'static str,
) {
    let Problem { m, n, k, batch, a, b, epilogue, .. } = problem;
    let bytes = a.dtype.size() as u32;
    let [height, width] = tile.sides();
    let flops = 2.0 * f64::from(height) * f64::from(width) * f64::from((*k).max(1));
    // A multiprocessor's blocks share its tensor cores.
    let blocks = tile.blocks(*m, *n) * u64::from(*batch);
    let waves = blocks.div_ceil(u64::from((device.sm_count * tile.resident()).max(1))) as f64;
    let is_alone = 2 * blocks <= u64::from(device.sm_count * tile.resident());
    let mut slower = match (a.dtype, is_alone) {
        (DType::F32, true) => TF32_ALONE * TF32,
        (DType::F32, false) => TF32,
        _ => 1.0,
    };
    if tile == Tile::Small {
        slower *= SMALL_TILE;
    }
    let copies = repack::estimate_both_us(repack, [a, b], [*m, *n, *k], *batch, device);
    let mut memory = 0.0;
    for (operand, to, sides) in [(a, repack[0], [*m, *k]), (b, repack[1], [*k, *n])] {
        let by_elements = to == Repack::No && aligning(operand) != Repack::No;
        if by_elements {
            slower *= BY_ELEMENTS;
        }
        let share = if by_elements { BY_ELEMENTS_READ } else { READ };
        let elements = f64::from(sides[0]) * f64::from(sides[1]) * f64::from(*batch);
        memory += elements * f64::from(bytes) / (share * device.memory_rate);
    }
    let on_each = waves * f64::from(tile.resident());
    let busy = on_each * flops / FLOPS_PER_US * slower;
    let followed = (blocks.div_ceil(u64::from(device.sm_count.max(1))) as f64 - 1.0).max(0.0);
    let ways = if epilogue.is_plain() { 1.0 } else { EPILOGUE };
    let elements = f64::from(height.min(*m)) * f64::from(width.min(*n));
    let stores = ways * elements * (followed / STORED_PER_US + 1.0 / LAST_STORED_PER_US);
    let estimate_us = START_US + copies + beside(beside(busy, stores), memory);
    let kernel = if tile == Tile::Large { Kernel::MmaLarge } else { Kernel::MmaSmall };
    let shape = [height, width, tile.depth(bytes)];
    let config = Config { repack, ..Config::new(kernel, shape, tile.stages()) };
    sink.add(Candidate { config, estimate_us, why });
}

/// Time of two things that go on at once, microseconds.
fn beside(a: f64, b: f64) -> f64 {
    a.max(b) + SHOWS * a.min(b)
}

/// Parameters of all these kernels.
type Params = <kernel::gemm_mma_f16 as KernelType>::Params;

fn launch_mma(stream: &Stream, problem: &Problem, config: &Config, product: Matmul<'_>) -> Result<()> {
    let tile = if config.kernel == Kernel::MmaLarge { Tile::Large } else { Tile::Small };
    let gemm = strided_gemm(problem, &product);
    let Matmul { a, b, c, epilogue, .. } = product;
    let dtype = a.dtype;
    let arguments = (gemm, epilogue.args(false), a.data, b.data, c.data);
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(tile.blocks(problem.m, problem.n)).unwrap_or(u32::MAX);
    let grid = [blocks, 1, problem.batch.min(MAX_BATCH_BLOCKS)];
    let config = LaunchConfig::new(grid, [tile.threads(), 1, 1])
        .with_shared(tile.shared_bytes())
        .overlapping_previous();
    // SAFETY: the shapes have been checked against the data and each other; C is exclusively borrowed and
    // does not overlap itself; for SwiGLU n is even; grid, block and shared memory are what the kernels ask
    // for, and A and B of the types that their names say. The kernels wait for earlier launches before they
    // touch memory.
    unsafe {
        match (dtype, tile) {
            (DType::F16, Tile::Large) => by::<kernel::gemm_mma_f16>(stream, config, arguments),
            (DType::F16, Tile::Small) => by::<kernel::gemm_mma_f16_small>(stream, config, arguments),
            (DType::BF16, Tile::Large) => by::<kernel::gemm_mma_bf16>(stream, config, arguments),
            (DType::BF16, Tile::Small) => by::<kernel::gemm_mma_bf16_small>(stream, config, arguments),
            (_, Tile::Large) => by::<kernel::gemm_mma_tf32>(stream, config, arguments),
            (_, Tile::Small) => by::<kernel::gemm_mma_tf32_small>(stream, config, arguments),
        }
    }
}

/// # Safety
/// As the kernels.
unsafe fn by<K: KernelType<Params = Params>>(
    stream: &Stream,
    config: LaunchConfig,
    arguments: impl LaunchArgs<Params>,
) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { launch::<K>(stream, config, arguments) }
}

#[cfg(test)]
mod tests {
    use super::{BACKEND, Candidate, DeviceCapabilities, Kernel, Operand, Order};
    use crate::ops::gemm::EpilogueDesc;
    use crate::ops::gemm::problem::{Precision, Problem};
    use crate::ops::gemm::select::All;
    use crate::tensor::DType;
    use testkit::compare::is_foreseen;
    use testkit::tolerance::GEMM_TIME;

    /// The first two on an H100, the others on an H200, whose A is read element by element: microseconds.
    /// Without their stores they were estimated at 12, 29, 31 and 38.
    #[test]
    fn short_products_take_as_long_as_their_stores() {
        type Measured = ((u32, u32, u32), Order, Kernel, f64);
        let measured: [Measured; 4] = [
            ((200_704, 64, 64), Order::Rows, Kernel::MmaSmall, 61.0),
            ((200_704, 256, 64), Order::Rows, Kernel::MmaLarge, 208.0),
            ((1577, 12_488, 88), Order::Columns, Kernel::MmaLarge, 94.9),
            ((1577, 12_488, 88), Order::Columns, Kernel::MmaSmall, 96.6),
        ];
        for ((m, n, k), order, kernel, us) in measured {
            let operand = |order, leading: u32| {
                let alignment = if leading.is_multiple_of(8) { 16 } else { 2 };
                let leading = u64::from(leading);
                Operand { dtype: DType::BF16, order, leading, batch_stride: 0, alignment }
            };
            let a = operand(order, if order == Order::Rows { k } else { m });
            let (b, c) = (operand(Order::Columns, k), operand(Order::Rows, n));
            let (precision, epilogue) = (Precision::F32, EpilogueDesc::default());
            let problem = Problem { m, n, k, batch: 1, a, b, c, precision, epilogue };
            let device = DeviceCapabilities::H100;
            let mut all = All::default();
            (BACKEND.candidates)(&problem, &device, &mut all);
            // As the operands lie.
            let Candidate { estimate_us, .. } =
                all.candidates.iter().find(|one| one.config.kernel == kernel).unwrap();
            assert!(
                is_foreseen(*estimate_us, us, &GEMM_TIME),
                "{m}x{n}x{k}: {estimate_us} us, measured {us}"
            );
        }
    }
}
