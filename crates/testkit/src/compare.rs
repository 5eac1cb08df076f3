//! Compares a kernel's result with its oracle.

use crate::tolerance::Row;
use crate::{Element, Tolerance};
use std::fmt;

/// The summary of a passed comparison. `Display` prints the metric and the tolerance, so a pass always names
/// its rule.
#[derive(Debug, Clone)]
pub struct Agreement {
    /// The name of the compared result.
    pub what: String,
    /// Number of compared elements.
    pub elements: usize,
    /// Number of NaN and infinities that matched in place.
    pub special: usize,
    /// Largest error as a fraction of the allowed error: 0 is exact, 1 is at the limit.
    pub worst: f64,
    /// The tolerance that was applied.
    pub tolerance: Tolerance,
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, elements, special, worst, tolerance: Tolerance { absolute, relative } } = self;
        write!(
            f,
            "{what}: {elements} elements ({special} special) within {absolute:.1e} + {relative:.1e} * scale, "
        )?;
        write!(f, "worst at {:.1} % of that", worst * 100.0)
    }
}

/// The reason why two results differ.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Mismatch {
    /// The results differ in length, or do not match the shape.
    #[error("{what}: got {got} elements, wanted {want} (shape {shape:?})")]
    Length {
        /// The name of the compared result.
        what: String,
        /// Elements in the result.
        got: usize,
        /// Elements in the oracle's result.
        want: usize,
        /// The shape given.
        shape: Vec<usize>,
    },
    /// NaN or infinity on one side only.
    #[error(
        "{what}: got {got} at {coordinate:?}, wanted {want}: special values must match in place ({bad} of {elements} do not)"
    )]
    Special {
        /// The name of the compared result.
        what: String,
        /// The first such element.
        coordinate: Vec<usize>,
        /// The result's value there.
        got: f64,
        /// The oracle's value there.
        want: f64,
        /// Number of such elements.
        bad: usize,
        /// Number of compared elements.
        elements: usize,
    },
    /// Errors beyond the tolerance.
    #[error(
        "{what}: {bad} of {elements} elements differ; worst at {coordinate:?}: got {got:e}, wanted {want:e}, error {error:e}, allowed {allowed:e}"
    )]
    Value {
        /// The name of the compared result.
        what: String,
        /// The element whose error is the largest fraction of the allowed error.
        coordinate: Vec<usize>,
        /// The result's value there.
        got: f64,
        /// The oracle's value there.
        want: f64,
        /// `|got - want|` there.
        error: f64,
        /// The allowed error there.
        allowed: f64,
        /// Number of elements beyond the tolerance.
        bad: usize,
        /// Number of compared elements.
        elements: usize,
    },
    /// Two results that must agree bit for bit differ.
    #[error(
        "{what}: {bad} of {elements} elements differ in their bits; first at {index}: {left:e} ({left_bits:#x}) and {right:e} ({right_bits:#x})"
    )]
    Bits {
        /// The name of the compared result.
        what: String,
        /// The first such element.
        index: usize,
        /// The left value.
        left: f64,
        /// The right value.
        right: f64,
        /// The bits of the left value.
        left_bits: u64,
        /// The bits of the right value.
        right_bits: u64,
        /// Number of such elements.
        bad: usize,
        /// Number of compared elements.
        elements: usize,
    },
}

/// Compares each element. The scale is `|want|`.
///
/// The oracle's value is rounded to `T` only to decide whether it overflows to infinity.
///
/// # Errors
/// The first mismatch, in the order of the rules in the crate's documentation, with the worst coordinate.
pub fn elementwise<T: Element>(
    what: &str,
    got: &[T],
    want: &[f64],
    shape: &[usize],
    tolerance: Tolerance,
) -> Result<Agreement, Mismatch> {
    check(what, got, want, shape, tolerance, |index| tolerance.allowed(want[index].abs()))
}

/// Compares each element. The scale is `magnitude`: the sum of the absolute values of the element's terms.
///
/// # Errors
/// As [`elementwise`].
pub fn accumulated<T: Element>(
    what: &str,
    got: &[T],
    want: &[f64],
    magnitude: &[f64],
    shape: &[usize],
    tolerance: Tolerance,
) -> Result<Agreement, Mismatch> {
    same_magnitudes(what, want, magnitude, shape)?;
    check(what, got, want, shape, tolerance, |index| tolerance.allowed(magnitude[index]))
}

/// Compares sums that were rounded to `T` once, at the end. Besides the error that `tolerance` allows for
/// `magnitude`, half a unit in the last place of the result is allowed. With [`Tolerance::EXACT`] only that
/// rounding is allowed.
///
/// # Errors
/// As [`elementwise`].
pub fn rounded<T: Element>(
    what: &str,
    got: &[T],
    want: &[f64],
    magnitude: &[f64],
    shape: &[usize],
    tolerance: Tolerance,
) -> Result<Agreement, Mismatch> {
    same_magnitudes(what, want, magnitude, shape)?;
    check(what, got, want, shape, tolerance, |index| {
        let error = tolerance.allowed(magnitude[index]);
        error + half_unit::<T>(want[index].abs() + error)
    })
}

/// Half the distance between neighbouring numbers of `T` around `value`.
fn half_unit<T: Element>(value: f64) -> f64 {
    // The exponent from the bits of an f64. It is too low for subnormal f64; the lower bound corrects that.
    let exponent = (value.to_bits() >> 52) as i32 - 1023;
    f64::from(exponent.clamp(T::MIN_EXPONENT, T::MAX_EXPONENT) - T::MANTISSA_BITS - 1).exp2()
}

fn same_magnitudes(what: &str, want: &[f64], magnitude: &[f64], shape: &[usize]) -> Result<(), Mismatch> {
    if magnitude.len() == want.len() {
        return Ok(());
    }
    let (got, want, shape) = (magnitude.len(), want.len(), shape.to_vec());
    Err(Mismatch::Length { what: format!("{what} (magnitudes)"), got, want, shape })
}

/// Whether an estimated time is as near to a measured one as the table allows, by the logarithm of their
/// ratio.
pub fn is_foreseen(estimated: f64, measured: f64, row: &Row) -> bool {
    (estimated / measured).ln().abs() < row.tolerance().absolute
}

/// Requires equal bits in all elements: -0 is not 0, and NaN payloads count.
///
/// # Errors
/// [`Mismatch::Length`] or [`Mismatch::Bits`].
pub fn bitwise_equal<T: Element>(what: &str, left: &[T], right: &[T]) -> Result<(), Mismatch> {
    if left.len() != right.len() {
        let shape = vec![right.len()];
        return Err(Mismatch::Length { what: what.into(), got: left.len(), want: right.len(), shape });
    }
    let differs = |index: &usize| left[*index].bits() != right[*index].bits();
    let bad = (0..left.len()).filter(differs).count();
    let Some(index) = (0..left.len()).find(differs) else { return Ok(()) };
    Err(Mismatch::Bits {
        what: what.into(),
        index,
        left: left[index].to_f64(),
        right: right[index].to_f64(),
        left_bits: left[index].bits(),
        right_bits: right[index].bits(),
        bad,
        elements: left.len(),
    })
}

fn check<T: Element>(
    what: &str,
    got: &[T],
    want: &[f64],
    shape: &[usize],
    tolerance: Tolerance,
    allowed: impl Fn(usize) -> f64,
) -> Result<Agreement, Mismatch> {
    let elements = want.len();
    if got.len() != elements || shape.iter().product::<usize>() != elements {
        return Err(Mismatch::Length {
            what: what.into(),
            got: got.len(),
            want: elements,
            shape: shape.into(),
        });
    }
    let special = match_special(what, got, want, shape)?;
    let (mut worst, mut worst_index, mut bad) = (0.0, 0, 0);
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (got.to_f64() - want).abs();
        if !got.to_f64().is_finite() {
            continue;
        }
        // A NaN error or limit counts as bad. An error of 0 with 0 allowed is exact.
        let part = if error == 0.0 { 0.0 } else { error / allowed(index) };
        let fine = part <= 1.0;
        bad += usize::from(!fine);
        if part > worst || part.is_nan() {
            (worst, worst_index) = (part, index);
        }
    }
    if bad == 0 {
        return Ok(Agreement { what: what.into(), elements, special, worst, tolerance });
    }
    let (got, want) = (got[worst_index].to_f64(), want[worst_index]);
    let (error, allowed) = ((got - want).abs(), allowed(worst_index));
    let coordinate = coordinate(worst_index, shape);
    Err(Mismatch::Value { what: what.into(), coordinate, got, want, error, allowed, bad, elements })
}

/// Counts the special values if they all match in place.
fn match_special<T: Element>(
    what: &str,
    got: &[T],
    want: &[f64],
    shape: &[usize],
) -> Result<usize, Mismatch> {
    let same = |index: usize| {
        let (got, want) = (got[index].to_f64(), T::from_f64(want[index]).to_f64());
        if got.is_finite() && want.is_finite() {
            true
        } else {
            got == want || (got.is_nan() && want.is_nan())
        }
    };
    let elements = want.len();
    let bad = (0..elements).filter(|&index| !same(index)).count();
    let Some(first) = (0..elements).find(|&index| !same(index)) else {
        return Ok(got.iter().filter(|value| !value.to_f64().is_finite()).count());
    };
    let coordinate = coordinate(first, shape);
    let (got, want) = (got[first].to_f64(), want[first]);
    Err(Mismatch::Special { what: what.into(), coordinate, got, want, bad, elements })
}

/// Row-major coordinates of a linear index.
fn coordinate(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut coordinate = vec![0; shape.len()];
    for (place, &extent) in coordinate.iter_mut().zip(shape).rev() {
        *place = index % extent;
        index /= extent;
    }
    coordinate
}

#[cfg(test)]
mod tests {
    use super::{Mismatch, accumulated, bitwise_equal, elementwise, is_foreseen, rounded};
    use crate::Tolerance;
    use crate::tolerance::GEMM_TIME;

    const TIGHT: Tolerance = Tolerance { absolute: 0.0, relative: 1e-6 };

    #[test]
    fn the_worst_coordinate_is_named() {
        let want: Vec<f64> = (1..=12).map(f64::from).collect();
        let mut got: Vec<f32> = want.iter().map(|v| *v as f32).collect();
        got[3] += 0.1;
        got[7] += 1.0;
        let Err(Mismatch::Value { coordinate, bad, .. }) = elementwise("x", &got, &want, &[3, 4], TIGHT)
        else {
            panic!("not seen");
        };
        assert_eq!((coordinate, bad), (vec![1, 3], 2));
    }

    #[test]
    fn special_values_must_match_in_place() {
        let want = [1.0, f64::NAN, f64::INFINITY, 1e300];
        let good = [1.0, f32::NAN, f32::INFINITY, f32::INFINITY];
        assert_eq!(elementwise("x", &good, &want, &[4], TIGHT).unwrap().special, 3);
        for (place, wrong) in [
            (0, f32::NAN),
            (0, f32::INFINITY),
            (1, 1.0),
            (1, f32::INFINITY),
            (2, f32::NEG_INFINITY),
            (3, 1.0),
        ] {
            let mut got = good;
            got[place] = wrong;
            let error = elementwise("x", &got, &want, &[4], TIGHT).unwrap_err();
            assert!(
                matches!(error, Mismatch::Special { ref coordinate, .. } if *coordinate == [place]),
                "{error}"
            );
        }
    }

    #[test]
    fn accumulated_error_is_measured_against_the_magnitude() {
        assert!(elementwise("x", &[1e-7f32], &[0.0], &[1], TIGHT).is_err());
        assert!(accumulated("x", &[1e-7f32], &[0.0], &[1.0], &[1], TIGHT).is_ok());
        assert!(accumulated("x", &[1e-5f32], &[0.0], &[1.0], &[1], TIGHT).is_err());
        assert!(accumulated("x", &[1e-5f32], &[0.0], &[f64::NAN], &[1], TIGHT).is_err());
    }

    #[test]
    fn lengths_and_shapes_are_checked() {
        assert!(matches!(elementwise("x", &[1f32], &[1.0, 2.0], &[2], TIGHT), Err(Mismatch::Length { .. })));
        assert!(matches!(elementwise("x", &[1f32], &[1.0], &[2], TIGHT), Err(Mismatch::Length { .. })));
        assert!(elementwise::<f32>("x", &[], &[], &[0, 3], TIGHT).is_ok());
    }

    #[test]
    fn bitwise_equality_sees_signs_of_zero() {
        assert!(bitwise_equal("x", &[0f32, f32::NAN], &[0f32, f32::NAN]).is_ok());
        assert!(matches!(
            bitwise_equal("x", &[1f32, 0.0], &[1f32, -0.0]),
            Err(Mismatch::Bits { index: 1, .. })
        ));
        assert!(bitwise_equal("x", &[1f32], &[]).is_err());
    }

    #[test]
    fn one_rounding_is_allowed_and_no_more() {
        use half::bf16;
        let check = |got: f32, want: f64, tolerance| {
            rounded("x", &[bf16::from_f32(got)], &[want], &[100.0], &[1], tolerance)
        };
        // The neighbours of 257 are 256 and 258, both half a unit away. Those of 259 are 258 and 260.
        for (got, fine) in [(254.0, false), (256.0, true), (258.0, true), (260.0, false)] {
            assert_eq!(check(got, 257.0, Tolerance::EXACT).is_ok(), fine, "{got}");
        }
        assert!(check(260.0, 257.0, TIGHT).is_err());
        assert!(check(260.0, 257.0, Tolerance { absolute: 0.0, relative: 0.021 }).is_ok());
        // Half of the smallest subnormal bf16, 2^-133.
        assert!(check(0.0, 2f64.powi(-134), Tolerance::EXACT).is_ok());
        assert!(check(0.0, 2f64.powi(-133), Tolerance::EXACT).is_err());
    }

    #[test]
    fn times_are_compared_by_their_ratio() {
        let far = GEMM_TIME.tolerance().absolute;
        for (distance, fine) in [(0.9 * far, true), (1.1 * far, false)] {
            for measured in [2.0, 1e4] {
                let estimated = measured * distance.exp();
                assert_eq!(is_foreseen(estimated, measured, &GEMM_TIME), fine, "{estimated}");
                assert_eq!(is_foreseen(measured, estimated, &GEMM_TIME), fine, "{estimated}");
            }
        }
        assert!(!is_foreseen(f64::NAN, 1.0, &GEMM_TIME));
    }
}
