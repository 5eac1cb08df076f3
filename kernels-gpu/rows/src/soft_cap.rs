//! Cross-entropy of logits with a soft cap, and its gradient, which passes through the cap.
//!
//! ```text
//!   capped = c tanh(x / c)        gradient by x = gradient by capped (1 - tanh(x / c)^2)
//! ```
//! The formula is that of Gemma 2 (Gemma Team 2024, arXiv:2408.00118, section 2, "Logit soft-capping"). An
//! infinite logit becomes the cap, and a NaN stays one.

use crate::function::{Place, RowFunction};
use crate::loss::{CrossEntropy, Logits, Of, Row};
use core::cell::Cell;
use cuda_std::KernelArgs;
use primitives::activation::Precision;
use primitives::element::{InF32, map, zip};

/// A soft cap.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct SoftCap {
    /// The cap.
    pub cap: f32,
    /// One over it.
    pub inverse: f32,
}

impl SoftCap {
    /// `tanh(x / c)`.
    #[inline(always)]
    pub(crate) fn shares<P: Precision<Value = f32>, const N: usize>(self, x: [f32; N]) -> [f32; N] {
        map(x, |x| P::tanh(x * self.inverse))
    }

    /// Capped logits from these shares of the cap.
    #[inline(always)]
    pub(crate) fn capped<const N: usize>(self, shares: [f32; N]) -> [f32; N] {
        map(shares, |share| self.cap * share)
    }

    /// The gradients by logits from those by capped ones.
    #[inline(always)]
    pub(crate) fn gradient<const N: usize>(gradient: [f32; N], shares: [f32; N]) -> [f32; N] {
        // The first factor is right to the last bit near the cap, where the product is small.
        zip(gradient, shares, |gradient, share| gradient * ((1.0 - share) * (1.0 + share)))
    }
}

/// See the module.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct CappedCrossEntropy {
    /// The loss of capped logits.
    pub of: CrossEntropy,
    /// The cap.
    pub cap: SoftCap,
}

impl<T: InF32> RowFunction<T> for CappedCrossEntropy {
    const INPUTS: usize = <CrossEntropy as RowFunction<T>>::INPUTS;
    type Row = Row;
    type Statistics = Logits<T::Precision>;
    type Of = Of;

    #[inline(always)]
    unsafe fn begin(&self, row: u64) -> Row {
        // SAFETY: the caller's promise.
        unsafe { RowFunction::<T>::begin(&self.of, row) }
    }

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        row: Row,
        logits: Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        unsafe { RowFunction::<T>::take(&self.of, row, logits, &Capped::new(at, self.cap)) }
    }

    #[inline(always)]
    unsafe fn finish(
        &self,
        row: Row,
        logits: Self::Statistics,
        number: u64,
        columns: u32,
        is_first: bool,
    ) -> Of {
        // SAFETY: the caller's promise.
        unsafe { RowFunction::<T>::finish(&self.of, row, logits, number, columns, is_first) }
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Of, at: &impl Place<T, N>) {
        // SAFETY: the caller's promise.
        unsafe { RowFunction::<T>::map(&self.of, of, &Capped::new(at, self.cap)) }
    }
}

/// A place whose logits are read capped, and to which gradients by those are written as gradients by logits.
struct Capped<'a, A, const N: usize> {
    at: &'a A,
    cap: SoftCap,
    /// Of the logits that were read.
    shares: Cell<[f32; N]>,
}

impl<'a, A, const N: usize> Capped<'a, A, N> {
    #[inline(always)]
    fn new(at: &'a A, cap: SoftCap) -> Self {
        Self { at, cap, shares: Cell::new([0.0; N]) }
    }
}

impl<T: InF32, A: Place<T, N>, const N: usize> Place<T, N> for Capped<'_, A, N> {
    #[inline(always)]
    fn column(&self) -> u32 {
        self.at.column()
    }

    #[inline(always)]
    unsafe fn input(&self, which: usize) -> [f32; N] {
        // SAFETY: the caller's promise.
        self.shares.set(self.cap.shares::<T::Precision, N>(unsafe { self.at.input(which) }));
        self.cap.capped(self.shares.get())
    }

    #[inline(always)]
    unsafe fn output(&self, which: usize, values: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe { self.at.output(which, SoftCap::gradient(values, self.shares.get())) }
    }

    #[inline(always)]
    unsafe fn keep(&self, which: usize, values: [f32; N]) {
        // SAFETY: the caller's promise.
        unsafe { self.at.keep(which, values) }
    }

    #[inline(always)]
    unsafe fn kept(&self, which: usize) -> [f32; N] {
        // SAFETY: the caller's promise.
        unsafe { self.at.kept(which) }
    }
}
