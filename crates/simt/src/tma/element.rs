//! What copies do to single elements: fill, conversion on the way to shared memory, and reductions.

use num::{Rounding, bf16, f16, tf32_from_f32};

use crate::bulk::Reduction;
use crate::memory;
use crate::tensor_map::{DataType, Description, OobFill};

/// Combines the element at an address with a value, atomically.
///
/// # Safety
/// The element is readable and writable, and the value has its size.
pub(super) type Combine = unsafe fn(*mut u8, &[u8]);

/// What elements outside the tensor become; `None` for zeros.
pub(super) fn fill(map: &Description) -> Option<&'static [u8]> {
    const NAN_16: [u8; 2] = 0x7fff_u16.to_le_bytes();
    const NAN_32: [u8; 4] = 0x7fff_ffff_u32.to_le_bytes();
    const NAN_64: [u8; 8] = 0x7fff_ffff_ffff_ffff_u64.to_le_bytes();
    if map.oob_fill == OobFill::Zeros {
        return None;
    }
    match map.data_type.bytes() {
        2 => Some(&NAN_16),
        4 => Some(&NAN_32),
        8 => Some(&NAN_64),
        _ => None,
    }
}

/// Changes elements as the data type says: rounds to TF32, flushes subnormal numbers.
pub(super) fn convert(data_type: DataType, bytes: &mut [u8]) {
    let (flushes, rounds) = match data_type {
        DataType::F32Ftz => (true, false),
        DataType::TF32 => (false, true),
        DataType::TF32Ftz => (true, true),
        _ => return,
    };
    for bytes in bytes.chunks_exact_mut(size_of::<f32>()) {
        let mut value = f32::from_le_bytes(bytes.try_into().expect("chunks of 4"));
        if flushes && value.is_subnormal() {
            value = 0.0f32.copysign(value);
        }
        if rounds {
            value = tf32_from_f32(value, Rounding::NearestEven);
        }
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// How a reduction combines elements of a type; `None` where the hardware has no such reduction.
pub(super) fn combiner(data_type: DataType, reduction: Reduction) -> Option<Combine> {
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
            }
        };
    }
    macro_rules! halves {
        ($type:ty) => {
            match reduction {
                Reduction::Add => combine!($type, |a, b| <$type>::from_f32(a.to_f32() + b.to_f32())),
                Reduction::Min => combine!($type, <$type>::min),
                Reduction::Max => combine!($type, <$type>::max),
            }
        };
    }
    match (data_type, reduction) {
        (DataType::U32, _) => integers!(u32),
        (DataType::I32, _) => integers!(i32),
        (DataType::U64, _) => integers!(u64),
        (DataType::I64, Reduction::Min | Reduction::Max) => integers!(i64),
        (DataType::F16, _) => halves!(f16),
        (DataType::BF16, _) => halves!(bf16),
        (DataType::F32 | DataType::F32Ftz, Reduction::Add) => combine!(f32, |a, b| a + b),
        _ => None,
    }
}
