//! The atomic instructions with the memory order as an argument, which should be a constant:
//! `atomic_fetch_<op>_<type>_<scope>`, `atomic_load_<width>_<scope>`, `atomic_store_<width>_<scope>`,
//! `<scope>_thread_fence`. `cas`, `inc` and `dec` are in [`intrinsics`] alone.
//!
//! # Safety
//!
//! As for [`intrinsics`].

use core::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

use pastey::paste;

use super::intrinsics;
use super::operations::operations;

macro_rules! fences {
    ($($scope:ident)*) => {$(
        paste! {
            #[doc = concat!("Fence of scope `", stringify!($scope), "`; `Relaxed` does nothing.")]
            #[inline(always)]
            #[track_caller]
            pub fn [<$scope _thread_fence>](ordering: Ordering) {
                // SAFETY: a fence touches no memory.
                unsafe {
                    match ordering {
                        Relaxed => {}
                        SeqCst => intrinsics::[<fence_sc_ $scope>](),
                        _ => intrinsics::[<fence_acqrel_ $scope>](),
                    }
                }
            }
        }
    )*};
}

fences!(block device system);

macro_rules! loads_and_stores {
    ($($bits:ident $width:literal $scope:ident;)*) => {$(
        paste! {
            #[doc = concat!("Loads ", stringify!($width), " bits at scope `", stringify!($scope), "`.")]
            ///
            /// # Panics
            ///
            /// When `ordering` is `Release` or `AcqRel`.
            ///
            /// # Safety
            ///
            /// The pointer is as [the module](self) asks.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_load_ $width _ $scope>](ptr: *mut $bits, ordering: Ordering) -> $bits {
                // SAFETY: the caller's promise is the same.
                unsafe {
                    match ordering {
                        Relaxed => intrinsics::[<atomic_load_relaxed_ $width _ $scope>](ptr),
                        Acquire => intrinsics::[<atomic_load_acquire_ $width _ $scope>](ptr),
                        SeqCst => {
                            intrinsics::[<fence_sc_ $scope>]();
                            intrinsics::[<atomic_load_acquire_ $width _ $scope>](ptr)
                        }
                        _ => panic!("there is no such thing as a release load"),
                    }
                }
            }

            #[doc = concat!("Stores ", stringify!($width), " bits at scope `", stringify!($scope), "`.")]
            ///
            /// # Panics
            ///
            /// When `ordering` is `Acquire` or `AcqRel`.
            ///
            /// # Safety
            ///
            /// The pointer is as [the module](self) asks.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_store_ $width _ $scope>](ptr: *mut $bits, ordering: Ordering, val: $bits) {
                // SAFETY: the caller's promise is the same.
                unsafe {
                    match ordering {
                        Relaxed => intrinsics::[<atomic_store_relaxed_ $width _ $scope>](ptr, val),
                        Release => intrinsics::[<atomic_store_release_ $width _ $scope>](ptr, val),
                        SeqCst => {
                            intrinsics::[<fence_sc_ $scope>]();
                            intrinsics::[<atomic_store_relaxed_ $width _ $scope>](ptr, val);
                        }
                        _ => panic!("there is no such thing as an acquire store"),
                    }
                }
            }
        }
    )*};
}

loads_and_stores! {
    u32 32 block; u32 32 device; u32 32 system;
    u64 64 block; u64 64 device; u64 64 system;
}

/// A row of [`operations`] for one type in one scope.
macro_rules! fetch {
    // Rust-CUDA has no function with the order as an argument for these.
    (cas $($rest:tt)*) => {};
    (inc $($rest:tt)*) => {};
    (dec $($rest:tt)*) => {};
    ($op:ident $does:literal $ty:ident $scope:ident) => {
        paste! {
            #[doc = concat!(
                $does, ": `", stringify!($ty), "` at scope `", stringify!($scope), "`; the old value."
            )]
            ///
            /// # Safety
            ///
            /// The pointer is as [the module](self) asks.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_fetch_ $op _ $ty _ $scope>](
                ptr: *mut $ty, ordering: Ordering, val: $ty
            ) -> $ty {
                // SAFETY: the caller's promise is the same.
                unsafe {
                    match ordering {
                        Relaxed => intrinsics::[<atomic_fetch_ $op _relaxed_ $ty _ $scope>](ptr, val),
                        Acquire => intrinsics::[<atomic_fetch_ $op _acquire_ $ty _ $scope>](ptr, val),
                        Release => intrinsics::[<atomic_fetch_ $op _release_ $ty _ $scope>](ptr, val),
                        AcqRel => intrinsics::[<atomic_fetch_ $op _acqrel_ $ty _ $scope>](ptr, val),
                        // `SeqCst`, and whatever `core` may add: the strongest.
                        _ => {
                            intrinsics::[<fence_sc_ $scope>]();
                            intrinsics::[<atomic_fetch_ $op _acqrel_ $ty _ $scope>](ptr, val)
                        }
                    }
                }
            }
        }
    };
}

/// The rows of [`operations`] in every scope.
macro_rules! fetches {
    ($($op:ident $does:literal $how:tt $($ty:ident $ptx:ident $reg:ident),+;)*) => {$($(
        fetch!($op $does $ty block);
        fetch!($op $does $ty device);
        fetch!($op $does $ty system);
    )+)*};
}

operations!(fetches);
