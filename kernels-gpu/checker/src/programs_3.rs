//! Whole programs with one mistake each that is hard to see.

use cuda_std::mbarrier::{self, BYTES};
use cuda_std::thread::sync_threads;
use cuda_std::warp::{warp_match_any, warp_shuffle_xor};
use cuda_std::wgmma::{self, BF16};
use cuda_std::{barrier, cluster, fence, kernel, matrix, mem, shared, shared_array, tma};

use crate::products::{A_WORDS, Accumulator, B_WORDS, ONES, WARPGROUP, operand};
use crate::{BLOCK, rank};

/// The last warp of a reduction goes on with volatile accesses alone.
#[kernel]
pub unsafe fn last_warp_volatile(data: *mut u32, aux: *mut u32, _n: u32) {
    let tile = shared_array![u32; BLOCK];
    unsafe {
        *tile.add(rank()) = *data.add(rank());
        sync_threads();
        if rank() < 32 {
            for d in [32, 16, 8, 4, 2, 1] {
                let other = tile.add(rank() + d).read_volatile(); // bug
                let own = tile.add(rank()).read_volatile();
                tile.add(rank()).write_volatile(own + other); // bug
            }
        }
        if rank() == 0 {
            *aux = *tile;
        }
    }
}

/// Two threads pack their halves into one word.
#[kernel]
pub unsafe fn halves_packed_by_two_threads(data: *mut u32, aux: *mut u32, _n: u32) {
    let words = shared_array![u32; 32];
    unsafe {
        if rank() < 32 {
            *words.add(rank()) = 0;
        }
        sync_threads();
        let word = *words.add(rank() / 2); // bug
        let half = (*data.add(rank()) & 0xffff) << (16 * (rank() % 2));
        *words.add(rank() / 2) = word | half; // bug
        sync_threads();
        *aux.add(rank()) = *words.add(rank() % 32);
    }
}

/// Each thread copies its two words; the count is in bytes.
#[kernel]
pub unsafe fn count_of_a_copy_in_bytes(data: *mut u32, aux: *mut u32, _n: u32) {
    const WORDS: usize = 2 * BLOCK;
    let tile = shared_array![u32; WORDS];
    unsafe {
        let (from, to) = (data.add(2 * rank()), tile.add(2 * rank()));
        core::ptr::copy_nonoverlapping(from, to, size_of::<[u32; 2]>()); // bug
        sync_threads();
        *aux.add(rank()) = *tile.add(rank()) + *tile.add(WORDS - 1 - rank());
    }
}

/// Operands arrive at two barriers; the product waits for A's alone.
#[kernel]
pub unsafe fn second_operand_not_awaited(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let bars = shared::address_of(shared_array![u64; 2]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bars, 1);
            mbarrier::init(bars + BYTES, 1);
            mbarrier::fence_init();
            let (a_bytes, b_bytes) = (4 * A_WORDS as u32, 4 * B_WORDS as u32);
            mbarrier::arrive_expect_tx(bars, a_bytes);
            tma::bulk_load(shared::address_of(tile), data, a_bytes, bars);
            mbarrier::arrive_expect_tx(bars + BYTES, b_bytes);
            let to = shared::address_of(tile.add(A_WORDS));
            tma::bulk_load(to, data.add(A_WORDS), b_bytes, bars + BYTES); // bug
        }
        sync_threads();
        mbarrier::wait_parity(bars, 0);
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, operand(tile), operand(tile.add(A_WORDS)), false); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        wgmma::fence_registers(&mut acc);
        mbarrier::wait_parity(bars + BYTES, 0);
        *data.add(A_WORDS + B_WORDS + rank()) = acc[0] as u32;
    }
}

/// Blocks of a cluster arrive at each other's mbarrier, which only the own block knows to be initialised.
#[kernel]
pub unsafe fn remote_arrival_before_the_init(data: *mut u32, _aux: *mut u32, _n: u32) {
    let bar = shared::address_of(shared_array![u64; 1]);
    let me = cluster::block_rank();
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 2); // bug
            mbarrier::fence_init();
        }
        sync_threads();
        if rank() == 0 {
            mbarrier::arrive(bar);
            mbarrier::arrive_remote(cluster::map_shared(bar, me ^ 1)); // bug
        }
        mbarrier::wait_parity_cluster(bar, 0);
        *data.add(BLOCK * me as usize + rank()) = 1;
        cluster::sync();
    }
}

/// Dynamic shared memory for two arrays; the offset of the second is in words where bytes are meant.
#[kernel]
pub unsafe fn arrays_carved_too_close(data: *mut u32, aux: *mut u32, _n: u32) {
    let memory = shared::dynamic_shared_mem::<u8>();
    let (keys, values) = (memory.cast::<u32>(), unsafe { memory.add(BLOCK) }.cast::<u32>());
    unsafe {
        *keys.add(rank()) = *data.add(rank()); // bug
        *values.add(rank()) = *data.add(BLOCK + rank()); // bug
        sync_threads();
        *aux.add(rank()) = *keys.add(63 - rank()) + *values.add(63 - rank());
    }
}

/// Two threads write each word of a block's memory on the device's heap.
#[kernel]
pub unsafe fn heap_words_of_two_threads(data: *mut u32, _aux: *mut u32, _n: u32) {
    let place = shared_array![u64; 1];
    unsafe {
        if rank() == 0 {
            *place = mem::malloc(4 * BLOCK) as u64;
        }
        sync_threads();
        let scratch = *place as *mut u32;
        *scratch.add(rank() / 2) = *data.add(rank()); // bug
        sync_threads();
        *data.add(BLOCK + rank()) = *scratch.add(rank() / 2);
        sync_threads();
        if rank() == 0 {
            mem::free(scratch.cast());
        }
    }
}

/// A list of four in registers or local memory, of which five are read.
#[kernel]
pub unsafe fn local_list_read_past_its_end(data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        let mut list = [0; 4];
        for (slot, best) in list.iter_mut().enumerate() {
            *best = *data.add(rank() + BLOCK * slot);
        }
        let list = core::hint::black_box(&list).as_ptr();
        let mut best = 0;
        for slot in 0..=4 {
            best = best.max(*list.add(slot)); // bug
        }
        *aux.add(rank()) = best;
    }
}

/// A histogram by matches whose last round only some lanes reach.
#[kernel]
pub unsafe fn matches_in_an_uneven_loop(data: *mut u32, aux: *mut u32, n: u32) {
    unsafe {
        let mut leaders = 0;
        for i in (rank()..n as usize).step_by(BLOCK) {
            let alike = warp_match_any(u32::MAX, *data.add(i) % 4); // bug
            leaders += u32::from(alike.trailing_zeros() as usize == rank() % 32);
        }
        sync_threads(); // bug
        *aux.add(rank()) = leaders;
    }
}

/// Rows of 8 halves and a padding of one word: most begin at no multiple of 16 bytes.
#[kernel]
pub unsafe fn matrix_rows_off_their_alignment(data: *mut u32, aux: *mut u32, _n: u32) {
    const PITCH: usize = 5;
    const WORDS: usize = 32 * PITCH;
    let tile = shared_array![u32; WORDS];
    unsafe {
        for i in (rank()..WORDS).step_by(BLOCK) {
            *tile.add(i) = *data.add(i);
        }
        sync_threads();
        let [a, b, c, d] = matrix::ldmatrix_x4(shared::address_of(tile.add(rank() % 32 * PITCH))); // bug
        *aux.add(rank()) = a ^ b ^ c ^ d;
    }
}

/// Two buffers with one pair of named barriers: two arrivals of the producer make a round of their own.
#[kernel]
pub unsafe fn one_barrier_for_two_buffers(data: *mut u32, aux: *mut u32, n: u32) {
    const WORDS: usize = 2 * 32;
    let tiles = shared_array![u32; WORDS];
    let lane = rank() % 32;
    unsafe {
        if rank() < 32 {
            for step in 0..n as usize {
                if step >= 2 {
                    barrier::sync(2, 64); // bug
                }
                *tiles.add(step % 2 * 32 + lane) = *data.add(step * 32 + lane); // bug
                barrier::arrive(1, 64); // bug
            }
        } else {
            let mut sum = 0;
            for step in 0..n as usize {
                barrier::sync(1, 64); // bug
                sum += *tiles.add(step % 2 * 32 + 31 - lane); // bug
                if step + 2 < n as usize {
                    barrier::arrive(2, 64); // bug
                }
            }
            *aux.add(lane) = sum;
        }
    }
}

/// Attention: the accumulators are rescaled without a fence, by a factor that is one in this run.
#[kernel]
pub unsafe fn accumulators_scaled_by_one(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        for i in (rank()..A_WORDS + B_WORDS).step_by(WARPGROUP) {
            *tile.add(i) = ONES;
        }
        fence::proxy_async_shared();
        sync_threads();
        let scale = warp_shuffle_xor(u32::MAX, *data.add(1) as f32, 1, 32).0;
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        for step in 0..2 {
            let (a, b) = (operand(tile), operand(tile.add(A_WORDS)));
            wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, step > 0); // bug
            wgmma::commit_group();
            wgmma::wait_group::<0>();
            wgmma::fence_registers(&mut acc);
            acc[0] *= scale; // bug
        }
        *data.add(WARPGROUP + rank()) = acc[0] as u32;
    }
}
