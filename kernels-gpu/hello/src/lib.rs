//! `y = a x + y` for f32 vectors of any length.
//!
//! One thread per element. It moves 12 bytes for two operations, so memory bandwidth is the limit.
// A GPU has no `std`: without this line only the build of the PTX would say so. Unit tests have it.
#![cfg_attr(not(test), no_std)]

use cuda_std::prelude::*;

/// Threads per block.
pub const THREADS: u32 = 256;

/// `y[i] = a * x[i] + y[i]`.
///
/// # Safety
/// `y` is valid for reads and writes of `x.len()` elements and does not overlap `x`. At least `x.len()`
/// threads, and at most 2^32, in blocks of [`THREADS`].
#[kernel(launch_bounds(THREADS))]
pub unsafe fn hello(a: f32, x: &[f32], y: *mut f32) {
    let i = thread::index_1d() as usize;
    if i < x.len() {
        // SAFETY: `i` is in bounds, and no other thread has it.
        unsafe { *y.add(i) += a * x[i] };
    }
}
