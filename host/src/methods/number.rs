//! Operands: tensors and plain numbers, brought to one element type.

use half::{bf16, f16};
use num::{E4M3, E5M2};
use tensor::convert::odd_from_f64;

use crate::error::{Error, Result};
use crate::ops::fill::full;
use crate::stream::Stream;
use crate::tensor::promote::{Scalar, Weight, result_type};
use crate::tensor::{DType, Tensor, TensorError};

/// The second operand of a method: a tensor or a plain number.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number.
    Number(Scalar),
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Operand::Tensor(tensor)
    }
}

impl<T: Into<Scalar>> From<T> for Operand<'_> {
    fn from(number: T) -> Self {
        Operand::Number(number.into())
    }
}

impl Operand<'_> {
    pub(super) fn dtype(&self) -> DType {
        match self {
            Operand::Tensor(tensor) => tensor.dtype(),
            Operand::Number(number) => number.dtype(),
        }
    }

    fn weight(&self) -> Weight {
        match self {
            Operand::Tensor(tensor) if tensor.rank() == 0 => Weight::ZeroDim,
            Operand::Tensor(_) => Weight::Tensor,
            Operand::Number(_) => Weight::Number,
        }
    }

    /// The operand as a tensor of the type `dtype`.
    #[track_caller]
    pub(super) fn to(self, operation: &'static str, stream: &Stream, dtype: DType) -> Result<Tensor> {
        match self {
            Operand::Tensor(tensor) if tensor.dtype() == dtype => Ok(tensor.clone()),
            Operand::Tensor(tensor) => crate::ops::convert::convert(stream, tensor, dtype),
            Operand::Number(number) => filled(operation, stream, &[], number, dtype),
        }
    }
}

/// The element type of `operation` on these operands.
///
/// # Errors
/// [`TensorError::DType`] where an 8-bit float meets another type.
pub(super) fn promoted(operation: &'static str, operands: &[Operand<'_>]) -> Result<DType> {
    let types: Vec<_> = operands.iter().map(|operand| (operand.dtype(), operand.weight())).collect();
    result_type(&types).ok_or_else(|| {
        let is_short = |operand: &&Operand<'_>| matches!(operand.dtype(), DType::F8E4M3 | DType::F8E5M2);
        TensorError::DType {
            operation,
            what: "an operand",
            got: operands.iter().find(is_short).map_or(DType::F8E4M3, Operand::dtype),
            wanted: "the type of the other operand, or any type but the 8-bit floats".to_owned(),
            hint: "8-bit floats are not promoted: convert one operand with `to`",
        }
        .into()
    })
}

/// A tensor with `number` everywhere, filled by kernels, so it can be captured.
///
/// # Errors
/// [`Error::InvalidArgument`] where an integer type does not have the number, or as [`Tensor::zeros`].
#[track_caller]
pub(super) fn filled(
    operation: &'static str,
    stream: &Stream,
    shape: &[usize],
    number: Scalar,
    dtype: DType,
) -> Result<Tensor> {
    fits(operation, number, dtype)?;
    let (value, odd) = (number.as_f64(), odd_from_f64(number.as_f64()));
    match dtype {
        DType::F64 => full(stream, shape, value),
        DType::F32 => full(stream, shape, value as f32),
        DType::F16 => full(stream, shape, f16::from_f32(odd)),
        DType::BF16 => full(stream, shape, bf16::from_f32(odd)),
        DType::F8E4M3 => full(stream, shape, E4M3::from_f32(odd)),
        DType::F8E5M2 => full(stream, shape, E5M2::from_f32(odd)),
        DType::I64 => full(stream, shape, number.as_i64()),
        DType::I32 => full(stream, shape, number.as_i64() as i32),
        DType::U8 => full(stream, shape, number.as_i64() as u8),
        DType::Bool => full(stream, shape, value != 0.0),
    }
}

/// Is `number` a number of the 16-bit float `dtype`?
pub(super) fn holds(number: Scalar, dtype: DType) -> bool {
    let value = number.as_f64();
    let nearest = match dtype {
        DType::F16 => f16::from_f32(value as f32).to_f64(),
        _ => bf16::from_f32(value as f32).to_f64(),
    };
    nearest == value
}

/// Does the integer type `dtype` have `number`, or its integer part? Floats have every number, rounded.
pub(super) fn fits(operation: &'static str, number: Scalar, dtype: DType) -> Result<()> {
    let range = match dtype {
        DType::I64 => i128::from(i64::MIN)..=i64::MAX.into(),
        DType::I32 => i32::MIN.into()..=i32::MAX.into(),
        DType::U8 => 0..=u8::MAX.into(),
        _ => return Ok(()),
    };
    let is_in_range = match number {
        // Floats beyond an i128 become its ends, which are in no range.
        Scalar::Float(value) => !value.is_nan() && range.contains(&(value as i128)),
        number => range.contains(&number.as_i64().into()),
    };
    if is_in_range {
        return Ok(());
    }
    Err(Error::InvalidArgument {
        operation,
        argument: "the number",
        got: number.to_string(),
        wanted: format!("{} to {}, as {dtype} has", range.start(), range.end()),
        hint: "convert the tensor to a type that has the number with `to` first",
    })
}
