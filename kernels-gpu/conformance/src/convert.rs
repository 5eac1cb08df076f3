//! Conversions. 16-bit results are written as their codes.

use cuda_std::{convert, kernel, thread};
use num::{E4M3, E5M2, bf16, f16};

use crate::rows::Rows;

/// Rows of [`convert_to_halves()`].
pub const HALF_ROWS: usize = 4;

/// f32 to f16, f16 toward zero, bf16, bf16 toward zero.
///
/// # Safety
/// `out` has [`HALF_ROWS`] rows.
#[kernel]
pub unsafe fn convert_to_halves(x: &[f32], out: *mut u16) {
    let rows = Rows::new(out, x.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let x = *x.get_unchecked(i);
        rows.set(0, convert::f16_from_f32(x).to_bits());
        rows.set(1, convert::f16_from_f32_rz(x).to_bits());
        rows.set(2, convert::bf16_from_f32(x).to_bits());
        rows.set(3, convert::bf16_from_f32_rz(x).to_bits());
    }
}

/// Rows of [`convert_to_packed()`].
pub const PACKED_ROWS: usize = 6;

/// Pairs of f32 to packed f16 (nearest, toward zero, relu), then the same for bf16.
///
/// # Safety
/// As many elements in `high` as in `low`; `out` has [`PACKED_ROWS`] rows.
#[kernel]
pub unsafe fn convert_to_packed(low: &[f32], high: *const f32, out: *mut u32) {
    let rows = Rows::new(out, low.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let (low, high) = (*low.get_unchecked(i), *high.add(i));
        rows.set(0, convert::f16x2_from_f32(low, high));
        rows.set(1, convert::f16x2_from_f32_rz(low, high));
        rows.set(2, convert::f16x2_from_f32_relu(low, high));
        rows.set(3, convert::bf16x2_from_f32(low, high));
        rows.set(4, convert::bf16x2_from_f32_rz(low, high));
        rows.set(5, convert::bf16x2_from_f32_relu(low, high));
    }
}

/// Rows of [`convert_widen()`].
pub const WIDEN_ROWS: usize = 6;

/// Widens 16-bit codes, read as f16 and as bf16, singly and as the two halves of a register. Rows: f16, low
/// and high of packed f16, bf16, low and high of packed bf16.
///
/// # Safety
/// `out` has [`WIDEN_ROWS`] rows.
#[kernel]
pub unsafe fn convert_widen(codes: &[u16], out: *mut f32) {
    let rows = Rows::new(out, codes.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let code = *codes.get_unchecked(i);
        let register = u32::from(code) | u32::from(!code) << u16::BITS;
        rows.set(0, convert::f16_to_f32(f16::from_bits(code)));
        let [low, high] = convert::f16x2_to_f32(register);
        rows.set(1, low);
        rows.set(2, high);
        rows.set(3, convert::bf16_to_f32(bf16::from_bits(code)));
        let [low, high] = convert::bf16x2_to_f32(register);
        rows.set(4, low);
        rows.set(5, high);
    }
}

/// f32 to tf32 (the register's bits), i32 and i8 (as i32).
///
/// # Safety
/// Three rows, each one word wide.
#[kernel]
pub unsafe fn convert_to_words(x: &[f32], out: *mut u32) {
    let rows = Rows::new(out, x.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let x = *x.get_unchecked(i);
        rows.set(0, convert::tf32_from_f32(x));
        rows.set(1, convert::i32_from_f32(x).cast_unsigned());
        rows.set(2, i32::from(convert::i8_from_f32(x)).cast_unsigned());
    }
}

/// f32 to tf32 with ties to even.
///
/// # Safety
/// `out` has as many elements as `x`.
#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87", ironwarp_sm = "89")))]
#[kernel]
pub unsafe fn convert_to_tf32_rn(x: &[f32], out: *mut u32) {
    let rows = Rows::new(out, x.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe { rows.set(0, convert::tf32_from_f32_rn(*x.get_unchecked(i))) }
}

/// Pairs of f32 to packed E4M3 and E5M2, then the same from the pair rounded to f16.
///
/// # Safety
/// As many elements in `high` as in `low`; `out` has four rows.
#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
#[kernel]
pub unsafe fn convert_to_fp8(low: &[f32], high: *const f32, out: *mut u16) {
    let rows = Rows::new(out, low.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let (low, high) = (*low.get_unchecked(i), *high.add(i));
        let halves = convert::f16x2_from_f32(low, high);
        rows.set(0, convert::e4m3x2_from_f32(low, high));
        rows.set(1, convert::e5m2x2_from_f32(low, high));
        rows.set(2, convert::e4m3x2_from_f16x2(halves));
        rows.set(3, convert::e5m2x2_from_f16x2(halves));
    }
}

/// Pairs of 8-bit codes, read as E4M3 and as E5M2, to packed f16.
///
/// # Safety
/// `out` has two rows.
#[cfg(not(any(ironwarp_sm = "80", ironwarp_sm = "86", ironwarp_sm = "87")))]
#[kernel]
pub unsafe fn convert_widen_fp8(codes: &[u16], out: *mut u32) {
    let rows = Rows::new(out, codes.len());
    let Some(i) = rows.index() else { return };
    // SAFETY: `i < n`.
    unsafe {
        let codes = *codes.get_unchecked(i);
        rows.set(0, convert::f16x2_from_e4m3x2(codes));
        rows.set(1, convert::f16x2_from_e5m2x2(codes));
    }
}

/// Elements that a thread of [`convert_arrays()`] takes.
pub const ARRAY: usize = 16;

/// Rounds [`ARRAY`] numbers a thread to f16, bf16, E4M3 and E5M2 and widens them again. `out` gets the four
/// widened arrays of a thread one after the other; the fourth's last three elements are made of three.
///
/// # Safety
/// `x`, aligned to 16 bytes, has [`ARRAY`] elements for each thread, `out` four times as many.
#[kernel]
pub unsafe fn convert_arrays(x: &[f32], out: *mut f32) {
    /// There and back.
    fn rounded<T: convert::SmallFloat, const N: usize>(x: [f32; N]) -> [f32; N] {
        convert::to_f32(convert::from_f32::<T, N>(x))
    }
    let at = thread::index_1d() as usize * ARRAY;
    // SAFETY: in range for every thread.
    unsafe {
        let x: [f32; ARRAY] = core::array::from_fn(|i| *x.get_unchecked(at + i));
        let [.., a, b, c] = x;
        let [a, b, c] = rounded::<E5M2, 3>([a, b, c]);
        let mut last = rounded::<E5M2, ARRAY>(x);
        (last[ARRAY - 3], last[ARRAY - 2], last[ARRAY - 1]) = (a, b, c);
        let all = [rounded::<f16, ARRAY>(x), rounded::<bf16, ARRAY>(x), rounded::<E4M3, ARRAY>(x), last];
        for (row, values) in all.into_iter().enumerate() {
            out.add(4 * at + row * ARRAY).cast::<[f32; ARRAY]>().write(values);
        }
    }
}
