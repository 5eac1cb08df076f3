//! More wrong uses of `wgmma`: accumulators and operands that are touched in flight.

use cuda_std::async_copy::{copy_cg, wait_all};
use cuda_std::thread::sync_threads;
use cuda_std::wgmma::{self, BF16};
use cuda_std::{fence, kernel, mbarrier, shared, shared_array, tma};

use crate::products::{A_WORDS, Accumulator, B_WORDS, ONES, WARPGROUP, operand};
use crate::rank;

const WORDS: usize = A_WORDS + B_WORDS;

/// Fills both operands, and makes the writes visible to `wgmma`.
unsafe fn filled() -> *mut u32 {
    let tile = shared::dynamic_shared_mem::<u32>();
    unsafe {
        for index in (rank()..WORDS).step_by(WARPGROUP) {
            *tile.add(index) = ONES;
        }
        fence::proxy_async_shared();
        sync_threads();
    }
    tile
}

/// Begins the product of the operands at `tile`.
macro_rules! multiply {
    ($acc:ident, $tile:ident, $scale_d:expr) => {
        wgmma::mma::<BF16, BF16, _, 0, 0>(&mut $acc, operand($tile), operand($tile.add(A_WORDS)), $scale_d)
    };
}

/// The accumulators are read before the wait.
#[kernel]
pub unsafe fn accumulators_read_in_flight(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false); // bug
        wgmma::commit_group();
        *data.add(rank()) = acc[0] as u32; // bug
        wgmma::wait_group::<0>();
    }
}

/// The wait leaves one group open, which is the one that is read.
#[kernel]
pub unsafe fn accumulators_of_the_open_group(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false);
        wgmma::commit_group();
        multiply!(acc, tile, true); // bug
        wgmma::commit_group();
        wgmma::wait_group::<1>();
        *data.add(rank()) = acc[0] as u32; // bug
        wgmma::wait_group::<0>();
    }
}

/// The accumulators are scaled in flight.
#[kernel]
pub unsafe fn accumulators_scaled_in_flight(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false); // bug
        wgmma::commit_group();
        acc.iter_mut().for_each(|x| *x *= 0.5); // bug
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// The product is in no group when the thread waits for groups.
#[kernel]
pub unsafe fn product_not_committed(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false); // bug
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32; // bug
    }
}

/// The next operand is fetched by a bulk copy while the product reads this one.
#[kernel]
pub unsafe fn operand_fetched_over_in_flight(data: *mut u32, _aux: *mut u32, _n: u32) {
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
        }
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false); // bug
        wgmma::commit_group();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 256);
            tma::bulk_load(shared::address_of(tile), data, 256, bar); // bug
        }
        mbarrier::wait_parity(bar, 0);
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// A product of an operand that a bulk copy has not yet delivered.
#[kernel]
pub unsafe fn operand_not_delivered(data: *mut u32, _aux: *mut u32, _n: u32) {
    let bar = shared::address_of(shared_array![u64; 1]);
    unsafe {
        if rank() == 0 {
            mbarrier::init(bar, 1);
            mbarrier::fence_init();
        }
        let tile = filled();
        if rank() == 0 {
            mbarrier::arrive_expect_tx(bar, 256);
            tma::bulk_load(shared::address_of(tile), data, 256, bar); // bug
        }
        sync_threads();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        mbarrier::wait_parity(bar, 0);
        *data.add(rank()) = acc[0] as u32;
    }
}

/// `cp.async` writes through the generic proxy, so its bytes need the proxy fence too.
#[kernel]
pub unsafe fn fetched_operand_without_proxy_fence(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        copy_cg(shared::address_of(tile.add(4 * rank())), data.add(4 * rank())); // bug
        wait_all();
        sync_threads();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}

/// The result goes to shared memory over an operand that another warp's product still reads.
#[kernel]
pub unsafe fn result_over_an_operand(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        wgmma::fence();
        multiply!(acc, tile, false); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        if rank() < B_WORDS {
            *tile.add(A_WORDS + rank()) = acc[0] as u32; // bug
        }
        sync_threads();
        *data.add(rank()) = *tile.add(A_WORDS + rank() % B_WORDS);
    }
}

/// The second product begins before the barrier that ends the writes of its operand.
#[kernel]
pub unsafe fn operand_still_written(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        let tile = filled();
        let mut acc: Accumulator = core::mem::zeroed();
        *tile.add(rank()) = 0; // bug
        fence::proxy_async_shared();
        wgmma::fence();
        multiply!(acc, tile, false); // bug
        wgmma::commit_group();
        wgmma::wait_group::<0>();
        *data.add(rank()) = acc[0] as u32;
    }
}
