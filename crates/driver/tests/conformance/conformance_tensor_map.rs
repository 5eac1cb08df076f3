//! `cuTensorMapEncodeTiled`: each rule of its documentation, one at a time.

use crate::common::*;
use cust_raw::*;
use std::ffi::c_void;

type EncodeTiled = unsafe extern "C" fn(
    *mut Map,
    u32,
    u32,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    u32,
    u32,
    u32,
    u32,
) -> u32;

/// `CUtensorMap`.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Map([u64; 16]);

const UNTOUCHED: u64 = 0x5a5a_5a5a_5a5a_5a5a;
const INVALID_VALUE: u32 = 1;

/// `CU_TENSOR_MAP_*`.
const U8: u32 = 0;
const U16: u32 = 1;
const F32: u32 = 7;
const F64: u32 = 8;
const BF16: u32 = 9;
const TF32_FTZ: u32 = 12;
const INTERLEAVE_16B: u32 = 1;
const INTERLEAVE_32B: u32 = 2;
const SWIZZLE_32B: u32 = 1;
const SWIZZLE_64B: u32 = 2;
const SWIZZLE_128B: u32 = 3;
const PROMOTION_256B: u32 = 3;
const FILL_NAN: u32 = 1;

#[derive(Clone, Copy)]
struct Call {
    data_type: u32,
    rank: u32,
    address: u64,
    dims: [u64; 5],
    strides: [u64; 4],
    box_dims: [u32; 5],
    element_strides: [u32; 5],
    interleave: u32,
    swizzle: u32,
    l2_promotion: u32,
    oob_fill: u32,
}

/// A row-major matrix of 50 x 100 bf16 with padded rows, and boxes of 128 x 64.
fn matrix() -> Call {
    Call {
        data_type: BF16,
        rank: 2,
        address: 0,
        dims: [100, 50, 1, 1, 1],
        strides: [208, 0, 0, 0],
        box_dims: [64, 128, 1, 1, 1],
        element_strides: [1; 5],
        interleave: 0,
        swizzle: SWIZZLE_128B,
        l2_promotion: 0,
        oob_fill: 0,
    }
}

/// Four images of 20 x 30 pixels, 16 channels in a slice.
fn image() -> Call {
    Call {
        rank: 4,
        dims: [16, 30, 20, 4, 1],
        strides: [32, 960, 19200, 0],
        box_dims: [16, 8, 8, 1, 1],
        interleave: INTERLEAVE_32B,
        swizzle: SWIZZLE_32B,
        ..matrix()
    }
}

impl Call {
    /// Encodes a map for memory at `base`. Returns the code, and whether the map was written.
    fn make(self, base: CUdeviceptr) -> Result<(u32, bool), Failure> {
        let address =
            ironwarp_driver::proc_address("cuTensorMapEncodeTiled").ok_or("the function is missing")?;
        // SAFETY: the driver's function of that name has this type.
        let encode: EncodeTiled = unsafe { std::mem::transmute(address) };
        let mut map = Map([UNTOUCHED; 16]);
        // SAFETY: lists of five elements, the most that a map can have, and room for a map.
        let code = unsafe {
            encode(
                &mut map,
                self.data_type,
                self.rank,
                (base + self.address) as *mut c_void,
                self.dims.as_ptr(),
                self.strides.as_ptr(),
                self.box_dims.as_ptr(),
                self.element_strides.as_ptr(),
                self.interleave,
                self.swizzle,
                self.l2_promotion,
                self.oob_fill,
            )
        };
        Ok((code, map.0 != [UNTOUCHED; 16]))
    }
}

/// Tensor maps need compute capability 9.0.
fn has_tensor_maps(gpu: &Gpu) -> Result<bool, Failure> {
    let mut major = 0;
    let number = CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    ok!(cuDeviceGetAttribute(&mut major, number, gpu.device));
    Ok(major >= 9)
}

type Change = fn(&mut Call);

/// Makes each of the calls. Each must return `wanted`, and a call that succeeds must write the map.
fn each(start: Call, changes: &[(&str, Change)], wanted: u32) -> Check {
    let gpu = Gpu::new()?;
    if !has_tensor_maps(&gpu)? {
        testkit::skip("the device has no TMA");
        return Ok(());
    }
    let buffer = gpu.buffer(1 << 16)?;
    let mut wrong = Vec::new();
    for (what, change) in changes {
        let mut call = start;
        change(&mut call);
        let (code, written) = call.make(buffer.address)?;
        if code != wanted || (code == 0 && !written) {
            wrong.push(format!("{what}: {code}, {}", if written { "written" } else { "untouched" }));
        }
    }
    equal("calls that answer otherwise", wrong, Vec::new())
}

#[test]
fn what_the_rules_allow_is_encoded() -> Check {
    const ENCODED: u32 = 0;
    each(
        matrix(),
        &[
            ("a matrix", |_| ()),
            ("a vector", |c| c.rank = 1),
            ("five dimensions", |c| (c.rank, c.strides) = (5, [208, 10400, 10400, 10400])),
            ("strides out of order", |c| (c.rank, c.dims[2], c.strides) = (3, 13, [10400, 208, 0, 0])),
            ("the largest sizes", |c| (c.dims, c.strides[0]) = ([1 << 32; 5], (1 << 40) - 16)),
            ("the largest box", |c| c.box_dims[1] = 256),
            ("the smallest box", |c| (c.box_dims, c.swizzle) = ([8, 1, 1, 1, 1], SWIZZLE_32B)),
            ("a wide box without a swizzle", |c| (c.box_dims[0], c.swizzle) = (256, 0)),
            ("a box narrower than the swizzle", |c| c.box_dims[0] = 32),
            ("steps of 8", |c| c.element_strides = [1, 8, 1, 1, 1]),
            ("promotion", |c| c.l2_promotion = PROMOTION_256B),
            ("NaN fill", |c| c.oob_fill = FILL_NAN),
            ("bytes", |c| (c.data_type, c.box_dims[0]) = (U8, 128)),
            ("f32", |c| (c.data_type, c.box_dims[0]) = (F32, 32)),
            ("f64", |c| (c.data_type, c.box_dims[0]) = (F64, 16)),
            ("tf32", |c| (c.data_type, c.box_dims[0]) = (TF32_FTZ, 32)),
        ],
        ENCODED,
    )?;
    each(image(), &[("an image in slices of 32 bytes", |_| ())], ENCODED)
}

#[test]
fn what_breaks_a_rule_is_an_invalid_value() -> Check {
    const REFUSED: u32 = INVALID_VALUE;
    each(
        matrix(),
        &[
            ("no dimension", |c| c.rank = 0),
            ("six dimensions", |c| c.rank = 6),
            ("an unknown type", |c| c.data_type = 1000),
            ("an address of 8 bytes", |c| c.address = 8),
            ("an empty inner dimension", |c| c.dims[0] = 0),
            ("an empty outer dimension", |c| c.dims[1] = 0),
            ("a dimension above 2^32", |c| c.dims[1] = (1 << 32) + 1),
            ("a stride of 8 bytes", |c| c.strides[0] = 200),
            ("a stride of 2^40", |c| c.strides[0] = 1 << 40),
            ("an empty box", |c| c.box_dims[1] = 0),
            ("a box of 257", |c| c.box_dims[1] = 257),
            ("an inner row of 24 bytes", |c| c.box_dims[0] = 12),
            ("wider than the swizzle of 128", |c| c.box_dims[0] = 72),
            ("wider than the swizzle of 64", |c| c.swizzle = SWIZZLE_64B),
            ("wider than the swizzle of 32", |c| c.swizzle = SWIZZLE_32B),
            ("a step of 0", |c| c.element_strides[1] = 0),
            ("a step of 9", |c| c.element_strides[1] = 9),
            ("an unknown interleave", |c| c.interleave = 1000),
            ("an unknown swizzle", |c| c.swizzle = 1000),
            ("an unknown promotion", |c| c.l2_promotion = 1000),
            ("an unknown fill", |c| c.oob_fill = 1000),
            ("NaN for integers", |c| (c.data_type, c.oob_fill) = (U16, FILL_NAN)),
            ("interleave with two dimensions", |c| (c.interleave, c.swizzle) = (INTERLEAVE_16B, 0)),
        ],
        REFUSED,
    )?;
    each(
        image(),
        &[
            ("an address of 16 bytes", |c| c.address = 16),
            ("a stride of 16 bytes", |c| c.strides[1] += 16),
            // Not tested: slices of 32 bytes without their swizzle. The manual forbids them, and NVIDIA's
            // driver (580) encodes them.
        ],
        REFUSED,
    )
}

#[test]
fn null_lists_are_invalid_values() -> Check {
    let gpu = Gpu::new()?;
    if !has_tensor_maps(&gpu)? {
        testkit::skip("the device has no TMA");
        return Ok(());
    }
    let address = ironwarp_driver::proc_address("cuTensorMapEncodeTiled").ok_or("the function is missing")?;
    // SAFETY: the driver's function of that name has this type.
    let encode: EncodeTiled = unsafe { std::mem::transmute(address) };
    let call = matrix();
    let mut map = Map([UNTOUCHED; 16]);
    for missing in 0..4 {
        let list = |index: usize, list: *const u32| if index == missing { std::ptr::null() } else { list };
        let dims = if missing == 2 { std::ptr::null() } else { call.dims.as_ptr() };
        let strides = if missing == 3 { std::ptr::null() } else { call.strides.as_ptr() };
        let (box_dims, steps) = (list(0, call.box_dims.as_ptr()), list(1, call.element_strides.as_ptr()));
        let memory = std::ptr::null_mut();
        // SAFETY: lists of enough elements, or null.
        let code = unsafe {
            encode(&mut map, BF16, 2, memory, dims, strides, box_dims, steps, 0, SWIZZLE_128B, 0, 0)
        };
        equal("the code", code, INVALID_VALUE)?;
    }
    Ok(())
}
