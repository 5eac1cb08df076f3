//! Softmax in one pass over its values (Milakov and Gimelshein 2018): a running maximum and a running sum of
//! exponentials.
//!
//! ```text
//!   max = max(x_i)      sum = sum of e^(x_i - max)      softmax(x_i) = e^(x_i - max) / sum
//! ```
//! Two states merge into one, so threads, warps and blocks can share a row. A row whose values are all minus
//! infinity, or one with NaN or infinity, has the softmax NaN, as in PyTorch.

use crate::activation::Precision;
use crate::op::tree;
use crate::running::{Merge, Running};
use crate::warp::{self, Exchange, From};

/// The running maximum and the running sum of `e^(x - max)` of some values.
pub struct Softmax<P: Precision> {
    /// The largest value; minus infinity of none.
    pub max: P::Value,
    /// The sum of `e^(x - max)`.
    pub sum: P::Value,
}

impl<P: Precision> Clone for Softmax<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Precision> Copy for Softmax<P> {}

impl<P: Precision> Running for Softmax<P> {
    type Precision = P;

    #[inline(always)]
    fn empty() -> Self {
        Softmax { max: P::value(f64::NEG_INFINITY), sum: P::value(0.0) }
    }

    #[inline(always)]
    fn push(self, x: P::Value) -> Self {
        self.push_all([x])
    }

    /// The sum so far is rescaled once.
    #[inline(always)]
    fn push_all<const N: usize>(self, x: [P::Value; N]) -> Self {
        let max = P::max(self.max, tree(x, P::max));
        let base = base::<P>(max);
        let terms = tree(x.map(|x| P::exp(x - base)), |a, b| a + b);
        Softmax { max, sum: self.sum * P::exp(self.max - base) + terms }
    }

    #[inline(always)]
    fn merge(self, other: Self) -> Self {
        let max = P::max(self.max, other.max);
        let base = base::<P>(max);
        let sum = self.sum * P::exp(self.max - base) + other.sum * P::exp(other.max - base);
        Softmax { max, sum }
    }
}

impl<P: Precision> Softmax<P> {
    /// `1 / sum`, the factor of [`Softmax::weight`].
    #[inline(always)]
    pub fn inverse_sum(self) -> P::Value {
        P::value(1.0) / self.sum
    }

    /// `e^(x - max)`: times [`Softmax::inverse_sum`] it is the softmax of `x`.
    #[inline(always)]
    pub fn weight(self, x: P::Value) -> P::Value {
        P::exp(x - self.max)
    }

    /// `max + ln(sum)`: subtracted from `x` it leaves the logarithm of the softmax of `x`.
    #[inline(always)]
    pub fn log_sum_exp(self) -> P::Value {
        self.max + P::ln(self.sum)
    }
}

impl<P: Precision<Value: Exchange>> Softmax<P> {
    /// The state of every `lanes` neighbours together, which each of them gets: the largest maximum first, so
    /// that a lane takes one exponential. `lanes` is a power of two up to 32.
    ///
    /// # Safety
    /// All lanes of the warp call it together, with the same `lanes`.
    #[inline(always)]
    pub unsafe fn reduce_sections(self, lanes: u32) -> Self {
        // SAFETY: the caller's contract.
        unsafe {
            let max = warp::fold_sections(self.max, lanes, P::max);
            let share = self.sum * P::exp(self.max - base::<P>(max));
            Softmax { max, sum: warp::fold_sections(share, lanes, |a, b| a + b) }
        }
    }
}

/// The number to subtract from values up to `max`. For minus infinity it is 0, since infinities have no
/// difference.
#[inline(always)]
fn base<P: Precision>(max: P::Value) -> P::Value {
    if max == P::value(f64::NEG_INFINITY) { P::value(0.0) } else { max }
}

impl<P: Precision<Value: Exchange>> Exchange for Softmax<P> {
    #[inline(always)]
    unsafe fn exchange(self, from: From) -> Self {
        // SAFETY: the caller's contract.
        unsafe { Softmax { max: self.max.exchange(from), sum: self.sum.exchange(from) } }
    }
}

/// Merges [`Softmax`] states, and reads rows into one.
pub type Online<P> = Merge<Softmax<P>>;
