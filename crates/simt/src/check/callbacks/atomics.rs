//! Atomic operations of `core::sync::atomic`. A GPU carries them out with the scope of the system.
//!
//! LLVM has no callbacks for `fetch_max` and `fetch_min`: they stay as they are, unchecked.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::{Access, callbacks};
use crate::exec::context::{Thread, try_current};
use crate::fault::AccessKind;
use crate::memory::{Atomic, Scope, take_turn};
use crate::site::RawSite;

/// A word that atomic operations know.
trait Word: Copy + Eq {
    /// An operation on the program's own memory.
    ///
    /// # Safety
    /// `ptr` is valid and aligned for atomic operations.
    unsafe fn update(ptr: *mut Self, f: impl Fn(Self) -> Self) -> Self;

    /// A load from the program's own memory, which may be read-only.
    ///
    /// # Safety
    /// `ptr` is valid and aligned for atomic loads.
    unsafe fn load(ptr: *mut Self) -> Self;
}

macro_rules! words {
    ($($ty:ident $atomic:ident,)*) => {$(
        impl Word for $ty {
            unsafe fn update(ptr: *mut Self, f: impl Fn(Self) -> Self) -> Self {
                // SAFETY: the caller's promise.
                let word = unsafe { $atomic::from_ptr(ptr) };
                let changed = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old)));
                changed.unwrap_or_else(|old| old)
            }

            unsafe fn load(ptr: *mut Self) -> Self {
                // SAFETY: the caller's promise.
                unsafe { $atomic::from_ptr(ptr) }.load(Ordering::SeqCst)
            }
        }
    )*};
}

words! { u8 AtomicU8, u16 AtomicU16, u32 AtomicU32, u64 AtomicU64, }

/// The simulated thread, if the address is in memory that the checker follows.
fn follows<T: Word>(ptr: *mut T, kind: AccessKind, site: RawSite) -> Option<&'static Thread> {
    let thread = try_current()?;
    let (address, size) = (ptr as usize, size_of::<T>());
    if thread.checked() && super::super::is_followed(thread, address) {
        return Some(thread);
    }
    take_turn(thread, site);
    if thread.checked() {
        super::super::plain_access(thread, Access { address, size, align: size, kind, site });
    }
    None
}

/// # Safety
/// As [`Word::update`], or the address is in memory that the checker follows.
unsafe fn update<T: Word>(ptr: *mut T, order: i32, return_address: usize, f: impl Fn(T) -> T) -> T {
    let site = RawSite::return_address(return_address);
    if follows(ptr, AccessKind::Atomic, site).is_none() {
        // SAFETY: forwarded from the caller.
        return unsafe { T::update(ptr, f) };
    }
    let atomic = Atomic::read_write(ptr.cast(), size_of::<T>(), ordering(order), Scope::System);
    // SAFETY: forwarded from the caller.
    unsafe { atomic.strict().update(site, f) }
}

extern "C" fn load<T: Word>(ptr: *mut T, order: i32, return_address: usize) -> T {
    let site = RawSite::return_address(return_address);
    if follows(ptr, AccessKind::AtomicRead, site).is_none() {
        // SAFETY: the instrumented code loads from there.
        return unsafe { T::load(ptr) };
    }
    let atomic = Atomic::load(ptr.cast(), size_of::<T>(), ordering(order), Scope::System);
    // SAFETY: the instrumented code loads from there; the value stays as it is.
    unsafe { atomic.update(site, |old: T| old) }
}

extern "C" fn store<T: Word>(ptr: *mut T, value: T, order: i32, return_address: usize) {
    let site = RawSite::return_address(return_address);
    if follows(ptr, AccessKind::Atomic, site).is_none() {
        // SAFETY: the instrumented code stores there.
        unsafe { T::update(ptr, |_| value) };
        return;
    }
    let atomic = Atomic::store(ptr.cast(), size_of::<T>(), ordering(order), Scope::System);
    // SAFETY: the instrumented code stores there.
    unsafe { atomic.update(site, |_| value) };
}

/// Operations that replace the old value by one of it and of the argument.
macro_rules! operations {
    ($($name:ident($old:ident, $value:ident) $new:expr;)*) => {$(
        extern "C" fn $name<T: Word + Arithmetic>(ptr: *mut T, $value: T, order: i32, return_address: usize) -> T {
            // SAFETY: the instrumented code carries out this operation there.
            unsafe { update(ptr, order, return_address, |$old: T| $new) }
        }
    )*};
}

operations! {
    fetch_add(old, value) old.add(value);
    fetch_sub(old, value) old.sub(value);
    fetch_and(old, value) old.and(value);
    fetch_or(old, value) old.or(value);
    fetch_xor(old, value) old.xor(value);
    fetch_nand(old, value) old.and(value).not();
}

extern "C" fn exchange<T: Word>(ptr: *mut T, value: T, order: i32, return_address: usize) -> T {
    let site = RawSite::return_address(return_address);
    if follows(ptr, AccessKind::Atomic, site).is_none() {
        // SAFETY: the instrumented code carries out this operation there.
        return unsafe { T::update(ptr, |_| value) };
    }
    let atomic = Atomic::exchange(ptr.cast(), size_of::<T>(), ordering(order), Scope::System);
    // SAFETY: as above.
    unsafe { atomic.strict().update(site, |_| value) }
}

/// The old value; it is replaced by `new` if it is `expected`.
extern "C" fn compare_exchange<T: Word>(
    ptr: *mut T,
    expected: T,
    new: T,
    order: i32,
    _if_it_fails: i32,
    return_address: usize,
) -> T {
    let value = |old| if old == expected { new } else { old };
    // SAFETY: the instrumented code carries out this operation there.
    unsafe { update(ptr, order, return_address, value) }
}

/// The arithmetic of atomic operations, which wraps around.
trait Arithmetic {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
}

macro_rules! arithmetic {
    ($($ty:ident)*) => {$(
        impl Arithmetic for $ty {
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn and(self, other: Self) -> Self {
                self & other
            }
            fn or(self, other: Self) -> Self {
                self | other
            }
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            fn not(self) -> Self {
                !self
            }
        }
    )*};
}

arithmetic! { u8 u16 u32 u64 }

extern "C" fn thread_fence(order: i32, _return_address: usize) {
    std::sync::atomic::fence(ordering(order));
    if let Some(thread) = try_current().filter(|thread| thread.checked()) {
        super::super::fence(thread, Scope::System);
    }
}

/// A fence for the compiler alone, which has obeyed it.
extern "C" fn signal_fence(_order: i32, _return_address: usize) {}

/// The order that LLVM names by the numbers of C++'s `memory_order`; Rust has no consume order, number 1.
fn ordering(order: i32) -> Ordering {
    match order {
        0 => Ordering::Relaxed,
        1 | 2 => Ordering::Acquire,
        3 => Ordering::Release,
        4 => Ordering::AcqRel,
        _ => Ordering::SeqCst,
    }
}

/// The callbacks of one width.
macro_rules! width {
    (
        $ty:ident, $load:ident, $store:ident, $exchange:ident, $add:ident, $sub:ident, $and:ident, $or:ident,
        $xor:ident, $nand:ident, $compare:ident
    ) => {
        callbacks! {
            $load(ptr: *mut $ty, order: i32) -> $ty => load::<$ty>, "rdx", "x2";
            $store(ptr: *mut $ty, value: $ty, order: i32) => store::<$ty>, "rcx", "x3";
            $exchange(ptr: *mut $ty, value: $ty, order: i32) -> $ty => exchange::<$ty>, "rcx", "x3";
            $add(ptr: *mut $ty, value: $ty, order: i32) -> $ty => fetch_add::<$ty>, "rcx", "x3";
            $sub(ptr: *mut $ty, value: $ty, order: i32) -> $ty => fetch_sub::<$ty>, "rcx", "x3";
            $and(ptr: *mut $ty, value: $ty, order: i32) -> $ty => fetch_and::<$ty>, "rcx", "x3";
            $or(ptr: *mut $ty, value: $ty, order: i32) -> $ty => fetch_or::<$ty>, "rcx", "x3";
            $xor(ptr: *mut $ty, value: $ty, order: i32) -> $ty => fetch_xor::<$ty>, "rcx", "x3";
            $nand(ptr: *mut $ty, value: $ty, order: i32) -> $ty => fetch_nand::<$ty>, "rcx", "x3";
            $compare(ptr: *mut $ty, expected: $ty, new: $ty, order: i32, if_it_fails: i32) -> $ty
                => compare_exchange::<$ty>, "r9", "x5";
        }
    };
}

width!(
    u8,
    __tsan_atomic8_load,
    __tsan_atomic8_store,
    __tsan_atomic8_exchange,
    __tsan_atomic8_fetch_add,
    __tsan_atomic8_fetch_sub,
    __tsan_atomic8_fetch_and,
    __tsan_atomic8_fetch_or,
    __tsan_atomic8_fetch_xor,
    __tsan_atomic8_fetch_nand,
    __tsan_atomic8_compare_exchange_val
);
width!(
    u16,
    __tsan_atomic16_load,
    __tsan_atomic16_store,
    __tsan_atomic16_exchange,
    __tsan_atomic16_fetch_add,
    __tsan_atomic16_fetch_sub,
    __tsan_atomic16_fetch_and,
    __tsan_atomic16_fetch_or,
    __tsan_atomic16_fetch_xor,
    __tsan_atomic16_fetch_nand,
    __tsan_atomic16_compare_exchange_val
);
width!(
    u32,
    __tsan_atomic32_load,
    __tsan_atomic32_store,
    __tsan_atomic32_exchange,
    __tsan_atomic32_fetch_add,
    __tsan_atomic32_fetch_sub,
    __tsan_atomic32_fetch_and,
    __tsan_atomic32_fetch_or,
    __tsan_atomic32_fetch_xor,
    __tsan_atomic32_fetch_nand,
    __tsan_atomic32_compare_exchange_val
);
width!(
    u64,
    __tsan_atomic64_load,
    __tsan_atomic64_store,
    __tsan_atomic64_exchange,
    __tsan_atomic64_fetch_add,
    __tsan_atomic64_fetch_sub,
    __tsan_atomic64_fetch_and,
    __tsan_atomic64_fetch_or,
    __tsan_atomic64_fetch_xor,
    __tsan_atomic64_fetch_nand,
    __tsan_atomic64_compare_exchange_val
);
callbacks! {
    __tsan_atomic_thread_fence(order: i32) => thread_fence, "rsi", "x1";
    __tsan_atomic_signal_fence(order: i32) => signal_fence, "rsi", "x1";
}
