//! Blocks of a cluster that exchange words with too little order between them.

use cuda_std::mbarrier;
use cuda_std::thread::sync_threads;
use cuda_std::{cluster, fence, kernel, shared, shared_array, tma, vector};

use crate::{BLOCK, global, rank};

/// The same place in the next block of the cluster.
fn there(address: u32) -> u32 {
    cluster::map_shared(address, (cluster::block_rank() + 1) % cluster::blocks())
}

/// Every block writes into the next one, which reads after a block barrier.
#[kernel]
pub unsafe fn remote_store_block_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        cluster::sync();
        cluster::store_shared(there(shared::address_of(tile.add(rank()))), 5u32); // bug
        sync_threads();
        *data.add(global()) = *tile.add(rank()); // bug
        cluster::sync();
    }
}

/// The arrival is there, the wait is not.
#[kernel]
pub unsafe fn cluster_arrival_without_wait(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        cluster::sync();
        *tile.add(rank()) = 5; // bug
        cluster::arrive();
        *data.add(global()) = cluster::load_shared(there(shared::address_of(tile.add(rank())))); // bug
        cluster::wait();
        cluster::sync();
    }
}

/// A wait with no arrival before it.
#[kernel]
pub unsafe fn cluster_wait_alone(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        cluster::wait(); // bug
    }
}

/// The rank of the block before the first.
#[kernel]
pub unsafe fn rank_below_zero(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 1;
        cluster::sync();
        let left = cluster::block_rank().wrapping_sub(1);
        let place = cluster::map_shared(shared::address_of(tile.add(rank())), left); // bug
        *data.add(global()) = cluster::load_shared(place); // bug
        cluster::sync();
    }
}

/// A store past the end of the other block's array.
#[kernel]
pub unsafe fn remote_store_past_end(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        cluster::sync();
        let place = shared::address_of(tile) + 4 * rank() as u32 + 4;
        cluster::store_shared(there(place), 1u32); // bug
        cluster::sync();
    }
}

/// All blocks count at the first one, without atomics.
#[kernel]
pub unsafe fn remote_count_without_atomics(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let count = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            *count = 0;
        }
        cluster::sync();
        if rank() == 0 {
            let first = cluster::map_shared(shared::address_of(count), 0);
            let before: u32 = cluster::load_shared(first); // bug
            cluster::store_shared(first, before + 1); // bug
        }
        cluster::sync();
    }
}

/// A histogram over the cluster: two blocks add to one bin.
#[kernel]
pub unsafe fn remote_bins_without_atomics(_data: *mut u32, aux: *mut u32, _n: u32) {
    let bins = shared_array![u32; BLOCK];
    unsafe {
        *bins.add(rank()) = 0;
        cluster::sync();
        let owner = cluster::map_shared(shared::address_of(bins.add(rank())), rank() as u32 % 2);
        let before: u32 = cluster::load_shared(owner); // bug
        cluster::store_shared(owner, before + 1); // bug
        cluster::sync();
        *aux.add(rank()) = *bins.add(rank());
    }
}

/// Blocks pass a word around; the second round overwrites it while it is still read.
#[kernel]
pub unsafe fn remote_word_overwritten(data: *mut u32, _aux: *mut u32, _n: u32) {
    let word = shared_array![u32; 1];
    unsafe {
        cluster::sync();
        for round in 0..2 {
            if rank() == 0 {
                cluster::store_shared(there(shared::address_of(word)), round); // bug
            }
            cluster::sync();
            *data.add(global()) = *word; // bug
        }
    }
}

/// Makes an mbarrier in every block of the cluster.
unsafe fn barrier_in_each_block(bar: u32) {
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
        }
        cluster::sync();
    }
}

/// A word arrives asynchronously, and is read without a wait.
#[kernel]
pub unsafe fn async_store_not_awaited(data: *mut u32, _aux: *mut u32, _n: u32) {
    let (word, bar) = (shared_array![u32; 1], shared::address_of(shared_array![u64; 1]));
    unsafe {
        barrier_in_each_block(bar);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 4);
            cluster::store_async(there(shared::address_of(word)), 5u32, there(bar)); // bug
        }
        cluster::sync();
        *data.add(global()) = *word; // bug
        mbarrier::wait_parity(bar, 0);
        cluster::sync();
    }
}

/// A word arrives whose bytes nobody expects.
#[kernel]
pub unsafe fn async_store_not_expected(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let (word, bar) = (shared_array![u32; 1], shared::address_of(shared_array![u64; 1]));
    unsafe {
        barrier_in_each_block(bar);
        if rank() == 0 {
            cluster::store_async(there(shared::address_of(word)), 5u32, there(bar)); // bug
        }
        cluster::sync();
    }
}

/// A copy to the next block, whose bytes that block reads after the barrier of the cluster alone.
#[kernel]
pub unsafe fn remote_copy_not_awaited(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tile = shared_array![u32; WORDS];
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        *tile.add(rank()) = 1;
        fence::proxy_async_shared();
        barrier_in_each_block(bar);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 256);
            let from = shared::address_of(tile);
            tma::bulk_copy_shared(there(from + 256), from, 256, there(bar)); // bug
        }
        cluster::sync();
        *data.add(global()) = *tile.add(BLOCK + rank()); // bug
        mbarrier::wait_parity(bar, 0);
        cluster::sync();
    }
}

/// A copy to the next block of words that were written without a proxy fence.
#[kernel]
pub unsafe fn remote_copy_without_proxy_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tile = shared_array![u32; WORDS];
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        *tile.add(rank()) = 1; // bug
        barrier_in_each_block(bar);
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 256);
            let from = shared::address_of(tile);
            tma::bulk_copy_shared(there(from + 256), from, 256, there(bar)); // bug
        }
        mbarrier::wait_parity(bar, 0);
        *data.add(global()) = vector::load_shared(shared::address_of(tile.add(BLOCK + rank())));
        cluster::sync();
    }
}
