//! The executor's copy engine. A cache policy changes no result, so it is not passed on.

use simt::bulk::{self, Reduction};

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
    ($($dims:literal: $store:ident, $reduce_add:ident;)*) => { $(
        #[track_caller]
        pub unsafe fn $store(map: *const TensorMap, src: u32, coords: [i32; $dims]) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { store(map, src, &coords) }
        }

        #[track_caller]
        pub unsafe fn $reduce_add(map: *const TensorMap, src: u32, coords: [i32; $dims]) {
            // SAFETY: the caller keeps this function's contract, which is the same.
            unsafe { reduce_add(map, src, &coords) }
        }
    )* };
}

stores! {
    1: store_1d, reduce_add_1d;
    2: store_2d, reduce_add_2d;
    3: store_3d, reduce_add_3d;
    4: store_4d, reduce_add_4d;
    5: store_5d, reduce_add_5d;
}

#[track_caller]
unsafe fn load(dst: u32, map: *const TensorMap, bar: u32, coords: &[i32], mask: Option<u16>) {
    // SAFETY: the caller keeps this function's contract, which is the same; a map is its words.
    unsafe { simt::tma::load(dst, map.cast(), bar, coords, mask) }
}

#[track_caller]
unsafe fn store(map: *const TensorMap, src: u32, coords: &[i32]) {
    // SAFETY: the caller keeps this function's contract, which is the same; a map is its words.
    unsafe { simt::tma::store(map.cast(), src, coords) }
}

#[track_caller]
unsafe fn reduce_add(map: *const TensorMap, src: u32, coords: &[i32]) {
    // SAFETY: the caller keeps this function's contract, which is the same; a map is its words.
    unsafe { simt::tma::reduce(Reduction::Add, map.cast(), src, coords) }
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

#[track_caller]
pub unsafe fn bulk_reduce_add_f32(dst: *mut f32, src: u32, bytes: u32) {
    // SAFETY: the caller keeps this function's contract, which is the same.
    unsafe { bulk::reduce_add_f32(dst, src, bytes) }
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
