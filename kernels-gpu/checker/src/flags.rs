//! Messages between threads and blocks with orders, fences or scopes that are too weak.

use core::sync::atomic::Ordering;

use cuda_std::atomic::intrinsics::atomic_fetch_add_relaxed_u32_block;
use cuda_std::atomic::mid::{
    atomic_fetch_add_u32_block, atomic_fetch_add_u32_device, atomic_fetch_exch_u32_block,
    atomic_fetch_exch_u32_device, atomic_load_32_block, atomic_load_32_device, atomic_store_32_block,
    atomic_store_32_device,
};
use cuda_std::thread::{block_fence, device_fence, sync_threads};
use cuda_std::{fence, kernel, shared_array, vector};

use crate::{block, global, rank};

/// Block 0 writes and signals; block 1 waits and reads.
unsafe fn message(data: *mut u32, aux: *mut u32, signal: impl Fn(*mut u32), wait: impl Fn(*mut u32)) {
    unsafe {
        if rank() == 0 && block() == 0 {
            *data.add(100) = 7; // bug
            signal(aux);
        } else if rank() == 0 {
            wait(aux);
            *data.add(101) = *data.add(100); // bug
        }
    }
}

fn wait_acquire(flag: *mut u32) {
    while unsafe { atomic_load_32_device(flag, Ordering::Acquire) } == 0 {}
}

fn wait_relaxed(flag: *mut u32) {
    while unsafe { atomic_load_32_device(flag, Ordering::Relaxed) } == 0 {}
}

fn store(flag: *mut u32, order: Ordering) {
    unsafe { atomic_store_32_device(flag, order, 1) }
}

/// The reader's loads are relaxed.
#[kernel]
pub unsafe fn relaxed_poll(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { message(data, aux, |flag| store(flag, Ordering::Release), wait_relaxed) }
}

/// The writer's store is relaxed.
#[kernel]
pub unsafe fn relaxed_signal(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { message(data, aux, |flag| store(flag, Ordering::Relaxed), wait_acquire) }
}

/// The writer fences, the reader does not.
#[kernel]
pub unsafe fn fence_of_the_writer_alone(data: *mut u32, aux: *mut u32, _n: u32) {
    let signal = |flag| {
        device_fence();
        store(flag, Ordering::Relaxed);
    };
    unsafe { message(data, aux, signal, wait_relaxed) }
}

/// The reader fences, the writer does not.
#[kernel]
pub unsafe fn fence_of_the_reader_alone(data: *mut u32, aux: *mut u32, _n: u32) {
    let wait = |flag| {
        wait_relaxed(flag);
        device_fence();
    };
    unsafe { message(data, aux, |flag| store(flag, Ordering::Relaxed), wait) }
}

/// The fence comes after the signal.
#[kernel]
pub unsafe fn fence_after_the_signal(data: *mut u32, aux: *mut u32, _n: u32) {
    let signal = |flag| {
        store(flag, Ordering::Relaxed);
        device_fence();
    };
    unsafe { message(data, aux, signal, wait_acquire) }
}

/// Fences of block scope between blocks.
#[kernel]
pub unsafe fn block_fences_between_blocks(data: *mut u32, aux: *mut u32, _n: u32) {
    let signal = |flag| {
        block_fence();
        store(flag, Ordering::Relaxed);
    };
    let wait = |flag| {
        wait_relaxed(flag);
        block_fence();
    };
    unsafe { message(data, aux, signal, wait) }
}

/// Fences of cluster scope between blocks of different clusters.
#[kernel]
pub unsafe fn cluster_fences_between_blocks(data: *mut u32, aux: *mut u32, _n: u32) {
    let signal = |flag| {
        fence::cluster();
        store(flag, Ordering::Relaxed);
    };
    let wait = |flag| {
        wait_relaxed(flag);
        fence::cluster();
    };
    unsafe { message(data, aux, signal, wait) }
}

/// A release of block scope between blocks.
#[kernel]
pub unsafe fn block_release_between_blocks(data: *mut u32, aux: *mut u32, _n: u32) {
    let signal = |flag| unsafe { atomic_store_32_block(flag, Ordering::Release, 1) }; // bug
    let wait = |flag| while unsafe { atomic_load_32_device(flag, Ordering::Acquire) } == 0 {}; // bug
    unsafe { message(data, aux, signal, wait) }
}

/// An acquire of block scope between blocks.
#[kernel]
pub unsafe fn block_acquire_between_blocks(data: *mut u32, aux: *mut u32, _n: u32) {
    let signal = |flag| unsafe { atomic_store_32_device(flag, Ordering::Release, 1) }; // bug
    let wait = |flag| while unsafe { atomic_load_32_block(flag, Ordering::Acquire) } == 0 {}; // bug
    unsafe { message(data, aux, signal, wait) }
}

/// A volatile flag: it orders nothing.
#[kernel]
pub unsafe fn volatile_flag(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 && block() == 0 {
            *data.add(100) = 7; // bug
            aux.write_volatile(1); // bug
        } else if rank() == 0 {
            while aux.read_volatile() == 0 {} // bug
            *data.add(101) = *data.add(100); // bug
        }
    }
}

/// A volatile flag in shared memory, between warps.
#[kernel]
pub unsafe fn volatile_shared_flag(data: *mut u32, _aux: *mut u32, _n: u32) {
    let words = shared_array![u32; 2];
    unsafe {
        if rank() == 0 {
            *words = 0;
        }
        sync_threads();
        if rank() == 0 {
            *words.add(1) = 5; // bug
            words.write_volatile(1); // bug
        } else if rank() == 32 {
            while words.read_volatile() == 0 {} // bug
            *data = *words.add(1); // bug
        }
    }
}

/// Counts of block scope at one counter of the whole grid.
#[kernel]
pub unsafe fn block_counts_of_the_grid(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        atomic_fetch_add_relaxed_u32_block(aux, 1); // bug
    }
}

/// A lock of block scope that several blocks take.
#[kernel]
pub unsafe fn block_lock_of_the_grid(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            while atomic_fetch_exch_u32_block(aux, Ordering::Acquire, 1) != 0 {} // bug
            *aux.add(1) += 1; // bug
            atomic_store_32_block(aux, Ordering::Release, 0); // bug
        }
    }
}

/// The lock is right, but the last look at the count comes after the unlock.
#[kernel]
pub unsafe fn read_after_the_unlock(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            while atomic_fetch_exch_u32_device(aux, Ordering::Acquire, 1) != 0 {}
            *aux.add(1) += 1; // bug
            atomic_store_32_device(aux, Ordering::Release, 0);
            *data.add(block()) = *aux.add(1); // bug
        }
    }
}

/// Two words guarded by two locks, one of which covers neither access of the other block.
#[kernel]
pub unsafe fn different_locks(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let lock = aux.add(block() % 2);
            while atomic_fetch_exch_u32_device(lock, Ordering::Acquire, 1) != 0 {}
            *aux.add(2) += 1; // bug
            atomic_store_32_device(lock, Ordering::Release, 0);
        }
    }
}

/// Two threads set their flags and look at the other's: both may see zero.
#[kernel]
pub unsafe fn store_buffering(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            *aux.add(block()) = 1; // bug
            *data.add(block()) = *aux.add(1 - block()); // bug
        }
    }
}

/// Two writers, two readers, and plain accesses to what they write.
#[kernel]
pub unsafe fn independent_reads(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        match global() {
            0 => *aux = 1,         // bug
            64 => *aux.add(1) = 1, // bug
            128 | 192 => {
                *data.add(block()) = *aux; // bug
                *data.add(4 + block()) = *aux.add(1); // bug
            }
            _ => {}
        }
    }
}

/// Mutual exclusion by two flags. It needs sequential consistency; acquire and release are not enough.
#[kernel]
pub unsafe fn two_flags_without_order(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let (mine, other) = (aux.add(block()), aux.add(1 - block()));
            atomic_store_32_device(mine, Ordering::Release, 1);
            if atomic_load_32_device(other, Ordering::Acquire) == 0 {
                *data.add(100) += 1; // bug
            }
            atomic_store_32_device(mine, Ordering::Release, 0);
        }
    }
}

/// Each thread writes; the first one fences and counts for all, with no barrier between.
#[kernel]
pub unsafe fn fence_of_one_for_all(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        *data.add(global()) = 1; // bug
        if rank() == 0 {
            device_fence();
            let before = atomic_fetch_add_u32_device(aux, Ordering::AcqRel, 1);
            if before == 3 {
                let mut sum = 0;
                for index in 0..n as usize {
                    sum += *data.add(index); // bug
                }
                *aux.add(1) = sum;
            }
        }
    }
}

/// Sums passed from block to block; the flag comes before the sum.
#[kernel]
pub unsafe fn look_back_flag_first(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let turn = atomic_fetch_add_u32_device(aux, Ordering::Relaxed, 1) as usize;
            while atomic_load_32_device(aux.add(1), Ordering::Acquire) != turn as u32 {}
            let before = if turn == 0 { 0 } else { *data.add(turn - 1) }; // bug
            atomic_store_32_device(aux.add(1), Ordering::Release, turn as u32 + 1);
            *data.add(turn) = before + 1; // bug
        }
    }
}

/// A barrier of the grid made of a counter, whose waiting does not acquire.
#[kernel]
pub unsafe fn grid_barrier_relaxed(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(global()) = 1; // bug
        sync_threads();
        if rank() == 0 {
            atomic_fetch_add_u32_device(aux, Ordering::Release, 1);
            while atomic_load_32_device(aux, Ordering::Relaxed) != 4 {}
        }
        sync_threads();
        *data.add(256 + global()) = *data.add((global() + 64) % 256); // bug
    }
}

/// A barrier of the grid, counted before the block's other threads have written.
#[kernel]
pub unsafe fn grid_barrier_counts_early(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(global()) = 1; // bug
        if rank() == 0 {
            atomic_fetch_add_u32_device(aux, Ordering::Release, 1);
            while atomic_load_32_device(aux, Ordering::Acquire) != 4 {}
        }
        sync_threads();
        *data.add(256 + global()) = *data.add((global() + 64) % 256); // bug
    }
}

/// Block 0 clears the counter of the grid while other blocks count.
#[kernel]
pub unsafe fn counter_cleared_by_a_block(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if global() == 0 {
            *aux = 0; // bug
        }
        atomic_fetch_add_u32_device(aux, Ordering::Relaxed, 1); // bug
    }
}

/// A queue of work: the tail moves before the item is written.
#[kernel]
pub unsafe fn queue_tail_first(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 && block() == 0 {
            let slot = atomic_fetch_add_u32_device(aux, Ordering::Release, 1) as usize;
            *data.add(slot) = 9; // bug
        } else if rank() == 0 {
            wait_acquire(aux);
            *data.add(50) = *data; // bug
        }
    }
}

/// The read-only cache may hold the word from before the thread's own store.
#[kernel]
pub unsafe fn read_only_load_of_own_store(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(rank()) = 5; // bug
        let value: u32 = vector::load_nc(data.add(rank()).cast_const()); // bug
        *data.add(128 + rank()) = value;
    }
}

/// As above, with another thread's store and a barrier between.
#[kernel]
pub unsafe fn read_only_load_after_barrier(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(rank()) = 5; // bug
        sync_threads();
        let value: u32 = vector::load_nc(data.add(rank() ^ 1).cast_const()); // bug
        *aux.add(rank()) = value;
    }
}

/// A streaming load is a read-only one.
#[kernel]
pub unsafe fn streaming_load_of_own_store(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(rank()) = 5; // bug
        device_fence();
        let value: u32 = vector::load_stream(data.add(rank()).cast_const()); // bug
        *aux.add(rank()) = value;
    }
}

/// A count that is correct, and a count of the other scope at the same word.
#[kernel]
pub unsafe fn counts_of_two_scopes(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if block() == 0 {
            atomic_fetch_add_u32_block(aux, Ordering::Relaxed, 1); // bug
        } else {
            atomic_fetch_add_u32_device(aux, Ordering::Relaxed, 1); // bug
        }
    }
}
