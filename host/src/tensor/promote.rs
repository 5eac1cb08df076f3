//! Type promotion: the element type of an operation on operands of several types.
//!
//! The rules are PyTorch's (`torch.result_type`), with f32 as the default float type:
//!
//! 1. Types have categories: bool, integers, floats. The highest category among the operands wins.
//! 2. Within a category, tensors with dimensions go before tensors without, and those before plain numbers.
//!    So `f16 tensor * 2.0` is f16, and `i32 tensor + 1` is i32.
//! 3. Operands of one category and one rank of rule 2 meet at the smallest type that holds both: f16 and bf16
//!    meet at f32, u8 and i32 at i32.
//! 4. A plain float is an f32 where no other operand is a float. A plain integer is an i64 where all others
//!    are bools.
//! 5. 8-bit floats meet nothing but their own type.

use std::fmt;

use half::{bf16, f16};

use super::DType;

/// A plain number as an operand: `x.add(1)`, `&x * 0.5`, `x.masked_fill(&mask, f64::NEG_INFINITY)`.
///
/// All numbers that are an f64 or an i64 without loss become one. `usize`, as `Tensor::size` returns it, is
/// none of them: write `x.size(0)? as i64`, or `as f64` for a float.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// A float.
    Float(f64),
    /// An integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// Its element type where no tensor has one of its category.
    pub const fn dtype(self) -> DType {
        match self {
            Scalar::Float(_) => DType::F32,
            Scalar::Int(_) => DType::I64,
            Scalar::Bool(_) => DType::Bool,
        }
    }

    /// The number as a float; integers are rounded to the nearest.
    pub const fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(value) => value,
            Scalar::Int(value) => value as f64,
            Scalar::Bool(value) => value as u8 as f64,
        }
    }

    /// The number as an integer; floats are cut toward zero, NaN is 0.
    pub const fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(value) => value as i64,
            Scalar::Int(value) => value,
            Scalar::Bool(value) => value as i64,
        }
    }
}

macro_rules! scalars {
    ($($ty:ty => $variant:ident),*) => { $(
        impl From<$ty> for Scalar {
            fn from(value: $ty) -> Self {
                Scalar::$variant(value.into())
            }
        }
    )* };
}

scalars!(f64 => Float, f32 => Float, f16 => Float, bf16 => Float);
scalars!(i64 => Int, i32 => Int, i16 => Int, i8 => Int, u32 => Int, u16 => Int, u8 => Int, bool => Bool);

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Float(value) => write!(f, "{value:?}"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// The rank of an operand in promotion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A plain number.
    Number,
    /// A tensor without dimensions.
    ZeroDim,
    /// A tensor with dimensions.
    Tensor,
}

impl DType {
    /// The smallest type that holds both, by the third and fifth rule of promotion: `None` for an 8-bit float
    /// with another type.
    pub fn promote(self, other: DType) -> Option<DType> {
        use DType::{F8E4M3, F8E5M2, F32, F64};
        if self == other {
            return Some(self);
        }
        if [self, other].iter().any(|dtype| matches!(dtype, F8E4M3 | F8E5M2)) {
            return None;
        }
        Some(match (self.is_float(), other.is_float()) {
            (true, false) => self,
            (false, true) => other,
            (true, true) if [self, other].contains(&F64) => F64,
            // Two different ones of f32, f16 and bf16.
            (true, true) => F32,
            // Bool, u8, i32 and i64 hold each other in the order of their sizes, bool below u8.
            (false, false) => self.max_integer(other),
        })
    }

    fn max_integer(self, other: DType) -> DType {
        let order = |dtype: DType| (dtype != DType::Bool, dtype.size());
        if order(self) >= order(other) { self } else { other }
    }

    fn category(self) -> u8 {
        if self.is_float() { 2 } else { u8::from(self != DType::Bool) }
    }
}

/// The type of an operation on these operands, of which there is at least one; `None` where an 8-bit float
/// meets another type.
pub(crate) fn result_type(operands: &[(DType, Weight)]) -> Option<DType> {
    let meet = |weight: Weight| {
        let mut types = operands.iter().filter(|operand| operand.1 == weight).map(|operand| operand.0);
        let first = types.next();
        types.fold(first.map(Some), |all, next| all.map(|all| all.and_then(|all| all.promote(next))))
    };
    let mut result: Option<DType> = None;
    for weight in [Weight::Tensor, Weight::ZeroDim, Weight::Number] {
        let Some(lower) = meet(weight) else { continue };
        let lower = lower?;
        result = Some(match result {
            Some(higher) if higher.category() >= lower.category() => higher,
            Some(higher) => higher.promote(lower)?,
            None => lower,
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::DType::{self, BF16, Bool, F8E4M3, F16, F32, F64, I32, I64, U8};
    use super::Weight::{self, Number, Tensor, ZeroDim};
    use super::{Scalar, result_type};

    #[test]
    fn types_meet_as_in_pytorch() {
        // torch.promote_types of each pair.
        for (a, b, want) in [
            (F32, F64, F64),
            (F16, BF16, F32),
            (F16, F32, F32),
            (BF16, F64, F64),
            (I64, F16, F16),
            (Bool, BF16, BF16),
            (U8, I32, I32),
            (I32, I64, I64),
            (Bool, U8, U8),
            (Bool, I64, I64),
        ] {
            assert_eq!((a.promote(b), b.promote(a)), (Some(want), Some(want)), "{a} and {b}");
        }
        for &a in DType::ALL {
            assert_eq!(a.promote(a), Some(a));
            assert_eq!(a.promote(F8E4M3).is_some(), a == F8E4M3);
        }
    }

    #[test]
    fn numbers_and_tensors_without_dimensions_give_way() {
        let cases: [(&[(DType, Weight)], DType); 12] = [
            (&[(F16, Tensor), (F32, Number)], F16),
            (&[(I32, Tensor), (I64, Number)], I32),
            (&[(I32, Tensor), (F32, Number)], F32),
            (&[(Bool, Tensor), (I64, Number)], I64),
            (&[(Bool, Tensor), (F32, Number)], F32),
            (&[(U8, Tensor), (Bool, Number)], U8),
            (&[(F16, Tensor), (F32, ZeroDim)], F16),
            (&[(F32, ZeroDim), (I64, Tensor)], F32),
            (&[(U8, Tensor), (I64, ZeroDim)], U8),
            (&[(F64, ZeroDim), (F16, ZeroDim)], F64),
            (&[(F16, Tensor), (BF16, Tensor), (F64, ZeroDim)], F32),
            (&[(I64, Number), (F32, Number)], F32),
        ];
        for (operands, want) in cases {
            assert_eq!(result_type(operands), Some(want), "{operands:?}");
        }
        assert_eq!(result_type(&[(F8E4M3, Tensor), (F32, Tensor)]), None);
        // An 8-bit float keeps its type with a number, as every float does.
        assert_eq!(result_type(&[(F8E4M3, Tensor), (F32, Number)]), Some(F8E4M3));
    }

    #[test]
    fn numbers_are_what_they_were() {
        assert_eq!(Scalar::from(2.5f32), Scalar::Float(2.5));
        assert_eq!((Scalar::from(-3).as_i64(), Scalar::from(-3).as_f64()), (-3, -3.0));
        assert_eq!((Scalar::from(2.9).as_i64(), Scalar::from(true).as_f64()), (2, 1.0));
        assert_eq!(Scalar::from(i64::MAX).as_i64(), i64::MAX);
    }
}
