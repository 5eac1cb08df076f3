//! `core::sync::atomic` with bugs: orderings that are too weak, and plain accesses to the same words.
//!
//! Loops that wait use loads, since the executor sees that those wait.

use core::sync::atomic::Ordering;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use cuda_std::thread::sync_threads;
use cuda_std::{kernel, shared_array};

use crate::{BLOCK, atomic, block, global, rank};

/// The second warp waits for a flag and reads what the first warp has written.
unsafe fn pass(data: *mut u32, aux: *mut u32, store: Ordering, load: Ordering) {
    unsafe {
        if rank() == 0 {
            *data.add(100) = 7; // bug
            atomic(aux).store(1, store);
        } else if rank() == 32 {
            while atomic(aux).load(load) == 0 {}
            *data.add(101) = *data.add(100); // bug
        }
    }
}

/// Neither side orders anything.
#[kernel]
pub unsafe fn core_flag_relaxed(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { pass(data, aux, Relaxed, Relaxed) }
}

/// The reader does not acquire.
#[kernel]
pub unsafe fn core_flag_without_acquire(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { pass(data, aux, Release, Relaxed) }
}

/// The writer does not release.
#[kernel]
pub unsafe fn core_flag_without_release(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { pass(data, aux, Relaxed, Acquire) }
}

/// The flag is set before the data is written.
#[kernel]
pub unsafe fn core_flag_before_data(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            atomic(aux).store(1, Release);
            *data.add(100) = 7; // bug
        } else if rank() == 32 {
            while atomic(aux).load(Acquire) == 0 {}
            *data.add(101) = *data.add(100); // bug
        }
    }
}

/// A lock around an increment.
unsafe fn locked(aux: *mut u32, lock: Ordering, unlock: Ordering) {
    unsafe {
        while atomic(aux).swap(1, lock) != 0 {}
        let count = *aux.add(1); // bug
        *aux.add(1) = count + 1; // bug
        atomic(aux).store(0, unlock);
    }
}

/// The lock is taken without acquire.
#[kernel]
pub unsafe fn core_lock_without_acquire(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { locked(aux, Relaxed, Release) }
}

/// The lock is given back without release.
#[kernel]
pub unsafe fn core_lock_without_release(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe { locked(aux, Acquire, Relaxed) }
}

/// The lock is given back by a plain store.
#[kernel]
pub unsafe fn core_lock_plain_unlock(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        while atomic(aux).compare_exchange(0, 1, Acquire, Relaxed).is_err() {} // bug
        *aux = 0; // bug
    }
}

/// All count; one reads the count without a barrier.
#[kernel]
pub unsafe fn core_counter_read_plainly(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        atomic(aux).fetch_add(1, Relaxed); // bug
        if rank() == 5 {
            *data = *aux; // bug
        }
    }
}

/// The counter is cleared while others count already.
#[kernel]
pub unsafe fn core_counter_cleared_late(data: *mut u32, _aux: *mut u32, _n: u32) {
    let count = shared_array![u32; 1];
    unsafe {
        if rank() == 0 {
            *count = 0; // bug
        }
        atomic(count).fetch_add(1, Relaxed); // bug
        sync_threads();
        *data.add(rank()) = *count;
    }
}

/// The counter is never cleared.
#[kernel]
pub unsafe fn core_counter_not_cleared(data: *mut u32, _aux: *mut u32, _n: u32) {
    let count = shared_array![u32; 1];
    unsafe {
        atomic(count).fetch_add(1, Relaxed); // bug
        sync_threads();
        *data.add(rank()) = *count; // bug
    }
}

/// A ticket lock whose turn is passed on without release.
#[kernel]
pub unsafe fn core_ticket_relaxed(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let ticket = atomic(aux).fetch_add(1, Relaxed);
        while atomic(aux.add(1)).load(Acquire) != ticket {}
        let sum = *data.add(200); // bug
        *data.add(200) = sum + 1; // bug
        atomic(aux.add(1)).store(ticket + 1, Relaxed);
    }
}

/// The last block sums what the others wrote; the count orders nothing.
#[kernel]
pub unsafe fn core_last_block_relaxed(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            *data.add(block()) = 1; // bug
            if atomic(aux).fetch_add(1, Relaxed) == 3 {
                let mut sum = 0;
                for other in 0..4 {
                    sum += *data.add(other); // bug
                }
                *aux.add(1) = sum;
            }
        }
    }
}

/// The first look at the flag of a double-checked initialisation is a plain one.
#[kernel]
pub unsafe fn core_double_check(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let seen = *aux; // bug
        if seen == 0 && rank() == 3 {
            *data.add(80) = 1;
            atomic(aux).store(1, Release); // bug
        }
    }
}

/// A wide plain load covers a counter.
#[kernel]
pub unsafe fn core_counter_in_a_wide_load(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() < 32 {
            atomic(aux.add(1)).fetch_add(1, Relaxed); // bug
        } else {
            let both = *aux.cast::<u64>(); // bug
            *data.add(rank()) = both as u32;
        }
    }
}

/// Readers of a sequence lock read the data plainly.
#[kernel]
pub unsafe fn core_sequence_lock(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            atomic(aux).store(1, Release);
            *data.add(100) = 5; // bug
            atomic(aux).store(2, Release);
        } else if rank() == 40 {
            let before = atomic(aux).load(Acquire);
            let value = *data.add(100); // bug
            if atomic(aux).load(Acquire) == before {
                *data.add(101) = value;
            }
        }
    }
}

/// A barrier of two warps' leaders made of a relaxed counter.
#[kernel]
pub unsafe fn core_barrier_relaxed(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank().is_multiple_of(32) {
            *data.add(rank()) = 1; // bug
            atomic(aux).fetch_add(1, Relaxed);
            while atomic(aux).load(Relaxed) != 2 {}
            *aux.add(2 + rank() / 32) = *data.add(32 - rank()); // bug
        }
    }
}

/// A queue's tail is moved before the item is there.
#[kernel]
pub unsafe fn core_queue_tail_first(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            let slot = atomic(aux).fetch_add(1, AcqRel) as usize;
            *data.add(slot) = 9; // bug
        } else if rank() == 32 {
            while atomic(aux).load(Acquire) == 0 {}
            *aux.add(1) = *data; // bug
        }
    }
}

/// A fence on the writer's side alone.
#[kernel]
pub unsafe fn core_fence_on_one_side(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 {
            *data.add(100) = 7; // bug
            core::sync::atomic::fence(Release);
            atomic(aux).store(1, Relaxed);
        } else if rank() == 32 {
            while atomic(aux).load(Relaxed) == 0 {}
            *data.add(101) = *data.add(100); // bug
        }
    }
}

/// Atomic and plain stores of one word, between blocks.
#[kernel]
pub unsafe fn core_mixed_stores(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        if rank() == 0 && block() == 0 {
            *aux = 1; // bug
        } else if rank() == 0 {
            atomic(aux).store(2, Relaxed); // bug
        }
    }
}

/// A bin past the end of the histogram.
#[kernel]
pub unsafe fn core_bin_past_end(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let bin = *data.add(global()) as usize + 1;
        atomic(aux.add(bin)).fetch_add(1, Relaxed); // bug
    }
}

/// An atomic in the middle of two words.
#[kernel]
pub unsafe fn core_atomic_misaligned(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let between = aux.cast::<u8>().add(2).cast::<u32>();
        atomic(between).fetch_add(1, Relaxed); // bug
    }
}

/// A released list head, read by a thread that does not acquire.
#[kernel]
pub unsafe fn core_list_without_acquire(data: *mut u32, aux: *mut u32, _n: u32) {
    const HEAD: usize = BLOCK - 1;
    unsafe {
        if rank() < 8 {
            let node = 8 + rank();
            let mut head = atomic(aux.add(HEAD)).load(Relaxed);
            loop {
                *data.add(node) = head; // bug
                match atomic(aux.add(HEAD)).compare_exchange(head, node as u32, Release, Relaxed) {
                    Ok(_) => break,
                    Err(now) => head = now,
                }
            }
        } else if rank() == 40 {
            let mut head = 0;
            while head == 0 {
                head = atomic(aux.add(HEAD)).load(Relaxed);
            }
            *aux = *data.add(head as usize); // bug
        }
    }
}
