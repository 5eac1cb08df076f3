//! Gradients of norms with an activation behind them.
//!
//! ```text
//!   u = weight z + bias        z = (x - mean) / deviation
//!   du = dy activation'(u)     rounded to the rows' type
//! ```
//! With `du` for the gradient by the result, all else is [`NormBackward`]'s. An engine that has rows in
//! memory of its own keeps `du` where `dy` was, so that an element's derivative is computed once. Rings of
//! lanes (`sm90::stay_sums`) have the same formulas in their own terms.

use crate::function::{ColumnSums, MAX_SHARED, MAX_SUMS, Place, RowFunction, Sums, narrow};
use crate::norm::{NormBackward, Of};
use cuda_std::{KernelArgs, misc};
use primitives::activation::{Activation, Precision, Visitor};
use primitives::element::{InF32, map, zip};
use primitives::math::Elementary;

/// The gradients of [`Norm`](crate::norm::Norm) with an activation: inputs, results and sums of columns are
/// those of [`NormBackward`].
#[repr(C)]
#[derive(Clone, Copy, Debug, KernelArgs)]
pub struct ActivatedNormBackward {
    /// The gradients of the norm.
    pub norm: NormBackward,
    /// As in [`Norm`](crate::norm::Norm).
    pub bias: *const u8,
    /// Code of the activation.
    pub activation: u32,
    /// 1 when `du` is written, to output 1, else 0.
    pub has_inner: u32,
}

/// Gradients that become those by a function's argument, `u`.
struct Chain<'a, const N: usize> {
    gradient: &'a mut [f32; N],
    u: [f32; N],
}

impl<const N: usize> Visitor<f32> for Chain<'_, N> {
    #[inline(always)]
    fn visit(self, derivative: impl Fn(f32) -> f32 + Copy) {
        *self.gradient = zip(*self.gradient, map(self.u, derivative), |dy, slope| dy * slope);
    }
}

impl ActivatedNormBackward {
    /// The elements less the mean.
    ///
    /// # Safety
    /// As for [`RowFunction::take`].
    #[inline(always)]
    unsafe fn distance<T: InF32, const N: usize>(mean: f32, at: &impl Place<T, N>) -> [f32; N] {
        // SAFETY: the caller's promise.
        map(unsafe { at.input(0) }, |x| x - mean)
    }

    /// `du`, from distances from the mean.
    ///
    /// # Safety
    /// As for [`RowFunction::take`]; input 1 is `dy`.
    #[inline(always)]
    unsafe fn inner<T: InF32, const N: usize>(
        &self,
        factor: f32,
        distance: [f32; N],
        at: &impl Place<T, N>,
    ) -> [f32; N] {
        let mut u = map(distance, |distance| distance * factor);
        let [weight, bias] = [self.norm.weight.cast::<T>(), self.bias.cast()];
        // SAFETY: the caller's promise; both are readable for a row where they are not null.
        let mut gradient = unsafe {
            // As in `Norm::results`. A function for both changed the machine code of norms:
            // `norm_of_dropout_to_e4m3_f32` of sm_80 took 70 registers for 64.
            if weight.is_null() {
                if !bias.is_null() {
                    let [bias] = at.shared([bias]);
                    u = zip(u, bias, |u, bias| u + bias);
                }
            } else if bias.is_null() {
                let [weight] = at.shared([weight]);
                u = zip(u, weight, |u, weight| u * weight);
            } else {
                let [weight, bias] = at.shared([weight, bias]);
                for i in 0..N {
                    u[i] = T::Precision::multiply_add(u[i], weight[i], bias[i]);
                }
            }
            at.input(1)
        };
        // Asked for each place: an engine's loop for each activation would be much code.
        let activation = Activation::from_code(misc::opaque(self.activation));
        let chain = Chain { gradient: &mut gradient, u };
        activation.visit_derivative::<<T::Precision as Elementary>::OfNorms>(chain);
        T::widen(narrow::<T, N>(gradient))
    }

    /// `du`, once [`RowFunction::take`] has seen the place.
    ///
    /// # Safety
    /// As for [`RowFunction::map`].
    #[inline(always)]
    unsafe fn inner_again<T: InF32, const N: usize, P: Place<T, N>>(
        &self,
        factor: f32,
        distance: [f32; N],
        at: &P,
    ) -> [f32; N] {
        // SAFETY: the caller's promise; where inputs are replaced, this one was.
        unsafe { if P::REPLACES { at.input(1) } else { self.inner(factor, distance, at) } }
    }

    /// Stores the gradient by the input, and `du` where it is wanted.
    ///
    /// # Safety
    /// As for [`RowFunction::map`].
    #[inline(always)]
    unsafe fn store<T: InF32, const N: usize>(
        &self,
        of: Of,
        at: &impl Place<T, N>,
        [distance, du]: [[f32; N]; 2],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let g = self.weighted(du, at);
            self.norm.store(of, at, [distance, g]);
            if self.has_inner != 0 {
                at.output(1, du);
            }
        }
    }

    /// A gradient times the weight.
    ///
    /// # Safety
    /// As for [`RowFunction::take`].
    #[inline(always)]
    unsafe fn weighted<T: InF32, const N: usize>(&self, du: [f32; N], at: &impl Place<T, N>) -> [f32; N] {
        let weight = self.norm.weight.cast::<T>();
        if weight.is_null() {
            return du;
        }
        // SAFETY: the caller's promise; the weight is readable for a row.
        let [weight] = unsafe { at.shared([weight]) };
        zip(du, weight, |du, weight| du * weight)
    }
}

impl<T: InF32> RowFunction<T> for ActivatedNormBackward {
    const INPUTS: usize = <NormBackward as RowFunction<T>>::INPUTS;
    type Row = [f32; 2];
    type Statistics = Sums<T::Precision, 2>;
    type Of = Of;

    #[inline(always)]
    unsafe fn begin(&self, row: u64) -> [f32; 2] {
        // SAFETY: the caller's promise.
        unsafe { RowFunction::<T>::begin(&self.norm, row) }
    }

    #[inline(always)]
    unsafe fn take<const N: usize>(
        &self,
        [mean, factor]: [f32; 2],
        Sums([mut of_g, mut of_distances]): Self::Statistics,
        at: &impl Place<T, N>,
    ) -> Self::Statistics {
        // SAFETY: the caller's promise.
        let (distance, g) = unsafe {
            let distance = Self::distance(mean, at);
            let du = self.inner(factor, distance, at);
            at.replace(1, du);
            (distance, self.weighted(du, at))
        };
        for i in 0..N {
            of_g += g[i];
            of_distances = T::Precision::multiply_add(distance[i], g[i], of_distances);
        }
        Sums([of_g, of_distances])
    }

    #[inline(always)]
    unsafe fn finish(&self, moments: [f32; 2], sums: Self::Statistics, _: u64, columns: u32, _: bool) -> Of {
        self.norm.of_sums::<T>(moments, sums, columns)
    }

    #[inline(always)]
    unsafe fn map<const N: usize>(&self, of: &mut Of, at: &impl Place<T, N>) {
        let [mean, factor] = of.moments;
        // SAFETY: the caller's promise.
        unsafe {
            let distance = Self::distance(mean, at);
            let du = self.inner_again(factor, distance, at);
            self.store(*of, at, [distance, du]);
        }
    }
}

impl<T: InF32> ColumnSums<T> for ActivatedNormBackward {
    const SHARED: usize = 2;
    const REPLACES: bool = true;

    #[inline(always)]
    fn shared(&self) -> [*const T; MAX_SHARED] {
        let [weight, bias]: [*const T; 2] = [self.norm.weight.cast(), self.bias.cast()];
        if weight.is_null() { [bias, weight] } else { [weight, bias] }
    }

    #[inline(always)]
    unsafe fn map_and_add<const N: usize>(
        &self,
        of: Of,
        at: &impl Place<T, N>,
        sums: &mut [[f32; N]; MAX_SUMS],
    ) {
        let [mean, factor] = of.moments;
        // SAFETY: the caller's promise.
        unsafe {
            let distance = Self::distance(mean, at);
            let du = self.inner_again(factor, distance, at);
            for i in 0..N {
                sums[0][i] = T::Precision::multiply_add(du[i], distance[i] * factor, sums[0][i]);
                sums[1][i] += du[i];
            }
            self.store(of, at, [distance, du]);
        }
    }
}
