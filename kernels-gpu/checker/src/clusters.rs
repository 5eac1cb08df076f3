//! Clusters with missing synchronisation between their blocks.

use cuda_std::thread::sync_threads;
use cuda_std::{cluster, kernel, mbarrier, shared, shared_array, tma};

use crate::{BLOCK, BOX_BYTES, map, rank};

/// The word of the thread with the same rank in the cluster's next block.
#[inline(always)]
fn neighbour(tile: *mut u32) -> u32 {
    let next = (cluster::block_rank() + 1) % cluster::blocks();
    cluster::map_shared(shared::address_of(tile.wrapping_add(rank())), next)
}

/// A block barrier does not make the next block's words visible.
#[kernel]
pub unsafe fn block_barrier_for_a_cluster(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        cluster::sync();
        *tile.add(rank()) = 1; // bug
        sync_threads();
        *data.add(crate::global()) = cluster::load_shared(neighbour(tile)); // bug
        cluster::sync();
    }
}

/// The other block may not have started, so its shared memory does not exist yet.
#[kernel]
pub unsafe fn cluster_access_too_early(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        cluster::store_shared(neighbour(tile), 1u32); // bug
        cluster::sync();
    }
}

/// The other block may have exited, so its shared memory no longer exists.
#[kernel]
pub unsafe fn cluster_access_too_late(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 1;
        cluster::sync();
        *data.add(crate::global()) = cluster::load_shared(neighbour(tile)); // bug
    }
}

/// As above, with an mbarrier arrival.
#[kernel]
pub unsafe fn arrival_too_late(_data: *mut u32, _aux: *mut u32, _n: u32) {
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
        }
        cluster::sync();
        if rank() == 0 {
            mbarrier::arrive_remote(cluster::map_shared(bar, cluster::block_rank() ^ 1)); // bug
        }
    }
}

/// A relaxed arrival releases no writes.
#[kernel]
pub unsafe fn relaxed_arrival(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 1; // bug
        cluster::arrive_relaxed();
        cluster::wait();
        *data.add(crate::global()) = cluster::load_shared(neighbour(tile)); // bug
        cluster::sync();
    }
}

/// A cluster barrier needs whole warps.
#[kernel]
pub unsafe fn cluster_barrier_left_out(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 17 {
            return;
        }
        cluster::sync(); // bug
    }
}

/// Two barriers in the source are two instructions.
#[kernel]
pub unsafe fn cluster_barrier_in_branches(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let is_first = rank() % 32 < 5;
        if is_first {
            cluster::sync(); // bug
        }
        if !is_first {
            cluster::sync(); // bug
        }
    }
}

/// A second arrival before a wait for the first.
#[kernel]
pub unsafe fn arrives_twice(_data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        cluster::arrive();
        cluster::arrive(); // bug
        cluster::wait();
    }
}

/// A block rank past the end of the cluster.
#[kernel]
pub unsafe fn rank_beyond_the_cluster(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        cluster::sync();
        let there = cluster::map_shared(shared::address_of(tile), cluster::blocks()); // bug
        *data = cluster::load_shared(there);
        cluster::sync();
    }
}

/// Each block loads for both blocks, but waits only for its own readers before the next load.
#[kernel]
pub unsafe fn multicast_over_readers(_data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let [full, empty] =
        [0, 1].map(|index| shared::address_of(shared_array![u64; 2]) + mbarrier::BYTES * index);
    unsafe {
        if rank() == 0 {
            mbarrier::init(full, 1);
            mbarrier::init(empty, 1);
            mbarrier::fence_init();
        }
        cluster::sync();
        for step in 0..2 {
            if rank() == 0 {
                mbarrier::wait_parity(empty, step ^ 1);
                mbarrier::arrive_expect_tx(full, 2 * BOX_BYTES);
                let to = shared::address_of(tile) + BOX_BYTES * cluster::block_rank();
                tma::load_2d_multicast(to, map(aux), full, [0, 0], 0b11); // bug
            }
            if rank() == 32 {
                mbarrier::wait_parity(full, step);
                let both = *tile + *tile.add(BOX_BYTES as usize / 4); // bug
                core::hint::black_box(both);
                mbarrier::arrive(empty);
            }
        }
        cluster::sync();
    }
}
