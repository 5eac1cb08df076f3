//! Numbers of a row in rings of lanes: what is known before it is read, and what its gradient needs.
//!
//! In 16 bits by `z`, not by distances from the mean as [`NormBackward`] has them elsewhere: a normalised
//! element is one instruction, and serves the row's sums and those of columns; a gradient takes the input
//! as it is. The mean times the factor is rounded then, as the mean itself is, so `z` may err by half a
//! unit of that in its last place, and a row of one number has as much left; beyond `CONSTANT` it has 0. In
//! f32, whose rows wait for memory, distances from the mean come first.

use super::exchange::Pair;
use crate::norm::NormBackward;
use primitives::activation::Precision;
use primitives::element::{InF32, map, zip};

/// Where the rows' means lie, or the inverses of their deviations.
#[inline(always)]
pub(super) fn moments(function: &NormBackward, mean: bool) -> *const f32 {
    function.moments.wrapping_add(if mean { 0 } else { function.rows as usize })
}

/// Known of a row before it is read.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    mean: f32,
    /// Inverse of the deviation.
    factor: f32,
}

impl Moments {
    /// Of a mean and the inverse of a deviation.
    #[inline(always)]
    pub(super) const fn new([mean, factor]: [f32; 2]) -> Self {
        Self { mean, factor }
    }

    /// The normalised elements.
    #[inline(always)]
    pub(super) fn normalised<T: InF32, const N: usize>(self, x: [f32; N]) -> [f32; N] {
        let Self { mean, factor } = self;
        if subtracts::<T>() {
            return map(x, |x| (x - mean) * factor);
        }
        let shift = -(mean * factor);
        // NaN stays.
        let (factor, shift) = if shift.abs() > CONSTANT { (0.0, 0.0) } else { (factor, shift) };
        map(x, |x| T::Precision::multiply_add(x, factor, shift))
    }

    /// The numbers that the gradient needs, from the sums of a row of so many columns.
    #[inline(always)]
    pub(super) fn gradient_of<T: InF32>(
        self,
        [of_g, of_zg]: Pair,
        function: &NormBackward,
        columns: u32,
    ) -> Of {
        let (share, factor) = (T::Precision::inverse(columns as f32), self.factor);
        let of_g = if function.is_centered != 0 { of_g * share } else { 0.0 };
        // The mean of `z g` first: a power of the factor alone may be too large for a number.
        let slope = -(of_zg * share * factor * factor);
        let of_g = -(of_g * factor);
        if subtracts::<T>() {
            return Of { factor, mean: self.mean, slope, offset: of_g };
        }
        Of { factor, mean: 0.0, slope, offset: T::Precision::multiply_add(-self.mean, slope, of_g) }
    }
}

/// Whether the mean is subtracted from each element.
const fn subtracts<T>() -> bool {
    size_of::<T>() == size_of::<f32>()
}

/// A mean over the deviation of a row of 16 bits that is larger than this is one of a row of one number: of
/// 65,536 numbers of which one is the next to the others, it is below 2^20.
const CONSTANT: f32 = (1u32 << 20) as f32;

/// Needed of the row by an element's gradient: `g factor + (x - mean) slope + offset`.
#[derive(Clone, Copy)]
pub(super) struct Of {
    /// Inverse of the deviation.
    factor: f32,
    /// Of f32; 0 where the offset has it.
    mean: f32,
    /// Minus the mean of `z g`, over the variance.
    slope: f32,
    /// Minus the mean of `g`, over the deviation; in 16 bits minus the mean times the slope besides.
    offset: f32,
}

impl Of {
    /// The gradient by the input, from that and from `g`.
    #[inline(always)]
    pub(super) fn gradient<T: InF32, const N: usize>(self, x: [f32; N], g: [f32; N]) -> [f32; N] {
        let Of { factor, mean, slope, offset } = self;
        let multiply_add = T::Precision::multiply_add;
        let x = if subtracts::<T>() { map(x, |x| x - mean) } else { x };
        zip(x, g, |x, g| multiply_add(x, slope, multiply_add(g, factor, offset)))
    }
}
