//! One u64 that orders candidates: the score above, the row below.
//!
//! ```text
//!  63            32 31             0
//! +----------------+----------------+
//! | ordered(score) |     !row       |     larger is better; 0 is no candidate at all
//! +----------------+----------------+
//! ```
//! `ordered` is monotonic, maps both zeros to one value and every NaN to [`ORDERED_NAN`], below all numbers.
//! Inverting the row lets the lower of two rows with equal scores win. Keys of different rows differ, so the
//! best `k` of a set do not depend on the order in which it is looked through: that is what makes the results
//! repeat bit for bit.

/// The key of no candidate: below all others.
pub const EMPTY: u64 = 0;
/// `ordered` of no candidate.
pub const ORDERED_EMPTY: u32 = 0;
/// `ordered(NaN)`.
pub const ORDERED_NAN: u32 = 1;
/// Above `ordered` of every score: that of infinity, which no score is.
pub const ORDERED_NEVER: u32 = f32::INFINITY.to_bits() | SIGN;

/// Row that stands for no candidate in the results.
pub const NO_ROW: u32 = u32::MAX;
/// Score that stands for no candidate in the results.
pub const NO_SCORE: f32 = f32::NEG_INFINITY;

const SIGN: u32 = 1 << 31;

/// The score as an integer of the same order.
#[inline(always)]
pub fn ordered(score: f32) -> u32 {
    // Adding zero turns -0 into +0.
    let bits = (score + 0.0).to_bits();
    let number = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    if score.is_nan() { ORDERED_NAN } else { number }
}

/// The score that [`ordered`] made `ordered` of; NaN for [`ORDERED_NAN`] and [`ORDERED_EMPTY`].
#[inline(always)]
pub fn score_of(ordered: u32) -> f32 {
    let bits = if ordered & SIGN == 0 { !ordered } else { ordered ^ SIGN };
    if ordered <= ORDERED_NAN { f32::NAN } else { f32::from_bits(bits) }
}

/// Whether a score may enter a list whose worst score is `threshold`: a single comparison, true when either
/// is NaN, so that lists with no threshold yet, or with a NaN, and scores that are NaN get the closer look.
#[inline(always)]
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "the answer for NaN is the point")]
pub fn may_enter(score: f32, threshold: f32) -> bool {
    !(score < threshold)
}

/// The key of a row with this score.
#[inline(always)]
pub fn key(score: f32, row: u32) -> u64 {
    join(ordered(score), !row)
}

/// The key with these halves.
#[inline(always)]
pub fn join(high: u32, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// The halves of a key: high, low.
#[inline(always)]
pub fn split(key: u64) -> (u32, u32) {
    ((key >> 32) as u32, key as u32)
}

/// Score and row of a key; ([`NO_SCORE`], [`NO_ROW`]) for [`EMPTY`].
#[inline(always)]
pub fn decode(key: u64) -> (f32, u32) {
    let (high, low) = split(key);
    if key == EMPTY { (NO_SCORE, NO_ROW) } else { (score_of(high), !low) }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;

    #[test]
    fn keys_order_scores_and_then_rows() {
        let falling = [1.5, 1.0, f32::MIN_POSITIVE, 1e-45, 0.0, -1e-45, -1.0, f32::MIN, f32::NAN];
        for pair in falling.windows(2) {
            assert!(key(pair[0], 9) > key(pair[1], 0), "{pair:?}");
        }
        assert!(key(0.5, 3) > key(0.5, 4));
        assert_eq!(key(-0.0, 3), key(0.0, 3));
        assert_eq!(ordered(-f32::NAN), ORDERED_NAN);
        assert!(key(f32::NAN, NO_ROW - 1) > EMPTY && ordered(f32::INFINITY) == ORDERED_NEVER);
    }

    #[test]
    fn only_a_lower_number_may_not_enter() {
        assert!(!may_enter(0.5, 1.0));
        for (score, threshold) in
            [(1.0, 0.5), (0.5, 0.5), (f32::NAN, 0.5), (0.5, f32::NAN), (f32::NAN, f32::NAN)]
        {
            assert!(may_enter(score, threshold), "{score} {threshold}");
        }
    }

    #[test]
    fn decode_undoes_key() {
        for score in [1.0, 0.25, 0.0, -1e-40, -1.0] {
            assert_eq!(decode(key(score, 77)), (score, 77));
        }
        assert!(decode(key(f32::NAN, 5)).0.is_nan());
        assert_eq!(decode(EMPTY), (NO_SCORE, NO_ROW));
    }
}
