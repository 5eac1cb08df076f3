//! Warps: 32 threads of a block that run together and exchange values without memory.
//!
//! Every collective takes a mask of the lanes that take part: bit `i` for lane `i`. All of those lanes must
//! call the function with the same mask; the others stay away.

use half::{bf16, f16};

#[cfg(not(target_arch = "nvptx64"))]
mod executor;
mod instructions;

/// Threads of a warp.
pub const WARP_SIZE: u32 = 32;

/// The mask of a whole warp.
pub const FULL_MASK: u32 = u32::MAX;

/// Waits until all lanes of `mask` are here. What they wrote before to memory is visible to the others of
/// `mask` afterwards. PTX `bar.warp.sync`.
///
/// # Safety
///
/// The calling lane must be in `mask`, and no lane of `mask` may have returned.
#[inline(always)]
#[track_caller]
pub unsafe fn sync_warp(mask: u32) {
    arms! {
        // SAFETY: a barrier touches no memory of its own; the caller vouches for the lanes that take part.
        ptx: { unsafe { instructions::bar_warp_sync(mask) } }
        sim: { simt::warp::sync(mask) }
    }
}

/// Number of this thread in its warp, `0..32`. PTX `%laneid`.
#[inline(always)]
#[track_caller]
pub fn lane_id() -> u32 {
    arms! {
        // SAFETY: reads a special register.
        ptx: { unsafe { instructions::laneid() } }
        sim: { simt::thread::lane() }
    }
}

/// Whether this is the warp's elected lane, the same one each time: it starts a copy for all. PTX
/// `elect.sync`. Needs sm_90.
///
/// # Safety
///
/// All 32 lanes of the warp are live and reach the same call together.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
#[inline(always)]
#[track_caller]
#[must_use]
pub unsafe fn elect() -> bool {
    arms! {
        ptx: {
            let elected: u32;
            // SAFETY: no memory; the caller vouches for the lanes that take part.
            unsafe {
                core::arch::asm!(
                    "{{",
                    ".reg .pred elected;",
                    "elect.sync _|elected, 0xffffffff;",
                    "selp.u32 {0}, 1, 0, elected;",
                    "}}",
                    out(reg32) elected, options(nomem, nostack, preserves_flags)
                );
            }
            elected != 0
        }
        sim: {
            simt::warp::collective("elect.sync", u32::MAX, ());
            lane_id() == 0
        }
    }
}

/// Mask of the lanes that happen to run this instruction together. It says nothing about which lanes *will*
/// reach a later collective. PTX `activemask.b32`.
#[inline(always)]
#[track_caller]
pub fn activemask() -> u32 {
    arms! {
        // SAFETY: reads the state of the warp.
        ptx: { unsafe { instructions::activemask() } }
        sim: { simt::warp::active_mask() }
    }
}

/// How a warp reduction combines two values.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpReductionOp {
    /// Sum, wrapping.
    Add,
    /// Smaller value.
    Min,
    /// Larger value.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

/// A type that [`warp_reduce`] works on: `u32` and `i32`.
pub trait WarpReduceValue: Sized {
    /// See [`warp_reduce`].
    ///
    /// # Safety
    ///
    /// As for [`warp_reduce`].
    #[track_caller]
    unsafe fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self;
}

impl WarpReduceValue for u32 {
    #[inline(always)]
    unsafe fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self {
        instructions::reduce_u32(mask, value, op)
    }
}

impl WarpReduceValue for i32 {
    #[inline(always)]
    unsafe fn reduce(mask: u32, value: Self, op: WarpReductionOp) -> Self {
        instructions::reduce_i32(mask, value, op)
    }
}

/// Combines the values of all lanes of `mask`; every lane gets the result. PTX `redux.sync`, from sm_80 on.
///
/// # Safety
///
/// The calling lane must be in `mask`, no lane of `mask` may have returned, and all of them must pass the
/// same mask and `op`.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_reduce<T: WarpReduceValue>(mask: u32, value: T, op: WarpReductionOp) -> T {
    // SAFETY: the caller's promise is this function's own contract.
    unsafe { T::reduce(mask, value, op) }
}

/// A type that the lanes of a warp can compare: 32 or 64 bits. Floats are compared bit by bit.
pub trait WarpMatchValue: Sized {
    /// See [`warp_match_any`].
    ///
    /// # Safety
    ///
    /// As for [`warp_match_any`].
    #[track_caller]
    unsafe fn match_any(mask: u32, value: Self) -> u32;

    /// See [`warp_match_all`].
    ///
    /// # Safety
    ///
    /// As for [`warp_match_all`].
    #[inline(always)]
    #[track_caller]
    unsafe fn match_all(mask: u32, value: Self) -> Option<u32> {
        // SAFETY: the caller's promise is the same.
        let same = unsafe { Self::match_any(mask, value) };
        (same == mask).then_some(mask)
    }
}

macro_rules! match_values {
    ($($ty:ty => $instruction:ident, $value:ident => $bits:expr;)*) => {$(
        impl WarpMatchValue for $ty {
            #[inline(always)]
            unsafe fn match_any(mask: u32, $value: Self) -> u32 {
                instructions::$instruction(mask, $bits)
            }
        }
    )*};
}

match_values! {
    u32 => match_any_32, v => v;
    i32 => match_any_32, v => v as u32;
    f32 => match_any_32, v => v.to_bits();
    u64 => match_any_64, v => v;
    i64 => match_any_64, v => v as u64;
    f64 => match_any_64, v => v.to_bits();
}

/// Mask of the lanes of `mask` whose `value` has the same bits as this lane's. PTX `match.any.sync`.
///
/// # Safety
///
/// The calling lane must be in `mask`, no lane of `mask` may have returned, and all of them must pass the
/// same mask.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_match_any<T: WarpMatchValue>(mask: u32, value: T) -> u32 {
    // SAFETY: the caller's promise is this function's own contract.
    unsafe { T::match_any(mask, value) }
}

/// `Some(mask)` when all lanes of `mask` hold the same bits, otherwise `None`. PTX `match.any.sync` and a
/// comparison.
///
/// # Safety
///
/// The calling lane must be in `mask`, no lane of `mask` may have returned, and all of them must pass the
/// same mask.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_match_all<T: WarpMatchValue>(mask: u32, value: T) -> Option<u32> {
    // SAFETY: the caller's promise is this function's own contract.
    unsafe { T::match_all(mask, value) }
}

/// Whether `predicate` holds in every lane of `mask`. PTX `vote.sync.all.pred`.
///
/// # Safety
///
/// The calling lane must be in `mask`, no lane of `mask` may have returned, and all of them must pass the
/// same mask.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    arms! {
        // SAFETY: as for `shuffle`.
        ptx: { unsafe { instructions::vote_all_sync(mask, predicate) } }
        sim: { executor::ballot("vote.sync.all", mask, predicate) == mask }
    }
}

/// Whether `predicate` holds in any lane of `mask`. PTX `vote.sync.any.pred`.
///
/// # Safety
///
/// As for [`warp_vote_all`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    arms! {
        // SAFETY: as for `shuffle`.
        ptx: { unsafe { instructions::vote_any_sync(mask, predicate) } }
        sim: { executor::ballot("vote.sync.any", mask, predicate) != 0 }
    }
}

/// Mask of the lanes of `mask` in which `predicate` holds. PTX `vote.sync.ballot.b32`.
///
/// # Safety
///
/// As for [`warp_vote_all`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    arms! {
        // SAFETY: as for `shuffle`.
        ptx: { unsafe { instructions::vote_ballot_sync(mask, predicate) } }
        sim: { executor::ballot("vote.sync.ballot", mask, predicate) }
    }
}

/// How a shuffle finds the lane that it reads from.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpShuffleMode {
    Up,
    Down,
    Idx,
    Xor,
}

/// The lane that `lane` reads from in a shuffle over sections of `width` lanes, and whether that lane lies
/// where the mode may reach. When it does not, a lane reads from itself.
#[inline(always)]
pub(crate) const fn source_lane(mode: WarpShuffleMode, lane: u32, b: u32, width: u32) -> (u32, bool) {
    let b = b % WARP_SIZE;
    let first = lane & !(width - 1);
    let last = first + width - 1;
    let (source, in_range) = match mode {
        WarpShuffleMode::Up => (lane.wrapping_sub(b), lane >= first + b),
        WarpShuffleMode::Down => (lane + b, lane + b <= last),
        // As the instruction has it: an exchange may reach into an earlier section, never into a later one.
        WarpShuffleMode::Xor => (lane ^ b, lane ^ b <= last),
        WarpShuffleMode::Idx => (first | (b & (width - 1)), true),
    };
    if in_range { (source, true) } else { (lane, false) }
}

/// A type that a warp can shuffle. Types below 32 bits travel in 32; larger ones take one instruction for
/// every 32 bits.
pub trait WarpShuffleValue: Sized {
    /// See [`warp_shuffle_down`] and its siblings. `mode` should be a constant.
    ///
    /// # Safety
    ///
    /// As for [`warp_shuffle_down`].
    #[doc(hidden)]
    #[track_caller]
    unsafe fn shuffle(mode: WarpShuffleMode, mask: u32, value: Self, b: u32, width: u32) -> (Self, bool);
}

impl WarpShuffleValue for u32 {
    #[inline(always)]
    unsafe fn shuffle(mode: WarpShuffleMode, mask: u32, value: Self, b: u32, width: u32) -> (Self, bool) {
        assert!(
            width.is_power_of_two() && width <= WARP_SIZE,
            "the width of a shuffle must be a power of two up to 32"
        );
        let (_, in_range) = source_lane(mode, lane_id(), b, width);
        (instructions::shuffle(mode, mask, value, b, width), in_range)
    }
}

/// Shuffles of types that fit one that can be shuffled already.
macro_rules! shuffle_as {
    ($($ty:ty as $carrier:ty: $value:ident => $to:expr, $back:expr;)*) => {$(
        impl WarpShuffleValue for $ty {
            #[inline(always)]
            unsafe fn shuffle(mode: WarpShuffleMode, mask: u32, $value: Self, b: u32, width: u32) -> (Self, bool) {
                // SAFETY: the caller's promise is the same.
                let ($value, in_range) = unsafe { <$carrier>::shuffle(mode, mask, $to, b, width) };
                ($back, in_range)
            }
        }
    )*};
}

shuffle_as! {
    u8 as u32: v => v as u32, v as u8;
    u16 as u32: v => v as u32, v as u16;
    i8 as u32: v => v as u32, v as i8;
    i16 as u32: v => v as u32, v as i16;
    i32 as u32: v => v as u32, v as i32;
    i64 as u64: v => v as u64, v as i64;
    i128 as u128: v => v as u128, v as i128;
    f16 as u16: v => v.to_bits(), f16::from_bits(v);
    bf16 as u16: v => v.to_bits(), bf16::from_bits(v);
    f32 as u32: v => v.to_bits(), f32::from_bits(v);
    f64 as u64: v => v.to_bits(), f64::from_bits(v);
}

/// Shuffles of types made of two halves that can be shuffled already.
macro_rules! shuffle_halves {
    ($($ty:ty as two $half:ty;)*) => {$(
        impl WarpShuffleValue for $ty {
            #[inline(always)]
            unsafe fn shuffle(mode: WarpShuffleMode, mask: u32, value: Self, b: u32, width: u32) -> (Self, bool) {
                // SAFETY: the caller's promise is the same.
                let (low, in_range) = unsafe { <$half>::shuffle(mode, mask, value as $half, b, width) };
                // SAFETY: as above.
                let (high, _) = unsafe { <$half>::shuffle(mode, mask, (value >> <$half>::BITS) as $half, b, width) };
                (((high as $ty) << <$half>::BITS) | low as $ty, in_range)
            }
        }
    )*};
}

shuffle_halves! {
    u64 as two u32;
    u128 as two u64;
}

/// The value of the lane `delta` above this one, in the same section of `width` lanes; the flag says whether
/// there is such a lane, and without one a lane gets its own value. PTX `shfl.sync.down.b32`.
///
/// `width` is a power of two up to 32: the warp falls into sections of that many lanes.
///
/// # Panics
///
/// When `width` is not a power of two up to 32.
///
/// # Safety
///
/// The calling lane must be in `mask`, no lane of `mask` may have returned, and all of them must make the
/// same call with the same mask. A lane may read from lanes of
/// `mask` alone that have not exited: any other value is unspecified, and a fault in the executor.
#[inline(always)]
#[track_caller]
pub unsafe fn warp_shuffle_down<T: WarpShuffleValue>(
    mask: u32,
    value: T,
    delta: u32,
    width: u32,
) -> (T, bool) {
    // SAFETY: the caller's promise is this function's own contract.
    unsafe { T::shuffle(WarpShuffleMode::Down, mask, value, delta, width) }
}

/// As [`warp_shuffle_down`], from the lane `delta` below this one. PTX `shfl.sync.up.b32`.
///
/// # Panics
///
/// When `width` is not a power of two up to 32.
///
/// # Safety
///
/// As for [`warp_shuffle_down`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_shuffle_up<T: WarpShuffleValue>(mask: u32, value: T, delta: u32, width: u32) -> (T, bool) {
    // SAFETY: the caller's promise is this function's own contract.
    unsafe { T::shuffle(WarpShuffleMode::Up, mask, value, delta, width) }
}

/// As [`warp_shuffle_down`], from lane `idx` of this section, `idx` taken modulo `width`. PTX
/// `shfl.sync.idx.b32`.
///
/// # Panics
///
/// When `width` is not a power of two up to 32.
///
/// # Safety
///
/// As for [`warp_shuffle_down`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_shuffle_idx<T: WarpShuffleValue>(mask: u32, value: T, idx: u32, width: u32) -> (T, bool) {
    // SAFETY: the caller's promise is this function's own contract.
    unsafe { T::shuffle(WarpShuffleMode::Idx, mask, value, idx, width) }
}

/// As [`warp_shuffle_down`], from lane `lane_id() ^ lane_mask`. PTX `shfl.sync.bfly.b32`.
///
/// # Panics
///
/// When `width` is not a power of two up to 32.
///
/// # Safety
///
/// As for [`warp_shuffle_down`].
#[inline(always)]
#[track_caller]
pub unsafe fn warp_shuffle_xor<T: WarpShuffleValue>(
    mask: u32,
    value: T,
    lane_mask: u32,
    width: u32,
) -> (T, bool) {
    // SAFETY: the caller's promise is this function's own contract.
    unsafe { T::shuffle(WarpShuffleMode::Xor, mask, value, lane_mask, width) }
}

#[cfg(test)]
mod tests {
    use super::WarpShuffleMode::{Down, Idx, Up, Xor};
    use super::*;

    /// The text of the PTX manual for `shfl.sync`, written out with its own registers.
    fn manual(mode: WarpShuffleMode, lane: u32, b: u32, width: u32) -> (u32, bool) {
        let clamp = if mode == Up { 0 } else { 31 };
        let c = ((WARP_SIZE - width) << 8) | clamp;
        let (bval, cval, mask) = (b & 31, c & 31, (c >> 8) & 31);
        let max_lane = (lane & mask) | (cval & !mask);
        let min_lane = lane & mask;
        let (j, p) = match mode {
            Up => (lane as i64 - bval as i64, lane as i64 - bval as i64 >= max_lane as i64),
            Down => (lane as i64 + bval as i64, lane + bval <= max_lane),
            Xor => ((lane ^ bval) as i64, lane ^ bval <= max_lane),
            Idx => ((min_lane | (bval & !mask)) as i64, (min_lane | (bval & !mask)) <= max_lane),
        };
        if p { (j as u32, true) } else { (lane, false) }
    }

    #[test]
    fn source_lane_is_what_the_manual_says() {
        for mode in [Up, Down, Idx, Xor] {
            for width in [1, 2, 4, 8, 16, 32] {
                for (lane, b) in (0..32).flat_map(|lane| (0..64).map(move |b| (lane, b))) {
                    let got = source_lane(mode, lane, b, width);
                    assert_eq!(got, manual(mode, lane, b, width), "{mode:?} lane {lane} b {b} width {width}");
                }
            }
        }
    }
}
