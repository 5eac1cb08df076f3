//! A parameter without a size: a device leaves it out, and all behind it would move.

use cuda_std::kernel;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Nothing;

/// # Safety
/// `out` is writable.
#[kernel]
pub unsafe fn store(nothing: Nothing, out: *mut u32) {
    let Nothing = nothing;
    unsafe { *out = 1 }
}

fn main() {}
