//! Programmatic dependent launch: launches that overlap the previous one.

use cuda_std::{grid, kernel, thread};

/// `x[i] = 3 x[i] + 1`, after the previous launch has ended. Lets the next launch start at once.
///
/// # Safety
/// At most one thread per element.
#[kernel]
pub unsafe fn grid_overlapping_step(x: &mut [u32]) {
    grid::launch_dependents();
    let i = thread::index_1d() as usize;
    grid::wait_dependencies();
    if i < x.len() {
        x[i] = x[i].wrapping_mul(3).wrapping_add(1);
    }
}
