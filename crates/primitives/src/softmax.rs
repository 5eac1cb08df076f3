//! Softmax in one pass over its values (Milakov and Gimelshein 2018): a running maximum and a running sum of exponentials.
//!
//! ```text
//!   max = max(x_i)      sum = sum of e^(x_i - max)      softmax(x_i) = e^(x_i - max) / sum
//! ```
//! Two states merge into one, so threads, warps and blocks can share a row. A row whose values are all minus infinity, or one
//! with NaN or infinity, has the softmax NaN, as in PyTorch.

use crate::access::{Words, from_words};
use crate::activation::Precision;
use crate::element::Float;
use crate::op::{Operation, tree};
use crate::row::Reader;
use crate::warp::{Exchange, From};
use core::marker::PhantomData;

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

impl<P: Precision> Softmax<P> {
    /// The state of no values.
    #[inline(always)]
    pub fn empty() -> Self {
        Softmax { max: P::value(f64::NEG_INFINITY), sum: P::value(0.0) }
    }

    /// The state of these values and one more.
    #[inline(always)]
    pub fn push(self, x: P::Value) -> Self {
        self.push_all([x])
    }

    /// The state of these values and `N` more. The sum so far is rescaled once.
    #[inline(always)]
    pub fn push_all<const N: usize>(self, x: [P::Value; N]) -> Self {
        let max = P::max(self.max, tree(x, P::max));
        let base = base::<P>(max);
        let terms = tree(x.map(|x| P::exp(x - base)), |a, b| a + b);
        Softmax { max, sum: self.sum * P::exp(self.max - base) + terms }
    }

    /// The state of both.
    #[inline(always)]
    pub fn merge(self, other: Self) -> Self {
        let max = P::max(self.max, other.max);
        let base = base::<P>(max);
        let sum = self.sum * P::exp(self.max - base) + other.sum * P::exp(other.max - base);
        Softmax { max, sum }
    }

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

/// What to subtract from values up to `max`: 0 for minus infinity, since infinities have no difference.
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
pub struct Online<P>(PhantomData<P>);

impl<P> Online<P> {
    /// The operation.
    pub const NEW: Self = Online(PhantomData);
}

impl<P> Clone for Online<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Online<P> {}

impl<P: Precision> Operation<Softmax<P>> for Online<P> {
    #[inline(always)]
    fn identity(self) -> Softmax<P> {
        Softmax::empty()
    }

    #[inline(always)]
    fn combine(self, a: Softmax<P>, b: Softmax<P>) -> Softmax<P> {
        a.merge(b)
    }
}

impl<T: Float> Reader<T> for Online<T::Precision> {
    type State = Softmax<T::Precision>;

    #[inline(always)]
    fn element(self, state: Self::State, value: T, _: u32) -> Self::State {
        state.push(T::widen([value])[0])
    }

    #[inline(always)]
    fn vector<const N: usize>(self, state: Self::State, words: Words, _: u32) -> Self::State {
        state.push_all(T::widen(from_words::<T, N>(words)))
    }
}
