//! A product in two bands of C: the first one fills whole waves of a kernel's tiles, what is left is a
//! product of its own, by its own choice. Else a last wave of few tiles takes as long as a full one.
//!
//! ```text
//!   C, 40 x 20 tiles of 128 x 256       39 rows of tiles: 780, six waves of 132 multiprocessors
//!                                       the last row of tiles: 128 x 5120, by another kernel
//! ```
//! Or in blocks of a few waves each, all by one kernel, where k is long and C large. Within a launch
//! multiprocessors drift apart: they come to read different parts of k at a time, so that operands meet no
//! longer in L2. A launch waits for the one before, and they are together again.

use std::ops::Range;

use crate::error::Result;
use crate::stream::Stream;

use super::backend;
use super::config::{Band, Config, Kernel};
use super::epilogue::{Epilogue, Vector};
use super::matmul::Matmul;
use super::matrix::{Matrix, MatrixMut, Shape};
use super::problem::Problem;
use super::select;

/// The product of a band: its shape.
pub(super) fn of(problem: &Problem, band: Band) -> Problem {
    match band {
        Band::All | Band::Blocks(..) => *problem,
        Band::Rows(m) => Problem { m, ..*problem },
        Band::Columns(n) => Problem { n, ..*problem },
    }
}

/// The shape of what the band leaves.
pub(super) fn rest_of(problem: &Problem, band: Band) -> Problem {
    match band {
        Band::All | Band::Blocks(..) => Problem { m: 0, ..*problem },
        Band::Rows(m) => Problem { m: problem.m - m, ..*problem },
        Band::Columns(n) => Problem { n: problem.n - n, ..*problem },
    }
}

/// Queues the first band by `config`, then the rest.
pub(super) fn run(
    stream: &Stream,
    mut product: Matmul<'_>,
    problem: &Problem,
    config: &Config,
) -> Result<()> {
    let (m, n) = (problem.m as usize, problem.n as usize);
    let (first, rest) = match config.band {
        Band::All | Band::Blocks(..) => ((0..m, 0..n), (m..m, 0..n)),
        Band::Rows(rows) => ((0..rows as usize, 0..n), (rows as usize..m, 0..n)),
        Band::Columns(columns) => ((0..m, 0..columns as usize), (0..m, columns as usize..n)),
    };
    let alone = Config { band: Band::All, ..*config };
    backend::run(stream, product.part(first)?, &of(problem, config.band), &alone)?;
    let product = product.part(rest)?;
    let problem = product.describe(&product.shapes())?;
    let config = select::best(&problem, stream.device())?;
    backend::run(stream, product, &problem, &config)
}

/// Is the configuration for blocks of whole tiles, of a product that has such?
pub(super) fn has_blocks(problem: &Problem, config: &Config) -> bool {
    let Config { kernel, tile: [height, width, _], swap, split_k, band, .. } = *config;
    let Band::Blocks(rows, columns) = band else { return false };
    let is_whole = |side: u32, tile: u32| side > 0 && side.is_multiple_of(tile);
    can_be_in_blocks(problem)
        && matches!(kernel, Kernel::Sm90(_))
        && !swap
        && split_k == 1
        && is_whole(rows, height)
        && is_whole(columns, width)
}

/// One product, whose columns are not paired.
pub(super) fn can_be_cut(problem: &Problem) -> bool {
    problem.batch == 1 && can_be_in_blocks(problem)
}

/// Products whose columns are not paired.
pub(super) fn can_be_in_blocks(problem: &Problem) -> bool {
    problem.epilogue.activation.columns() == 1
}

/// Queues each block of so many rows and columns of C by `launch`, of one product after the other.
pub(super) fn each(
    mut product: Matmul<'_>,
    problem: &Problem,
    [rows, columns]: [u32; 2],
    mut launch: impl FnMut(&Problem, Matmul<'_>) -> Result<()>,
) -> Result<()> {
    for index in 0..problem.batch as usize {
        let mut product = product.of_batch(index)?;
        for first_row in (0..problem.m).step_by(rows.max(1) as usize) {
            for first_column in (0..problem.n).step_by(columns.max(1) as usize) {
                let (m, n) = (rows.min(problem.m - first_row), columns.min(problem.n - first_column));
                let (row, column) = (first_row as usize, first_column as usize);
                let block = product.part((row..row + m as usize, column..column + n as usize))?;
                launch(&Problem { m, n, batch: 1, ..*problem }, block)?;
            }
        }
    }
    Ok(())
}

/// A shape of one matrix of a batch, and where its first element lies.
fn matrix_of(shape: Shape, index: usize) -> (Shape, usize) {
    (Shape { batch: 1, matrix: 0, ..shape }, index * shape.matrix)
}

/// A shape of other sides, and where its first element lies, of one matrix.
fn part(shape: Shape, rows: &Range<usize>, columns: &Range<usize>) -> (Shape, usize) {
    let first = rows.start * shape.row + columns.start * shape.column;
    (Shape { rows: rows.len(), columns: columns.len(), dense: false, ..shape }, first)
}

impl<'a> Matrix<'a> {
    fn of_batch(self, index: usize) -> Result<Self> {
        let (shape, first) = matrix_of(self.shape, index);
        Ok(Matrix { data: self.data.slice(first * self.dtype.size()..)?, shape, ..self })
    }

    fn part(self, rows: &Range<usize>, columns: &Range<usize>) -> Result<Self> {
        let (shape, first) = part(self.shape, rows, columns);
        Ok(Matrix { data: self.data.slice(first * self.dtype.size()..)?, shape, ..self })
    }
}

impl MatrixMut<'_> {
    fn of_batch(&mut self, index: usize) -> Result<MatrixMut<'_>> {
        let (shape, first) = matrix_of(self.shape, index);
        let data = self.data.view_mut().slice_mut(first * self.dtype.size()..)?;
        Ok(MatrixMut { data, shape, dtype: self.dtype })
    }

    fn part(&mut self, rows: &Range<usize>, columns: &Range<usize>) -> Result<MatrixMut<'_>> {
        let (shape, first) = part(self.shape, rows, columns);
        let data = self.data.view_mut().slice_mut(first * self.dtype.size()..)?;
        Ok(MatrixMut { data, shape, dtype: self.dtype })
    }
}

impl Matmul<'_> {
    /// The product of this number in the batch.
    fn of_batch(&mut self, index: usize) -> Result<Matmul<'_>> {
        let Epilogue { residual, ref mut amax, .. } = self.epilogue;
        let residual = residual.map(|residual| residual.of_batch(index)).transpose()?;
        let amax = amax.as_mut().map(|amax| amax.view_mut());
        Ok(Matmul {
            a: self.a.of_batch(index)?,
            b: self.b.of_batch(index)?,
            c: self.c.of_batch(index)?,
            precision: self.precision,
            epilogue: Epilogue { residual, amax, ..self.epilogue },
        })
    }

    /// The product of these rows of A and columns of B, of one product without pairs of columns.
    fn part(&mut self, (rows, columns): (Range<usize>, Range<usize>)) -> Result<Matmul<'_>> {
        let k = 0..self.a.shape.columns;
        let Epilogue { bias, residual, ref mut amax, .. } = self.epilogue;
        let bias = match bias {
            Some(Vector { data, dtype }) => {
                let size = dtype.size();
                Some(Vector { data: data.slice(columns.start * size..columns.end * size)?, dtype })
            }
            None => None,
        };
        let residual = residual.map(|residual| residual.part(&rows, &columns)).transpose()?;
        let amax = amax.as_mut().map(|amax| amax.view_mut());
        Ok(Matmul {
            a: self.a.part(&rows, &k)?,
            b: self.b.part(&k, &columns)?,
            c: self.c.part(&rows, &columns)?,
            precision: self.precision,
            epilogue: Epilogue { bias, residual, amax, ..self.epilogue },
        })
    }
}
