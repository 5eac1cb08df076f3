//! Correct kernels with `core::sync::atomic`.
//!
//! Loops that wait use loads, since the executor sees that those wait.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};

use cuda_std::thread::{grid_dim_x, sync_threads};
use cuda_std::{kernel, shared_array};

use crate::{BLOCK, atomic, block, global, rank};

/// A lock, taken with acquire and given back with release.
#[kernel]
pub unsafe fn core_lock(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        while atomic(aux).compare_exchange(0, 1, Acquire, Relaxed).is_err() {}
        *aux.add(1) += 1;
        atomic(aux).store(0, Release);
    }
}

/// The same in shared memory, by a swap.
#[kernel]
pub unsafe fn core_lock_in_shared(_data: *mut u32, aux: *mut u32, _n: u32) {
    let words = shared_array![u32; 2];
    unsafe {
        if rank() == 0 {
            *words = 0;
            *words.add(1) = 0;
        }
        sync_threads();
        // As in `spin_lock`.
        let mut is_done = false;
        while !is_done {
            if atomic(words).swap(1, Acquire) == 0 {
                *words.add(1) += 1;
                atomic(words).store(0, Release);
                is_done = true;
            }
        }
        sync_threads();
        if rank() == 0 {
            *aux.add(block()) = *words.add(1);
        }
    }
}

/// A message from one warp to another: release, acquire.
#[kernel]
pub unsafe fn core_message(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            *data.add(100) = 7;
            atomic(aux).store(1, Release);
        } else if rank() == 32 {
            while atomic(aux).load(Acquire) == 0 {}
            *data.add(101) = *data.add(100);
        }
    }
}

/// A message between blocks.
#[kernel]
pub unsafe fn core_message_between_blocks(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 && block() == 0 {
            *data.add(100) = 7;
            atomic(aux).store(1, Release);
        } else if rank() == 0 {
            while atomic(aux).load(Acquire) == 0 {}
            *data.add(101) = *data.add(100);
        }
    }
}

/// A message by relaxed accesses with fences on both sides.
#[kernel]
pub unsafe fn core_message_with_fences(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            *data.add(100) = 7;
            fence(Release);
            atomic(aux).store(1, Relaxed);
        } else if rank() == 32 {
            while atomic(aux).load(Relaxed) == 0 {}
            fence(Acquire);
            *data.add(101) = *data.add(100);
        }
    }
}

/// A counter that only orders itself.
#[kernel]
pub unsafe fn core_counter(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        atomic(aux).fetch_add(1, Relaxed);
    }
}

/// A counter that is read behind a barrier.
#[kernel]
pub unsafe fn core_counter_behind_a_barrier(data: *mut u32, _aux: *mut u32, _n: u32) {
    let count = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            *count = 0;
        }
        sync_threads();
        atomic(count).fetch_add(2, Relaxed);
        sync_threads();
        *data.add(rank()) = *count;
    }
}

/// A lock of tickets, over all blocks.
#[kernel]
pub unsafe fn core_tickets(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let ticket = atomic(aux).fetch_add(1, Relaxed);
            while atomic(aux.add(1)).load(Acquire) != ticket {}
            *aux.add(2) += 1;
            atomic(aux.add(1)).store(ticket + 1, Release);
        }
    }
}

/// The last block sums what the others wrote, and clears the counter plainly for the next launch.
#[kernel]
pub unsafe fn core_last_block(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            *data.add(block()) = 3;
            if atomic(aux).fetch_add(1, AcqRel) == grid_dim_x() - 1 {
                let mut sum = 0;
                for other in 0..grid_dim_x() as usize {
                    sum += *data.add(other);
                }
                *aux.add(1) = sum;
                *aux = 0;
            }
        }
    }
}

/// A sequence lock whose data are atomics as well.
#[kernel]
pub unsafe fn core_sequence(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            atomic(aux).store(1, Relaxed);
            fence(Release);
            atomic(aux.add(1)).store(5, Relaxed);
            atomic(aux).store(2, Release);
        } else if rank() == 32 {
            while atomic(aux).load(Acquire) != 2 {}
            *data = atomic(aux.add(1)).load(Relaxed);
        }
    }
}

/// The largest element, by exchanges that may fail.
#[kernel]
pub unsafe fn core_maximum(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let value = *data.add(global());
        let mut largest = atomic(aux).load(Relaxed);
        while value > largest {
            match atomic(aux).compare_exchange(largest, value, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => largest = now,
            }
        }
    }
}

/// Threads take items of work by a counter; each item is one thread's alone.
#[kernel]
pub unsafe fn core_work_queue(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        loop {
            let item = atomic(aux).fetch_add(1, Relaxed);
            if item >= n {
                break;
            }
            *data.add(item as usize) += 1;
        }
    }
}

/// Bins in shared memory, merged into bins in global memory.
#[kernel]
pub unsafe fn core_histogram(data: *mut u32, aux: *mut u32, _n: u32) {
    let bins = shared_array![u32; 8];
    unsafe {
        if rank() < 8 {
            *bins.add(rank()) = 0;
        }
        sync_threads();
        atomic(bins.add(*data.add(global()) as usize % 8)).fetch_add(1, Relaxed);
        sync_threads();
        if rank() < 8 {
            atomic(aux.add(rank())).fetch_add(*bins.add(rank()), Relaxed);
        }
    }
}

/// A count and a sum in one double word.
#[kernel]
pub unsafe fn core_double_word(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let both = AtomicU64::from_ptr(aux.cast());
        both.fetch_add(1 << 32 | u64::from(*data.add(global())), Relaxed);
    }
}

/// A barrier of all blocks by a counter.
#[kernel]
pub unsafe fn core_grid_barrier(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        *data.add(global()) = block() as u32;
        sync_threads();
        if rank() == 0 {
            atomic(aux).fetch_add(1, AcqRel);
            while atomic(aux).load(Acquire) != grid_dim_x() {}
        }
        sync_threads();
        *data.add(256 + global()) = *data.add((global() + BLOCK) % 256);
    }
}

/// The first thread to come makes a value, the others wait for it.
#[kernel]
pub unsafe fn core_once(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank().is_multiple_of(32) {
            match atomic(aux).compare_exchange(0, 1, Acquire, Acquire) {
                Ok(_) => {
                    *data.add(100) = 9;
                    atomic(aux).store(2, Release);
                }
                Err(_) => while atomic(aux).load(Acquire) != 2 {},
            }
            *data.add(rank()) = *data.add(100);
        }
    }
}

/// One word passes through a mailbox, again and again.
#[kernel]
pub unsafe fn core_mailbox(data: *mut u32, aux: *mut u32, _n: u32) {
    const ROUNDS: u32 = 5;
    unsafe {
        if rank() == 0 {
            for round in 0..ROUNDS {
                while atomic(aux).load(Acquire) != 2 * round {}
                *aux.add(1) = round * 10;
                atomic(aux).store(2 * round + 1, Release);
            }
        } else if rank() == 32 {
            for round in 0..ROUNDS {
                while atomic(aux).load(Acquire) != 2 * round + 1 {}
                *data.add(round as usize) = *aux.add(1);
                atomic(aux).store(2 * round + 2, Release);
            }
        }
    }
}

/// A list to which threads push nodes; behind a barrier, one thread walks through it.
#[kernel]
pub unsafe fn core_list(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let node = rank() as u32 + 1;
        let mut head = atomic(aux).load(Relaxed);
        loop {
            *data.add(node as usize) = head;
            match atomic(aux).compare_exchange(head, node, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        sync_threads();
        if rank() == 0 {
            let (mut node, mut count) = (*aux, 0);
            while node != 0 {
                node = *data.add(node as usize);
                count += 1;
            }
            *aux.add(1) = count;
        }
    }
}
