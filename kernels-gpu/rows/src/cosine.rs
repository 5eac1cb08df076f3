//! The cosine embedding loss of pairs of rows, with its gradients: are two rows to point the same way, or
//! not?
//!
//! ```text
//!   c = a b / sqrt((a a + e) (b b + e))        e = 1e-12, as PyTorch's
//!   label 1: loss = 1 - c                      label -1: loss = max(0, c - margin)
//!   dc/da = b / sqrt(..) - c a / (a a + e)     dc/db likewise
//! ```
//! A row whose label is neither has NaN for its loss and its gradients: nothing waits for the device to ask.

use crate::function::{Place, RowFunction, Sums};
use cuda_std::KernelArgs;
use primitives::element::{InF32, zip};
use primitives::math::single::rsqrt;
use primitives::op::tree;

/// See the module.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct CosineEmbedding {
    /// Labels of the rows, of 64 bits; null: those of 32.
    pub wide_labels: *const i64,
    /// Labels of the rows, of 32 bits.
    pub labels: *const i32,
    /// One number that gradients are multiplied by.
    pub scale: *const f32,
    /// The loss of each row.
    pub losses: *mut f32,
    /// The cosine from which on rows that are to differ cost something.
    pub margin: f32,
    /// 1 when the gradients are written, to both outputs.
    pub has_gradient: u32,
}

/// Added to the squares of lengths.
const LEAST: f32 = 1e-12;

/// A row's label, and the factor of its gradients.
#[derive(Clone, Copy)]
pub struct Row {
    label: i64,
    scale: f32,
}

/// Needed of the rows by an element's gradients.
#[derive(Clone, Copy)]
pub struct Of {
    /// Factor of the other row's element.
    other: f32,
    /// Of the own one, in either row.
    own: [f32; 2],
}

impl<T: InF32> RowFunction<T> for CosineEmbedding {
    const INPUTS: usize = 2;
    type Row = Row;
    /// Of products, and of both squares.
    type Statistics = Sums<T::Precision, 3>;
    type Of = Of;

    #[inline(always)]
    unsafe fn begin(&self, row: u64) -> Row {
        // SAFETY: one of both labels is there for each row; the scale is one number.
        unsafe {
            let label = if self.wide_labels.is_null() {
                i64::from(*self.labels.add(row as usize))
            } else {
                *self.wide_labels.add(row as usize)
            };
            Row { label, scale: *self.scale }
        }
    }

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        _: Row,
        Sums([products, of_a, of_b]): Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        let (a, b) = unsafe { (at.input(0), at.input(1)) };
        let sum = |a, b| tree(zip(a, b, |a, b| a * b), |a, b| a + b);
        Sums([products + sum(a, b), of_a + sum(a, a), of_b + sum(b, b)])
    }

    #[inline(always)]
    unsafe fn finish(
        &self,
        Row { label, scale }: Row,
        Sums([products, of_a, of_b]): Self::Statistics,
        number: u64,
        _: u32,
        is_first: bool,
    ) -> Of {
        let inverse = [rsqrt(of_a + LEAST), rsqrt(of_b + LEAST)];
        // One factor after the other: their product may be too small for a number.
        let cosine = products * inverse[0] * inverse[1];
        let (loss, slope) = match label {
            1 => (1.0 - cosine, -1.0),
            // A NaN stays one.
            -1 if cosine <= self.margin => (0.0, 0.0),
            -1 => (cosine - self.margin, 1.0),
            _ => (f32::NAN, f32::NAN),
        };
        if is_first {
            // SAFETY: a place for each row.
            unsafe { *self.losses.add(number as usize) = loss };
        }
        let slope = slope * scale;
        Of {
            other: slope * inverse[0] * inverse[1],
            own: inverse.map(|inverse| slope * cosine * inverse * inverse),
        }
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Of, at: &impl Place<T, N>) {
        if self.has_gradient == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b) = (at.input(0), at.input(1));
            at.output(0, zip(a, b, |a, b| of.other * b - of.own[0] * a));
            at.output(1, zip(a, b, |a, b| of.other * a - of.own[1] * b));
        }
    }
}
