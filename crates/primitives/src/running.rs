//! States that values are pushed into and that merge: what reductions of rows keep.

use crate::access::{Words, from_words};
use crate::activation::Precision;
use crate::element::Float;
use crate::op::Operation;
use crate::row::Reader;
use core::marker::PhantomData;

/// A summary of some values that takes in more values, and merges with that of others.
pub trait Running: Copy {
    /// The values' precision.
    type Precision: Precision;

    /// The state of no values.
    fn empty() -> Self;

    /// The state of these values and one more.
    fn push(self, x: <Self::Precision as Precision>::Value) -> Self;

    /// The state of these values and `N` more, a power of two up to 16.
    fn push_all<const N: usize>(self, x: [<Self::Precision as Precision>::Value; N]) -> Self;

    /// The state of both.
    fn merge(self, other: Self) -> Self;
}

/// The operation that merges the states `S`, and reads rows into one.
pub struct Merge<S>(PhantomData<fn() -> S>);

impl<S> Merge<S> {
    /// The operation.
    pub const NEW: Self = Merge(PhantomData);
}

impl<S> Clone for Merge<S> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Merge<S> {}

impl<S: Running> Operation<S> for Merge<S> {
    #[inline(always)]
    fn identity(self) -> S {
        S::empty()
    }

    #[inline(always)]
    fn combine(self, a: S, b: S) -> S {
        a.merge(b)
    }
}

impl<T: Float, S: Running<Precision = T::Precision>> Reader<T> for Merge<S> {
    type State = S;

    #[inline(always)]
    fn element(self, state: S, value: T, _: u32) -> S {
        state.push(T::widen([value])[0])
    }

    #[inline(always)]
    fn vector<const N: usize>(self, state: S, words: Words, _: u32) -> S {
        state.push_all(T::widen(from_words::<T, N>(words)))
    }
}
