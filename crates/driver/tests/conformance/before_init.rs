//! Calls before `cuInit`: a process of its own, since the driver is loaded once.

use cust_raw::*;
use ironwarp_driver as _;
use std::convert::Infallible;
use std::ffi::CStr;

#[test]
fn calls_before_cu_init_answer_not_initialised_and_errors_have_names() -> Result<(), Infallible> {
    testkit::own_process!();
    let mut count = -1;
    // SAFETY: an out-pointer to a live variable.
    assert_eq!(unsafe { cuDeviceGetCount(&mut count) }, cudaError_enum::CUDA_ERROR_NOT_INITIALIZED);
    assert_eq!(count, -1);
    let mut text = std::ptr::null();
    let code = cudaError_enum::CUDA_ERROR_NOT_INITIALIZED;
    // SAFETY: an out-pointer to a live variable; the text is static.
    let name = unsafe {
        assert_eq!(cuGetErrorName(code, &mut text), cudaError_enum::CUDA_SUCCESS);
        CStr::from_ptr(text)
    };
    assert_eq!(name.to_str(), Ok("CUDA_ERROR_NOT_INITIALIZED"));
    assert_eq!(ironwarp_driver::init_error(), None);
    // SAFETY: this is the only test of its process. Other threads read the environment only through std,
    // which locks it.
    unsafe { std::env::set_var("IRONWARP_DRIVER", "soft") };
    // SAFETY: an out-pointer to a live variable; the other calls have no arguments to keep.
    unsafe {
        assert_eq!(cuInit(0), cudaError_enum::CUDA_SUCCESS);
        assert_eq!(cuDeviceGetCount(&mut count), cudaError_enum::CUDA_SUCCESS);
        // The software driver lacks this function.
        assert_eq!(cuMemRelease(0), cudaError_enum::CUDA_ERROR_NOT_SUPPORTED);
    }
    assert_eq!(count, 1);
    assert_eq!(ironwarp_driver::backend(), Ok(ironwarp_driver::Backend::Software));
    Ok(())
}
