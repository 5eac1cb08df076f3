//! Whole programs with one mistake each: bounds, copies, unwritten memory, races, panics and hangs.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use cuda_std::prelude::*;
use cuda_std::warp::{FULL_MASK, WarpReductionOp};
use cuda_std::{mem, shared, shared_array, vector, warp};

use crate::{BLOCK, atomic, block, global, rank};

/// A five-point stencil of a 16 x 16 image that lies behind its output: the lowest row looks at the row
/// below.
#[kernel]
pub unsafe fn stencil_below_the_image(data: *mut u32, _aux: *mut u32, _n: u32) {
    const SIDE: usize = 16;
    unsafe {
        let (output, image) = (data, data.add(SIDE * SIDE));
        let at = global();
        let (x, y) = (at % SIDE, at / SIDE);
        let mut sum = 4 * *image.add(at);
        if x > 0 {
            sum += *image.add(at - 1);
        }
        if x + 1 < SIDE {
            sum += *image.add(at + 1);
        }
        if y > 0 {
            sum += *image.add(at - SIDE);
        }
        if y < SIDE {
            sum += *image.add(at + SIDE); // bug
        }
        *output.add(at) = sum;
    }
}

/// A histogram of the values from 32 on: smaller ones wrap around to a bin that is very far away.
#[kernel]
pub unsafe fn histogram_of_values_below_its_range(data: *mut u32, aux: *mut u32, n: u32) {
    const LOWEST: u32 = 32;
    const BINS: usize = 14;
    let bins = shared_array![u32; BINS];
    unsafe {
        if rank() < BINS {
            *bins.add(rank()) = 0;
        }
        thread::sync_threads();
        let mut i = rank();
        while i < n as usize {
            let bin = (*data.add(i)).wrapping_sub(LOWEST) / 16;
            atomic(bins.add(bin as usize)).fetch_add(1, Relaxed); // bug
            i += BLOCK;
        }
        thread::sync_threads();
        if rank() < BINS {
            *aux.add(rank()) = *bins.add(rank());
        }
    }
}

/// A radix sort by one warp: its ranks count the lane itself, so the last one's slot is one past the end.
#[kernel]
pub unsafe fn radix_split_by_inclusive_ranks(data: *mut u32, _aux: *mut u32, _n: u32) {
    let keys = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let lane = warp::lane_id();
        let up_to_here = u32::MAX >> (31 - lane);
        let mut key = *data.add(rank()) * 37 % 64;
        for bit in 0..6 {
            let is_one = key >> bit & 1 == 1;
            let ones = warp::warp_vote_ballot(FULL_MASK, is_one);
            let zeros = ones.count_zeros();
            let same = if is_one { ones } else { !ones };
            let first = if is_one { zeros } else { 0 };
            let slot = first + (same & up_to_here).count_ones();
            *keys.add(slot as usize) = key; // bug
            warp::sync_warp(FULL_MASK);
            key = *keys.add(rank());
            warp::sync_warp(FULL_MASK);
        }
        *data.add(32 + rank()) = key;
    }
}

/// A matrix times a vector: the tile's rows are padded to 17 words and read four words at a time.
#[kernel]
pub unsafe fn padded_rows_by_fours(data: *mut u32, aux: *mut u32, _n: u32) {
    const SIDE: usize = 16;
    const PITCH: usize = SIDE + 1;
    let tile = shared_array![u32; SIDE * PITCH];
    unsafe {
        for step in 0..SIDE * SIDE / BLOCK {
            let i = step * BLOCK + rank();
            *tile.add(i / SIDE * PITCH + i % SIDE) = *data.add(i);
        }
        thread::sync_threads();
        let (row, quarter) = (rank() / 4, rank() % 4);
        let place = shared::address_of(tile.add(row * PITCH + 4 * quarter));
        let four: [u32; 4] = vector::load_shared_v4(place); // bug
        let mut sum = 0;
        for (k, value) in four.into_iter().enumerate() {
            sum += value * (4 * quarter + k) as u32;
        }
        sum += warp::warp_shuffle_xor(FULL_MASK, sum, 1, 32).0;
        sum += warp::warp_shuffle_xor(FULL_MASK, sum, 2, 32).0;
        if quarter == 0 {
            *aux.add(row) = sum;
        }
    }
}

/// An element-wise kernel by fours: the last group begins inside of the array and is stored beyond it.
#[kernel]
pub unsafe fn last_four_reach_into_the_neighbour(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        let (first, n) = (4 * rank(), n as usize);
        if first < n {
            let mut values = [0; 4];
            for (k, value) in values.iter_mut().enumerate() {
                if first + k < n {
                    *value = 3 * *data.add(first + k) + 1;
                }
            }
            vector::store_v4(data.add(first), values); // bug
        }
    }
}

/// A record of a sorted list.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    key: u32,
    weights: [u32; 5],
}

/// Insertion into a sorted list of structs: all behind the place move up at once, each over one not yet read.
#[kernel]
pub unsafe fn records_move_up_together(data: *mut u32, _aux: *mut u32, _n: u32) {
    const NEW: u32 = 100;
    unsafe {
        let records = data.cast::<Record>();
        let i = rank();
        let is_smaller = (*records.add(i)).key < NEW;
        let place = thread::sync_threads_count(u32::from(is_smaller)) as usize;
        if i >= place {
            *records.add(i + 1) = *records.add(i); // bug
        }
        thread::sync_threads();
        if i == 0 {
            *records.add(place) = Record { key: NEW, weights: [1; 5] };
        }
    }
}

/// Letter frequencies: the bins are cleared like by a memset, but with the number of bytes for that of words.
#[kernel]
pub unsafe fn bins_cleared_by_their_bytes(data: *mut u32, aux: *mut u32, n: u32) {
    const BINS: usize = 32;
    let bins = shared_array![u32; BINS];
    unsafe {
        if rank() == 0 {
            core::ptr::write_bytes(bins, 0, BINS * size_of::<u32>()); // bug
        }
        thread::sync_threads();
        let text = data.cast::<u8>();
        let mut i = rank();
        while i < 4 * n as usize {
            let letter = *text.add(i) as usize % BINS;
            atomic(bins.add(letter)).fetch_add(1, Relaxed);
            i += BLOCK;
        }
        thread::sync_threads();
        if rank() < BINS {
            *aux.add(rank()) = *bins.add(rank());
        }
    }
}

/// A convolution of five taps: the last block has no words behind its own, and leaves its right halo
/// unwritten.
#[kernel]
pub unsafe fn convolution_without_the_last_halo(data: *mut u32, _aux: *mut u32, n: u32) {
    const RADIUS: usize = 2;
    let tile = shared_array![u32; BLOCK + 2 * RADIUS];
    unsafe {
        let length = n as usize / 2;
        let output = data.add(length);
        let i = global();
        *tile.add(RADIUS + rank()) = *data.add(i);
        if rank() < RADIUS {
            *tile.add(rank()) = if i >= RADIUS { *data.add(i - RADIUS) } else { 0 };
        }
        if rank() >= BLOCK - RADIUS && i + RADIUS < length {
            *tile.add(rank() + 2 * RADIUS) = *data.add(i + RADIUS);
        }
        thread::sync_threads();
        let mut sum = 0;
        for tap in 0..=2 * RADIUS {
            sum += (tap as u32 + 1) * *tile.add(rank() + tap); // bug
        }
        *output.add(i) = sum;
    }
}

/// The edit distance of two words by a row from the device's heap: the row's first element is never set.
#[kernel]
pub unsafe fn edit_distance_row_from_one(data: *mut u32, aux: *mut u32, _n: u32) {
    const LENGTH: usize = 8;
    unsafe {
        if rank() == 0 {
            let row = mem::malloc((LENGTH + 1) * size_of::<u32>()).cast::<u32>();
            for j in 1..=LENGTH {
                *row.add(j) = j as u32;
            }
            for i in 1..=LENGTH {
                let mut diagonal = *row; // bug
                *row = i as u32;
                for j in 1..=LENGTH {
                    let above = *row.add(j);
                    let differ = *data.add(i) % 5 != *data.add(LENGTH + j) % 3;
                    let replaced = diagonal.saturating_add(u32::from(differ));
                    *row.add(j) = replaced.min(above + 1).min(*row.add(j - 1) + 1);
                    diagonal = above;
                }
            }
            *aux = *row.add(LENGTH);
            mem::free(row.cast());
        }
    }
}

/// A bitonic sort: there is a barrier for each size of the runs, but none between the distances of a size.
#[kernel]
pub unsafe fn bitonic_sort_with_a_barrier_a_size(data: *mut u32, _aux: *mut u32, _n: u32) {
    let keys = shared_array![u32; BLOCK];
    unsafe {
        let i = rank();
        *keys.add(i) = *data.add(i) * 37 % 101;
        let mut size = 2;
        while size <= BLOCK {
            thread::sync_threads();
            let mut distance = size / 2;
            while distance > 0 {
                let other = i ^ distance;
                if other > i {
                    let (a, b) = (*keys.add(i), *keys.add(other)); // bug
                    if (a > b) == (i & size == 0) {
                        (*keys.add(i), *keys.add(other)) = (b, a); // bug
                    }
                }
                distance /= 2;
            }
            size *= 2;
        }
        thread::sync_threads();
        *data.add(i) = *keys.add(i);
    }
}

/// A product of matrices by tiles: no barrier after the sums, so the next tile comes over one still in use.
#[kernel]
pub unsafe fn product_whose_tile_is_overwritten(data: *mut u32, aux: *mut u32, _n: u32) {
    const SIDE: usize = 8;
    const STEPS: usize = 2;
    let tile = shared_array![u32; SIDE * SIDE];
    unsafe {
        let (a, b) = (data, data.add(SIDE * SIDE * STEPS));
        let (row, column) = (rank() / SIDE, rank() % SIDE);
        let mut sum = 0u32;
        for step in 0..STEPS {
            *tile.add(row * SIDE + column) = *b.add((step * SIDE + row) * SIDE + column); // bug
            thread::sync_threads();
            for k in 0..SIDE {
                let left = *a.add(row * SIDE * STEPS + step * SIDE + k);
                sum = sum.wrapping_add(left * *tile.add(k * SIDE + column)); // bug
            }
        }
        *aux.add(rank()) = sum;
    }
}

/// Attention with an online softmax and two buffers of keys: the buffer changes only every second step.
#[kernel]
pub unsafe fn attention_keys_in_the_same_buffer(data: *mut u32, aux: *mut u32, _n: u32) {
    const TILE: usize = 16;
    let keys = shared_array![u32; 2 * TILE];
    unsafe {
        let query = *data.add(rank());
        let (mut largest, mut sum, mut output) = (f32::MIN, 0.0, 0.0);
        for step in 0..4 {
            let buffer = keys.add(step / 2 % 2 * TILE);
            if rank() < TILE {
                *buffer.add(rank()) = *data.add(BLOCK + step * TILE + rank()); // bug
            }
            thread::sync_threads();
            for k in 0..TILE {
                let key = *buffer.add(k); // bug
                let score = (query * key % 257) as f32 / 64.0;
                let before = largest;
                largest = if score > before { score } else { before };
                let (old, new) = ((before - largest).exp(), (score - largest).exp());
                sum = sum * old + new;
                output = output * old + new * key as f32;
            }
        }
        *aux.add(rank()) = (output / sum).to_bits();
    }
}

/// A step of k-means: the points of a block are added up atomically, the blocks' sums are not.
#[kernel]
pub unsafe fn centroids_added_up_plainly(data: *mut u32, aux: *mut u32, _n: u32) {
    const CENTROIDS: [u32; 4] = [40, 90, 170, 230];
    const SUMS: usize = 2 * CENTROIDS.len();
    let sums = shared_array![u32; SUMS];
    unsafe {
        if rank() < SUMS {
            *sums.add(rank()) = 0;
        }
        thread::sync_threads();
        let point = *data.add(global());
        let mut nearest = 0;
        for (k, centroid) in CENTROIDS.into_iter().enumerate() {
            if point.abs_diff(centroid) < point.abs_diff(CENTROIDS[nearest]) {
                nearest = k;
            }
        }
        atomic(sums.add(nearest)).fetch_add(point, Relaxed);
        atomic(sums.add(CENTROIDS.len() + nearest)).fetch_add(1, Relaxed);
        thread::sync_threads();
        if rank() < SUMS {
            *aux.add(rank()) += *sums.add(rank()); // bug
        }
    }
}

/// A transposition in place: each tile goes to its mirror place, whose block may not have read it yet.
#[kernel]
pub unsafe fn transposition_in_place_by_all_tiles(data: *mut u32, _aux: *mut u32, _n: u32) {
    const TILE: usize = 8;
    const SIDE: usize = 2 * TILE;
    let tile = shared_array![u32; TILE * TILE];
    unsafe {
        let (column, row) = (thread::block_idx_x() as usize * TILE, thread::block_idx_y() as usize * TILE);
        let (x, y) = (rank() % TILE, rank() / TILE);
        *tile.add(y * TILE + x) = *data.add((row + y) * SIDE + column + x); // bug
        thread::sync_threads();
        *data.add((column + y) * SIDE + row + x) = *tile.add(x * TILE + y); // bug
    }
}

/// A relaxation between two buffers: each step reads what the step before wrote by the read-only path.
#[kernel]
pub unsafe fn relaxation_by_read_only_loads(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        for step in 0..4 {
            let from = data.add(step % 2 * BLOCK).cast_const();
            let to = data.add((step + 1) % 2 * BLOCK);
            let (left, right) = ((rank() + BLOCK - 1) % BLOCK, (rank() + 1) % BLOCK);
            let sum = vector::load_nc(from.add(left)) + vector::load_nc(from.add(right)); // bug
            *to.add(rank()) = sum / 2; // bug
            thread::sync_threads();
        }
    }
}

/// A compaction: one thread writes down how many there are while others still count theirs.
#[kernel]
pub unsafe fn compaction_whose_size_is_read_too_soon(data: *mut u32, aux: *mut u32, n: u32) {
    const MOST: usize = 4 * BLOCK;
    let kept = shared_array![u32; MOST];
    let size = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            *size = 0;
        }
        thread::sync_threads();
        let mut i = rank();
        while i < n as usize {
            let value = *data.add(i);
            if value.is_multiple_of(3) {
                let slot = atomic(size).fetch_add(1, Relaxed); // bug
                *kept.add(slot as usize) = value;
            }
            i += BLOCK;
        }
        if rank() == 0 {
            *aux = *size; // bug
        }
        thread::sync_threads();
        let (mut i, size) = (rank(), *size as usize);
        while i < size {
            *data.add(i) = *kept.add(i);
            i += BLOCK;
        }
    }
}

/// The bounds of all values under a lock that is given back by a release but taken by a relaxed exchange.
#[kernel]
pub unsafe fn bounds_under_a_relaxed_lock(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let value = *data.add(global()) + 1;
        let least = warp::warp_reduce(FULL_MASK, value, WarpReductionOp::Min);
        let most = warp::warp_reduce(FULL_MASK, value, WarpReductionOp::Max);
        if rank() == 0 {
            let lock = atomic(aux);
            while lock.compare_exchange(0, 1, Relaxed, Relaxed).is_err() {}
            let (low, high) = (*aux.add(1), *aux.add(2)); // bug
            let low = if low == 0 || least < low { least } else { low };
            (*aux.add(1), *aux.add(2)) = (low, high.max(most)); // bug
            lock.store(0, Release);
        }
    }
}

/// A table of one thread's stack whose address the other threads get through shared memory.
#[kernel]
pub unsafe fn table_on_one_stack(data: *mut u32, _aux: *mut u32, _n: u32) {
    let place = shared_array![u64; 1];
    unsafe {
        let seed = *data.add(rank());
        let mut table = [0u32; 8];
        for (k, entry) in table.iter_mut().enumerate() {
            *entry = seed + (k * k) as u32;
        }
        if rank() == 0 {
            *place = (&raw const table).expose_provenance() as u64;
        }
        thread::sync_threads();
        let first = core::ptr::with_exposed_provenance::<u32>(*place as usize);
        let mut sum = 0;
        for k in 0..8 {
            sum += *first.add(k); // bug
        }
        thread::sync_threads();
        *data.add(rank()) = sum + table[rank() % 8];
    }
}

/// A merge of sorted runs, one pair a thread: it goes on comparing with a run that is used up.
#[kernel]
pub unsafe fn merge_of_a_run_that_is_used_up(data: *mut u32, _aux: *mut u32, _n: u32) {
    const RUN: usize = 16;
    unsafe {
        if rank() < 4 {
            let first = rank() * 2 * RUN;
            let a = core::slice::from_raw_parts(data.add(first), RUN);
            let b = core::slice::from_raw_parts(data.add(first + RUN), RUN);
            let output = data.add(8 * RUN + first);
            let (mut i, mut j) = (0, 0);
            while i + j < 2 * RUN {
                let (left, right) = (a[i], b[j]); // bug
                if left <= right {
                    *output.add(i + j) = left;
                    i += 1;
                } else {
                    *output.add(i + j) = right;
                    j += 1;
                }
            }
        }
    }
}

/// A lock around a sum: a block whose value is even goes home without giving it back.
#[kernel]
pub unsafe fn lock_that_goes_home_with_a_block(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let value = *data.add(block());
            while atomic(aux).swap(1, Acquire) != 0 {} // bug
            if value.is_multiple_of(2) {
                return;
            }
            *aux.add(1) += value;
            atomic(aux).store(0, Release);
        }
    }
}
