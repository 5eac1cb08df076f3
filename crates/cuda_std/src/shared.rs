//! Shared memory: what the threads of a block have in common.
//!
//! * [`shared_array!`](crate::shared_array): an array at the place where it is used, as a raw pointer;
//! * [`#[address_space(shared)]`](crate::address_space) on a `static mut`: a variable with a name;
//! * [`dynamic_shared_mem`]: as many bytes as the launch asks for.
//!
//! All of it is uninitialised when a kernel starts and lives as long as the block.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

#[cfg(target_arch = "nvptx64")]
use core::arch::{asm, global_asm};

#[cfg(target_arch = "nvptx64")]
global_asm!(".extern .shared .align {align} .b8 __ironwarp_dynamic_shared[];", align = const DYNAMIC_ALIGN);

/// Declares the shared variable `$name` of type `$ty`, with the PTX symbol `$symbol`: the module `$key` with
/// its type `Key`.
///
/// `global_asm!` may not stand among the statements of a function, but it may in a module there. That module
/// does not see the function's constants, on which `$ty` may depend; an implementation beside it does, and
/// carries them in.
#[doc(hidden)]
#[macro_export]
macro_rules! __shared_variable {
    ($vis:vis $key:ident, $name:expr, $symbol:literal, $ty:ty) => {
        #[doc(hidden)]
        #[allow(non_snake_case)]
        $vis mod $key {
            pub(super) struct Key;
            #[cfg(target_arch = "nvptx64")]
            ::core::arch::global_asm!(
                concat!(".shared .align {align} .b8 ", $symbol, "[{size}];"),
                align = const <Key as $crate::shared::Variable>::ALIGN,
                size = const <Key as $crate::shared::Variable>::SIZE,
            );
        }

        // SAFETY: the variable is of that size and alignment, and no other has its symbol or key.
        unsafe impl $crate::shared::Variable for $key::Key {
            type Value = $ty;

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn address() -> *mut u8 {
                let window: u64;
                // SAFETY: computes an address.
                unsafe {
                    ::core::arch::asm!(
                        concat!("mov.u64 {0}, ", $symbol, ";"),
                        lateout(reg64) window,
                        options(pure, nomem, nostack)
                    );
                }
                $crate::shared::at(window)
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[track_caller]
            fn address() -> *mut u8 {
                static KEY: $crate::__private::StaticKey = $crate::__private::StaticKey::new($name);
                $crate::__private::alloc_static(
                    &KEY,
                    <Self as $crate::shared::Variable>::SIZE,
                    <Self as $crate::shared::Variable>::ALIGN,
                )
            }
        }
    };
}

/// The pointer to an address of the shared window.
///
/// The optimiser makes loads and stores through it `ld.shared` and `st.shared`: it sees an offset from the
/// one object in shared memory that the compiler has. The builder replaces that object's address by 0, so
/// that nothing is left to subtract.
#[doc(hidden)]
#[cfg(all(target_arch = "nvptx64", ironwarp_shared_object))]
#[inline(always)]
pub fn at(window: u64) -> *mut u8 {
    let object = core::intrinsics::gpu::gpu_launch_sized_workgroup_mem::<u8>();
    let offset: usize;
    // SAFETY: computes a difference of addresses.
    unsafe {
        asm!(
            "{{ .reg .b64 object; mov.b64 object, gpu_launch_sized_workgroup_mem; sub.s64 {0}, {1}, object; }}",
            lateout(reg64) offset,
            in(reg64) window,
            options(pure, nomem, nostack)
        );
    }
    object.wrapping_byte_add(offset)
}

/// The pointer to an address of the shared window. Loads and stores through it are generic: this compiler has
/// no objects in shared memory.
#[doc(hidden)]
#[cfg(all(target_arch = "nvptx64", not(ironwarp_shared_object)))]
#[inline(always)]
pub fn at(window: u64) -> *mut u8 {
    let address: *mut u8;
    // SAFETY: computes an address.
    unsafe {
        asm!(
            "cvta.shared.u64 {0}, {1};",
            lateout(reg64) address,
            in(reg64) window,
            options(pure, nomem, nostack)
        );
    }
    address
}

/// Start of the dynamic shared memory, whose size the launch sets. Every call gives the same pointer, aligned
/// to 1024 bytes on the device (see `DYNAMIC_ALIGN`).
#[inline(always)]
#[track_caller]
pub fn dynamic_shared_mem<T>() -> *mut T {
    arms! {
        ptx: {
            let address: *mut T;
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
        sim: { simt::shared::dynamic().cast() }
    }
}

/// The same pointer, but the compiler no longer knows that it is one to shared memory: accesses through it
/// are generic.
///
/// For a kernel that touches shared memory once, behind a long loop: for sm_90, ptxas keeps the base of
/// shared accesses in a register all the while, and may spill another.
#[inline(always)]
#[must_use]
pub fn generic<T>(ptr: *mut T) -> *mut T {
    arms! {
        ptx: {
            let same;
            // SAFETY: does nothing.
            unsafe {
                asm!("mov.b64 {0}, {1};", lateout(reg64) same, in(reg64) ptr, options(pure, nomem, nostack, preserves_flags))
            };
            same
        }
        sim: { ptr }
    }
}

/// The 32-bit shared address of what `ptr` points to: what the loads, stores and copies of
/// [`vector`](crate::vector), [`async_copy`](crate::async_copy) and [`matrix`](crate::matrix) take.
///
/// `ptr` points to shared memory of this block; for any other pointer the address means nothing (in the
/// executor: a fault).
///
/// # PTX
/// `cvta.to.shared.u64`
#[inline(always)]
#[track_caller]
#[must_use]
pub fn address_of<T>(ptr: *const T) -> u32 {
    arms! {
        ptx: {
            let address: u64;
            // SAFETY: computes an address.
            unsafe {
                asm!("cvta.to.shared.u64 {0}, {1};", out(reg64) address, in(reg64) ptr, options(pure, nomem, nostack))
            };
            address as u32
        }
        sim: { simt::shared::to_address(ptr) }
    }
}

/// Tells the checker that a kernel may read so many bytes at a shared address before it has written them,
/// because it discards what it computes from them. No instruction on a GPU; in the executor they are NaN
/// until they are written.
#[inline(always)]
#[track_caller]
pub fn leave_unwritten(address: u32, bytes: u32) {
    arms! {
        ptx: { let _ = (address, bytes); }
        sim: { simt::shared::leave_unwritten(address, bytes) }
    }
}

/// Alignment of the dynamic shared memory in bytes: what the 128-byte swizzle of tensor-core operands asks
/// for.
pub const DYNAMIC_ALIGN: usize = 1024;

/// A variable in shared memory, as `#[address_space(shared)]` and `shared_array!` declare it.
///
/// # Safety
///
/// `address` gives `SIZE` bytes of shared memory, aligned to `ALIGN`, which are this variable's alone.
#[doc(hidden)]
pub unsafe trait Variable {
    /// The type of the variable.
    type Value;

    /// Bytes to reserve: PTX has no empty variables.
    const SIZE: usize = if size_of::<Self::Value>() == 0 { 1 } else { size_of::<Self::Value>() };

    /// Alignment in bytes. Anything large enough for a 16-byte access is aligned for it, so that vector and
    /// asynchronous copies work on every tile.
    const ALIGN: usize =
        if Self::SIZE >= 16 && align_of::<Self::Value>() < 16 { 16 } else { align_of::<Self::Value>() };

    /// Generic address of the variable, in the block of the calling thread.
    fn address() -> *mut u8;
}

/// Stands for the shared variable `V` in the program; a reference to it is a reference to the variable.
#[doc(hidden)]
pub struct Shared<V>(PhantomData<V>);

impl<V: Variable> Shared<V> {
    /// The stand-in, which holds nothing itself.
    ///
    /// # Safety
    ///
    /// Code that dereferences it upholds the contract of a `static mut`: the variable has been written, and
    /// no other thread writes it at the same time.
    pub const unsafe fn new() -> Self {
        Self(PhantomData)
    }

    /// Pointer to the variable.
    #[inline(always)]
    #[track_caller]
    pub fn get() -> *mut V::Value {
        V::address().cast()
    }
}

impl<V: Variable> Deref for Shared<V> {
    type Target = V::Value;

    #[inline(always)]
    #[track_caller]
    fn deref(&self) -> &V::Value {
        // SAFETY: the address is that of a variable of this type. That it has been written, and that no other
        // thread writes it now, is promised by the code that made the stand-in.
        unsafe { &*Self::get() }
    }
}

impl<V: Variable> DerefMut for Shared<V> {
    #[inline(always)]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut V::Value {
        // SAFETY: as for `deref`.
        unsafe { &mut *Self::get() }
    }
}
