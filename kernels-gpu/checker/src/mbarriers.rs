//! mbarriers, and copies that complete on them, used wrongly.

use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::sync_threads;
use cuda_std::{fence, kernel, shared, shared_array, tma};

use crate::{BLOCK, rank};

/// Bytes of a tile: a word for each thread.
const TILE: u32 = 4 * BLOCK as u32;

/// Makes `N` barriers of one arrival each, for all threads.
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

/// Nobody waits for the bytes before they are read.
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

/// The phase before the first counts as over, so this wait is none.
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

/// A ring of two stages whose producer waits for full, which says nothing of readers.
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

/// One of the two copies is not expected, so the phase ends when the first has arrived.
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

/// More bytes are expected than come: everybody waits for ever.
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

/// Bytes that nobody sends, and nobody waits for them.
#[kernel]
pub unsafe fn bytes_that_nobody_sends(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE); // bug
        }
    }
}

/// All threads arrive at a barrier of one.
#[kernel]
pub unsafe fn too_many_arrivals(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::arrive_count(bar, 2); // bug
        }
    }
}

/// A barrier of all threads, of which one warp does not arrive.
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

/// What is written after the arrival is not part of it.
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

/// No barrier of the block between initialisation and use.
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

/// The copy engine may see the barrier as it was before its initialisation.
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

/// A second life without an end to the first.
#[kernel]
pub unsafe fn initialised_twice(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let bar = barriers!(1);
        if rank() == 0 {
            mbarrier::init(bar, 1); // bug
        }
    }
}

/// The bytes of a barrier are nobody's business.
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

/// The block may end, and its memory go, while bytes arrive.
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

/// The copy engine may not see yet what the threads wrote.
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

/// The source is written again while it is read.
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

/// The result is used before it is there: the source has been read, no more.
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

/// The thread ends while the copy may still read.
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

/// Bulk copies move multiples of 16 bytes.
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

/// A box begins at a multiple of 128 bytes.
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
