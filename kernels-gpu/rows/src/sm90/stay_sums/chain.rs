//! The gradient by a norm's result: the one that comes, or what an activation behind the norm makes of it.
//!
//! An activation's derivative is computed once for an element, where a row is taken in. Its lane then writes
//! what the row's gradient needs of it over the gradient that came: `g`, the product with the weight, where
//! the type's range is that of f32, else `du`, of which products with weights could overflow. Either is
//! rounded as a tensor's elements are; the row's sums and those of columns take it as it was.

use super::exchange::Pair;
use super::row::Moments;
use super::{Columns, Kind, LONE_VECTORS, STRIDE_BYTES, Worker};
use crate::activated_norm::ActivatedNormBackward;
use crate::function::MAX_SUMS;
use crate::norm::NormBackward;
use cuda_std::{misc, vector};
use primitives::access::{Words, from_words};
use primitives::activation::{Activation, Precision, Visitor};
use primitives::element::{InF32, map, zip};
use primitives::math::Elementary;
use primitives::unroll;

/// A function whose gradients the engine has.
pub trait Chain<T: InF32>: Copy {
    /// Whether an activation follows the norm.
    const IS_ACTIVATED: bool;

    /// The norm's part.
    fn norm(&self) -> &NormBackward;

    /// The bias that comes before the activation; null where there is none.
    fn bias(&self) -> *const T;

    /// Hands over the activation's derivative.
    fn visit_derivative(&self, visitor: impl Visitor<f32>);
}

impl<T: InF32> Chain<T> for NormBackward {
    const IS_ACTIVATED: bool = false;

    #[inline(always)]
    fn norm(&self) -> &NormBackward {
        self
    }

    #[inline(always)]
    fn bias(&self) -> *const T {
        core::ptr::null()
    }

    #[inline(always)]
    fn visit_derivative(&self, _: impl Visitor<f32>) {}
}

impl<T: InF32> Chain<T> for ActivatedNormBackward {
    const IS_ACTIVATED: bool = true;

    #[inline(always)]
    fn norm(&self) -> &NormBackward {
        &self.norm
    }

    #[inline(always)]
    fn bias(&self) -> *const T {
        self.bias.cast()
    }

    #[inline(always)]
    fn visit_derivative(&self, visitor: impl Visitor<f32>) {
        // Asked for each row: a loop of rows for each activation would be much code.
        let activation = Activation::from_code(misc::opaque(self.activation));
        activation.visit_derivative::<<T::Precision as Elementary>::OfNorms>(visitor);
    }
}

/// Weight and bias of a lane's columns.
pub(super) struct SharedRows<const N: usize, const VECTORS: usize> {
    pub weight: Columns<N, VECTORS>,
    /// Where there is an activation.
    pub bias: Columns<N, VECTORS>,
}

/// A row that is taken in once the derivative is known.
struct Take<'a, 'b, T, Q, F, const N: usize, const VECTORS: usize> {
    worker: &'a Worker<'b, T, Q, F>,
    slot: u32,
    moments: Moments,
    shared: &'a SharedRows<N, VECTORS>,
    sums: &'a mut [Columns<N, VECTORS>; MAX_SUMS],
    of_row: &'a mut Pair,
}

impl<T: InF32, Q: Kind, F: Chain<T>, const N: usize, const VECTORS: usize> Visitor<f32>
    for Take<'_, '_, T, Q, F, N, VECTORS>
{
    #[inline(always)]
    fn visit(self, derivative: impl Fn(f32) -> f32 + Copy) {
        let Self { worker, slot, moments, shared, sums, of_row } = self;
        let multiply_add = T::Precision::multiply_add;
        let [mut of_g, mut of_zg] = [0.0; 2];
        // SAFETY: `take_activated` has the caller's promise that the stage is full.
        let words_of = |vector: usize| unsafe { worker.words(slot + vector as u32 * STRIDE_BYTES) };
        let reads_ahead = Worker::<T, Q, F>::reads_ahead::<VECTORS>();
        let mut words = if reads_ahead { words_of(0) } else { [[0; 4]; 2] };
        unroll!(K in 0..4, {
            if K < VECTORS && worker.computes::<VECTORS>(K) {
                let at = slot + K as u32 * STRIDE_BYTES;
                if !reads_ahead {
                    words = words_of(K);
                }
                let [x, dy] = words.map(|words| T::widen(from_words::<T, N>(words)));
                let z = moments.normalised::<T, N>(x);
                let (weight, bias) = (shared.weight[K], shared.bias[K]);
                let mut u = z;
                for i in 0..N {
                    u[i] = multiply_add(z[i], weight[i], bias[i]);
                }
                let du = zip(dy, map(u, derivative), |dy, slope| dy * slope);
                let g = zip(du, weight, |du, weight| du * weight);
                for i in 0..N {
                    of_g += g[i];
                    of_zg = multiply_add(z[i], g[i], of_zg);
                    sums[0][K][i] = multiply_add(du[i], z[i], sums[0][K][i]);
                    sums[1][K][i] += du[i];
                }
                let kept = vector::to_words(T::narrow::<N>(if T::IS_WIDE_RANGING { g } else { du }));
                if reads_ahead && K + 1 < VECTORS {
                    words = words_of(K + 1);
                }
                // SAFETY: the lane's own place, from which it has read.
                unsafe { vector::store_shared_v4(at + worker.plan.part_bytes, kept) }
            }
        });
        *of_row = [of_g, of_zg];
    }
}

impl<T: InF32, Q: Kind, F: Chain<T>> Worker<'_, T, Q, F> {
    /// Whether a vector is read before the one ahead of it is written, over which the assembler moves no
    /// load: where no branch lies between.
    #[inline(always)]
    const fn reads_ahead<const VECTORS: usize>() -> bool {
        !Q::ANYWHERE && VECTORS != LONE_VECTORS
    }

    /// [`take`](Self::take) of a function with an activation, when the row is there.
    ///
    /// # Safety
    /// As there; the stage is full.
    #[inline(always)]
    pub(super) unsafe fn take_activated<const N: usize, const VECTORS: usize>(
        &self,
        slot: u32,
        moments: Moments,
        shared: &SharedRows<N, VECTORS>,
        sums: &mut [Columns<N, VECTORS>; MAX_SUMS],
    ) -> Pair {
        let mut of_row = [0.0; 2];
        self.chain.visit_derivative(Take { worker: self, slot, moments, shared, sums, of_row: &mut of_row });
        of_row
    }

    /// The input, and the gradient times the weight, of a vector of a row that was taken in.
    #[inline(always)]
    pub(super) fn kept<const N: usize>(&self, words: [Words; 2], weight: [f32; N]) -> [[f32; N]; 2] {
        let [x, kept] = words.map(|words| T::widen(from_words::<T, N>(words)));
        if T::IS_WIDE_RANGING {
            return [x, kept];
        }
        [x, zip(kept, weight, |du, weight| du * weight)]
    }
}
