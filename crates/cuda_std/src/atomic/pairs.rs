//! Two neighbouring 64-bit words in one access of 16 bytes, for flags that travel with data.
//!
//! Each word is loaded or stored whole. The two together are not: one may arrive before the other.
//!
//! # Safety
//!
//! Pointers are to global memory, valid for 16 bytes, aligned to 16, and reached by atomic operations only.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
#[cfg(not(target_arch = "nvptx64"))]
use std::sync::atomic::Ordering;

#[cfg(not(target_arch = "nvptx64"))]
use simt::memory::Scope;

#[cfg(not(target_arch = "nvptx64"))]
use super::executor::{load_global, store_global};

/// Loads two words, relaxed, scope `system`.
///
/// # Safety
///
/// The pointer is as [the module](self) asks.
///
/// # PTX
/// `ld.relaxed.sys.global.v2.u64`
#[inline(always)]
#[track_caller]
pub unsafe fn load_relaxed_pair_system(ptr: *const u64) -> [u64; 2] {
    arms! {
        ptx: {
            let (a, b): (u64, u64);
            // SAFETY: the caller vouches for the pointer; the instruction reads two words there.
            unsafe {
                asm!("ld.relaxed.sys.global.v2.u64 {{{0}, {1}}}, [{2}];", lateout(reg64) a, lateout(reg64) b, in(reg64) ptr)
            };
            [a, b]
        }
        sim: {
            // SAFETY: the caller vouches for the pointer.
            unsafe { [ptr, ptr.add(1)].map(|word| load_global(word, Ordering::Relaxed, Scope::System)) }
        }
    }
}

/// Stores two words, relaxed, scope `system`.
///
/// # Safety
///
/// The pointer is as [the module](self) asks.
///
/// # PTX
/// `st.relaxed.sys.global.v2.u64`
#[inline(always)]
#[track_caller]
pub unsafe fn store_relaxed_pair_system(ptr: *mut u64, [a, b]: [u64; 2]) {
    arms! {
        ptx: {
            // SAFETY: the caller vouches for the pointer; the instruction writes two words there.
            unsafe { asm!("st.relaxed.sys.global.v2.u64 [{0}], {{{1}, {2}}};", in(reg64) ptr, in(reg64) a, in(reg64) b) }
        }
        sim: {
            // SAFETY: the caller vouches for the pointer.
            unsafe {
                store_global(ptr, a, Ordering::Relaxed, Scope::System);
                store_global(ptr.add(1), b, Ordering::Relaxed, Scope::System);
            }
        }
    }
}
