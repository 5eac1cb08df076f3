//! Whole programs with one mistake each: tiles in shared memory, indices, and blocks that share memory.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use cuda_std::atomic::mid::{atomic_fetch_add_u32_block, atomic_fetch_add_u32_device, atomic_store_32_block};
use cuda_std::thread::{block_idx_y, grid_dim_x, sync_threads, thread_idx_x, thread_idx_y};
use cuda_std::warp::{lane_id, sync_warp, warp_shuffle_xor};
use cuda_std::{kernel, shared_array, vector};

use crate::{BLOCK, atomic, block, global, rank};

/// Side of a tile.
const T: usize = 16;

/// The thread's column and row in a tile.
fn place() -> (usize, usize) {
    (thread_idx_x() as usize, thread_idx_y() as usize)
}

/// A tiled product of 16x32 and 32x16. Nothing stands between the use of a tile and the next load.
#[kernel]
pub unsafe fn gemm_without_second_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    const K: usize = 32;
    const WORDS: usize = T * T;
    let (a, b) = (shared_array![f32; WORDS], shared_array![f32; WORDS]);
    let (x, y) = place();
    unsafe {
        let (left, right, out) = (data, data.add(512), data.add(1024));
        let mut sum = 0.0;
        for start in (0..K).step_by(T) {
            *a.add(y * T + x) = *left.add(y * K + start + x) as f32; // bug
            *b.add(y * T + x) = *right.add((start + y) * T + x) as f32; // bug
            sync_threads();
            for k in 0..T {
                sum += *a.add(y * T + k) * *b.add(k * T + x); // bug
            }
        }
        *out.add(y * T + x) = sum as u32;
    }
}

/// A transposition of 32x32 through shared memory, with a barrier of the warp in place of the block's.
#[kernel]
pub unsafe fn transpose_with_a_warp_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    const PITCH: usize = 33;
    const WORDS: usize = 32 * PITCH;
    let tile = shared_array![u32; WORDS];
    let (x, y) = place();
    unsafe {
        for row in (y..32).step_by(8) {
            *tile.add(row * PITCH + x) = *data.add(row * 32 + x); // bug
        }
        sync_warp(u32::MAX);
        for row in (y..32).step_by(8) {
            *data.add(1024 + row * 32 + x) = *tile.add(x * PITCH + row); // bug
        }
    }
}

/// A softmax of one row. The sums of the warps go over their maxima, which others may still read.
#[kernel]
pub unsafe fn softmax_scratch_reused(data: *mut u32, aux: *mut u32, _n: u32) {
    let partial = shared_array![f32; 4];
    let (warp, lane) = (rank() / 32, lane_id());
    unsafe {
        let x = *data.add(rank()) as f32 / 128.0;
        let mut max = x;
        for d in [16, 8, 4, 2, 1] {
            max = max.max(warp_shuffle_xor(u32::MAX, max, d, 32).0);
        }
        if lane == 0 {
            *partial.add(warp) = max;
        }
        sync_threads();
        let max = (0..4).map(|w| *partial.add(w)).fold(0.0, f32::max); // bug
        let mut sum = 1.0 + (x - max);
        for d in [16, 8, 4, 2, 1] {
            sum += warp_shuffle_xor(u32::MAX, sum, d, 32).0;
        }
        if lane == 0 {
            *partial.add(warp) = sum; // bug
        }
        sync_threads();
        let total: f32 = (0..4).map(|w| *partial.add(w)).sum();
        if lane == 0 {
            *aux.add(warp) = total as u32;
        }
    }
}

/// A bitonic sort that takes the lanes of a warp to run in step.
#[kernel]
pub unsafe fn bitonic_sort_in_step(data: *mut u32, _aux: *mut u32, _n: u32) {
    let keys = shared_array![u32; BLOCK];
    let i = rank();
    unsafe {
        *keys.add(i) = (*data.add(i)).wrapping_mul(2_654_435_761); // bug
        sync_threads();
        let mut k = 2;
        while k <= BLOCK {
            let mut j = k / 2;
            while j > 0 {
                let other = i ^ j;
                if other > i {
                    let (low, high) = (*keys.add(i), *keys.add(other)); // bug
                    if (low > high) == (i & k == 0) {
                        *keys.add(i) = high; // bug
                        *keys.add(other) = low; // bug
                    }
                }
                if j >= 32 {
                    sync_threads();
                }
                j /= 2;
            }
            k *= 2;
        }
        sync_threads();
        *data.add(i) = *keys.add(i);
    }
}

/// The last block sums up. Thread 0 tells the others by a shared word, with no barrier.
#[kernel]
pub unsafe fn last_block_told_too_early(data: *mut u32, aux: *mut u32, _n: u32) {
    let is_last = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            let sum = (0..BLOCK).map(|i| *data.add(block() * BLOCK + i)).sum();
            atomic(aux.add(block())).store(sum, Relaxed);
            let ticket = atomic(aux.add(32)).fetch_add(1, AcqRel);
            *is_last = u32::from(ticket + 1 == grid_dim_x()); // bug
        }
        let sums_up = *is_last != 0; // bug
        if sums_up && rank() == 1 {
            *aux.add(40) = (0..4).map(|b| atomic(aux.add(b)).load(Relaxed)).sum();
        }
    }
}

/// The best of each lane go to a list of the warp, which lane 0 merges at once.
#[kernel]
pub unsafe fn top_k_merged_too_early(data: *mut u32, aux: *mut u32, n: u32) {
    let lists = shared_array![u32; BLOCK];
    let (warp, lane) = (rank() / 32, rank() % 32);
    unsafe {
        let mut best = 0;
        for i in (rank()..n as usize).step_by(BLOCK) {
            best = best.max(*data.add(i) ^ 0x55);
        }
        *lists.add(rank()) = best; // bug
        if lane == 0 {
            let (mut first, mut second) = (0, 0);
            for i in 0..32 {
                let value = *lists.add(warp * 32 + i); // bug
                if value > first {
                    (first, second) = (value, first);
                } else if value > second {
                    second = value;
                }
            }
            *aux.add(2 * warp) = first;
            *aux.add(2 * warp + 1) = second;
        }
    }
}

/// A step of a Jacobi iteration into the array that it reads.
#[kernel]
pub unsafe fn jacobi_in_place(data: *mut u32, _aux: *mut u32, n: u32) {
    let i = global();
    unsafe {
        if i > 0 && i + 1 < n as usize {
            let (left, right) = (*data.add(i - 1), *data.add(i + 1)); // bug
            *data.add(i) = u32::midpoint(left, right); // bug
        }
    }
}

/// A reduction in one launch: the last block sums up the parts of all, without fences.
#[kernel]
pub unsafe fn block_sums_without_fences(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(global());
        sync_threads();
        let mut half = BLOCK / 2;
        while half > 0 {
            if rank() < half {
                *tile.add(rank()) += *tile.add(rank() + half);
            }
            sync_threads();
            half /= 2;
        }
        if rank() == 0 {
            *aux.add(block()) = *tile; // bug
            let ticket = atomic_fetch_add_u32_device(aux.add(32), Relaxed, 1);
            if ticket == grid_dim_x() - 1 {
                let mut total = 0;
                for other in 0..grid_dim_x() as usize {
                    total += *aux.add(other); // bug
                }
                *aux.add(40) = total;
            }
        }
    }
}

/// Four steps of a stencil over two arrays in one launch; only the block waits between steps.
#[kernel]
pub unsafe fn stencil_steps_by_block(data: *mut u32, _aux: *mut u32, _n: u32) {
    const N: usize = 256;
    let i = global();
    unsafe {
        let (mut from, mut to) = (data, data.add(N));
        for _ in 0..4 {
            let left = *from.add(i.saturating_sub(1)); // bug
            let right = *from.add((i + 1).min(N - 1)); // bug
            *to.add(i) = u32::midpoint(left, right); // bug
            sync_threads();
            (from, to) = (to, from);
        }
    }
}

/// A scan with look-back: the flags of the blocks are set with block scope.
#[kernel]
pub unsafe fn look_back_with_block_scope(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let mut sum: u32 = (0..BLOCK).map(|i| *data.add(block() * BLOCK + i)).sum();
            if block() > 0 {
                while atomic(aux.add(31 + block())).load(Acquire) == 0 {} // bug
                sum += *aux.add(block() - 1); // bug
            }
            *aux.add(block()) = sum; // bug
            atomic_store_32_block(aux.add(32 + block()), Release, 1); // bug
        }
    }
}

/// A spin lock that is opened by a relaxed store.
#[kernel]
pub unsafe fn lock_opened_relaxed(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            while atomic(aux).compare_exchange(0, 1, Acquire, Relaxed).is_err() {}
            *aux.add(8) += 1; // bug
            atomic(aux).store(0, Relaxed);
        }
    }
}

/// A queue whose tail counts a slot before it is written.
#[kernel]
pub unsafe fn queue_published_before_written(data: *mut u32, aux: *mut u32, _n: u32) {
    const ITEMS: u32 = 8;
    unsafe {
        if block() == 0 && rank() < ITEMS as usize {
            let slot = atomic(aux).fetch_add(1, AcqRel) as usize;
            *data.add(100 + slot) = 10 * rank() as u32; // bug
        } else if block() == 1 && rank() == 0 {
            while atomic(aux).load(Acquire) < ITEMS {}
            let mut sum = 0;
            for slot in 0..ITEMS as usize {
                sum += *data.add(100 + slot); // bug
            }
            *aux.add(8) = sum;
        }
    }
}

/// A histogram in global memory that all blocks count in, with atomics of block scope.
#[kernel]
pub unsafe fn histogram_with_block_scope(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        if global() < n as usize {
            let bin = *data.add(global()) as usize % 32;
            atomic_fetch_add_u32_block(aux.add(bin), Relaxed, 1); // bug
        }
    }
}

/// Threads look for odd values until ten are found; they look at the count by a plain load.
#[kernel]
pub unsafe fn count_read_plainly(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        for i in (rank()..n as usize).step_by(BLOCK) {
            let found = *aux; // bug
            if found >= 10 {
                break;
            }
            if *data.add(i) % 2 == 1 {
                atomic(aux).fetch_add(1, Relaxed); // bug
            }
        }
    }
}

/// A particle as it lies in memory.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Particle {
    place: [f32; 3],
    mass: f32,
}

/// Particles are moved towards their neighbours, in place.
#[kernel]
pub unsafe fn particles_moved_in_place(data: *mut u32, _aux: *mut u32, _n: u32) {
    let particles = data.cast::<Particle>();
    let i = rank();
    unsafe {
        let next = *particles.add((i + 1) % BLOCK); // bug
        let mut own = *particles.add(i);
        for axis in 0..3 {
            own.place[axis] += (next.place[axis] - own.place[axis]) * next.mass;
        }
        *particles.add(i) = own; // bug
    }
}

/// The scale of a norm goes through global memory, and is read through the read-only path.
#[kernel]
pub unsafe fn norm_scale_by_read_only_load(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let squares: f32 = (0..BLOCK).map(|i| *data.add(i) as f32).map(|x| x * x).sum();
            *aux.cast::<f32>() = 1.0 / (squares + 1.0); // bug
        }
        sync_threads();
        let scale = vector::load_nc(aux.cast::<f32>()); // bug
        *data.add(BLOCK + rank()) = (*data.add(rank()) as f32 * scale) as u32;
    }
}

/// A stencil whose tile has a halo on both sides; the right one is never loaded.
#[kernel]
pub unsafe fn stencil_halo_not_loaded(data: *mut u32, aux: *mut u32, n: u32) {
    const WORDS: usize = BLOCK + 2;
    let tile = shared_array![u32; WORDS];
    unsafe {
        *tile.add(rank() + 1) = *data.add(BLOCK + rank());
        if rank() == 0 {
            *tile = *data.add(BLOCK - 1);
        }
        if rank() == BLOCK && n > 0 {
            *tile.add(BLOCK + 1) = *data.add(2 * BLOCK);
        }
        sync_threads();
        let (left, right) = (*tile.add(rank()), *tile.add(rank() + 2)); // bug
        *aux.add(rank()) = left + right;
    }
}

/// A sum of two warps whose last step reads 32 parts.
#[kernel]
pub unsafe fn sum_of_parts_never_written(data: *mut u32, aux: *mut u32, _n: u32) {
    let parts = shared_array![u32; 32];
    unsafe {
        let mut sum = *data.add(rank());
        for d in [16, 8, 4, 2, 1] {
            sum += warp_shuffle_xor(u32::MAX, sum, d, 32).0;
        }
        if lane_id() == 0 {
            *parts.add(rank() / 32) = sum;
        }
        sync_threads();
        if rank() < 32 {
            let mut total = *parts.add(rank()); // bug
            for d in [16, 8, 4, 2, 1] {
                total += warp_shuffle_xor(u32::MAX, total, d, 32).0;
            }
            *aux.add(rank()) = total;
        }
    }
}

/// A product of 20 rows in tiles of 16: the second tile's rows are not masked.
#[kernel]
pub unsafe fn gemm_edge_not_masked(data: *mut u32, aux: *mut u32, n: u32) {
    const WORDS: usize = T * T;
    let a = shared_array![u32; WORDS];
    let (x, y) = place();
    let row = block_idx_y() as usize * T + y;
    unsafe {
        *a.add(y * T + x) = *data.add(row * T + x); // bug
        sync_threads();
        if row < n as usize && x == 0 {
            *aux.add(row) = (0..T).map(|k| *a.add(y * T + k)).sum();
        }
    }
}

/// A histogram of 16 bins: the largest value falls behind the last.
#[kernel]
pub unsafe fn largest_value_behind_the_bins(data: *mut u32, aux: *mut u32, n: u32) {
    const BINS: usize = 16;
    let bins = shared_array![u32; BINS];
    unsafe {
        if rank() < BINS {
            *bins.add(rank()) = 0;
        }
        sync_threads();
        for i in (rank()..n as usize).step_by(BLOCK) {
            let bin = *data.add(i) as usize * BINS / 255;
            atomic(bins.add(bin)).fetch_add(1, Relaxed); // bug
        }
        sync_threads();
        if rank() < BINS {
            *aux.add(rank()) = *bins.add(rank());
        }
    }
}

/// A difference to the left neighbour; the first element's index wraps around.
#[kernel]
pub unsafe fn left_of_the_first(data: *mut u32, aux: *mut u32, _n: u32) {
    let i = rank() as u32;
    unsafe {
        let left = i.wrapping_sub(1);
        *aux.add(rank()) = (*data.add(i as usize)).wrapping_sub(*data.add(left as usize)); // bug
    }
}

/// Two tiles without padding; the first is indexed as if it had some.
#[kernel]
pub unsafe fn padded_index_without_padding(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = T * T;
    let (a, b) = (shared_array![u32; WORDS], shared_array![u32; WORDS]);
    let (x, y) = place();
    unsafe {
        *b.add(y * T + x) = *data.add(y * T + x);
        sync_threads();
        *a.add(y * (T + 1) + x) = *b.add(x * T + y); // bug
        sync_threads();
        *data.add(y * T + x) = *a.add(y * (T + 1) + x); // bug
    }
}

/// Rows of 33 words that are loaded four words at a time.
#[kernel]
pub unsafe fn rows_of_odd_length(data: *mut u32, aux: *mut u32, _n: u32) {
    const COLUMNS: usize = 33;
    let (row, lane) = (rank() / 8, rank() % 8);
    unsafe {
        if row < 7 {
            let four = vector::load_v4(data.add(row * COLUMNS + 4 * lane)); // bug
            *aux.add(rank()) = four.iter().sum();
        }
    }
}

/// Lane 0 merges the lists of its warp, which are local arrays, by their addresses.
#[kernel]
pub unsafe fn lists_merged_by_address(data: *mut u32, aux: *mut u32, _n: u32) {
    let places = shared_array![u64; BLOCK];
    unsafe {
        let mut list = [0; 4];
        for (slot, best) in list.iter_mut().enumerate() {
            *best = *data.add(rank() + BLOCK * slot);
        }
        *places.add(rank()) = core::hint::black_box(&mut list).as_ptr() as u64;
        sync_threads();
        if rank().is_multiple_of(32) {
            let mut best = 0;
            for lane in 0..32 {
                let other = *places.add(rank() + lane) as *const u32;
                for slot in 0..4 {
                    best = best.max(*other.add(slot)); // bug
                }
            }
            *aux.add(rank() / 32) = best;
        }
        sync_threads();
        core::hint::black_box(&mut list);
    }
}
