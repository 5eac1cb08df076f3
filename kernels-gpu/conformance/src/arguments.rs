//! Structs as kernel arguments.

use cuda_std::prelude::*;

/// A factor: the number, or the element that `from` points to.
#[derive(Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct Factor {
    /// The factor if `from` is null.
    pub number: f32,
    /// One element, or null.
    pub from: *const f32,
}

/// The argument of [`argument_struct()`]. It has padding, 16-bit and 64-bit numbers, an array and a nested
/// struct.
#[derive(Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct Affine {
    /// Number of elements.
    pub len: u16,
    /// `len` elements.
    pub x: *const f32,
    /// The factor of `x`.
    pub factor: Factor,
    /// One of them is added to each element, selected by the element's index modulo 3.
    pub offsets: [f32; 3],
    /// `len` elements, or null.
    pub residual: *const f64,
    /// `len` elements.
    pub y: *mut f32,
    /// Added to the bits of the last element.
    pub last: u64,
}

/// `y[i] = x[i] * factor + offsets[i % 3] + residual[i]`; `scale` multiplies all of it.
///
/// # Safety
/// The pointers are as the fields of [`Affine`] say.
#[kernel]
pub unsafe fn argument_struct(scale: f32, affine: Affine) {
    let i = thread::index_1d() as usize;
    if i >= affine.len as usize {
        return;
    }
    // SAFETY: `i < len`, and each thread has its own element.
    unsafe {
        let factor = if affine.factor.from.is_null() { affine.factor.number } else { *affine.factor.from };
        let residual = if affine.residual.is_null() { 0.0 } else { *affine.residual.add(i) as f32 };
        let offset = match i % 3 {
            0 => affine.offsets[0],
            1 => affine.offsets[1],
            _ => affine.offsets[2],
        };
        let value = scale * (*affine.x.add(i) * factor + offset + residual);
        let add = if i + 1 == affine.len as usize { affine.last as u32 } else { 0 };
        *affine.y.add(i) = f32::from_bits(value.to_bits() + add);
    }
}
