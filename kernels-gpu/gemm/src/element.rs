//! Element types that kernels name at run time, and where the elements of a matrix lie.

use cuda_std::{KernelArgs, convert};
use num::{E4M3, E5M2, bf16, f16};

/// Element types, as kernels' parameters name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Type {
    /// IEEE binary32.
    F32 = 0,
    /// IEEE binary16.
    F16 = 1,
    /// The high half of an f32.
    Bf16 = 2,
    /// OCP 8-bit float, up to 448.
    E4m3 = 3,
    /// OCP 8-bit float, up to 57344.
    E5m2 = 4,
}

/// Bytes of an element of the [`Type`] of this number: 4, 2, 2, 1, 1. By arithmetic, since a `match` becomes
/// a table in global memory, and the loads behind it wait for that.
#[inline(always)]
pub const fn bytes(ty: u32) -> u32 {
    4 >> ty.div_ceil(2)
}

/// A batch of matrices: where an element lies, in elements from the first.
#[derive(Debug, Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct Layout {
    /// A [`Type`].
    pub ty: u32,
    /// From a row to the next.
    pub row: u64,
    /// From a column to the next.
    pub column: u64,
    /// From a matrix to the next.
    pub batch: u64,
}

impl Layout {
    /// The layout of nothing.
    pub const NONE: Self = Self { ty: Type::F32 as u32, row: 0, column: 0, batch: 0 };
}

/// Element `index` from `base` on, widened.
///
/// # Safety
/// There is one of that [`Type`].
#[inline(always)]
pub(crate) unsafe fn load(base: *const u8, ty: u32, index: usize) -> f32 {
    // SAFETY: the caller's contract; device buffers are aligned for their elements.
    unsafe {
        match ty {
            0 => *base.cast::<f32>().add(index),
            1 => convert::f16_to_f32(*base.cast::<f16>().add(index)),
            2 => convert::bf16_to_f32(*base.cast::<bf16>().add(index)),
            3 => E4M3::from_bits(*base.add(index)).to_f32(),
            _ => E5M2::from_bits(*base.add(index)).to_f32(),
        }
    }
}

/// Rounds to the [`Type`] and stores it as element `index` from `base` on.
///
/// # Safety
/// There is one, which no other thread touches.
#[inline(always)]
pub(crate) unsafe fn store(base: *mut u8, ty: u32, index: usize, value: f32) {
    // SAFETY: the caller's contract; device buffers are aligned for their elements.
    unsafe {
        match ty {
            0 => *base.cast::<f32>().add(index) = value,
            1 => *base.cast::<f16>().add(index) = convert::f16_from_f32(value),
            2 => *base.cast::<bf16>().add(index) = convert::bf16_from_f32(value),
            3 => *base.add(index) = E4M3::from_f32(value).to_bits(),
            _ => *base.add(index) = E5M2::from_f32(value).to_bits(),
        }
    }
}
