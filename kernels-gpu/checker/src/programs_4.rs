//! Programs with one mistake each at the borders between blocks, warps and engines.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::{grid_dim_x, sync_threads};
use cuda_std::wgmma::{self, BF16};
use cuda_std::{fence, kernel, shared, shared_array, tma};

use crate::products::{A_WORDS, Accumulator, B_WORDS, ONES, WARPGROUP, operand};
use crate::{BLOCK, BOX_BYTES, BOX_ROW_WORDS, BOX_WORDS, atomic, block, global, map, rank};

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// A block hands a pointer into its shared memory to another, where the address means something else.
#[kernel]
pub unsafe fn shared_pointer_for_another_block(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        let (place, flag) = (aux.cast::<u64>(), atomic(aux.add(8)));
        *tile.add(rank()) = *data.add(global());
        sync_threads();
        if rank() == 0 && block() == 0 {
            *place = tile as u64;
            flag.store(1, Release);
            while flag.load(Acquire) < 2 {}
        } else if rank() == 0 {
            while flag.load(Acquire) < 1 {}
            let other = *place as *const u32;
            *aux.add(16) = *other.add(5); // bug
            flag.store(2, Release);
        }
    }
}

/// As above, with a local array.
#[kernel]
pub unsafe fn local_pointer_for_another_block(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let (place, flag) = (aux.cast::<u64>(), atomic(aux.add(8)));
        if rank() == 0 && block() == 0 {
            let mut list = core::hint::black_box([*data; 8]);
            *place = list.as_mut_ptr() as u64;
            flag.store(1, Release);
            while flag.load(Acquire) < 2 {}
            core::hint::black_box(&mut list);
        } else if rank() == 0 {
            while flag.load(Acquire) < 1 {}
            let other = *place as *const u32;
            *aux.add(16) = *other.add(5); // bug
            flag.store(2, Release);
        }
    }
}

/// A tile of the block is indexed by rows of the whole matrix: far outside of shared memory.
#[kernel]
pub unsafe fn row_length_of_the_matrix(data: *mut u32, aux: *mut u32, _n: u32) {
    const COLUMNS: usize = 4096;
    let tile = shared_array![u32; BLOCK];
    let (row, column) = (rank() / 8, rank() % 8);
    unsafe {
        *tile.add(row * COLUMNS + column) = *data.add(rank()); // bug
        sync_threads();
        *aux.add(rank()) = *tile.add(rank()); // bug
    }
}

/// One thread stores a tile, another waits; bulk groups belong to the thread that committed them.
#[kernel]
pub unsafe fn store_awaited_by_another_thread(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tile.add(rank()) = 1;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data, shared::address_of(tile), TILE); // bug
            tma::commit_group();
        }
        if rank() == 32 {
            tma::wait_group::<0>();
        }
        sync_threads();
        *tile.add(rank()) = 2; // bug
        tma::wait_group::<0>();
    }
}

/// A barrier of the grid: thread 0 arrives while the other warps of its block may still write.
#[kernel]
pub unsafe fn grid_barrier_without_the_block(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(global()) = 1; // bug
        if rank() == 0 {
            atomic(aux).fetch_add(1, AcqRel);
            while atomic(aux).load(Acquire) < grid_dim_x() {}
        }
        sync_threads();
        *data.add(256 + global()) = *data.add(255 - global()); // bug
    }
}

/// A barrier of the grid whose second round compares with the count of the first.
#[kernel]
pub unsafe fn grid_barrier_used_twice(data: *mut u32, aux: *mut u32, _n: u32) {
    const N: usize = 256;
    let i = global();
    unsafe {
        let count = atomic(aux);
        let (mut from, mut to) = (data, data.add(N));
        for _ in 0..3 {
            *to.add(i) = *from.add((i + 1) % N); // bug
            sync_threads();
            if rank() == 0 {
                count.fetch_add(1, AcqRel);
                while count.load(Acquire) < grid_dim_x() {}
            }
            sync_threads();
            (from, to) = (to, from);
        }
    }
}

/// The last box hangs over the edge; only the bytes inside are expected, but all of them count.
#[kernel]
pub unsafe fn bytes_inside_the_edge(_data: *mut u32, aux: *mut u32, n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let bars = shared::address_of(shared_array![u64; 2]);
    let rows = n as usize / BOX_ROW_WORDS;
    unsafe {
        if rank() == 0 {
            mbarrier::init(bars, 1);
            mbarrier::init(bars + BYTES, 1);
            mbarrier::fence_init();
            for step in 0..2 {
                let inside = (rows - 4 * step).min(4);
                let (bar, to) =
                    (bars + BYTES * step as u32, shared::address_of(tile) + BOX_BYTES * step as u32);
                mbarrier::arrive_expect_tx(bar, (4 * inside * BOX_ROW_WORDS) as u32); // bug
                tma::load_2d(to, map(aux), bar, [0, 4 * step as i32]); // bug
            }
        }
        sync_threads();
        mbarrier::wait_parity(bars, 0);
        mbarrier::wait_parity(bars + BYTES, 0); // bug
        let sum = *tile.add(rank()) + *tile.add(BOX_WORDS + rank()); // bug
        sync_threads();
        *aux.add(rank()) = sum;
    }
}

/// A tile is cleared by threads and then loaded by the copy engine, which may come first.
#[kernel]
pub unsafe fn tile_cleared_before_the_load(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
        }
        *tile.add(rank()) = 0; // bug
        sync_threads();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE / 2);
            tma::bulk_load(shared::address_of(tile), data, TILE / 2, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
        *aux.add(rank()) = *tile.add(rank());
    }
}

/// A in registers, which get the next fragment while the product reads them.
#[kernel]
pub unsafe fn fragment_replaced_in_flight(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        for i in (rank()..B_WORDS).step_by(WARPGROUP) {
            *tile.add(A_WORDS + i) = ONES;
        }
        fence::proxy_async_shared();
        sync_threads();
        let mut acc: Accumulator = core::mem::zeroed();
        let mut fragment = core::hint::black_box([ONES; 4]);
        wgmma::fence();
        wgmma::mma_ra::<BF16, BF16, _, 0>(&mut acc, &fragment, operand(tile.add(A_WORDS)), false); // bug
        wgmma::commit_group();
        fragment[0] = *data.add(rank()); // bug
        core::hint::black_box(&mut fragment);
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        *data.add(WARPGROUP + rank()) = acc[0] as u32 + fragment[0];
    }
}

/// A tile goes to another block by a bulk store; the flag is set when the source has been read.
#[kernel]
pub unsafe fn flag_before_the_store_is_done(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        if block() == 0 {
            *tile.add(rank()) = 7;
            fence::proxy_async_shared();
            sync_threads();
            if rank() == 0 {
                tma::bulk_store(data, shared::address_of(tile), TILE); // bug
                tma::commit_group();
                tma::wait_group_read::<0>();
                atomic(aux).store(1, Release);
                tma::wait_group::<0>();
            }
        } else if rank() == 0 {
            while atomic(aux).load(Acquire) == 0 {}
            *aux.add(1) = (0..BLOCK).map(|i| *data.add(i)).sum(); // bug
        }
    }
}
