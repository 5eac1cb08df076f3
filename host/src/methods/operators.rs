//! Operators. Their output is a `Result<Tensor>`: `(&a + &b)?`, `(2.0 * x)?`, `(-&x)?`.
//!
//! Tensors come by value or by reference, and `+ - * /` take an `f64` or an `i64` on either side. There is
//! one type of each kind, so that the compiler knows the type of `&x * 2.0` at once; with more it would not
//! until the end of the function, and `(&x * 2.0)? + &y` would not compile. The methods take `f32` and `i32`
//! too.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

use super::binary::combine;
use crate::error::Result;
use crate::ops::elementwise::BinaryOp;
use crate::tensor::{DType, Tensor};

/// One operator of two tensors, each by value or by reference.
macro_rules! of_tensors {
    ($trait:ident, $method:ident, $op:ident) => {
        of_tensors!(@pair $trait, $method, $op, &Tensor, &Tensor);
        of_tensors!(@pair $trait, $method, $op, &Tensor, Tensor);
        of_tensors!(@pair $trait, $method, $op, Tensor, &Tensor);
        of_tensors!(@pair $trait, $method, $op, Tensor, Tensor);
    };
    (@pair $trait:ident, $method:ident, $op:ident, $left:ty, $right:ty) => {
        impl $trait<$right> for $left {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self, other: $right) -> Result<Tensor> {
                let (a, b): (&Tensor, &Tensor) = (&self, &other);
                combine(stringify!($method), BinaryOp::$op, a.into(), b.into())
            }
        }
    };
}

/// One operator of a tensor and a number, on either side.
macro_rules! of_numbers {
    ($trait:ident, $method:ident, $op:ident, $($number:ty),*) => { $(
        of_numbers!(@tensor $trait, $method, $op, &Tensor, $number);
        of_numbers!(@tensor $trait, $method, $op, Tensor, $number);
    )* };
    (@tensor $trait:ident, $method:ident, $op:ident, $tensor:ty, $number:ty) => {
        impl $trait<$number> for $tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self, number: $number) -> Result<Tensor> {
                let x: &Tensor = &self;
                combine(stringify!($method), BinaryOp::$op, x.into(), number.into())
            }
        }

        impl $trait<$tensor> for $number {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self, x: $tensor) -> Result<Tensor> {
                let x: &Tensor = &x;
                combine(stringify!($method), BinaryOp::$op, self.into(), x.into())
            }
        }
    };
}

/// Operators and their rows of the op table.
macro_rules! operators {
    (arithmetic: $($trait:ident::$method:ident = $op:ident),*; bits: $($bits:ident::$of_bits:ident = $bit_op:ident),*;) => {
        $(
            of_tensors!($trait, $method, $op);
            of_numbers!($trait, $method, $op, f64, i64);
        )*
        $( of_tensors!($bits, $of_bits, $bit_op); )*
    };
}

operators! {
    arithmetic: Add::add = Add, Sub::sub = Sub, Mul::mul = Mul, Div::div = Div;
    bits: BitAnd::bitand = And, BitOr::bitor = Or, BitXor::bitxor = Xor;
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;

    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;

    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(&self)
    }
}

/// Bitwise not of integers, logical not of bools.
impl Not for &Tensor {
    type Output = Result<Tensor>;

    #[track_caller]
    fn not(self) -> Result<Tensor> {
        match self.dtype() {
            DType::Bool => self.logical_not(),
            DType::U8 => self.bitwise_xor(i64::from(u8::MAX)),
            _ => self.bitwise_xor(-1),
        }
    }
}

impl Not for Tensor {
    type Output = Result<Tensor>;

    #[track_caller]
    fn not(self) -> Result<Tensor> {
        !&self
    }
}
