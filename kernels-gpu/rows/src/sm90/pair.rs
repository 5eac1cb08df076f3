//! Two sums of a warp at once: the lower half of the lanes has the first one, the upper half the second. A
//! butterfly for both exchanges one number a step.

use primitives::warp::{Exchange, From, LANES, fold_sections};

/// Lanes that have one of both sums.
pub const HALF: u32 = LANES / 2;

/// The sums of all lanes' pairs, as each lane has its half's.
///
/// # Safety
/// The whole warp calls it.
#[inline(always)]
pub unsafe fn add_pairs([first, second]: [f32; 2], lane: u32) -> f32 {
    let [own, other] = if lane < HALF { [first, second] } else { [second, first] };
    // SAFETY: the caller's contract.
    unsafe { add_half(own + other.exchange(From::Xor(HALF))) }
}

/// The sum of the numbers of a half's lanes.
///
/// # Safety
/// As for [`add_pairs`].
#[inline(always)]
pub unsafe fn add_half(own: f32) -> f32 {
    // SAFETY: the caller's contract.
    unsafe { fold_sections(own, HALF, |a, b| a + b) }
}

/// Both sums, to all lanes.
///
/// # Safety
/// As for [`add_pairs`].
#[inline(always)]
pub unsafe fn both(of_half: f32) -> [f32; 2] {
    // SAFETY: the caller's contract.
    unsafe { [of_half.exchange(From::Lane(0)), of_half.exchange(From::Lane(HALF))] }
}
