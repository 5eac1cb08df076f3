//! Correct kernels with bulk copies, and mbarriers between producers and consumers, in single blocks and in
//! clusters.

use crate::products::{A_WORDS, Accumulator, B_WORDS, ONES, WARPGROUP, operand};
use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::sync_threads;
use cuda_std::wgmma::{self, BF16};
use cuda_std::{cluster, fence, kernel, shared, shared_array, tma, vector};

use crate::{BLOCK, BOX_BYTES, BOX_ROWS, BOX_WORDS, global, map, rank};

const STAGES: usize = 3;
const TILE: u32 = 4 * BLOCK as u32;

/// Thread 0 copies tiles into a ring of three stages, and the second warp sums them. `aux[lane]` is the sum
/// over the tiles of words `lane` and `32 + lane`.
#[kernel]
pub unsafe fn bulk_ring(data: *mut u32, aux: *mut u32, n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    let full = shared::address_of(shared_array![u64; STAGES]);
    let empty = shared::address_of(shared_array![u64; STAGES]);
    let steps = n / BLOCK as u32;
    unsafe {
        if rank() == 0 {
            for stage in 0..STAGES as u32 {
                mbarrier::init(full + BYTES * stage, 1);
                mbarrier::init(empty + BYTES * stage, 32);
            }
            mbarrier::fence_init();
        }
        sync_threads();
        let mut sum = 0;
        for step in 0..steps {
            let (stage, parity) = (step % STAGES as u32, step / STAGES as u32 % 2);
            let (full, empty) = (full + BYTES * stage, empty + BYTES * stage);
            if rank() == 0 {
                mbarrier::wait_parity(empty, parity ^ 1);
                mbarrier::arrive_expect_tx(full, TILE);
                let to = shared::address_of(tiles) + TILE * stage;
                tma::bulk_load(to, data.add(step as usize * BLOCK), TILE, full);
            } else if rank() >= 32 {
                mbarrier::wait_parity(full, parity);
                let tile = tiles.add(stage as usize * BLOCK);
                sum += *tile.add(rank() - 32) + *tile.add(rank());
                mbarrier::arrive(empty);
            }
        }
        if rank() >= 32 {
            *aux.add(rank() - 32) = sum;
        }
    }
}

/// Loads boxes, adds 1 to each word, and stores them to the same place, one box per step.
#[kernel]
pub unsafe fn boxes_there_and_back(_data: *mut u32, aux: *mut u32, n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let bar = shared::address_of(shared_array![u64; 1]);
    let steps = n / BOX_WORDS as u32;
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
        }
        sync_threads();
        for step in 0..steps {
            let place = [0, (step * BOX_ROWS) as i32];
            if rank() == 0 {
                tma::wait_group_read::<0>();
                mbarrier::arrive_expect_tx(bar, BOX_BYTES);
                tma::load_2d(shared::address_of(tile), map(aux), bar, place);
            }
            mbarrier::wait_parity(bar, step % 2);
            let mut index = rank();
            while index < BOX_WORDS {
                *tile.add(index) += 1;
                index += BLOCK;
            }
            fence::proxy_async_shared();
            sync_threads();
            if rank() == 0 {
                tma::store_2d(map(aux), shared::address_of(tile), place);
                tma::commit_group();
            }
        }
        if rank() == 0 {
            tma::wait_group::<0>();
        }
    }
}

/// A cluster of two. Each block loads half of the data for both blocks, and waits for the readers of both
/// before the next load. `data` is doubled word by word, by the block of the parity of the box.
#[kernel]
pub unsafe fn multicast_ring(data: *mut u32, aux: *mut u32, n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let bars = shared::address_of(shared_array![u64; 2]);
    let (full, empty) = (bars, bars + BYTES);
    let me = cluster::block_rank();
    let steps = n / (2 * BOX_WORDS as u32);
    unsafe {
        if rank() == 0 {
            mbarrier::init(full, 1);
            mbarrier::init(empty, 2);
            mbarrier::fence_init();
        }
        cluster::sync();
        for step in 0..steps {
            if rank() == 0 {
                mbarrier::wait_parity_cluster(empty, (step + 1) % 2);
                mbarrier::arrive_expect_tx(full, 2 * BOX_BYTES);
                let row = (2 * step + me) * BOX_ROWS;
                let to = shared::address_of(tile) + BOX_BYTES * me;
                tma::load_2d_multicast(to, map(aux), full, [0, row as i32], 0b11);
            }
            mbarrier::wait_parity(full, step % 2);
            let mut index = rank();
            while index < BOX_WORDS {
                let both = [0, 1].map(|half| *tile.add(half * BOX_WORDS + index));
                // The other block's half is read only as a check.
                if both[0] + BOX_WORDS as u32 == both[1] {
                    let at = (2 * step + me) as usize * BOX_WORDS + index;
                    *data.add(n as usize + at) = 2 * both[me as usize];
                }
                index += BLOCK;
            }
            sync_threads();
            if rank() < 2 {
                mbarrier::arrive_remote(cluster::map_shared(empty, rank() as u32));
            }
        }
        cluster::sync();
    }
}

/// Blocks of a cluster sum their words through each other's shared memory: `aux[block]` is the sum of the
/// cluster.
#[kernel]
pub unsafe fn cluster_sum(data: *mut u32, aux: *mut u32, _n: u32) {
    let parts = shared_array![u32; 16];
    let parts = shared::address_of(parts);
    let me = cluster::block_rank();
    unsafe {
        cluster::arrive_relaxed();
        let mut sum = 0;
        if rank() == 0 {
            for index in 0..BLOCK {
                sum += *data.add(global() + index);
            }
        }
        cluster::wait();
        if rank() == 0 {
            for block in 0..cluster::blocks() {
                cluster::store_shared(cluster::map_shared(parts + 4 * me, block), sum);
            }
        }
        cluster::sync();
        if rank() == 0 {
            let mut total = 0;
            for block in 0..cluster::blocks() {
                total += vector::load_shared::<u32>(parts + 4 * block);
            }
            *aux.add(crate::block()) = total;
        }
    }
}

/// A fifth warp writes operands into a ring of two stages. A warpgroup multiplies them and starts each
/// product while the previous one still runs. Every element of D is 16 times the number of steps.
#[kernel]
pub unsafe fn product_ring(data: *mut u32, _aux: *mut u32, n: u32) {
    const RING: u32 = 2;
    let tiles = shared::dynamic_shared_mem::<u32>();
    let full = shared::address_of(shared_array![u64; RING as usize]);
    let empty = shared::address_of(shared_array![u64; RING as usize]);
    unsafe {
        if rank() == 0 {
            for stage in 0..RING {
                mbarrier::init(full + BYTES * stage, 32);
                mbarrier::init(empty + BYTES * stage, 1);
            }
            mbarrier::fence_init();
        }
        sync_threads();
        let tile = |step: u32| tiles.add((step % RING) as usize * (A_WORDS + B_WORDS));
        let bar = |of: u32, step: u32| of + BYTES * (step % RING);
        if rank() >= WARPGROUP {
            for step in 0..n {
                mbarrier::wait_parity(bar(empty, step), (step / RING % 2) ^ 1);
                let mut index = rank() - WARPGROUP;
                while index < A_WORDS + B_WORDS {
                    *tile(step).add(index) = ONES;
                    index += 32;
                }
                fence::proxy_async_shared();
                mbarrier::arrive(bar(full, step));
            }
            return;
        }
        let mut acc: Accumulator = core::mem::zeroed();
        for step in 0..n {
            mbarrier::wait_parity(bar(full, step), step / RING % 2);
            wgmma::fence();
            let (a, b) = (operand(tile(step)), operand(tile(step).add(A_WORDS)));
            wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, step != 0);
            wgmma::commit_group();
            wgmma::wait_group::<1>();
            // The previous product is done.
            if step > 0 && rank() == 77 {
                mbarrier::arrive(bar(empty, step - 1));
            }
        }
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[3] as u32;
    }
}
