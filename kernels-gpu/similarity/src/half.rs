//! The 16-bit element types of the kernels, and loads of their vectors.
//!
//! A *piece* is 16 bytes of a row, 8 elements: what one lane loads with one instruction. Rows whose length is
//! a multiple of 8, in a matrix that begins on a 16-byte boundary, are read so ([`Aligned`]); any others
//! element by element ([`Unaligned`]). Elements past the end of a row read as zero, which changes neither dot
//! products nor norms.

use cuda_std::{mma, vector};
pub use num::{bf16, f16};

/// Elements of a piece.
pub const PIECE: u32 = 8;
/// Bytes of a piece.
pub const PIECE_BYTES: u32 = PIECE * ELEMENT_BYTES;
/// Bytes of an element.
pub const ELEMENT_BYTES: u32 = 2;

/// A 16-bit floating-point type that the tensor cores multiply.
pub trait Half: Copy + 'static {
    /// 16x8 += 16x16 * 16x8, summed in f32.
    ///
    /// # Safety
    /// The whole warp calls it together, as [`cuda_std::mma`] says.
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4];
}

impl Half for f16 {
    #[inline(always)]
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's contract.
        unsafe { mma::m16n8k16_f32_f16(a, b, c) }
    }
}

impl Half for bf16 {
    #[inline(always)]
    unsafe fn mma(a: [u32; 4], b: [u32; 2], c: [f32; 4]) -> [f32; 4] {
        // SAFETY: the caller's contract.
        unsafe { mma::m16n8k16_f32_bf16(a, b, c) }
    }
}

/// Whether pieces of rows of `dim` elements from `base` on can be read whole.
#[inline(always)]
pub fn is_aligned<T>(base: *const T, dim: u32) -> bool {
    dim.is_multiple_of(PIECE) && (base as usize).is_multiple_of(PIECE_BYTES as usize)
}

/// How pieces are read.
pub trait Access {
    /// Whether a piece is one 16-byte access.
    const WHOLE: bool;

    /// Elements `k..k + 8` of the row of `dim` elements at `row`, two to a word; zeros from `dim` on.
    ///
    /// # Safety
    /// The row is readable global memory that nothing writes, and aligned as the implementor needs it.
    unsafe fn piece<T: Half>(row: *const T, k: u32, dim: u32) -> [u32; 4];
}

/// Pieces by 16-byte loads: [`is_aligned`] holds.
pub struct Aligned;

impl Access for Aligned {
    const WHOLE: bool = true;

    #[inline(always)]
    unsafe fn piece<T: Half>(row: *const T, k: u32, dim: u32) -> [u32; 4] {
        if k < dim {
            // SAFETY: `dim` is a multiple of 8 and so is `k`, so that the whole piece lies inside the row.
            unsafe { vector::load_stream_v4(row.add(k as usize).cast()) }
        } else {
            [0; 4]
        }
    }
}

/// Pieces by 2-byte loads: any rows.
pub struct Unaligned;

impl Access for Unaligned {
    const WHOLE: bool = false;

    #[inline(always)]
    unsafe fn piece<T: Half>(row: *const T, k: u32, dim: u32) -> [u32; 4] {
        let element = |i: u32| {
            // SAFETY: `i < dim`, inside the row.
            if i < dim { unsafe { vector::load_nc_b16(row.add(i as usize).cast()) as u32 } } else { 0 }
        };
        let pair = |i: u32| element(k + i) | element(k + i + 1) << 16;
        [pair(0), pair(2), pair(4), pair(6)]
    }
}
