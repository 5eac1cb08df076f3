//! The kernel that takes every problem.

use gemm::any::{self as kernel, StridedGemm};
use gemm::element::{Layout, Type};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::DType;

use super::backend::Backend;
use super::config::{Candidate, Config, Kernel};
use super::matmul::Matmul;
use super::matrix::Shape;
use super::problem::Problem;
use super::repack::MAX_BATCH_BLOCKS;

use super::select::{CandidateSink, DeviceCapabilities};

/// Floating-point operations a microsecond of one multiprocessor: not tuned, and not meant to win.
const FLOPS_PER_US: f64 = 30e3;

/// A launch, and a block's first tiles: above the other kernels', which win what all can do.
const START_US: f64 = 6.0;

pub(super) const BACKEND: Backend =
    Backend { candidates, has: |kernel| kernel == Kernel::Any, launch: launch_any };

/// The kernel's name of an element type.
pub(super) const fn device_type(dtype: DType) -> Option<Type> {
    match dtype {
        DType::F32 => Some(Type::F32),
        DType::F16 => Some(Type::F16),
        DType::BF16 => Some(Type::Bf16),
        DType::F8E4M3 => Some(Type::E4m3),
        DType::F8E5M2 => Some(Type::E5m2),
        _ => None,
    }
}

fn candidates(problem: &Problem, device: &DeviceCapabilities, sink: &mut dyn CandidateSink) {
    let blocks = kernel::tiles(problem.m, problem.n) * u64::from(problem.batch);
    let waves = blocks.div_ceil(u64::from(device.sm_count.max(1))) as f64;
    let flops = 2.0 * f64::from(kernel::TILE) * f64::from(kernel::TILE) * f64::from(problem.k.max(1));
    sink.add(Candidate {
        config: Config::new(Kernel::Any, [kernel::TILE, kernel::TILE, kernel::DEPTH], 1),
        estimate_us: START_US + waves * flops / FLOPS_PER_US,
        why: "takes every type, stride and epilogue, by plain f32 multiply-adds",
    });
}

fn launch_any(stream: &Stream, problem: &Problem, _: &Config, product: Matmul<'_>) -> Result<()> {
    let gemm = strided_gemm(problem, &product);
    let Matmul { a, b, c, epilogue, .. } = product;
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(kernel::tiles(problem.m, problem.n)).unwrap_or(u32::MAX);
    let config = LaunchConfig::new([blocks, 1, problem.batch.min(MAX_BATCH_BLOCKS)], [kernel::THREADS, 1, 1]);
    let arguments = (gemm, epilogue.args(false), a.data, b.data, c.data);
    // SAFETY: the shapes have been checked against the data and each other; C is exclusively borrowed and
    // does not overlap itself; for SwiGLU n is even; grid and block are what the kernel asks for.
    unsafe { launch::<kernel::gemm_any>(stream, config, arguments) }
}

/// The product as kernels take it that take every stride.
pub(super) fn strided_gemm(problem: &Problem, product: &Matmul<'_>) -> StridedGemm {
    let Matmul { a, b, c, .. } = product;
    StridedGemm {
        m: problem.m,
        n: problem.n,
        k: problem.k,
        batch: problem.batch,
        a: layout(a.dtype, a.shape),
        b: layout(b.dtype, b.shape),
        c: layout(c.dtype, c.shape),
    }
}

/// The types have been checked.
pub(super) fn code(dtype: DType) -> u32 {
    device_type(dtype).unwrap_or(Type::F32) as u32
}

pub(super) fn layout(dtype: DType, shape: Shape) -> Layout {
    let Shape { row, column, matrix, .. } = shape;
    Layout { ty: code(dtype), row: row as u64, column: column as u64, batch: matrix as u64 }
}
