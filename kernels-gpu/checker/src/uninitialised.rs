//! Shared memory that is read before it is written.

use cuda_std::thread::sync_threads;
use cuda_std::{kernel, shared_array};

use crate::{BLOCK, global, rank};

/// The tile is never written.
#[kernel]
pub unsafe fn never_written(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *data.add(global()) = *tile.add(rank()); // bug
    }
}

/// The halo of a stencil is not loaded.
#[kernel]
pub unsafe fn halo_left_out(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WIDTH: usize = BLOCK + 2;
    let tile = shared_array![u32; WIDTH];
    unsafe {
        *tile.add(rank() + 1) = *data.add(rank());
        sync_threads();
        let (left, right) = (*tile.add(rank()), *tile.add(rank() + 2)); // bug
        *data.add(rank()) = left + right;
    }
}

/// A word with only three of its bytes written.
#[kernel]
pub unsafe fn byte_left_out(data: *mut u32, _aux: *mut u32, _n: u32) {
    const BYTES: usize = 4 * BLOCK;
    let tile = shared_array![u8; BYTES];
    unsafe {
        let word = tile.add(4 * rank());
        for byte in 0..3 {
            *word.add(byte) = byte as u8;
        }
        *data.add(rank()) = *word.cast::<u32>(); // bug
    }
}

/// The sum starts from an uninitialised value.
#[kernel]
pub unsafe fn counter_not_cleared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let total = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            let sum = *total + *data; // bug
            *total = sum;
        }
        sync_threads();
        *data.add(rank()) = *total;
    }
}
