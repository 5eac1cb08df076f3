//! Reductions: how copies to global memory combine with its contents (`cp.reduce.async.bulk` and its tensor
//! form).

use num::{bf16, f16};

use crate::memory;
use crate::tensor_map::DataType;

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
        (DataType::F32 | DataType::F32Ftz, Reduction::Add) => combine!(f32, |a, b| a + b),
        (DataType::F64, Reduction::Add) => combine!(f64, |a, b| a + b),
        _ => None,
    }
}
