//! Addresses that were never valid, are misaligned, or are no longer valid.

use cuda_std::{kernel, shared, shared_array, vector};

use crate::{BLOCK, global, rank};

/// No bounds check against `n`: the last threads write past the end.
#[kernel]
pub unsafe fn write_past_end(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(global()) = 1; // bug
    }
}

/// The bounds check uses `<=`.
#[kernel]
pub unsafe fn off_by_one(data: *mut u32, _aux: *mut u32, n: u32) {
    if global() <= n as usize {
        unsafe {
            *data.add(global()) = 1; // bug
        }
    }
}

/// The left neighbour of the first element.
#[kernel]
pub unsafe fn read_before_start(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let left = *data.wrapping_add(rank()).wrapping_sub(1); // bug
        *aux.add(rank()) = left;
    }
}

/// A tile one element too short.
#[kernel]
pub unsafe fn shared_overflow(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK - 1];
    unsafe {
        *tile.wrapping_add(rank()) = *data.add(rank()); // bug
        *data.add(rank()) = *tile.add(rank());
    }
}

/// The launch gives 128 bytes of dynamic shared memory; the kernel uses 256.
#[kernel]
pub unsafe fn dynamic_overflow(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.wrapping_add(rank()) = 0; // bug
    }
}

/// Writes before the first byte of shared memory.
#[kernel]
pub unsafe fn shared_underflow(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.wrapping_add(rank()).wrapping_sub(4) = 0; // bug
    }
}

/// 16-byte loads that are misaligned by one word.
#[kernel]
pub unsafe fn misaligned_vector(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let four = vector::load_v4(data.add(1 + 4 * (rank() / 8)).cast_const()); // bug
        *aux.add(rank()) = four[0];
    }
}

/// A vector load whose second half is past the end.
#[kernel]
pub unsafe fn vector_across_end(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        let four = vector::load_v4(data.add(n as usize / 4 * 4).cast_const()); // bug
        *aux.add(rank()) = four[1];
    }
}

/// The test passes null for `data`.
#[kernel]
pub unsafe fn null_pointer(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.wrapping_add(rank()) = 1; // bug
    }
}

/// The test passes host memory for `data`.
#[kernel]
pub unsafe fn host_memory(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *aux.add(rank()) = vector::load(data.add(rank()).cast_const()); // bug
    }
}

/// An index far outside the buffer.
#[kernel]
pub unsafe fn far_away(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        *data.wrapping_add(rank() + ((n as usize) << 36)) = 1; // bug
    }
}

/// The test frees `data` before the launch.
#[kernel]
pub unsafe fn use_after_free(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *aux.add(rank()) = *data.add(rank()); // bug
    }
}

/// A static shared array that is larger than shared memory.
#[kernel]
pub unsafe fn too_much_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 60 * 1024;
    let tile = shared_array![u32; WORDS]; // bug
    unsafe {
        *tile.add(rank()) = 0;
        *data.add(rank()) = *tile.add(rank());
    }
}
