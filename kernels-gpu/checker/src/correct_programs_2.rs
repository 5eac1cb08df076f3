//! More programs that are right, at the borders of what the rules allow.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use cuda_std::thread::{device_fence, sync_threads};
use cuda_std::warp::{activemask, lane_id, warp_shuffle_idx};
use cuda_std::{fence, kernel, shared, shared_array, tma};

use crate::{BLOCK, atomic, block, rank};

/// Bytes of a tile: one word per thread.
const TILE: u32 = 4 * BLOCK as u32;

/// Lanes that happen to be together add by one of them.
#[kernel]
pub unsafe fn additions_of_those_together(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if *data.add(rank()) % 3 != 1 {
            let together = activemask();
            let leader = together.trailing_zeros();
            let mut ticket = 0;
            if lane_id() == leader {
                ticket = atomic(aux).fetch_add(together.count_ones(), Relaxed);
            }
            ticket = warp_shuffle_idx(together, ticket, leader, 32).0;
            ticket += (together & ((1 << lane_id()) - 1)).count_ones();
            *data.add(128 + ticket as usize) = rank() as u32;
        }
    }
}

/// The message of old CUDA programs: a volatile flag between two fences.
#[kernel]
pub unsafe fn volatile_flag_between_fences(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if block() == 0 {
            *data.add(rank()) += 1;
            sync_threads();
            if rank() == 0 {
                device_fence();
                aux.write_volatile(1);
            }
        } else {
            if rank() == 0 {
                while aux.read_volatile() == 0 {}
                device_fence();
            }
            sync_threads();
            *data.add(BLOCK + rank()) = *data.add(BLOCK - 1 - rank());
        }
    }
}

/// A tile goes to another block by a bulk store; the flag is set when the store is done.
#[kernel]
pub unsafe fn flag_when_the_store_is_done(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        if block() == 0 {
            *tile.add(rank()) = 7;
            fence::proxy_async_shared();
            sync_threads();
            if rank() == 0 {
                tma::bulk_store(data, shared::address_of(tile), TILE);
                tma::commit_group();
                tma::wait_group::<0>();
                atomic(aux).store(1, Release);
            }
        } else if rank() == 0 {
            while atomic(aux).load(Acquire) == 0 {}
            *aux.add(1) = (0..BLOCK).map(|i| *data.add(i)).sum();
        }
    }
}

/// Two roles reach the block's barrier in their own branches, whole warps in each.
#[kernel]
pub unsafe fn barrier_in_the_branches_of_roles(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; 32];
    unsafe {
        if rank() < 32 {
            *tile.add(rank()) = *data.add(rank());
            sync_threads();
        } else {
            let own = *data.add(rank());
            sync_threads();
            *aux.add(rank()) = own + *tile.add(63 - rank());
        }
    }
}

/// Buffers of four words move as a whole; only the words that are written are looked at.
#[kernel]
pub unsafe fn buffers_not_quite_full(data: *mut u32, aux: *mut u32, _n: u32) {
    type Buffer = MaybeUninit<[u32; 4]>;
    const WORDS: usize = 4 * BLOCK;
    let words = shared_array![u32; WORDS];
    let buffers = words.cast::<Buffer>();
    unsafe {
        *words.add(4 * rank()) = *data.add(rank());
        *words.add(4 * rank() + 1) = 5;
        sync_threads();
        let other: Buffer = *buffers.add(BLOCK - 1 - rank());
        sync_threads();
        *buffers.add(rank()) = other;
        *aux.add(rank()) = *words.add(4 * rank()) + *words.add(4 * rank() + 1);
    }
}

/// A bulk store takes the unwritten tail of a tile along, to memory that nobody reads.
#[kernel]
pub unsafe fn tail_stored_along(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        if rank() < 61 {
            *tile.add(rank()) = *data.add(rank()) + 1;
        }
        fence::proxy_async_shared();
        sync_threads();
        if rank() == 0 {
            tma::bulk_store(data.add(128), shared::address_of(tile), TILE);
            tma::commit_group();
            tma::wait_group::<0>();
        }
    }
}
