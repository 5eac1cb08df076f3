//! Mean and variance in one pass (Welford 1962), and how two parts of the data merge (Chan et al. 1979).
//!
//! Nothing cancels: the sum of squared deviations is kept, not the sum of squares.

use crate::activation::Precision;
use crate::op::tree;
use crate::running::{Merge, Running};
use crate::warp::{Exchange, From};

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

/// Merges [`Moments`], and reads rows into them.
pub type Welford<P> = Merge<Moments<P>>;
