//! One function for every atomic instruction, by name: `atomic_fetch_<op>_<order>_<type>_<scope>`,
//! `atomic_load_<order>_<width>_<scope>`, `atomic_store_<order>_<width>_<scope>`, `fence_<order>_<scope>`.
//!
//! * order: `relaxed`, `acquire`, `release`, `acqrel`, and `volatile`, which is relaxed under its older name;
//! * scope: `block` (PTX `.cta`), `device` (`.gpu`), `system` (`.sys`);
//! * operations: `add`, `sub`, `and`, `or`, `xor`, `exch`, `cas` for `u32`, `i32`, `u64`, `i64`, `f32`,
//!   `f64`; `min` and `max` for integers; `inc` and `dec` for `u32`. The logical ones and `cas` work on the
//!   bits of a float.
//!
//! All return the old value. [`mid`](super::mid) takes the order as an argument, but has no `cas`, `inc` and
//! `dec`.
//!
//! # Safety
//!
//! The pointer must be valid and aligned to the size of the type, and what it points to must be reached by
//! atomic instructions only, as long as several threads do so.

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;
#[cfg(not(target_arch = "nvptx64"))]
use std::sync::atomic::Ordering;

use pastey::paste;
#[cfg(not(target_arch = "nvptx64"))]
use simt::memory::Scope;

#[cfg(not(target_arch = "nvptx64"))]
use super::executor::{fence_at, fetch, load, on_bits, operand, same_bits, store};
use super::operations::operations;

/// Calls `$then!(row order scope (PTX of both) executor's order, executor's scope)` for every scope and the
/// given orders, each with its PTX and the executor's name.
macro_rules! every_scope {
    ($then:ident! $row:tt $($order:ident $ptx:tt $sim:ident),*) => {$(
        $then!($row $order block (qualifiers!($ptx ".cta")) $sim Block);
        $then!($row $order device (qualifiers!($ptx ".gpu")) $sim Device);
        $then!($row $order system (qualifiers!($ptx ".sys")) $sim System);
    )*};
}

/// The PTX of an order and a scope. Volatile loads and stores name no scope.
#[cfg(target_arch = "nvptx64")]
macro_rules! qualifiers {
    (".volatile" $scope:literal) => {
        ".volatile"
    };
    ($order:literal $scope:literal) => {
        concat!($order, $scope)
    };
}

/// The fences: name, PTX, the executor's scope.
macro_rules! fences {
    ($($name:ident $ptx:literal $scope:ident;)*) => {$(
        #[doc = concat!("Fence, PTX `", $ptx, "`.")]
        ///
        /// # Safety
        ///
        /// Always safe to call; `unsafe` as in Rust-CUDA.
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name() {
            arms! {
                // SAFETY: a fence touches no memory of its own.
                ptx: { unsafe { asm!(concat!($ptx, ";")) } }
                sim: { fence_at(Scope::$scope) }
            }
        }
    )*};
}

fences! {
    fence_sc_block "fence.sc.cta" Block;
    fence_sc_device "fence.sc.gpu" Device;
    fence_sc_system "fence.sc.sys" System;
    fence_acqrel_block "fence.acq_rel.cta" Block;
    fence_acqrel_device "fence.acq_rel.gpu" Device;
    fence_acqrel_system "fence.acq_rel.sys" System;
    membar_block "membar.cta" Block;
    membar_device "membar.gl" Device;
    membar_system "membar.sys" System;
}

/// A load in one order and scope.
macro_rules! load {
    (
        ($bits:ident $width:literal $reg:ident)
        $order:ident $scope:ident ($qualifiers:expr) $sim_order:ident $sim_scope:ident
    ) => {
        paste! {
            #[doc = concat!(
                "Loads ", $width, " bits, `", stringify!($order), "`, scope `", stringify!($scope), "`."
            )]
            ///
            /// # Safety
            ///
            /// The pointer is as [the module](self) asks.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_load_ $order _ $width _ $scope>](ptr: *const $bits) -> $bits {
                arms! {
                    ptx: {
                        let value: $bits;
                        // SAFETY: the caller vouches for the pointer; the instruction reads one value there.
                        unsafe {
                            asm!(
                                concat!("ld", $qualifiers, ".", stringify!($bits), " {}, [{}];"),
                                lateout($reg) value, in(reg64) ptr,
                            )
                        };
                        value
                    }
                    sim: {
                        // SAFETY: the caller vouches for the pointer.
                        unsafe { load(ptr, Ordering::$sim_order, Scope::$sim_scope) }
                    }
                }
            }
        }
    };
}

/// A store in one order and scope.
macro_rules! store {
    (
        ($bits:ident $width:literal $reg:ident)
        $order:ident $scope:ident ($qualifiers:expr) $sim_order:ident $sim_scope:ident
    ) => {
        paste! {
            #[doc = concat!(
                "Stores ", $width, " bits, `", stringify!($order), "`, scope `", stringify!($scope), "`."
            )]
            ///
            /// # Safety
            ///
            /// The pointer is as [the module](self) asks.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_store_ $order _ $width _ $scope>](ptr: *mut $bits, val: $bits) {
                arms! {
                    ptx: {
                        // SAFETY: the caller vouches for the pointer; the instruction writes one value there.
                        unsafe {
                            asm!(
                                concat!("st", $qualifiers, ".", stringify!($bits), " [{}], {};"),
                                in(reg64) ptr, in($reg) val,
                            )
                        }
                    }
                    // SAFETY: the caller vouches for the pointer.
                    sim: { unsafe { store(ptr, val, Ordering::$sim_order, Scope::$sim_scope) } }
                }
            }
        }
    };
}

/// The loads and stores of a row: type, width, registers.
macro_rules! loads_and_stores {
    ($($row:tt)*) => {$(
        every_scope!(load! $row
            relaxed ".relaxed" Relaxed, acquire ".acquire" Acquire, volatile ".volatile" Relaxed);
        every_scope!(store! $row
            relaxed ".relaxed" Relaxed, release ".release" Release, volatile ".volatile" Relaxed);
    )*};
}

loads_and_stores!((u32 32 reg32) (u64 64 reg64));

/// A row of [`operations`] for one type, in one order and scope.
macro_rules! fetch {
    (
        ($op:ident $does:literal
            { $atom:ident |$old:ident $(, $arg:ident)+| $new:expr $(, $changed:ident = $by:expr)? }
            $ty:ident $ptx:ident $reg:ident)
        $order:ident $scope:ident ($qualifiers:expr) $sim_order:ident $sim_scope:ident
    ) => {
        paste! {
            #[doc = concat!(
                $does, ": `", stringify!($ty), "`, `", stringify!($order), "`, scope `", stringify!($scope),
                "`; the old value."
            )]
            ///
            /// # Safety
            ///
            /// The pointer is as [the module](self) asks.
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_fetch_ $op _ $order _ $ty _ $scope>](
                ptr: *mut $ty $(, $arg: $ty)+
            ) -> $ty {
                $(let $changed = $by;)?
                arms! {
                    ptx: {
                        let old: $ty;
                        // SAFETY: the caller vouches for the pointer; the instruction reads and writes one
                        // value there.
                        unsafe {
                            asm!(
                                concat!(
                                    "atom", $qualifiers, ".", stringify!($atom), ".", stringify!($ptx),
                                    " {}, [{}]" $(, ", {", stringify!($arg), "}")+ , ";"
                                ),
                                lateout($reg) old, in(reg64) ptr $(, $arg = in($reg) $arg)+
                            )
                        };
                        old
                    }
                    sim: {
                        $(let $arg = operand(stringify!($atom), ptr, $arg);)+
                        // SAFETY: the caller vouches for the pointer.
                        unsafe {
                            let (order, scope) = (Ordering::$sim_order, Scope::$sim_scope);
                            fetch(stringify!($atom), ptr, order, scope, |$old: $ty| $new)
                        }
                    }
                }
            }
        }
    };
}

/// The rows of [`operations`] in every order and scope.
macro_rules! fetches {
    ($($op:ident $does:literal $how:tt $($ty:ident $ptx:ident $reg:ident),+;)*) => {$($(
        every_scope!(fetch! ($op $does $how $ty $ptx $reg)
            relaxed ".relaxed" Relaxed, acquire ".acquire" Acquire, release ".release" Release,
            acqrel ".acq_rel" AcqRel, volatile "" Relaxed);
    )+)*};
}

operations!(fetches);
