//! Floats that several threads may change at once, and the atomic instructions beneath.
//!
//! `core::sync::atomic` works in kernels too, for integers and at system scope. The types here are floats,
//! and each has a *scope*: the threads among which it is atomic. A narrower scope is faster. `from_ptr` makes
//! one of a number in memory: `AtomicF32::from_ptr(sums.add(i)).fetch_add(x, Relaxed)`.
//!
//! | scope | types |
//! |---|---|
//! | block | [`BlockAtomicF32`], [`BlockAtomicF64`] (methods are `unsafe`: other blocks are not kept out) |
//! | device | [`AtomicF32`], [`AtomicF64`] |
//! | system: all devices and the host | [`SystemAtomicF32`], [`SystemAtomicF64`] |
//!
//! Floats have no minimum and no maximum, which PTX lacks too. Those of integers take a pointer and the
//! order: [`mid::atomic_fetch_min_u32_device`] and its kin.
//!
//! Additions of `f32` in global memory flush subnormal numbers: they take them for zeros of the same sign,
//! and give such zeros. In shared memory, and those of `f64`, they do not. The old value comes as it was. On
//! the host, outside of a kernel, nothing is flushed.

#[cfg(not(target_arch = "nvptx64"))]
mod executor;
pub mod intrinsics;
pub mod mid;
mod operations;
pub mod pairs;

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use pastey::paste;

/// The promise that the caller of an unsafe method makes.
macro_rules! safety {
    (unsafe) => {
        "\n# Safety\n\nNo thread of another block uses the value at the same time."
    };
}

/// A method that changes the value and returns the old one.
macro_rules! fetch {
    ($doc:literal $name:ident $op:ident $float:ident $scope:ident $($unsafety:ident)?) => {
        paste! {
            #[doc = $doc]
            $(#[doc = safety!($unsafety)])?
            #[inline(always)]
            #[track_caller]
            pub $($unsafety)? fn $name(&self, value: $float, order: Ordering) -> $float {
                // SAFETY: the cell is valid and aligned, and the methods, all of them atomic, alone reach it.
                // A caller of a scope that covers less than the device keeps other blocks away.
                unsafe { mid::[<atomic_fetch_ $op _ $float _ $scope>](self.value.get(), order, value) }
            }
        }
    };
}

macro_rules! atomic_float {
    ($(#[$doc:meta])* $name:ident, $float:ident, $width:literal, $scope:ident $(, $unsafety:ident)?) => {
        paste! {
            $(#[$doc])*
            ///
            /// Same size and bits as the float, and aligned to its size. On the host it works outside of
            /// kernels too. In a kernel it lies in global or shared memory, not in a thread's own variable,
            /// which `atom` does not reach.
            #[repr(transparent)]
            pub struct $name {
                value: UnsafeCell<$float>,
            }

            // SAFETY: the value is reached by atomic instructions only; where these cover less than the
            // device, the methods are unsafe.
            unsafe impl Sync for $name {}

            impl $name {
                /// A new atomic that holds `value`.
                pub const fn new(value: $float) -> Self {
                    Self { value: UnsafeCell::new(value) }
                }

                /// The float at `ptr`, such as an element of a buffer, as an atomic.
                ///
                /// # Safety
                ///
                /// `ptr` is aligned to the float's size, and valid as long as the atomic is used. Meanwhile
                /// every access to the value is atomic.
                #[inline(always)]
                pub const unsafe fn from_ptr<'a>(ptr: *mut $float) -> &'a Self {
                    // SAFETY: an atomic has the layout of its float; the caller vouches for the rest.
                    unsafe { &*ptr.cast() }
                }

                /// The value. No other thread has access to it.
                pub fn into_inner(self) -> $float {
                    self.value.into_inner()
                }

                fetch!("Adds `value`; the old value. PTX `atom.add`."
                    fetch_add add $float $scope $($unsafety)?);
                fetch!("Subtracts `value`, by adding its negative; the old value. PTX `atom.add`."
                    fetch_sub sub $float $scope $($unsafety)?);
                fetch!("Bitwise and with the bits of `value`; the old value. PTX `atom.and`."
                    fetch_and and $float $scope $($unsafety)?);
                fetch!("Bitwise or with the bits of `value`; the old value. PTX `atom.or`."
                    fetch_or or $float $scope $($unsafety)?);
                fetch!("Bitwise exclusive or with the bits of `value`; the old value. PTX `atom.xor`."
                    fetch_xor xor $float $scope $($unsafety)?);
                fetch!("Puts `value` in; the old value. PTX `atom.exch`."
                    swap exch $float $scope $($unsafety)?);

                /// The value. PTX `ld.acquire`, `ld.relaxed`.
                $(#[doc = safety!($unsafety)])?
                ///
                /// # Panics
                ///
                /// When `order` is `Release` or `AcqRel`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn load(&self, order: Ordering) -> $float {
                    // SAFETY: as for the methods that change the value.
                    $float::from_bits(unsafe {
                        mid::[<atomic_load_ $width _ $scope>](self.value.get().cast(), order)
                    })
                }

                /// Puts `value` in. PTX `st.release`, `st.relaxed`.
                $(#[doc = safety!($unsafety)])?
                ///
                /// # Panics
                ///
                /// When `order` is `Acquire` or `AcqRel`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn store(&self, value: $float, order: Ordering) {
                    let bits = value.to_bits();
                    // SAFETY: as for the methods that change the value.
                    unsafe { mid::[<atomic_store_ $width _ $scope>](self.value.get().cast(), order, bits) }
                }
            }
        }
    };
}

atomic_float!(/// An `f32` that all threads of the device may change at once.
    AtomicF32, f32, 32, device);
atomic_float!(/// An `f64` that all threads of the device may change at once.
    AtomicF64, f64, 64, device);
atomic_float!(/// An `f32` that the threads of one block may change at once.
    BlockAtomicF32, f32, 32, block, unsafe);
atomic_float!(/// An `f64` that the threads of one block may change at once.
    BlockAtomicF64, f64, 64, block, unsafe);
atomic_float!(/// An `f32` that the threads of all devices and the host may change at once.
    SystemAtomicF32, f32, 32, system);
atomic_float!(/// An `f64` that the threads of all devices and the host may change at once.
    SystemAtomicF64, f64, 64, system);
