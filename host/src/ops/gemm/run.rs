//! Runs a product by a configuration: repacks what has to be, then the family's kernel.

use gemm::epilogue::Activation;

use crate::error::Result;
use crate::memory::{DeviceView, DeviceViewMut};
use crate::stream::Stream;

use super::config::{Config, Kernel};
use super::matmul::{Matmul, Vector, invalid};
use super::matrix::{Matrix, MatrixMut};
use super::problem::Problem;
use super::repack::{self, Packed};
use super::select::{Facts, Sink};
use super::{any, f32, mma, skinny, sm90};

/// A set of kernels that are chosen and launched alike.
pub(super) struct Family {
    /// Tells what it can and cannot do.
    pub offers: fn(&Problem, &Facts, &mut dyn Sink),
    /// Is this one of its kernels?
    pub has: fn(Kernel) -> bool,
    /// Queues the product of the operands by a configuration that it has offered for the problem. Operands to be repacked have been.
    pub launch: fn(&Stream, &Problem, &Config, Operands<'_>) -> Result<()>,
}

/// In the order in which equal offers win.
pub(super) static FAMILIES: &[Family] =
    &[sm90::FAMILY, skinny::FAMILY, f32::FAMILY, mma::FAMILY, any::FAMILY];

/// What a kernel reads and writes.
pub(super) struct Operands<'a> {
    pub a: Matrix<'a>,
    pub b: Matrix<'a>,
    pub c: MatrixMut<'a>,
    pub alpha: f32,
    pub beta: f32,
    pub activation: Activation,
    pub bias: Option<Vector<'a>>,
    pub residual: Option<Matrix<'a>>,
    pub scale_a: Option<DeviceView<'a, f32>>,
    pub scale_b: Option<DeviceView<'a, f32>>,
    pub scale_c: Option<DeviceView<'a, f32>>,
    pub amax: Option<DeviceViewMut<'a, f32>>,
}

/// Queues the product. `config` has been offered for `problem`, which is the operands'.
pub(super) fn run(stream: &Stream, product: Matmul<'_>, problem: &Problem, config: &Config) -> Result<()> {
    if problem.m == 0 || problem.n == 0 || problem.batch == 0 {
        return Ok(());
    }
    let Matmul { a, b, c, alpha, beta, activation, bias, residual, scale_a, scale_b, scale_c, amax, .. } =
        product;
    let [to_a, to_b] = config.repack;
    let (scratch_a, scratch_b) = (repack::repack(stream, a, to_a)?, repack::repack(stream, b, to_b)?);
    let a = scratch_a.as_ref().map_or(a, Packed::matrix);
    let b = scratch_b.as_ref().map_or(b, Packed::matrix);
    let operands =
        Operands { a, b, c, alpha, beta, activation, bias, residual, scale_a, scale_b, scale_c, amax };
    let family = FAMILIES.iter().find(|family| (family.has)(config.kernel)).ok_or_else(|| {
        let wanted = "a kernel of one of the families".to_owned();
        invalid("the configuration", config.to_string(), wanted, "take one of `candidates`")
    })?;
    (family.launch)(stream, problem, config, operands)
}
