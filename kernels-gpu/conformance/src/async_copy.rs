//! Asynchronous copies.

use cuda_std::{async_copy, kernel, shared, shared_array, thread, vector};

/// Threads per block of each kernel.
pub const THREADS: u32 = 64;
const N: usize = THREADS as usize;

/// Copies 4, 8 and 16 bytes, and 16 bytes past L1, each into its own array. Then writes the words that the
/// mirror thread's copies brought, in this order.
///
/// # Safety
/// One block of [`THREADS`]; `x` has 4 words per thread, `out` 11, both 16-byte aligned.
#[kernel]
pub unsafe fn async_copy_sizes(x: &[u32], out: *mut u32) {
    let ones = shared::address_of(shared_array![u32; N]);
    let twos = shared::address_of(shared_array![[u32; 2]; N]);
    let fours = shared::address_of(shared_array![[u32; 4]; N]);
    let past_l1 = shared::address_of(shared_array![[u32; 4]; N]);
    let t = thread::thread_idx_x();
    let (at, mirror) = (t as usize, THREADS - 1 - t);
    let from = x.as_ptr().wrapping_add(4 * at);
    // SAFETY: each thread has its own slot in each array; no thread reads before the wait and the barrier.
    unsafe {
        async_copy::copy_ca::<4, _>(ones + 4 * t, from);
        async_copy::copy_ca::<8, _>(twos + 8 * t, from);
        async_copy::copy_ca::<16, _>(fours + 16 * t, from);
        async_copy::copy_cg(past_l1 + 16 * t, from);
        async_copy::commit_group();
        async_copy::wait_group::<0>();
        thread::sync_threads();
        vector::store(out.add(at), vector::load_shared(ones + 4 * mirror));
        vector::store_v2(out.add(N + 2 * at), vector::load_shared_v2(twos + 8 * mirror));
        vector::store_v4(out.add(3 * N + 4 * at), vector::load_shared_v4(fours + 16 * mirror));
        vector::store_v4(out.add(7 * N + 4 * at), vector::load_shared_v4(past_l1 + 16 * mirror));
    }
}

/// Copies 16 bytes per thread, of which only `bytes[thread]` come from memory; the rest is zero. The copies
/// through L1 go into the first half of `out`, those past it into the second. Uses `wait_all` without a
/// group.
///
/// # Safety
/// One block of [`THREADS`]; `x` has 4 words per thread, `bytes` an element of at most 16, `out` 8 words; `x`
/// and `out` are 16-byte aligned.
#[kernel]
pub unsafe fn async_copy_zero_fill(x: &[u32], bytes: *const u32, out: *mut u32) {
    let cached = shared::address_of(shared_array![[u32; 4]; N]);
    let past_l1 = shared::address_of(shared_array![[u32; 4]; N]);
    let t = thread::thread_idx_x();
    let at = t as usize;
    let from = x.as_ptr().wrapping_add(4 * at);
    // SAFETY: each thread has its own slot in each array and reads it after the wait.
    unsafe {
        let bytes = *bytes.add(at);
        vector::store_shared_v4(cached + 16 * t, [u32::MAX; 4]);
        vector::store_shared_v4(past_l1 + 16 * t, [u32::MAX; 4]);
        async_copy::copy_ca_zfill::<16, _>(cached + 16 * t, from, bytes);
        async_copy::copy_cg_zfill(past_l1 + 16 * t, from, bytes);
        async_copy::wait_all();
        vector::store_v4(out.add(4 * at), vector::load_shared_v4::<u32>(cached + 16 * t));
        vector::store_v4(out.add(4 * (N + at)), vector::load_shared_v4::<u32>(past_l1 + 16 * t));
    }
}

/// Stages of [`async_copy_pipeline()`].
pub const STAGES: u32 = 3;

/// Sums a block's tiles element by element. Up to `STAGES - 1` tiles are in flight while one is summed.
///
/// # Safety
/// One block of [`THREADS`]; `x` is a whole number of tiles of 4 words per thread, 16-byte aligned; `out` is
/// one tile.
#[kernel]
pub unsafe fn async_copy_pipeline(x: &[f32], out: *mut f32) {
    const TILE_WORDS: usize = 4 * N;
    const TILE_BYTES: u32 = 16 * THREADS;
    const AHEAD: u32 = STAGES - 1;
    let stages = shared::address_of(shared_array![[[f32; 4]; N]; STAGES as usize]);
    let t = thread::thread_idx_x();
    let tiles = (x.len() / TILE_WORDS) as u32;
    let from = x.as_ptr().wrapping_add(4 * t as usize);
    // The mirror thread reads the words that this thread copied, so the kernel needs the barrier too.
    let mirror = THREADS - 1 - t;
    let mut sum = [0f32; 4];
    // SAFETY: a stage is overwritten only after the barrier that follows its last read; `tile < tiles`.
    unsafe {
        let start = |tile: u32| {
            if tile < tiles {
                let stage = stages + tile % STAGES * TILE_BYTES;
                async_copy::copy_cg(stage + 16 * t, from.add(tile as usize * TILE_WORDS));
            }
            // One group per tile, empty ones at the end, so that the group count stays right.
            async_copy::commit_group();
        };
        let mut tile = 0;
        while tile < AHEAD {
            start(tile);
            tile += 1;
        }
        tile = 0;
        while tile < tiles {
            async_copy::wait_group::<{ AHEAD - 1 }>();
            thread::sync_threads();
            start(tile + AHEAD);
            let part: [f32; 4] = vector::load_shared_v4(stages + tile % STAGES * TILE_BYTES + 16 * mirror);
            sum = [sum[0] + part[0], sum[1] + part[1], sum[2] + part[2], sum[3] + part[3]];
            tile += 1;
        }
        vector::store_v4(out.add(4 * mirror as usize), sum);
    }
}
