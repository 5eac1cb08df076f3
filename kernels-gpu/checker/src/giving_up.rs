//! Kernels that panic, trap or never end.

use core::sync::atomic::Ordering;

use cuda_std::atomic::mid::atomic_load_32_device;
use cuda_std::kernel;

use crate::{global, rank};

/// An index past the end of a slice.
#[kernel]
pub unsafe fn index_panic(data: *mut u32, aux: *mut u32, n: u32) {
    let input = unsafe { core::slice::from_raw_parts(data, n as usize) };
    let value = input[global()]; // bug
    unsafe {
        *aux.add(rank()) = value;
    }
}

/// Arithmetic that overflows.
#[kernel]
pub unsafe fn overflow_panic(data: *mut u32, _aux: *mut u32, n: u32) {
    unsafe {
        *data.add(rank()) = n - 1000; // bug
    }
}

/// A failed assertion.
#[kernel]
pub unsafe fn assertion(data: *mut u32, _aux: *mut u32, _n: u32) {
    unsafe {
        assert!(*data.add(rank()) < 60, "too large"); // bug
    }
}

/// Waits for a flag that no thread sets.
#[kernel]
pub unsafe fn endless_spin(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        while atomic_load_32_device(aux, Ordering::Acquire) == 0 {} // bug
    }
}

/// The same with plain loads.
#[kernel]
pub unsafe fn endless_poll(_data: *mut u32, aux: *mut u32, _n: u32) {
    unsafe {
        while aux.read_volatile() == 0 {} // bug
    }
}
