//! The table of row functions, and their formulas.

use super::{Operands, Plan, RowFunction, SLOTS, max_threads, run};
use core::marker::PhantomData;
use cuda_std::{kernel, shared, shared_array};
use half::{bf16, f16};
use primitives::access::{Words, from_words, width};
use primitives::activation::Precision;
use primitives::element::Float;
use primitives::math::Elementary;
use primitives::moments::{Moments, Welford};
use primitives::op::{Operation, tree};
use primitives::row::Reader;
use primitives::softmax::{Online, Softmax};

/// A row a function: its name in PyTorch, its formula, and an entry point for each element type.
macro_rules! rows {
    ($($(#[$doc:meta])* $op:ident $text:literal, $function:ident: $($name:ident $ty:ident),*;)*) => {
        /// A function of rows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RowOp { $($(#[$doc])* $op),* }

        impl RowOp {
            /// Every function.
            pub const ALL: &[RowOp] = &[$(RowOp::$op),*];

            /// Its name, which is PyTorch's in `torch.nn.functional`.
            pub const fn name(self) -> &'static str {
                match self { $(RowOp::$op => $text),* }
            }

            /// Whether it takes a weight, a bias and an epsilon.
            pub const fn is_norm(self) -> bool {
                match self { $(RowOp::$op => <$function as RowFunction<f32>>::AFFINE),* }
            }
        }

        $($(
            #[doc = concat!("[`RowOp::", stringify!($op), "`] of rows of ", stringify!($ty), ".")]
            ///
            /// # Safety
            /// `x` and `y` hold the plan's rows, one behind the other, and do not overlap. `weight` and
            /// `bias` are null or hold one row. As many blocks and threads as the plan says.
            #[kernel(launch_bounds(max_threads(size_of::<$ty>())))]
            pub unsafe fn $name(
                plan: Plan,
                x: *const $ty,
                weight: *const $ty,
                bias: *const $ty,
                y: *mut $ty,
            ) {
                let slots = shared::generic(shared_array![<$function as RowFunction<$ty>>::State; SLOTS]);
                const N: usize = width(size_of::<$ty>(), size_of::<$ty>());
                // SAFETY: the caller's contract is the same.
                unsafe { run::<$ty, $function, N>(&plan, Operands { x, weight, bias, y }, slots) }
            }
        )*)*
    };
}

rows! {
    /// `e^x / sum of e^x`.
    Softmax "softmax", OfSoftmax:
        softmax_f64 f64, softmax_f32 f32, softmax_f16 f16, softmax_bf16 bf16;
    /// `x - max - ln(sum of e^(x - max))`.
    LogSoftmax "log_softmax", OfLogSoftmax:
        log_softmax_f64 f64, log_softmax_f32 f32, log_softmax_f16 f16, log_softmax_bf16 bf16;
    /// `x / sqrt(mean of x^2 + eps)`, times a weight, plus a bias.
    RmsNorm "rms_norm", OfRmsNorm:
        rms_norm_f64 f64, rms_norm_f32 f32, rms_norm_f16 f16, rms_norm_bf16 bf16;
    /// `(x - mean) / sqrt(variance + eps)`, times a weight, plus a bias.
    LayerNorm "layer_norm", OfLayerNorm:
        layer_norm_f64 f64, layer_norm_f32 f32, layer_norm_f16 f16, layer_norm_bf16 bf16;
}

/// See [`RowOp::Softmax`].
struct OfSoftmax;

impl<T: Float> RowFunction<T> for OfSoftmax {
    type State = Softmax<T::Precision>;
    type Reduce = Online<T::Precision>;
    /// The state and the inverse of its sum.
    type Of = (Self::State, T::Wide);
    const REDUCE: Self::Reduce = Online::NEW;
    const AFFINE: bool = false;

    #[inline(always)]
    fn of(state: Self::State, _: T::Wide, _: T::Wide) -> Self::Of {
        (state, state.inverse_sum())
    }

    #[inline(always)]
    fn element((state, factor): Self::Of, x: T::Wide) -> T::Wide {
        state.weight(x) * factor
    }
}

/// See [`RowOp::LogSoftmax`].
struct OfLogSoftmax;

impl<T: Float> RowFunction<T> for OfLogSoftmax {
    type State = Softmax<T::Precision>;
    type Reduce = Online<T::Precision>;
    /// The maximum and the logarithm of the sum.
    type Of = (T::Wide, T::Wide);
    const REDUCE: Self::Reduce = Online::NEW;
    const AFFINE: bool = false;

    #[inline(always)]
    fn of(state: Self::State, _: T::Wide, _: T::Wide) -> Self::Of {
        (state.max, T::Precision::ln(state.sum))
    }

    #[inline(always)]
    fn element((max, log_sum): Self::Of, x: T::Wide) -> T::Wide {
        (x - max) - log_sum
    }
}

/// The sum of squares.
struct Squares<P>(PhantomData<P>);

impl<P> Clone for Squares<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Squares<P> {}

impl<P: Precision> Operation<P::Value> for Squares<P> {
    #[inline(always)]
    fn identity(self) -> P::Value {
        P::value(0.0)
    }

    #[inline(always)]
    fn combine(self, a: P::Value, b: P::Value) -> P::Value {
        a + b
    }
}

impl<T: Float> Reader<T> for Squares<T::Precision> {
    type State = T::Wide;

    #[inline(always)]
    fn element(self, state: Self::State, value: T, _: u32) -> Self::State {
        let [x] = T::widen([value]);
        state + x * x
    }

    #[inline(always)]
    fn vector<const N: usize>(self, state: Self::State, words: Words, _: u32) -> Self::State {
        state + tree(T::widen(from_words::<T, N>(words)).map(|x| x * x), |a, b| a + b)
    }
}

/// See [`RowOp::RmsNorm`].
struct OfRmsNorm;

impl<T: Float> RowFunction<T> for OfRmsNorm {
    type State = T::Wide;
    type Reduce = Squares<T::Precision>;
    /// The inverse of the root of the mean square.
    type Of = T::Wide;
    const REDUCE: Self::Reduce = Squares(PhantomData);
    const AFFINE: bool = true;

    #[inline(always)]
    fn of(sum: Self::State, share: T::Wide, eps: T::Wide) -> Self::Of {
        T::Precision::rsqrt(sum * share + eps)
    }

    #[inline(always)]
    fn element(factor: Self::Of, x: T::Wide) -> T::Wide {
        x * factor
    }
}

/// See [`RowOp::LayerNorm`].
struct OfLayerNorm;

impl<T: Float> RowFunction<T> for OfLayerNorm {
    type State = Moments<T::Precision>;
    type Reduce = Welford<T::Precision>;
    /// The mean, and the inverse of the standard deviation.
    type Of = (T::Wide, T::Wide);
    const REDUCE: Self::Reduce = Welford::NEW;
    const AFFINE: bool = true;

    #[inline(always)]
    fn of(moments: Self::State, share: T::Wide, eps: T::Wide) -> Self::Of {
        (moments.mean, T::Precision::rsqrt(moments.squares * share + eps))
    }

    #[inline(always)]
    fn element((mean, factor): Self::Of, x: T::Wide) -> T::Wide {
        (x - mean) * factor
    }
}
