//! Static and dynamic shared memory.

use cuda_std::{address_space, kernel, shared, shared_array, thread};

/// Side of [`shared_static_transpose()`]'s tile.
pub const TILE: usize = 16;

#[address_space(shared)]
static mut TILE_STORE: [[f32; TILE + 1]; TILE] = [[0.0; TILE + 1]; TILE];

/// Transposes one tile through a static declared outside the kernel.
///
/// # Safety
/// One block of `TILE * TILE` threads; both arrays hold a tile.
#[kernel]
pub unsafe fn shared_static_transpose(x: &[f32], out: *mut f32) {
    let i = thread::index_1d() as usize;
    let (row, column) = (i / TILE, i % TILE);
    // SAFETY: every index is below `TILE`; a barrier separates the writes from the reads.
    unsafe {
        TILE_STORE[row % TILE][column] = *x.get_unchecked(i);
        thread::sync_threads();
        out.add(i).write(TILE_STORE[column][row % TILE]);
    }
}

/// Sums each block's values by a tree reduction in a `shared_array!`.
///
/// # Safety
/// Blocks of 256 threads; an element for each thread, one of `out` for each block.
#[kernel]
pub unsafe fn shared_tree_sum(x: &[f32], out: *mut f32) {
    const THREADS: usize = 256;
    let sums = shared_array![f32; THREADS];
    let t = thread::thread_idx_x() as usize;
    // SAFETY: indices stay below `THREADS`; a barrier separates each level's writes from the next level's
    // reads.
    unsafe {
        sums.add(t).write(*x.get_unchecked(thread::index_1d() as usize));
        let mut half = THREADS / 2;
        while half > 0 {
            thread::sync_threads();
            if t < half {
                *sums.add(t) += *sums.add(t + half);
            }
            half /= 2;
        }
        if t == 0 {
            out.add(thread::block_idx_x() as usize).write(*sums);
        }
    }
}

/// Rotates each block's values by one through dynamic shared memory of 4 bytes per thread.
///
/// # Safety
/// Dynamic shared memory of one word per thread; an element of both arrays for each thread.
#[kernel]
pub unsafe fn shared_dynamic_rotate(x: &[u32], out: *mut u32) {
    let words = shared::dynamic_shared_mem::<u32>();
    let (t, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let i = thread::index_1d() as usize;
    let next = if t + 1 == threads { 0 } else { t + 1 };
    // SAFETY: one word per thread; a barrier separates the writes from the reads.
    unsafe {
        words.add(t as usize).write(*x.get_unchecked(i));
        thread::sync_threads();
        out.add(i).write(*words.add(next as usize));
    }
}

/// Checks that two arrays in one kernel do not overlap, and that each is aligned for its type. Writes the sum
/// of both and of the misalignments, which are zero.
///
/// # Safety
/// One block of 64 threads; `out` has 64 elements.
#[kernel]
pub unsafe fn shared_two_arrays(out: *mut u64) {
    const THREADS: usize = 64;
    let bytes = shared_array![u8; THREADS];
    let words = shared_array![u64; THREADS];
    let t = thread::thread_idx_x() as usize;
    let misaligned = words as usize % align_of::<u64>();
    // SAFETY: each thread has its own place in both; a barrier separates the writes from the reads.
    unsafe {
        bytes.add(t).write(t as u8);
        words.add(t).write(1000 * t as u64);
        thread::sync_threads();
        let other = THREADS - 1 - t;
        out.add(t).write(u64::from(*bytes.add(other)) + *words.add(other) + misaligned as u64);
    }
}
