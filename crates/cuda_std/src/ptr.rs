//! Address spaces: which memory a pointer points into, and addresses inside one memory.
//!
//! An ordinary (generic) pointer reaches all memories. An address inside one space means something only to instructions
//! for that space, such as `ld.shared`.

use crate::arch::ptr as arch;

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

/// Whether a generic pointer points into `address_space`. PTX `isspacep`.
///
/// # Safety
///
/// `ptr` must point to a valid `T`.
#[inline(always)]
#[track_caller]
pub unsafe fn is_in_address_space<T>(ptr: *const T, address_space: AddressSpace) -> bool {
    arch::is_in(ptr.cast(), address_space)
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
    arch::to_specific(ptr.cast(), address_space).cast()
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
    arch::to_generic(ptr.cast(), address_space).cast()
}
