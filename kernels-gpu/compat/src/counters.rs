//! Atomics: the types, `core`'s, and the functions by name.
#![allow(unsafe_op_in_unsafe_fn)]

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use cuda_std::address_space;
use cuda_std::atomic::{
    AtomicF32, AtomicF64, BlockAtomicF32, BlockAtomicF64, SystemAtomicF32, SystemAtomicF64, intrinsics, mid,
};
use cuda_std::prelude::*;

/// Every operation of a float that the device shares; the old values go out.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn device_floats(single: &AtomicF32, double: &AtomicF64, out: *mut [f64; 14]) {
    const ORDER: Ordering = Ordering::Relaxed;
    single.store(8.0, Ordering::Release);
    double.store(8.0, Ordering::SeqCst);
    *out = [
        f64::from(single.fetch_add(2.0, ORDER)),
        f64::from(single.fetch_sub(5.0, Ordering::Acquire)),
        f64::from(single.fetch_and(f32::from_bits(u32::MAX), Ordering::Release)),
        f64::from(single.fetch_or(0.0, Ordering::AcqRel)),
        f64::from(single.fetch_xor(-0.0, Ordering::SeqCst)),
        f64::from(single.swap(1.5, ORDER)),
        f64::from(single.load(Ordering::Acquire)),
        double.fetch_add(2.0, ORDER),
        double.fetch_sub(5.0, ORDER),
        double.fetch_and(f64::from_bits(u64::MAX), ORDER),
        double.fetch_or(0.0, ORDER),
        double.fetch_xor(-0.0, ORDER),
        double.swap(1.5, ORDER),
        double.load(ORDER),
    ];
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn block_floats(x: &[f32], out: *mut [f64; 2]) {
    #[address_space(shared)]
    static mut SINGLE: BlockAtomicF32 = BlockAtomicF32::new(0.0);
    #[address_space(shared)]
    static mut DOUBLE: BlockAtomicF64 = BlockAtomicF64::new(0.0);

    let t = thread::thread_idx_x();
    if t == 0 {
        SINGLE.store(0.0, Ordering::Relaxed);
        DOUBLE.swap(0.0, Ordering::Relaxed);
    }
    thread::sync_threads();
    let value = x[thread::index_1d() as usize];
    SINGLE.fetch_add(value, Ordering::Relaxed);
    DOUBLE.fetch_sub(value as f64, Ordering::Relaxed);
    thread::sync_threads();
    if t == 0 {
        let sums = [f64::from(SINGLE.load(Ordering::Relaxed)), DOUBLE.load(Ordering::Relaxed)];
        *out.add(thread::block_idx_x() as usize) = sums;
    }
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn system_floats(x: &[f32], single: &SystemAtomicF32, double: &SystemAtomicF64) {
    let value = x[thread::index_1d() as usize];
    single.fetch_add(value, Ordering::SeqCst);
    double.fetch_add(f64::from(value), Ordering::AcqRel);
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn core_atomics(x: &[i32], sum: &AtomicI32, all: &AtomicU32, most: &AtomicU64) {
    let value = x[thread::index_1d() as usize];
    sum.fetch_add(value, Ordering::Relaxed);
    all.fetch_or(value as u32, Ordering::AcqRel);
    most.fetch_max(value.unsigned_abs() as u64, Ordering::Relaxed);
}

/// A critical section: a plain sum behind a lock.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn spin_lock(lock: *mut u32, sum: *mut u64, value: u64) {
    if thread::thread_idx_x() == 0 {
        while intrinsics::atomic_fetch_cas_acquire_u32_device(lock, 0, 1) != 0 {
            thread::nanosleep(10);
        }
        sum.write(sum.read() + value);
        intrinsics::atomic_store_release_32_device(lock, 0);
    }
}

/// Calls one function after the other on a word that begins with 12; the old values go out.
macro_rules! one_after_the_other {
    ($word:expr, $out:expr, $value:expr; $($function:ident)*) => {{
        let mut at = $out;
        $(
            at.write(intrinsics::$function($word, $value));
            at = at.add(1);
        )*
        at.write(*$word);
    }};
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn words_u32(word: *mut u32, out: *mut u32) {
    one_after_the_other!(word, out, 10;
        atomic_fetch_add_relaxed_u32_device atomic_fetch_sub_acquire_u32_device atomic_fetch_and_release_u32_device
        atomic_fetch_or_acqrel_u32_device atomic_fetch_xor_volatile_u32_device atomic_fetch_exch_relaxed_u32_block
        atomic_fetch_min_relaxed_u32_system atomic_fetch_max_relaxed_u32_device
        atomic_fetch_inc_relaxed_u32_device atomic_fetch_dec_relaxed_u32_device);
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn words_i32(word: *mut i32, out: *mut i32) {
    one_after_the_other!(word, out, -10;
        atomic_fetch_add_relaxed_i32_block atomic_fetch_sub_acquire_i32_block atomic_fetch_and_release_i32_block
        atomic_fetch_or_acqrel_i32_block atomic_fetch_xor_volatile_i32_block atomic_fetch_exch_relaxed_i32_device
        atomic_fetch_min_relaxed_i32_device atomic_fetch_max_relaxed_i32_device);
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn words_u64(word: *mut u64, out: *mut u64) {
    one_after_the_other!(word, out, 10 << 33;
        atomic_fetch_add_relaxed_u64_system atomic_fetch_sub_acquire_u64_system atomic_fetch_and_release_u64_system
        atomic_fetch_or_acqrel_u64_system atomic_fetch_xor_volatile_u64_system atomic_fetch_exch_relaxed_u64_device
        atomic_fetch_min_relaxed_u64_device atomic_fetch_max_relaxed_u64_device);
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn words_i64(word: *mut i64, out: *mut i64) {
    one_after_the_other!(word, out, -(10 << 33);
        atomic_fetch_add_relaxed_i64_device atomic_fetch_sub_acquire_i64_device atomic_fetch_and_release_i64_device
        atomic_fetch_or_acqrel_i64_device atomic_fetch_xor_volatile_i64_device atomic_fetch_exch_relaxed_i64_device
        atomic_fetch_min_relaxed_i64_device atomic_fetch_max_relaxed_i64_device);
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn words_f32(word: *mut f32, out: *mut f32) {
    one_after_the_other!(word, out, 2.5;
        atomic_fetch_add_relaxed_f32_device atomic_fetch_sub_relaxed_f32_device atomic_fetch_and_relaxed_f32_device
        atomic_fetch_or_relaxed_f32_device atomic_fetch_xor_relaxed_f32_device atomic_fetch_exch_relaxed_f32_device);
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn words_f64(word: *mut f64, out: *mut f64) {
    one_after_the_other!(word, out, 2.5;
        atomic_fetch_add_relaxed_f64_device atomic_fetch_sub_relaxed_f64_device atomic_fetch_and_relaxed_f64_device
        atomic_fetch_or_relaxed_f64_device atomic_fetch_xor_relaxed_f64_device atomic_fetch_exch_relaxed_f64_device);
}

/// Compare and swap of each type: once in vain, once not.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn compare_and_swap(single: *mut u32, double: *mut u64, out: *mut [u32; 6]) {
    *out = [
        intrinsics::atomic_fetch_cas_relaxed_u32_device(single, 7, 1),
        intrinsics::atomic_fetch_cas_acqrel_i32_device(single.cast(), 5, -1) as u32,
        intrinsics::atomic_fetch_cas_release_f32_block(single.cast(), f32::from_bits(u32::MAX), 1.0)
            .to_bits(),
        intrinsics::atomic_fetch_cas_relaxed_u64_system(double, 5, 6) as u32,
        intrinsics::atomic_fetch_cas_acquire_i64_device(double.cast(), 6, 7) as u32,
        intrinsics::atomic_fetch_cas_relaxed_f64_device(double.cast(), f64::from_bits(7), 1.0).to_bits()
            as u32,
    ];
}

/// Loads and stores in every order, and every fence.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn loads_and_stores(single: *mut u32, double: *mut u64, out: *mut [u64; 6]) {
    let first = [
        intrinsics::atomic_load_relaxed_32_device(single) as u64,
        intrinsics::atomic_load_acquire_32_block(single) as u64,
        intrinsics::atomic_load_volatile_64_system(double),
    ];
    intrinsics::fence_sc_block();
    intrinsics::fence_sc_device();
    intrinsics::fence_sc_system();
    intrinsics::fence_acqrel_block();
    intrinsics::fence_acqrel_device();
    intrinsics::fence_acqrel_system();
    intrinsics::membar_block();
    intrinsics::membar_device();
    intrinsics::membar_system();
    intrinsics::atomic_store_relaxed_32_device(single, 21);
    intrinsics::atomic_store_release_64_device(double, 22);
    let second = mid::atomic_load_32_device(single, Ordering::SeqCst) as u64;
    let third = mid::atomic_load_64_system(double, Ordering::Acquire);
    intrinsics::atomic_store_volatile_32_system(single, 31);
    mid::atomic_store_64_block(double, Ordering::Release, 32);
    *out = [first[0], first[1], first[2], second, third, (*single as u64) << 32 | *double];
}

/// The functions with the order as an argument: each thread adds to one word of each type.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn orders(words: *mut u32, wide: *mut i64, float: *mut f64) {
    let order = match warp_of_thread() % 4 {
        0 => Ordering::Relaxed,
        1 => Ordering::AcqRel,
        2 => Ordering::SeqCst,
        _ => Ordering::Release,
    };
    mid::device_thread_fence(order);
    mid::atomic_fetch_add_u32_device(words, order, 3);
    mid::atomic_fetch_xor_u32_block(words.add(1), order, thread::thread_idx_x());
    mid::atomic_fetch_sub_i64_system(wide, order, 2);
    mid::atomic_fetch_add_f64_device(float, order, 0.5);
}

fn warp_of_thread() -> u32 {
    thread::thread_idx_x() / thread::warp_size()
}
