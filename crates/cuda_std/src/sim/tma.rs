//! The executor's copy engine. A cache policy changes no result, so it is not passed on.

use half::{bf16, f16};
use simt::bulk;
use simt::reduction::Reduction;
use simt::tensor_map::DataType;

use crate::tma::TensorMap;

/// The four loads of one number of dimensions, all of which come to one.
macro_rules! loads {
    ($($dims:literal: $load:ident, $hint:ident, $multicast:ident, $multicast_hint:ident;)*) => { $(
        #[track_caller]
        pub unsafe fn $load(dst: u32, map: *const TensorMap, bar: u32, coords: [i32; $dims]) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { load(dst, map, bar, &coords, None) }
        }

        #[track_caller]
        pub unsafe fn $hint(dst: u32, map: *const TensorMap, bar: u32, coords: [i32; $dims], _policy: u64) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { load(dst, map, bar, &coords, None) }
        }

        #[track_caller]
        pub unsafe fn $multicast(dst: u32, map: *const TensorMap, bar: u32, coords: [i32; $dims], mask: u16) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { load(dst, map, bar, &coords, Some(mask)) }
        }

        #[track_caller]
        pub unsafe fn $multicast_hint(
            dst: u32,
            map: *const TensorMap,
            bar: u32,
            coords: [i32; $dims],
            mask: u16,
            _policy: u64,
        ) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { load(dst, map, bar, &coords, Some(mask)) }
        }
    )* };
}

loads! {
    1: load_1d, load_1d_hint, load_1d_multicast, load_1d_multicast_hint;
    2: load_2d, load_2d_hint, load_2d_multicast, load_2d_multicast_hint;
    3: load_3d, load_3d_hint, load_3d_multicast, load_3d_multicast_hint;
    4: load_4d, load_4d_hint, load_4d_multicast, load_4d_multicast_hint;
    5: load_5d, load_5d_hint, load_5d_multicast, load_5d_multicast_hint;
}

macro_rules! stores {
    ($($dims:literal: $store:ident;)*) => { $(
        #[track_caller]
        pub unsafe fn $store(map: *const TensorMap, src: u32, coords: [i32; $dims]) {
            // SAFETY: the caller keeps this function's contract, which is the same; a map is its words.
            unsafe { simt::tma::store(map.cast(), src, &coords) }
        }
    )* };
}

stores! { 1: store_1d; 2: store_2d; 3: store_3d; 4: store_4d; 5: store_5d; }

macro_rules! reduce {
    ($($op:ident: $d1:ident $d2:ident $d3:ident $d4:ident $d5:ident;)*) => { $(
        reduce!($op, 1: $d1, 2: $d2, 3: $d3, 4: $d4, 5: $d5);
    )* };
    ($op:ident, $($dims:literal: $name:ident),*) => { $(
        #[track_caller]
        pub unsafe fn $name(map: *const TensorMap, src: u32, coords: [i32; $dims]) {
            // SAFETY: the caller keeps this function's contract, which is the same; a map is its words.
            unsafe { simt::tma::reduce(Reduction::$op, map.cast(), src, &coords) }
        }
    )* };
}

reduce! {
    Add: reduce_add_1d reduce_add_2d reduce_add_3d reduce_add_4d reduce_add_5d;
    Min: reduce_min_1d reduce_min_2d reduce_min_3d reduce_min_4d reduce_min_5d;
    Max: reduce_max_1d reduce_max_2d reduce_max_3d reduce_max_4d reduce_max_5d;
    Inc: reduce_inc_1d reduce_inc_2d reduce_inc_3d reduce_inc_4d reduce_inc_5d;
    Dec: reduce_dec_1d reduce_dec_2d reduce_dec_3d reduce_dec_4d reduce_dec_5d;
    And: reduce_and_1d reduce_and_2d reduce_and_3d reduce_and_4d reduce_and_5d;
    Or: reduce_or_1d reduce_or_2d reduce_or_3d reduce_or_4d reduce_or_5d;
    Xor: reduce_xor_1d reduce_xor_2d reduce_xor_3d reduce_xor_4d reduce_xor_5d;
}

#[track_caller]
unsafe fn load(dst: u32, map: *const TensorMap, bar: u32, coords: &[i32], mask: Option<u16>) {
    // SAFETY: the caller keeps this function's contract, which is the same; a map is its words.
    unsafe { simt::tma::load(dst, map.cast(), bar, coords, mask) }
}

#[track_caller]
pub fn commit_group() {
    bulk::commit_group();
}

#[track_caller]
pub fn wait_group<const PENDING: u32>() {
    bulk::wait_group(PENDING);
}

#[track_caller]
pub fn wait_group_read<const PENDING: u32>() {
    bulk::wait_group_read(PENDING);
}

#[track_caller]
pub unsafe fn prefetch(map: *const TensorMap) {
    // SAFETY: the caller keeps this function's contract, which is the same; a map is its words.
    unsafe { simt::tma::prefetch(map.cast()) }
}

#[track_caller]
pub unsafe fn bulk_load(dst: u32, src: *const u8, bytes: u32, bar: u32) {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { bulk::load(dst, src, bytes, bar) }
}

#[track_caller]
pub unsafe fn bulk_store(dst: *mut u8, src: u32, bytes: u32) {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { bulk::store(dst, src, bytes) }
}

macro_rules! bulk_reduce {
    ($($name:ident: $type:ty, $op:ident, $elements:ident;)*) => { $(
        #[track_caller]
        pub unsafe fn $name(dst: *mut $type, src: u32, bytes: u32) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { bulk::reduce(Reduction::$op, DataType::$elements, dst.cast(), src, bytes) }
        }
    )* };
}

bulk_reduce! {
    bulk_reduce_add_u32: u32, Add, U32;
    bulk_reduce_add_i32: i32, Add, I32;
    bulk_reduce_add_u64: u64, Add, U64;
    bulk_reduce_add_f32: f32, Add, F32;
    bulk_reduce_add_f64: f64, Add, F64;
    bulk_reduce_add_f16: f16, Add, F16;
    bulk_reduce_add_bf16: bf16, Add, BF16;
    bulk_reduce_min_u32: u32, Min, U32;
    bulk_reduce_min_i32: i32, Min, I32;
    bulk_reduce_min_u64: u64, Min, U64;
    bulk_reduce_min_i64: i64, Min, I64;
    bulk_reduce_min_f16: f16, Min, F16;
    bulk_reduce_min_bf16: bf16, Min, BF16;
    bulk_reduce_max_u32: u32, Max, U32;
    bulk_reduce_max_i32: i32, Max, I32;
    bulk_reduce_max_u64: u64, Max, U64;
    bulk_reduce_max_i64: i64, Max, I64;
    bulk_reduce_max_f16: f16, Max, F16;
    bulk_reduce_max_bf16: bf16, Max, BF16;
    bulk_reduce_inc_u32: u32, Inc, U32;
    bulk_reduce_dec_u32: u32, Dec, U32;
    bulk_reduce_and_u32: u32, And, U32;
    bulk_reduce_and_u64: u64, And, U64;
    bulk_reduce_or_u32: u32, Or, U32;
    bulk_reduce_or_u64: u64, Or, U64;
    bulk_reduce_xor_u32: u32, Xor, U32;
    bulk_reduce_xor_u64: u64, Xor, U64;
}

#[track_caller]
pub unsafe fn bulk_copy_shared(dst: u32, src: u32, bytes: u32, bar: u32) {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { bulk::copy_shared(dst, src, bytes, bar) }
}

pub fn evict_first() -> u64 {
    0
}

pub fn evict_last() -> u64 {
    0
}

pub fn evict_normal() -> u64 {
    0
}
