//! Layer norm and RMS norm, with what is fused to them, and their gradients.

use crate::function::{ColumnSums, MAX_SHARED, MAX_SUMS, Place, RowFunction, Sums};
use cuda_std::{KernelArgs, misc};
use primitives::activation::{Activation, Precision, Visitor};
use primitives::element::{Float, InF32, map, zip};
use primitives::math::Elementary;
use primitives::moments::Shifted;

/// `(x - mean) / sqrt(variance + eps)`, or `x / sqrt(mean of x^2 + eps)`, times a weight, plus a bias, and an
/// activation of that.
///
/// Input 1, where there is one, is added to `x` first; output 1 is the sum then, rounded, which is what is
/// normalised. Pointers may be null.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct Norm {
    /// A factor for each column, of the rows' type.
    pub weight: *const u8,
    /// A term for each column, of the rows' type.
    pub bias: *const u8,
    /// The mean of each row, and behind them the inverse of each row's deviation: written for the gradient.
    pub moments: *mut f32,
    /// Rows.
    pub rows: u64,
    /// Added before the root is taken.
    pub eps: f64,
    /// 1 when the mean is subtracted, else 0.
    pub is_centered: u32,
    /// 1 when input 1 is added, else 0.
    pub has_residual: u32,
    /// Code of the activation.
    pub activation: u32,
    /// Nothing.
    pub rest: u32,
}

impl Norm {
    /// The elements that are normalised.
    ///
    /// # Safety
    /// As for [`RowFunction::take`].
    #[inline(always)]
    unsafe fn elements<T: Float, const N: usize>(&self, at: &impl Place<T, N>) -> [T::Wide; N] {
        // SAFETY: the caller's promise.
        unsafe {
            let x = at.input(0);
            if self.has_residual == 0 {
                return x;
            }
            added::<T, N>(x, at.input(1))
        }
    }

    /// Takes in what is normalised.
    #[inline(always)]
    pub(crate) fn push<T: Float, const N: usize>(
        &self,
        moments: Shifted<T::Precision>,
        x: [T::Wide; N],
    ) -> Shifted<T::Precision> {
        if self.is_centered != 0 {
            return moments.push_all(x);
        }
        let mut squares = moments.squares;
        for i in 0..N {
            squares = T::Precision::multiply_add(x[i], x[i], squares);
        }
        Shifted { squares, ..moments }
    }

    /// The elements that are normalised. They are stored, where they are a sum.
    ///
    /// # Safety
    /// As for [`RowFunction::map`].
    #[inline(always)]
    pub(crate) unsafe fn stored<T: Float, const N: usize>(&self, at: &impl Place<T, N>) -> [T::Wide; N] {
        // SAFETY: the caller's promise.
        unsafe {
            let x = self.elements(at);
            if self.has_residual != 0 {
                at.output(1, x);
            }
            x
        }
    }

    /// The results of a place from what is normalised, not rounded.
    ///
    /// # Safety
    /// As for [`RowFunction::map`].
    #[inline(always)]
    pub(crate) unsafe fn results<T: Float, const N: usize>(
        &self,
        (factor, offset): (T::Wide, T::Wide),
        x: [T::Wide; N],
        at: &impl Place<T, N>,
    ) -> [T::Wide; N] {
        // SAFETY: the caller's promise; both are readable for a row where they are not null.
        unsafe {
            let mut y = map(x, |x| T::Precision::multiply_add(x, factor, -offset));
            let [weight, bias] = [self.weight.cast::<T>(), self.bias.cast()];
            // A case each: numbers that stand for a row that is not there would be an instruction each.
            if weight.is_null() {
                if !bias.is_null() {
                    let [bias] = at.shared([bias]);
                    y = zip(y, bias, |y, bias| y + bias);
                }
            } else if bias.is_null() {
                let [weight] = at.shared([weight]);
                y = zip(y, weight, |y, weight| y * weight);
            } else {
                let [weight, bias] = at.shared([weight, bias]);
                for i in 0..N {
                    y[i] = T::Precision::multiply_add(y[i], weight[i], bias[i]);
                }
            }
            if self.activation != Activation::None as u32 {
                // Asked again here, the code would cost those that have none.
                let activation = Activation::from_code(misc::opaque(self.activation));
                activation.visit::<<T::Precision as Elementary>::OfNorms>(Each { values: &mut y });
            }
            y
        }
    }
}

impl<T: Float> RowFunction<T> for Norm {
    const INPUTS: usize = 2;
    type Row = ();
    type Statistics = Shifted<T::Precision>;
    /// The inverse of the deviation, and the mean times it.
    type Of = (T::Wide, T::Wide);

    #[inline(always)]
    unsafe fn begin(&self, _: u64) {}

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        (): (),
        moments: Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        self.push::<T, N>(moments, unsafe { self.elements(at) })
    }

    #[inline(always)]
    unsafe fn finish(
        &self,
        (): (),
        moments: Self::Statistics,
        number: u64,
        columns: u32,
        is_first: bool,
    ) -> Self::Of {
        let value = |x| <T::Precision as Precision>::value(x);
        let share = T::Precision::inverse(value(f64::from(columns)));
        let factor = T::Precision::rsqrt(moments.squares * share + value(self.eps));
        if is_first && !self.moments.is_null() {
            // SAFETY: a place for each row of both.
            unsafe {
                *self.moments.add(number as usize) = T::Precision::to_f32(moments.shift);
                *self.moments.add((self.rows + number) as usize) = T::Precision::to_f32(factor);
            }
        }
        (factor, moments.shift * factor)
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Self::Of, at: &impl Place<T, N>) {
        // SAFETY: the caller's promise.
        unsafe { at.output(0, self.results(*of, self.stored(at), at)) }
    }
}

/// The sum of two, as it is stored.
#[inline(always)]
pub(crate) fn added<T: Float, const N: usize>(x: [T::Wide; N], residual: [T::Wide; N]) -> [T::Wide; N] {
    T::widen(crate::function::narrow::<T, N>(zip(x, residual, |x, residual| x + residual)))
}

/// Values that become an activation of themselves.
struct Each<'a, W, const N: usize> {
    values: &'a mut [W; N],
}

impl<W: Copy, const N: usize> Visitor<W> for Each<'_, W, N> {
    #[inline(always)]
    fn visit(self, function: impl Fn(W) -> W + Copy) {
        *self.values = map(*self.values, function);
    }
}

/// The gradients of [`Norm`] without an activation: by its input, from what was normalised (input 0), the
/// gradient by the result (input 1), and the row's moments.
///
/// With `z` the normalised row and `g` the gradient times the weight, it is `(g - mean of g - z mean of z g)
/// / deviation`; RMS norm has no mean of `g`. Input 2, where there is one, is added: the gradient that comes
/// to the sum by its other use. Sums of columns are those of `dy z` and of `dy`, the gradients by weight and
/// bias.
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct NormBackward {
    /// As in [`Norm`].
    pub weight: *const u8,
    /// As in [`Norm`].
    pub moments: *const f32,
    /// Rows.
    pub rows: u64,
    /// As in [`Norm`].
    pub is_centered: u32,
    /// 1 when input 2 is added, else 0.
    pub has_residual: u32,
}

impl NormBackward {
    /// From the moments of a row of so many columns, and the sums of `g` and of `(x - mean) g`.
    #[inline(always)]
    pub(crate) fn of_sums<T: InF32>(
        &self,
        moments: [f32; 2],
        Sums([of_g, of_distances]): Sums<T::Precision, 2>,
        columns: u32,
    ) -> Of {
        let (share, [_, factor]) = (T::Precision::inverse(columns as f32), moments);
        let of_g = if self.is_centered != 0 { of_g * share } else { 0.0 };
        // The mean of `z g` first: a power of the factor alone may be too large for a number.
        let of_zg = of_distances * factor * share;
        Of { moments, offset: -(of_g * factor), slope: -(of_zg * factor * factor) }
    }

    /// The elements less the mean, the gradient, and that times the weight.
    ///
    /// # Safety
    /// As for [`RowFunction::take`].
    #[inline(always)]
    unsafe fn elements<T: InF32, const N: usize>(&self, mean: f32, at: &impl Place<T, N>) -> [[f32; N]; 3] {
        // SAFETY: the caller's promise; the weight is readable for a row where there is one.
        unsafe {
            let distance = map(at.input(0), |x| x - mean);
            let dy = at.input(1);
            let weight = self.weight.cast::<T>();
            if weight.is_null() {
                return [distance, dy, dy];
            }
            let [weight] = at.shared([weight]);
            let g = zip(dy, weight, |dy, weight| dy * weight);
            [distance, dy, g]
        }
    }

    /// The gradient by the input.
    ///
    /// # Safety
    /// As for [`RowFunction::map`].
    #[inline(always)]
    pub(crate) unsafe fn store<T: InF32, const N: usize>(
        &self,
        of: Of,
        at: &impl Place<T, N>,
        [distance, g]: [[f32; N]; 2],
    ) {
        let mut dx = of.gradient::<T, N>(distance, g);
        // SAFETY: the caller's promise.
        unsafe {
            if self.has_residual != 0 {
                dx = zip(dx, at.input(2), |dx, residual| dx + residual);
            }
            at.output(0, dx);
        }
    }
}

/// Needed of the row by an element's gradient: `g factor + (x - mean) slope + offset`.
#[derive(Clone, Copy)]
pub struct Of {
    /// Mean, and inverse of the deviation.
    pub(crate) moments: [f32; 2],
    /// Minus the mean of `g`, over the deviation.
    offset: f32,
    /// Minus the mean of `z g`, over the variance.
    slope: f32,
}

impl Of {
    /// The gradient by the input, from distances from the mean and from `g`.
    #[inline(always)]
    fn gradient<T: InF32, const N: usize>(self, distance: [f32; N], g: [f32; N]) -> [f32; N] {
        let Of { moments: [_, factor], offset, slope } = self;
        let multiply_add = T::Precision::multiply_add;
        zip(distance, g, |distance, g| multiply_add(distance, slope, multiply_add(g, factor, offset)))
    }
}

impl<T: InF32> RowFunction<T> for NormBackward {
    const INPUTS: usize = 3;
    /// Mean, and inverse of the deviation.
    type Row = [f32; 2];
    /// Of `g` and of `(x - mean) g`.
    type Statistics = Sums<T::Precision, 2>;
    type Of = Of;

    #[inline(always)]
    unsafe fn begin(&self, row: u64) -> [f32; 2] {
        // SAFETY: both are there for each row.
        unsafe { [*self.moments.add(row as usize), *self.moments.add((self.rows + row) as usize)] }
    }

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        [mean, _]: [f32; 2],
        Sums([mut of_g, mut of_distances]): Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        let [distance, _, g] = unsafe { self.elements(mean, at) };
        for i in 0..N {
            of_g += g[i];
            of_distances = T::Precision::multiply_add(distance[i], g[i], of_distances);
        }
        Sums([of_g, of_distances])
    }

    #[inline(always)]
    unsafe fn finish(&self, moments: [f32; 2], sums: Self::Statistics, _: u64, columns: u32, _: bool) -> Of {
        self.of_sums::<T>(moments, sums, columns)
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Of, at: &impl Place<T, N>) {
        // SAFETY: the caller's promise.
        unsafe {
            let [distance, _, g] = self.elements(of.moments[0], at);
            self.store(*of, at, [distance, g]);
        }
    }
}

impl<T: InF32> ColumnSums<T> for NormBackward {
    #[inline(always)]
    fn shared(&self) -> [*const T; MAX_SHARED] {
        [self.weight.cast(), core::ptr::null()]
    }

    #[inline(always)]
    unsafe fn map_and_add<const N: usize>(
        &self,
        of: Of,
        at: &impl Place<T, N>,
        sums: &mut [[f32; N]; MAX_SUMS],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let [distance, dy, g] = self.elements(of.moments[0], at);
            for i in 0..N {
                sums[0][i] = T::Precision::multiply_add(dy[i], distance[i] * of.moments[1], sums[0][i]);
                sums[1][i] += dy[i];
            }
            self.store(of, at, [distance, g]);
        }
    }
}
