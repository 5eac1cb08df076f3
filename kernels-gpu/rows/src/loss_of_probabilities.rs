//! Cross-entropy of logits and probabilities of their classes, with its gradient by the logits.
//!
//! ```text
//!   t = (1 - s) y + s / columns        lse = ln(sum of e^x)        s smoothing, z z-loss
//!   loss = sum of t (lse - x) + z lse^2
//!   gradient = (softmax(x) (sum of t + 2 z lse) - t) scale
//! ```
//! Input 0 are the logits `x`, which may be capped first ([`SoftCap`]), input 1 the probabilities `y`. They
//! need not sum up to 1, as in PyTorch. A class whose `t` is 0 adds nothing, also where its logit is minus
//! infinity: PyTorch makes such a loss NaN.

use crate::function::{PARTS, Place, RowFunction, Statistics};
use crate::soft_cap::SoftCap;
use cuda_std::KernelArgs;
use primitives::activation::Precision;
use primitives::element::{InF32, map, zip};
use primitives::op::tree;
use primitives::running::Running;
use primitives::softmax::Softmax as Online;
use primitives::warp;

/// See the module.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct ProbabilityCrossEntropy {
    /// One number that gradients are multiplied by.
    pub scale: *const f32,
    /// The loss of each row.
    pub losses: *mut f32,
    /// `ln(sum of e^x)` of each row.
    pub log_sum_exps: *mut f32,
    /// The cap of logits; its numbers are 0 where there is none.
    pub cap: SoftCap,
    /// Label smoothing.
    pub smoothing: f32,
    /// The same over the columns.
    pub share: f32,
    /// Factor of the squared logarithm.
    pub z_loss: f32,
    /// 1 when the gradient is written, to output 0.
    pub has_gradient: u32,
}

/// Kept of a row.
pub struct Weighed<P: Precision> {
    online: Online<P>,
    /// The sum of `t`.
    sum: P::Value,
    /// That of `t (x - max)`. Differences first: logits may be large where the loss is small.
    products: P::Value,
}

impl<P: Precision> Clone for Weighed<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Precision> Copy for Weighed<P> {}

impl<P: Precision<Value = f32>> Weighed<P> {
    /// The products with a maximum that is as large or larger.
    #[inline(always)]
    fn products_below(&self, max: f32) -> f32 {
        // Without a probability there are no products, also where the maximum was minus infinity.
        if self.sum == 0.0 || self.online.max == max {
            return self.products;
        }
        P::multiply_add(self.sum, self.online.max - max, self.products)
    }
}

impl<P: Precision<Value = f32>> Statistics<f32> for Weighed<P> {
    #[inline(always)]
    fn empty() -> Self {
        Self { online: Running::empty(), sum: 0.0, products: 0.0 }
    }

    #[inline(always)]
    fn parts(self) -> [f32; PARTS] {
        [self.online.max, self.online.sum, self.sum, self.products]
    }

    #[inline(always)]
    fn from_parts([max, exponentials, sum, products]: [f32; PARTS]) -> Self {
        Self { online: Online { max, sum: exponentials }, sum, products }
    }

    #[inline(always)]
    unsafe fn reduce(self, lanes: u32) -> Self {
        let plus = |a, b| a + b;
        // SAFETY: the caller's contract.
        unsafe {
            let online = self.online.reduce_sections(lanes);
            Self {
                online,
                sum: warp::fold_sections(self.sum, lanes, plus),
                products: warp::fold_sections(self.products_below(online.max), lanes, plus),
            }
        }
    }
}

/// Needed of the row by an element's gradient.
#[derive(Clone, Copy)]
pub struct Of {
    max: f32,
    /// Factor of `e^(x - max)`.
    factor: f32,
    /// Factor of the probability, which is subtracted.
    kept: f32,
    /// Subtracted from each.
    share: f32,
}

impl Of {
    #[inline(always)]
    fn gradient<P: Precision<Value = f32>, const N: usize>(self, x: [f32; N], y: [f32; N]) -> [f32; N] {
        zip(x, y, |x, y| {
            let subtracted = P::multiply_add(y, self.kept, self.share);
            P::exp(x - self.max) * self.factor - subtracted
        })
    }
}

impl ProbabilityCrossEntropy {
    /// The same for all threads.
    #[inline(always)]
    fn is_capped(&self) -> bool {
        self.cap.cap != 0.0
    }
}

impl<T: InF32> RowFunction<T> for ProbabilityCrossEntropy {
    const INPUTS: usize = 2;
    /// The factor of gradients.
    type Row = f32;
    type Statistics = Weighed<T::Precision>;
    type Of = Of;

    #[inline(always)]
    unsafe fn begin(&self, _: u64) -> f32 {
        // SAFETY: one number.
        unsafe { *self.scale }
    }

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        _: f32,
        kept: Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        let (mut x, y) = unsafe { (at.input(0), at.input(1)) };
        if self.is_capped() {
            x = self.cap.capped(self.cap.shares::<T::Precision, N>(x));
        }
        let online = kept.online.push_all(x);
        let targets =
            map(y, |y| <T::Precision as Precision>::multiply_add(y, 1.0 - self.smoothing, self.share));
        // The largest one is no way from itself, also where it is minus infinity.
        let product = |x: f32, t: f32| if t == 0.0 || x == online.max { 0.0 } else { (x - online.max) * t };
        let products = tree(zip(x, targets, product), |a, b| a + b);
        Weighed {
            online,
            sum: kept.sum + tree(targets, |a, b| a + b),
            products: kept.products_below(online.max) + products,
        }
    }

    #[inline(always)]
    unsafe fn finish(
        &self,
        scale: f32,
        Weighed { online, sum: targets, products }: Self::Statistics,
        number: u64,
        _: u32,
        is_first: bool,
    ) -> Of {
        let kept = 1.0 - self.smoothing;
        let log_sum = <T::Precision as Precision>::ln(online.sum);
        let log_sum_exp = online.max + log_sum;
        let loss = targets * log_sum - products + self.z_loss * log_sum_exp * log_sum_exp;
        if is_first {
            // SAFETY: a place for each row.
            unsafe {
                *self.losses.add(number as usize) = loss;
                *self.log_sum_exps.add(number as usize) = log_sum_exp;
            }
        }
        let factor = (targets + 2.0 * self.z_loss * log_sum_exp) / online.sum * scale;
        Of { max: online.max, factor, kept: kept * scale, share: self.share * scale }
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Of, at: &impl Place<T, N>) {
        if self.has_gradient == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let (x, y) = (at.input(0), at.input(1));
            if !self.is_capped() {
                at.output(0, of.gradient::<T::Precision, N>(x, y));
                return;
            }
            let shares = self.cap.shares::<T::Precision, N>(x);
            let gradient = of.gradient::<T::Precision, N>(self.cap.capped(shares), y);
            at.output(0, SoftCap::gradient(gradient, shares));
        }
    }
}
