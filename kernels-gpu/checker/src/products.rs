//! Wrong uses of `wgmma`. The operands are bf16, one instruction's k, in rows of 32 bytes.

use cuda_std::thread::sync_threads;
use cuda_std::wgmma::{self, BF16};
use cuda_std::{fence, kernel, mbarrier, shared, shared_array};
use layout::wgmma::{Swizzle, descriptor};

use crate::rank;

/// Threads of a warpgroup.
pub const WARPGROUP: usize = 128;
/// Columns of B.
const N: usize = 8;
/// Words of A and of B.
pub(crate) const A_WORDS: usize = 64 * 8;
pub(crate) const B_WORDS: usize = N * 8;
/// Two bf16 ones in a word.
pub(crate) const ONES: u32 = 0x3f80_3f80;

pub(crate) type Accumulator = [f32; N / 2];

/// The descriptor of the operand at `words`.
pub(crate) fn operand(words: *mut u32) -> u64 {
    descriptor(shared::address_of(words), 16, Swizzle::B32.period(), Swizzle::B32)
}

/// Fills both operands with all threads of a block of `threads`, and makes the writes visible to `wgmma`.
unsafe fn fill(tile: *mut u32, threads: usize) {
    unsafe {
        let mut index = rank();
        while index < A_WORDS + B_WORDS {
            *tile.add(index) = ONES;
            index += threads;
        }
        fence::proxy_async_shared();
        sync_threads();
    }
}

/// Threads write the operands without a proxy fence.
#[kernel]
pub unsafe fn product_without_proxy_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        let mut index = rank();
        while index < A_WORDS + B_WORDS {
            *tile.add(index) = ONES; // bug
            index += WARPGROUP;
        }
        sync_threads();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, operand(tile), operand(tile.add(A_WORDS)), false); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// The next tile's first word is written while this tile's product may still read it.
#[kernel]
pub unsafe fn operand_overwritten_in_flight(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        fill(tile, WARPGROUP);
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, operand(tile), operand(tile.add(A_WORDS)), false); // bug
        wgmma::commit_group();
        sync_threads();
        if rank() == 5 {
            *tile = 0; // bug
        }
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// A thread signals that the tile is free before it has waited for the product, and a fifth warp overwrites
/// it.
#[kernel]
pub unsafe fn stage_released_in_flight(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    let free = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(free, 1);
            mbarrier::fence_init();
        }
        fill(tile, WARPGROUP + 32);
        if rank() >= WARPGROUP {
            mbarrier::wait_parity(free, 0);
            *tile.add(rank() - WARPGROUP) = 0; // bug
            return;
        }
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, operand(tile), operand(tile.add(A_WORDS)), false); // bug
        wgmma::commit_group();
        if rank() == 0 {
            mbarrier::arrive(free);
        }
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// The accumulators are scaled between two products without a fence.
#[kernel]
pub unsafe fn accumulators_scaled_without_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        fill(tile, WARPGROUP);
        let (a, b) = (operand(tile), operand(tile.add(A_WORDS)));
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, false);
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        acc.iter_mut().for_each(|x| *x *= 0.5);
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, true); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// No fence before the first product.
#[kernel]
pub unsafe fn product_without_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        fill(tile, WARPGROUP);
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, operand(tile), operand(tile.add(A_WORDS)), false); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// No wait for the second group.
#[kernel]
pub unsafe fn end_during_a_product(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        fill(tile, WARPGROUP);
        let (a, b) = (operand(tile), operand(tile.add(A_WORDS)));
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, false);
        wgmma::commit_group();
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, b, true); // bug
        wgmma::commit_group();
        wgmma::wait_group::<1>();
        *data.add(rank()) = 0;
    }
}

/// One warp skips the product.
#[kernel]
pub unsafe fn product_without_a_warp(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        fill(tile, WARPGROUP);
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        if rank() / 32 != 2 {
            wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, operand(tile), operand(tile.add(A_WORDS)), false); // bug
        }
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// The operand begins in the second row of the swizzle pattern.
#[kernel]
pub unsafe fn operand_off_the_pattern(data: *mut u32, _aux: *mut u32, _n: u32) {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        fill(tile, WARPGROUP);
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        let a = operand(tile.add(32));
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut acc, a, operand(tile.add(A_WORDS)), false); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}
