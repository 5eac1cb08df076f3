//! Plain accesses that go far outside, into another buffer or array, or to misaligned addresses.

use cuda_std::thread::{block_dim_x, block_idx_y, grid_dim_x, index_2d, sync_threads};
use cuda_std::{kernel, shared, shared_array};

use crate::{BLOCK, global, rank};

/// Words that are farther away than any padding.
const FAR: usize = 2048;

/// A row too many in a matrix of wide rows.
#[kernel]
pub unsafe fn far_read_behind(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        *aux.add(rank()) = *data.wrapping_add(n as usize + FAR + rank()); // bug
    }
}

/// As above, with a store.
#[kernel]
pub unsafe fn far_write_behind(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        *data.wrapping_add(n as usize + FAR + rank()) = 1; // bug
    }
}

/// A negative row.
#[kernel]
pub unsafe fn far_read_before(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *aux.add(rank()) = *data.wrapping_add(rank()).wrapping_sub(FAR); // bug
    }
}

/// As above, with a store.
#[kernel]
pub unsafe fn far_write_before(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.wrapping_add(rank()).wrapping_sub(FAR) = 1; // bug
    }
}

/// The rows of the buffer are 16 words, those of the code 64.
#[kernel]
pub unsafe fn wrong_pitch(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let mut sum = 0;
        for row in 0..16 {
            sum += *data.wrapping_add(row * 256 + rank()); // bug
        }
        *aux.add(rank()) = sum;
    }
}

/// One past the end of `data`, where `aux` begins.
#[kernel]
pub unsafe fn write_into_the_next_buffer(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        if rank() == 0 {
            *data.wrapping_add(n as usize) = 1; // bug
        }
    }
}

/// As above, with a load in a stencil.
#[kernel]
pub unsafe fn read_from_the_next_buffer(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        let start = n as usize - BLOCK;
        let next = *data.wrapping_add(start + rank() + 1); // bug
        if rank() != BLOCK - 1 {
            *data.add(rank()) = next;
        }
    }
}

/// An index that happens to lead from `data` into `aux`.
#[kernel]
pub unsafe fn index_into_another_buffer(data: *mut u32, aux: *mut u32, _n: u32) {
    let distance = (aux as usize).wrapping_sub(data as usize) / 4;
    unsafe {
        *data.wrapping_add(distance + rank()) = 1; // bug
    }
}

/// An index of the first shared array that lies in the second.
#[kernel]
pub unsafe fn index_into_another_array(data: *mut u32, _aux: *mut u32, _n: u32) {
    let (first, second) = (shared_array![u32; BLOCK], shared_array![u32; 32]);
    unsafe {
        if rank() < 32 {
            *second.add(rank()) = 1;
        }
        *first.add(rank()) = 2;
        sync_threads();
        let distance = (second as usize).wrapping_sub(first as usize) / 4;
        *data.add(rank()) = *first.wrapping_add(distance + rank() % 32); // bug
    }
}

/// A negative index of the second shared array, in the first.
#[kernel]
pub unsafe fn negative_index_of_an_array(data: *mut u32, _aux: *mut u32, _n: u32) {
    let (first, second) = (shared_array![u32; BLOCK], shared_array![u32; BLOCK]);
    unsafe {
        *first.add(rank()) = 1;
        sync_threads();
        let distance = (second as usize).wrapping_sub(first as usize) / 4;
        *second.wrapping_add(rank()).wrapping_sub(distance) = *data.add(rank()); // bug
        sync_threads();
        *data.add(rank()) = *first.add(rank());
    }
}

/// A word at an odd address.
#[kernel]
pub unsafe fn misaligned_word(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let odd = data.cast::<u8>().add(1 + 4 * rank()).cast::<u32>();
        *aux.add(rank()) = *odd; // bug
    }
}

/// Eight bytes at a multiple of four.
#[kernel]
pub unsafe fn misaligned_double_word(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(1 + 2 * rank()).cast::<u64>() = 1; // bug
    }
}

/// Two bytes at an odd address.
#[kernel]
pub unsafe fn misaligned_half(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let odd = data.cast::<u8>().add(1 + 2 * rank()).cast::<u16>();
        *aux.add(rank()) = u32::from(*odd); // bug
    }
}

/// Shared memory that was declared as words and is used as floats of eight bytes.
#[kernel]
pub unsafe fn misaligned_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK + 1;
    let tile = shared_array![u32; WORDS];
    unsafe {
        let mine = tile.add(1 + 2 * rank()).cast::<f64>();
        *mine = rank() as f64; // bug
        *data.add(rank()) = 1;
    }
}

/// The header of a packed message is one byte.
#[kernel]
pub unsafe fn misaligned_payload(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let message = shared::dynamic_shared_mem::<u8>();
    unsafe {
        if rank() == 0 {
            *message = 1;
            *message.add(1).cast::<u32>() = 5; // bug
        }
    }
}

/// A signed index below zero.
#[kernel]
pub unsafe fn negative_signed_index(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let index = rank() as i32 - 5;
        *aux.add(rank()) = *data.wrapping_offset(index as isize); // bug
    }
}

/// A difference of unsigned indices that wraps.
#[kernel]
pub unsafe fn wrapped_index(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let index = (rank() as u32).wrapping_sub(5);
        *aux.add(rank()) = *data.wrapping_add(index as usize); // bug
    }
}

/// A grid-stride loop with `<=`.
#[kernel]
pub unsafe fn grid_stride_off_by_one(data: *mut u32, _aux: *mut u32, n: u32) {
    let stride = (grid_dim_x() * block_dim_x()) as usize;
    let mut index = global();
    while index <= n as usize {
        unsafe { *data.wrapping_add(index) += 1 } // bug
        index += stride;
    }
}

/// Each thread has four elements; the check looks at the first alone.
#[kernel]
pub unsafe fn first_of_four_checked(data: *mut u32, _aux: *mut u32, n: u32) {
    let first = 4 * global();
    if first < n as usize {
        for index in first..first + 4 {
            unsafe { *data.wrapping_add(index) += 1 } // bug
        }
    }
}

/// A grid in two dimensions that checks x alone. The image is 20 x 12.
#[kernel]
pub unsafe fn second_dimension_unchecked(data: *mut u32, _aux: *mut u32, _n: u32) {
    let place = index_2d();
    if place.x < 20 {
        unsafe {
            *data.wrapping_add((place.y * 20 + place.x) as usize) = block_idx_y(); // bug
        }
    }
}

/// The transpose of a 16 x 8 matrix, with rows of the wrong length.
#[kernel]
pub unsafe fn transposed_shape(data: *mut u32, aux: *mut u32, _n: u32) {
    let (x, y) = (rank() % 16, rank() / 16);
    unsafe {
        let value = *data.add(y * 16 + x);
        *aux.wrapping_add(x * 16 + y) = value; // bug
    }
}

/// A length that was checked as a sum of 32 bits, which wraps.
#[kernel]
pub unsafe fn checked_sum_wraps(data: *mut u32, aux: *mut u32, n: u32) {
    let offset = u32::MAX - 3;
    if offset.wrapping_add(8) < n && rank() == 0 {
        unsafe {
            *aux = *data.wrapping_add(offset as usize); // bug
        }
    }
}

/// An index that comes from the data, unchecked.
#[kernel]
pub unsafe fn gather_unchecked(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        let index = *data.add(rank()) * 5;
        if index < n * 5 {
            *aux.add(rank()) = *data.wrapping_add(index as usize); // bug
        }
    }
}
