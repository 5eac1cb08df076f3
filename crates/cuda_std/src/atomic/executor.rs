//! Atomic instructions, by the executor inside a kernel and by a lock-free loop outside of one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use simt::memory::{Scope, global};

use crate::fastmath::flush;

/// A type that atomic instructions know.
pub trait Word: Copy {
    /// The bits, in the low end.
    fn bits(self) -> u64;
    /// The value with these bits.
    fn from_bits(bits: u64) -> Self;
    /// The value as `atom.add` in global memory takes it.
    fn as_summand(self) -> Self {
        self
    }
}

macro_rules! words {
    ($($ty:ident: $value:ident => $bits:expr, $back:expr $(, $summand:expr)?;)*) => {$(
        impl Word for $ty {
            fn bits(self) -> u64 {
                let $value = self;
                $bits
            }
            fn from_bits($value: u64) -> Self {
                $back
            }
            $(fn as_summand(self) -> Self {
                let $value = self;
                $summand
            })?
        }
    )*};
}

words! {
    u32: v => v as u64, v as u32;
    i32: v => v as u32 as u64, v as i32;
    f32: v => v.to_bits() as u64, f32::from_bits(v as u32), flush(v);
    u64: v => v, v;
    i64: v => v as u64, v as i64;
    f64: v => v.to_bits(), f64::from_bits(v);
}

/// The value whose bits are `f` of the bits of `a` and `b`.
pub fn on_bits<T: Word>(a: T, b: T, f: impl Fn(u64, u64) -> u64) -> T {
    T::from_bits(f(a.bits(), b.bits()))
}

/// Whether `a` and `b` are the same, bit for bit.
pub fn same_bits<T: Word>(a: T, b: T) -> bool {
    a.bits() == b.bits()
}

/// Whether `atom.op` is an addition to global memory, which flushes subnormal `f32`s on both sides. In shared
/// memory it does not.
fn adds_in_global<T>(op: &str, ptr: *mut T) -> bool {
    op == "add" && simt::thread::in_kernel() && simt::memory::is_global(ptr)
}

/// An operand as `atom.op` takes it.
pub fn operand<T: Word>(op: &str, ptr: *mut T, value: T) -> T {
    if adds_in_global(op, ptr) { value.as_summand() } else { value }
}

/// Replaces the value at `ptr` by `f` of it, as PTX's `atom.op` does; the old value. The operands in `f` come
/// from [`operand`].
///
/// # Safety
///
/// `ptr` is valid and aligned to the size of `T`, and reached by atomic operations only.
#[track_caller]
pub unsafe fn fetch<T: Word>(op: &str, ptr: *mut T, order: Ordering, scope: Scope, f: impl Fn(T) -> T) -> T {
    // SAFETY: the caller's promise; the atomic types have the size of `T` and need no more alignment.
    unsafe {
        match (simt::thread::in_kernel(), op) {
            // It may be the word's first value.
            (true, "exch") => simt::memory::atomic_exchange(ptr, order, scope, f),
            (true, _) if adds_in_global(op, ptr) => {
                simt::memory::atomic(ptr, order, scope, |old| f(old.as_summand()).as_summand())
            }
            (true, _) => simt::memory::atomic(ptr, order, scope, f),
            (false, _) => update_on_host(ptr, f),
        }
    }
}

/// Puts a value at `ptr`.
///
/// # Safety
///
/// As for [`fetch`].
#[track_caller]
pub unsafe fn store<T: Word>(ptr: *mut T, value: T, order: Ordering, scope: Scope) {
    if simt::thread::in_kernel() {
        // SAFETY: the caller's promise.
        return unsafe { simt::memory::atomic_store(ptr, value, order, scope) };
    }
    // SAFETY: the caller's promise.
    unsafe { update_on_host(ptr, |_| value) };
}

/// The value at `ptr`.
///
/// # Safety
///
/// As for [`fetch`].
#[track_caller]
pub unsafe fn load<T: Word>(ptr: *const T, order: Ordering, scope: Scope) -> T {
    if simt::thread::in_kernel() {
        // SAFETY: the caller's promise.
        return unsafe { simt::memory::atomic_load(ptr, order, scope) };
    }
    // SAFETY: the caller's promise; the value stays as it is.
    unsafe { update_on_host(ptr.cast_mut(), |old| old) }
}

/// Puts a value at `ptr` by an instruction for global memory.
///
/// # Safety
///
/// As for [`fetch`].
#[track_caller]
pub unsafe fn store_global<T: Word>(ptr: *mut T, value: T, order: Ordering, scope: Scope) {
    if simt::thread::in_kernel() {
        // SAFETY: the caller's promise.
        return unsafe { global::atomic_store(ptr, value, order, scope) };
    }
    // SAFETY: the caller's promise.
    unsafe { update_on_host(ptr, |_| value) };
}

/// The value at `ptr`, by an instruction for global memory.
///
/// # Safety
///
/// As for [`fetch`].
#[track_caller]
pub unsafe fn load_global<T: Word>(ptr: *const T, order: Ordering, scope: Scope) -> T {
    if simt::thread::in_kernel() {
        // SAFETY: the caller's promise.
        return unsafe { global::atomic_load(ptr, order, scope) };
    }
    // SAFETY: the caller's promise; the value stays as it is.
    unsafe { update_on_host(ptr.cast_mut(), |old| old) }
}

/// # Safety
///
/// As for [`fetch`].
unsafe fn update_on_host<T: Word>(ptr: *mut T, f: impl Fn(T) -> T) -> T {
    const ORDERS: (Ordering, Ordering) = (Ordering::SeqCst, Ordering::SeqCst);
    let next = |bits| f(T::from_bits(bits)).bits();
    let old = if size_of::<T>() == size_of::<u32>() {
        // SAFETY: the caller's promise; a cell has the size of `T`.
        let cell = unsafe { AtomicU32::from_ptr(ptr.cast()) };
        cell.fetch_update(ORDERS.0, ORDERS.1, |bits| Some(next(bits as u64) as u32))
            .map(u64::from)
            .unwrap_or_else(u64::from)
    } else {
        // SAFETY: the caller's promise; a cell has the size of `T`.
        let cell = unsafe { AtomicU64::from_ptr(ptr.cast()) };
        cell.fetch_update(ORDERS.0, ORDERS.1, |bits| Some(next(bits))).unwrap_or_else(|bits| bits)
    };
    T::from_bits(old)
}

/// A fence of the executor inside a kernel, of the processor outside of one.
#[track_caller]
pub fn fence_at(scope: Scope) {
    if simt::thread::in_kernel() {
        simt::memory::fence(scope)
    } else {
        std::sync::atomic::fence(Ordering::SeqCst)
    }
}
