//! Element types: what the tensor cores multiply, and what lies in memory; units of 16 bytes of them.

use cuda_std::async_copy;
use half::{bf16, f16};
use layout::UNIT_BYTES;
use primitives::element::Element;
use primitives::mma::{self, Bf16, F16, Tf32};

/// A type that tensor cores multiply.
pub(crate) trait Multiplied: mma::Element {
    /// The type in memory.
    type Stored: Element<Wide = f32>;
}

impl Multiplied for F16 {
    type Stored = f16;
}

impl Multiplied for Bf16 {
    type Stored = bf16;
}

impl Multiplied for Tf32 {
    type Stored = f32;
}

/// Starts the copy of the unit whose first element is `place` from `base` on, to the shared address `to`;
/// zeros where there is none.
///
/// # Safety
/// A unit that there is begins at a multiple of 16 bytes and is readable. Nobody else uses the 16 bytes at
/// `to`.
#[inline(always)]
pub(crate) unsafe fn copy_unit<T>(to: u32, base: *const T, place: Option<u64>) {
    let from = base.wrapping_add(place.unwrap_or(0) as usize);
    // SAFETY: the caller's word; where there is no unit, nothing is read.
    unsafe { async_copy::copy_cg_zfill(to, from, if place.is_some() { UNIT_BYTES } else { 0 }) }
}
