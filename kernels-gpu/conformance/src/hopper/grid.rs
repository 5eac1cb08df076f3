//! Launches that overlap the one before.

use cuda_std::{grid, kernel, thread};

/// `x[i] = 3 x[i] + 1`, after the launch ahead has ended; lets the next one start at once.
///
/// # Safety
/// One thread an element at most.
#[kernel]
pub unsafe fn grid_overlapping_step(x: &mut [u32]) {
    grid::launch_dependents();
    let i = thread::index_1d() as usize;
    grid::wait_dependencies();
    if i < x.len() {
        x[i] = x[i].wrapping_mul(3).wrapping_add(1);
    }
}
