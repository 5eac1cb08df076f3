//! Floats that several threads may change at once, and the atomic instructions beneath.
//!
//! `core::sync::atomic` works in kernels too, for integers and at system scope. The types here are floats,
//! and each has a *scope*: the threads among which it is atomic. A narrower scope is faster.
//!
//! | scope | types |
//! |---|---|
//! | block | [`BlockAtomicF32`], [`BlockAtomicF64`] (methods are `unsafe`: other blocks are not kept out) |
//! | device | [`AtomicF32`], [`AtomicF64`] |
//! | system: all devices and the host | [`SystemAtomicF32`], [`SystemAtomicF64`] |

#[cfg(not(target_arch = "nvptx64"))]
mod executor;
pub mod intrinsics;
pub mod mid;
mod operations;

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use pastey::paste;

macro_rules! atomic_float {
    ($(#[$doc:meta])* $name:ident, $float:ident, $width:literal, $scope:ident $(, $unsafety:ident)?) => {
        paste! {
            $(#[$doc])*
            ///
            /// Same size and bits as the float, and aligned to its size. On the host it works outside of
            /// kernels too.
            #[repr(transparent)]
            pub struct $name {
                value: UnsafeCell<$float>,
            }

            // SAFETY: the value is reached by atomic instructions only; where these cover less than the
            // device, the methods are unsafe.
            unsafe impl Sync for $name {}

            #[allow(clippy::missing_safety_doc)] // The type's table says it once.
            impl $name {
                /// A new atomic that holds `value`.
                pub const fn new(value: $float) -> Self {
                    Self { value: UnsafeCell::new(value) }
                }

                /// The value. No other thread has access to it.
                pub fn into_inner(self) -> $float {
                    self.value.into_inner()
                }

                /// Adds `value`; the old value. PTX `atom.add`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn fetch_add(&self, value: $float, order: Ordering) -> $float {
                    // SAFETY: the cell is valid and aligned.
                    unsafe { mid::[<atomic_fetch_add_ $float _ $scope>](self.value.get(), order, value) }
                }

                /// Subtracts `value`, by adding its negative; the old value. PTX `atom.add`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn fetch_sub(&self, value: $float, order: Ordering) -> $float {
                    // SAFETY: the cell is valid and aligned.
                    unsafe { mid::[<atomic_fetch_sub_ $float _ $scope>](self.value.get(), order, value) }
                }

                /// Bitwise and with the bits of `value`; the old value. PTX `atom.and`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn fetch_and(&self, value: $float, order: Ordering) -> $float {
                    // SAFETY: the cell is valid and aligned.
                    unsafe { mid::[<atomic_fetch_and_ $float _ $scope>](self.value.get(), order, value) }
                }

                /// Bitwise or with the bits of `value`; the old value. PTX `atom.or`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn fetch_or(&self, value: $float, order: Ordering) -> $float {
                    // SAFETY: the cell is valid and aligned.
                    unsafe { mid::[<atomic_fetch_or_ $float _ $scope>](self.value.get(), order, value) }
                }

                /// Bitwise exclusive or with the bits of `value`; the old value. PTX `atom.xor`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn fetch_xor(&self, value: $float, order: Ordering) -> $float {
                    // SAFETY: the cell is valid and aligned.
                    unsafe { mid::[<atomic_fetch_xor_ $float _ $scope>](self.value.get(), order, value) }
                }

                /// Puts `value` in; the old value. PTX `atom.exch`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn swap(&self, value: $float, order: Ordering) -> $float {
                    // SAFETY: the cell is valid and aligned.
                    unsafe { mid::[<atomic_fetch_exch_ $float _ $scope>](self.value.get(), order, value) }
                }

                /// The value. PTX `ld.acquire`, `ld.relaxed`.
                ///
                /// # Panics
                ///
                /// When `order` is `Release` or `AcqRel`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn load(&self, order: Ordering) -> $float {
                    // SAFETY: the cell is valid and aligned.
                    let bits = unsafe { mid::[<atomic_load_ $width _ $scope>](self.value.get().cast(), order) };
                    $float::from_bits(bits)
                }

                /// Puts `value` in. PTX `st.release`, `st.relaxed`.
                ///
                /// # Panics
                ///
                /// When `order` is `Acquire` or `AcqRel`.
                #[inline(always)]
                #[track_caller]
                pub $($unsafety)? fn store(&self, value: $float, order: Ordering) {
                    // SAFETY: the cell is valid and aligned.
                    unsafe { mid::[<atomic_store_ $width _ $scope>](self.value.get().cast(), order, value.to_bits()) }
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
