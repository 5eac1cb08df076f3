//! Functions of two operands, element by element: arithmetic, bits, comparisons.
//!
//! The second operand is a tensor or a plain number. Shapes broadcast, and types are promoted as
//! [`DType::promote`] says. In place, the result is rounded to the tensor's own type.

use super::number::{Operand, fits, holds, promoted};
use super::stream_of;
use crate::error::Result;
use crate::ops::convert::convert;
use crate::ops::elementwise::{self, BinaryOp, CompareOp, UnaryOp};
use crate::stream::Stream;
use crate::tensor::promote::Scalar;
use crate::tensor::{DType, Named, Shape, Tensor, TensorError};

/// Integers up to this magnitude are f64s too.
const EXACT: i64 = 1 << f64::MANTISSA_DIGITS;

/// A method of two tensors.
pub type BinaryMethod = fn(&Tensor, &Tensor) -> Result<Tensor>;
/// Its in-place form.
pub type BinaryInPlace = fn(&mut Tensor, &Tensor) -> Result<()>;

/// A method, its in-place form, its row of the op table, and what it computes.
macro_rules! binary_methods {
    ($($name:ident, $in_place:ident = $op:ident: $formula:literal;)*) => {
        /// Functions of two operands. The shapes broadcast, and the types are promoted.
        ///
        /// The errors of all of them: [`TensorError::Broadcast`]; [`TensorError::DType`] for a type that the
        /// function does not have, or where an 8-bit float meets another type;
        /// [`crate::Error::InvalidArgument`] for a number that the tensor's integer type does not have,
        /// [`crate::Error::DeviceMismatch`], [`crate::Error::OutOfMemory`], or the driver's error.
        impl Tensor { $(
            #[doc = concat!($formula, ".")]
            ///
            /// # Errors
            /// See the head of this block.
            #[track_caller]
            pub fn $name<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
                combine(stringify!($name), BinaryOp::$op, self.into(), other.into())
            }
        )* }

        /// The same functions in place. The other operand broadcasts to the tensor, whose shape and type
        /// stay.
        ///
        /// The errors of all of them: those of the function without `_`; [`TensorError::DType`] when the
        /// result has a higher category than the tensor (a float result in an integer tensor);
        /// [`TensorError::Shared`] when other tensors show the memory, [`TensorError::Overlapping`] for a
        /// broadcast tensor.
        impl Tensor { $(
            #[doc = concat!($formula, ", written over the tensor.")]
            ///
            /// # Errors
            /// See the head of this block.
            #[track_caller]
            pub fn $in_place<'a>(&mut self, other: impl Into<Operand<'a>>) -> Result<()> {
                combine_in_place(stringify!($in_place), BinaryOp::$op, self, other.into())
            }
        )* }

        impl Tensor {
            /// The table above, for tests that walk it: function, method, in-place form.
            #[doc(hidden)]
            pub const BINARY_METHODS: &'static [(BinaryOp, BinaryMethod, BinaryInPlace)] =
                &[$((BinaryOp::$op, |a, b| a.$name(b), |a, b| a.$in_place(b))),*];
        }
    };
}

binary_methods! {
    add, add_ = Add: "`self + other`; of bools whether one holds";
    sub, sub_ = Sub: "`self - other`";
    mul, mul_ = Mul: "`self * other`; of bools whether both hold";
    div, div_ = Div: "`self / other`, a float also of integers";
    maximum, maximum_ = Max: "The larger of both; NaN if either is NaN";
    minimum, minimum_ = Min: "The smaller of both; NaN if either is NaN";
    bitwise_and, bitwise_and_ = And: "Bitwise and, of integers and bools";
    bitwise_or, bitwise_or_ = Or: "Bitwise or, of integers and bools";
    bitwise_xor, bitwise_xor_ = Xor: "Bitwise exclusive or, of integers and bools";
}

/// `op` of two operands, at least one of them a tensor.
#[track_caller]
pub(super) fn combine(
    operation: &'static str,
    op: BinaryOp,
    a: Operand<'_>,
    b: Operand<'_>,
) -> Result<Tensor> {
    let mut dtype = promoted(operation, &[a, b])?;
    if op == BinaryOp::Div && !dtype.is_float() {
        dtype = DType::F32;
    }
    match (a, b) {
        (Operand::Tensor(x), Operand::Tensor(y)) => {
            x.shape().broadcast_in(operation, y.shape())?;
        }
        (Operand::Tensor(x), Operand::Number(number)) => {
            if let Some((factor, addend)) = affine(op, number, dtype) {
                fits(operation, number, dtype)?;
                return elementwise::affine(&stream_of(x)?, &x.to(dtype)?, factor, addend).named(operation);
            }
        }
        (Operand::Number(number), Operand::Tensor(y)) => {
            if let Some((factor, addend)) = affine_from_left(op, number, dtype) {
                fits(operation, number, dtype)?;
                return elementwise::affine(&stream_of(y)?, &y.to(dtype)?, factor, addend).named(operation);
            }
            if op == BinaryOp::Div && matches!(dtype, DType::F16 | DType::BF16) && !holds(number, dtype) {
                // With the number rounded to f32: as f16, 65536 would be an infinity. It costs two launches
                // and two tensors of f32 more.
                let quotient = combine(operation, op, a, Operand::Tensor(&y.to(DType::F32)?))?;
                return convert(&stream_of(y)?, &quotient, dtype);
            }
        }
        (Operand::Number(_), Operand::Number(_)) => {}
    }
    let stream = stream_of_either(a, b)?;
    let (a, b) = (a.to(operation, &stream, dtype)?, b.to(operation, &stream, dtype)?);
    elementwise::binary(&stream, of_type(op, dtype), &a, &b).named(operation)
}

fn stream_of_either(a: Operand<'_>, b: Operand<'_>) -> Result<Stream> {
    match (a, b) {
        (Operand::Tensor(x), _) | (_, Operand::Tensor(x)) => stream_of(x),
        _ => unreachable!("every method has a tensor"),
    }
}

/// The function for a type: bools have arithmetic on bits.
fn of_type(op: BinaryOp, dtype: DType) -> BinaryOp {
    match op {
        BinaryOp::Add | BinaryOp::Max if dtype == DType::Bool => BinaryOp::Or,
        BinaryOp::Mul | BinaryOp::Min if dtype == DType::Bool => BinaryOp::And,
        op => op,
    }
}

/// `x op number` as `factor * x + addend` with the same bits: one launch, and in f32 for 16-bit floats, as
/// PyTorch does it.
fn affine(op: BinaryOp, number: Scalar, dtype: DType) -> Option<(f64, f64)> {
    let value = exact(number, dtype)?;
    match op {
        BinaryOp::Add => Some((1.0, value)),
        // The least i32 is its own negative: arithmetic wraps around.
        BinaryOp::Sub if dtype == DType::I32 => Some((1.0, (value as i32).wrapping_neg().into())),
        BinaryOp::Sub => Some((1.0, -value)),
        // Of a product of 0 the sign stays when -0 is added.
        BinaryOp::Mul => Some((value, -0.0)),
        // Rounded to 16 bits, the product with the reciprocal in f32 is what PyTorch computes too.
        BinaryOp::Div if matches!(dtype, DType::F16 | DType::BF16) => {
            let [divisor, reciprocal] = [value as f32, 1.0 / value as f32];
            (divisor.is_normal() && reciprocal.is_normal()).then_some((1.0 / value, -0.0))
        }
        _ => None,
    }
}

/// `number op x` as `factor * x + addend` with the same bits.
fn affine_from_left(op: BinaryOp, number: Scalar, dtype: DType) -> Option<(f64, f64)> {
    match op {
        BinaryOp::Sub => Some((-1.0, exact(number, dtype)?)),
        BinaryOp::Add | BinaryOp::Mul => affine(op, number, dtype),
        _ => None,
    }
}

/// The number as a parameter of a launch, which is an f64, where the type has affine functions and an f64
/// holds it.
fn exact(number: Scalar, dtype: DType) -> Option<f64> {
    let has_affine =
        matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::I64 | DType::I32);
    let holds = dtype.is_float() || number.as_i64().unsigned_abs() <= EXACT.unsigned_abs();
    (has_affine && holds).then(|| number.as_f64())
}

#[track_caller]
fn combine_in_place(operation: &'static str, op: BinaryOp, x: &mut Tensor, other: Operand<'_>) -> Result<()> {
    let stream = stream_of(x)?;
    let dtype = x.dtype();
    if let Operand::Tensor(other) = other {
        fits_into(operation, other.shape(), x.shape())?;
        if other.dtype() == dtype && (op != BinaryOp::Div || dtype.is_float()) {
            let out = x.view_mut().named(operation)?;
            return elementwise::binary_assign(&stream, of_type(op, dtype), out, other).named(operation);
        }
    }
    // Before anything is computed.
    x.view_mut().named(operation)?;
    let result = combine(operation, op, (&*x).into(), other)?;
    if result.dtype().is_float() && !dtype.is_float() || (dtype == DType::Bool && result.dtype() != dtype) {
        let (what, got) = ("the result", result.dtype());
        let (wanted, hint) = (format!("{dtype}, to be written in place"), "use the method without `_`");
        return Err(TensorError::DType { operation, what, got, wanted, hint }.into());
    }
    let result = if result.dtype() == dtype { result } else { convert(&stream, &result, dtype)? };
    elementwise::copy_into(&stream, &result, x.view_mut()?)
}

/// Powers.
impl Tensor {
    /// `self ^ exponent`; the shapes broadcast, and the types are promoted. See
    /// [`power`](elementwise::power) for integers. A number 2 takes the kernel of [`Tensor::square`].
    ///
    /// # Errors
    /// As [`Tensor::add`]; [`TensorError::DType`] also for u8 and bool.
    #[track_caller]
    pub fn pow<'a>(&self, exponent: impl Into<Operand<'a>>) -> Result<Tensor> {
        let (operation, exponent) = ("pow", exponent.into());
        let dtype = promoted(operation, &[self.into(), exponent])?;
        let (stream, x) = (stream_of(self)?, self.to(dtype)?);
        let is_square = matches!(exponent, Operand::Number(number) if number.as_f64() == 2.0);
        if is_square {
            return elementwise::unary(&stream, UnaryOp::Square, &x).named(operation);
        }
        let exponent = exponent.to(operation, &stream, dtype)?;
        elementwise::power(&stream, &x, &exponent).named(operation)
    }
}

/// Does `from` broadcast to `to`, which stays?
pub(super) fn fits_into(operation: &'static str, from: &Shape, to: &Shape) -> Result<()> {
    if from.broadcast_in(operation, to)? == *to {
        return Ok(());
    }
    Err(TensorError::Broadcast { operation, left: to.clone(), right: from.clone() }.into())
}

/// A method, and its row of the table of comparisons.
macro_rules! compare_methods {
    ($($name:ident = $op:ident: $formula:literal;)*) => {
        /// Comparisons: bool tensors. The shapes broadcast, and the types are promoted. The errors are those
        /// of [`Tensor::add`].
        impl Tensor { $(
            #[doc = concat!("Whether ", $formula, ", for every pair of elements.")]
            ///
            /// # Errors
            /// As [`Tensor::add`].
            #[track_caller]
            pub fn $name<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
                compare(stringify!($name), CompareOp::$op, self, other.into())
            }
        )* }

        impl Tensor {
            /// The table above, for tests that walk it: comparison, method.
            #[doc(hidden)]
            pub const COMPARE_METHODS: &'static [(CompareOp, BinaryMethod)] =
                &[$((CompareOp::$op, |a, b| a.$name(b))),*];
        }
    };
}

compare_methods! {
    eq = Eq: "`self == other`";
    ne = Ne: "`self != other`; NaN is not itself";
    lt = Lt: "`self < other`";
    le = Le: "`self <= other`";
    gt = Gt: "`self > other`";
    ge = Ge: "`self >= other`";
}

#[track_caller]
fn compare(operation: &'static str, op: CompareOp, a: &Tensor, b: Operand<'_>) -> Result<Tensor> {
    let (stream, dtype) = (stream_of(a)?, promoted(operation, &[a.into(), b])?);
    if let Operand::Tensor(b) = b {
        a.shape().broadcast_in(operation, b.shape())?;
    }
    let (a, b) = (a.to(dtype)?, b.to(operation, &stream, dtype)?);
    elementwise::compare(&stream, op, &a, &b).named(operation)
}

/// Functions that are one of the above.
impl Tensor {
    /// Whether the element is 0 or false.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    #[track_caller]
    pub fn logical_not(&self) -> Result<Tensor> {
        if self.dtype() == DType::Bool {
            self.bitwise_xor(true)
        } else {
            compare("logical_not", CompareOp::Eq, self, 0.into())
        }
    }

    /// Whether the element is NaN.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    #[track_caller]
    pub fn isnan(&self) -> Result<Tensor> {
        compare("isnan", CompareOp::Ne, self, self.into())
    }

    /// Whether the element is an infinity. No integer or bool is one.
    ///
    /// # Errors
    /// As [`Tensor::relu`] for floats, as [`Tensor::add`] for other types.
    #[track_caller]
    pub fn isinf(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return compare("isinf", CompareOp::Ne, self, self.into());
        }
        self.abs().named("isinf")?.eq(f64::INFINITY)
    }

    /// Whether the element is neither NaN nor an infinity. All integers and bools are finite.
    ///
    /// # Errors
    /// As [`Tensor::isinf`].
    #[track_caller]
    pub fn isfinite(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return compare("isfinite", CompareOp::Eq, self, self.into());
        }
        self.abs().named("isfinite")?.lt(f64::INFINITY)
    }
}
