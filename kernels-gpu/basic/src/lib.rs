//! The basic family: kernels whose time is that of moving their data once.
//!
//! | kernel | computes |
//! |---|---|
//! | [`saxpy`](mod@saxpy) | `y = a x + y` |
//! | [`reduce_sum`](mod@reduce), [`reduce_max`](mod@reduce) | one value from many |
//! | [`hash_bytes`](hash) | 64 bits that tell whether bytes are the same |
//! | [`transpose`](mod@transpose) | `[rows, columns]` to `[columns, rows]` |
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod hash;
pub mod reduce;
pub mod saxpy;
pub mod transpose;

use layout::UNIT_BYTES;

/// f32 elements of a 16-byte access.
const VECTOR: u32 = UNIT_BYTES / size_of::<f32>() as u32;

/// Whether `pointer` may be read and written 16 bytes at a time.
#[inline(always)]
fn is_aligned<T>(pointer: *const T) -> bool {
    (pointer as usize).is_multiple_of(UNIT_BYTES as usize)
}
