//! Local arrays that other threads reach by a pointer. On a GPU a local address is of the own thread alone.

use cuda_std::thread::sync_threads;
use cuda_std::warp::warp_shuffle_idx;
use cuda_std::{kernel, shared_array};

use crate::rank;

/// A thread hands its neighbours a pointer to its local array, by shared memory.
#[kernel]
pub unsafe fn local_array_read_by_others(data: *mut u32, _aux: *mut u32, n: u32) {
    let place = shared_array![u64; 1];
    let mut local = core::hint::black_box([n; 8]);
    unsafe {
        if rank() == 0 {
            *place = local.as_mut_ptr() as u64;
        }
        sync_threads();
        let pointer = *place as *const u32;
        *data.add(rank()) = *pointer.add(rank() % 8); // bug
        sync_threads();
    }
    core::hint::black_box(&mut local);
}

/// As above; the others write.
#[kernel]
pub unsafe fn local_array_written_by_others(data: *mut u32, _aux: *mut u32, n: u32) {
    const WORDS: usize = crate::BLOCK;
    let place = shared_array![u64; 1];
    let mut local = core::hint::black_box([n; WORDS]);
    unsafe {
        if rank() == 0 {
            *place = local.as_mut_ptr() as u64;
        }
        sync_threads();
        let pointer = *place as *mut u32;
        *pointer.add(rank()) = rank() as u32; // bug
        sync_threads();
        *data.add(rank()) = core::hint::black_box(&mut local)[rank()];
    }
}

/// The pointer goes through global memory.
#[kernel]
pub unsafe fn local_array_by_global_memory(data: *mut u32, aux: *mut u32, n: u32) {
    let mut local = core::hint::black_box([n; 4]);
    unsafe {
        if rank() == 7 {
            *aux.cast::<u64>() = local.as_mut_ptr() as u64;
        }
        sync_threads();
        let pointer = *aux.cast::<u64>() as *const u32;
        *data.add(rank()) = *pointer; // bug
        sync_threads();
    }
    core::hint::black_box(&mut local);
}

/// The pointer goes through a shuffle.
#[kernel]
pub unsafe fn local_array_by_shuffle(data: *mut u32, _aux: *mut u32, n: u32) {
    let mut local = core::hint::black_box([n + rank() as u32; 4]);
    unsafe {
        let (first, _) = warp_shuffle_idx(u32::MAX, local.as_mut_ptr() as u64, 0, 32);
        *data.add(rank()) = *(first as *const u32); // bug
        sync_threads();
    }
    core::hint::black_box(&mut local);
}

/// A table of pointers: every thread reads its neighbour's local.
#[kernel]
pub unsafe fn local_of_a_neighbour(data: *mut u32, _aux: *mut u32, _n: u32) {
    const THREADS: usize = crate::BLOCK;
    let places = shared_array![u64; THREADS];
    let mut local = core::hint::black_box(rank() as u32);
    unsafe {
        *places.add(rank()) = &raw mut local as u64;
        sync_threads();
        let other = *places.add(THREADS - 1 - rank()) as *const u32;
        *data.add(rank()) = *other; // bug
        sync_threads();
    }
    core::hint::black_box(&mut local);
}
