//! The product with its operands: what the caller builds, checked before anything is queued.

use crate::error::Result;
use crate::stream::Stream;

use super::backend;
use super::config::{Choice, Config};
use super::epilogue::{Epilogue, Results};
use super::matrix::{Matrix, MatrixMut};
use super::problem::{Precision, Problem};
use super::select;

/// `C = epilogue(A B)`: operands, and the inputs of the epilogue. Built up, then [`Matmul::run`].
///
/// ```text
/// v = alpha * scale_a * scale_b * sum + beta * C + bias[column]
/// C = scale_c * (activation(v) + residual), rounded to C's type
/// C = v * activation'(pre)                                        with `gradient`
/// ```
/// Further results: v ([`Matmul::pre_activation`]), the sums of C's columns ([`Matmul::bias_gradient`]), the
/// largest magnitude ([`Matmul::amax`]).
#[derive(Debug)]
#[must_use = "a product is computed by `run`"]
pub struct Matmul<'a> {
    pub(super) a: Matrix<'a>,
    pub(super) b: Matrix<'a>,
    pub(super) c: MatrixMut<'a>,
    pub(super) precision: Precision,
    pub(super) epilogue: Epilogue<'a>,
}

impl<'a> Matmul<'a> {
    /// `C = A B` for `a: [m, k]`, `b: [k, n]`, `c: [m, n]`, any sizes, 0 too, and any types. Sums are f32.
    pub fn new(a: Matrix<'a>, b: Matrix<'a>, c: MatrixMut<'a>) -> Self {
        let (a, b, c) = (a.bounded(), b.bounded(), c.bounded());
        Matmul { a, b, c, precision: Precision::F32, epilogue: Epilogue::NONE }
    }

    /// How f32 operands are multiplied.
    pub fn precision(self, precision: Precision) -> Self {
        Matmul { precision, ..self }
    }

    /// The problem in plain numbers, as it is solved: a batch of which every product takes the same B is one
    /// product of more rows, where those of A, C and the residual lie so.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) when an operand does not have the elements that its shape
    /// says, [`Error::InvalidArgument`](crate::Error::InvalidArgument) when shapes do not fit together, C
    /// overlaps itself, an element type is not one of the five, or a side is too long.
    pub fn problem(&self) -> Result<Problem> {
        self.check(self.c.shape.batch, 1)?;
        self.describe(&self.folding().unwrap_or(self.shapes()))
    }

    /// Queues the product on `stream`, by the kernel that [`select`](select::select) chooses.
    ///
    /// # Errors
    /// As [`Matmul::problem`], [`Error::DeviceMismatch`](crate::Error::DeviceMismatch),
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) (copies of operands),
    /// [`Error::Environment`](crate::Error::Environment), or the driver's error.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.checked(stream)?;
        let config = select::best(&problem, stream.device())?;
        backend::run(stream, self.folded(), &problem, &config)
    }

    /// Queues the product by a configuration of [`candidates`](select::candidates).
    ///
    /// # Errors
    /// As [`Matmul::run`], and [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a configuration
    /// that cannot do the problem on this device.
    pub fn run_with(self, stream: &Stream, config: &Config) -> Result<()> {
        let problem = self.checked(stream)?;
        select::check(&problem, stream.device(), config)?;
        backend::run(stream, self.folded(), &problem, config)
    }

    /// The choice that [`Matmul::run`] would make on the stream's device, and why.
    ///
    /// # Errors
    /// As [`Matmul::problem`] and [`Error::DeviceMismatch`](crate::Error::DeviceMismatch).
    pub fn explain(self, stream: &Stream) -> Result<Choice> {
        select::select(&self.checked(stream)?, stream.device())
    }

    /// [`Matmul::problem`], with all operands on the stream's device.
    pub(super) fn checked(&self, stream: &Stream) -> Result<Problem> {
        let problem = self.problem()?;
        self.check_devices(stream)?;
        Ok(problem)
    }

    /// The same product with results elsewhere.
    pub(super) fn with_results<'s>(&'s self, c: MatrixMut<'s>, others: Results<'s>) -> Matmul<'s> {
        Matmul { c, epilogue: self.epilogue.with_results(others), ..*self }
    }
}
