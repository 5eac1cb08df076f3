//! Devices, contexts, names of errors, peer access.

use crate::common::*;
use cust_raw::*;
use std::{
    ffi::{CStr, c_char},
    ptr::{null, null_mut},
};

fn attribute(gpu: &Gpu, number: CUdevice_attribute_enum) -> Result<i32, Failure> {
    let mut value = 0;
    ok!(cuDeviceGetAttribute(&mut value, number, gpu.device));
    Ok(value)
}

#[test]
fn initialising_again_is_allowed_and_flags_are_not() -> Check {
    let _gpu = Gpu::new()?;
    ok!(cuInit(0));
    fails!(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

#[test]
fn the_driver_tells_its_version() -> Check {
    let _gpu = Gpu::new()?;
    let mut version = 0;
    ok!(cuDriverGetVersion(&mut version));
    holds("CUDA 11 or newer", version >= 11_000)
}

#[test]
fn devices_are_counted_and_numbered() -> Check {
    let _gpu = Gpu::new()?;
    let (mut count, mut device) = (0, -1);
    ok!(cuDeviceGetCount(&mut count));
    holds("there is one", count >= 1)?;
    ok!(cuDeviceGet(&mut device, count - 1));
    fails!(cuDeviceGet(&mut device, count), CUDA_ERROR_INVALID_DEVICE);
    fails!(cuDeviceGet(&mut device, -1), CUDA_ERROR_INVALID_DEVICE);
    Ok(())
}

#[test]
fn a_device_has_a_name_that_is_cut_to_the_room() -> Check {
    let gpu = Gpu::new()?;
    let (mut long, mut short) = ([1 as c_char; 256], [1 as c_char; 4]);
    ok!(cuDeviceGetName(long.as_mut_ptr(), 256, gpu.device));
    ok!(cuDeviceGetName(short.as_mut_ptr(), 4, gpu.device));
    // SAFETY: the driver ends both with a NUL.
    let (long, short) = unsafe { (CStr::from_ptr(long.as_ptr()), CStr::from_ptr(short.as_ptr())) };
    equal("length of the short one", short.to_bytes().len(), 3)?;
    holds("it begins the long one", long.to_bytes().starts_with(short.to_bytes()))
}

#[test]
fn a_device_has_an_identity() -> Check {
    let gpu = Gpu::new()?;
    let mut id = CUuuid { bytes: [0; 16] };
    ok!(cuDeviceGetUuid(&mut id, gpu.device));
    holds("it is not zero", id.bytes.iter().any(|&byte| byte != 0))
}

#[test]
fn a_device_has_the_attributes_that_kernels_count_on() -> Check {
    use CUdevice_attribute_enum::*;
    let gpu = Gpu::new()?;
    equal("warp size", attribute(&gpu, CU_DEVICE_ATTRIBUTE_WARP_SIZE)?, 32)?;
    equal("threads a block", attribute(&gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?, 1024)?;
    equal("depth of a block", attribute(&gpu, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?, 64)?;
    equal("height of a grid", attribute(&gpu, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?, 65_535)?;
    equal("shared memory", attribute(&gpu, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?, 48 << 10)?;
    equal("unified addresses", attribute(&gpu, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)?, 1)?;
    equal("pools", attribute(&gpu, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?, 1)?;
    holds("multiprocessors", attribute(&gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? >= 1)?;
    holds("compute capability", attribute(&gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? >= 7)
}

#[test]
fn attributes_of_a_device_that_is_not_there_are_refused() -> Check {
    let _gpu = Gpu::new()?;
    let mut value = 0;
    fails!(
        cuDeviceGetAttribute(&mut value, CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 4711),
        CUDA_ERROR_INVALID_DEVICE
    );
    Ok(())
}

#[test]
fn without_a_context_nothing_can_be_allocated() -> Check {
    let gpu = Gpu::new()?;
    let mut address = 0;
    ok!(cuCtxSetCurrent(null_mut()));
    fails!(cuMemAlloc_v2(&mut address, 16), CUDA_ERROR_INVALID_CONTEXT);
    ok!(cuCtxSetCurrent(gpu.context));
    Ok(())
}

#[test]
fn contexts_are_a_stack() -> Check {
    let gpu = Gpu::new()?;
    let (mut other, mut current, mut popped) = (null_mut(), null_mut(), null_mut());
    ok!(cuCtxCreate_v2(&mut other, 0, gpu.device));
    ok!(cuCtxGetCurrent(&mut current));
    equal("the new one is current", current, other)?;
    ok!(cuCtxPopCurrent_v2(&mut popped));
    equal("popped", popped, other)?;
    ok!(cuCtxGetCurrent(&mut current));
    equal("the old one is back", current, gpu.context)?;
    ok!(cuCtxPushCurrent_v2(other));
    ok!(cuCtxDestroy_v2(other));
    ok!(cuCtxGetCurrent(&mut current));
    equal("the destroyed one is gone", current, gpu.context)
}

#[test]
fn retaining_gives_the_same_primary_context() -> Check {
    let gpu = Gpu::new()?;
    let mut again = null_mut();
    ok!(cuDevicePrimaryCtxRetain(&mut again, gpu.device));
    ok!(cuDevicePrimaryCtxRelease_v2(gpu.device));
    equal("context", again, gpu.context)?;
    let (mut flags, mut active) = (0, 0);
    ok!(cuDevicePrimaryCtxGetState(gpu.device, &mut flags, &mut active));
    equal("still active", active, 1)
}

#[test]
fn a_context_knows_its_device_and_version() -> Check {
    let gpu = Gpu::new()?;
    let (mut device, mut version) = (-1, 0);
    ok!(cuCtxGetDevice(&mut device));
    equal("device", device, gpu.device)?;
    ok!(cuCtxGetApiVersion(gpu.context, &mut version));
    holds("a version", version > 3000)
}

#[test]
fn limits_can_be_set() -> Check {
    let _gpu = Gpu::new()?;
    let limit = CUlimit_enum::CU_LIMIT_STACK_SIZE;
    let (mut before, mut after) = (0, 0);
    ok!(cuCtxGetLimit(&mut before, limit));
    ok!(cuCtxSetLimit(limit, 4096));
    ok!(cuCtxGetLimit(&mut after, limit));
    ok!(cuCtxSetLimit(limit, before));
    holds("at least what was asked for", after >= 4096)
}

fn text(
    get: unsafe extern "C" fn(CUresult, *mut *const c_char) -> CUresult,
    code: CUresult,
) -> Result<String, Failure> {
    let mut text = null();
    ok!(get(code, &mut text));
    // SAFETY: the driver gives static text with a NUL.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[test]
fn errors_have_names_and_descriptions() -> Check {
    use cudaError_enum::*;
    let _gpu = Gpu::new()?;
    for (code, name) in [
        (CUDA_SUCCESS, "CUDA_SUCCESS"),
        (CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"),
        (CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
        (CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"),
        (CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"),
    ] {
        equal("name", text(cuGetErrorName, code)?, name.to_owned())?;
        holds("a description", !text(cuGetErrorString, code)?.is_empty())?;
    }
    Ok(())
}

#[test]
fn a_device_is_no_peer_of_itself() -> Check {
    let gpu = Gpu::new()?;
    let mut can = -1;
    ok!(cuDeviceCanAccessPeer(&mut can, gpu.device, gpu.device));
    equal("access", can, 0)
}

#[test]
fn functions_are_found_by_name() -> Check {
    let _gpu = Gpu::new()?;
    holds("one that cust declares", ironwarp_driver::proc_address("cuMemAlloc_v2").is_some())?;
    holds("one that it does not", ironwarp_driver::proc_address("cuLaunchKernelEx").is_some())?;
    holds("one that nobody has", ironwarp_driver::proc_address("cuMakeCoffee").is_none())
}
