//! Bulk copies by the tensor memory accelerator (TMA): `cp.async.bulk`.
//!
//! One thread starts a copy of a whole box of a tensor, or of a run of bytes, and the copy engine does the
//! rest:
//!
//! * **Loads**, global to shared memory, report to an [`mbarrier`](crate::mbarrier): a thread lets it expect
//!   the bytes, and their readers wait for the phase. The whole box counts, bytes outside of the tensor too
//!   (they are filled in).
//! * **Stores and reductions**, shared to global memory, form groups of the thread that started them:
//!   [`commit_group`], then [`wait_group_read`] before the shared memory is written again, or [`wait_group`]
//!   before the result is used. Threads that filled the shared memory first call
//!   [`fence::proxy_async_shared`](crate::fence::proxy_async_shared), then comes a barrier.
//!
//! A [`TensorMap`] describes the tensor, the box and the swizzle; the host makes it. A kernel takes it as an
//! argument `map: &TensorMap`, which travels by value. `coords` are the box's first element along each
//! dimension, the contiguous one first, in elements; they may lie outside of the tensor, where loads read
//! zeros (or the map's other fill) and stores write nothing. Hopper has three rules of which its manual does
//! not tell: `coords[0]` is a multiple of 16 bytes' worth of elements; stores and reductions take no negative
//! coordinates (either is an illegal instruction); and they write whole units of 16 bytes, so that where
//! dimension 0 ends inside of one, what lies beside its end is overwritten. `dst` and `src` in shared memory
//! are 32-bit addresses, aligned to 128 bytes (1024 for the 128-byte swizzle).
//!
//! The `_multicast` loads write the same offset of every block of the cluster whose rank's bit is set in
//! `mask`, and report to the mbarrier at the same offset there. The `_hint` loads and stores tell L2 how
//! long to keep the lines, by a policy of [`policy`].
//!
//! The `_im2col` loads take a map of windows: what one tap of a convolution sees, for as many windows in a
//! row as the map says, line after line and image after image. Pixels outside of the image read as zeros.
//!
//! Reductions combine each element that a box or run has with the one in memory, atomically:
//!
//! | | types of elements |
//! |---|---|
//! | `add` | u32, i32, u64, f16, bf16, f32; f64 in runs alone |
//! | `min`, `max` | u32, i32, u64, i64, f16, bf16 |
//! | `inc`: `old >= new ? 0 : old + 1`; `dec`: `old == 0 or old > new ? new : old - 1` | u32 |
//! | `and`, `or`, `xor` | u32, i32, u64 |
//!
//! # Safety
//! Every function here that is `unsafe`: the map (or the global address) describes live global memory; the
//! shared memory is inside of the block's (the cluster's) and nothing else touches what a copy writes, nor
//! writes what it reads, until its completion has been waited for; `bar` is a live mbarrier that expects the
//! bytes. Addresses and coordinates are aligned as above.

pub mod policy;

#[cfg(target_arch = "nvptx64")]
use core::arch::asm;

use half::{bf16, f16};
#[cfg(not(target_arch = "nvptx64"))]
use simt::{bulk, reduction::Reduction, tensor_map::DataType};

/// Description of a tensor in global memory and of the boxes that are copied: 128 bytes whose meaning is the
/// driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap {
    opaque: [u64; Self::WORDS],
}

impl TensorMap {
    /// 64-bit words of a map.
    pub const WORDS: usize = 16;

    /// A map of the words that the driver's `cuTensorMapEncodeTiled` wrote.
    pub const fn from_words(opaque: [u64; Self::WORDS]) -> Self {
        Self { opaque }
    }

    /// The words.
    pub const fn words(&self) -> &[u64; Self::WORDS] {
        &self.opaque
    }
}

// No `asm!` of this chapter is `nomem`: accesses to what is copied must not move across a copy or a wait.

/// One load of a box: `$coords` is the PTX text of the coordinates, `$suffix` what the instruction's name
/// ends with, and `$operands` the text of the extra parameters. The executor needs no cache policy, which
/// changes no result.
macro_rules! load {
    (
        $dims:literal, $coords:literal, [$($i:literal)+]: $name:ident, $doc:expr, $suffix:literal, $operands:literal,
        ($($extra:ident: $type:ty, $class:ident);*), $mask:expr
    ) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// As the module says.
        ///
        /// # PTX
        #[doc = concat!(
            "`cp.async.bulk.tensor.", $dims, "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", $suffix, "`"
        )]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(
            dst: u32,
            map: *const TensorMap,
            bar: u32,
            coords: [i32; $dims],
            $($extra: $type),*
        ) {
            // SAFETY: the caller keeps this function's contract, which is the instruction's; a map is its
            // words.
            unsafe {
                arms! {
                    ptx: {
                        asm!(
                            concat!(
                                "cp.async.bulk.tensor.", $dims,
                                "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", $suffix,
                                " [{dst}], [{map}, {{", $coords, "}}], [{bar}]", $operands, ";"
                            ),
                            $(in(reg32) coords[$i],)+
                            dst = in(reg32) dst, map = in(reg64) map, bar = in(reg32) bar,
                            $($extra = in($class) $extra,)*
                            options(nostack, preserves_flags)
                        )
                    }
                    sim: {
                        $(let _ = $extra;)*
                        simt::tma::load(dst, map.cast(), bar, &coords, $mask)
                    }
                }
            }
        }
    };
}

/// The four loads of each number of dimensions.
macro_rules! loads {
    ($(
        $dims:literal, $coords:literal, $indices:tt:
        $load:ident, $hint:ident, $multicast:ident, $multicast_hint:ident;
    )*) => { $(
        load!(
            $dims, $coords, $indices: $load,
            concat!("Starts the load of a ", $dims, "-dimensional box to `dst`; its bytes count at `bar`."),
            "", "", (), None
        );
        load!(
            $dims, $coords, $indices: $hint,
            concat!("[`", stringify!($load), "`] with a cache policy of [`policy`]."),
            ".L2::cache_hint", ", {policy}", (policy: u64, reg64), None
        );
        load!(
            $dims, $coords, $indices: $multicast,
            concat!("[`", stringify!($load), "`] to every block of the cluster whose bit is set in `mask`."),
            ".multicast::cluster", ", {mask}", (mask: u16, reg16), Some(mask)
        );
        load!(
            $dims, $coords, $indices: $multicast_hint,
            concat!("[`", stringify!($multicast), "`] with a cache policy of [`policy`]."),
            ".multicast::cluster.L2::cache_hint", ", {mask}, {policy}", (mask: u16, reg16; policy: u64, reg64),
            Some(mask)
        );
    )* };
}

loads! {
    1, "{0}", [0]: load_1d, load_1d_hint, load_1d_multicast, load_1d_multicast_hint;
    2, "{0}, {1}", [0 1]: load_2d, load_2d_hint, load_2d_multicast, load_2d_multicast_hint;
    3, "{0}, {1}, {2}", [0 1 2]: load_3d, load_3d_hint, load_3d_multicast, load_3d_multicast_hint;
    4, "{0}, {1}, {2}, {3}", [0 1 2 3]: load_4d, load_4d_hint, load_4d_multicast, load_4d_multicast_hint;
    5, "{0}, {1}, {2}, {3}, {4}", [0 1 2 3 4]: load_5d, load_5d_hint, load_5d_multicast, load_5d_multicast_hint;
}

/// A load of channels of pixels in im2col mode.
macro_rules! load_im2col {
    (
        $dims:literal, $coords:literal, [$($i:literal)+], $offsets:literal, [$($o:ident = $oi:literal)+]:
        $name:ident, $doc:literal
    ) => {
        #[doc = $doc]
        ///
        /// `coords` are the channel, the pixel where the first window begins (which lies in the map's range
        /// of pixels) and the image; `offsets` lead from there to the pixel that is copied, the same for all
        /// windows.
        ///
        /// # Safety
        /// As the module says; the map is one of windows.
        ///
        /// # PTX
        #[doc = concat!(
            "`cp.async.bulk.tensor.", $dims, "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes`"
        )]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(
            dst: u32,
            map: *const TensorMap,
            bar: u32,
            coords: [i32; $dims],
            offsets: [u16; $dims - 2],
        ) {
            // SAFETY: the caller keeps this function's contract, which is the instruction's; a map is its
            // words.
            unsafe {
                arms! {
                    ptx: {
                        asm!(
                            concat!(
                                "cp.async.bulk.tensor.", $dims,
                                "d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes",
                                " [{dst}], [{map}, {{", $coords, "}}], [{bar}], {{", $offsets, "}};"
                            ),
                            $(in(reg32) coords[$i],)+
                            dst = in(reg32) dst, map = in(reg64) map, bar = in(reg32) bar,
                            $($o = in(reg16) offsets[$oi],)+
                            options(nostack, preserves_flags)
                        )
                    }
                    sim: { simt::tma::load_im2col(dst, map.cast(), bar, &coords, &offsets, None) }
                }
            }
        }
    };
}

load_im2col!(
    3, "{0}, {1}, {2}", [0 1 2], "{w}", [w = 0]: load_im2col_3d,
    "Starts the load of windows' channels along one spatial dimension to `dst`; its bytes count at `bar`."
);
load_im2col!(
    4, "{0}, {1}, {2}, {3}", [0 1 2 3], "{w}, {h}", [w = 0 h = 1]: load_im2col_4d,
    "Starts the load of windows' channels in two spatial dimensions to `dst`; its bytes count at `bar`."
);
load_im2col!(
    5, "{0}, {1}, {2}, {3}, {4}", [0 1 2 3 4], "{w}, {h}, {d}", [w = 0 h = 1 d = 2]: load_im2col_5d,
    "Starts the load of windows' channels in three spatial dimensions to `dst`; its bytes count at `bar`."
);

/// One store or reduction of a box. `$executor` is the executor's function, `$reduction` its first argument;
/// `$suffix` and `$operands` are as in `load`.
macro_rules! store {
    (
        $dims:literal, $coords:literal, [$($i:literal)+]: $name:ident, $doc:expr, $op:expr, $suffix:literal,
        $operands:literal, ($($extra:ident: $type:ty, $class:ident)?), $executor:path $(, $reduction:path)?
    ) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// As the module says.
        ///
        /// # PTX
        #[doc = concat!("`", $op, ".bulk_group", $suffix, "`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(map: *const TensorMap, src: u32, coords: [i32; $dims], $($extra: $type)?) {
            // SAFETY: the caller keeps this function's contract, which is the instruction's; a map is its
            // words.
            unsafe {
                arms! {
                    ptx: {
                        asm!(
                            concat!($op, ".bulk_group", $suffix, " [{map}, {{", $coords, "}}], [{src}]", $operands, ";"),
                            $(in(reg32) coords[$i],)+
                            map = in(reg64) map, src = in(reg32) src, $($extra = in($class) $extra,)?
                            options(nostack, preserves_flags)
                        )
                    }
                    sim: {
                        $(let _ = $extra;)?
                        $executor($($reduction,)? map.cast(), src, &coords)
                    }
                }
            }
        }
    };
}

/// The stores of each number of dimensions.
macro_rules! stores {
    ($($dims:literal, $coords:literal, $indices:tt: $store:ident, $hint:ident;)*) => { $(
        store!(
            $dims, $coords, $indices: $store,
            concat!("Starts the store of a ", $dims, "-dimensional box in shared memory, in the current group."),
            concat!("cp.async.bulk.tensor.", $dims, "d.global.shared::cta.tile"), "", "", (), simt::tma::store
        );
        store!(
            $dims, $coords, $indices: $hint,
            concat!("[`", stringify!($store), "`] with a cache policy of [`policy`]."),
            concat!("cp.async.bulk.tensor.", $dims, "d.global.shared::cta.tile"), ".L2::cache_hint", ", {policy}",
            (policy: u64, reg64), simt::tma::store
        );
    )* };
}

stores! {
    1, "{0}", [0]: store_1d, store_1d_hint;
    2, "{0}, {1}", [0 1]: store_2d, store_2d_hint;
    3, "{0}, {1}, {2}", [0 1 2]: store_3d, store_3d_hint;
    4, "{0}, {1}, {2}, {3}", [0 1 2 3]: store_4d, store_4d_hint;
    5, "{0}, {1}, {2}, {3}, {4}", [0 1 2 3 4]: store_5d, store_5d_hint;
}

/// A reduction in one to five dimensions.
macro_rules! reduce {
    ($($reduction:ident, $op:literal, $what:literal: $d1:ident $d2:ident $d3:ident $d4:ident $d5:ident;)*) => { $(
        reduce!($reduction, $op, $what, 1, "{0}", [0]: $d1);
        reduce!($reduction, $op, $what, 2, "{0}, {1}", [0 1]: $d2);
        reduce!($reduction, $op, $what, 3, "{0}, {1}, {2}", [0 1 2]: $d3);
        reduce!($reduction, $op, $what, 4, "{0}, {1}, {2}, {3}", [0 1 2 3]: $d4);
        reduce!($reduction, $op, $what, 5, "{0}, {1}, {2}, {3}, {4}", [0 1 2 3 4]: $d5);
    )* };
    ($reduction:ident, $op:literal, $what:literal, $dims:literal, $coords:literal, $indices:tt: $name:ident) => {
        store!(
            $dims, $coords, $indices: $name,
            concat!("Starts ", $what, " a ", $dims, "-dimensional box in shared memory, in the current group."),
            concat!("cp.reduce.async.bulk.tensor.", $dims, "d.global.shared::cta.", $op, ".tile"), "", "", (),
            simt::tma::reduce, Reduction::$reduction
        );
    };
}

// The hardware knows each reduction for some types of the map's elements; see the table of the module.
reduce! {
    Add, "add", "the atomic addition of": reduce_add_1d reduce_add_2d reduce_add_3d reduce_add_4d reduce_add_5d;
    Min, "min", "the atomic minimum with": reduce_min_1d reduce_min_2d reduce_min_3d reduce_min_4d reduce_min_5d;
    Max, "max", "the atomic maximum with": reduce_max_1d reduce_max_2d reduce_max_3d reduce_max_4d reduce_max_5d;
    Inc, "inc", "the atomic counting up by": reduce_inc_1d reduce_inc_2d reduce_inc_3d reduce_inc_4d reduce_inc_5d;
    Dec, "dec", "the atomic counting down by": reduce_dec_1d reduce_dec_2d reduce_dec_3d reduce_dec_4d reduce_dec_5d;
    And, "and", "the atomic conjunction with": reduce_and_1d reduce_and_2d reduce_and_3d reduce_and_4d reduce_and_5d;
    Or, "or", "the atomic disjunction with": reduce_or_1d reduce_or_2d reduce_or_3d reduce_or_4d reduce_or_5d;
    Xor, "xor", "the atomic exclusive disjunction with": reduce_xor_1d reduce_xor_2d reduce_xor_3d reduce_xor_4d reduce_xor_5d;
}

/// Closes the stores and reductions that this thread started since the last call into a group, which may be
/// empty.
///
/// # PTX
/// `cp.async.bulk.commit_group`
#[inline(always)]
#[track_caller]
pub fn commit_group() {
    arms! {
        // SAFETY: touches nothing but this thread's own groups.
        ptx: {
            unsafe {
                asm!("cp.async.bulk.commit_group;", options(nostack, preserves_flags))
            }
        }
        sim: { bulk::commit_group() }
    }
}

/// Waits until at most the `PENDING` newest groups of this thread are unfinished. What the others wrote is
/// then in global memory.
///
/// # PTX
/// `cp.async.bulk.wait_group PENDING`
#[inline(always)]
#[track_caller]
pub fn wait_group<const PENDING: u32>() {
    arms! {
        // SAFETY: a wait.
        ptx: {
            unsafe {
                asm!("cp.async.bulk.wait_group {0};", const PENDING, options(nostack, preserves_flags))
            }
        }
        sim: { bulk::wait_group(PENDING) }
    }
}

/// Waits until all but at most the `PENDING` newest groups of this thread have read their shared memory,
/// which can then be used again.
///
/// # PTX
/// `cp.async.bulk.wait_group.read PENDING`
#[inline(always)]
#[track_caller]
pub fn wait_group_read<const PENDING: u32>() {
    arms! {
        // SAFETY: a wait.
        ptx: {
            unsafe {
                asm!("cp.async.bulk.wait_group.read {0};", const PENDING, options(nostack, preserves_flags))
            }
        }
        sim: { bulk::wait_group_read(PENDING) }
    }
}

/// Brings the map near, so that the first copy that uses it need not wait for it.
///
/// # Safety
/// `map` points to a map.
///
/// # PTX
/// `prefetch.tensormap [map]`
#[inline(always)]
#[track_caller]
pub unsafe fn prefetch(map: *const TensorMap) {
    // SAFETY: the caller keeps this function's contract, which is the instruction's.
    unsafe {
        arms! {
            ptx: {
                asm!("prefetch.tensormap [{0}];", in(reg64) map, options(readonly, nostack, preserves_flags))
            }
            sim: { simt::tma::prefetch(map.cast()) }
        }
    }
}

/// Starts the load of `bytes` bytes from `src` to `dst`, which count at `bar`. `bytes` is a multiple of 16,
/// and both addresses are 16-byte aligned.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [dst], [src], bytes, [bar]`
#[inline(always)]
#[track_caller]
pub unsafe fn bulk_load<T>(dst: u32, src: *const T, bytes: u32, bar: u32) {
    // SAFETY: the caller keeps this function's contract, which is the instruction's.
    unsafe {
        arms! {
            ptx: {
                asm!(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}], {2}, [{3}];",
                    in(reg32) dst, in(reg64) src, in(reg32) bytes, in(reg32) bar, options(nostack, preserves_flags)
                )
            }
            sim: { bulk::load(dst, src.cast(), bytes, bar) }
        }
    }
}

/// Asks for `bytes` bytes from `src` on to be brought into L2.
///
/// # Safety
/// The bytes lie in global memory. `bytes` is a multiple of 16, and `src` is 16-byte aligned.
///
/// # PTX
/// `cp.async.bulk.prefetch.L2.global [src], bytes`
#[inline(always)]
pub unsafe fn bulk_prefetch_l2<T>(src: *const T, bytes: u32) {
    arms! {
        ptx: {
            // SAFETY: a hint without effect on values.
            unsafe {
                asm!(
                    "cp.async.bulk.prefetch.L2.global [{0}], {1};",
                    in(reg64) src, in(reg32) bytes, options(readonly, nostack, preserves_flags)
                )
            }
        }
        // A hint; there is no cache to warm.
        sim: { let _ = (src, bytes); }
    }
}

/// Starts the store of `bytes` bytes from `src` in shared memory to `dst`, in the current group. `bytes` is a
/// multiple of 16, and both addresses are 16-byte aligned.
///
/// # Safety
/// As the module says.
///
/// # PTX
/// `cp.async.bulk.global.shared::cta.bulk_group [dst], [src], bytes`
#[inline(always)]
#[track_caller]
pub unsafe fn bulk_store<T>(dst: *mut T, src: u32, bytes: u32) {
    // SAFETY: the caller keeps this function's contract, which is the instruction's.
    unsafe {
        arms! {
            ptx: {
                asm!(
                    "cp.async.bulk.global.shared::cta.bulk_group [{0}], [{1}], {2};",
                    in(reg64) dst, in(reg32) src, in(reg32) bytes, options(nostack, preserves_flags)
                )
            }
            sim: { bulk::store(dst.cast(), src, bytes) }
        }
    }
}

macro_rules! bulk_reduce {
    ($($name:ident: $type:ty, $op:literal, $reduction:ident, $elements:ident;)*) => { $(
        #[doc = concat!("Starts to combine `bytes` bytes of `", stringify!($type), "` from `src` in shared memory with those at `dst`, each atomically, in the current group. `bytes` is a multiple")]
        /// of 16, and both addresses are 16-byte aligned.
        ///
        /// # Safety
        /// As the module says.
        ///
        /// # PTX
        #[doc = concat!("`cp.reduce.async.bulk.global.shared::cta.bulk_group.", $op, " [dst], [src], bytes`")]
        #[inline(always)]
        #[track_caller]
        pub unsafe fn $name(dst: *mut $type, src: u32, bytes: u32) {
            // SAFETY: the caller keeps this function's contract, which is the instruction's.
            unsafe {
                arms! {
                    ptx: {
                        asm!(
                            concat!(
                                "cp.reduce.async.bulk.global.shared::cta.bulk_group.", $op, " [{0}], [{1}], {2};"
                            ),
                            in(reg64) dst, in(reg32) src, in(reg32) bytes, options(nostack, preserves_flags)
                        )
                    }
                    sim: { bulk::reduce(Reduction::$reduction, DataType::$elements, dst.cast(), src, bytes) }
                }
            }
        }
    )* };
}

bulk_reduce! {
    bulk_reduce_add_u32: u32, "add.u32", Add, U32;
    bulk_reduce_add_i32: i32, "add.s32", Add, I32;
    bulk_reduce_add_u64: u64, "add.u64", Add, U64;
    bulk_reduce_add_f32: f32, "add.f32", Add, F32;
    bulk_reduce_add_f64: f64, "add.f64", Add, F64;
    bulk_reduce_add_f16: f16, "add.noftz.f16", Add, F16;
    bulk_reduce_add_bf16: bf16, "add.noftz.bf16", Add, BF16;
    bulk_reduce_min_u32: u32, "min.u32", Min, U32;
    bulk_reduce_min_i32: i32, "min.s32", Min, I32;
    bulk_reduce_min_u64: u64, "min.u64", Min, U64;
    bulk_reduce_min_i64: i64, "min.s64", Min, I64;
    bulk_reduce_min_f16: f16, "min.f16", Min, F16;
    bulk_reduce_min_bf16: bf16, "min.bf16", Min, BF16;
    bulk_reduce_max_u32: u32, "max.u32", Max, U32;
    bulk_reduce_max_i32: i32, "max.s32", Max, I32;
    bulk_reduce_max_u64: u64, "max.u64", Max, U64;
    bulk_reduce_max_i64: i64, "max.s64", Max, I64;
    bulk_reduce_max_f16: f16, "max.f16", Max, F16;
    bulk_reduce_max_bf16: bf16, "max.bf16", Max, BF16;
    bulk_reduce_inc_u32: u32, "inc.u32", Inc, U32;
    bulk_reduce_dec_u32: u32, "dec.u32", Dec, U32;
    bulk_reduce_and_u32: u32, "and.b32", And, U32;
    bulk_reduce_and_u64: u64, "and.b64", And, U64;
    bulk_reduce_or_u32: u32, "or.b32", Or, U32;
    bulk_reduce_or_u64: u64, "or.b64", Or, U64;
    bulk_reduce_xor_u32: u32, "xor.b32", Xor, U32;
    bulk_reduce_xor_u64: u64, "xor.b64", Xor, U64;
}

/// Starts the copy of `bytes` bytes from `src` in this block's shared memory to `dst_cluster` in the shared
/// memory of a block of the cluster, which count at `bar_cluster`, an mbarrier of that block. Both are
/// addresses in the cluster's window ([`cluster::map_shared`](crate::cluster::map_shared)); `bytes` is a
/// multiple of 16, and the addresses of the data are 16-byte aligned.
///
/// # Safety
/// As the module says; the other block has not exited.
///
/// # PTX
/// `cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [dst], [src], bytes, [bar]`
#[inline(always)]
#[track_caller]
pub unsafe fn bulk_copy_shared(dst_cluster: u32, src: u32, bytes: u32, bar_cluster: u32) {
    // SAFETY: the caller keeps this function's contract, which is the instruction's.
    unsafe {
        arms! {
            ptx: {
                asm!(
                    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [{0}], [{1}], {2}, [{3}];",
                    in(reg32) dst_cluster, in(reg32) src, in(reg32) bytes, in(reg32) bar_cluster,
                    options(nostack, preserves_flags)
                )
            }
            sim: { bulk::copy_shared(dst_cluster, src, bytes, bar_cluster) }
        }
    }
}

/// Generic address of the parameter whose PTX symbol is `$symbol`: the entry point around it has a parameter
/// of that name.
#[doc(hidden)]
#[cfg(target_arch = "nvptx64")]
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
