//! Variables in shared memory.

use core::arch::{asm, global_asm};

use crate::shared::DYNAMIC_ALIGN;

global_asm!(".extern .shared .align {align} .b8 __ironwarp_dynamic_shared[];", align = const DYNAMIC_ALIGN);

#[inline(always)]
pub fn dynamic() -> *mut u8 {
    let address: *mut u8;
    // SAFETY: computes an address.
    unsafe {
        asm!(
            "mov.u64 {window}, __ironwarp_dynamic_shared;",
            "cvta.shared.u64 {address}, {window};",
            window = out(reg64) _,
            address = lateout(reg64) address,
            options(pure, nomem, nostack)
        );
    }
    address
}

#[inline(always)]
pub fn dynamic_len() -> u32 {
    let bytes: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {}, %dynamic_smem_size;", out(reg32) bytes, options(pure, nomem, nostack)) };
    bytes
}

#[inline(always)]
pub fn total_len() -> u32 {
    let bytes: u32;
    // SAFETY: reads a special register.
    unsafe { asm!("mov.u32 {}, %total_smem_size;", out(reg32) bytes, options(pure, nomem, nostack)) };
    bytes
}

#[inline(always)]
pub fn address_of(ptr: *const u8) -> u32 {
    let address: u64;
    // SAFETY: computes an address.
    unsafe {
        asm!("cvta.to.shared.u64 {0}, {1};", out(reg64) address, in(reg64) ptr, options(pure, nomem, nostack))
    };
    address as u32
}

/// Declares the shared variable `$name` of type `$ty`, with the PTX symbol `$symbol`: the module `$key` with its type `Key`.
///
/// `global_asm!` may not stand among the statements of a function, but it may in a module there. That module does not
/// see the function's constants, on which `$ty` may depend; an implementation beside it does, and carries them in.
#[doc(hidden)]
#[macro_export]
macro_rules! __shared_variable {
    ($vis:vis $key:ident, $name:literal, $symbol:literal, $ty:ty) => {
        #[doc(hidden)]
        #[allow(non_snake_case)]
        $vis mod $key {
            pub(super) struct Key;
            ::core::arch::global_asm!(
                concat!(".shared .align {align} .b8 ", $symbol, "[{size}];"),
                align = const <Key as $crate::shared::Variable>::ALIGN,
                size = const <Key as $crate::shared::Variable>::SIZE,
            );
        }

        // SAFETY: the variable is of that size and alignment, and no other has its symbol or key.
        unsafe impl $crate::shared::Variable for $key::Key {
            type Value = $ty;

            #[inline(always)]
            fn address() -> *mut u8 {
                let address: *mut u8;
                // SAFETY: computes an address.
                unsafe {
                    ::core::arch::asm!(
                        concat!("mov.u64 {window}, ", $symbol, ";"),
                        "cvta.shared.u64 {address}, {window};",
                        window = out(reg64) _,
                        address = lateout(reg64) address,
                        options(pure, nomem, nostack)
                    );
                }
                address
            }
        }
    };
}
