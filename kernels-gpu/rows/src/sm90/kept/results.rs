//! Results of a row in registers: normalised, with weight, bias and activation, and stored.

use super::{Columns, Kind, Worker};
use primitives::access::{self, Words, from_words};
use primitives::activation::{Precision, Visitor};
use primitives::element::{InF32, map};
use primitives::unroll;
use primitives::warp::LANES;

/// The normalised number is that factor times the number in a register, and the term added.
#[derive(Clone, Copy)]
pub struct Scale {
    /// The inverse of the deviation.
    pub factor: f32,
    /// Minus the mean, as far as it has not been subtracted, times that.
    pub term: f32,
}

impl Scale {
    /// The normalised numbers.
    #[inline(always)]
    fn all<T: InF32, const N: usize>(self, x: [f32; N]) -> [f32; N] {
        map(x, |x| T::Precision::multiply_add(x, self.factor, self.term))
    }
}

/// Stores the results of a row, with the activation that it is handed.
pub struct Results<'a, T, const N: usize, const VECTORS: usize, Q> {
    pub worker: &'a Worker<'a, T, Q>,
    /// The row, or what has been subtracted from it.
    pub x: &'a Columns<N, VECTORS>,
    /// Makes it the normalised row.
    pub scale: Scale,
    /// Weight and bias of the first vector.
    pub shared: [Words; 2],
    pub to: *mut T,
}

impl<T: InF32, const N: usize, const VECTORS: usize, Q: Kind> Visitor<f32> for Results<'_, T, N, VECTORS, Q> {
    #[inline(always)]
    fn visit(self, function: impl Fn(f32) -> f32 + Copy) {
        let mut shared = self.shared;
        unroll!(K in 0..8, {
            if K < VECTORS {
                let [weight, bias] = shared.map(|words| T::widen(from_words::<T, N>(words)));
                if K + 1 < VECTORS {
                    let all = [self.worker.function.weight, self.worker.function.bias];
                    // SAFETY: the launch's contract.
                    shared = all.map(|of| unsafe { self.worker.words::<N>(of, K + 1) });
                }
                let mut y = self.scale.all::<T, N>(self.x[K]);
                for i in 0..N {
                    y[i] = function(T::Precision::multiply_add(y[i], weight[i], bias[i]));
                }
                self.store(K, y);
            }
        });
    }
}

impl<T: InF32, const N: usize, const VECTORS: usize, Q: Kind> Results<'_, T, N, VECTORS, Q> {
    /// The results without a bias and an activation.
    #[inline(always)]
    pub fn scaled<const HAS_WEIGHT: bool>(self) {
        let [mut next, _] = self.shared;
        unroll!(K in 0..8, {
            if K < VECTORS {
                let mut y = self.scale.all::<T, N>(self.x[K]);
                if HAS_WEIGHT {
                    let weight = T::widen(from_words::<T, N>(next));
                    if K + 1 < VECTORS {
                        // SAFETY: the launch's contract.
                        next = unsafe { self.worker.words::<N>(self.worker.function.weight, K + 1) };
                    }
                    for i in 0..N {
                        y[i] *= weight[i];
                    }
                }
                self.store(K, y);
            }
        });
    }

    /// Stores one of the thread's vectors, where it has that.
    #[inline(always)]
    fn store(&self, vector: usize, y: [f32; N]) {
        if self.worker.has(vector) {
            let to = self.to.wrapping_add(vector * LANES as usize * N);
            // SAFETY: a vector of the row.
            unsafe { access::store(to, T::narrow::<N>(y)) }
        }
    }
}
