//! Instructions for global or shared memory with an address in another memory. Plain Rust reaches all of
//! them: its accesses are generic.

use cuda_std::async_copy::{copy_cg, wait_all};
use cuda_std::atomic::{intrinsics, pairs};
use cuda_std::mbarrier;
use cuda_std::ptr::{AddressSpace, is_in_address_space};
use cuda_std::thread::sync_threads;
use cuda_std::vector::{load, load_nc_v4, load_shared, load_shared_v4, load_v2, red_add_v4};
use cuda_std::vector::{store, store_array, store_shared, store_shared_v4, store_v2, store_v4};
use cuda_std::{cluster, fence, kernel, shared, shared_array, tma};

use crate::{BLOCK, rank};

/// Words of a vector.
const FOUR: usize = 4;

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// Words for which each thread has a vector.
const VECTORS: usize = FOUR * BLOCK;

/// A tile in shared memory is filled by stores to global memory.
#[kernel]
pub unsafe fn tile_by_global_stores(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; VECTORS];
    unsafe {
        store_v4(tile.add(FOUR * rank()), [rank() as u32; FOUR]); // bug
        sync_threads();
        *data.add(rank()) = *tile.add(VECTORS - 1 - rank());
    }
}

/// As above; the tile is read.
#[kernel]
pub unsafe fn tile_by_global_loads(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 1;
        sync_threads();
        *data.add(rank()) = load_v2(tile.add(rank() & !1))[1]; // bug
    }
}

/// As above, through the read-only path.
#[kernel]
pub unsafe fn tile_by_read_only_loads(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 1;
        sync_threads();
        *data.add(rank()) = load_nc_v4(tile.add(rank() / FOUR * FOUR))[rank() % FOUR]; // bug
    }
}

/// Stores ones.
unsafe fn fill(to: *mut u16) {
    unsafe { store_array(to, [1; 2 * FOUR]) } // bug
}

/// A helper that was written for results in global memory fills a tile.
#[kernel]
pub unsafe fn tile_by_a_helper_for_results(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; VECTORS];
    unsafe {
        fill(tile.add(FOUR * rank()).cast());
        sync_threads();
        *data.add(rank()) = *tile.add(rank());
    }
}

/// Bins in shared memory are added to by reductions of global memory.
#[kernel]
pub unsafe fn bins_by_global_reductions(data: *mut u32, _aux: *mut u32, _n: u32) {
    let bins = shared_array![f32; FOUR];
    unsafe {
        if rank() < FOUR {
            *bins.add(rank()) = 0.0;
        }
        sync_threads();
        red_add_v4(bins, [1.0; FOUR]); // bug
        sync_threads();
        *data.add(rank()) = (*bins.add(rank() % FOUR)).to_bits();
    }
}

/// A pair of flags in shared memory by an instruction for those in global memory.
#[kernel]
pub unsafe fn flags_by_global_stores(data: *mut u32, _aux: *mut u32, _n: u32) {
    #[derive(Clone, Copy)]
    #[repr(C, align(16))]
    struct Flags([u64; 2]);
    let flags = shared_array![Flags; 1];
    unsafe {
        if rank() == 0 {
            pairs::store_relaxed_pair_system(flags.cast(), [1, 2]); // bug
        }
        sync_threads();
        *data.add(rank()) = (*flags).0[rank() % 2] as u32;
    }
}

/// A local array takes a vector that should go to global memory.
#[kernel]
pub unsafe fn local_by_global_stores(data: *mut u32, _aux: *mut u32, n: u32) {
    let mut local = core::hint::black_box([n; FOUR]);
    unsafe {
        store(local.as_mut_ptr(), rank() as u32); // bug
        *data.add(rank()) = core::hint::black_box(&mut local)[0];
    }
}

/// As above; the array is read.
#[kernel]
pub unsafe fn local_by_global_loads(data: *mut u32, _aux: *mut u32, n: u32) {
    let mut local = core::hint::black_box([n; FOUR]);
    unsafe {
        *data.add(rank()) = load(local.as_mut_ptr().add(rank() % FOUR)); // bug
    }
    core::hint::black_box(&mut local);
}

/// An asynchronous copy from one tile to another.
#[kernel]
pub unsafe fn copy_within_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let (from, to) = (shared_array![u32; VECTORS], shared_array![u32; VECTORS]);
    unsafe {
        for word in 0..FOUR {
            *from.add(FOUR * rank() + word) = 1;
        }
        copy_cg(shared::address_of(to.add(FOUR * rank())), from.add(FOUR * rank())); // bug
        wait_all();
        *data.add(rank()) = *to.add(FOUR * rank());
    }
}

/// As above, with a bulk copy.
#[kernel]
pub unsafe fn bulk_load_from_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        *tiles.add(rank()) = 1;
        fence::proxy_async_shared();
        if rank() == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
        }
        sync_threads();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, TILE);
            tma::bulk_load(shared::address_of(tiles) + TILE, tiles, TILE, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
        *data.add(rank()) = *tiles.add(BLOCK + rank());
    }
}

/// As above, with a bulk copy that should go to global memory.
#[kernel]
pub unsafe fn bulk_store_to_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tiles = shared::dynamic_shared_mem::<u32>();
    unsafe {
        *tiles.add(rank()) = 1;
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(tiles.add(BLOCK), shared::address_of(tiles), TILE); // bug
            tma::commit_group();
            tma::wait_group::<0>();
        }
        sync_threads();
        *data.add(rank()) = *tiles.add(BLOCK + rank());
    }
}

/// The shared address of a buffer in global memory.
#[kernel]
pub unsafe fn buffer_by_shared_loads(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let address = shared::address_of(data.add(rank())); // bug
        *aux.add(rank()) = load_shared(address);
    }
}

/// The shared address of a local variable.
#[kernel]
pub unsafe fn local_by_shared_stores(data: *mut u32, _aux: *mut u32, n: u32) {
    let mut local = core::hint::black_box(n);
    unsafe {
        let address = shared::address_of(&raw const local); // bug
        store_shared(address, rank() as u32);
        *data.add(rank()) = *core::hint::black_box(&mut local);
    }
}

/// An address of the cluster's window, in a load from the block's own shared memory.
#[kernel]
pub unsafe fn next_block_by_own_loads(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = 1;
        cluster::sync();
        let next = cluster::block_rank() ^ 1;
        let word = cluster::map_shared(shared::address_of(tile.add(rank())), next);
        *data.add(crate::global()) = load_shared(word); // bug
        cluster::sync();
    }
}

/// Adds two words by plain accesses, which are generic.
unsafe fn sum(from: *const u32, other: *const u32) -> u32 {
    unsafe { *from + *other }
}

/// One helper for words in global, shared and local memory; atomics that name no memory.
#[kernel]
pub unsafe fn one_helper_for_all_memories(data: *mut u32, aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    let mut local = core::hint::black_box([n; FOUR]);
    unsafe {
        *tile.add(rank()) = sum(data.add(rank()), local.as_mut_ptr().add(rank() % FOUR));
        sync_threads();
        intrinsics::atomic_fetch_add_relaxed_u32_block(tile.add(rank() ^ 1), 1);
        intrinsics::atomic_fetch_add_relaxed_u32_device(aux.add(rank() ^ 1), 1);
        sync_threads();
        *data.add(rank()) = sum(tile.add(rank()), aux.add(rank()));
    }
    core::hint::black_box(&mut local);
}

/// The word behind a pointer to any memory, by the instruction for that memory.
unsafe fn word(from: *const u32) -> u32 {
    unsafe {
        if is_in_address_space(from, AddressSpace::Global) {
            load(from)
        } else if is_in_address_space(from, AddressSpace::Shared) {
            load_shared(shared::address_of(from))
        } else {
            *from
        }
    }
}

/// One helper that asks which memory a pointer points into.
#[kernel]
pub unsafe fn one_helper_that_asks(data: *mut u32, _aux: *mut u32, n: u32) {
    let tile = shared_array![u32; BLOCK];
    let mut local = core::hint::black_box([n; FOUR]);
    unsafe {
        *tile.add(rank()) = word(data.add(rank())) + word(local.as_mut_ptr().add(rank() % FOUR));
        sync_threads();
        *data.add(rank()) = word(tile.add(rank() ^ 1));
    }
    core::hint::black_box(&mut local);
}

/// Each vector by the instruction for its memory.
#[kernel]
pub unsafe fn vectors_by_way_of_shared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::address_of(shared_array![u32; VECTORS]);
    let vector = |index: usize| tile + 4 * (FOUR * index) as u32;
    unsafe {
        let mine = data.add(FOUR * rank());
        let [a, b] = load_v2(mine);
        let [c, d] = load_v2(mine.add(2));
        store_shared_v4(vector(rank()), [a, b, c, d]);
        sync_threads();
        let [a, b, c, d] = load_shared_v4(vector(BLOCK - 1 - rank()));
        store_v2(mine, [a, b]);
        store_v2(mine.add(2), [c, d]);
    }
}
