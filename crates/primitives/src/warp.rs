//! Collectives of a warp: reductions, scans, broadcasts, by shuffles alone.
//!
//! All 32 lanes call each function together. The order of combinations depends on nothing but the lane's
//! number, so results repeat bit for bit. Values are anything that implements [`Exchange`].

use crate::op::Operation;
use cuda_std::warp::{self, FULL_MASK};

/// Lanes of a warp.
pub const LANES: u32 = warp::WARP_SIZE;

/// From which lane a value comes.
#[derive(Clone, Copy, Debug)]
pub enum From {
    /// The lane whose number differs by these bits.
    Xor(u32),
    /// The lane so far below; lanes that have none get their own value.
    Below(u32),
    /// The lane with this number.
    Lane(u32),
}

/// A value that lanes can hand to each other.
pub trait Exchange: Copy {
    /// The value of another lane.
    ///
    /// # Safety
    /// All lanes of the warp call it together, with the same way to choose the lane.
    unsafe fn exchange(self, from: From) -> Self;
}

macro_rules! exchange {
    ($($number:ty),*) => { $(
        impl Exchange for $number {
            #[inline(always)]
            unsafe fn exchange(self, from: From) -> Self {
                // SAFETY: the caller's contract.
                unsafe {
                    match from {
                        From::Xor(bits) => warp::warp_shuffle_xor(FULL_MASK, self, bits, LANES).0,
                        From::Below(distance) => warp::warp_shuffle_up(FULL_MASK, self, distance, LANES).0,
                        From::Lane(lane) => warp::warp_shuffle_idx(FULL_MASK, self, lane, LANES).0,
                    }
                }
            }
        }
    )* };
}

exchange!(u32, i32, f32, u64, i64, f64);

impl<A: Exchange, B: Exchange> Exchange for (A, B) {
    #[inline(always)]
    unsafe fn exchange(self, from: From) -> Self {
        // SAFETY: the caller's contract.
        unsafe { (self.0.exchange(from), self.1.exchange(from)) }
    }
}

/// A number that all lanes have alike, taken of the first: of that the assembler knows that it is the same,
/// so what follows from it is computed once for the warp, and branches on it leave no lane behind.
///
/// # Safety
/// All lanes of the warp call it together.
#[inline(always)]
pub unsafe fn uniform(value: u32) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { value.exchange(From::Lane(0)) }
}

/// Combines the values of every `lanes` neighbours; each of them gets the result. A butterfly.
///
/// `lanes` is a power of two up to 32. The operation must be commutative.
///
/// # Safety
/// All lanes of the warp call it together, with the same `lanes`.
#[inline(always)]
pub unsafe fn reduce_sections<S: Exchange, O: Operation<S>>(op: O, value: S, lanes: u32) -> S {
    // SAFETY: the caller's contract.
    unsafe { fold_sections(value, lanes, |a, b| op.combine(a, b)) }
}

/// [`reduce_sections`] by a commutative function.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn fold_sections<S: Exchange>(mut value: S, lanes: u32, combine: impl Fn(S, S) -> S) -> S {
    let mut distance = lanes / 2;
    while distance > 0 {
        // SAFETY: the caller's contract.
        value = combine(value, unsafe { value.exchange(From::Xor(distance)) });
        distance /= 2;
    }
    value
}

/// Combines the values of all lanes; each lane gets the result. The operation must be commutative.
///
/// # Safety
/// All lanes of the warp call it together.
#[inline(always)]
pub unsafe fn reduce<S: Exchange, O: Operation<S>>(op: O, value: S) -> S {
    // SAFETY: the caller's contract.
    unsafe { reduce_sections(op, value, LANES) }
}

/// Combines the values of all lanes up to this one, this one's included. The operation need not be
/// commutative.
///
/// # Safety
/// All lanes of the warp call it together.
#[inline(always)]
pub unsafe fn inclusive_scan<S: Exchange, O: Operation<S>>(op: O, mut value: S) -> S {
    let lane = warp::lane_id();
    let mut distance = 1;
    while distance < LANES {
        // SAFETY: the caller's contract.
        let below = unsafe { value.exchange(From::Below(distance)) };
        if lane >= distance {
            value = op.combine(below, value);
        }
        distance *= 2;
    }
    value
}

/// Combines the values of all lanes below this one; lane 0 gets the identity. The operation need not be
/// commutative.
///
/// # Safety
/// All lanes of the warp call it together.
#[inline(always)]
pub unsafe fn exclusive_scan<S: Exchange, O: Operation<S>>(op: O, value: S) -> S {
    // SAFETY: the caller's contract.
    let below = unsafe { inclusive_scan(op, value).exchange(From::Below(1)) };
    if warp::lane_id() == 0 { op.identity() } else { below }
}

/// The value of lane `lane < 32`.
///
/// # Safety
/// All lanes of the warp call it together, with the same `lane`.
#[inline(always)]
pub unsafe fn broadcast<S: Exchange>(value: S, lane: u32) -> S {
    // SAFETY: the caller's contract.
    unsafe { value.exchange(From::Lane(lane)) }
}
