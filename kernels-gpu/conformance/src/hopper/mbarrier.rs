//! mbarriers: barriers that count arrivals and bytes.

use cuda_std::{async_copy, fence, kernel, mbarrier, shared, shared_array, thread, tma, vector};

/// The most threads per block.
pub const MAX_THREADS: usize = 256;

/// In each round every thread writes `x[t] + round` to shared memory, arrives, waits, and reads the word of
/// thread `(t + 1 + round) % threads`: `out[round * threads + t]`.
///
/// # Safety
/// One block of at most [`MAX_THREADS`] threads along x; `x` has an element for each, `out` one for each in
/// each round.
#[kernel]
pub unsafe fn mbarrier_rounds(x: &[u32], rounds: u32, out: *mut u32) {
    let (t, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let bar = shared::address_of(shared_array![u64; 1]);
    // Two buffers: while a thread writes one, others may still read the other.
    let slots = shared::address_of(shared_array![u32; 2 * MAX_THREADS]);
    // SAFETY: the first thread initialises the mbarrier before the others use it; a phase takes one arrival
    // of each thread, and a buffer is written again only after the phase in which all threads have read it.
    unsafe {
        if t == 0 {
            mbarrier::init(bar, threads);
        }
        thread::sync_threads();
        let mut round = 0;
        while round < rounds {
            let buffer = slots + round % 2 * 4 * threads;
            vector::store_shared(buffer + 4 * t, *x.as_ptr().add(t as usize) + round);
            mbarrier::arrive(bar);
            mbarrier::wait_parity(bar, round % 2);
            let other = (t + 1 + round) % threads;
            out.add((round * threads + t) as usize).write(vector::load_shared(buffer + 4 * other));
            round += 1;
        }
        thread::sync_threads();
        if t == 0 {
            mbarrier::invalidate(bar);
        }
    }
}

/// As [`mbarrier_rounds()`], without the sum: in each round every thread copies `x[round * threads + t]` by
/// `cp.async`, zero instead where that is the last thread's, and the barrier is told when the copies are
/// over.
///
/// # Safety
/// One block of at most [`MAX_THREADS`] threads along x; `x` and `out` have an element for each in each
/// round.
#[kernel]
pub unsafe fn mbarrier_copies(x: &[u32], rounds: u32, out: *mut u32) {
    const WORD: u32 = size_of::<u32>() as u32;
    let (t, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let bar = shared::address_of(shared_array![u64; 1]);
    let slots = shared::address_of(shared_array![u32; MAX_THREADS]);
    // SAFETY: as there; a word is read after the wait for the barrier that is told of its copy. That barrier
    // knows nothing of reads: another one is between them and the next copies.
    unsafe {
        if t == 0 {
            mbarrier::init(bar, threads);
        }
        thread::sync_threads();
        let mut round = 0;
        while round < rounds {
            let from = x.as_ptr().wrapping_add((round * threads + t) as usize);
            let bytes = if t + 1 < threads { WORD } else { 0 };
            async_copy::copy_ca_zfill::<WORD, _>(slots + WORD * t, from, bytes);
            async_copy::arrive_noinc(bar);
            mbarrier::wait_parity(bar, round % 2);
            let other = (t + 1 + round) % threads;
            out.add((round * threads + t) as usize).write(vector::load_shared(slots + WORD * other));
            thread::sync_threads();
            round += 1;
        }
        if t == 0 {
            mbarrier::invalidate(bar);
        }
    }
}

/// The number of tests that [`mbarrier_parity()`] makes.
pub const QUESTIONS: usize = 9;

/// One thread tests the phases of an mbarrier of 5 arrivals. 1 in `out` means that the phase is complete.
///
/// # Safety
/// One thread; `out` holds [`QUESTIONS`] words.
#[kernel]
pub unsafe fn mbarrier_parity(out: *mut u32) {
    let bar = shared::address_of(shared_array![u64; 1]);
    // SAFETY: one thread initialises, uses and invalidates the mbarrier; 9 words.
    unsafe {
        let put = |at: usize, yes: bool| out.add(at).write(u32::from(yes));
        mbarrier::init(bar, 5);
        put(0, mbarrier::test_wait_parity(bar, 0));
        put(1, mbarrier::test_wait_parity(bar, 1)); // the phase before the first counts as over
        mbarrier::arrive_count(bar, 3);
        mbarrier::arrive(bar);
        put(2, mbarrier::test_wait_parity(bar, 0));
        mbarrier::arrive(bar);
        put(3, mbarrier::test_wait_parity(bar, 0));
        put(4, mbarrier::try_wait_parity(bar, 0));
        put(5, mbarrier::test_wait_parity(bar, 1));
        mbarrier::arrive_count(bar, 5);
        put(6, mbarrier::test_wait_parity(bar, 0));
        put(7, mbarrier::test_wait_parity(bar, 1));
        mbarrier::invalidate(bar);
        mbarrier::init(bar, 1);
        mbarrier::arrive(bar);
        put(8, mbarrier::test_wait_parity(bar, 0));
        mbarrier::invalidate(bar);
    }
}

/// Floats that [`mbarrier_bulk()`] moves.
pub const BULK_LEN: usize = 1024;

/// Loads `x` in two bulk copies, doubles it in shared memory, stores the result to `out`, and adds it to
/// `sum`.
///
/// # Safety
/// One block of at least 32 threads along x; all three have [`BULK_LEN`] elements and are 16-byte aligned.
#[kernel]
pub unsafe fn mbarrier_bulk(x: *const f32, out: *mut f32, sum: *mut f32) {
    const BYTES: u32 = 4 * BULK_LEN as u32;
    const FIRST: u32 = BYTES / 4;
    let t = thread::thread_idx_x();
    let bar = shared::address_of(shared_array![u64; 1]);
    let tile = shared::address_of(shared_array![f32; BULK_LEN]);
    // SAFETY: the mbarrier is initialised before any wait, and expects the copies' bytes; threads write the
    // tile after the loads and, with a fence and a barrier between, before the stores.
    unsafe {
        if t == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
            // A hint: it only must be no illegal instruction.
            tma::bulk_prefetch_l2(x, BYTES);
            mbarrier::expect_tx(bar, FIRST);
            tma::bulk_load(tile, x, FIRST, bar);
            mbarrier::arrive_expect_tx(bar, BYTES - FIRST);
            tma::bulk_load(tile + FIRST, x.add(FIRST as usize / 4), BYTES - FIRST, bar);
        }
        thread::sync_threads();
        mbarrier::wait_parity(bar, 0);
        let mut i = t;
        while i < BULK_LEN as u32 {
            vector::store_shared(tile + 4 * i, 2.0 * vector::load_shared::<f32>(tile + 4 * i));
            i += thread::block_dim_x();
        }
        fence::proxy_async_shared();
        thread::sync_threads();
        if t == 0 {
            tma::bulk_store(out, tile, BYTES);
            tma::commit_group();
            tma::bulk_reduce_add_f32(sum, tile, BYTES);
            tma::commit_group();
            tma::wait_group_read::<1>();
            tma::wait_group::<0>();
        }
    }
}
