//! Asynchronous copies that are read too early or are invalid.

use cuda_std::async_copy::{commit_group, copy_ca, wait_all, wait_group};
use cuda_std::thread::sync_threads;
use cuda_std::{kernel, shared, shared_array};

use crate::{BLOCK, rank};

/// No wait for the copy.
#[kernel]
pub unsafe fn copy_without_wait(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        copy_ca::<4, _>(shared::address_of(tile.add(rank())), data.add(rank())); // bug
        commit_group();
        sync_threads();
        *data.add(rank() + BLOCK) = *tile.add(rank()); // bug
    }
}

/// The group is never committed, so waiting for groups does not wait for it.
#[kernel]
pub unsafe fn copy_without_commit(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        copy_ca::<4, _>(shared::address_of(tile.add(rank())), data.add(rank())); // bug
        wait_group::<0>();
        sync_threads();
        *data.add(rank() + BLOCK) = *tile.add(rank()); // bug
    }
}

/// Waits for one group too few.
#[kernel]
pub unsafe fn wait_for_too_few(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tile = shared_array![u32; WORDS];
    unsafe {
        for stage in 0..2 {
            let at = stage * BLOCK + rank();
            copy_ca::<4, _>(shared::address_of(tile.add(at)), data.add(at)); // bug
            commit_group();
        }
        wait_group::<1>();
        sync_threads();
        *data.add(rank() + WORDS) = *tile.add(rank() + BLOCK); // bug
    }
}

/// Each thread waits for its own copies and reads another thread's.
#[kernel]
pub unsafe fn wait_without_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 0;
        sync_threads();
        copy_ca::<4, _>(shared::address_of(tile.add(rank())), data.add(rank())); // bug
        wait_all();
        let other = *tile.add(BLOCK - 1 - rank()); // bug
        *data.add(rank() + BLOCK) = other;
    }
}

/// A 16-byte copy to an address that is only 4-byte aligned.
#[kernel]
pub unsafe fn misaligned_copy(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        copy_ca::<16, _>(shared::address_of(tile.add(1)), data); // bug
        wait_all();
    }
}

/// The source is past the end.
#[kernel]
pub unsafe fn copy_from_beyond(data: *mut u32, _aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        copy_ca::<4, _>(shared::address_of(tile.add(rank())), data.add(n as usize)); // bug
        wait_all();
    }
}
