//! Element types of tensors.

use std::fmt;

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
use num::{E4M3, E5M2};

mod sealed {
    pub trait Sealed {}
}

/// The type of a tensor's elements.
///
/// TF32 is no element type: it is how tensor cores read f32, a property of a computation and not of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The high half of an f32.
    BF16,
    /// OCP 8-bit float, 4 exponent and 3 mantissa bits: up to 448, no infinity.
    F8E4M3,
    /// OCP 8-bit float, 5 exponent and 2 mantissa bits: up to 57344, with infinity.
    F8E5M2,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 8-bit integer.
    U8,
    /// A byte that is 0 or 1.
    Bool,
}

impl DType {
    /// Every element type.
    pub const ALL: [DType; 10] = [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::I64,
        DType::I32,
        DType::U8,
        DType::Bool,
    ];

    /// Bytes of an element.
    pub const fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::F8E4M3 | DType::F8E5M2 | DType::U8 | DType::Bool => 1,
        }
    }

    /// Does it hold fractions?
    pub const fn is_float(self) -> bool {
        !matches!(self, DType::I64 | DType::I32 | DType::U8 | DType::Bool)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F8E4M3 => "f8_e4m3",
            DType::F8E5M2 => "f8_e5m2",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        })
    }
}

/// A Rust type that is the element type of tensors: `f64`, `f32`, `f16`, `bf16`, [`E4M3`], [`E5M2`], `i64`, `i32`, `u8`, `bool`.
pub trait Element: NoUninit + CheckedBitPattern + Send + Sync + sealed::Sealed {
    /// Its name at run time.
    const DTYPE: DType;
}

macro_rules! element {
    ($($ty:ty = $dtype:ident;)*) => { $(
        impl sealed::Sealed for $ty {}
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }
    )* };
}

element! {
    f64 = F64;
    f32 = F32;
    f16 = F16;
    bf16 = BF16;
    E4M3 = F8E4M3;
    E5M2 = F8E5M2;
    i64 = I64;
    i32 = I32;
    u8 = U8;
    bool = Bool;
}

#[cfg(test)]
mod tests {
    use super::{DType, Element};

    fn size_agrees<T: Element>() {
        assert_eq!(size_of::<T>(), T::DTYPE.size(), "{}", T::DTYPE);
    }

    #[test]
    fn sizes_are_those_of_the_rust_types() {
        size_agrees::<f64>();
        size_agrees::<f32>();
        size_agrees::<half::f16>();
        size_agrees::<half::bf16>();
        size_agrees::<num::E4M3>();
        size_agrees::<num::E5M2>();
        size_agrees::<i64>();
        size_agrees::<i32>();
        size_agrees::<u8>();
        size_agrees::<bool>();
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<String> = DType::ALL.iter().map(DType::to_string).collect();
        assert_eq!(names.len(), DType::ALL.len());
    }
}
