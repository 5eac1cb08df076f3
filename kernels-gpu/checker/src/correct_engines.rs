//! Correct kernels with asynchronous copies, products of warpgroups, and blocks of clusters.

use cuda_std::async_copy::{commit_group, copy_ca_zfill, copy_cg, wait_all, wait_group};
use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::sync_threads;
use cuda_std::wgmma::{self, BF16};
use cuda_std::{cluster, fence, kernel, shared, shared_array, tma};

use crate::products::{A_WORDS, Accumulator, B_WORDS, ONES, WARPGROUP, operand};
use crate::{BLOCK, BOX_BYTES, BOX_WORDS, global, map, rank};

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// Makes mbarriers of one arrival each.
unsafe fn mbarriers(count: u32, bars: u32) -> u32 {
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

/// Two buffers of 16 bytes per thread; the last step waits for all.
#[kernel]
pub unsafe fn fetch_in_two_buffers(data: *mut u32, aux: *mut u32, _n: u32) {
    const STEPS: usize = 4;
    let tiles = shared::dynamic_shared_mem::<u32>();
    let fetch = |step: usize| unsafe {
        if rank() < BLOCK / 4 && step < STEPS {
            let to = shared::address_of(tiles.add(step % 2 * BLOCK + 4 * rank()));
            copy_cg(to, data.add(step * BLOCK + 4 * rank()));
        }
        commit_group();
    };
    unsafe {
        fetch(0);
        let mut sum = 0;
        for step in 0..STEPS {
            fetch(step + 1);
            wait_group::<1>();
            sync_threads();
            sum += *tiles.add(step % 2 * BLOCK + BLOCK - 1 - rank());
            sync_threads();
        }
        *aux.add(rank()) = sum;
    }
}

/// The tail of a tile is filled with zeros by the copy itself.
#[kernel]
pub unsafe fn fetch_with_a_tail(data: *mut u32, aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let is_inside = rank() < n as usize;
        let from = data.add(if is_inside { rank() } else { 0 });
        copy_ca_zfill::<4, _>(shared::address_of(tile.add(rank())), from, if is_inside { 4 } else { 0 });
        wait_all();
        sync_threads();
        *aux.add(rank()) = *tile.add(BLOCK - 1 - rank());
    }
}

/// An mbarrier as the barrier of the block, over many phases.
#[kernel]
pub unsafe fn mbarrier_of_the_block(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, BLOCK as u32);
        }
        sync_threads();
        let mut sum = 0;
        for round in 0..3 {
            *tile.add(rank()) = *data.add(round * BLOCK + rank());
            mbarrier::arrive(bar);
            mbarrier::wait_parity(bar, 0);
            sum += *tile.add(BLOCK - 1 - rank());
            mbarrier::arrive(bar);
            mbarrier::wait_parity(bar, 1);
        }
        *aux.add(rank()) = sum;
    }
}

/// The bytes are expected before the copy, the arrival comes behind it.
#[kernel]
pub unsafe fn expected_before_the_arrival(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tile), data, TILE, bar);
            mbarrier::arrive(bar);
        }
        mbarrier::wait_parity(bar, 0);
        *aux.add(rank()) = *tile.add(BLOCK - 1 - rank());
    }
}

/// An mbarrier is unmade, and its memory used for data.
#[kernel]
pub unsafe fn memory_of_an_mbarrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let object = shared_array![u64; 1];
    unsafe {
        let bar = mbarriers(1, shared::address_of(object));
        if rank() == 0 {
            mbarrier::arrive(bar);
        }
        mbarrier::wait_parity(bar, 0);
        sync_threads();
        if rank() == 0 {
            mbarrier::invalidate(bar);
            *object = 9;
        }
        sync_threads();
        *data.add(rank()) = *object as u32;
    }
}

/// Results are staged in two buffers; each is written again once the store has read it.
#[kernel]
pub unsafe fn staged_stores(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    unsafe {
        for step in 0..4 {
            let tile = tiles.add(step % 2 * BLOCK);
            if rank() == 0 {
                tma::wait_group_read::<1>();
            }
            sync_threads();
            *tile.add(rank()) = (step * 1000 + rank()) as u32;
            fence::proxy_async_shared();
            sync_threads();
            if rank() == 0 {
                tma::bulk_store(data.add(step * BLOCK), shared::address_of(tile), TILE);
                tma::commit_group();
            }
        }
        tma::wait_group::<0>();
    }
}

/// Blocks add their tiles to the same words by reductions.
#[kernel]
pub unsafe fn reductions_to_one_place(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 5;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_reduce_add_u32(data, shared::address_of(tile), TILE);
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}

/// Two boxes complete on one mbarrier, in one phase.
#[kernel]
pub unsafe fn two_boxes_one_phase(_data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 2 * BOX_BYTES);
            tma::load_2d(shared::address_of(tile), map(aux), bar, [0, 0]);
            tma::load_2d(shared::address_of(tile) + BOX_BYTES, map(aux), bar, [0, 4]);
        }
        mbarrier::wait_parity(bar, 0);
        let sum = *tile.add(rank()) + *tile.add(BOX_WORDS + rank());
        sync_threads();
        *aux.add(rank()) = sum;
    }
}

/// Fills both operands, and makes the writes visible to `wgmma`.
unsafe fn filled() -> *mut u32 {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        for index in (rank()..A_WORDS + B_WORDS).step_by(WARPGROUP) {
            *tile.add(index) = ONES;
        }
        fence::proxy_async_shared();
        sync_threads();
    }
    tile
}

/// Begins the product of the operands at `tile`.
macro_rules! multiply {
    ($acc:ident, $tile:ident, $scale_d:expr) => {
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut $acc, operand($tile), operand($tile.add(A_WORDS)), $scale_d)
    };
}

/// One accumulator is read while the product of another still runs.
#[kernel]
pub unsafe fn two_accumulators(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let (mut first, mut second): (Accumulator, Accumulator) = core::mem::zeroed();
        wgmma::fence();
        multiply!(first, tile, false);
        wgmma::commit_group();
        multiply!(second, tile, false);
        multiply!(second, tile, true);
        wgmma::commit_group();
        wgmma::wait_group::<1>();
        wgmma::fence_registers(&mut first);
        *data.add(rank()) = first[0] as u32;
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut second);
        *data.add(rank()) += second[1] as u32;
    }
}

/// Accumulators are scaled between two products, with a wait before and a fence behind.
#[kernel]
pub unsafe fn accumulators_scaled(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false);
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        acc.iter_mut().for_each(|x| *x *= 0.5);
        wgmma::fence_registers(&mut acc);
        wgmma::fence();
        multiply!(acc, tile, true);
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        *data.add(rank()) = acc[0] as u32;
    }
}

/// The result goes over an operand behind a barrier of the warpgroup.
#[kernel]
pub unsafe fn result_behind_a_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false);
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        sync_threads();
        *tile.add(rank()) = acc[0] as u32 + rank() as u32;
        sync_threads();
        *data.add(rank()) = *tile.add(WARPGROUP - 1 - rank());
    }
}

/// An operand that `cp.async` fetches, with the proxy fence behind the wait.
#[kernel]
pub unsafe fn fetched_operand(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        let tile = filled();
        copy_cg(shared::address_of(tile.add(4 * rank())), data.add(4 * rank()));
        wait_all();
        fence::proxy_async_shared();
        sync_threads();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false);
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        *data.add(n as usize / 2 + rank()) = u32::from(acc[0] < 1.0);
    }
}

/// The same place in the next block of the cluster.
fn there(address: u32) -> u32 {
    cluster::map_shared(address, (cluster::block_rank() + 1) % cluster::blocks())
}

/// Words go around the cluster, one block on in each round.
#[kernel]
pub unsafe fn words_around_the_cluster(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tiles = shared_array![u32; WORDS];
    unsafe {
        *tiles.add(rank()) = global() as u32;
        cluster::sync();
        for round in 0..cluster::blocks() as usize {
            let (from, to) = (tiles.add(round % 2 * BLOCK), tiles.add((round + 1) % 2 * BLOCK));
            cluster::store_shared(there(shared::address_of(to.add(rank()))), *from.add(rank()) + 1);
            cluster::sync();
        }
        let last = tiles.add(cluster::blocks() as usize % 2 * BLOCK);
        *data.add(global()) = *last.add(rank());
    }
}

/// A word arrives asynchronously in each block, and is awaited there.
#[kernel]
pub unsafe fn awaited_async_store(data: *mut u32, _aux: *mut u32, _n: u32) {
    let (word, bar) = (shared_array![u32; 1], shared::address_of(shared_array![u64; 1]));
    unsafe {
        mbarriers(1, bar);
        cluster::sync();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 4);
            cluster::store_async(there(shared::address_of(word)), cluster::block_rank() + 5, there(bar));
        }
        mbarrier::wait_parity(bar, 0);
        *data.add(global()) = *word;
        cluster::sync();
    }
}

/// A tile is copied to the next block, which waits for it.
#[kernel]
pub unsafe fn awaited_remote_copy(data: *mut u32, _aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tile = shared_array![u32; WORDS];
    unsafe {
        let bar = mbarriers(1, shared::address_of(shared_array![u64; 1]));
        *tile.add(rank()) = global() as u32;
        fence::proxy_async_shared();
        cluster::sync();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            let from = shared::address_of(tile);
            tma::bulk_copy_shared(there(from + TILE), from, TILE, there(bar));
        }
        mbarrier::wait_parity(bar, 0);
        *data.add(global()) = *tile.add(BLOCK + rank());
        cluster::sync();
    }
}

/// Every block counts at an mbarrier of block 0, which then reads what they have stored there.
#[kernel]
pub unsafe fn arrivals_from_the_cluster(_data: *mut u32, aux: *mut u32, _n: u32) {
    let parts = shared_array![u32; 8];
    let bar = shared::address_of(shared_array![u64; 1]);
    let me = cluster::block_rank();
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, cluster::blocks());
            mbarrier::fence_init();
        }
        cluster::sync();
        if rank() == 0 {
            cluster::store_shared(cluster::map_shared(shared::address_of(parts) + 4 * me, 0), me + 1);
            mbarrier::arrive_remote(cluster::map_shared(bar, 0));
            if me == 0 {
                mbarrier::wait_parity_cluster(bar, 0);
                let sum = (0..cluster::blocks() as usize).map(|block| *parts.add(block)).sum();
                *aux = sum;
            }
        }
        cluster::sync();
    }
}
