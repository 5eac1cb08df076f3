//! Copies that a compiler turns into `memcpy`, `memmove`, `memset` or wide moves, with bugs.

use core::ptr;

use cuda_std::thread::sync_threads;
use cuda_std::{kernel, shared_array};

use crate::{BLOCK, block, global, rank};

/// Words of an array that moves as a whole.
const FOUR: usize = 4;

/// A struct without padding.
#[derive(Clone, Copy)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    mass: f32,
}

/// A struct that `shared_array!` can hold: two halves of 8 bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct Halves {
    low: u64,
    high: u64,
}

/// Two threads store the same four words.
#[kernel]
pub unsafe fn array_store_race(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(rank() / 2 * FOUR).cast::<[f32; FOUR]>() = [rank() as f32; FOUR]; // bug
    }
}

/// The arrays of neighbours overlap by one word.
#[kernel]
pub unsafe fn overlapping_arrays(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(rank() * 3).cast::<[u32; FOUR]>() = [rank() as u32; FOUR]; // bug
    }
}

/// Two words too few for the last thread's array.
#[kernel]
pub unsafe fn array_store_past_end(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(rank() * FOUR).cast::<[u32; FOUR]>() = [1; FOUR]; // bug
    }
}

/// As above, with a load.
#[kernel]
pub unsafe fn array_load_past_end(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let four = *data.add(rank() * FOUR).cast::<[u32; FOUR]>(); // bug
        *aux.add(rank()) = four[0] + four[1] + four[2] + four[3];
    }
}

/// A struct goes through shared memory with no barrier between.
#[kernel]
pub unsafe fn struct_copy_race(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![Particle; BLOCK];
    unsafe {
        let mine = Particle { position: [rank() as f32; 3], mass: 1.0 };
        *tile.add(rank()) = mine; // bug
        let other = *tile.add(BLOCK - 1 - rank()); // bug
        *data.add(rank()) = (other.position[0] * other.mass) as u32;
    }
}

/// Structs of blocks that read each other's.
#[kernel]
pub unsafe fn struct_copy_between_blocks(data: *mut u32, aux: *mut u32, _n: u32) {
    let bodies = data.cast::<Particle>();
    unsafe {
        if rank() == 0 {
            *bodies.add(block()) = Particle { position: [1.0; 3], mass: 2.0 }; // bug
            let other = *bodies.add(block() ^ 1); // bug
            *aux.add(block()) = other.mass as u32;
        }
    }
}

/// Every thread copies its neighbour's four words over its own.
#[kernel]
pub unsafe fn copy_of_a_neighbour(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let from = data.add((rank() + 1) % BLOCK * FOUR);
        ptr::copy_nonoverlapping(from, data.add(rank() * FOUR), FOUR); // bug
    }
}

/// One thread copies a whole tile while the others write it.
#[kernel]
pub unsafe fn tile_copied_too_early(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = rank() as u32; // bug
        if rank() == 0 {
            ptr::copy_nonoverlapping(tile, data, BLOCK); // bug
        }
    }
}

/// The last tile is copied whole, although `n` is no multiple of it.
#[kernel]
pub unsafe fn last_tile_copied_whole(data: *mut u32, _aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if rank() == 0 {
            let start = n as usize / BLOCK * BLOCK;
            ptr::copy_nonoverlapping(data.add(start), tile, BLOCK); // bug
        }
        sync_threads();
        *data.add(rank()) = *tile.add(rank());
    }
}

/// The destination is too short.
#[kernel]
pub unsafe fn copy_over_the_end(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        if rank() == 0 {
            ptr::copy_nonoverlapping(data, aux, n as usize); // bug
        }
    }
}

/// Elements move up by one place, each thread's part over its neighbour's first element.
#[kernel]
pub unsafe fn shift_in_place(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let mine = data.add(rank() * 3);
        ptr::copy(mine, mine.add(1), 3); // bug
    }
}

/// The move of an insertion: one element too many at the end.
#[kernel]
pub unsafe fn insertion_past_end(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        if rank() == 0 {
            ptr::copy(data, data.add(1), n as usize); // bug
        }
    }
}

/// A count in bytes where one in words is meant.
#[kernel]
pub unsafe fn cleared_by_bytes(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        if rank() == 0 {
            ptr::write_bytes(data, 0, 4 * n as usize); // bug
        }
    }
}

/// Two threads clear parts that overlap.
#[kernel]
pub unsafe fn cleared_twice(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if rank() < 2 {
            ptr::write_bytes(tile.add(rank() * (BLOCK / 2 - 4)), 0, BLOCK / 2 + 4); // bug
        }
        sync_threads();
        *data.add(rank()) = *tile.add(rank());
    }
}

/// Clears one word more than the array has.
#[kernel]
pub unsafe fn cleared_past_shared(data: *mut u32, _aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if rank() == 0 {
            ptr::write_bytes(tile, 0, n as usize / 4 + 1); // bug
        }
        sync_threads();
        *data.add(rank()) = *tile.add(rank());
    }
}

/// A loop of four stores, with a stride of three.
#[kernel]
pub unsafe fn four_stores_with_stride_three(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        for word in 0..FOUR {
            *data.add(rank() * 3 + word) = 0; // bug
        }
    }
}

/// A loop that copies, one thread per row; the rows are shorter than the loop.
#[kernel]
pub unsafe fn rows_copied_too_far(data: *mut u32, _aux: *mut u32, n: u32) {
    let half = n as usize / 2;
    unsafe {
        let (from, to) = (data.add(half + rank() * 2), data.add(rank() * 2));
        for word in 0..3 {
            *to.add(word) = *from.add(word % 2); // bug
        }
    }
}

/// Three of an array's words are written, four are read.
#[kernel]
pub unsafe fn array_with_a_hole(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = FOUR * BLOCK;
    let tile = shared_array![u32; WORDS];
    unsafe {
        let mine = tile.add(rank() * FOUR);
        for word in 0..3 {
            *mine.add(word) = word as u32;
        }
        let four = *mine.cast::<[u32; FOUR]>(); // bug
        *data.add(rank() * FOUR).cast::<[u32; FOUR]>() = four;
    }
}

/// One field of a struct stays unwritten, and the whole is copied.
#[kernel]
pub unsafe fn struct_with_a_hole(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![Halves; BLOCK];
    unsafe {
        (*tile.add(rank())).low = 1;
        let whole = *tile.add(rank()); // bug
        *data.add(rank()) = (whole.low + whole.high) as u32;
    }
}

/// Shared memory that nobody wrote is copied to global memory.
#[kernel]
pub unsafe fn copy_of_nothing(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if rank() == 0 {
            ptr::copy_nonoverlapping(tile, data, BLOCK); // bug
        }
    }
}

/// Half of a tile is filled, the whole is copied.
#[kernel]
pub unsafe fn half_filled_copy(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if rank() == 0 {
            ptr::copy_nonoverlapping(data, tile, BLOCK / 2);
        }
        sync_threads();
        if rank() == 1 {
            ptr::copy_nonoverlapping(tile, data.add(BLOCK), BLOCK); // bug
        }
    }
}

/// All threads copy a tile into their own registers before it is complete.
#[kernel]
pub unsafe fn tile_by_value(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 32;
    let tile = shared_array![u32; WORDS];
    unsafe {
        if rank() < WORDS {
            *tile.add(rank()) = rank() as u32; // bug
        }
        let all: [u32; WORDS] = *tile.cast::<[u32; WORDS]>(); // bug
        *data.add(rank()) = all.iter().fold(0, |all, word| all ^ word);
    }
}

/// Threads swap with both neighbours at once.
#[kernel]
pub unsafe fn swaps_that_overlap(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let pairs = data.cast::<[u32; 2]>();
        ptr::swap(pairs.add(rank()), pairs.add(rank() + 1)); // bug
    }
}

/// Slices of neighbours overlap, and are filled.
#[kernel]
pub unsafe fn fills_that_overlap(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let mine = core::slice::from_raw_parts_mut(data.add(rank() * 3), FOUR);
        mine.fill(rank() as u32); // bug
    }
}

/// A slice is copied from one that other threads write.
#[kernel]
pub unsafe fn slice_copied_too_early(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 16;
    unsafe {
        *data.add(global()) = 7; // bug
        if rank() < 2 {
            let from = core::slice::from_raw_parts(data.add(rank() * WORDS), WORDS);
            let to = core::slice::from_raw_parts_mut(data.add(2 * BLOCK + rank() * WORDS), WORDS);
            to.copy_from_slice(from); // bug
        }
    }
}

/// The test frees `data` before the launch.
#[kernel]
pub unsafe fn copy_after_free(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            ptr::copy_nonoverlapping(data, aux, BLOCK); // bug
        }
    }
}
