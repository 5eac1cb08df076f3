//! Mean and variance in one pass (Welford 1962), and how two parts of the data merge (Chan et al. 1979).
//!
//! Nothing cancels: the sum of squared deviations is kept, not the sum of squares.

use crate::activation::Precision;
use crate::op::tree;
use crate::running::{Merge, Running};
use crate::warp::{self, Exchange, From};

/// Count, mean and sum of squared deviations of some values.
pub struct Moments<P: Precision> {
    /// How many values. In f32 exact up to 2^24.
    pub count: P::Value,
    /// Their mean; 0 of none.
    pub mean: P::Value,
    /// The sum of `(x - mean)^2`.
    pub squares: P::Value,
}

impl<P: Precision> Clone for Moments<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Precision> Copy for Moments<P> {}

impl<P: Precision> Running for Moments<P> {
    type Precision = P;

    #[inline(always)]
    fn empty() -> Self {
        let zero = P::value(0.0);
        Moments { count: zero, mean: zero, squares: zero }
    }

    #[inline(always)]
    fn push(self, x: P::Value) -> Self {
        let count = self.count + P::value(1.0);
        let delta = x - self.mean;
        let mean = self.mean + delta / count;
        Moments { count, mean, squares: self.squares + delta * (x - mean) }
    }

    /// One division for all values.
    #[inline(always)]
    fn push_all<const N: usize>(self, x: [P::Value; N]) -> Self {
        let count = P::value(N as f64);
        let mean = tree(x, |a, b| a + b) * P::value(1.0 / N as f64);
        let squares = tree(x.map(|x| (x - mean) * (x - mean)), |a, b| a + b);
        self.merge(Moments { count, mean, squares })
    }

    #[inline(always)]
    fn merge(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == P::value(0.0) {
            return self;
        }
        let (delta, share) = (other.mean - self.mean, other.count / count);
        let squares = self.squares + other.squares + delta * delta * self.count * share;
        Moments { count, mean: self.mean + delta * share, squares }
    }
}

impl<P: Precision> Moments<P> {
    /// The variance with `correction` degrees of freedom less: 0 for the population's, 1 for PyTorch's
    /// default.
    #[inline(always)]
    pub fn variance(self, correction: P::Value) -> P::Value {
        self.squares / (self.count - correction)
    }
}

impl<P: Precision<Value: Exchange>> Exchange for Moments<P> {
    #[inline(always)]
    unsafe fn exchange(self, from: From) -> Self {
        let Moments { count, mean, squares } = self;
        // SAFETY: the caller's contract.
        unsafe {
            let (count, (mean, squares)) = (count, (mean, squares)).exchange(from);
            Moments { count, mean, squares }
        }
    }
}

/// Sums of the differences of some values from the first, and of their squares.
///
/// A value costs a difference, a sum and a fused product. The first value keeps the result right: where it is
/// far from the others, the variance is as large as what cancels but for a factor of the number of values.
pub struct Shifted<P: Precision> {
    /// How many values.
    pub count: P::Value,
    /// Is subtracted: the first value; 0 of none.
    pub shift: P::Value,
    /// The sum of `x - shift`.
    pub sum: P::Value,
    /// The sum of `(x - shift)^2`.
    pub squares: P::Value,
}

impl<P: Precision> Clone for Shifted<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Precision> Copy for Shifted<P> {}

impl<P: Precision> Shifted<P> {
    /// The state of no values.
    #[inline(always)]
    pub fn empty() -> Self {
        let zero = P::value(0.0);
        Shifted { count: zero, shift: zero, sum: zero, squares: zero }
    }

    /// The state of these values and `N` more, a power of two up to 16.
    #[inline(always)]
    pub fn push_all<const N: usize>(mut self, x: [P::Value; N]) -> Self {
        if self.count == P::value(0.0) {
            self.shift = x[0];
        }
        for i in 0..N {
            let difference = x[i] - self.shift;
            self.sum = self.sum + difference;
            self.squares = P::multiply_add(difference, difference, self.squares);
        }
        Shifted { count: self.count + P::value(N as f64), ..self }
    }

    /// The same with the mean as the shift: then `sum` is 0, and `squares` the sum of squared deviations.
    #[inline(always)]
    #[must_use]
    pub fn about_mean(self) -> Self {
        let zero = P::value(0.0);
        if self.count == zero {
            return self;
        }
        let distance = self.sum * P::inverse(self.count);
        let squares = self.squares - self.sum * distance;
        // Rounding may leave less than nothing; NaN stays.
        let squares = if squares < zero { zero } else { squares };
        Shifted { shift: self.shift + distance, sum: zero, squares, ..self }
    }
}

impl<P: Precision<Value: Exchange>> Shifted<P> {
    /// The state of every `lanes` neighbours together, [about its mean](Shifted::about_mean), which each of
    /// them gets. `lanes` is a power of two up to 32.
    ///
    /// # Safety
    /// All lanes of the warp call it together, with the same `lanes`.
    #[inline(always)]
    pub unsafe fn reduce_sections(self, lanes: u32) -> Self {
        let own = self.about_mean();
        let plus = |a, b| a + b;
        // SAFETY: the caller's contract.
        unsafe {
            // Means are added as differences from one of them: of equal ones that is exact.
            let base = own.shift.exchange(From::Lane(cuda_std::warp::lane_id() & !(lanes - 1)));
            let count = warp::fold_sections(own.count, lanes, plus);
            let sum = warp::fold_sections(own.count * (own.shift - base), lanes, plus);
            let mean = if count == P::value(0.0) { base } else { base + sum * P::inverse(count) };
            let distance = own.shift - mean;
            let squares = P::multiply_add(own.count * distance, distance, own.squares);
            let squares = warp::fold_sections(squares, lanes, plus);
            Shifted { count, shift: mean, sum: P::value(0.0), squares }
        }
    }
}

/// Merges [`Moments`], and reads rows into them.
pub type Welford<P> = Merge<Moments<P>>;
