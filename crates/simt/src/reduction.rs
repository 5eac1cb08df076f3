//! Reductions: how copies to global memory combine with its contents (`cp.reduce.async.bulk` and its tensor
//! form).

use num::{bf16, f16};

use crate::memory;
use crate::tensor_map::DataType;
use crate::tma::flush;

/// How a copy combines its elements with those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Adds the two.
    Add,
    /// Keeps the smaller.
    Min,
    /// Keeps the larger.
    Max,
    /// Counts up by one, from the element of the copy to 0.
    Inc,
    /// Counts down by one, from 0 or above the element of the copy to that element.
    Dec,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Self; 8] =
        [Self::Add, Self::Min, Self::Max, Self::Inc, Self::Dec, Self::And, Self::Or, Self::Xor];
}

/// Combines the element at an address with a value, atomically.
///
/// # Safety
/// The element is readable and writable, and the value has its size.
pub(crate) type Combine = unsafe fn(*mut u8, &[u8]);

/// How a reduction combines elements of a type; `None` where the hardware has no such reduction.
pub(crate) fn combiner(data_type: DataType, reduction: Reduction) -> Option<Combine> {
    macro_rules! combine {
        ($type:ty, $f:expr) => {{
            /// # Safety
            /// As [`Combine`].
            unsafe fn combine(to: *mut u8, value: &[u8]) {
                // SAFETY: the caller vouches for the element and for the size of the value.
                unsafe {
                    let value = value.as_ptr().cast::<$type>().read_unaligned();
                    let f: fn($type, $type) -> $type = $f;
                    memory::update(to.cast::<$type>(), |old| f(old, value));
                }
            }
            Some(combine as Combine)
        }};
    }
    macro_rules! integers {
        ($type:ty) => {
            match reduction {
                Reduction::Add => combine!($type, <$type>::wrapping_add),
                Reduction::Min => combine!($type, Ord::min),
                Reduction::Max => combine!($type, Ord::max),
                Reduction::And => combine!($type, |a, b| a & b),
                Reduction::Or => combine!($type, |a, b| a | b),
                Reduction::Xor => combine!($type, |a, b| a ^ b),
                Reduction::Inc | Reduction::Dec => None,
            }
        };
    }
    macro_rules! halves {
        ($type:ty) => {
            match reduction {
                Reduction::Add => combine!($type, |a, b| <$type>::from_f32(a.to_f32() + b.to_f32())),
                Reduction::Min => combine!($type, <$type>::min),
                Reduction::Max => combine!($type, <$type>::max),
                _ => None,
            }
        };
    }
    match (data_type, reduction) {
        (DataType::U32, Reduction::Inc) => combine!(u32, |a, b| if a >= b { 0 } else { a + 1 }),
        (DataType::U32, Reduction::Dec) => combine!(u32, |a, b| if a == 0 || a > b { b } else { a - 1 }),
        (DataType::U32, _) => integers!(u32),
        (DataType::I32, _) => integers!(i32),
        (DataType::U64, _) => integers!(u64),
        (DataType::I64, Reduction::Min | Reduction::Max) => integers!(i64),
        (DataType::F16, _) => halves!(f16),
        (DataType::BF16, _) => halves!(bf16),
        // Unlike `atom` and `red` in global memory, copies keep subnormal numbers (seen on an H200).
        (DataType::F32, Reduction::Add) => combine!(f32, |a, b| a + b),
        (DataType::F32Ftz, Reduction::Add) => combine!(f32, |a, b| flush(flush(a) + flush(b))),
        (DataType::F64, Reduction::Add) => combine!(f64, |a, b| a + b),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnormal_numbers_are_flushed_by_the_type_that_says_so() {
        // The element, the summand, the sum, and the sum by `F32Ftz`: as an H200 has them.
        let cases: [[f32; 4]; 4] = [
            [0.0, 1e-40, 1e-40, 0.0],
            [1.2e-38, -1e-39, 1.2e-38 - 1e-39, 1.2e-38],
            [-1.2e-38, 1.18e-38, -1.2e-38 + 1.18e-38, -0.0],
            [-1e-40, -1e-40, -1e-40 - 1e-40, -0.0],
        ];
        for [there, added, sum, flushed] in cases {
            for (data_type, expected) in [(DataType::F32, sum), (DataType::F32Ftz, flushed)] {
                let mut value = there;
                let combine = combiner(data_type, Reduction::Add).unwrap();
                // SAFETY: the element is an `f32`, as the value is.
                unsafe { combine((&raw mut value).cast(), &added.to_ne_bytes()) };
                let bits = (value.to_bits(), expected.to_bits());
                assert_eq!(bits.0, bits.1, "{there:e} + {added:e} as {data_type:?} is {value:e}");
            }
        }
    }
}
