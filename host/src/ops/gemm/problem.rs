//! A matrix product as its kernels see it: plain numbers, to choose by, to print and to remember.

use std::fmt;

use gemm::epilogue::Activation;

use crate::error::{Error, Result};
use crate::tensor::DType;

use super::OPERATION;
use super::matrix::Shape;

/// Longest side: leaves room to round up to whole tiles in 32 bits.
pub(super) const MAX_SIDE: u32 = (1 << 31) - 256;

/// How f32 operands are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// By fused multiply-adds of the whole f32.
    #[default]
    F32,
    /// By tensor cores, which read 19 of the 32 bits: 8 times faster, relative error 2^-11 a factor.
    Tf32,
}

/// How the elements of an operand lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// Those of a row side by side.
    Rows,
    /// Those of a column side by side.
    Columns,
    /// Neither.
    Strided,
}

/// An operand of a [`Problem`]. Strides in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type.
    pub dtype: DType,
    /// Which elements lie side by side.
    pub order: Order,
    /// From a row to the next, or from a column to the next where the order is by columns.
    pub leading: u64,
    /// From a matrix of the batch to the next.
    pub batch_stride: u64,
    /// Bytes, up to 16, that every row (column) begins at a multiple of.
    pub alignment: u32,
}

impl Operand {
    pub(super) fn new(dtype: DType, shape: Shape, alignment: u32) -> Self {
        let (order, leading) = match (shape.row, shape.column) {
            (row, 1) => (Order::Rows, row),
            // A single row's elements lie a column stride apart, whatever the row stride says.
            (1, column) => (Order::Columns, column),
            (row, _) => (Order::Strided, row),
        };
        let batch_stride = if shape.batch > 1 { shape.matrix as u64 } else { 0 };
        Operand { dtype, order, leading: leading as u64, batch_stride, alignment }
    }
}

/// The description of an epilogue by which kernels are chosen; see [`gemm::epilogue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EpilogueDesc {
    /// Is the product multiplied by a factor other than 1?
    pub factor: bool,
    /// Function of each element.
    pub activation: Activation,
    /// Is source C added?
    pub source: bool,
    /// Element type of the bias, if there is one.
    pub bias: Option<DType>,
    /// The residual, if there is one.
    pub residual: Option<Operand>,
    /// Are there factors of A or B on the device?
    pub scaled: bool,
    /// Is there a factor of the result on the device?
    pub scaled_result: bool,
    /// Is the largest magnitude wanted?
    pub amax: bool,
}

impl EpilogueDesc {
    /// Does it add or pair by lines of C, and not only by element?
    pub fn is_by_line(&self) -> bool {
        self.bias.is_some() || self.activation == Activation::SwiGlu
    }

    /// Do no more than factors and source C go with the product?
    pub(super) fn is_factors_and_source(&self) -> bool {
        let Self { factor, source, scaled, scaled_result, .. } = *self;
        *self == Self { factor, source, scaled, scaled_result, ..Self::default() }
    }

    /// Does it scale and add C, and no more?
    pub fn is_alpha_beta(&self) -> bool {
        *self == EpilogueDesc { factor: self.factor, source: self.source, ..EpilogueDesc::default() }
    }

    /// Is C nothing but the product?
    pub fn is_plain(&self) -> bool {
        *self == EpilogueDesc::default()
    }
}

/// A matrix product: `C = epilogue(A B)`, `A: [m, k]`, `B: [k, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B, and of C but for SwiGLU, which has half.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Matrices of each operand.
    pub batch: u32,
    /// The left factor.
    pub a: Operand,
    /// The right factor.
    pub b: Operand,
    /// The result.
    pub c: Operand,
    /// How f32 is multiplied.
    pub precision: Precision,
    /// Its epilogue.
    pub epilogue: EpilogueDesc,
}

impl Problem {
    /// Floating-point operations.
    pub fn flops(&self) -> f64 {
        2.0 * f64::from(self.batch) * f64::from(self.m) * f64::from(self.n) * f64::from(self.k)
    }
}

/// As in `bf16[512, 4096 /4096] * bf16[4096 /4096, 1024] -> bf16[512, 1024 /1024]`: the slash stands before
/// the leading dimension, beside the side that lies contiguous.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { m, n, k, batch, a, b, c, precision, epilogue } = self;
        if *batch != 1 {
            write!(f, "{batch} x ")?;
        }
        let width = n / epilogue.activation.columns();
        write_operand(f, a, *m, *k)?;
        f.write_str(" * ")?;
        write_operand(f, b, *k, *n)?;
        f.write_str(" -> ")?;
        write_operand(f, c, *m, width)?;
        if *precision == Precision::Tf32 {
            f.write_str(" tf32")?;
        }
        write_epilogue(f, epilogue)
    }
}

fn write_operand(f: &mut fmt::Formatter<'_>, operand: &Operand, rows: u32, columns: u32) -> fmt::Result {
    let Operand { dtype, order, leading, batch_stride, alignment } = operand;
    match order {
        Order::Rows => write!(f, "{dtype}[{rows}, {columns} /{leading}]")?,
        Order::Columns => write!(f, "{dtype}[{rows} /{leading}, {columns}]")?,
        Order::Strided => write!(f, "{dtype}[{rows} /, {columns} /]")?,
    }
    if *batch_stride != 0 {
        write!(f, "+{batch_stride}")?;
    }
    if u64::from(*alignment) < super::matrix::ROW_ALIGNMENT { write!(f, "@{alignment}") } else { Ok(()) }
}

fn write_epilogue(f: &mut fmt::Formatter<'_>, epilogue: &EpilogueDesc) -> fmt::Result {
    let EpilogueDesc { factor, activation, source, bias, residual, scaled, scaled_result, amax } = epilogue;
    if *factor {
        f.write_str(" * alpha")?;
    }
    if *source {
        f.write_str(" + C")?;
    }
    if let Some(dtype) = bias {
        write!(f, " + {dtype} bias")?;
    }
    if *activation != Activation::None {
        write!(f, ", {activation:?}")?;
    }
    if let Some(residual) = residual {
        write!(f, ", + {} residual", residual.dtype)?;
    }
    if *scaled {
        f.write_str(", scaled")?;
    }
    if *scaled_result {
        f.write_str(", scaled result")?;
    }
    if *amax { f.write_str(", amax") } else { Ok(()) }
}

/// A side as kernels take it.
pub(super) fn side(argument: &'static str, length: usize) -> Result<u32> {
    match u32::try_from(length) {
        Ok(side) if side <= MAX_SIDE => Ok(side),
        _ => Err(Error::InvalidArgument {
            operation: OPERATION,
            argument,
            got: length.to_string(),
            wanted: format!("at most {MAX_SIDE}"),
            hint: "split that dimension and call once for each part",
        }),
    }
}
