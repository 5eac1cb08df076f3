//! The kernel that takes every problem.

use gemm::any::{self as kernel, Layout, Type};

use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::stream::Stream;
use crate::tensor::DType;

use super::config::{Config, Kernel, Offer};
use super::matrix::Shape;
use super::problem::Problem;
use super::repack::MAX_BATCH_BLOCKS;
use super::run::{Family, Operands};
use super::select::{Facts, Sink};

/// Floating-point operations a microsecond of one multiprocessor: not tuned, and not meant to win.
const FLOPS_PER_US: f64 = 30e3;

/// A launch, and a block's first tiles: above the other kernels', which win what all can do.
const START_US: f64 = 6.0;

pub(super) const FAMILY: Family = Family { offers, has: |kernel| kernel == Kernel::Any, launch: launch_any };

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

fn offers(problem: &Problem, facts: &Facts, sink: &mut dyn Sink) {
    let blocks = kernel::tiles(problem.m, problem.n) * u64::from(problem.batch);
    let waves = blocks.div_ceil(u64::from(facts.sm_count.max(1))) as f64;
    let flops = 2.0 * f64::from(kernel::TILE) * f64::from(kernel::TILE) * f64::from(problem.k.max(1));
    sink.offer(Offer {
        config: Config::new(Kernel::Any, [kernel::TILE, kernel::TILE, kernel::DEPTH], 1),
        estimate_us: START_US + waves * flops / FLOPS_PER_US,
        why: "takes every type, stride and epilogue, by plain f32 multiply-adds",
    });
}

fn launch_any(stream: &Stream, problem: &Problem, _: &Config, operands: Operands<'_>) -> Result<()> {
    let arguments = kernel_problem(problem, &operands);
    let Operands { a, b, c, bias, residual, scale_a, scale_b, scale_c, amax, .. } = operands;
    // More blocks than a grid holds become an error of the launch.
    let blocks = u32::try_from(kernel::tiles(problem.m, problem.n)).unwrap_or(u32::MAX);
    let config = LaunchConfig::new([blocks, 1, problem.batch.min(MAX_BATCH_BLOCKS)], [kernel::THREADS, 1, 1]);
    let (bias, residual) = (bias.map(|bias| bias.data), residual.map(|residual| residual.data));
    let amax = amax.map(|amax| amax.bytes().cast::<u32>());
    let arguments = (arguments, a.data, b.data, scale_a, scale_b, scale_c, bias, residual, amax, c.data);
    // SAFETY: the shapes have been checked against the data and each other; C is exclusively borrowed and does not overlap itself; for SwiGLU
    // n is even; grid and block are what the kernel asks for.
    unsafe { launch::<kernel::gemm_any>(stream, config, arguments) }
}

/// The problem as kernels take it that take every stride and epilogue.
pub(super) fn kernel_problem(problem: &Problem, operands: &Operands<'_>) -> kernel::Problem {
    let Operands { a, b, c, alpha, beta, activation, bias, residual, .. } = operands;
    kernel::Problem {
        m: problem.m,
        n: problem.n,
        k: problem.k,
        batch: problem.batch,
        alpha: *alpha,
        beta: *beta,
        activation: *activation as u32,
        bias: code(bias.as_ref().map_or(DType::F32, |bias| bias.dtype)),
        a: layout(a.dtype, a.shape),
        b: layout(b.dtype, b.shape),
        c: layout(c.dtype, c.shape),
        residual: residual
            .map_or(layout(c.dtype, c.shape), |residual| layout(residual.dtype, residual.shape)),
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
