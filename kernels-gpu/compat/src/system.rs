//! Printing by format, assertions, address spaces, clocks, and the architecture.
#![allow(unsafe_op_in_unsafe_fn)]

use core::ffi::c_void;

use cuda_std::cfg::ComputeCapability;
use cuda_std::misc::{breakpoint, clock, profiler_counter};
use cuda_std::prelude::*;
use cuda_std::ptr::{
    AddressSpace, convert_generic_to_specific_address_space, convert_specific_address_space_to_generic,
    is_in_address_space,
};
use cuda_std::{io, shared_array};

#[repr(C)]
struct Line {
    thread: u32,
    value: f64,
    name: *const u8,
}

/// Prints a line a thread; the numbers of arguments go out.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn print_formats(values: &[f64], out: *mut i32) {
    let i = thread::index_1d();
    if (i as usize) < values.len() {
        let line = Line { thread: i, value: values[i as usize], name: c"formats".as_ptr().cast() };
        let format = c"thread %u: %+.3f, 100%% of %s\n".as_ptr().cast();
        *out.add(i as usize) = io::vprintf(format, (&raw const line).cast());
    }
    if thread::first() {
        io::vprintf(c"done\n".as_ptr().cast(), core::ptr::null::<c_void>());
    }
}

/// Stops at the first value that is negative.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn assert_positive(values: &[i32]) {
    let i = thread::index_1d() as usize;
    if i < values.len() && values[i] < 0 {
        let (message, file) = (c"values[i] >= 0", concat!(file!(), "\0"));
        let function = c"assert_positive";
        io::__assertfail(message.as_ptr().cast(), file.as_ptr(), line!(), function.as_ptr().cast(), 1);
    }
}

/// In which memories a parameter's target, a shared array and a local variable lie.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn spaces(x: *mut u32, out: *mut [bool; 4]) {
    let tile = shared_array![u32; 32];
    *tile.add(thread::thread_idx_x() as usize) = 1;
    *out = [
        is_in_address_space(x, AddressSpace::Global),
        is_in_address_space(x, AddressSpace::Shared),
        is_in_address_space(tile, AddressSpace::Shared),
        is_in_address_space(tile, AddressSpace::Constant) || is_in_address_space(x, AddressSpace::Local),
    ];
}

/// To an address of shared memory and back.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn there_and_back(out: *mut u32) {
    let tile = shared_array![u32; 32];
    let t = thread::thread_idx_x() as usize;
    *tile.add(t) = 7 * t as u32;
    let address = convert_generic_to_specific_address_space(tile.add(t), AddressSpace::Shared);
    *out.add(t) = *convert_specific_address_space_to_generic(address, AddressSpace::Shared);
}

/// Whether time passes. A counter for a profiler, and a place for a debugger that no thread reaches.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn clocks(out: *mut [u64; 2]) {
    let start = clock();
    profiler_counter(3);
    thread::sync_threads();
    if start == u64::MAX {
        breakpoint();
    }
    *out.add(thread::index_1d() as usize) = [start, clock()];
}

/// The architecture that the code is compiled for, by its place in the list.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn capability(out: *mut [u32; 2]) {
    let capability = ComputeCapability::from_cuda_arch_env();
    let by_feature = cfg!(target_feature = "compute_80");
    *out = [(capability >= ComputeCapability::Compute70) as u32, by_feature as u32];
}
