//! The families of kernels behind a product: each says what it can do, and queues it.

use crate::error::Result;
use crate::stream::Stream;

use super::check::invalid;
use super::config::{Band, Config, Kernel};
use super::matmul::Matmul;
use super::problem::Problem;
use super::repack::{self, Packed};
use super::select::{CandidateSink, DeviceCapabilities};
use super::{any, bands, direct, f32, mma, skinny, sm90};

/// A family of kernels that are chosen and launched alike.
pub(super) struct Backend {
    /// Tells what it can and cannot do.
    pub candidates: fn(&Problem, &DeviceCapabilities, &mut dyn CandidateSink),
    /// Is this one of its kernels?
    pub has: fn(Kernel) -> bool,
    /// Queues the product by a configuration that it has named for the problem. Operands to be repacked have
    /// been.
    pub launch: fn(&Stream, &Problem, &Config, Matmul<'_>) -> Result<()>,
}

/// In the order in which equal candidates win.
pub(super) static BACKENDS: &[Backend] =
    &[sm90::BACKEND, skinny::BACKEND, direct::BACKEND, f32::BACKEND, mma::BACKEND, any::BACKEND];

/// Queues the product. `config` is a candidate for `problem`, which is the product's.
pub(super) fn run(stream: &Stream, product: Matmul<'_>, problem: &Problem, config: &Config) -> Result<()> {
    if problem.m == 0 || problem.n == 0 || problem.batch == 0 {
        return Ok(());
    }
    if matches!(config.band, Band::Rows(_) | Band::Columns(_)) {
        return bands::run(stream, product, problem, config);
    }
    let (a, b) = (product.a, product.b);
    let [scratch_a, scratch_b] = repack::repack(stream, [a, b], config.repack)?;
    let a = scratch_a.as_ref().map_or(a, Packed::matrix);
    let b = scratch_b.as_ref().map_or(b, Packed::matrix);
    let backend = BACKENDS.iter().find(|backend| (backend.has)(config.kernel)).ok_or_else(|| {
        let wanted = "a kernel of one of the backends".to_owned();
        invalid("the configuration", config.to_string(), wanted, "take one of `candidates`")
    })?;
    (backend.launch)(stream, problem, config, Matmul { a, b, ..product })
}
