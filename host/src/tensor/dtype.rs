//! Element types of tensors.

use std::fmt;

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
use num::{E4M3, E5M2};

mod sealed {
    pub trait Sealed {}
}

/// The table of element types. A row: name, Rust type, name in messages, bytes, and whether it holds
/// fractions.
macro_rules! types {
    ($($(#[$doc:meta])* $name:ident: $ty:ty, $text:literal, $size:literal, $is_float:literal;)*) => {
        /// The type of a tensor's elements.
        ///
        /// TF32 is no element type: it is how tensor cores read f32, a property of a computation and not of
        /// memory.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DType {
            $($(#[$doc])* $name,)*
        }

        impl DType {
            /// Every element type.
            pub const ALL: &'static [DType] = &[$(DType::$name),*];

            /// Bytes of an element.
            pub const fn size(self) -> usize {
                match self {
                    $(DType::$name => $size,)*
                }
            }

            /// Does it hold fractions?
            pub const fn is_float(self) -> bool {
                match self {
                    $(DType::$name => $is_float,)*
                }
            }
        }

        impl fmt::Display for DType {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(DType::$name => $text,)*
                })
            }
        }

        $(
            impl sealed::Sealed for $ty {}
            impl Element for $ty {
                const DTYPE: DType = DType::$name;
            }
        )*
    };
}

types! {
    /// IEEE binary64.
    F64: f64, "f64", 8, true;
    /// IEEE binary32.
    F32: f32, "f32", 4, true;
    /// IEEE binary16.
    F16: f16, "f16", 2, true;
    /// The high half of an f32.
    BF16: bf16, "bf16", 2, true;
    /// OCP 8-bit float, 4 exponent and 3 mantissa bits: up to 448, no infinity.
    F8E4M3: E4M3, "f8_e4m3", 1, true;
    /// OCP 8-bit float, 5 exponent and 2 mantissa bits: up to 57344, with infinity.
    F8E5M2: E5M2, "f8_e5m2", 1, true;
    /// Signed 64-bit integer.
    I64: i64, "i64", 8, false;
    /// Signed 32-bit integer.
    I32: i32, "i32", 4, false;
    /// Unsigned 8-bit integer.
    U8: u8, "u8", 1, false;
    /// A byte that is 0 or 1.
    Bool: bool, "bool", 1, false;
}

/// A Rust type that is the element type of tensors: `f64`, `f32`, `f16`, `bf16`, [`E4M3`], [`E5M2`], `i64`,
/// `i32`, `u8`, `bool`.
pub trait Element: NoUninit + CheckedBitPattern + Send + Sync + sealed::Sealed {
    /// Its name at run time.
    const DTYPE: DType;
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
