//! Callbacks of instrumented code: LLVM calls `__sanitizer_cov_load4(address)` before every 4-byte load of
//! packages that `tools/rustc-checked` compiles, and so on for other sizes and for stores.
//!
//! The return address names the line. It is taken by a few instructions of assembly, which pass it on as a
//! second argument; a Rust function cannot read its own return address.

use super::Access;
use crate::exec::context::{Thread, try_current};
use crate::fault::AccessKind;
use crate::site::RawSite;

/// Most calls end here: accesses to the thread's own stack, and those of code that runs between threads.
#[inline(always)]
fn note(address: usize, return_address: usize, size: usize, kind: AccessKind) {
    let Some(thread) = try_current() else { return };
    if !thread.is_on_stack(address) {
        note_access(thread, address, return_address, size, kind);
    }
}

/// Apart from [`note`], so that the usual call saves no registers.
#[inline(never)]
fn note_access(thread: &Thread, address: usize, return_address: usize, size: usize, kind: AccessKind) {
    if !thread.checked() {
        return;
    }
    let site = RawSite::return_address(return_address);
    super::access(thread, Access { address, size, align: 1, kind, site }, false);
    if kind == AccessKind::Read && thread.check.is_polling(site, address) {
        thread.give_way(site);
    }
}

macro_rules! callbacks {
    ($($name:ident, $handler:ident, $size:literal, $kind:ident;)*) => {$(
        extern "C" fn $handler(address: usize, return_address: usize) {
            note(address, return_address, $size, AccessKind::$kind);
        }

        /// Called by instrumented code before an access.
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        #[unsafe(naked)]
        // SAFETY: the name is reserved for this use by LLVM; nothing else in the program defines it.
        #[unsafe(no_mangle)]
        extern "C" fn $name(address: usize) {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("mov rsi, [rsp]", "jmp {handler}", handler = sym $handler);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("mov x1, x30", "b {handler}", handler = sym $handler);
        }

        /// Called by instrumented code before an access. The line stays unknown on this architecture.
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        // SAFETY: the name is reserved for this use by LLVM; nothing else in the program defines it.
        #[unsafe(no_mangle)]
        extern "C" fn $name(address: usize) {
            $handler(address, 1);
        }
    )*};
}

callbacks! {
    __sanitizer_cov_load1, load1, 1, Read;
    __sanitizer_cov_load2, load2, 2, Read;
    __sanitizer_cov_load4, load4, 4, Read;
    __sanitizer_cov_load8, load8, 8, Read;
    __sanitizer_cov_load16, load16, 16, Read;
    __sanitizer_cov_store1, store1, 1, Write;
    __sanitizer_cov_store2, store2, 2, Write;
    __sanitizer_cov_store4, store4, 4, Write;
    __sanitizer_cov_store8, store8, 8, Write;
    __sanitizer_cov_store16, store16, 16, Write;
}
