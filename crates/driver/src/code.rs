//! The result codes of the driver API: one table for constants, names and descriptions.

use core::ffi::{CStr, c_char};

struct Row {
    code: u32,
    name: &'static CStr,
    description: &'static CStr,
}

/// A literal with a closing NUL.
const fn c_str(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("every literal of the table ends in one NUL"),
    }
}

macro_rules! codes {
    ($($constant:ident = $code:literal, $name:literal, $description:literal;)*) => {
        $(#[doc = concat!("`", $name, "`: ", $description, ".")] pub const $constant: u32 = $code;)*
        const TABLE: &[Row] = &[$(Row {
            code: $code,
            name: c_str(concat!($name, "\0")),
            description: c_str(concat!($description, "\0")),
        },)*];
    };
}

codes! {
    SUCCESS = 0, "CUDA_SUCCESS", "no error";
    INVALID_VALUE = 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument";
    OUT_OF_MEMORY = 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory";
    NOT_INITIALIZED = 3, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised";
    DEINITIALIZED = 4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down";
    PROFILER_DISABLED = 5, "CUDA_ERROR_PROFILER_DISABLED", "profiling is disabled";
    PROFILER_NOT_INITIALIZED = 6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "the profiler is not initialised";
    PROFILER_ALREADY_STARTED = 7, "CUDA_ERROR_PROFILER_ALREADY_STARTED", "the profiler is already started";
    PROFILER_ALREADY_STOPPED = 8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "the profiler is already stopped";
    STUB_LIBRARY = 34, "CUDA_ERROR_STUB_LIBRARY", "a stub library was loaded in place of the driver";
    NO_DEVICE = 100, "CUDA_ERROR_NO_DEVICE", "no CUDA device was found";
    INVALID_DEVICE = 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal";
    DEVICE_NOT_LICENSED = 102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "the device has no licence";
    INVALID_IMAGE = 200, "CUDA_ERROR_INVALID_IMAGE", "the device kernel image is invalid";
    INVALID_CONTEXT = 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context";
    CONTEXT_ALREADY_CURRENT = 202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "the context is already current";
    MAP_FAILED = 205, "CUDA_ERROR_MAP_FAILED", "mapping of a buffer failed";
    UNMAP_FAILED = 206, "CUDA_ERROR_UNMAP_FAILED", "unmapping of a buffer failed";
    ARRAY_IS_MAPPED = 207, "CUDA_ERROR_ARRAY_IS_MAPPED", "the array is mapped";
    ALREADY_MAPPED = 208, "CUDA_ERROR_ALREADY_MAPPED", "the resource is already mapped";
    NO_BINARY_FOR_GPU = 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image for this device";
    ALREADY_ACQUIRED = 210, "CUDA_ERROR_ALREADY_ACQUIRED", "the resource is already acquired";
    NOT_MAPPED = 211, "CUDA_ERROR_NOT_MAPPED", "the resource is not mapped";
    NOT_MAPPED_AS_ARRAY = 212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "the resource is not mapped as an array";
    NOT_MAPPED_AS_POINTER = 213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "the resource is not mapped as a pointer";
    ECC_UNCORRECTABLE = 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error";
    UNSUPPORTED_LIMIT = 215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "the limit is not supported on this device";
    CONTEXT_ALREADY_IN_USE = 216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is in use by another thread";
    PEER_ACCESS_UNSUPPORTED = 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these devices";
    INVALID_PTX = 218, "CUDA_ERROR_INVALID_PTX", "compilation of the PTX failed";
    INVALID_GRAPHICS_CONTEXT = 219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid graphics context";
    NVLINK_UNCORRECTABLE = 220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "uncorrectable NVLink error";
    JIT_COMPILER_NOT_FOUND = 221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the PTX compiler library was not found";
    UNSUPPORTED_PTX_VERSION = 222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX was made by a newer toolkit than the driver understands";
    JIT_COMPILATION_DISABLED = 223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "compilation of PTX is disabled";
    UNSUPPORTED_EXEC_AFFINITY = 224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "the execution affinity is not supported";
    INVALID_SOURCE = 300, "CUDA_ERROR_INVALID_SOURCE", "the device kernel source is invalid";
    FILE_NOT_FOUND = 301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found";
    SHARED_OBJECT_SYMBOL_NOT_FOUND = 302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a symbol of a shared object was not found";
    SHARED_OBJECT_INIT_FAILED = 303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "initialisation of a shared object failed";
    OPERATING_SYSTEM = 304, "CUDA_ERROR_OPERATING_SYSTEM", "a call of the operating system failed";
    INVALID_HANDLE = 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle";
    ILLEGAL_STATE = 401, "CUDA_ERROR_ILLEGAL_STATE", "the resource is not in a state for this operation";
    NOT_FOUND = 500, "CUDA_ERROR_NOT_FOUND", "named symbol not found";
    NOT_READY = 600, "CUDA_ERROR_NOT_READY", "work is not finished yet";
    ILLEGAL_ADDRESS = 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access happened in a kernel";
    LAUNCH_OUT_OF_RESOURCES = 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for the launch";
    LAUNCH_TIMEOUT = 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out";
    LAUNCH_INCOMPATIBLE_TEXTURING = 703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "the launch uses an incompatible texturing mode";
    PEER_ACCESS_ALREADY_ENABLED = 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is active";
    CONTEXT_IS_DESTROYED = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context is destroyed";
    ASSERT = 710, "CUDA_ERROR_ASSERT", "an assertion failed in a kernel";
    TOO_MANY_PEERS = 711, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources are exhausted";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is already registered";
    HOST_MEMORY_NOT_REGISTERED = 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered";
    HARDWARE_STACK_ERROR = 714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error in a kernel";
    ILLEGAL_INSTRUCTION = 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction in a kernel";
    MISALIGNED_ADDRESS = 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address in a kernel";
    INVALID_ADDRESS_SPACE = 717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "an operation on the wrong address space in a kernel";
    INVALID_PC = 718, "CUDA_ERROR_INVALID_PC", "invalid program counter in a kernel";
    LAUNCH_FAILED = 719, "CUDA_ERROR_LAUNCH_FAILED", "the launch failed";
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks for a cooperative launch";
    NOT_PERMITTED = 800, "CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted here";
    NOT_SUPPORTED = 801, "CUDA_ERROR_NOT_SUPPORTED", "the operation is not supported";
    SYSTEM_NOT_READY = 802, "CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready";
    SYSTEM_DRIVER_MISMATCH = 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the display driver and the CUDA driver do not match";
    COMPAT_NOT_SUPPORTED_ON_DEVICE = 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility is not supported on this device";
    MPS_CONNECTION_FAILED = 805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS server";
    MPS_RPC_FAILURE = 806, "CUDA_ERROR_MPS_RPC_FAILURE", "a call to the MPS server failed";
    MPS_SERVER_NOT_READY = 807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server is not ready";
    MPS_MAX_CLIENTS_REACHED = 808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has no room for another client";
    MPS_MAX_CONNECTIONS_REACHED = 809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the MPS server has no room for another connection";
    STREAM_CAPTURE_UNSUPPORTED = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the operation is not permitted while a stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture was invalidated by an earlier error";
    STREAM_CAPTURE_MERGE = 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "the operation would merge two captures";
    STREAM_CAPTURE_UNMATCHED = 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not begun in this stream";
    STREAM_CAPTURE_UNJOINED = 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a forked stream was not joined to the capture";
    STREAM_CAPTURE_ISOLATION = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "a dependency would cross the border of the capture";
    STREAM_CAPTURE_IMPLICIT = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the operation would depend on a capture through the legacy stream";
    CAPTURED_EVENT = 907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capture";
    STREAM_CAPTURE_WRONG_THREAD = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread";
    TIMEOUT = 909, "CUDA_ERROR_TIMEOUT", "the wait timed out";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph differs too much for an update";
    EXTERNAL_DEVICE = 911, "CUDA_ERROR_EXTERNAL_DEVICE", "an external device failed";
    INVALID_CLUSTER_SIZE = 912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size";
    UNKNOWN = 999, "CUDA_ERROR_UNKNOWN", "unknown error";
}

/// Codes that cust's result type lacks. cust reads results as an enum of CUDA 11.4, so it must never see
/// these. Only functions found with [`crate::proc_address`] return them.
pub const NEWER_THAN_CUST: &[u32] = &[INVALID_CLUSTER_SIZE];

fn row(code: u32) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.code == code)
}

/// The name of `code` in CUDA's headers (`CUDA_ERROR_INVALID_VALUE`). `None` if the table lacks it.
pub fn name(code: u32) -> Option<&'static str> {
    row(code).and_then(|row| row.name.to_str().ok())
}

/// A short description of `code`. `None` if the table lacks it.
pub fn description(code: u32) -> Option<&'static str> {
    row(code).and_then(|row| row.description.to_str().ok())
}

/// Parses `text` as a code: a number, or a name with or without `CUDA_ERROR_`. `None` if the table lacks it.
pub fn parse(text: &str) -> Option<u32> {
    if let Ok(code) = text.parse() {
        return row(code).map(|row| row.code);
    }
    let wanted = text.strip_prefix("CUDA_ERROR_").unwrap_or(text);
    TABLE
        .iter()
        .find(|row| row.name.to_str().is_ok_and(|n| n.strip_prefix("CUDA_ERROR_").unwrap_or(n) == wanted))
        .map(|row| row.code)
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn put(out: *mut *const c_char, text: Option<&'static CStr>) -> u32 {
    if out.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: not null, and valid by this function's contract.
    unsafe { out.write(text.map_or(core::ptr::null(), CStr::as_ptr)) };
    if text.is_some() { SUCCESS } else { INVALID_VALUE }
}

/// `cuGetErrorName`: null and `INVALID_VALUE` for a code that is not in the table.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe extern "C" fn error_name(code: u32, out: *mut *const c_char) -> u32 {
    // SAFETY: the caller's contract is the same.
    unsafe { put(out, row(code).map(|row| row.name)) }
}

/// `cuGetErrorString`: null and `INVALID_VALUE` for a code that is not in the table.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe extern "C" fn error_string(code: u32, out: *mut *const c_char) -> u32 {
    // SAFETY: the caller's contract is the same.
    unsafe { put(out, row(code).map(|row| row.description)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_by_number_and_by_name() {
        assert_eq!(parse("2"), Some(OUT_OF_MEMORY));
        assert_eq!(parse("OUT_OF_MEMORY"), Some(OUT_OF_MEMORY));
        assert_eq!(parse("CUDA_ERROR_OUT_OF_MEMORY"), Some(OUT_OF_MEMORY));
        assert_eq!(parse("12345"), None);
        assert_eq!(parse("NO_SUCH_CODE"), None);
    }

    #[test]
    fn every_code_stands_once_and_has_a_name() {
        for (i, a) in TABLE.iter().enumerate() {
            assert!(TABLE[i + 1..].iter().all(|b| b.code != a.code), "{} twice", a.code);
            assert!(name(a.code).is_some_and(|n| n.starts_with("CUDA_")), "{}", a.code);
        }
    }
}
