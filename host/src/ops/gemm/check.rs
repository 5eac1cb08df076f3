//! Checks of a product's operands, and the problem that they make in plain numbers.

use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::tensor::DType;

use super::OPERATION;
use super::epilogue::Epilogue;
use super::matmul::Matmul;
use super::matrix::{Matrix, MatrixMut, Shape};
use super::problem::{EpilogueDesc, MAX_SIDE, Problem, side};

/// How the matrices of a product lie.
#[derive(Clone, Copy)]
pub(super) struct Shapes {
    a: Shape,
    b: Shape,
    c: Shape,
    residual: Option<Shape>,
}

impl<'a> Matmul<'a> {
    /// The problem, with so many matrices of B, and the bias and the scales of so many groups.
    pub(super) fn problem_of(&self, of_b: usize, groups: usize) -> Result<Problem> {
        self.check(of_b, groups)?;
        self.describe(&self.shapes())
    }

    /// The operands fit together, with so many matrices of B, and the bias and the scales of so many groups.
    pub(super) fn check(&self, of_b: usize, groups: usize) -> Result<()> {
        self.check_types()?;
        let (m, k) = self.a.sides();
        let n = self.b.shape.columns;
        let batch = self.c.shape.batch;
        expect_sides("B", &self.b, k, n, of_b)?;
        expect_sides("A", &self.a, m, k, batch)?;
        let c = Matrix { data: self.c.data.view(), dtype: self.c.dtype, shape: self.c.shape };
        self.epilogue.check(&c, m, n, groups)?;
        self.a.check("A")?;
        self.b.check("B")?;
        self.c.check("C")
    }

    /// The operands in plain numbers, with these shapes.
    pub(super) fn describe(&self, shapes: &Shapes) -> Result<Problem> {
        let Shapes { a, b, c, residual } = *shapes;
        let residual = self.epilogue.residual.zip(residual).map(|(old, shape)| Matrix { shape, ..old });
        Ok(Problem {
            m: side("m", a.rows)?,
            n: side("n", b.columns)?,
            k: side("k", a.columns)?,
            batch: side("the batch", c.batch)?,
            a: Matrix { shape: a, ..self.a }.operand(),
            b: Matrix { shape: b, ..self.b }.operand(),
            c: Matrix { data: self.c.data.view(), dtype: self.c.dtype, shape: c }.operand(),
            precision: self.precision,
            epilogue: EpilogueDesc {
                residual: residual.as_ref().map(Matrix::operand),
                ..self.epilogue.describe()
            },
        })
    }

    pub(super) fn shapes(&self) -> Shapes {
        let residual = self.epilogue.residual.map(|residual| residual.shape);
        Shapes { a: self.a.shape, b: self.b.shape, c: self.c.shape, residual }
    }

    /// The shapes of a batch of which every product takes the same B, as those of one product of more rows,
    /// where the rows of A, C and the residual lie so. The batch has been checked: operands of other lengths
    /// would fold too.
    pub(super) fn folding(&self) -> Option<Shapes> {
        let Shapes { a, b, c, residual } = self.shapes();
        if c.batch <= 1 || b.matrix != 0 {
            return None;
        }
        let residual = match residual {
            Some(residual) => Some(residual.folded()?),
            None => None,
        };
        let (a, c) = (a.folded()?, c.folded()?);
        (a.rows <= MAX_SIDE as usize).then_some(Shapes { a, b: Shape { batch: 1, ..b }, c, residual })
    }

    /// The product that [`Matmul::problem`] tells of, once that has checked it.
    pub(super) fn folded(self) -> Self {
        let Some(Shapes { a, b, c, residual }) = self.folding() else { return self };
        let residual = self.epilogue.residual.zip(residual).map(|(old, shape)| Matrix { shape, ..old });
        Matmul {
            a: Matrix { shape: a, ..self.a },
            b: Matrix { shape: b, ..self.b },
            c: MatrixMut { shape: c, ..self.c },
            epilogue: Epilogue { residual, ..self.epilogue },
            ..self
        }
    }

    /// All operands are on the stream's device.
    pub(super) fn check_devices(&self, stream: &Stream) -> Result<()> {
        stream.same_device("A", self.a.device())?;
        stream.same_device("B", self.b.device())?;
        stream.same_device("C", self.c.device())?;
        self.epilogue.check_devices(stream)
    }

    fn check_types(&self) -> Result<()> {
        let all = [("A", self.a.dtype), ("B", self.b.dtype), ("C", self.c.dtype)];
        all.into_iter()
            .chain(self.epilogue.dtypes())
            .try_for_each(|(argument, dtype)| check_type(argument, dtype))
    }
}

/// Products have operands of this type.
pub(super) fn check_type(argument: &'static str, dtype: DType) -> Result<()> {
    if super::device_type(dtype).is_some() {
        return Ok(());
    }
    let wanted = "f32, f16, bf16, f8_e4m3 or f8_e5m2".to_owned();
    Err(invalid(argument, format!("of {dtype}"), wanted, "convert it first"))
}

pub(super) fn expect_length(what: &'static str, expected: usize, got: usize) -> Result<()> {
    crate::memory::same_length(OPERATION, what, expected, got)
}

pub(super) fn expect_sides(
    argument: &'static str,
    matrix: &Matrix<'_>,
    rows: usize,
    columns: usize,
    batch: usize,
) -> Result<()> {
    if matrix.sides() == (rows, columns) && matrix.shape.batch == batch {
        return Ok(());
    }
    let (got_rows, got_columns) = matrix.sides();
    Err(invalid(
        argument,
        format!("[{}, {got_rows}, {got_columns}]", matrix.shape.batch),
        format!("[{batch}, {rows}, {columns}]"),
        "shapes are [batch, rows, columns]: A is [m, k], B is [k, n], C is [m, n]; `transposed` swaps rows and columns",
    ))
}

pub(super) fn invalid(argument: &'static str, got: String, wanted: String, hint: &'static str) -> Error {
    Error::InvalidArgument { operation: OPERATION, argument, got, wanted, hint }
}
