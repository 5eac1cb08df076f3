//! Tensor maps: the rules of the real driver, and the encoding of the executor.

use super::{api, state::Outcome, take};
use crate::{
    code,
    tensor_map::{DataType, Description, Interleave, L2Promotion, MAX_RANK, OobFill, Pixels, Swizzle, check},
};
use core::ffi::{c_int, c_uint, c_void};

/// The first `count` elements of a list; `filler` for the rest.
///
/// # Safety
/// `list` is null or valid for reads of `count` elements.
unsafe fn read<T: Copy, const N: usize>(list: *const T, count: usize, filler: T) -> Outcome<[T; N]> {
    let mut read = [filler; N];
    for (index, element) in read.iter_mut().enumerate().take(count) {
        // SAFETY: this function's contract; a null list is an error before it is read, at index 0.
        *element = unsafe { take(list.wrapping_add(index)) }?;
    }
    Ok(read)
}

fn known<T>(mode: Option<T>) -> Outcome<T> {
    mode.ok_or(code::INVALID_VALUE)
}

api! {
    fn cuTensorMapEncodeTiled(
        driver, map: *mut [u64; simt::tensor_map::WORDS], data_type: c_uint, rank: c_uint, address: *mut c_void,
        dims: *const u64, strides: *const u64, box_dims: *const c_uint, element_strides: *const c_uint,
        interleave: c_uint, swizzle: c_uint, l2_promotion: c_uint, oob_fill: c_uint,
    ) {
        driver.enter()?;
        let axes = rank as usize;
        if map.is_null() || !(1..=MAX_RANK).contains(&axes) {
            return Err(code::INVALID_VALUE);
        }
        let description = Description {
            address: address as u64,
            data_type: known(DataType::from_code(data_type))?,
            rank,
            dims: read(dims, axes, 1)?,
            strides: read(strides, axes - 1, 0)?,
            box_dims: read(box_dims, axes, 1)?,
            element_strides: read(element_strides, axes, 1)?,
            interleave: known(Interleave::from_code(interleave))?,
            swizzle: known(Swizzle::from_code(swizzle))?,
            l2_promotion: known(L2Promotion::from_code(l2_promotion))?,
            oob_fill: known(OobFill::from_code(oob_fill))?,
            pixels: None,
        };
        write(map, &description)
    }

    fn cuTensorMapEncodeIm2col(
        driver, map: *mut [u64; simt::tensor_map::WORDS], data_type: c_uint, rank: c_uint, address: *mut c_void,
        dims: *const u64, strides: *const u64, lower: *const c_int, upper: *const c_int, channels: c_uint,
        pixels: c_uint, element_strides: *const c_uint, interleave: c_uint, swizzle: c_uint,
        l2_promotion: c_uint, oob_fill: c_uint,
    ) {
        driver.enter()?;
        let axes = rank as usize;
        if map.is_null() || !(3..=MAX_RANK).contains(&axes) {
            return Err(code::INVALID_VALUE);
        }
        let description = Description {
            address: address as u64,
            data_type: known(DataType::from_code(data_type))?,
            rank,
            dims: read(dims, axes, 1)?,
            strides: read(strides, axes - 1, 0)?,
            box_dims: [channels, pixels, 1, 1, 1],
            element_strides: read(element_strides, axes, 1)?,
            interleave: known(Interleave::from_code(interleave))?,
            swizzle: known(Swizzle::from_code(swizzle))?,
            l2_promotion: known(L2Promotion::from_code(l2_promotion))?,
            oob_fill: known(OobFill::from_code(oob_fill))?,
            pixels: Some(Pixels { lower: read(lower, axes - 2, 0)?, upper: read(upper, axes - 2, 0)? }),
        };
        write(map, &description)
    }
}

/// Writes the map of a description that keeps all rules.
///
/// # Safety
/// `map` is valid for the write of a map.
unsafe fn write(map: *mut [u64; simt::tensor_map::WORDS], description: &Description) -> Outcome<()> {
    check(description).map_err(|_| code::INVALID_VALUE)?;
    // NVIDIA's driver does not check the map's alignment either. The instruction that uses the map checks it.
    // SAFETY: this function's contract.
    unsafe { map.write_unaligned(simt::tensor_map::encode(description)) };
    Ok(())
}
