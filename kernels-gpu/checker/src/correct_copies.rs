//! Correct kernels whose copies become `memcpy`, `memset` or wide moves; products of plain Rust.

use core::ptr;

use cuda_std::thread::sync_threads;
use cuda_std::{kernel, shared, shared_array};

use crate::{BLOCK, global, rank};

const FOUR: usize = 4;

/// A struct with padding behind its first and its last field.
#[derive(Clone, Copy)]
#[repr(C)]
struct Padded {
    tag: u8,
    value: u32,
    flag: u8,
}

/// A struct that is aligned to 16 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Aligned {
    words: [u32; 3],
}

/// Four words at a time, each thread its own.
#[kernel]
pub unsafe fn vector_copy(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        let (from, to) = (data.cast::<[u32; FOUR]>(), data.add(n as usize / 2).cast::<[u32; FOUR]>());
        if FOUR * rank() < n as usize / 2 {
            *to.add(rank()) = *from.add(rank());
        }
    }
}

/// Structs with padding go through shared memory: their padding is never written, and never used.
#[kernel]
pub unsafe fn padded_structs(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![Padded; BLOCK];
    unsafe {
        *tile.add(rank()) = Padded { tag: 1, value: rank() as u32, flag: 2 };
        sync_threads();
        let other = *tile.add(BLOCK - 1 - rank());
        *data.add(rank()) = other.value + u32::from(other.tag + other.flag);
    }
}

/// The same field by field, with a copy inside shared memory.
#[kernel]
pub unsafe fn padded_struct_moved(data: *mut u32, _aux: *mut u32, _n: u32) {
    const TWICE: usize = 2 * BLOCK;
    let tile = shared_array![Padded; TWICE];
    unsafe {
        let mine = tile.add(rank());
        (*mine).tag = 1;
        (*mine).value = 5;
        (*mine).flag = 3;
        *tile.add(BLOCK + rank()) = *mine;
        sync_threads();
        let other = tile.add(TWICE - 1 - rank());
        *data.add(rank()) = (*other).value + u32::from((*other).tag) + u32::from((*other).flag);
    }
}

/// Structs with an alignment of their own.
#[kernel]
pub unsafe fn aligned_structs(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![Aligned; BLOCK];
    unsafe {
        *tile.add(rank()) = Aligned { words: [rank() as u32, 1, 2] };
        sync_threads();
        let other = *tile.add(rank() ^ 7);
        *data.add(rank()) = other.words.iter().sum();
    }
}

/// One thread copies a whole tile, a barrier follows.
#[kernel]
pub unsafe fn tile_by_one_thread(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if rank() == 0 {
            ptr::copy_nonoverlapping(data.add(BLOCK), tile, BLOCK);
        }
        sync_threads();
        *data.add(rank()) = *tile.add(BLOCK - 1 - rank());
    }
}

/// Each thread moves its own elements up by one place.
#[kernel]
pub unsafe fn own_elements_moved(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let mine = data.add(FOUR * rank());
        ptr::copy(mine, mine.add(1), FOUR - 1);
        *mine = 0;
    }
}

/// Bins are cleared by one thread at once, and counted behind a barrier.
#[kernel]
pub unsafe fn cleared_at_once(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        if rank() == 5 {
            ptr::write_bytes(tile, 0, BLOCK);
        }
        sync_threads();
        *tile.add(rank()) += 1;
        sync_threads();
        *data.add(rank()) = *tile.add(BLOCK - 1 - rank());
    }
}

/// Each thread swaps the two elements of its pair.
#[kernel]
pub unsafe fn own_pairs_swapped(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        ptr::swap(data.add(2 * rank()), data.add(2 * rank() + 1));
    }
}

/// All threads take a copy of a whole tile.
#[kernel]
pub unsafe fn whole_tile_by_value(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 16;
    let tile = shared_array![u32; WORDS];
    unsafe {
        if rank() < WORDS {
            *tile.add(rank()) = rank() as u32;
        }
        sync_threads();
        let all: [u32; WORDS] = *tile.cast();
        *data.add(rank()) = all.iter().sum();
    }
}

/// Slices of neighbours touch, but do not overlap.
#[kernel]
pub unsafe fn slices_that_touch(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let mine = core::slice::from_raw_parts_mut(data.add(3 * rank()), 3);
        mine.fill(rank() as u32);
        mine[2] += 1;
    }
}

/// A slice is copied into another one behind a barrier.
#[kernel]
pub unsafe fn slice_behind_a_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(rank()) = 7;
        sync_threads();
        if rank() < 4 {
            let from = core::slice::from_raw_parts(data.add(16 * (3 - rank())), 16);
            core::slice::from_raw_parts_mut(data.add(BLOCK + 16 * rank()), 16).copy_from_slice(from);
        }
    }
}

/// A word at an odd address, read as four bytes.
#[kernel]
pub unsafe fn unaligned_by_bytes(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        let odd = data.cast::<u8>().add(4 * rank() + 1).cast::<u32>();
        *data.add(n as usize / 2 + rank()) = odd.read_unaligned();
    }
}

/// Words are written, and read as double words and as bytes.
#[kernel]
pub unsafe fn words_as_other_types(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tile = shared_array![u32; WORDS];
    unsafe {
        *tile.add(2 * rank()) = rank() as u32;
        *tile.add(2 * rank() + 1) = 0;
        sync_threads();
        let other = BLOCK - 1 - rank();
        let wide = *tile.cast::<u64>().add(other);
        let byte = *tile.cast::<u8>().add(8 * other);
        *data.add(rank()) = wide as u32 + u32::from(byte);
    }
}

/// Dynamic memory that holds bytes, then words, then double words.
#[kernel]
pub unsafe fn dynamic_memory_in_parts(data: *mut u32, _aux: *mut u32, _n: u32) {
    let bytes = shared::dynamic_shared_mem::<u8>();
    unsafe {
        let words = bytes.add(BLOCK).cast::<u32>();
        let wide = words.add(BLOCK).cast::<u64>();
        *bytes.add(rank()) = 1;
        *words.add(rank()) = 2;
        *wide.add(rank()) = 3;
        sync_threads();
        let other = BLOCK - 1 - rank();
        let sum = u32::from(*bytes.add(other)) + *words.add(other) + *wide.add(other) as u32;
        *data.add(rank()) = sum;
    }
}

/// Local arrays that each thread reaches by pointer, its own only.
#[kernel]
pub unsafe fn own_local_array(data: *mut u32, _aux: *mut u32, _n: u32) {
    let places = shared_array![u64; BLOCK];
    let mut local = core::hint::black_box([rank() as u32; 8]);
    unsafe {
        *places.add(rank()) = local.as_mut_ptr() as u64;
        sync_threads();
        let pointer = *places.add(rank()) as *mut u32;
        *pointer.add(rank() % 8) += 1;
        *data.add(rank()) = core::hint::black_box(&mut local)[rank() % 8];
    }
}

/// Side of the matrices and of their tiles.
const SIDE: usize = 16;
const TILE: usize = 8;

/// `C = A B` of 16 x 16 matrices of small numbers, by tiles in shared memory. 2 x 2 blocks of 8 x 8 threads.
#[kernel]
pub unsafe fn tiled_product(data: *mut u32, _aux: *mut u32, n: u32) {
    let (a, b) = (shared_array![f32; BLOCK], shared_array![f32; BLOCK]);
    let (x, y) = (rank(), cuda_std::thread::thread_idx_y() as usize);
    let (column, row) = (crate::block() * TILE + x, cuda_std::thread::block_idx_y() as usize * TILE + y);
    unsafe {
        let mut sum = 0.0;
        for step in 0..SIDE / TILE {
            *a.add(y * TILE + x) = (*data.add(row * SIDE + step * TILE + x) % 5) as f32;
            *b.add(y * TILE + x) = (*data.add((step * TILE + y) * SIDE + column) % 3) as f32;
            sync_threads();
            for k in 0..TILE {
                sum += *a.add(y * TILE + k) * *b.add(k * TILE + x);
            }
            sync_threads();
        }
        *data.add(n as usize / 2 + row * SIDE + column) = sum as u32;
    }
}

/// The same with two buffers and one barrier per step, and tiles of rows of four as arrays.
#[kernel]
pub unsafe fn product_of_two_buffers(data: *mut u32, _aux: *mut u32, n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let (a, b) = (shared_array![[f32; FOUR]; 32], shared_array![f32; WORDS]);
    let (x, y) = (rank(), cuda_std::thread::thread_idx_y() as usize);
    let (column, row) = (crate::block() * TILE + x, cuda_std::thread::block_idx_y() as usize * TILE + y);
    let load = |step: usize| unsafe {
        let stage = step % 2;
        if x < 2 {
            let from = data.add(row * SIDE + step * TILE + FOUR * x).cast::<[u32; FOUR]>();
            *a.add(stage * 16 + y * 2 + x) = (*from).map(|word| (word % 5) as f32);
        }
        let from = data.add((step * TILE + y) * SIDE + column);
        *b.add(stage * BLOCK + y * TILE + x) = (*from % 3) as f32;
    };
    unsafe {
        load(0);
        let mut sum = 0.0;
        for step in 0..SIDE / TILE {
            sync_threads();
            if step + 1 < SIDE / TILE {
                load(step + 1);
            }
            let (a, b) = (a.add(step % 2 * 16 + y * 2), b.add(step % 2 * BLOCK));
            for k in 0..TILE {
                sum += (*a.add(k / FOUR))[k % FOUR] * *b.add(k * TILE + x);
            }
        }
        *data.add(n as usize / 2 + row * SIDE + column) = sum as u32;
    }
}

/// Each thread computes 2 x 2 elements in registers. One block of 8 x 8 threads.
#[kernel]
pub unsafe fn product_in_registers(data: *mut u32, _aux: *mut u32, n: u32) {
    const WORDS: usize = SIDE * SIDE;
    let (a, b) = (shared_array![f32; WORDS], shared_array![f32; WORDS]);
    let (x, y) = (rank(), cuda_std::thread::thread_idx_y() as usize);
    unsafe {
        for index in (y * TILE + x..WORDS).step_by(BLOCK) {
            *a.add(index) = (*data.add(index) % 5) as f32;
            *b.add(index) = (*data.add(index) % 3) as f32;
        }
        sync_threads();
        let mut sums = [[0.0; 2]; 2];
        for k in 0..SIDE {
            let left = [*a.add(2 * y * SIDE + k), *a.add((2 * y + 1) * SIDE + k)];
            let right = *b.add(k * SIDE + 2 * x).cast::<[f32; 2]>();
            for (sums, left) in sums.iter_mut().zip(left) {
                sums.iter_mut().zip(right).for_each(|(sum, right)| *sum += left * right);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            let to = data.add(n as usize / 2 + (2 * y + row) * SIDE + 2 * x);
            *to.cast::<[u32; 2]>() = sums.map(|sum| sum as u32);
        }
    }
}

/// A matrix times a vector: one warp a row, partial sums through shared memory.
#[kernel]
pub unsafe fn matrix_times_vector(data: *mut u32, aux: *mut u32, _n: u32) {
    let parts = shared_array![[u32; 2]; 32];
    unsafe {
        let (row, part) = (rank() / 2, rank() % 2);
        let mut sum = 0;
        for column in 0..4 {
            sum += *data.add(row * 8 + part * 4 + column);
        }
        (*parts.add(row))[part] = sum;
        sync_threads();
        if part == 0 {
            let [low, high] = *parts.add(row);
            *aux.add(row) = low + high;
        }
    }
}

/// A grid-stride loop over four words at a time, and a tail one by one.
#[kernel]
pub unsafe fn vectors_and_a_tail(data: *mut u32, _aux: *mut u32, n: u32) {
    let n = n as usize;
    let stride = BLOCK * cuda_std::thread::grid_dim_x() as usize;
    unsafe {
        for four in (global()..n / FOUR).step_by(stride) {
            let place = data.cast::<[u32; FOUR]>().add(four);
            *place = (*place).map(|word| word + 1);
        }
        let index = n / FOUR * FOUR + global();
        if index < n {
            *data.add(index) += 1;
        }
    }
}
