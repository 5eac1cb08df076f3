//! Address spaces.

use core::arch::asm;

use crate::ptr::AddressSpace;

/// `asm!` that maps a 64-bit address to another one.
macro_rules! map_address {
    ($instruction:literal, $address:ident) => {{
        let mapped: *const u8;
        // SAFETY: computes an address.
        unsafe {
            asm!(
                concat!($instruction, " {}, {};"),
                lateout(reg64) mapped,
                in(reg64) $address,
                options(pure, nomem, nostack)
            )
        };
        mapped
    }};
}

macro_rules! is_space {
    ($instruction:literal, $address:ident) => {{
        let inside: u32;
        // SAFETY: looks at an address.
        unsafe {
            asm!(
                "{{ .reg .pred inside;",
                concat!($instruction, " inside, {};"),
                "selp.u32 {}, 1, 0, inside; }}",
                in(reg64) $address,
                lateout(reg32) inside,
                options(pure, nomem, nostack)
            )
        };
        inside != 0
    }};
}

#[inline(always)]
pub fn is_in(address: *const u8, space: AddressSpace) -> bool {
    match space {
        AddressSpace::Global => is_space!("isspacep.global", address),
        AddressSpace::Shared => is_space!("isspacep.shared", address),
        AddressSpace::Constant => is_space!("isspacep.const", address),
        AddressSpace::Local => is_space!("isspacep.local", address),
    }
}

#[inline(always)]
pub fn to_specific(address: *const u8, space: AddressSpace) -> *const u8 {
    match space {
        AddressSpace::Global => map_address!("cvta.to.global.u64", address),
        AddressSpace::Shared => map_address!("cvta.to.shared.u64", address),
        AddressSpace::Constant => map_address!("cvta.to.const.u64", address),
        AddressSpace::Local => map_address!("cvta.to.local.u64", address),
    }
}

#[inline(always)]
pub fn to_generic(address: *const u8, space: AddressSpace) -> *const u8 {
    match space {
        AddressSpace::Global => map_address!("cvta.global.u64", address),
        AddressSpace::Shared => map_address!("cvta.shared.u64", address),
        AddressSpace::Constant => map_address!("cvta.const.u64", address),
        AddressSpace::Local => map_address!("cvta.local.u64", address),
    }
}
