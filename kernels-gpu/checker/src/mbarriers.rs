//! Wrong uses of mbarriers, and of copies that complete on them.

use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::sync_threads;
use cuda_std::{fence, kernel, shared, shared_array, tma};

use crate::{BLOCK, rank};

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// Initialises `N` mbarriers of one arrival each, for all threads.
macro_rules! barriers {
    ($n:literal) => {{
        let bars = shared::address_of(shared_array![u64; $n]);
        if rank() == 0 {
            for index in 0..$n {
                mbarrier::init(bars + BYTES * index, 1);
            }
            mbarrier::fence_init();
        }
        sync_threads();
        bars
    }};
}

/// The bytes are read without a wait.
#[kernel]
pub unsafe fn bulk_copy_without_wait(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar); // bug
        }
        sync_threads();
        *data.add(rank() + BLOCK) = *tile.add(rank()); // bug
        mbarrier::wait_parity(bar, 0);
    }
}

/// The phase before the first counts as complete, so this wait returns at once.
#[kernel]
pub unsafe fn wait_for_the_wrong_parity(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            // The phase lasts until the second copy, whatever the first does.
            mbarrier::arrive_expect_tx(bar, 2 * TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar); // bug
        }
        sync_threads();
        mbarrier::wait_parity(bar, 1);
        *data.add(rank() + BLOCK) = *tile.add(rank()); // bug
        sync_threads();
        if rank() == 0 {
            tma::bulk_load(shared::address_of(tile) + TILE, data, TILE, bar);
        }
        mbarrier::wait_parity(bar, 0);
    }
}

/// A ring of two stages whose producer waits for full. That says nothing about readers.
#[kernel]
pub unsafe fn stage_reused_too_early(data: *mut u32, aux: *mut u32, _n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let full = barriers!(2);
        let mut sum = 0;
        for step in 0..3 {
            let (stage, parity) = (step % 2, step / 2);
            let bar = full + BYTES * stage;
            if rank() == 0 {
                if step >= 2 {
                    mbarrier::wait_parity(bar, 0);
                }
                mbarrier::arrive_expect_tx(bar, TILE);
                let from = data.add(step as usize * BLOCK);
                tma::bulk_load(shared::address_of(tiles) + TILE * stage, from, TILE, bar); // bug
            } else if rank() >= 32 {
                mbarrier::wait_parity(bar, parity);
                sum += *tiles.add(stage as usize * BLOCK + rank()); // bug
            }
        }
        *aux.add(rank()) = sum;
    }
}

/// One of the two copies is not in the transaction count, so the phase ends when the other has arrived.
#[kernel]
pub unsafe fn half_of_the_bytes_expected(data: *mut u32, aux: *mut u32, _n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tiles), data, TILE, bar); // bug
            tma::bulk_load(shared::address_of(tiles) + TILE, data.add(BLOCK), TILE, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
        *aux.add(rank()) = *tiles.add(rank()) + *tiles.add(BLOCK + rank()); // bug
    }
}

/// More bytes are expected than arrive: all threads wait for ever.
#[kernel]
pub unsafe fn too_many_bytes_expected(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 2 * TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar);
        }
        mbarrier::wait_parity(bar, 0); // bug
    }
}

/// Expects bytes that never arrive, and no thread waits for them.
#[kernel]
pub unsafe fn bytes_that_nobody_sends(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE); // bug
        }
    }
}

/// All threads arrive at a barrier of one arrival.
#[kernel]
pub unsafe fn too_many_arrivals(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_count(bar, 2); // bug
        }
    }
}

/// A barrier of all threads at which one warp never arrives.
#[kernel]
pub unsafe fn too_few_arrivals(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, BLOCK as u32);
        }
        sync_threads();
        if rank() < 32 {
            mbarrier::arrive(bar);
            mbarrier::wait_parity(bar, 0); // bug
        }
    }
}

/// A write after the arrival is not ordered by it.
#[kernel]
pub unsafe fn write_after_the_arrival(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive(bar);
            *tile = 1; // bug
        } else if rank() == 32 {
            mbarrier::wait_parity(bar, 0);
            *data = *tile; // bug
        }
    }
}

/// No block barrier between initialisation and use.
#[kernel]
pub unsafe fn barrier_used_too_early(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, BLOCK as u32); // bug
        }
        mbarrier::arrive(bar); // bug
    }
}

/// Without a proxy fence the copy engine may see the mbarrier's old state.
#[kernel]
pub unsafe fn initialisation_without_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 1); // bug
        }
        sync_threads();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
    }
}

/// Initialised twice without an invalidation between.
#[kernel]
pub unsafe fn initialised_twice(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::init(bar, 1); // bug
        }
    }
}

/// The bytes of an mbarrier must not be read.
#[kernel]
pub unsafe fn reads_the_bytes_of_a_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let object = shared_array![u64; 1];
    unsafe {
        if rank() == 0 {
            mbarrier::init(shared::address_of(object), 1);
            *data = *object as u32; // bug
        }
    }
}

/// The block may exit, and free its memory, while bytes arrive.
#[kernel]
pub unsafe fn end_during_a_copy(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar); // bug
        }
    }
}

/// Without a proxy fence the copy engine may not see the threads' writes.
#[kernel]
pub unsafe fn store_without_proxy_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 7; // bug
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}

/// The source is overwritten while the copy reads it.
#[kernel]
pub unsafe fn source_rewritten_during_a_store(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 7;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
        }
        sync_threads();
        *tile.add(rank()) = 8; // bug
        tma::wait_group::<0>();
    }
}

/// The result is read too early: the wait covers only the reading of the source.
#[kernel]
pub unsafe fn result_of_a_store_read_too_early(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 7;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
            tma::wait_group_read::<0>();
            *aux = *data; // bug
            tma::wait_group::<0>();
        }
    }
}

/// The thread exits while the copy may still read.
#[kernel]
pub unsafe fn end_during_a_store(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 7;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
        }
    }
}

/// The size of a bulk copy must be a multiple of 16 bytes.
#[kernel]
pub unsafe fn odd_bulk_copy(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 20);
            tma::bulk_load(shared::address_of(tile), data.wrapping_add(4), 20, bar); // bug
        }
    }
}

/// A box must begin at a multiple of 128 bytes.
#[kernel]
pub unsafe fn misplaced_box(_data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, crate::BOX_BYTES);
            tma::load_2d(shared::address_of(tile) + 16, crate::map(aux), bar, [0, 0]); // bug
        }
    }
}
