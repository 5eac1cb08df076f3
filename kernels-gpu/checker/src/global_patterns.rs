//! Algorithms in global memory with races between their threads or blocks.

use core::sync::atomic::Ordering;

use cuda_std::atomic::mid::atomic_fetch_add_u32_device;
use cuda_std::thread::sync_threads;
use cuda_std::{grid, kernel, vector};

use crate::{BLOCK, block, global, rank};

/// The blocks' chunks overlap by one element.
#[kernel]
pub unsafe fn chunks_that_overlap(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let first = block() * (BLOCK - 1);
        *data.add(first + rank()) += 1; // bug
    }
}

/// A stencil over the grid whose rounds forget to swap the buffers.
#[kernel]
pub unsafe fn buffers_not_swapped(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        for _ in 0..2 {
            let next = *data.add((global() + 1) % n as usize); // bug
            *data.add(global()) = next; // bug
            grid::sync(aux);
        }
    }
}

/// An in-place transpose without care for the mirrored element.
#[kernel]
pub unsafe fn transpose_in_place(data: *mut u32, _aux: *mut u32, _n: u32) {
    let (x, y) = (rank() % 8, rank() / 8);
    unsafe {
        let value = *data.add(x * 8 + y); // bug
        *data.add(rank()) = value; // bug
    }
}

/// A scatter with two threads for some of the places.
#[kernel]
pub unsafe fn scatter_with_collisions(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let place = *data.add(rank()) as usize % 40;
        *aux.add(place) = rank() as u32; // bug
    }
}

/// Edges of a graph relax the distance of the same vertex plainly.
#[kernel]
pub unsafe fn relaxation_without_atomics(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let vertex = aux.add(rank() / 4);
        let distance = *data.add(rank());
        let known = *vertex; // bug
        if known == 0 || distance < known {
            *vertex = distance; // bug
        }
    }
}

/// A frontier's length is read while other blocks append.
#[kernel]
pub unsafe fn length_read_while_appending(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let slot = atomic_fetch_add_u32_device(aux, Ordering::Relaxed, 1) as usize; // bug
        *data.add(slot) = 1;
        if global() == 100 {
            *aux.add(1) = *aux; // bug
        }
    }
}

/// Bytes packed into words: four neighbours share one.
#[kernel]
pub unsafe fn bytes_in_a_word(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let word = data.add(global() / 4);
        let shift = 8 * (global() % 4);
        *word |= 1 << shift; // bug
    }
}

/// A sum over rows: two blocks add to the same row.
#[kernel]
pub unsafe fn rows_of_two_blocks(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let part = *data.add(block() * BLOCK);
            *aux.add(block() / 2) += part; // bug
        }
    }
}

/// Vector loads of four words, of which another thread writes one.
#[kernel]
pub unsafe fn vector_over_a_written_word(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() < 32 {
            let four = vector::load_v4(data.add(4 * rank()).cast_const()); // bug
            *aux.add(rank()) = four[0];
        } else {
            *data.add(4 * (rank() - 32) + 2) = 1; // bug
        }
    }
}

/// A block barrier between the rounds of a stencil over the whole grid.
#[kernel]
pub unsafe fn block_barrier_for_the_grid(data: *mut u32, _aux: *mut u32, n: u32) {
    let half = n as usize / 2;
    unsafe {
        *data.add(half + global()) = *data.add(global()) + 1; // bug
        sync_threads();
        *data.add(global()) = *data.add(half + (global() + BLOCK) % half); // bug
    }
}

/// Odd-even exchange whose pairs overlap between blocks.
#[kernel]
pub unsafe fn exchange_across_blocks(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        let right = global() + 1;
        if right < n as usize && rank() % 2 == 1 {
            let (low, high) = (*data.add(global()), *data.add(right)); // bug
            *data.add(global()) = low.min(high); // bug
            *data.add(right) = low.max(high); // bug
        } else if rank() == 0 {
            *data.add(global()) += 1; // bug
        }
    }
}
