//! Pipelines of `cp.async`, bulk and tensor copies with a wait, a fence or a phase that is wrong.

use cuda_std::async_copy::{commit_group, copy_ca, copy_cg, copy_cg_zfill, wait_all, wait_group};
use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::sync_threads;
use cuda_std::{fence, kernel, shared, shared_array, tma};

use crate::{BLOCK, BOX_BYTES, BOX_WORDS, map, rank};

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// Makes mbarriers of one arrival each.
pub(crate) unsafe fn mbarriers(count: u32, bars: u32) -> u32 {
    unsafe {
        if rank() == 0 {
            for index in 0..count {
                mbarrier::init(bars + BYTES * index, 1);
            }
            mbarrier::fence_init();
        }
        sync_threads();
    }
    bars
}

/// The next tile is fetched into a buffer that others still read.
#[kernel]
pub unsafe fn fetch_into_a_read_buffer(data: *mut u32, aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tiles = shared_array![u32; WORDS];
    let slot = |step: usize| unsafe { tiles.add(step % 2 * BLOCK) };
    unsafe {
        copy_ca::<4, _>(shared::address_of(slot(0).add(rank())), data.add(rank())); // bug
        let mut sum = 0;
        for step in 0..3 {
            wait_all();
            sync_threads();
            let next = data.add((step + 1) * BLOCK + rank());
            sum += *slot(step).add(BLOCK - 1 - rank()); // bug
            copy_ca::<4, _>(shared::address_of(slot(step + 2).add(rank())), next); // bug
        }
        wait_all();
        *aux.add(rank()) = sum;
    }
}

/// The last steps of a pipeline commit nothing, so the wait leaves the last copy open.
#[kernel]
pub unsafe fn tail_of_a_pipeline(data: *mut u32, aux: *mut u32, _n: u32) {
    const STEPS: usize = 3;
    const WORDS: usize = STEPS * BLOCK;
    let tiles = shared_array![u32; WORDS];
    let place = |step: usize| step * BLOCK + rank();
    unsafe {
        copy_ca::<4, _>(shared::address_of(tiles.add(place(0))), data.add(place(0)));
        commit_group();
        let mut sum = 0;
        for step in 0..STEPS {
            if step + 1 < STEPS {
                let next = place(step + 1);
                copy_ca::<4, _>(shared::address_of(tiles.add(next)), data.add(next)); // bug
                commit_group();
            }
            wait_group::<1>();
            sum += *tiles.add(place(step)); // bug
        }
        *aux.add(rank()) = sum;
    }
}

/// The source is overwritten before the wait.
#[kernel]
pub unsafe fn source_of_a_fetch_rewritten(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        copy_ca::<4, _>(shared::address_of(tile.add(rank())), data.add(rank())); // bug
        *data.add(rank()) = 0; // bug
        wait_all();
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// The destination is written before the wait.
#[kernel]
pub unsafe fn destination_of_a_fetch_written(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        copy_ca::<4, _>(shared::address_of(tile.add(rank())), data.add(rank())); // bug
        *tile.add(rank()) = 0; // bug
        wait_all();
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// Sixteen bytes where the tile has room for twelve.
#[kernel]
pub unsafe fn fetch_past_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 4 * 15;
    let tile = shared_array![u32; WORDS];
    unsafe {
        if rank() < 16 {
            let to = shared::address_of(tile) + 16 * rank() as u32;
            copy_cg(to, data.add(4 * rank())); // bug
        }
        wait_all();
    }
}

/// Each thread copies 16 bytes; threads commit, but only one warp waits.
#[kernel]
pub unsafe fn one_warp_waits(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let to = shared::address_of(tile) + 16 * rank() as u32;
        copy_cg_zfill(to, data.add(4 * rank()), 16); // bug
        commit_group();
        if rank() < 32 {
            wait_group::<0>();
        }
        sync_threads();
        *aux.add(rank()) = *tile.add((4 * rank() + 128) % (4 * BLOCK)); // bug
    }
}

/// The bytes are expected only after the arrival, which may have ended the phase.
#[kernel]
pub unsafe fn expected_after_the_arrival(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive(bar);
            mbarrier::expect_tx(bar, TILE); // bug
            tma::bulk_load(shared::address_of(tile), data, TILE, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
        *aux.add(rank()) = *tile.add(rank()); // bug
    }
}

/// The second round waits for the first round's phase again.
#[kernel]
pub unsafe fn parity_not_turned(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        let mut sum = 0;
        for round in 0..2 {
            if rank() == 0 {
                mbarrier::arrive_expect_tx(bar, TILE);
                tma::bulk_load(shared::address_of(tile), data.add(round * BLOCK), TILE, bar); // bug
            }
            mbarrier::wait_parity(bar, 0);
            sum += *tile.add(rank()); // bug
            sync_threads();
        }
        mbarrier::wait_parity(bar, 1);
        *aux.add(rank()) = sum;
    }
}

/// The answer of the test is not looked at.
#[kernel]
pub unsafe fn test_in_place_of_a_wait(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 2 * TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar); // bug
        }
        sync_threads();
        let _ = mbarrier::test_wait_parity(bar, 0);
        *aux.add(rank()) = *tile.add(rank()); // bug
        sync_threads();
        if rank() == 0 {
            tma::bulk_load(shared::address_of(tile) + TILE, data, TILE, bar);
        }
        mbarrier::wait_parity(bar, 0);
    }
}

/// The global source of a bulk copy is rewritten in flight.
#[kernel]
pub unsafe fn source_of_a_bulk_load_rewritten(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar); // bug
            *data = 1; // bug
        }
        mbarrier::wait_parity(bar, 0);
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// Global memory that threads have just written, and no proxy fence before the copy.
#[kernel]
pub unsafe fn bulk_load_without_proxy_fence(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        *data.add(rank()) = 1; // bug
        sync_threads();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// The last tile is copied whole, although `data` ends before.
#[kernel]
pub unsafe fn bulk_load_past_end(data: *mut u32, aux: *mut u32, n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            let start = n as usize / BLOCK * BLOCK;
            tma::bulk_load(shared::address_of(tile), data.add(start), TILE, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// The copy goes past the end of the shared array.
#[kernel]
pub unsafe fn bulk_load_past_shared(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 2 * TILE);
            tma::bulk_load(shared::address_of(tile), data, 2 * TILE, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// A box is read without a wait.
#[kernel]
pub unsafe fn box_not_awaited(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, BOX_BYTES);
            tma::load_2d(shared::address_of(tile), map(aux), bar, [0, 0]); // bug
        }
        sync_threads();
        *data.add(BOX_WORDS + rank()) = *tile.add(rank()); // bug
        mbarrier::wait_parity(bar, 0);
    }
}

/// Half of the bytes of a box are expected, so the phase has too many.
#[kernel]
pub unsafe fn half_of_a_box_expected(_data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, BOX_BYTES / 2); // bug
            tma::load_2d(shared::address_of(tile), map(aux), bar, [0, 0]); // bug
            tma::load_2d(shared::address_of(tile), map(aux), bar, [0, 4]); // bug
        }
        mbarrier::wait_parity(bar, 0); // bug
    }
}

/// A box is stored without a proxy fence after the threads' writes.
#[kernel]
pub unsafe fn box_store_without_proxy_fence(_data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 1; // bug
        *tile.add(BLOCK + rank()) = 1; // bug
        sync_threads();
        if rank() == 0 {
            tma::store_2d(map(aux), shared::address_of(tile), [0, 0]); // bug
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}

/// The fence comes after the barrier, in the thread that copies: it does not cover the others' writes.
#[kernel]
pub unsafe fn proxy_fence_too_late(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        if rank() == 0 {
            fence::proxy_async_shared();
        }
        *tile.add(rank()) = 7; // bug
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}

/// A store's source is filled again with no wait for its reading.
#[kernel]
pub unsafe fn staging_buffer_reused(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        for step in 0..2 {
            *tile.add(rank()) = step as u32; // bug
            fence::proxy_async_shared();
            sync_threads();
            if rank() == 0 {
                tma::bulk_store(data.add(step * BLOCK), shared::address_of(tile), TILE); // bug
                tma::commit_group();
            }
            sync_threads();
        }
        tma::wait_group::<0>();
    }
}

/// The copy is not in a group when the thread waits for groups.
#[kernel]
pub unsafe fn store_not_committed(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 7;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data, shared::address_of(tile), TILE); // bug
            tma::wait_group::<0>();
            *tile = 8; // bug
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}

/// The result of a reduction is read by the issuing thread before its wait.
#[kernel]
pub unsafe fn reduction_read_too_early(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 1;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_reduce_add_u32(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
            *aux = *data; // bug
            tma::wait_group::<0>();
        }
    }
}

/// Two blocks store to the same place.
#[kernel]
pub unsafe fn two_stores_to_one_place(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = crate::block() as u32;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}

/// The consumer hands the stage back before it has read.
#[kernel]
pub unsafe fn stage_handed_back_unread(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let full = mbarriers(2, shared::address_of(shared_array![u64; 2]));
        let empty = full + BYTES;
        for step in 0..2 {
            if rank() == 0 {
                mbarrier::wait_parity(empty, step ^ 1);
                mbarrier::arrive_expect_tx(full, TILE);
                tma::bulk_load(shared::address_of(tile), data.add(step as usize * BLOCK), TILE, full); // bug
            } else if rank() == 32 {
                mbarrier::wait_parity(full, step);
                mbarrier::arrive(empty);
                *aux.add(step as usize) = *tile; // bug
            }
        }
    }
}

/// A barrier of two arrivals, at which the producer alone arrives.
#[kernel]
pub unsafe fn count_without_the_consumer(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 2);
            mbarrier::fence_init();
        }
        sync_threads();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar);
        }
        mbarrier::wait_parity(bar, 0); // bug
    }
}

/// Every thread initialises the mbarrier.
#[kernel]
pub unsafe fn initialised_by_all(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        mbarrier::init(bar, BLOCK as u32); // bug
        sync_threads();
        mbarrier::arrive(bar);
        mbarrier::wait_parity(bar, 0);
    }
}

/// Used again after it was invalidated.
#[kernel]
pub unsafe fn used_after_invalidation(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive(bar);
            mbarrier::wait_parity(bar, 0);
            mbarrier::invalidate(bar);
            mbarrier::arrive(bar); // bug
        }
    }
}

/// An mbarrier's memory is used for data without an invalidation.
#[kernel]
pub unsafe fn barrier_memory_reused(data: *mut u32, _aux: *mut u32, _n: u32) {
    let object = shared_array![u64; 1];
    unsafe {
        let bar = mbarriers(1, shared::address_of(object));
        if rank() == 0 {
            mbarrier::arrive(bar);
            mbarrier::wait_parity(bar, 0);
            *object = 5; // bug
            *data = *object as u32; // bug
        }
    }
}
