//! Copies and fills: `memcpy`, `memmove` and `memset` that the source names, and those that LLVM makes of
//! struct copies and of loops.

use super::{Access, callbacks};
use crate::exec::context::try_current;
use crate::fault::AccessKind;
use crate::site::RawSite;

/// Checks a part of a copy or fill.
fn note(address: usize, size: usize, kind: AccessKind, site: RawSite) {
    let Some(thread) = try_current() else { return };
    if size != 0 && thread.checked() {
        super::super::plain_access(thread, Access { address, size, align: 1, kind, site });
    }
}

/// Copies, with regions that may overlap as `memmove` has it.
extern "C" fn copy(to: *mut u8, from: *const u8, bytes: usize, return_address: usize) -> *mut u8 {
    let site = RawSite::return_address(return_address);
    note(from as usize, bytes, AccessKind::CopyRead, site);
    note(to as usize, bytes, AccessKind::Write, site);
    // SAFETY: the instrumented code called `memcpy` or `memmove` with these arguments.
    unsafe { std::ptr::copy(from, to, bytes) };
    to
}

extern "C" fn fill(to: *mut u8, value: i32, bytes: usize, return_address: usize) -> *mut u8 {
    note(to as usize, bytes, AccessKind::Write, RawSite::return_address(return_address));
    // SAFETY: the instrumented code called `memset` with these arguments, of which the value counts as a
    // byte.
    unsafe { std::ptr::write_bytes(to, value as u8, bytes) };
    to
}

callbacks! {
    __tsan_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 => copy, "rcx", "x3";
    __tsan_memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 => copy, "rcx", "x3";
    __tsan_memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 => fill, "rcx", "x3";
}
