//! Functions of one tensor, element by element, and conversions.

use super::stream_of;
use crate::error::Result;
use crate::ops::convert::convert;
use crate::ops::elementwise::{self, UnaryOp};
use crate::tensor::promote::{Scalar, Weight, result_type};
use crate::tensor::{DType, Named, Tensor};

/// A method of one tensor.
pub type UnaryMethod = fn(&Tensor) -> Result<Tensor>;
/// Its in-place form.
pub type UnaryInPlace = fn(&mut Tensor) -> Result<()>;

/// A method, its in-place form, its row of the op table, and what it computes.
macro_rules! unary_methods {
    ($($name:ident, $in_place:ident = $op:ident: $formula:literal;)*) => {
        /// Functions of each element. The result has the tensor's type; a function that only floats have
        /// makes f32 of integers and bools, as PyTorch does.
        ///
        /// The errors of all of them: [`crate::TensorError::DType`] for a type that the function does not
        /// have (8-bit floats have none), [`crate::Error::OutOfMemory`], or the driver's error.
        impl Tensor { $(
            #[doc = concat!($formula, ", for every element.")]
            ///
            /// # Errors
            /// See the head of this block.
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                apply(stringify!($name), self, UnaryOp::$op)
            }
        )* }

        /// The same functions in place, which want the memory for themselves.
        ///
        /// The errors of all of them: those of the function without `_`; [`crate::TensorError::Shared`] when
        /// other tensors show the memory, [`crate::TensorError::Overlapping`] for a broadcast tensor,
        /// [`crate::TensorError::DType`] for integers where only floats have the function.
        impl Tensor { $(
            #[doc = concat!($formula, ", written over every element.")]
            ///
            /// # Errors
            /// See the head of this block.
            pub fn $in_place(&mut self) -> Result<()> {
                apply_in_place(stringify!($in_place), self, UnaryOp::$op)
            }
        )* }

        impl Tensor {
            /// The table above, for tests that walk it: function, method, in-place form.
            #[doc(hidden)]
            pub const UNARY_METHODS: &'static [(UnaryOp, UnaryMethod, UnaryInPlace)] =
                &[$((UnaryOp::$op, Tensor::$name, Tensor::$in_place)),*];
        }
    };
}

unary_methods! {
    neg, neg_ = Neg: "`-x`";
    abs, abs_ = Abs: "`|x|`";
    sign, sign_ = Sign: "1, -1, or `x` itself where it is neither above nor below 0";
    square, square_ = Square: "`x * x`";
    relu, relu_ = Relu: "`max(x, 0)`; NaN stays";
    sqrt, sqrt_ = Sqrt: "The square root";
    rsqrt, rsqrt_ = Rsqrt: "`1 / sqrt(x)`";
    reciprocal, reciprocal_ = Recip: "`1 / x`";
    floor, floor_ = Floor: "The largest integer not above `x`";
    ceil, ceil_ = Ceil: "The smallest integer not below `x`";
    round, round_ = Round: "The nearest integer, ties to even";
    trunc, trunc_ = Trunc: "The integer part";
    frac, frac_ = Frac: "The fractional part, with the sign of `x`";
    exp, exp_ = Exp: "`e^x`";
    log, log_ = Ln: "The natural logarithm";
    tanh, tanh_ = Tanh: "The hyperbolic tangent";
    erf, erf_ = Erf: "The error function";
    sigmoid, sigmoid_ = Sigmoid: "`1 / (1 + e^-x)`";
    gelu, gelu_ = Gelu: "`x / 2 (1 + erf(x / sqrt 2))`, PyTorch's `gelu`";
    gelu_tanh, gelu_tanh_ = GeluTanh: "PyTorch's `gelu(approximate=\"tanh\")`";
    silu, silu_ = Silu: "`x sigmoid(x)`";
    sin, sin_ = Sin: "The sine of radians; not for f64";
    cos, cos_ = Cos: "The cosine of radians; not for f64";
}

#[track_caller]
fn apply(operation: &'static str, x: &Tensor, op: UnaryOp) -> Result<Tensor> {
    let stream = stream_of(x)?;
    if x.dtype().is_float() || op.is_integral() {
        return elementwise::unary(&stream, op, x).named(operation);
    }
    if matches!(op, UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc) {
        return elementwise::copy(&stream, x);
    }
    elementwise::unary(&stream, op, &convert(&stream, x, DType::F32)?).named(operation)
}

fn apply_in_place(operation: &'static str, x: &mut Tensor, op: UnaryOp) -> Result<()> {
    let stream = stream_of(x)?;
    elementwise::unary_assign(&stream, op, x.view_mut().named(operation)?).named(operation)
}

/// Functions of each element with parameters, and conversions.
impl Tensor {
    /// `min(max(x, min), max)` for every element; NaN stays. Of integers with float bounds an f32.
    ///
    /// # Errors
    /// As [`Tensor::relu`].
    #[track_caller]
    pub fn clamp(&self, min: impl Into<Scalar>, max: impl Into<Scalar>) -> Result<Tensor> {
        let (operation, min, max) = ("clamp", min.into(), max.into());
        let numbers = [min, max].map(|number| (number.dtype(), Weight::Number));
        let operands = [(self.dtype(), Weight::Tensor), numbers[0], numbers[1]];
        let dtype = result_type(&operands).unwrap_or(self.dtype());
        let (stream, x) = (stream_of(self)?, self.to(dtype)?);
        // The bounds of the kernel are f64s on their way to it.
        let is_kept = |number: &Scalar| dtype != DType::I64 || number.as_f64() as i64 == number.as_i64();
        if ![min, max].iter().all(is_kept) {
            return x.maximum(min).named(operation)?.minimum(max).named(operation);
        }
        elementwise::clamp(&stream, &x, min.as_f64(), max.as_f64())
    }

    /// `x` where it is above 0, else `negative_slope * x`.
    ///
    /// # Errors
    /// As [`Tensor::relu`].
    #[track_caller]
    pub fn leaky_relu(&self, negative_slope: f64) -> Result<Tensor> {
        elementwise::leaky_relu(&stream_of(self)?, self, negative_slope)
    }

    /// The tensor in the type `dtype`, rounded as [`crate::ops::convert`] says; the tensor itself where it
    /// has that type.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn to(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        convert(&stream_of(self)?, self, dtype)
    }

    /// A copy with memory of its own, contiguous: PyTorch's `clone`. Rust's `clone` shares the memory.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn copy(&self) -> Result<Tensor> {
        elementwise::copy(&stream_of(self)?, self)
    }

    /// The tensor itself where its elements lie in one piece, in order; else a copy of which that is true.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`], or the driver's error.
    #[track_caller]
    pub fn contiguous(&self) -> Result<Tensor> {
        elementwise::contiguous(&stream_of(self)?, self)
    }
}
