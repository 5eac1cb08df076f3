//! One function for every atomic instruction, by name: `atomic_fetch_<op>_<order>_<type>_<scope>`,
//! `atomic_load_<order>_<width>_<scope>`, `atomic_store_<order>_<width>_<scope>`, `fence_<order>_<scope>`.
//!
//! * order: `relaxed`, `acquire`, `release`, `acqrel`, and `volatile`, which is relaxed under its older name;
//! * scope: `block` (PTX `.cta`), `device` (`.gpu`), `system` (`.sys`);
//! * operations: `add`, `sub`, `and`, `or`, `xor`, `exch`, `cas` for `u32`, `i32`, `u64`, `i64`, `f32`,
//!   `f64`; `min` and `max` for integers; `inc` and `dec` for `u32`. The logical ones and `cas` work on the
//!   bits of a float.
//!
//! All return the old value. [`mid`](super::mid) takes the order as an argument.
//!
//! # Safety
//!
//! The pointer must be valid and aligned to the size of the type, and what it points to must be reached by
//! atomic instructions only, as long as several threads do so.

// The module's own documentation says it for all of them.
#![allow(clippy::missing_safety_doc)]

use pastey::paste;

#[cfg(not(target_arch = "nvptx64"))]
use super::executor;
#[cfg(target_arch = "nvptx64")]
use super::instruction;

/// Calls `$macro!($args order scope)` for every scope and the given orders.
macro_rules! every_scope {
    ($macro:ident!($($args:tt)*)) => {};
    ($macro:ident!($($args:tt)*) $order:ident $($others:ident)*) => {
        $macro!($($args)* $order block);
        $macro!($($args)* $order device);
        $macro!($($args)* $order system);
        every_scope!($macro!($($args)*) $($others)*);
    };
}

macro_rules! fences {
    ($name:ident $order:ident $scope:ident) => {
        paste! {
            #[doc = concat!("Fence of scope `", stringify!($scope), "`, PTX `", stringify!($name), "`.")]
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<$name _ $scope>]() {
                arms! {
                    ptx: { instruction::fence!($order $scope) }
                    sim: { executor::fence_at(executor::scope!($scope)) }
                }
            }
        }
    };
}

every_scope!(fences!(fence_sc) sc);
every_scope!(fences!(fence_acqrel) acqrel);
every_scope!(fences!(membar) membar);

macro_rules! loads {
    ($bits:ident $width:literal $order:ident $scope:ident) => {
        paste! {
            #[doc = concat!("Loads ", stringify!($width), " bits, `", stringify!($order), "`, scope `", stringify!($scope), "`.")]
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_load_ $order _ $width _ $scope>](ptr: *const $bits) -> $bits {
                arms! {
                    ptx: { instruction::load!($bits $order $scope, ptr) }
                    // SAFETY: the caller vouches for the pointer.
                    sim: { unsafe { executor::update(ptr.cast_mut(), executor::order!($order), executor::scope!($scope), |old: $bits| old) } }
                }
            }
        }
    };
}

every_scope!(loads!(u32 32) relaxed acquire volatile);
every_scope!(loads!(u64 64) relaxed acquire volatile);

macro_rules! stores {
    ($bits:ident $width:literal $order:ident $scope:ident) => {
        paste! {
            #[doc = concat!("Stores ", stringify!($width), " bits, `", stringify!($order), "`, scope `", stringify!($scope), "`.")]
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_store_ $order _ $width _ $scope>](ptr: *mut $bits, val: $bits) {
                arms! {
                    ptx: { instruction::store!($bits $order $scope, ptr, val) }
                    // SAFETY: the caller vouches for the pointer.
                    sim: { unsafe { executor::update(ptr, executor::order!($order), executor::scope!($scope), |_: $bits| val) }; }
                }
            }
        }
    };
}

every_scope!(stores!(u32 32) relaxed release volatile);
every_scope!(stores!(u64 64) relaxed release volatile);

macro_rules! fetches {
    ($op:ident $ty:ident $order:ident $scope:ident) => {
        paste! {
            #[doc = concat!("`", stringify!($op), "` on `", stringify!($ty), "`, `", stringify!($order), "`, scope `", stringify!($scope), "`; the old value.")]
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_fetch_ $op _ $order _ $ty _ $scope>](ptr: *mut $ty, val: $ty) -> $ty {
                arms! {
                    ptx: { instruction::fetch!($op $ty $order $scope, ptr, val) }
                    sim: {
                        // SAFETY: the caller vouches for the pointer.
                        unsafe {
                            executor::update(ptr, executor::order!($order), executor::scope!($scope), |old: $ty| {
                                executor::operation!($op $ty old val)
                            })
                        }
                    }
                }
            }
        }
    };
}

macro_rules! operations {
    ($($op:ident: $($ty:ident)*;)*) => {
        $($(every_scope!(fetches!($op $ty) relaxed acquire release acqrel volatile);)*)*
    };
}

operations! {
    add: u32 i32 u64 i64 f32 f64;
    and: u32 i32 u64 i64 f32 f64;
    or: u32 i32 u64 i64 f32 f64;
    xor: u32 i32 u64 i64 f32 f64;
    exch: u32 i32 u64 i64 f32 f64;
    min: u32 i32 u64 i64;
    max: u32 i32 u64 i64;
    inc: u32;
    dec: u32;
}

/// Negation for a subtraction: PTX has no `atom.sub`.
macro_rules! negated {
    (f32 $val:ident) => {
        -$val
    };
    (f64 $val:ident) => {
        -$val
    };
    ($integer:ident $val:ident) => {
        $val.wrapping_neg()
    };
}

macro_rules! subtractions {
    ($ty:ident $order:ident $scope:ident) => {
        paste! {
            #[doc = concat!("`sub` on `", stringify!($ty), "`, `", stringify!($order), "`, scope `", stringify!($scope), "`, as an addition of the negative; the old value.")]
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_fetch_sub_ $order _ $ty _ $scope>](ptr: *mut $ty, val: $ty) -> $ty {
                // SAFETY: the caller's promise is the same.
                unsafe { [<atomic_fetch_add_ $order _ $ty _ $scope>](ptr, negated!($ty val)) }
            }
        }
    };
}

macro_rules! exchanges {
    ($ty:ident $order:ident $scope:ident) => {
        paste! {
            #[doc = concat!("Puts `val` in where `current` is found, bit for bit: `", stringify!($ty), "`, `", stringify!($order), "`, scope `", stringify!($scope), "`; the old value.")]
            #[inline(always)]
            #[track_caller]
            pub unsafe fn [<atomic_fetch_cas_ $order _ $ty _ $scope>](ptr: *mut $ty, current: $ty, val: $ty) -> $ty {
                arms! {
                    ptx: { instruction::cas!($ty $order $scope, ptr, current, val) }
                    sim: {
                        use executor::Word;
                        // SAFETY: the caller vouches for the pointer.
                        unsafe {
                            executor::update(ptr, executor::order!($order), executor::scope!($scope), |old: $ty| {
                                if Word::bits(old) == Word::bits(current) { val } else { old }
                            })
                        }
                    }
                }
            }
        }
    };
}

macro_rules! for_types {
    ($($ty:ident)*) => {$(
        every_scope!(subtractions!($ty) relaxed acquire release acqrel volatile);
        every_scope!(exchanges!($ty) relaxed acquire release acqrel volatile);
    )*};
}

for_types!(u32 i32 u64 i64 f32 f64);
