//! Global memory that asynchronous copies read or reduce into: touched too early, and in time.

use cuda_std::async_copy::{copy_ca, wait_all};
use cuda_std::mbarrier;
use cuda_std::thread::sync_threads;
use cuda_std::{fence, grid, kernel, shared, shared_array, tma};

use crate::copy_patterns::mbarriers;
use crate::{BLOCK, BOX_BYTES, block, map, rank};

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// A barrier stands between fetch and write, but the fetching thread waits after it.
#[kernel]
pub unsafe fn source_rewritten_by_a_neighbour(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        copy_ca::<4, _>(shared::address_of(tile.add(rank())), data.add(rank())); // bug
        sync_threads();
        *data.add(BLOCK - 1 - rank()) = 0; // bug
        wait_all();
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// The fetching thread waits, and then the others write.
#[kernel]
pub unsafe fn source_rewritten_after_the_wait(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        copy_ca::<4, _>(shared::address_of(tile.add(rank())), data.add(rank()));
        wait_all();
        sync_threads();
        *data.add(BLOCK - 1 - rank()) = 0;
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// The box's rows are written after a barrier of the block, which does not wait for the copy.
#[kernel]
pub unsafe fn tensor_rewritten_behind_a_barrier(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, BOX_BYTES);
            tma::load_2d(shared::address_of(tile), map(aux), bar, [0, 0]); // bug
        }
        sync_threads();
        if rank() == 40 {
            *data.add(1) = 7; // bug
        }
        mbarrier::wait_parity(bar, 0);
    }
}

/// One block writes the tensor, and another copies from it: no thread fences between.
#[kernel]
pub unsafe fn tensor_written_without_proxy_fence(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if block() == 0 {
            *data.add(rank()) = 1; // bug
        }
        grid::sync(aux.add(32));
        if block() == 1 && rank() == 0 {
            mbarrier::arrive_expect_tx(bar, BOX_BYTES);
            tma::load_2d(shared::address_of(tile), map(aux), bar, [0, 0]); // bug
        }
        if block() == 1 {
            mbarrier::wait_parity(bar, 0);
        }
    }
}

/// The writers fence before the grid meets.
#[kernel]
pub unsafe fn tensor_written_and_fenced(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if block() == 0 {
            *data.add(rank()) = 1;
            fence::proxy_async();
        }
        grid::sync(aux.add(32));
        if block() == 1 {
            if rank() == 0 {
                mbarrier::arrive_expect_tx(bar, BOX_BYTES);
                tma::load_2d(shared::address_of(tile), map(aux), bar, [0, 0]);
            }
            mbarrier::wait_parity(bar, 0);
            *data.add(256 + rank()) = *tile.add(rank());
        }
    }
}

/// The phase is over when the source is written: by all threads, after one of them has waited.
#[kernel]
pub unsafe fn source_handed_back(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar);
            mbarrier::wait_parity(bar, 0);
        }
        sync_threads();
        *data.add(rank()) += 1;
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// A plain addition to a word of a reduction that another thread has not waited for.
#[kernel]
pub unsafe fn reduction_and_a_plain_store(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 1;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_reduce_add_u32(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
            tma::wait_group_read::<0>();
        }
        sync_threads();
        *data.add(rank()) += 1; // bug
    }
}

/// The reducing thread waits until the sums are in memory.
#[kernel]
pub unsafe fn reduction_waited_for(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 1;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_reduce_add_u32(data, shared::address_of(tile), TILE);
            tma::commit_group();
            tma::wait_group::<0>();
        }
        sync_threads();
        *data.add(rank()) += 1;
    }
}
