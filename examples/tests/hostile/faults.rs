//! Driver calls that fail, by the rules of `IRONWARP_FAULT`.

use crate::{FOUND, library, search};

/// Rules, each with the exit code and a part of the message.
const RULES: &[(&str, i32, &str)] = &[
    // No rules.
    (":", 1, "FUNCTION:NTH:CODE"),
    (":::", 1, "FUNCTION:NTH:CODE"),
    (",", 1, "FUNCTION:NTH:CODE"),
    ("cuMemAlloc_v2", 1, "FUNCTION:NTH:CODE"),
    ("cuMemAlloc_v2:1", 1, "FUNCTION:NTH:CODE"),
    ("cuMemAlloc_v2:one:2", 1, "FUNCTION:NTH:CODE"),
    ("cuMemAlloc_v2:-1:2", 1, "FUNCTION:NTH:CODE"),
    ("cuMemAlloc_v2:18446744073709551616:2", 1, "FUNCTION:NTH:CODE"),
    ("cuMemAlloc_v2:1:2:never", 1, "FUNCTION:NTH:CODE"),
    ("cuMemAlloc_v2:1:2:always:always", 1, "FUNCTION:NTH:CODE"),
    ("cuMemAlloc_v2:0:2", 1, "calls are counted from 1"),
    ("cuMemAlloc_v2:1:0", 1, "cannot be made to fail with code 0"),
    ("cuMemAlloc_v2:1:12345", 1, "IRONWARP_FAULT"),
    ("cuNope:1:2", 1, "no driver function is called \"cuNope\""),
    ("cuMemAlloc_v2:1:2,cuNope:1:2", 1, "no driver function is called \"cuNope\""),
    ("cuMemAlloc_v2:1:2,", 1, "FUNCTION:NTH:CODE"),
    // Each kind of function that a search calls.
    ("cuInit:1:100", 1, "cuInit failed with CUDA_ERROR_NO_DEVICE"),
    ("cuInit:1:999", 1, "cuInit failed with CUDA_ERROR_UNKNOWN"),
    ("cuDeviceGetCount:1:999:always", 1, "cuDeviceGetCount failed"),
    ("cuDeviceGet:1:101:always", 1, "cuDeviceGet failed"),
    ("cuDeviceGetName:1:999:always", 1, "cuDeviceGetName failed"),
    ("cuDeviceGetAttribute:1:999:always", 1, "cuDeviceGetAttribute failed"),
    ("cuDeviceGetAttribute:5:999", 1, "cuDeviceGetAttribute failed"),
    ("cuDeviceTotalMem_v2:1:999:always", 1, "cuDeviceTotalMem_v2 failed"),
    ("cuDeviceGetDefaultMemPool:1:999:always", 1, "cuDeviceGetDefaultMemPool failed"),
    ("cuMemPoolSetAttribute:1:999:always", 1, "cuMemPoolSetAttribute failed"),
    ("cuDevicePrimaryCtxRetain:1:2:always", 1, "cuDevicePrimaryCtxRetain failed"),
    ("cuCtxSetCurrent:1:999:always", 1, "cuCtxSetCurrent failed"),
    ("cuStreamCreateWithPriority:1:999:always", 1, "cuStreamCreateWithPriority failed"),
    ("cuEventCreate:1:999:always", 1, "cuEventCreate failed"),
    ("cuEventRecord:1:999:always", 1, "cuEventRecord failed"),
    ("cuEventRecord:2:999", 1, "cuEventRecord failed"),
    ("cuEventSynchronize:1:999:always", 1, "cuEventSynchronize failed"),
    ("cuEventElapsedTime:1:600", 1, "cuEventElapsedTime failed"),
    ("cuModuleLoadDataEx:1:209:always", 1, "refused module"),
    ("cuModuleLoadDataEx:1:218:always", 1, "refused module"),
    ("cuModuleGetFunction:1:500:always", 1, "has no kernel"),
    ("cuFuncGetAttribute:1:999:always", 1, "cuFuncGetAttribute failed"),
    ("cuFuncSetAttribute:1:1:always", 1, "cuFuncSetAttribute failed"),
    ("cuMemAlloc_v2:1:2:always", 1, "is out of memory"),
    ("cuMemAlloc_v2:1:999:always", 1, "cuMemAlloc_v2 failed"),
    ("cuMemcpyHtoD_v2:1:999:always", 1, "cuMemcpyHtoD_v2 failed"),
    ("cuMemcpyDtoH_v2:1:999:always", 1, "cuMemcpyDtoH_v2 failed"),
    ("cuMemsetD8Async:1:999:always", 1, "cuMemsetD8Async failed"),
    ("cuLaunchKernel:1:701", 1, "cuLaunchKernel failed"),
    ("cuLaunchKernel:1:700:always", 1, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ("cuLaunchKernel:2:719", 1, "CUDA_ERROR_LAUNCH_FAILED"),
    ("cuStreamSynchronize:1:719", 1, "CUDA_ERROR_LAUNCH_FAILED"),
    ("cuStreamSynchronize:1:702:always", 1, "CUDA_ERROR_LAUNCH_TIMEOUT"),
    ("cuMemAlloc_v2:1:2:always,cuMemFree_v2:1:999:always", 1, "is out of memory"),
    (
        "cuLaunchKernel:1:700,cuMemFree_v2:1:700:always,cuCtxSynchronize:1:700:always",
        1,
        "CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    // Calls that a program can do without.
    ("cuMemAlloc_v2:1:2", 0, FOUND),
    ("cuMemFree_v2:1:700:always", 0, FOUND),
    ("cuEventDestroy_v2:1:999:always", 0, FOUND),
    ("cuStreamDestroy_v2:1:999:always", 0, FOUND),
    ("cuModuleUnload:1:999:always", 0, FOUND),
    ("cuDevicePrimaryCtxRelease_v2:1:999:always", 0, FOUND),
    ("cuDriverGetVersion:1:999:always", 0, FOUND),
    ("cuMemAlloc_v2:18446744073709551615:2", 0, FOUND),
];

#[test]
fn a_call_that_fails_is_told_or_done_without() {
    let case = |(rule, code, says): &(&'static str, i32, &'static str)| {
        search(*code, says).env("IRONWARP_FAULT", rule)
    };
    library().check(&RULES.iter().map(case).collect::<Vec<_>>());
}
