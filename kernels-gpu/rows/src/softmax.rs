//! Softmax and its logarithm, and their gradients.

use crate::function::{Place, RowFunction, Sums};
use cuda_std::KernelArgs;
use primitives::activation::Precision;
use primitives::element::{Float, map, zip};
use primitives::op::tree;
use primitives::running::Running;
use primitives::softmax::Softmax as Online;

/// `e^x / sum of e^x` of a row, or its logarithm `x - max - ln(sum of e^(x - max))`.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Softmax {
    /// 1 for the logarithm, else 0.
    pub is_log: u32,
}

impl<T: Float> RowFunction<T> for Softmax {
    const INPUTS: usize = 1;
    type Row = ();
    type Statistics = Online<T::Precision>;
    /// The maximum, and the inverse of the sum or its logarithm.
    type Of = (T::Wide, T::Wide);

    #[inline(always)]
    unsafe fn begin(&self, _: u64) {}

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        (): (),
        statistics: Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        statistics.push_all(unsafe { at.input(0) })
    }

    #[inline(always)]
    unsafe fn finish(&self, (): (), online: Self::Statistics, _: u64, _: u32, _: bool) -> Self::Of {
        let second = if self.is_log != 0 { T::Precision::ln(online.sum) } else { online.inverse_sum() };
        (online.max, second)
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, &mut (max, second): &mut Self::Of, at: &impl Place<T, N>) {
        // SAFETY: the caller's promise.
        unsafe {
            let x = at.input(0);
            let y = if self.is_log != 0 {
                map(x, |x| (x - max) - second)
            } else {
                map(x, |x| T::Precision::exp(x - max) * second)
            };
            at.output(0, y);
        }
    }
}

/// The gradient of [`Softmax`] by its input, from its result `y` (input 0) and the gradient by that (input
/// 1): `y (dy - sum of y dy)`, or `dy - e^y sum of dy` for the logarithm.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct SoftmaxBackward {
    /// 1 for the logarithm, else 0.
    pub is_log: u32,
}

impl<T: Float> RowFunction<T> for SoftmaxBackward {
    const INPUTS: usize = 2;
    type Row = ();
    type Statistics = Sums<T::Precision, 1>;
    /// The sum.
    type Of = T::Wide;

    #[inline(always)]
    unsafe fn begin(&self, _: u64) {}

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        (): (),
        Sums([sum]): Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        unsafe {
            let mut terms = at.input(1);
            if self.is_log == 0 {
                terms = zip(at.input(0), terms, |y, dy| y * dy);
            }
            Sums([sum + tree(terms, |a, b| a + b)])
        }
    }

    #[inline(always)]
    unsafe fn finish(&self, (): (), Sums([sum]): Self::Statistics, _: u64, _: u32, _: bool) -> T::Wide {
        sum
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, &mut sum: &mut T::Wide, at: &impl Place<T, N>) {
        // SAFETY: the caller's promise.
        unsafe {
            let (y, dy) = (at.input(0), at.input(1));
            let dx = if self.is_log != 0 {
                zip(y, dy, |y, dy| dy - T::Precision::exp(y) * sum)
            } else {
                zip(y, dy, |y, dy| y * (dy - sum))
            };
            at.output(0, dx);
        }
    }
}
