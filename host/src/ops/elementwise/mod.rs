//! Element-wise operations on tensors: functions of one, two and three operands that broadcast against each
//! other.
//!
//! Every operation has a form that allocates its result, and a form `_into` that writes it to a [`TensorMut`]
//! of any layout. Some have a third, `_assign`, that writes it over the first operand. All are queued. The
//! kernels are those of the family `tensor`, whose pages say how results are rounded. Dense operands move at
//! the speed of memory. So do operands that repeat along the innermost axis or any outer one (a bias, a scale
//! for each row), and copies between two dense axes (transposes). Other layouts are read element by element.
//!
//! ```no_run
//! use ironwarp::{Device, Tensor};
//! use ironwarp::ops::elementwise::{BinaryOp, UnaryOp, binary, unary};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let x = Tensor::from_slice(&stream, &[2, 3], &[1.0f32, -2.0, 3.0, -4.0, 5.0, -6.0])?;
//! let bias = Tensor::from_slice(&stream, &[3], &[0.5f32, 1.0, 1.5])?;
//! let y = unary(&stream, UnaryOp::Relu, &binary(&stream, BinaryOp::Add, &x, &bias)?)?;
//! assert_eq!(y.to_vec::<f32>(&stream)?, [1.5, 0.0, 4.5, 0.0, 6.0, 0.0]);
//! # Ok(())
//! # }
//! ```

mod launch;
mod plan;

use half::{bf16, f16};
use tensor::binary::{binary_bf16, binary_f16, binary_f32, binary_f64, binary_i32, binary_i64, binary_u8};
use tensor::compare::{
    compare_bf16, compare_f16, compare_f32, compare_f64, compare_i32, compare_i64, compare_u8,
};
use tensor::copy::{copy_b1, copy_b2, copy_b4, copy_b8};
use tensor::power::{power_bf16, power_f16, power_f32, power_f64, power_i32, power_i64};
use tensor::select::{select_b1, select_b2, select_b4, select_b8};
use tensor::turned::{copy_turned_b1, copy_turned_b2, copy_turned_b4, copy_turned_b8};
use tensor::unary::{unary_bf16, unary_f16, unary_f32, unary_f64, unary_i32, unary_i64};

pub use tensor::binary::BinaryOp;
pub use tensor::compare::CompareOp;
pub use tensor::unary::UnaryOp;

use crate::error::Result;
use crate::ops::dispatch::by_dtype;
use crate::stream::Stream;
use crate::tensor::{DType, Shape, Tensor, TensorError, TensorMut};
use launch::{Input, Launch, Parameters};

const CONVERT: &str = "convert the operand first (`ops::convert`)";

/// `f(x)` for every element, of the type of `x`.
///
/// # Errors
/// [`TensorError::DType`] when `f` does not know the type (8-bit floats, u8 and bool have no functions;
/// integers have those that [`UnaryOp::is_integral`] names; f64 has no sine and cosine) or needs parameters,
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn unary(stream: &Stream, op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    made(stream, x.shape(), x.dtype(), |out| unary_into(stream, op, x, out))
}

/// [`unary`], written to `out`, of the shape and type of `x`.
///
/// # Errors
/// As [`unary`], and [`TensorError::Shape`].
pub fn unary_into(stream: &Stream, op: UnaryOp, x: &Tensor, out: TensorMut<'_>) -> Result<()> {
    apply(stream, "unary", op, Parameters::default(), Some(x), out)
}

/// [`unary`], written over `x`.
///
/// # Errors
/// As [`unary`].
pub fn unary_assign(stream: &Stream, op: UnaryOp, x: TensorMut<'_>) -> Result<()> {
    apply(stream, "unary", op, Parameters::default(), None, x)
}

/// `a * x + b` for every element; of integers `a` and `b` are cut to whole numbers.
///
/// # Errors
/// As [`unary`].
#[track_caller]
pub fn affine(stream: &Stream, x: &Tensor, a: f64, b: f64) -> Result<Tensor> {
    with_parameters(stream, "affine", UnaryOp::Affine, x, a, b)
}

/// `min(max(x, low), high)` for every element, NaN staying; of integers the bounds are cut to whole numbers.
///
/// # Errors
/// As [`unary`].
#[track_caller]
pub fn clamp(stream: &Stream, x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    with_parameters(stream, "clamp", UnaryOp::Clamp, x, low, high)
}

/// `x` where it is above 0, else `slope * x`.
///
/// # Errors
/// As [`unary`].
#[track_caller]
pub fn leaky_relu(stream: &Stream, x: &Tensor, slope: f64) -> Result<Tensor> {
    with_parameters(stream, "leaky_relu", UnaryOp::LeakyRelu, x, slope, 0.0)
}

#[track_caller]
fn with_parameters(
    stream: &Stream,
    operation: &'static str,
    op: UnaryOp,
    x: &Tensor,
    a: f64,
    b: f64,
) -> Result<Tensor> {
    let parameters = Parameters { given: true, a, b };
    made(stream, x.shape(), x.dtype(), |out| apply(stream, operation, op, parameters, Some(x), out))
}

/// `f(x)`, or of `out` itself where `x` is none.
fn apply(
    stream: &Stream,
    operation: &'static str,
    op: UnaryOp,
    parameters: Parameters,
    x: Option<&Tensor>,
    out: TensorMut<'_>,
) -> Result<()> {
    let dtype = x.map_or(out.dtype(), Tensor::dtype);
    if (op.parameters() > 0) != parameters.given {
        return Err(crate::Error::InvalidArgument {
            operation,
            argument: "op",
            got: format!("{op:?} without its parameters"),
            wanted: "a function of the element alone".to_owned(),
            hint: "call `affine`, `clamp` or `leaky_relu`, which take the parameters",
        });
    }
    let launch = Launch { stream, operation, out };
    launch.expect_dtype(dtype)?;
    x.map_or(Ok(()), |x| launch.expect_shape(x.shape()))?;
    let x = x.map(|x| (x, x.layout().strides()));
    let Parameters { a, b, .. } = parameters;
    by_dtype!(dtype, (operation, "x", Some(&op)), {
        F64 if op.is_in_f64() => launch.unary::<unary_f64, f64, f64>(op, [a, b], x),
        F32 => launch.unary::<unary_f32, f32, f32>(op, [a as f32, b as f32], x),
        F16 => launch.unary::<unary_f16, f16, f32>(op, [a as f32, b as f32], x),
        BF16 => launch.unary::<unary_bf16, bf16, f32>(op, [a as f32, b as f32], x),
        I64 if op.is_integral() => launch.unary::<unary_i64, i64, i64>(op, [a as i64, b as i64], x),
        I32 if op.is_integral() => launch.unary::<unary_i32, i32, i32>(op, [a as i32, b as i32], x),
    })
}

/// `f(a, b)` for every pair of elements; the shapes broadcast, the types are the same.
///
/// # Errors
/// [`TensorError::Broadcast`]; [`TensorError::DType`] when the types differ or `f` does not know them (8-bit
/// floats have no functions, floats no bitwise ones, bool nothing else), [`crate::Error::DeviceMismatch`],
/// [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn binary(stream: &Stream, op: BinaryOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = a.shape().broadcast_in("binary", b.shape())?;
    made(stream, &shape, a.dtype(), |out| binary_into(stream, op, a, b, out))
}

/// [`binary`], written to `out`, to whose shape both broadcast.
///
/// # Errors
/// As [`binary`].
pub fn binary_into(stream: &Stream, op: BinaryOp, a: &Tensor, b: &Tensor, out: TensorMut<'_>) -> Result<()> {
    let strides = a.layout().broadcast_strides("binary", out.shape())?;
    same_dtype("binary", "b", a.dtype(), b.dtype())?;
    combine(stream, op, Some((a, &strides)), b, out)
}

/// [`binary`], written over `a`, to whose shape `b` broadcasts.
///
/// # Errors
/// As [`binary`].
pub fn binary_assign(stream: &Stream, op: BinaryOp, a: TensorMut<'_>, b: &Tensor) -> Result<()> {
    same_dtype("binary", "b", a.dtype(), b.dtype())?;
    combine(stream, op, None, b, a)
}

/// `f(a, b)`, or of `out` and `b` where `a` is none.
fn combine(stream: &Stream, op: BinaryOp, a: Input<'_>, b: &Tensor, out: TensorMut<'_>) -> Result<()> {
    let operation = "binary";
    let b_strides = b.layout().broadcast_strides(operation, out.shape())?;
    let launch = Launch { stream, operation, out };
    launch.expect_dtype(b.dtype())?;
    let inputs = [a, Some((b, &b_strides))];
    by_dtype!(b.dtype(), (operation, "a", Some(&op)), {
        F64 if !op.is_bitwise() => launch.binary::<binary_f64, f64>(op, inputs),
        F32 if !op.is_bitwise() => launch.binary::<binary_f32, f32>(op, inputs),
        F16 if !op.is_bitwise() => launch.binary::<binary_f16, f16>(op, inputs),
        BF16 if !op.is_bitwise() => launch.binary::<binary_bf16, bf16>(op, inputs),
        I64 => launch.binary::<binary_i64, i64>(op, inputs),
        I32 => launch.binary::<binary_i32, i32>(op, inputs),
        U8 => launch.binary::<binary_u8, u8>(op, inputs),
        // Bits of 0 and 1 stay 0 and 1.
        Bool if op.is_bitwise() => launch.binary::<binary_u8, u8>(op, inputs),
    })
}

/// `a ^ b` for every pair of elements; the shapes broadcast, the types are the same.
///
/// Powers of floats are C's: `x ^ 0` and `1 ^ y` are 1 also with NaN. Those of integers wrap around. With a
/// negative exponent they are truncated, and of 0 they are 0.
///
/// # Errors
/// [`TensorError::Broadcast`]; [`TensorError::DType`] when the types differ or are 8-bit floats, u8 or bool,
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn power(stream: &Stream, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = a.shape().broadcast_in("power", b.shape())?;
    made(stream, &shape, a.dtype(), |out| power_into(stream, a, b, out))
}

/// [`power`], written to `out`, to whose shape both broadcast.
///
/// # Errors
/// As [`power`].
pub fn power_into(stream: &Stream, a: &Tensor, b: &Tensor, out: TensorMut<'_>) -> Result<()> {
    let operation = "power";
    same_dtype(operation, "b", a.dtype(), b.dtype())?;
    let a_strides = a.layout().broadcast_strides(operation, out.shape())?;
    let b_strides = b.layout().broadcast_strides(operation, out.shape())?;
    let launch = Launch { stream, operation, out };
    launch.expect_dtype(a.dtype())?;
    let inputs = [Some((a, &*a_strides)), Some((b, &*b_strides))];
    by_dtype!(a.dtype(), (operation, "a", None), {
        F64 => launch.power::<power_f64, f64>(inputs),
        F32 => launch.power::<power_f32, f32>(inputs),
        F16 => launch.power::<power_f16, f16>(inputs),
        BF16 => launch.power::<power_bf16, bf16>(inputs),
        I64 => launch.power::<power_i64, i64>(inputs),
        I32 => launch.power::<power_i32, i32>(inputs),
    })
}

/// Whether `a == b`, `a < b` and so on, as bool; the shapes broadcast, the types are the same.
///
/// # Errors
/// [`TensorError::Broadcast`]; [`TensorError::DType`] when the types differ or are 8-bit floats,
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn compare(stream: &Stream, op: CompareOp, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = a.shape().broadcast_in("compare", b.shape())?;
    made(stream, &shape, DType::Bool, |out| compare_into(stream, op, a, b, out))
}

/// [`compare`], written to `out`, a bool tensor to whose shape both broadcast.
///
/// # Errors
/// As [`compare`].
pub fn compare_into(
    stream: &Stream,
    op: CompareOp,
    a: &Tensor,
    b: &Tensor,
    out: TensorMut<'_>,
) -> Result<()> {
    let operation = "compare";
    same_dtype(operation, "b", a.dtype(), b.dtype())?;
    let a_strides = a.layout().broadcast_strides(operation, out.shape())?;
    let b_strides = b.layout().broadcast_strides(operation, out.shape())?;
    let launch = Launch { stream, operation, out };
    launch.expect_dtype(DType::Bool)?;
    let inputs = [Some((a, &*a_strides)), Some((b, &*b_strides))];
    by_dtype!(a.dtype(), (operation, "a", None), {
        F64 => launch.compare::<compare_f64, f64>(op, inputs),
        F32 => launch.compare::<compare_f32, f32>(op, inputs),
        F16 => launch.compare::<compare_f16, f16>(op, inputs),
        BF16 => launch.compare::<compare_bf16, bf16>(op, inputs),
        I64 => launch.compare::<compare_i64, i64>(op, inputs),
        I32 => launch.compare::<compare_i32, i32>(op, inputs),
        U8 | Bool => launch.compare::<compare_u8, u8>(op, inputs),
    })
}

/// `a` where `condition` holds, else `b`, for every element; the three shapes broadcast.
///
/// # Errors
/// [`TensorError::Broadcast`]; [`TensorError::DType`] when the condition is no bool or the types of `a` and
/// `b` differ, [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn select(stream: &Stream, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = a.shape().broadcast_in("select", b.shape())?.broadcast_in("select", condition.shape())?;
    made(stream, &shape, a.dtype(), |out| select_into(stream, condition, a, b, out))
}

/// [`select`], written to `out`, to whose shape all three broadcast.
///
/// # Errors
/// As [`select`].
pub fn select_into(
    stream: &Stream,
    condition: &Tensor,
    a: &Tensor,
    b: &Tensor,
    out: TensorMut<'_>,
) -> Result<()> {
    let operation = "select";
    same_dtype(operation, "condition", DType::Bool, condition.dtype())?;
    same_dtype(operation, "b", a.dtype(), b.dtype())?;
    let condition_strides = condition.layout().broadcast_strides(operation, out.shape())?;
    let a_strides = a.layout().broadcast_strides(operation, out.shape())?;
    let b_strides = b.layout().broadcast_strides(operation, out.shape())?;
    let launch = Launch { stream, operation, out };
    launch.expect_dtype(a.dtype())?;
    let inputs = [Some((condition, &*condition_strides)), Some((a, &*a_strides)), Some((b, &*b_strides))];
    match a.dtype().size() {
        8 => launch.select::<select_b8, u64>(inputs),
        4 => launch.select::<select_b4, u32>(inputs),
        2 => launch.select::<select_b2, u16>(inputs),
        _ => launch.select::<select_b1, u8>(inputs),
    }
}

/// A copy of `x` with memory of its own, contiguous.
///
/// # Errors
/// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
#[track_caller]
pub fn copy(stream: &Stream, x: &Tensor) -> Result<Tensor> {
    made(stream, x.shape(), x.dtype(), |out| copy_into(stream, x, out))
}

/// Copies `x`, which broadcasts to the shape of `out`, between any two layouts.
///
/// # Errors
/// [`TensorError::Broadcast`], [`TensorError::DType`] when the types differ,
/// [`crate::Error::DeviceMismatch`], or the driver's error.
pub fn copy_into(stream: &Stream, x: &Tensor, out: TensorMut<'_>) -> Result<()> {
    let operation = "copy";
    let strides = x.layout().broadcast_strides(operation, out.shape())?;
    let launch = Launch { stream, operation, out };
    launch.expect_dtype(x.dtype())?;
    let input = Some((x, &*strides));
    match x.dtype().size() {
        8 => launch.copy::<copy_b8, copy_turned_b8, u64>(input),
        4 => launch.copy::<copy_b4, copy_turned_b4, u32>(input),
        2 => launch.copy::<copy_b2, copy_turned_b2, u16>(input),
        _ => launch.copy::<copy_b1, copy_turned_b1, u8>(input),
    }
}

/// `x` itself when it is contiguous, else a copy that is.
///
/// # Errors
/// As [`copy`].
#[track_caller]
pub fn contiguous(stream: &Stream, x: &Tensor) -> Result<Tensor> {
    if x.is_contiguous() { Ok(x.clone()) } else { copy(stream, x) }
}

/// The same elements in the same order under another shape; a copy only where that needs one.
///
/// # Errors
/// [`TensorError::Shape`] when the number of elements differs, or as [`copy`].
#[track_caller]
pub fn reshape(stream: &Stream, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    match x.view_as(shape) {
        Err(error) if matches!(error.tensor_error(), Some(TensorError::NotContiguous { .. })) => {
            copy(stream, x)?.view_as(shape)
        }
        viewed => viewed,
    }
}

/// A new contiguous tensor that `write` writes.
#[track_caller]
pub(crate) fn made(
    stream: &Stream,
    shape: &Shape,
    dtype: DType,
    write: impl FnOnce(TensorMut<'_>) -> Result<()>,
) -> Result<Tensor> {
    // SAFETY: every op writes all elements of its output, bools with 0 or 1, or fails, and then the tensor
    // goes.
    let mut out = unsafe { Tensor::uninit(stream, shape.clone(), dtype)? };
    write(out.view_mut()?)?;
    Ok(out)
}

pub(super) fn same_dtype(
    operation: &'static str,
    what: &'static str,
    wanted: DType,
    got: DType,
) -> Result<()> {
    if wanted == got {
        return Ok(());
    }
    Err(TensorError::DType { operation, what, got, wanted: wanted.to_string(), hint: CONVERT }.into())
}
