//! TMA copies of boxes: loads and stores of every rank, and a multicast load.

use cuda_std::tma::{self, TensorMap};
use cuda_std::{cluster, fence, kernel, mbarrier, shared, shared_array, thread, vector};

/// Threads per block.
pub const THREADS: u32 = 128;

/// Copies words between shared and global memory with all threads.
///
/// # Safety
/// Both hold `bytes` bytes, a multiple of 4.
#[inline(always)]
unsafe fn copy_out(out: *mut u32, tile: u32, bytes: u32) {
    let mut i = thread::thread_idx_x();
    while i < bytes / 4 {
        // SAFETY: in bounds of both, by the caller's promise.
        unsafe { out.add(i as usize).write(vector::load_shared(tile + 4 * i)) };
        i += THREADS;
    }
}

/// The start of the tile: dynamic shared memory, which is aligned for every swizzle.
#[inline(always)]
fn tile() -> u32 {
    shared::address_of(shared::dynamic_shared_mem::<u8>())
}

/// One thread initialises the block's mbarrier.
///
/// # Safety
/// `bar` is the address of 8 bytes that have no other use.
#[inline(always)]
unsafe fn make_barrier(bar: u32) {
    if thread::thread_idx_x() == 0 {
        // SAFETY: the caller's promise.
        unsafe { mbarrier::init(bar, 1) };
        mbarrier::fence_init();
    }
}

/// The reductions, in the order of their numbers.
pub const REDUCTIONS: [&str; 8] = ["add", "min", "max", "inc", "dec", "and", "or", "xor"];
/// The number behind those of the reductions: a store with a cache policy.
pub const STORE_HINT: u32 = 9;

/// The load and the store of one rank.
macro_rules! boxes {
    ($($dims:literal: $load_kernel:ident($load:ident, $hint:ident), $store_kernel:ident($store:ident, $store_hint:ident, $add:ident $min:ident $max:ident $inc:ident $dec:ident $and:ident $or:ident $xor:ident);)*) => { $(
        #[doc = concat!("Loads one ", $dims, "-dimensional box of `bytes` bytes and writes it to `out`; `hint` is 0 for none, 1, 2, 3 for a policy.")]
        ///
        /// # Safety
        /// The map has boxes of `bytes` bytes, for which the launch gives shared memory; so has `out`. One
        /// block of [`THREADS`] threads.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $load_kernel(map: &TensorMap, coords: [i32; $dims], bytes: u32, hint: u32, out: *mut u32) {
            let (tile, bar) = (tile(), shared::address_of(shared_array![u64; 1]));
            // SAFETY: the mbarrier is initialised before any wait, and expects the box's bytes.
            unsafe {
                make_barrier(bar);
                thread::sync_threads();
                if thread::thread_idx_x() == 0 {
                    tma::prefetch(map);
                    mbarrier::arrive_expect_tx(bar, bytes);
                    match hint {
                        1 => tma::$hint(tile, map, bar, coords, tma::policy::evict_first()),
                        2 => tma::$hint(tile, map, bar, coords, tma::policy::evict_last()),
                        3 => tma::$hint(tile, map, bar, coords, tma::policy::evict_normal()),
                        _ => tma::$load(tile, map, bar, coords),
                    }
                }
                mbarrier::wait_parity(bar, 0);
                copy_out(out, tile, bytes);
            }
        }

        #[doc = concat!("Stores one ", $dims, "-dimensional box of `bytes` bytes of `x` or, where `op` is not 0, combines it with what is there: by the op of [`REDUCTIONS`] of that number, from 1 on; [`STORE_HINT`] stores too.")]
        ///
        /// # Safety
        /// As for the load.
        #[kernel(launch_bounds(THREADS))]
        pub unsafe fn $store_kernel(x: *const u32, bytes: u32, op: u32, map: &TensorMap, coords: [i32; $dims]) {
            let tile = tile();
            // SAFETY: threads write the tile, then a fence and a barrier, then the copy reads it.
            unsafe {
                let mut i = thread::thread_idx_x();
                while i < bytes / 4 {
                    vector::store_shared(tile + 4 * i, *x.add(i as usize));
                    i += THREADS;
                }
                fence::proxy_async_shared();
                thread::sync_threads();
                if thread::thread_idx_x() == 0 {
                    match op {
                        1 => tma::$add(map, tile, coords),
                        2 => tma::$min(map, tile, coords),
                        3 => tma::$max(map, tile, coords),
                        4 => tma::$inc(map, tile, coords),
                        5 => tma::$dec(map, tile, coords),
                        6 => tma::$and(map, tile, coords),
                        7 => tma::$or(map, tile, coords),
                        8 => tma::$xor(map, tile, coords),
                        STORE_HINT => tma::$store_hint(map, tile, coords, tma::policy::evict_first()),
                        _ => tma::$store(map, tile, coords),
                    }
                    tma::commit_group();
                    tma::wait_group::<0>();
                }
            }
        }
    )* };
}

boxes! {
    1: tma_load_1d(load_1d, load_1d_hint),
        tma_store_1d(store_1d, store_1d_hint, reduce_add_1d reduce_min_1d reduce_max_1d reduce_inc_1d reduce_dec_1d reduce_and_1d reduce_or_1d reduce_xor_1d);
    2: tma_load_2d(load_2d, load_2d_hint),
        tma_store_2d(store_2d, store_2d_hint, reduce_add_2d reduce_min_2d reduce_max_2d reduce_inc_2d reduce_dec_2d reduce_and_2d reduce_or_2d reduce_xor_2d);
    3: tma_load_3d(load_3d, load_3d_hint),
        tma_store_3d(store_3d, store_3d_hint, reduce_add_3d reduce_min_3d reduce_max_3d reduce_inc_3d reduce_dec_3d reduce_and_3d reduce_or_3d reduce_xor_3d);
    4: tma_load_4d(load_4d, load_4d_hint),
        tma_store_4d(store_4d, store_4d_hint, reduce_add_4d reduce_min_4d reduce_max_4d reduce_inc_4d reduce_dec_4d reduce_and_4d reduce_or_4d reduce_xor_4d);
    5: tma_load_5d(load_5d, load_5d_hint),
        tma_store_5d(store_5d, store_5d_hint, reduce_add_5d reduce_min_5d reduce_max_5d reduce_inc_5d reduce_dec_5d reduce_and_5d reduce_or_5d reduce_xor_5d);
}

/// Loads one box whose rows are shorter than the swizzle's span over words of ones, and writes `bytes` bytes
/// of it to `out`: rows begin a span apart, and what lies between them stays.
///
/// # Safety
/// The map has boxes of `box_bytes` bytes, whose rows take `bytes` bytes with a span each; the launch gives
/// shared memory for those; so has `out`. One block of [`THREADS`] threads.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn tma_load_narrow(map: &TensorMap, coords: [i32; 2], box_bytes: u32, bytes: u32, out: *mut u32) {
    let (tile, bar) = (tile(), shared::address_of(shared_array![u64; 1]));
    // SAFETY: threads write the tile, then a fence and a barrier, then the copy, which all wait for.
    unsafe {
        make_barrier(bar);
        let mut i = thread::thread_idx_x();
        while i < bytes / 4 {
            vector::store_shared(tile + 4 * i, u32::MAX);
            i += THREADS;
        }
        fence::proxy_async_shared();
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            mbarrier::arrive_expect_tx(bar, box_bytes);
            tma::load_2d(tile, map, bar, coords);
        }
        mbarrier::wait_parity(bar, 0);
        copy_out(out, tile, bytes);
    }
}

/// Each block of a cluster loads one box, of the rows from `rank * rows` on, and multicasts it to all blocks.
/// Every block writes all boxes to its part of `out`.
///
/// # Safety
/// The map has boxes of `bytes` bytes and `rows` rows, a multiple of 128 bytes; the launch gives shared
/// memory for one box per block of the cluster; `out` has as many for each block. Blocks of [`THREADS`]
/// threads, one cluster.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn tma_multicast(map: &TensorMap, rows: u32, bytes: u32, hint: u32, out: *mut u32) {
    let (tile, bar) = (tile(), shared::address_of(shared_array![u64; 1]));
    let (rank, blocks) = (cluster::block_rank(), cluster::blocks());
    let everyone = ((1_u32 << blocks) - 1) as u16;
    // SAFETY: all mbarriers are initialised before any block sends, and each expects the boxes of all blocks;
    // no block exits before it has received all boxes and all blocks have sent.
    unsafe {
        make_barrier(bar);
        cluster::sync();
        if thread::thread_idx_x() == 0 {
            mbarrier::arrive_expect_tx(bar, blocks * bytes);
            let (dst, coords) = (tile + rank * bytes, [0, (rank * rows) as i32]);
            if hint == 0 {
                tma::load_2d_multicast(dst, map, bar, coords, everyone);
            } else {
                tma::load_2d_multicast_hint(dst, map, bar, coords, everyone, tma::policy::evict_first());
            }
        }
        mbarrier::wait_parity(bar, 0);
        copy_out(out.add((rank * blocks * bytes / 4) as usize), tile, blocks * bytes);
        cluster::sync();
    }
}

/// Every bulk reduction and its type. The index is the reduction's number.
pub const BULK_REDUCTIONS: [(&str, &str); 27] = [
    ("add", "u32"),
    ("add", "i32"),
    ("add", "u64"),
    ("add", "f32"),
    ("add", "f64"),
    ("add", "f16"),
    ("add", "bf16"),
    ("min", "u32"),
    ("min", "i32"),
    ("min", "u64"),
    ("min", "i64"),
    ("min", "f16"),
    ("min", "bf16"),
    ("max", "u32"),
    ("max", "i32"),
    ("max", "u64"),
    ("max", "i64"),
    ("max", "f16"),
    ("max", "bf16"),
    ("inc", "u32"),
    ("dec", "u32"),
    ("and", "u32"),
    ("and", "u64"),
    ("or", "u32"),
    ("or", "u64"),
    ("xor", "u32"),
    ("xor", "u64"),
];

/// Combines [`BULK_BYTES`] bytes of `x` with those of `out`, by reduction number `op` of [`BULK_REDUCTIONS`],
/// counted from 0.
///
/// # Safety
/// Both hold [`BULK_BYTES`], `out` aligned to 16. One block of [`THREADS`] threads.
#[kernel(launch_bounds(THREADS))]
pub unsafe fn bulk_reduce(op: u32, x: *const u32, out: *mut u32) {
    let tile = shared::address_of(shared_array![u128; BULK_BYTES as usize / 16]);
    // SAFETY: threads write the tile, then a fence and a barrier, then the copy reads it.
    unsafe {
        let mut i = thread::thread_idx_x();
        while i < BULK_BYTES / 4 {
            vector::store_shared(tile + 4 * i, *x.add(i as usize));
            i += THREADS;
        }
        fence::proxy_async_shared();
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            match op {
                0 => tma::bulk_reduce_add_u32(out.cast(), tile, BULK_BYTES),
                1 => tma::bulk_reduce_add_i32(out.cast(), tile, BULK_BYTES),
                2 => tma::bulk_reduce_add_u64(out.cast(), tile, BULK_BYTES),
                3 => tma::bulk_reduce_add_f32(out.cast(), tile, BULK_BYTES),
                4 => tma::bulk_reduce_add_f64(out.cast(), tile, BULK_BYTES),
                5 => tma::bulk_reduce_add_f16(out.cast(), tile, BULK_BYTES),
                6 => tma::bulk_reduce_add_bf16(out.cast(), tile, BULK_BYTES),
                7 => tma::bulk_reduce_min_u32(out.cast(), tile, BULK_BYTES),
                8 => tma::bulk_reduce_min_i32(out.cast(), tile, BULK_BYTES),
                9 => tma::bulk_reduce_min_u64(out.cast(), tile, BULK_BYTES),
                10 => tma::bulk_reduce_min_i64(out.cast(), tile, BULK_BYTES),
                11 => tma::bulk_reduce_min_f16(out.cast(), tile, BULK_BYTES),
                12 => tma::bulk_reduce_min_bf16(out.cast(), tile, BULK_BYTES),
                13 => tma::bulk_reduce_max_u32(out.cast(), tile, BULK_BYTES),
                14 => tma::bulk_reduce_max_i32(out.cast(), tile, BULK_BYTES),
                15 => tma::bulk_reduce_max_u64(out.cast(), tile, BULK_BYTES),
                16 => tma::bulk_reduce_max_i64(out.cast(), tile, BULK_BYTES),
                17 => tma::bulk_reduce_max_f16(out.cast(), tile, BULK_BYTES),
                18 => tma::bulk_reduce_max_bf16(out.cast(), tile, BULK_BYTES),
                19 => tma::bulk_reduce_inc_u32(out.cast(), tile, BULK_BYTES),
                20 => tma::bulk_reduce_dec_u32(out.cast(), tile, BULK_BYTES),
                21 => tma::bulk_reduce_and_u32(out.cast(), tile, BULK_BYTES),
                22 => tma::bulk_reduce_and_u64(out.cast(), tile, BULK_BYTES),
                23 => tma::bulk_reduce_or_u32(out.cast(), tile, BULK_BYTES),
                24 => tma::bulk_reduce_or_u64(out.cast(), tile, BULK_BYTES),
                25 => tma::bulk_reduce_xor_u32(out.cast(), tile, BULK_BYTES),
                26 => tma::bulk_reduce_xor_u64(out.cast(), tile, BULK_BYTES),
                _ => {}
            }
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}

/// Bytes that [`bulk_reduce()`] combines.
pub const BULK_BYTES: u32 = 512;
