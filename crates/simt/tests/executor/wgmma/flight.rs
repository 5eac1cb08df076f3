//! Operands in flight.

use super::{A, B, M, THREADS, in_flight, plain, ready, says, two_products, with_producer};
use ironwarp_simt::memory::Tracked;
use ironwarp_simt::wgmma::{self, Format, Left, Major, Shared};
use ironwarp_simt::{FaultKind, LaunchConfig, StaticKey, async_copy, mbarrier, shared, thread};
use layout::wgmma::{Swizzle, descriptor};

static BAR: StaticKey = StaticKey::new("BAR");

/// Overwrites the first row of A, as the producer of the next tile does.
fn overwrite(a: Shared) {
    let to = shared::from_address((a.descriptor as u32 & 0x3fff) << 4);
    // SAFETY: within A.
    unsafe { ironwarp_simt::memory::store(to.cast::<u32>(), 7) };
}

#[test]
fn one_thread_may_release_for_the_warpgroup() {
    crate::common::passes(
        with_producer(),
        in_flight(|rank, a, b, bar| {
            if rank < THREADS {
                let mut acc = [0.0; 4];
                two_products(&mut acc, a, b);
                wgmma::wait(0);
                if rank == 37 {
                    ironwarp_simt::mbarrier::arrive(bar);
                }
            } else if rank == THREADS {
                ironwarp_simt::mbarrier::wait_parity(bar, 0);
                overwrite(a);
            }
        }),
    );
}

#[test]
fn a_stage_released_before_the_wait() {
    let fault = crate::common::fails(
        with_producer(),
        FaultKind::AsyncCopyPending,
        in_flight(|rank, a, b, bar| {
            if rank < THREADS {
                let mut acc = [0.0; 4];
                two_products(&mut acc, a, b);
                if rank == 37 {
                    ironwarp_simt::mbarrier::arrive(bar);
                }
                wgmma::wait(0);
            } else if rank == THREADS {
                ironwarp_simt::mbarrier::wait_parity(bar, 0);
                overwrite(a);
            }
        }),
    );
    says(&fault, FaultKind::AsyncCopyPending, "asynchronous read at");
}

#[test]
fn the_group_that_was_waited_for_counts() {
    let kernel = |pending: u32, of_b: bool| {
        in_flight(move |rank, a, b, bar| {
            if rank < THREADS {
                let mut acc = [0.0; 4];
                two_products(&mut acc, a, b);
                // The second group reads B alone.
                wgmma::mma(&mut acc, [Format::F16; 2], Left::Registers([0; 4]), b, true);
                wgmma::commit();
                wgmma::wait(pending);
                if rank == 0 {
                    ironwarp_simt::mbarrier::arrive(bar);
                }
                wgmma::wait(0);
            } else if rank == THREADS {
                ironwarp_simt::mbarrier::wait_parity(bar, 0);
                overwrite(if of_b { b } else { a });
            }
        })
    };
    crate::common::passes(with_producer(), kernel(1, false));
    crate::common::passes(with_producer(), kernel(0, true));
    crate::common::fails(with_producer(), FaultKind::AsyncCopyPending, kernel(2, false));
    crate::common::fails(with_producer(), FaultKind::AsyncCopyPending, kernel(1, true));
}

#[test]
fn the_own_thread_waits_too() {
    let kernel = |early: bool| {
        in_flight(move |rank, a, b, _| {
            if rank < THREADS {
                let mut acc = [0.0; 4];
                two_products(&mut acc, a, b);
                if !early {
                    wgmma::wait(0);
                }
                if rank == 0 {
                    overwrite(a);
                }
                wgmma::wait(0);
            }
        })
    };
    crate::common::passes(with_producer(), kernel(false));
    crate::common::fails(with_producer(), FaultKind::AsyncCopyPending, kernel(true));
}

#[test]
fn operands_that_are_not_there_yet() {
    let (a, b) = plain();
    let kernel = |fence: bool, barrier: bool| {
        let (a, b) = (&a, &b);
        move || {
            let (a, b) = (a.place(&A), b.place(&B));
            if fence {
                ironwarp_simt::memory::proxy_fence();
            }
            if barrier {
                ironwarp_simt::barrier::sync(0, None);
            }
            let mut acc = [0.0; 4];
            two_products(&mut acc, a, b);
            wgmma::wait(0);
        }
    };
    let config = LaunchConfig::linear(1, THREADS);
    crate::common::passes(config, kernel(true, true));
    crate::common::fails(config, FaultKind::ProxyFence, kernel(false, true));
    crate::common::fails(config, FaultKind::AsyncCopyPending, kernel(true, false));
}

/// Copies of threads are made by the generic proxy: a barrier that is told of them is not enough.
#[test]
fn operands_that_threads_copy() {
    let (a, b) = plain();
    // In device memory, as long as the kernels run.
    let mut words: Vec<u32> =
        a.bytes.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
    let source = Tracked::new(&mut words, "A");
    let from = source.as_ptr() as usize;
    let len = a.bytes.len();
    let kernel = |fence: bool| {
        let (a, b) = (&a, &b);
        move || {
            let rank = thread::thread_idx()[0] as usize;
            let bar = shared::to_address(shared::alloc_static(&BAR, 8, 8));
            if rank == 0 {
                mbarrier::init(bar, THREADS);
            }
            let to = shared::alloc_static(&A, len, 1024);
            let b = b.place(&B);
            ready();
            for at in (4 * rank..len).step_by(4 * THREADS as usize) {
                // SAFETY: checking is on.
                unsafe { async_copy::copy(to.wrapping_add(at), (from + at) as *const u8, 4, 4) };
            }
            async_copy::arrive_noinc(bar);
            mbarrier::wait_parity(bar, 0);
            if fence {
                ironwarp_simt::memory::proxy_fence();
            }
            wgmma::fence();
            let mut acc = [0.0; 4];
            two_products(&mut acc, a.at(shared::to_address(to)), b);
            wgmma::wait(0);
        }
    };
    let config = LaunchConfig::linear(1, THREADS);
    crate::common::passes(config, kernel(true));
    crate::common::fails(config, FaultKind::ProxyFence, kernel(false));
}

#[test]
fn operands_that_nobody_wrote() {
    let config = LaunchConfig::linear(1, THREADS);
    crate::common::fails(config, FaultKind::UninitialisedShared, || {
        let (_, b) = plain();
        let b = b.place(&B);
        let a = shared::to_address(shared::alloc_static(&A, M * 128, 1024));
        ironwarp_simt::memory::proxy_fence();
        ironwarp_simt::barrier::sync(0, None);
        let a = Shared { descriptor: descriptor(a, 16, 1024, Swizzle::B128), major: Major::K };
        two_products(&mut [0.0; 4], a, b);
        wgmma::wait(0);
    });
}
