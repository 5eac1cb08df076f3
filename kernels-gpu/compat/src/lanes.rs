//! Warps: shuffles of every type, votes, matches, reductions.
#![allow(unsafe_op_in_unsafe_fn)]

use cuda_std::prelude::*;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_80"))]
use cuda_std::warp::WarpReductionOp;
use cuda_std::warp::{self, WarpMatchValue, WarpShuffleMode, WarpShuffleValue};

const FULL: u32 = u32::MAX;

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn lane_places(out: *mut [u32; 3]) {
    let i = thread::index_1d() as usize;
    warp::sync_warp(FULL);
    *out.add(i) = [warp::lane_id(), warp::activemask().count_ones(), thread::warp_size()];
}

/// Running sums within each warp.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn warp_scan(x: &[u32], out: *mut u32) {
    let i = thread::index_1d() as usize;
    let mut sum = x[i];
    for step in [1, 2, 4, 8, 16] {
        let (other, inside) = warp::warp_shuffle_up(FULL, sum, step, 32);
        if inside {
            sum += other;
        }
    }
    *out.add(i) = sum;
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn warp_reverse(x: &[f64], out: *mut f64) {
    let i = thread::index_1d() as usize;
    *out.add(i) = warp::warp_shuffle_idx(FULL, x[i], 31 - warp::lane_id(), 32).0;
}

/// The largest of each group of eight lanes.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn butterfly_max(x: &[i32], out: *mut i32) {
    let i = thread::index_1d() as usize;
    let mut most = x[i];
    for bit in [4, 2, 1] {
        most = most.max(warp::warp_shuffle_xor(FULL, most, bit, 8).0);
    }
    *out.add(i) = most;
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn shift_down(x: &[f32], out: *mut f32) {
    let i = thread::index_1d() as usize;
    let (next, inside) = warp::warp_shuffle_down(FULL, x[i], 1, 16);
    *out.add(i) = if inside { next } else { -1.0 };
}

unsafe fn from_lane_5<T: WarpShuffleValue>(value: T) -> T {
    T::shuffle(WarpShuffleMode::Idx, FULL, value, 5, 32).0
}

/// The value of lane 5, in every type.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn shuffle_types(out: *mut [f64; 14]) {
    let lane = warp::lane_id();
    *out.add(lane as usize) = [
        from_lane_5(lane as u8) as f64,
        from_lane_5(lane as u16) as f64,
        from_lane_5(lane) as f64,
        from_lane_5((lane as u64) << 40) as f64,
        (from_lane_5((lane as u128) << 90) >> 90) as u32 as f64,
        from_lane_5(-(lane as i8)) as f64,
        from_lane_5(-(lane as i16)) as f64,
        from_lane_5(-(lane as i32)) as f64,
        from_lane_5(-((lane as i64) << 40)) as f64,
        (from_lane_5(-((lane as i128) << 90)) >> 90) as i32 as f64,
        f64::from(from_lane_5(lane as f32 * 0.5)),
        from_lane_5(lane as f64 * 0.25),
        f64::from(from_lane_5(f16::from_bits(0x3c00 + lane as u16))),
        f64::from(from_lane_5(bf16::from_bits(0x3f80 + lane as u16))),
    ];
}

/// Whether all are positive, whether any is negative, which are even.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn warp_votes(x: &[i32], out: *mut [u32; 3]) {
    let i = thread::index_1d() as usize;
    *out.add(i) = [
        warp::warp_vote_all(FULL, x[i] > 0) as u32,
        warp::warp_vote_any(FULL, x[i] < 0) as u32,
        warp::warp_vote_ballot(FULL, x[i] % 2 == 0),
    ];
}

unsafe fn alike<T: WarpMatchValue + Copy>(value: T) -> u32 {
    warp::warp_match_any(FULL, value)
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn warp_matches(x: &[u32], out: *mut [u32; 8]) {
    let v = x[warp::lane_id() as usize];
    *out.add(warp::lane_id() as usize) = [
        alike(v),
        alike(v as i32),
        alike(v as f32),
        alike((v as u64) << 33),
        alike((v as i64) << 33),
        alike(v as f64),
        warp::warp_match_all(FULL, v).is_some() as u32,
        warp::warp_match_all(FULL, 7u32).unwrap_or(0),
    ];
}

#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_80"))]
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn warp_reductions(x: &[i32], out: *mut [i32; 12]) {
    use WarpReductionOp::{Add, And, Max, Min, Or, Xor};
    let i = thread::index_1d() as usize;
    let mut results = [0; 12];
    for (at, op) in [Add, Min, Max, And, Or, Xor].into_iter().enumerate() {
        results[at] = warp::warp_reduce(FULL, x[i], op);
        results[at + 6] = warp::warp_reduce(FULL, x[i] as u32, op) as i32;
    }
    *out.add(i) = results;
}

/// Moves the positive values of each warp to its front; lanes behind them get 0.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn warp_compact(x: &[i32], out: *mut i32) {
    let i = thread::index_1d() as usize;
    let first = i - warp::lane_id() as usize;
    let kept = warp::warp_vote_ballot(FULL, x[i] > 0);
    let before = kept & ((1 << warp::lane_id()) - 1);
    if x[i] > 0 {
        *out.add(first + before.count_ones() as usize) = x[i];
    }
    if warp::lane_id() >= kept.count_ones() {
        *out.add(i) = 0;
    }
}
