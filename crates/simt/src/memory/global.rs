//! Accesses by instructions for global memory, whose PTX names `.global`. With checking on, an address in
//! shared memory, or in a local variable, is a fault on the caller's line.

use std::mem::MaybeUninit;
use std::panic::Location;
use std::sync::atomic::Ordering;

use super::{Atomic, Scope, Space, read, write};
use crate::fault::AccessKind;
use crate::site::RawSite;

/// Loads a value (`ld.global`).
///
/// # Safety
/// `ptr` is valid for reads, or checking is on and the address is in tracked memory.
#[track_caller]
pub unsafe fn load<T: Copy>(ptr: *const T) -> T {
    // SAFETY: forwarded from the caller.
    unsafe { load_as(ptr, AccessKind::Read, Location::caller()) }
}

/// Loads a value through the read-only path (`ld.global.nc`): with checking on, a value that the launch has
/// written is a fault.
///
/// # Safety
/// As [`load`].
#[track_caller]
pub unsafe fn load_read_only<T: Copy>(ptr: *const T) -> T {
    // SAFETY: forwarded from the caller.
    unsafe { load_as(ptr, AccessKind::ReadOnly, Location::caller()) }
}

/// # Safety
/// As [`load`].
#[inline(always)]
unsafe fn load_as<T: Copy>(ptr: *const T, kind: AccessKind, location: &'static Location<'static>) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the caller vouches for the source, and the destination is a local of that size.
    unsafe {
        let (out, size, align) = (value.as_mut_ptr().cast(), size_of::<T>(), align_of::<T>());
        read(ptr.cast(), out, size, align, (Space::Global, kind), location);
        value.assume_init()
    }
}

/// Stores a value (`st.global`).
///
/// # Safety
/// `ptr` is valid for writes, or checking is on and the address is in tracked memory.
#[track_caller]
pub unsafe fn store<T: Copy>(ptr: *mut T, value: T) {
    let value = std::ptr::from_ref(&value).cast();
    // SAFETY: the caller vouches for the destination, and the source is a local of that size.
    unsafe {
        write(ptr.cast(), value, size_of::<T>(), align_of::<T>(), Space::Global, Location::caller());
    }
}

/// Replaces the value at `ptr` by `f` of it, atomically, and returns the old value (`atom.global`,
/// `red.global`). `f` only computes, maybe more than once: it must not call into this crate.
///
/// # Safety
/// `T` is a number of 1, 2, 4 or 8 bytes. `ptr` is aligned to its size and valid for reads and writes, or
/// checking is on and the address is in tracked memory.
#[track_caller]
pub unsafe fn atomic<T: Copy>(ptr: *mut T, order: Ordering, scope: Scope, f: impl Fn(T) -> T) -> T {
    let atomic = Atomic::read_write(ptr.cast(), size_of::<T>(), order, scope).in_global();
    // SAFETY: forwarded from the caller.
    unsafe { atomic.update(RawSite::of(Location::caller()), f) }
}

/// Stores a value at `ptr` atomically (`st.relaxed.sys.global`).
///
/// # Safety
/// As [`atomic`].
#[track_caller]
pub unsafe fn atomic_store<T: Copy>(ptr: *mut T, value: T, order: Ordering, scope: Scope) {
    let atomic = Atomic::store(ptr.cast(), size_of::<T>(), order, scope).in_global();
    // SAFETY: forwarded from the caller.
    unsafe { atomic.update(RawSite::of(Location::caller()), |_| value) };
}

/// Loads the value at `ptr` atomically (`ld.relaxed.sys.global`).
///
/// # Safety
/// As [`atomic`]; reads are enough.
#[track_caller]
pub unsafe fn atomic_load<T: Copy>(ptr: *const T, order: Ordering, scope: Scope) -> T {
    let atomic = Atomic::load(ptr.cast(), size_of::<T>(), order, scope).in_global();
    // SAFETY: forwarded from the caller; the value stays as it is.
    unsafe { atomic.update(RawSite::of(Location::caller()), |value| value) }
}
