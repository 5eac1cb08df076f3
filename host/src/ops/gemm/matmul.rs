//! The product with its operands: what the caller builds, checked before anything is queued.

use bytemuck::Pod;
use gemm::epilogue::Activation;

use crate::error::{Error, Result};
use crate::memory::{DeviceView, DeviceViewMut};
use crate::stream::Stream;
use crate::tensor::{DType, Element};

use super::OPERATION;
use super::config::{Choice, Config};
use super::matrix::{Matrix, MatrixMut, Shape};
use super::problem::{Finish, MAX_SIDE, Precision, Problem, side};
use super::{run, select};

/// A vector on the device, of any element type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vector<'a> {
    pub data: DeviceView<'a, u8>,
    pub dtype: DType,
}

/// How the matrices of a product lie.
struct Shapes {
    a: Shape,
    b: Shape,
    c: Shape,
    residual: Option<Shape>,
}

/// `C = epilogue(A B)`: operands and what becomes of the sums. Built up, then [`Matmul::run`].
///
/// ```text
/// v = alpha * scale_a * scale_b * sum + beta * old C + bias[column]
/// C = scale_c * (activation(v) + residual), rounded to C's type
/// ```
#[derive(Debug)]
#[must_use = "a product is computed by `run`"]
pub struct Matmul<'a> {
    pub(super) a: Matrix<'a>,
    pub(super) b: Matrix<'a>,
    pub(super) c: MatrixMut<'a>,
    pub(super) alpha: f32,
    pub(super) beta: f32,
    pub(super) precision: Precision,
    pub(super) activation: Activation,
    pub(super) bias: Option<Vector<'a>>,
    pub(super) residual: Option<Matrix<'a>>,
    pub(super) scale_a: Option<DeviceView<'a, f32>>,
    pub(super) scale_b: Option<DeviceView<'a, f32>>,
    pub(super) scale_c: Option<DeviceView<'a, f32>>,
    pub(super) amax: Option<DeviceViewMut<'a, f32>>,
}

impl<'a> Matmul<'a> {
    /// `C = A B` for `a: [m, k]`, `b: [k, n]` and `c: [m, n]`, of any sizes, 0 too, and any element types. Sums are f32.
    pub fn new(a: Matrix<'a>, b: Matrix<'a>, c: MatrixMut<'a>) -> Self {
        Matmul {
            a,
            b,
            c,
            alpha: 1.0,
            beta: 0.0,
            precision: Precision::F32,
            activation: Activation::None,
            bias: None,
            residual: None,
            scale_a: None,
            scale_b: None,
            scale_c: None,
            amax: None,
        }
    }

    /// A factor of the product; 1 unless given.
    pub fn alpha(self, alpha: f32) -> Self {
        Matmul { alpha, ..self }
    }

    /// A factor of the old C, which is added; with 0, as unless given, C is not read and may hold anything.
    pub fn beta(self, beta: f32) -> Self {
        Matmul { beta, ..self }
    }

    /// How f32 operands are multiplied.
    pub fn precision(self, precision: Precision) -> Self {
        Matmul { precision, ..self }
    }

    /// A function of each element. With [`Activation::SwiGlu`] C is `[m, n / 2]`.
    pub fn activation(self, activation: Activation) -> Self {
        Matmul { activation, ..self }
    }

    /// A vector of `n` elements that is added to every row of the product.
    pub fn bias<T: Element + Pod>(self, bias: impl Into<DeviceView<'a, T>>) -> Self {
        Matmul { bias: Some(Vector { data: bias.into().bytes(), dtype: T::DTYPE }), ..self }
    }

    /// A matrix shaped as C that is added last.
    pub fn residual(self, residual: Matrix<'a>) -> Self {
        Matmul { residual: Some(residual), ..self }
    }

    /// Factors on the device, of one element each, as 8-bit operands have.
    pub fn scales(self, a: impl Into<DeviceView<'a, f32>>, b: impl Into<DeviceView<'a, f32>>) -> Self {
        Matmul { scale_a: Some(a.into()), scale_b: Some(b.into()), ..self }
    }

    /// A factor of the result, on the device: of one element, as 8-bit results have. By the kernels of Hopper's tensor cores, and by the one that takes
    /// everything.
    pub fn scale_result(self, scale: impl Into<DeviceView<'a, f32>>) -> Self {
        Matmul { scale_c: Some(scale.into()), ..self }
    }

    /// One element that is raised to the largest magnitude of the result before that factor and before rounding (NaN if there is one); it is not lowered, so
    /// fill it with zero first.
    pub fn amax(self, amax: impl Into<DeviceViewMut<'a, f32>>) -> Self {
        Matmul { amax: Some(amax.into()), ..self }
    }

    /// The problem in plain numbers, as it is solved: a batch of which every product takes the same B is one product of more rows, where those of
    /// A, C and the residual lie so.
    ///
    /// # Errors
    /// [`Error::Length`] when an operand does not have the elements that its shape says, [`Error::InvalidArgument`] when shapes do not fit
    /// together, C overlaps itself, an element type is not one of the five, or a side is too long.
    pub fn problem(&self) -> Result<Problem> {
        self.check(self.c.shape.batch, 1)?;
        self.describe(&self.folding().unwrap_or(self.shapes()))
    }

    /// The problem, with so many matrices of B, and the bias and the scales of so many groups.
    pub(super) fn problem_of(&self, of_b: usize, groups: usize) -> Result<Problem> {
        self.check(of_b, groups)?;
        self.describe(&self.shapes())
    }

    /// The operands fit together, with so many matrices of B, and the bias and the scales of so many groups.
    fn check(&self, of_b: usize, groups: usize) -> Result<()> {
        self.check_types()?;
        let (m, k) = self.a.sides();
        let n = self.b.shape.columns;
        let batch = self.c.shape.batch;
        expect_sides("B", &self.b, k, n, of_b)?;
        expect_sides("A", &self.a, m, k, batch)?;
        self.check_finish(m, n, groups)?;
        self.a.check("A")?;
        self.b.check("B")?;
        self.c.check("C")
    }

    /// The operands in plain numbers, with these shapes.
    fn describe(&self, shapes: &Shapes) -> Result<Problem> {
        let Shapes { a, b, c, residual } = *shapes;
        let residual = self.residual.zip(residual).map(|(old, shape)| Matrix { shape, ..old });
        Ok(Problem {
            m: side("m", a.rows)?,
            n: side("n", b.columns)?,
            k: side("k", a.columns)?,
            batch: side("the batch", c.batch)?,
            a: Matrix { shape: a, ..self.a }.operand(),
            b: Matrix { shape: b, ..self.b }.operand(),
            c: Matrix { data: self.c.data.view(), dtype: self.c.dtype, shape: c }.operand(),
            precision: self.precision,
            finish: Finish {
                factor: self.alpha != 1.0,
                activation: self.activation,
                accumulate: self.beta != 0.0,
                bias: self.bias.map(|bias| bias.dtype),
                residual: residual.as_ref().map(Matrix::operand),
                scaled: self.scale_a.is_some() || self.scale_b.is_some(),
                scaled_result: self.scale_c.is_some(),
                amax: self.amax.is_some(),
            },
        })
    }

    /// Queues the product on `stream`, by the kernel that [`select`](select::select) chooses.
    ///
    /// # Errors
    /// As [`Matmul::problem`], [`Error::DeviceMismatch`], [`Error::OutOfMemory`] (copies of operands that no kernel can address),
    /// [`Error::Environment`], or the driver's error.
    pub fn run(self, stream: &Stream) -> Result<()> {
        let problem = self.checked(stream)?;
        let config = select::best(&problem, stream.device())?;
        run::run(stream, self.folded(), &problem, &config)
    }

    /// Queues the product by a configuration of [`candidates`](select::candidates).
    ///
    /// # Errors
    /// As [`Matmul::run`], and [`Error::InvalidArgument`] for a configuration that cannot do the problem on this device.
    pub fn run_with(self, stream: &Stream, config: &Config) -> Result<()> {
        let problem = self.checked(stream)?;
        select::check(&problem, stream.device(), config)?;
        run::run(stream, self.folded(), &problem, config)
    }

    /// What [`Matmul::run`] would do on the stream's device, and why.
    ///
    /// # Errors
    /// As [`Matmul::problem`] and [`Error::DeviceMismatch`].
    pub fn explain(self, stream: &Stream) -> Result<Choice> {
        select::select(&self.checked(stream)?, stream.device())
    }

    fn shapes(&self) -> Shapes {
        let residual = self.residual.map(|residual| residual.shape);
        Shapes { a: self.a.shape, b: self.b.shape, c: self.c.shape, residual }
    }

    /// The shapes of a batch of which every product takes the same B, as those of one product of more rows, where the rows of A, C and the residual
    /// lie so. The batch has been checked: operands of other lengths would fold too.
    fn folding(&self) -> Option<Shapes> {
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
        Matmul {
            a: Matrix { shape: a, ..self.a },
            b: Matrix { shape: b, ..self.b },
            c: MatrixMut { shape: c, ..self.c },
            residual: self.residual.zip(residual).map(|(old, shape)| Matrix { shape, ..old }),
            ..self
        }
    }

    /// [`Matmul::problem`], with all operands on the stream's device.
    pub(super) fn checked(&self, stream: &Stream) -> Result<Problem> {
        let problem = self.problem()?;
        self.check_devices(stream)?;
        Ok(problem)
    }

    /// All operands are on the stream's device.
    pub(super) fn check_devices(&self, stream: &Stream) -> Result<()> {
        stream.same_device("A", self.a.device())?;
        stream.same_device("B", self.b.device())?;
        stream.same_device("C", self.c.device())?;
        if let Some(bias) = self.bias {
            stream.same_device("the bias", bias.data.device())?;
        }
        if let Some(residual) = self.residual {
            stream.same_device("the residual", residual.device())?;
        }
        for scale in [self.scale_a, self.scale_b, self.scale_c].into_iter().flatten() {
            stream.same_device("the scale", scale.device())?;
        }
        self.amax.as_ref().map_or(Ok(()), |amax| stream.same_device("amax", amax.device()))
    }

    /// The same product with results elsewhere.
    pub(super) fn with_results<'s>(
        &'s self,
        c: MatrixMut<'s>,
        amax: Option<DeviceViewMut<'s, f32>>,
    ) -> Matmul<'s> {
        Matmul { c, amax, ..*self }
    }

    fn check_types(&self) -> Result<()> {
        let extra = self.bias.map(|bias| ("the bias", bias.dtype));
        let residual = self.residual.map(|residual| ("the residual", residual.dtype));
        let all = [("A", self.a.dtype), ("B", self.b.dtype), ("C", self.c.dtype)];
        for (argument, dtype) in all.into_iter().chain(extra).chain(residual) {
            if super::device_type(dtype).is_none() {
                return Err(invalid(
                    argument,
                    format!("of {dtype}"),
                    "f32, f16, bf16, f8_e4m3 or f8_e5m2".to_owned(),
                    "convert it first",
                ));
            }
        }
        Ok(())
    }

    /// C, the residual, the bias and the rest, for a product of `m x n`, with a bias and scales for each of so many groups.
    fn check_finish(&self, m: usize, n: usize, groups: usize) -> Result<()> {
        let swiglu = self.activation == Activation::SwiGlu;
        if swiglu && (!n.is_multiple_of(2) || self.beta != 0.0) {
            let got = format!("{n} columns and beta {}", self.beta);
            let wanted = "an even number of columns, and beta 0".to_owned();
            let hint = "SwiGLU makes one column of two: interleave the gate's columns with the value's; add the old C as a residual";
            return Err(invalid("the product for SwiGLU", got, wanted, hint));
        }
        let width = n / self.activation.columns() as usize;
        let c = Matrix { data: self.c.data.view(), dtype: self.c.dtype, shape: self.c.shape };
        expect_sides("C", &c, m, width, self.c.shape.batch)?;
        if let Some(residual) = self.residual {
            expect_sides("the residual", &residual, m, width, self.c.shape.batch)?;
            residual.check("the residual")?;
        }
        if let Some(bias) = self.bias {
            expect_length("the bias", groups.saturating_mul(n), bias.data.len() / bias.dtype.size())?;
        }
        for scale in [self.scale_a, self.scale_b].into_iter().flatten() {
            expect_length("the scale", groups, scale.len())?;
        }
        self.scale_c.map_or(Ok(()), |scale| expect_length("the scale of the result", 1, scale.len()))?;
        self.amax.as_ref().map_or(Ok(()), |amax| expect_length("amax", 1, amax.len()))
    }
}

fn expect_length(what: &'static str, expected: usize, got: usize) -> Result<()> {
    crate::memory::same_length(OPERATION, what, expected, got)
}

fn expect_sides(
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
