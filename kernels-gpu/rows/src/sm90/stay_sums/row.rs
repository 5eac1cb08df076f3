//! Numbers of a row in rings of lanes: what is known before it is read, and what its gradient needs.
//!
//! By `z`, not by distances from the mean as [`NormBackward`] has them elsewhere: a normalised element is one
//! instruction, and serves the row's sums and those of columns; a gradient takes the input as it is.

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

    /// The normalised elements, as [`crate::norm::Norm`] has them.
    #[inline(always)]
    pub(super) fn normalised<T: InF32, const N: usize>(self, x: [f32; N]) -> [f32; N] {
        let shift = -(self.mean * self.factor);
        map(x, |x| T::Precision::multiply_add(x, self.factor, shift))
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
        Of { factor, slope, offset: T::Precision::multiply_add(-self.mean, slope, -(of_g * factor)) }
    }
}

/// Needed of the row by an element's gradient: `g factor + x slope + offset`.
#[derive(Clone, Copy)]
pub(super) struct Of {
    /// Inverse of the deviation.
    factor: f32,
    /// Minus the mean of `z g`, over the variance.
    slope: f32,
    /// Minus the mean of `g`, over the deviation, and minus the mean times the slope.
    offset: f32,
}

impl Of {
    /// The gradient by the input, from that and from `g`.
    #[inline(always)]
    pub(super) fn gradient<T: InF32, const N: usize>(self, x: [f32; N], g: [f32; N]) -> [f32; N] {
        let Of { factor, slope, offset } = self;
        let multiply_add = T::Precision::multiply_add;
        zip(x, g, |x, g| multiply_add(x, slope, multiply_add(g, factor, offset)))
    }
}
