//! Cross-entropy of logits and the numbers of their classes, with its gradient.
//!
//! ```text
//!   lse = ln(sum of e^x)        loss = lse - (1 - s) x[target] - s mean(x) + z lse^2        s smoothing, z z-loss
//!   gradient = (softmax(x) (1 + 2 z lse) - s / columns - (1 - s) [column = target]) scale
//! ```
//! A row whose target is the ignored one has the loss 0 and the gradient 0. One whose target is no class has
//! NaN for both: nothing waits for the device to ask.

use crate::function::{PARTS, Place, RowFunction, Statistics};
use cuda_std::KernelArgs;
use primitives::activation::Precision;
use primitives::element::{InF32, map};
use primitives::op::tree;
use primitives::running::Running;
use primitives::softmax::Softmax as Online;
use primitives::warp;

/// See the module.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct CrossEntropy {
    /// Classes of the rows, of 64 bits; null: those of 32.
    pub wide_targets: *const i64,
    /// Classes of the rows, of 32 bits.
    pub targets: *const i32,
    /// One number that gradients are multiplied by.
    pub scale: *const f32,
    /// The loss of each row.
    pub losses: *mut f32,
    /// `ln(sum of e^x)` of each row, or null.
    pub log_sum_exps: *mut f32,
    /// The target that is ignored.
    pub ignored: i64,
    /// Label smoothing.
    pub smoothing: f32,
    /// Factor of the squared logarithm.
    pub z_loss: f32,
    /// 1 when the gradient is written, to output 0.
    pub has_gradient: u32,
    /// Nothing.
    pub rest: u32,
}

/// A row's target and the factor of its gradients.
#[derive(Clone, Copy)]
pub struct Row {
    /// Its column; [`IGNORED`], or [`NO_CLASS`].
    target: u32,
    scale: f32,
}

/// In place of the column of a target that is ignored.
const IGNORED: u32 = u32::MAX;
/// In place of that of one that is no class. Columns are fewer.
const NO_CLASS: u32 = u32::MAX - 1;

/// Kept of a row.
pub struct Logits<P: Precision> {
    pub(crate) online: Online<P>,
    /// The sum of all.
    pub(crate) sum: P::Value,
    /// That of the target, where it has been seen.
    pub(crate) target: P::Value,
}

impl<P: Precision> Clone for Logits<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Precision> Copy for Logits<P> {}

impl<P: Precision<Value = f32>> Statistics<f32> for Logits<P> {
    #[inline(always)]
    fn empty() -> Self {
        Self { online: Running::empty(), sum: 0.0, target: 0.0 }
    }

    #[inline(always)]
    fn parts(self) -> [f32; PARTS] {
        [self.online.max, self.online.sum, self.sum, self.target]
    }

    #[inline(always)]
    fn from_parts([max, exponentials, sum, target]: [f32; PARTS]) -> Self {
        Self { online: Online { max, sum: exponentials }, sum, target }
    }

    #[inline(always)]
    unsafe fn reduce(self, lanes: u32) -> Self {
        let plus = |a, b| a + b;
        // SAFETY: the caller's contract.
        unsafe {
            Self {
                online: self.online.reduce_sections(lanes),
                sum: warp::fold_sections(self.sum, lanes, plus),
                target: warp::fold_sections(self.target, lanes, plus),
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
    /// Subtracted from each.
    smoothing: f32,
    /// Subtracted from the target's.
    share: f32,
    target: u32,
}

impl CrossEntropy {
    /// The target of a row.
    ///
    /// # Safety
    /// As for [`RowFunction::begin`].
    #[inline(always)]
    unsafe fn target(&self, row: u64) -> u32 {
        // SAFETY: one of both is there for each row.
        let target = unsafe {
            if self.wide_targets.is_null() {
                i64::from(*self.targets.add(row as usize))
            } else {
                *self.wide_targets.add(row as usize)
            }
        };
        match u32::try_from(target) {
            _ if target == self.ignored => IGNORED,
            Ok(target) if target < NO_CLASS => target,
            _ => NO_CLASS,
        }
    }
}

impl<T: InF32> RowFunction<T> for CrossEntropy {
    const INPUTS: usize = 1;
    type Row = Row;
    type Statistics = Logits<T::Precision>;
    type Of = Of;

    #[inline(always)]
    unsafe fn begin(&self, row: u64) -> Row {
        // SAFETY: the caller's promise; the scale is one number.
        unsafe {
            Row { target: self.target(row), scale: if self.scale.is_null() { 1.0 } else { *self.scale } }
        }
    }

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        row: Row,
        mut logits: Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        let x = unsafe { at.input(0) };
        logits.online = logits.online.push_all(x);
        if self.smoothing != 0.0 {
            logits.sum += tree(x, |a, b| a + b);
        }
        let place = row.target.wrapping_sub(at.column());
        if place < N as u32 {
            for i in 0..N {
                if i as u32 == place {
                    logits.target = x[i];
                }
            }
        }
        logits
    }

    #[inline(always)]
    unsafe fn finish(
        &self,
        Row { target, scale }: Row,
        logits: Self::Statistics,
        number: u64,
        columns: u32,
        is_first: bool,
    ) -> Of {
        let share = 1.0 / columns as f32;
        let Logits { online, sum, target: of_target } = logits;
        let log_sum_exp = online.max + <T::Precision as Precision>::ln(online.sum);
        let kept = 1.0 - self.smoothing;
        // Differences first: logits may be large where the loss is small.
        let mut loss = kept * (log_sum_exp - of_target) + self.z_loss * log_sum_exp * log_sum_exp;
        if self.smoothing != 0.0 {
            loss += self.smoothing * (log_sum_exp - sum * share);
        }
        let (mut scale, is_ignored) = (scale, target == IGNORED);
        if !is_ignored && target >= columns {
            (loss, scale) = (f32::NAN, f32::NAN);
        }
        if is_first {
            // SAFETY: a place for each row.
            unsafe {
                *self.losses.add(number as usize) = if is_ignored { 0.0 } else { loss };
                if !self.log_sum_exps.is_null() {
                    *self.log_sum_exps.add(number as usize) = log_sum_exp;
                }
            }
        }
        let factor = (1.0 + 2.0 * self.z_loss * log_sum_exp) / online.sum * scale;
        Of { max: online.max, factor, smoothing: self.smoothing * share * scale, share: kept * scale, target }
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Of, at: &impl Place<T, N>) {
        if self.has_gradient == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            if of.target == IGNORED {
                at.output(0, [0.0; N]);
                return;
            }
            let exp = |x: f32| <T::Precision as Precision>::exp(x - of.max);
            let mut gradient = map(at.input(0), |x| exp(x) * of.factor - of.smoothing);
            let place = of.target.wrapping_sub(at.column());
            if place < N as u32 {
                for i in 0..N {
                    if i as u32 == place {
                        gradient[i] -= of.share;
                    }
                }
            }
            at.output(0, gradient);
        }
    }
}
