//! Shared memory of which a part is read before it is written.

use cuda_std::atomic::intrinsics::atomic_fetch_add_relaxed_u32_block;
use cuda_std::thread::sync_threads;
use cuda_std::{kernel, shared, shared_array, vector};

use crate::{BLOCK, global, rank};

/// A reduction over twice as many elements as were loaded.
#[kernel]
pub unsafe fn second_half_not_loaded(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tile = shared_array![u32; WORDS];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        sync_threads();
        *data.add(rank()) = *tile.add(rank()) + *tile.add(rank() + BLOCK); // bug
    }
}

/// Only threads below `n` load, all read.
#[kernel]
pub unsafe fn tail_not_filled(data: *mut u32, aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if global() < n as usize {
            *tile.add(rank()) = *data.add(global());
        }
        sync_threads();
        *aux.add(rank()) = *tile.add(BLOCK - 1 - rank()); // bug
    }
}

/// The first round of a double buffer reads the buffer that no round has filled.
#[kernel]
pub unsafe fn first_stage_not_filled(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let stages = shared_array![u32; WORDS];
    unsafe {
        let mut sum = 0;
        for step in 0..3 {
            *stages.add(step % 2 * BLOCK + rank()) = *data.add(step * BLOCK + rank());
            sync_threads();
            sum += *stages.add((step + 1) % 2 * BLOCK + rank()); // bug
            sync_threads();
        }
        *data.add(rank()) = sum;
    }
}

/// Sums of warps: two are written, the first warp reads 32.
#[kernel]
pub unsafe fn sums_of_absent_warps(data: *mut u32, _aux: *mut u32, _n: u32) {
    let sums = shared_array![u32; 32];
    unsafe {
        if rank().is_multiple_of(32) {
            *sums.add(rank() / 32) = rank() as u32;
        }
        sync_threads();
        if rank() < 32 {
            *data.add(rank()) = *sums.add(rank()); // bug
        }
    }
}

/// A flag that is set, but never cleared before.
#[kernel]
pub unsafe fn flag_not_cleared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let found = shared_array![u32; 1];
    unsafe {
        if *data.add(rank()) == 1000 {
            *found = 1;
        }
        sync_threads();
        *data.add(rank()) = *found; // bug
    }
}

/// Bins that are counted up from an unknown start.
#[kernel]
pub unsafe fn bins_not_cleared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let bins = shared_array![u32; 16];
    unsafe {
        atomic_fetch_add_relaxed_u32_block(bins.add(rank() % 16), 1); // bug
        sync_threads();
        *data.add(rank()) = *bins.add(rank() % 16); // bug
    }
}

/// More bins than threads, cleared by `if` in place of a loop.
#[kernel]
pub unsafe fn bins_cleared_in_part(data: *mut u32, _aux: *mut u32, _n: u32) {
    const BINS: usize = 80;
    let bins = shared_array![u32; BINS];
    unsafe {
        if rank() < BINS {
            *bins.add(rank()) = 0;
        }
        sync_threads();
        let sum = *bins.add(rank()) + *bins.add(BINS - 1 - rank()); // bug
        *data.add(rank()) = sum;
    }
}

/// A double word of which the low half is written.
#[kernel]
pub unsafe fn half_of_a_double_word(data: *mut u32, _aux: *mut u32, _n: u32) {
    let values = shared_array![u64; BLOCK];
    unsafe {
        *values.add(rank()).cast::<u32>() = 1;
        *data.add(rank()) = *values.add(rank()) as u32; // bug
    }
}

/// A vector load of dynamic memory that nobody wrote.
#[kernel]
pub unsafe fn dynamic_never_written(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::address_of(shared::dynamic_shared_mem::<u32>());
    unsafe {
        let four = vector::load_shared_v4::<u32>(tile + 16 * rank() as u32); // bug
        *data.add(rank()) = four[0];
    }
}

/// Rows of nine words with eight written, and a column that begins at the padding.
#[kernel]
pub unsafe fn padding_is_read(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 8 * 9;
    let tile = shared_array![u32; WORDS];
    let (x, y) = (rank() % 8, rank() / 8);
    unsafe {
        *tile.add(y * 9 + x) = *data.add(rank());
        sync_threads();
        *data.add(rank()) = *tile.add(x * 9 + y + 1); // bug
    }
}

/// A triangular tile that is read as a square.
#[kernel]
pub unsafe fn other_triangle(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    let (x, y) = (rank() % 8, rank() / 8);
    unsafe {
        if x <= y {
            *tile.add(rank()) = *data.add(rank());
        }
        sync_threads();
        *data.add(rank()) = *tile.add(x * 8 + y); // bug
    }
}
