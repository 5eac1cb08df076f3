//! Address spaces: which memory a pointer points into, and addresses inside one memory.
//!
//! An ordinary (generic) pointer reaches all memories. An address inside one space means something only to
//! instructions for that space, such as `ld.shared`.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

/// `asm!` that maps a 64-bit address to another one.
#[cfg(target_arch = "nvptx64")]
macro_rules! map_address {
    ($instruction:literal, $address:ident) => {{
        let mapped;
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
#[cfg(target_arch = "nvptx64")]
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

/// A memory of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// Read and written by the whole device.
    Global,
    /// Read and written by the threads of a block.
    Shared,
    /// Read by the whole device.
    Constant,
    /// Read and written by one thread.
    Local,
}

/// Whether a generic pointer points into `address_space`. PTX `isspacep`. Shared memory of another block of
/// the cluster is in none of them.
///
/// # Safety
///
/// `ptr` must point to a valid `T`.
#[inline(always)]
#[track_caller]
pub unsafe fn is_in_address_space<T>(ptr: *const T, address_space: AddressSpace) -> bool {
    arms! {
        ptx: {
            match address_space {
                AddressSpace::Global => is_space!("isspacep.global", ptr),
                AddressSpace::Shared => is_space!("isspacep.shared", ptr),
                AddressSpace::Constant => is_space!("isspacep.const", ptr),
                AddressSpace::Local => is_space!("isspacep.local", ptr),
            }
        }
        sim: {
            match address_space {
                AddressSpace::Global => simt::memory::is_global(ptr),
                AddressSpace::Shared => simt::shared::contains(ptr),
                AddressSpace::Local => simt::memory::is_local(ptr),
                // The executor does not tell constants from global memory.
                AddressSpace::Constant => false,
            }
        }
    }
}

/// The address inside `address_space` of what a generic pointer points to. PTX `cvta.to`.
///
/// # Safety
///
/// `ptr` must point to a valid `T` in that address space. The result must not be dereferenced in Rust.
#[inline(always)]
#[track_caller]
pub unsafe fn convert_generic_to_specific_address_space<T>(
    ptr: *const T,
    address_space: AddressSpace,
) -> *const T {
    arms! {
        ptx: {
            match address_space {
                AddressSpace::Global => map_address!("cvta.to.global.u64", ptr),
                AddressSpace::Shared => map_address!("cvta.to.shared.u64", ptr),
                AddressSpace::Constant => map_address!("cvta.to.const.u64", ptr),
                AddressSpace::Local => map_address!("cvta.to.local.u64", ptr),
            }
        }
        sim: {
            match address_space {
                AddressSpace::Shared => std::ptr::without_provenance(simt::shared::to_address(ptr) as usize),
                _ => ptr,
            }
        }
    }
}

/// The generic pointer to what has the address `ptr` inside `address_space`. PTX `cvta`.
///
/// # Safety
///
/// `ptr` must be the address of a valid `T` in that address space.
#[inline(always)]
#[track_caller]
pub unsafe fn convert_specific_address_space_to_generic<T>(
    ptr: *const T,
    address_space: AddressSpace,
) -> *const T {
    arms! {
        ptx: {
            match address_space {
                AddressSpace::Global => map_address!("cvta.global.u64", ptr),
                AddressSpace::Shared => map_address!("cvta.shared.u64", ptr),
                AddressSpace::Constant => map_address!("cvta.const.u64", ptr),
                AddressSpace::Local => map_address!("cvta.local.u64", ptr),
            }
        }
        sim: {
            match address_space {
                // An address of the shared window fits in 32 bits; anything else is nonsense and faults
                // there.
                AddressSpace::Shared => {
                    simt::shared::from_address(u32::try_from(ptr.addr()).unwrap_or(u32::MAX)).cast_const().cast()
                }
                _ => ptr,
            }
        }
    }
}
