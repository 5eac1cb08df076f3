//! Distributed shared memory: blocks of a cluster access each other's shared memory.

use cuda_std::{cluster, fence, kernel, mbarrier, shared, shared_array, thread, tma, vector};

/// Words that [`cluster_positions()`] writes per block.
pub const POSITION_WORDS: usize = 14;

/// Rank and number of blocks, then position and size along x, y, z: of the block in its cluster, and of the
/// cluster in the grid.
///
/// # Safety
/// `out` holds [`POSITION_WORDS`] words for each block, in the order of the blocks' indices, x fastest.
#[kernel]
pub unsafe fn cluster_positions(out: *mut u32) {
    let block = (thread::block_idx_z() * thread::grid_dim_y() + thread::block_idx_y()) * thread::grid_dim_x()
        + thread::block_idx_x();
    if thread::thread_idx_x() != 0 {
        return;
    }
    // SAFETY: the words of this block.
    unsafe {
        let out = out.add(block as usize * POSITION_WORDS);
        out.write(cluster::block_rank());
        out.add(1).write(cluster::blocks());
        let places = [cluster::block_idx(), cluster::dim(), cluster::id(), cluster::count()];
        for (i, place) in places.into_iter().enumerate() {
            vector::store(out.add(2 + 3 * i), place[0]);
            vector::store(out.add(3 + 3 * i), place[1]);
            vector::store(out.add(4 + 3 * i), place[2]);
        }
    }
}

/// Words of shared memory per block of the ring kernels.
pub const RING_WORDS: usize = 4 * 32;

/// Every block loads its part of `x` into shared memory. Then it writes six parts to `out`. The first three
/// are the next block's words, loaded in pieces of 4, 8 and 16 bytes. The other three are the words that the
/// previous block stored here in such pieces: its part, plus 1, 2 and 3.
///
/// # Safety
/// Blocks of 32 threads; `x` has [`RING_WORDS`] words for each block, `out` six times that.
#[kernel]
pub unsafe fn cluster_ring(x: *const u32, out: *mut u32) {
    const BYTES: u32 = 4 * RING_WORDS as u32;
    let (t, block) = (thread::thread_idx_x(), thread::block_idx_x() as usize);
    let mine = shared::address_of(shared_array![u32; RING_WORDS]);
    let given = shared::address_of(shared_array![u32; 3 * RING_WORDS]);
    let (rank, blocks) = (cluster::block_rank(), cluster::blocks());
    let next = (rank + 1) % blocks;
    let at = 16 * t;
    // SAFETY: each thread has 16 bytes of each part; cluster barriers ensure that all blocks run, and
    // separate the writes from the reads and the reads from the exit.
    unsafe {
        // No write needs to be visible yet.
        cluster::arrive_relaxed();
        cluster::wait();
        let x: [u32; 4] = vector::load_nc_v4(x.add(block * RING_WORDS + 4 * t as usize));
        vector::store_shared_v4(mine + at, x);
        let theirs = cluster::map_shared(given, next);
        for i in 0..4 {
            cluster::store_shared(theirs + at + 4 * i, x[i as usize] + 1);
        }
        cluster::store_shared_v2(theirs + BYTES + at, [x[0] + 2, x[1] + 2]);
        cluster::store_shared_v2(theirs + BYTES + at + 8, [x[2] + 2, x[3] + 2]);
        cluster::store_shared_v4(theirs + 2 * BYTES + at, x.map(|x| x + 3));
        cluster::sync();
        let next = cluster::map_shared(mine, next) + at;
        let out = out.add(6 * block * RING_WORDS + 4 * t as usize);
        for i in 0..4 {
            out.add(i as usize).write(cluster::load_shared(next + 4 * i));
        }
        let (low, high): ([u32; 2], [u32; 2]) =
            (cluster::load_shared_v2(next), cluster::load_shared_v2(next + 8));
        vector::store_v4(out.add(RING_WORDS), [low[0], low[1], high[0], high[1]]);
        let all: [u32; 4] = cluster::load_shared_v4(next);
        vector::store_v4(out.add(2 * RING_WORDS), all);
        for part in 0..3 {
            let got: [u32; 4] = vector::load_shared_v4(given + part * BYTES + at);
            vector::store_v4(out.add((3 + part as usize) * RING_WORDS), got);
        }
        // An exited block has no shared memory, so this waits until the previous block has read this block's.
        cluster::sync();
    }
}

/// The largest cluster of [`cluster_gather()`], in blocks.
pub const MAX_BLOCKS: usize = 16;

/// In each round every thread of the cluster stores `1000 rank + t + round` into the first block's shared
/// memory and arrives at a barrier there. The first block waits and writes the words: [`MAX_BLOCKS`] x
/// threads per round. Words of blocks that do not exist keep their values.
///
/// # Safety
/// One cluster of blocks of 32 threads; `out` holds [`MAX_BLOCKS`] x 32 words per round.
#[kernel]
pub unsafe fn cluster_gather(rounds: u32, out: *mut u32) {
    const THREADS: u32 = 32;
    let (t, rank, blocks) = (thread::thread_idx_x(), cluster::block_rank(), cluster::blocks());
    let bar = shared::address_of(shared_array![u64; 1]);
    let slots = shared::address_of(shared_array![u32; MAX_BLOCKS * THREADS as usize]);
    let slot = 4 * (THREADS * rank + t);
    // SAFETY: the mbarrier is initialised before any block arrives, and takes one arrival of each thread of
    // the cluster per round; a cluster barrier separates the reads of a round from the writes of the next,
    // and the last reads from the exit.
    unsafe {
        if rank == 0 && t == 0 {
            mbarrier::init(bar, THREADS * blocks);
            mbarrier::fence_init();
        }
        cluster::sync();
        let mut round = 0;
        while round < rounds {
            cluster::store_shared(cluster::map_shared(slots + slot, 0), 1000 * rank + t + round);
            mbarrier::arrive_remote(cluster::map_shared(bar, 0));
            if rank == 0 {
                mbarrier::wait_parity_cluster(bar, round % 2);
                let out = out.add(round as usize * MAX_BLOCKS * THREADS as usize);
                for from in 0..blocks {
                    let i = THREADS * from + t;
                    out.add(i as usize).write(vector::load_shared(slots + 4 * i));
                }
            }
            cluster::sync();
            round += 1;
        }
    }
}

/// The number of ways in which [`cluster_send()`] can send.
pub const WAYS: usize = 4;

/// Every block sends its part of `x` to the block of the next rank, and writes the part that it received to
/// `out`. `way` selects asynchronous stores of 4, 8 or 16 bytes (0, 1, 2), which add 1, 2 or 3, or a bulk
/// copy (3), which adds nothing.
///
/// # Safety
/// Blocks of 32 threads; `x` and `out` have [`RING_WORDS`] words for each block.
#[kernel]
pub unsafe fn cluster_send(way: u32, x: *const u32, out: *mut u32) {
    const BYTES: u32 = 4 * RING_WORDS as u32;
    let (t, block) = (thread::thread_idx_x(), thread::block_idx_x() as usize);
    let mine = shared::address_of(shared_array![u128; RING_WORDS / 4]);
    let given = shared::address_of(shared_array![u128; RING_WORDS / 4]);
    let bar = shared::address_of(shared_array![u64; 1]);
    let next = (cluster::block_rank() + 1) % cluster::blocks();
    let at = 16 * t;
    // SAFETY: each thread has 16 bytes of each part; the mbarrier is initialised and expects all bytes before
    // any block sends; no block exits before all have received their part.
    unsafe {
        let x: [u32; 4] = vector::load_nc_v4(x.add(block * RING_WORDS + 4 * t as usize));
        vector::store_shared_v4(mine + at, x);
        // This block writes here first. A later store from another block needs no proxy fence.
        vector::store_shared_v4(given + at, [0u32; 4]);
        if t == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
        }
        fence::proxy_async_shared();
        cluster::sync();
        // Expected before any block sends. compute-sanitizer's racecheck warns where the barrier is used
        // before a barrier of the block follows its making.
        if t == 0 {
            mbarrier::arrive_expect_tx(bar, BYTES);
        }
        cluster::sync();
        let (theirs, full) = (cluster::map_shared(given, next), cluster::map_shared(bar, next));
        match way {
            0 => {
                for i in 0..4 {
                    cluster::store_async(theirs + at + 4 * i, x[i as usize] + 1, full);
                }
            }
            1 => {
                cluster::store_async_v2(theirs + at, [x[0] + 2, x[1] + 2], full);
                cluster::store_async_v2(theirs + at + 8, [x[2] + 2, x[3] + 2], full);
            }
            2 => cluster::store_async_v4(theirs + at, x.map(|x| x + 3), full),
            _ if t == 0 => tma::bulk_copy_shared(theirs, mine, BYTES, full),
            _ => {}
        }
        mbarrier::wait_parity_cluster(bar, 0);
        let got: [u32; 4] = vector::load_shared_v4(given + at);
        vector::store_v4(out.add(block * RING_WORDS + 4 * t as usize), got);
        cluster::sync();
    }
}
