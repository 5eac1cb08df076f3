//! Cross-entropy of logits with a soft cap, and its gradient, which passes through the cap.
//!
//! ```text
//!   capped = c tanh(x / c)        gradient by x = gradient by capped (1 - tanh(x / c)^2)
//! ```
//! The formula is that of Gemma 2 (Gemma Team 2024, arXiv:2408.00118, section 2, "Logit soft-capping"). An
//! infinite logit becomes the cap, and a NaN stays one.

use crate::function::{Place, RowFunction};
use crate::loss::{CrossEntropy, Logits, Of, Row};
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
        let shares = self.cap.shares::<T::Precision, N>(unsafe { at.input(0) });
        self.of.push(row, logits, self.cap.capped(shares), at.column())
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
        if self.of.has_gradient == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            if of.is_ignored() {
                at.output(0, [0.0; N]);
                return;
            }
            let shares = self.cap.shares::<T::Precision, N>(at.input(0));
            let gradient = of.gradient::<T::Precision, N>(self.cap.capped(shares), at.column());
            at.output(0, SoftCap::gradient(gradient, shares));
        }
    }
}
