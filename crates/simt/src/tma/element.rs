//! Operations of copies on single elements: fill, and conversion on the way to shared memory.

use num::{Rounding, tf32_from_f32};

use crate::tensor_map::{DataType, Description, OobFill};

/// The value of elements outside the tensor; `None` for zeros.
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

/// Converts elements as the data type requires: rounds to TF32, flushes subnormal numbers.
pub(super) fn convert(data_type: DataType, bytes: &mut [u8]) {
    let (flushes, rounds) = match data_type {
        DataType::F32Ftz => (true, false),
        DataType::TF32 => (false, true),
        DataType::TF32Ftz => (true, true),
        _ => return,
    };
    for bytes in bytes.chunks_exact_mut(size_of::<f32>()) {
        let mut value = f32::from_le_bytes(bytes.try_into().expect("chunks of 4"));
        if flushes {
            value = flush(value);
        }
        if rounds {
            value = tf32_from_f32(value, Rounding::NearestEven);
        }
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// Zero with the sign of `value` in place of a subnormal number.
pub(crate) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}
