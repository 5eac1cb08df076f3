//! The sums of C's columns, where they are wanted: the gradient of a bias.
//!
//! Hopper's kernels leave the sums over a few rows each, from their registers; others leave C, which is read
//! again. A reduction of columns adds up either.

use ::gemm::epilogue::SUMMED_ROWS;
use ::gemm::sm90::instances::TABLE;

use crate::error::Result;
use crate::memory::{DeviceBuffer, DeviceViewMut};
use crate::ops::reduce::column_sums;
use crate::stream::Stream;
use crate::tensor::DType;

use super::backend;
use super::config::{Candidate, Config, Kernel, Rejection};
use super::epilogue::Epilogue;
use super::matmul::Matmul;
use super::matrix::MatrixMut;
use super::problem::{EpilogueDesc, Problem};
use super::select::CandidateSink;

/// Bytes of C that a microsecond reads again, and the launches.
const BYTES_PER_US: f64 = 4e6;
const START_US: f64 = 3.0;

/// Does the kernel leave sums? Not where parts of k are still to be added, nor of a transpose.
pub(super) fn leaves(config: &Config) -> bool {
    let trains =
        |index: u8| TABLE.get(usize::from(index)).is_some_and(|entry| entry.trains && !entry.transposed);
    config.split_k == 1 && !config.swap && matches!(config.kernel, Kernel::Sm90(index) if trains(index))
}

/// Rows of sums that a kernel leaves.
fn rows(problem: &Problem) -> usize {
    problem.batch as usize * problem.m.div_ceil(SUMMED_ROWS) as usize
}

/// Adds the time of the sums, where they are wanted, to that of the product.
pub(super) struct Costed<'a> {
    pub problem: &'a Problem,
    pub sink: &'a mut dyn CandidateSink,
}

impl CandidateSink for Costed<'_> {
    fn add(&mut self, candidate: Candidate) {
        let sums = if self.problem.epilogue.column_sums {
            estimate_us(self.problem, &candidate.config)
        } else {
            0.0
        };
        self.sink.add(Candidate { estimate_us: candidate.estimate_us + sums, ..candidate });
    }

    fn reject(&mut self, rejection: Rejection) {
        self.sink.reject(rejection);
    }
}

/// How long the reduction takes.
fn estimate_us(problem: &Problem, config: &Config) -> f64 {
    let Problem { m, n, batch, c, .. } = problem;
    let bytes = if leaves(config) {
        rows(problem) as f64 * f64::from(*n) * DType::F32.size() as f64
    } else {
        f64::from(*batch) * f64::from(*m) * f64::from(*n) * c.dtype.size() as f64
    };
    START_US + bytes / BYTES_PER_US
}

/// Queues the product, whose epilogue no longer has the sums, and then those of its columns.
pub(super) fn run(
    stream: &Stream,
    product: Matmul<'_>,
    problem: &Problem,
    config: &Config,
    mut sums: DeviceViewMut<'_, f32>,
) -> Result<()> {
    let Problem { m, n, batch, .. } = *problem;
    if m == 0 || n == 0 || batch == 0 {
        return if n == 0 { Ok(()) } else { sums.fill_zero(stream) };
    }
    let Matmul { a, b, mut c, precision, epilogue } = product;
    if !leaves(config) {
        let alone = Problem { epilogue: EpilogueDesc { column_sums: false, ..problem.epilogue }, ..*problem };
        let of_c = MatrixMut { data: c.data.view_mut(), dtype: c.dtype, shape: c.shape };
        backend::run(stream, Matmul { a, b, c: of_c, precision, epilogue }, &alone, config)?;
        let sides = [m as usize * batch as usize, n as usize];
        return column_sums(stream, (c.data.view(), c.dtype), sides, sums.into_view().within());
    }
    let rows = rows(problem);
    // SAFETY: the kernel writes every element.
    let partial = unsafe { DeviceBuffer::<f32>::uninit(stream, rows.saturating_mul(n as usize))? };
    let epilogue = Epilogue { partial_sums: Some(partial.view()), ..epilogue };
    backend::run(stream, Matmul { a, b, c, precision, epilogue }, problem, config)?;
    column_sums(stream, (partial.view().bytes(), DType::F32), [rows, n as usize], sums.into_view().within())
}
