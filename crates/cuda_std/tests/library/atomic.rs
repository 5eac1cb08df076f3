//! Atomics: what each operation computes, inside a kernel and outside of one.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use cuda_std::atomic::{AtomicF32, AtomicF64, BlockAtomicF32, SystemAtomicF64, intrinsics, mid};
use simt::memory::Tracked;
use simt::{LaunchConfig, Options};

/// Runs `test` on the host, and as a kernel of one thread.
fn both(test: impl Fn() + Sync) {
    test();
    if let Err(fault) =
        simt::run(&LaunchConfig::linear(1, 1), &Options { check: false, ..Options::default() }, test)
    {
        panic!("{fault}");
    }
}

#[test]
fn floats() {
    both(|| {
        let a = AtomicF32::new(1.5);
        assert_eq!(a.fetch_add(2.0, SeqCst), 1.5);
        assert_eq!(a.fetch_sub(0.5, Release), 3.5);
        assert_eq!(a.swap(-8.0, AcqRel), 3.0);
        assert_eq!(a.load(Acquire), -8.0);
        assert_eq!(a.fetch_and(f32::from_bits(0x7fff_ffff), Relaxed), -8.0);
        assert_eq!(a.fetch_or(-0.0, Relaxed), 8.0);
        assert_eq!(a.fetch_xor(-0.0, Relaxed), -8.0);
        a.store(4.0, Release);
        assert_eq!(a.into_inner(), 4.0);

        let b = SystemAtomicF64::new(1.0);
        b.store(-2.5, SeqCst);
        assert_eq!(b.fetch_add(1e300, Acquire), -2.5);
        assert_eq!(b.load(SeqCst), 1e300);
        let c = BlockAtomicF32::new(1.0);
        // SAFETY: one thread alone.
        assert_eq!(unsafe { c.fetch_sub(3.0, Relaxed) }, 1.0);
        assert_eq!(c.into_inner(), -2.0);
    });
}

#[test]
fn numbers_in_memory_are_added_to_as_atomics() {
    let mut sums = [0.0f64; 2];
    let tracked = Tracked::new(&mut sums, "sums");
    let options = Options { check: true, ..Options::default() };
    let run = simt::run(&LaunchConfig::linear(4, 64), &options, || {
        let index = cuda_std::thread::index_1d() as usize;
        // SAFETY: one of two tracked numbers, which atomics alone reach.
        let sum = unsafe { AtomicF64::from_ptr(tracked.as_ptr().add(index % 2)) };
        sum.fetch_add(index as f64, Relaxed);
    });
    drop(tracked);
    run.unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(sums, [127.0 * 128.0, 128.0 * 128.0]);
}

#[test]
#[should_panic(expected = "release load")]
fn a_release_load_is_refused() {
    AtomicF64::new(0.0).load(Release);
}

#[test]
#[should_panic(expected = "acquire store")]
fn an_acquire_store_is_refused() {
    AtomicF64::new(0.0).store(0.0, AcqRel);
}

/// Applies a read-modify-write to `old`; what it returns must be `old`, and what it leaves is the result.
macro_rules! after {
    ($old:expr, $function:expr $(, $argument:expr)*) => {{
        let mut cell = $old;
        // SAFETY: a valid cell, one thread alone.
        let returned = unsafe { $function(&raw mut cell $(, $argument)*) };
        assert_eq!(returned, $old);
        cell
    }};
}

#[test]
fn integers() {
    use intrinsics::*;
    both(|| {
        assert_eq!(after!(u32::MAX, atomic_fetch_add_relaxed_u32_device, 2), 1, "additions wrap");
        assert_eq!(after!(1u32, atomic_fetch_sub_acquire_u32_block, 2), u32::MAX);
        assert_eq!(after!(i64::MIN, atomic_fetch_sub_acqrel_i64_system, 1), i64::MAX);
        assert_eq!(after!(-3i32, atomic_fetch_min_release_i32_device, 2), -3, "signed");
        assert_eq!(after!(-3i32, atomic_fetch_max_volatile_i32_device, 2), 2);
        assert_eq!(after!(3u64, atomic_fetch_max_relaxed_u64_block, u64::MAX), u64::MAX);
        assert_eq!(after!(0b1100u64, atomic_fetch_and_relaxed_u64_device, 0b1010), 0b1000);
        assert_eq!(after!(0b1100i32, atomic_fetch_or_relaxed_i32_device, 0b1010), 0b1110);
        assert_eq!(after!(0b1100i64, atomic_fetch_xor_relaxed_i64_device, 0b1010), 0b0110);
        assert_eq!(after!(7i64, atomic_fetch_exch_relaxed_i64_device, -1), -1);
        assert_eq!(after!(7u32, atomic_fetch_cas_acqrel_u32_device, 7, 9), 9);
        assert_eq!(after!(7u32, atomic_fetch_cas_acqrel_u32_device, 8, 9), 7);
        assert_eq!(after!(0.0f32, atomic_fetch_cas_relaxed_f32_block, -0.0, 1.0), 0.0, "bit for bit");
    });
}

#[test]
fn increments_wrap_at_their_bound() {
    use intrinsics::{
        atomic_fetch_dec_relaxed_u32_device as dec, atomic_fetch_inc_relaxed_u32_device as inc,
    };
    both(|| {
        assert_eq!([3, 4, 5, 9].map(|v: u32| after!(v, inc, 5)), [4, 5, 0, 0]);
        assert_eq!([3, 1, 0, 9].map(|v: u32| after!(v, dec, 5)), [2, 0, 5, 5]);
    });
}

#[test]
fn orders_by_argument() {
    both(|| {
        for order in [Relaxed, Acquire, Release, AcqRel, SeqCst] {
            assert_eq!(after!(5u32, mid::atomic_fetch_add_u32_block, order, 4), 9);
            assert_eq!(after!(5i64, mid::atomic_fetch_min_i64_system, order, -4), -4);
            assert_eq!(after!(5.0f64, mid::atomic_fetch_sub_f64_device, order, 4.0), 1.0);
            mid::block_thread_fence(order);
            mid::device_thread_fence(order);
            mid::system_thread_fence(order);
        }
    });
}

#[test]
fn many_threads_lose_nothing() {
    let (mut sum, mut bits) = ([AtomicF64::new(0.0)], [AtomicF32::new(0.0)]);
    {
        let (sum, bits) = (Tracked::new(&mut sum, "sum"), Tracked::new(&mut bits, "bits"));
        for seed in 0..8 {
            let options = Options { seed, check: true, ..Options::default() };
            simt::run(&LaunchConfig::linear(8, 128), &options, || {
                let index = cuda_std::thread::index_1d();
                // SAFETY: both are tracked, alive and atomic.
                let (sum, bits) = unsafe { (&*sum.as_ptr(), &*bits.as_ptr()) };
                sum.fetch_add(index as f64, Relaxed);
                bits.fetch_xor(f32::from_bits(1 << (index % 8)), Relaxed);
            })
            .unwrap_or_else(|fault| panic!("{fault}"));
        }
    }
    assert_eq!(sum.map(AtomicF64::into_inner), [8.0 * (1023.0 * 1024.0 / 2.0)]);
    assert_eq!(bits.map(|b| b.into_inner().to_bits()), [0], "every bit was flipped an even number of times");
}

#[test]
fn additions_in_global_memory_flush_subnormal_floats() {
    // The value, what is added, the sum in global memory (as an H200 has it).
    const CASES: [[f32; 3]; 5] = [
        [0.0, 1e-40, 0.0],
        [1.2e-38, -1e-39, 1.2e-38],
        [-1.2e-38, 1.18e-38, -0.0],
        [5e-39, 1.2e-38, 1.2e-38],
        [1e-40, 0.0, 0.0],
    ];
    let add = |cell: &AtomicF32, [value, added, _]: [f32; 3], subtract: bool| {
        let old = if subtract { cell.fetch_sub(-added, Relaxed) } else { cell.fetch_add(added, Relaxed) };
        assert_eq!(old.to_bits(), value.to_bits(), "the old value stays as it was");
    };
    for check in [false, true] {
        for subtract in [false, true] {
            let mut cells = CASES.map(|[value, ..]| AtomicF32::new(value));
            let wide = AtomicF64::new(0.0);
            {
                let (mut wide, mut fours) = ([wide], [[0.0f32; 4]]);
                let (cells, wide) = (Tracked::new(&mut cells, "cells"), Tracked::new(&mut wide, "wide"));
                let fours = Tracked::new(&mut fours, "fours");
                let options = Options { check, ..Options::default() };
                simt::run(&LaunchConfig::linear(1, 1), &options, || {
                    let shared = cuda_std::shared_array![AtomicF32; 1];
                    for (index, case) in CASES.into_iter().enumerate() {
                        // SAFETY: tracked or shared, alive, and reached by one thread.
                        unsafe {
                            add(&*cells.as_ptr().add(index), case, subtract);
                            (*shared).swap(case[0], Relaxed);
                            add(&*shared, case, subtract);
                            let sum = case[0] + case[1];
                            assert_eq!((*shared).load(Relaxed).to_bits(), sum.to_bits(), "{case:?}");
                        }
                    }
                    let four = [CASES[0], CASES[1], CASES[2], CASES[3]];
                    // SAFETY: as above, and aligned as device memory is.
                    unsafe {
                        let place = fours.as_ptr().cast();
                        cuda_std::vector::store_v4(place, four.map(|[value, ..]| value));
                        cuda_std::vector::red_add_v4(place, four.map(|[_, added, _]| added));
                        let sums: [f32; 4] = cuda_std::vector::load_v4(place);
                        assert_eq!(sums.map(f32::to_bits), four.map(|[.., sum]| sum.to_bits()));
                    }
                    // SAFETY: as above.
                    let wide = unsafe { &*wide.as_ptr() };
                    wide.fetch_add(1e-310, Relaxed);
                    assert_eq!(wide.load(Relaxed), 1e-310);
                })
                .unwrap_or_else(|fault| panic!("{fault}"));
            }
            for (cell, case) in cells.into_iter().zip(CASES) {
                let sum = cell.into_inner();
                assert_eq!(sum.to_bits(), case[2].to_bits(), "{case:?} gives {sum:e}");
            }
        }
    }
    let cell = AtomicF32::new(0.0);
    cell.fetch_add(1e-40, Relaxed);
    assert_eq!(cell.into_inner(), 1e-40, "the host flushes nothing");
}
