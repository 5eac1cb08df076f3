//! `cp.async.bulk`: tensor and plain bulk copies, their groups, cache policies.
//!
//! Nothing here is `nomem`: accesses to what is copied must not move across a copy or a wait.

use core::arch::asm;

use half::{bf16, f16};

use crate::tma::TensorMap;

/// The four loads of one number of dimensions; `$coords` is the PTX text of the coordinates.
macro_rules! load {
    ($dims:literal, $coords:literal, $($i:literal)+: $load:ident, $hint:ident, $multicast:ident, $multicast_hint:ident) => {
        #[inline(always)]
        pub unsafe fn $load(dst: u32, map: *const TensorMap, bar: u32, coords: [i32; $dims]) {
            // SAFETY: the caller vouches for the copy.
            unsafe {
                asm!(
                    concat!("cp.async.bulk.tensor.", $dims, "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{dst}], [{map}, {{", $coords, "}}], [{bar}];"),
                    $(in(reg32) coords[$i],)+
                    dst = in(reg32) dst, map = in(reg64) map, bar = in(reg32) bar, options(nostack, preserves_flags)
                );
            }
        }

        #[inline(always)]
        pub unsafe fn $hint(dst: u32, map: *const TensorMap, bar: u32, coords: [i32; $dims], policy: u64) {
            // SAFETY: the caller vouches for the copy.
            unsafe {
                asm!(
                    concat!("cp.async.bulk.tensor.", $dims, "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [{dst}], [{map}, {{", $coords, "}}], [{bar}], {policy};"),
                    $(in(reg32) coords[$i],)+
                    dst = in(reg32) dst, map = in(reg64) map, bar = in(reg32) bar, policy = in(reg64) policy,
                    options(nostack, preserves_flags)
                );
            }
        }

        #[inline(always)]
        pub unsafe fn $multicast(dst: u32, map: *const TensorMap, bar: u32, coords: [i32; $dims], mask: u16) {
            // SAFETY: the caller vouches for the copy.
            unsafe {
                asm!(
                    concat!("cp.async.bulk.tensor.", $dims, "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [{dst}], [{map}, {{", $coords, "}}], [{bar}], {mask};"),
                    $(in(reg32) coords[$i],)+
                    dst = in(reg32) dst, map = in(reg64) map, bar = in(reg32) bar, mask = in(reg16) mask,
                    options(nostack, preserves_flags)
                );
            }
        }

        #[inline(always)]
        pub unsafe fn $multicast_hint(
            dst: u32,
            map: *const TensorMap,
            bar: u32,
            coords: [i32; $dims],
            mask: u16,
            policy: u64,
        ) {
            // SAFETY: the caller vouches for the copy.
            unsafe {
                asm!(
                    concat!("cp.async.bulk.tensor.", $dims, "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [{dst}], [{map}, {{", $coords, "}}], [{bar}], {mask}, {policy};"),
                    $(in(reg32) coords[$i],)+
                    dst = in(reg32) dst, map = in(reg64) map, bar = in(reg32) bar, mask = in(reg16) mask,
                    policy = in(reg64) policy, options(nostack, preserves_flags)
                );
            }
        }
    };
}

/// The store of one number of dimensions.
macro_rules! store {
    ($dims:literal, $coords:literal, $($i:literal)+: $store:ident, $op:expr) => {
        #[inline(always)]
        pub unsafe fn $store(map: *const TensorMap, src: u32, coords: [i32; $dims]) {
            // SAFETY: the caller vouches for the copy.
            unsafe {
                asm!(
                    concat!($op, ".bulk_group [{map}, {{", $coords, "}}], [{src}];"),
                    $(in(reg32) coords[$i],)+
                    map = in(reg64) map, src = in(reg32) src, options(nostack, preserves_flags)
                );
            }
        }
    };
}

/// A reduction in one to five dimensions: a store under another name.
macro_rules! reduce {
    ($($op:literal: $d1:ident $d2:ident $d3:ident $d4:ident $d5:ident;)*) => { $(
        store!(1, "{0}", 0: $d1, concat!("cp.reduce.async.bulk.tensor.1d.global.shared::cta.", $op, ".tile"));
        store!(2, "{0}, {1}", 0 1: $d2, concat!("cp.reduce.async.bulk.tensor.2d.global.shared::cta.", $op, ".tile"));
        store!(3, "{0}, {1}, {2}", 0 1 2: $d3, concat!("cp.reduce.async.bulk.tensor.3d.global.shared::cta.", $op, ".tile"));
        store!(4, "{0}, {1}, {2}, {3}", 0 1 2 3: $d4, concat!("cp.reduce.async.bulk.tensor.4d.global.shared::cta.", $op, ".tile"));
        store!(5, "{0}, {1}, {2}, {3}, {4}", 0 1 2 3 4: $d5, concat!("cp.reduce.async.bulk.tensor.5d.global.shared::cta.", $op, ".tile"));
    )* };
}

load!(1, "{0}", 0: load_1d, load_1d_hint, load_1d_multicast, load_1d_multicast_hint);
load!(2, "{0}, {1}", 0 1: load_2d, load_2d_hint, load_2d_multicast, load_2d_multicast_hint);
load!(3, "{0}, {1}, {2}", 0 1 2: load_3d, load_3d_hint, load_3d_multicast, load_3d_multicast_hint);
load!(4, "{0}, {1}, {2}, {3}", 0 1 2 3: load_4d, load_4d_hint, load_4d_multicast, load_4d_multicast_hint);
load!(5, "{0}, {1}, {2}, {3}, {4}", 0 1 2 3 4: load_5d, load_5d_hint, load_5d_multicast, load_5d_multicast_hint);

store!(1, "{0}", 0: store_1d, "cp.async.bulk.tensor.1d.global.shared::cta.tile");
store!(2, "{0}, {1}", 0 1: store_2d, "cp.async.bulk.tensor.2d.global.shared::cta.tile");
store!(3, "{0}, {1}, {2}", 0 1 2: store_3d, "cp.async.bulk.tensor.3d.global.shared::cta.tile");
store!(4, "{0}, {1}, {2}, {3}", 0 1 2 3: store_4d, "cp.async.bulk.tensor.4d.global.shared::cta.tile");
store!(5, "{0}, {1}, {2}, {3}, {4}", 0 1 2 3 4: store_5d, "cp.async.bulk.tensor.5d.global.shared::cta.tile");

reduce! {
    "add": reduce_add_1d reduce_add_2d reduce_add_3d reduce_add_4d reduce_add_5d;
    "min": reduce_min_1d reduce_min_2d reduce_min_3d reduce_min_4d reduce_min_5d;
    "max": reduce_max_1d reduce_max_2d reduce_max_3d reduce_max_4d reduce_max_5d;
    "inc": reduce_inc_1d reduce_inc_2d reduce_inc_3d reduce_inc_4d reduce_inc_5d;
    "dec": reduce_dec_1d reduce_dec_2d reduce_dec_3d reduce_dec_4d reduce_dec_5d;
    "and": reduce_and_1d reduce_and_2d reduce_and_3d reduce_and_4d reduce_and_5d;
    "or": reduce_or_1d reduce_or_2d reduce_or_3d reduce_or_4d reduce_or_5d;
    "xor": reduce_xor_1d reduce_xor_2d reduce_xor_3d reduce_xor_4d reduce_xor_5d;
}

#[inline(always)]
pub fn commit_group() {
    // SAFETY: touches nothing but this thread's own groups.
    unsafe { asm!("cp.async.bulk.commit_group;", options(nostack, preserves_flags)) }
}

#[inline(always)]
pub fn wait_group<const PENDING: u32>() {
    // SAFETY: a wait.
    unsafe { asm!("cp.async.bulk.wait_group {0};", const PENDING, options(nostack, preserves_flags)) }
}

#[inline(always)]
pub fn wait_group_read<const PENDING: u32>() {
    // SAFETY: a wait.
    unsafe { asm!("cp.async.bulk.wait_group.read {0};", const PENDING, options(nostack, preserves_flags)) }
}

#[inline(always)]
pub unsafe fn prefetch(map: *const TensorMap) {
    // SAFETY: a hint without effect on values; the caller vouches for the map.
    unsafe { asm!("prefetch.tensormap [{0}];", in(reg64) map, options(readonly, nostack, preserves_flags)) }
}

#[inline(always)]
pub unsafe fn bulk_load(dst: u32, src: *const u8, bytes: u32, bar: u32) {
    // SAFETY: the caller vouches for the copy.
    unsafe {
        asm!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}], {2}, [{3}];",
            in(reg32) dst, in(reg64) src, in(reg32) bytes, in(reg32) bar, options(nostack, preserves_flags));
    }
}

#[inline(always)]
pub unsafe fn bulk_store(dst: *mut u8, src: u32, bytes: u32) {
    // SAFETY: the caller vouches for the copy.
    unsafe {
        asm!("cp.async.bulk.global.shared::cta.bulk_group [{0}], [{1}], {2};", in(reg64) dst, in(reg32) src,
            in(reg32) bytes, options(nostack, preserves_flags));
    }
}

macro_rules! bulk_reduce {
    ($($name:ident: $type:ty, $op:literal;)*) => { $(
        #[inline(always)]
        pub unsafe fn $name(dst: *mut $type, src: u32, bytes: u32) {
            // SAFETY: the caller vouches for the copy.
            unsafe {
                asm!(concat!("cp.reduce.async.bulk.global.shared::cta.bulk_group.", $op, " [{0}], [{1}], {2};"),
                    in(reg64) dst, in(reg32) src, in(reg32) bytes, options(nostack, preserves_flags));
            }
        }
    )* };
}

bulk_reduce! {
    bulk_reduce_add_u32: u32, "add.u32";
    bulk_reduce_add_i32: i32, "add.s32";
    bulk_reduce_add_u64: u64, "add.u64";
    bulk_reduce_add_f32: f32, "add.f32";
    bulk_reduce_add_f64: f64, "add.f64";
    bulk_reduce_add_f16: f16, "add.noftz.f16";
    bulk_reduce_add_bf16: bf16, "add.noftz.bf16";
    bulk_reduce_min_u32: u32, "min.u32";
    bulk_reduce_min_i32: i32, "min.s32";
    bulk_reduce_min_u64: u64, "min.u64";
    bulk_reduce_min_i64: i64, "min.s64";
    bulk_reduce_min_f16: f16, "min.f16";
    bulk_reduce_min_bf16: bf16, "min.bf16";
    bulk_reduce_max_u32: u32, "max.u32";
    bulk_reduce_max_i32: i32, "max.s32";
    bulk_reduce_max_u64: u64, "max.u64";
    bulk_reduce_max_i64: i64, "max.s64";
    bulk_reduce_max_f16: f16, "max.f16";
    bulk_reduce_max_bf16: bf16, "max.bf16";
    bulk_reduce_inc_u32: u32, "inc.u32";
    bulk_reduce_dec_u32: u32, "dec.u32";
    bulk_reduce_and_u32: u32, "and.b32";
    bulk_reduce_and_u64: u64, "and.b64";
    bulk_reduce_or_u32: u32, "or.b32";
    bulk_reduce_or_u64: u64, "or.b64";
    bulk_reduce_xor_u32: u32, "xor.b32";
    bulk_reduce_xor_u64: u64, "xor.b64";
}

#[inline(always)]
pub unsafe fn bulk_copy_shared(dst: u32, src: u32, bytes: u32, bar: u32) {
    // SAFETY: the caller vouches for the copy.
    unsafe {
        asm!("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{0}], [{1}], {2}, [{3}];",
            in(reg32) dst, in(reg32) src, in(reg32) bytes, in(reg32) bar, options(nostack, preserves_flags));
    }
}

macro_rules! policies {
    ($($name:ident, $op:literal;)*) => { $(
        #[inline(always)]
        pub fn $name() -> u64 {
            let policy: u64;
            // SAFETY: computes an opaque number.
            unsafe {
                asm!(concat!("createpolicy.fractional.L2::", $op, ".b64 {0}, 1.0;"), out(reg64) policy,
                    options(pure, nomem, nostack));
            }
            policy
        }
    )* };
}

policies! {
    evict_first, "evict_first";
    evict_last, "evict_last";
    evict_normal, "evict_normal";
}

/// Generic address of the parameter whose PTX symbol is `$symbol`: the entry point around it has a parameter of that name.
#[doc(hidden)]
#[macro_export]
macro_rules! __parameter_address {
    ($symbol:literal) => {{
        let address: *const $crate::tma::TensorMap;
        // SAFETY: computes the address of a parameter, which lives as long as the kernel.
        unsafe {
            ::core::arch::asm!(
                concat!("mov.b64 {place}, ", $symbol, ";"),
                "cvta.param.u64 {address}, {place};",
                place = out(reg64) _,
                address = lateout(reg64) address,
                options(pure, nomem, nostack)
            );
        }
        address
    }};
}
