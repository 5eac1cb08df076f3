//! Callbacks of instrumented code. `tools/rustc-checked` lets LLVM's ThreadSanitizer pass put a call before
//! each load and store (`__tsan_read4(address)`, and so on), and calls in place of atomic operations
//! ([`atomics`]) and of copies and fills ([`moves`]). The checker defines these functions: no part of
//! ThreadSanitizer's own library is linked.
//!
//! LLVM leaves out what no other thread can reach: locals whose address stays in their function, and
//! constants.
//!
//! The return address names the line. It is taken by a few instructions of assembly, which pass it on as one
//! more argument; a Rust function cannot read its own return address.

mod atomics;
mod moves;

use super::{Access, fast, settled};
use crate::exec::context::{Thread, try_current};
use crate::fault::AccessKind;
use crate::site::RawSite;

/// Defines functions that instrumented code calls. Each has a handler with one more argument, the return
/// address, in the register that is named for x86-64 and for AArch64.
macro_rules! callbacks {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $result:ty)? => $handler:expr, $x86:literal, $arm:literal;)*) => {$(
        /// Called by instrumented code.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        #[unsafe(naked)]
        // SAFETY: the name is reserved for this use by LLVM; nothing else in the program defines it.
        #[unsafe(no_mangle)]
        extern "C" fn $name($(_: $ty),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(concat!("mov ", $x86, ", [rsp]"), "jmp {handler}", handler = sym $handler);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {handler}", handler = sym $handler);
        }

        /// Called by instrumented code. The line stays unknown on this architecture.
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        // SAFETY: the name is reserved for this use by LLVM; nothing else in the program defines it.
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $ty),*) $(-> $result)? {
            $handler($($arg,)* 0)
        }
    )*};
}
use callbacks;

const READ: u8 = 0;
const WRITE: u8 = 1;
const VOLATILE_READ: u8 = 2;
const VOLATILE_WRITE: u8 = 3;

/// An access of `SIZE` bytes to an address that must be a multiple of `ALIGN`. Most calls end here:
/// accesses to the thread's own stack, and those of code that runs between threads.
extern "C" fn plain<const KIND: u8, const SIZE: usize, const ALIGN: usize>(
    address: usize,
    return_address: usize,
) {
    let Some(thread) = try_current() else { return };
    if thread.is_on_stack(address) {
        if thread.products.may_hold(address, SIZE) {
            note_accumulator(thread, address, return_address, SIZE);
        }
        return;
    }
    let is_aligned = address & (ALIGN.max(SIZE.min(settled::WORD)) - 1) == 0;
    if KIND == READ && is_aligned && fast::is_settled::<SIZE>(thread, address) {
        note_load(thread, address, RawSite::return_address(return_address));
    } else if thread.checked() {
        note::<KIND, SIZE, ALIGN>(thread, address, return_address);
    }
}

/// Apart from [`plain`], so that the usual call saves no registers.
#[inline(never)]
fn note<const KIND: u8, const SIZE: usize, const ALIGN: usize>(
    thread: &Thread,
    address: usize,
    return_address: usize,
) {
    let site = RawSite::return_address(return_address);
    let is_decided = address & (ALIGN - 1) == 0
        && match KIND {
            READ => fast::read::<SIZE>(thread, address, site),
            WRITE => fast::write::<SIZE>(thread, address, site),
            _ => false,
        };
    if !is_decided {
        note_any(thread, KIND, Access { address, size: SIZE, align: ALIGN, kind: AccessKind::Read, site });
    }
    if KIND == READ || KIND == VOLATILE_READ {
        note_load(thread, address, site);
    }
}

/// A thread that does nothing but load one address waits for another.
#[inline(always)]
fn note_load(thread: &Thread, address: usize, site: RawSite) {
    if thread.check.is_polling(site, address) {
        thread.give_way(site);
    }
}

#[inline(never)]
fn note_any(thread: &Thread, code: u8, access: Access) {
    let kind = match code {
        READ => AccessKind::Read,
        WRITE => AccessKind::Write,
        // In shared memory a volatile access is a plain one: warps that run in lockstep were its only use.
        VOLATILE_READ if !is_shared(thread, access.address) => AccessKind::VolatileRead,
        VOLATILE_READ => AccessKind::Read,
        _ if is_shared(thread, access.address) => AccessKind::Write,
        _ => AccessKind::VolatileWrite,
    };
    let access = Access { kind, ..access };
    super::require_aligned(thread, access);
    super::access(thread, access, false);
    if kind.is_strong() {
        super::volatile_order(thread, access);
    }
}

#[inline(never)]
fn note_accumulator(thread: &Thread, address: usize, return_address: usize, size: usize) {
    let site = RawSite::return_address(return_address);
    super::own_stack_access(thread, Access { address, size, align: 1, kind: AccessKind::Read, site });
}

fn is_shared(thread: &Thread, address: usize) -> bool {
    thread.block().arena.offset_of(address).is_some()
}

// LLVM calls an access of 16 bytes aligned when its address is a multiple of 8.
callbacks! {
    __tsan_read1(address: usize) => plain::<READ, 1, 1>, "rsi", "x1";
    __tsan_read2(address: usize) => plain::<READ, 2, 2>, "rsi", "x1";
    __tsan_read4(address: usize) => plain::<READ, 4, 4>, "rsi", "x1";
    __tsan_read8(address: usize) => plain::<READ, 8, 8>, "rsi", "x1";
    __tsan_read16(address: usize) => plain::<READ, 16, 8>, "rsi", "x1";
    __tsan_write1(address: usize) => plain::<WRITE, 1, 1>, "rsi", "x1";
    __tsan_write2(address: usize) => plain::<WRITE, 2, 2>, "rsi", "x1";
    __tsan_write4(address: usize) => plain::<WRITE, 4, 4>, "rsi", "x1";
    __tsan_write8(address: usize) => plain::<WRITE, 8, 8>, "rsi", "x1";
    __tsan_write16(address: usize) => plain::<WRITE, 16, 8>, "rsi", "x1";
    __tsan_unaligned_read2(address: usize) => plain::<READ, 2, 1>, "rsi", "x1";
    __tsan_unaligned_read4(address: usize) => plain::<READ, 4, 1>, "rsi", "x1";
    __tsan_unaligned_read8(address: usize) => plain::<READ, 8, 1>, "rsi", "x1";
    __tsan_unaligned_read16(address: usize) => plain::<READ, 16, 1>, "rsi", "x1";
    __tsan_unaligned_write2(address: usize) => plain::<WRITE, 2, 1>, "rsi", "x1";
    __tsan_unaligned_write4(address: usize) => plain::<WRITE, 4, 1>, "rsi", "x1";
    __tsan_unaligned_write8(address: usize) => plain::<WRITE, 8, 1>, "rsi", "x1";
    __tsan_unaligned_write16(address: usize) => plain::<WRITE, 16, 1>, "rsi", "x1";
    __tsan_volatile_read1(address: usize) => plain::<VOLATILE_READ, 1, 1>, "rsi", "x1";
    __tsan_volatile_read2(address: usize) => plain::<VOLATILE_READ, 2, 2>, "rsi", "x1";
    __tsan_volatile_read4(address: usize) => plain::<VOLATILE_READ, 4, 4>, "rsi", "x1";
    __tsan_volatile_read8(address: usize) => plain::<VOLATILE_READ, 8, 8>, "rsi", "x1";
    __tsan_volatile_read16(address: usize) => plain::<VOLATILE_READ, 16, 8>, "rsi", "x1";
    __tsan_volatile_write1(address: usize) => plain::<VOLATILE_WRITE, 1, 1>, "rsi", "x1";
    __tsan_volatile_write2(address: usize) => plain::<VOLATILE_WRITE, 2, 2>, "rsi", "x1";
    __tsan_volatile_write4(address: usize) => plain::<VOLATILE_WRITE, 4, 4>, "rsi", "x1";
    __tsan_volatile_write8(address: usize) => plain::<VOLATILE_WRITE, 8, 8>, "rsi", "x1";
    __tsan_volatile_write16(address: usize) => plain::<VOLATILE_WRITE, 16, 8>, "rsi", "x1";
    __tsan_unaligned_volatile_read2(address: usize) => plain::<VOLATILE_READ, 2, 1>, "rsi", "x1";
    __tsan_unaligned_volatile_read4(address: usize) => plain::<VOLATILE_READ, 4, 1>, "rsi", "x1";
    __tsan_unaligned_volatile_read8(address: usize) => plain::<VOLATILE_READ, 8, 1>, "rsi", "x1";
    __tsan_unaligned_volatile_read16(address: usize) => plain::<VOLATILE_READ, 16, 1>, "rsi", "x1";
    __tsan_unaligned_volatile_write2(address: usize) => plain::<VOLATILE_WRITE, 2, 1>, "rsi", "x1";
    __tsan_unaligned_volatile_write4(address: usize) => plain::<VOLATILE_WRITE, 4, 1>, "rsi", "x1";
    __tsan_unaligned_volatile_write8(address: usize) => plain::<VOLATILE_WRITE, 8, 1>, "rsi", "x1";
    __tsan_unaligned_volatile_write16(address: usize) => plain::<VOLATILE_WRITE, 16, 1>, "rsi", "x1";
}
