//! A product in two bands of C: the first one fills whole waves of a kernel's tiles, what is left is a
//! product of its own, by its own choice. Else a last wave of few tiles takes as long as a full one.
//!
//! ```text
//!   C, 40 x 20 tiles of 128 x 256       39 rows of tiles: 780, six waves of 132 multiprocessors
//!                                       the last row of tiles: 128 x 5120, by another kernel
//! ```

use std::ops::Range;

use crate::error::Result;
use crate::stream::Stream;

use super::backend;
use super::config::{Band, Config};
use super::epilogue::{Epilogue, Vector};
use super::matmul::Matmul;
use super::matrix::{Matrix, MatrixMut, Shape};
use super::problem::Problem;
use super::select;

/// The product of a band: its shape.
pub(super) fn of(problem: &Problem, band: Band) -> Problem {
    match band {
        Band::All => *problem,
        Band::Rows(m) => Problem { m, ..*problem },
        Band::Columns(n) => Problem { n, ..*problem },
    }
}

/// The shape of what the band leaves.
pub(super) fn rest_of(problem: &Problem, band: Band) -> Problem {
    match band {
        Band::All => Problem { m: 0, ..*problem },
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
        Band::All => ((0..m, 0..n), (m..m, 0..n)),
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

/// A shape of other sides, and where its first element lies, of one matrix.
fn part(shape: Shape, rows: &Range<usize>, columns: &Range<usize>) -> (Shape, usize) {
    let first = rows.start * shape.row + columns.start * shape.column;
    (Shape { rows: rows.len(), columns: columns.len(), dense: false, ..shape }, first)
}

impl<'a> Matrix<'a> {
    fn part(self, rows: &Range<usize>, columns: &Range<usize>) -> Result<Self> {
        let (shape, first) = part(self.shape, rows, columns);
        Ok(Matrix { data: self.data.slice(first * self.dtype.size()..)?, shape, ..self })
    }
}

impl MatrixMut<'_> {
    fn part(&mut self, rows: &Range<usize>, columns: &Range<usize>) -> Result<MatrixMut<'_>> {
        let (shape, first) = part(self.shape, rows, columns);
        let data = self.data.view_mut().slice_mut(first * self.dtype.size()..)?;
        Ok(MatrixMut { data, shape, dtype: self.dtype })
    }
}

impl Matmul<'_> {
    /// The product of these rows of A and columns of B, of one product without pairs of columns.
    fn part(&mut self, (rows, columns): (Range<usize>, Range<usize>)) -> Result<Matmul<'_>> {
        let k = 0..self.a.shape.columns;
        let Epilogue { bias, residual, pre, ref mut amax, .. } = self.epilogue;
        let bias = match bias {
            Some(Vector { data, dtype }) => {
                let size = dtype.size();
                Some(Vector { data: data.slice(columns.start * size..columns.end * size)?, dtype })
            }
            None => None,
        };
        let residual = residual.map(|residual| residual.part(&rows, &columns)).transpose()?;
        let pre = pre.map(|pre| pre.part(&rows, &columns)).transpose()?;
        let amax = amax.as_mut().map(|amax| amax.view_mut());
        Ok(Matmul {
            a: self.a.part(&rows, &k)?,
            b: self.b.part(&k, &columns)?,
            c: self.c.part(&rows, &columns)?,
            precision: self.precision,
            epilogue: Epilogue { bias, residual, pre, amax, column_sums: None, ..self.epilogue },
        })
    }
}
