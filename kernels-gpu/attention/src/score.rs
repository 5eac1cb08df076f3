//! A function of your own on the scores, and which keys a query sees: [`ScoreFunction`].
//!
//! ```
//! # use ironwarp_attention as attention;
//! use attention::score::{Position, Real, ScoreFunction};
//! use cuda_std::KernelArgs;
//!
//! /// Scores fall by `slope` with each key of distance, in blocks of `block` positions that see each other.
//! #[repr(C)]
//! #[derive(Clone, Copy, KernelArgs)]
//! pub struct Local {
//!     pub slope: f32,
//!     pub block: u32,
//! }
//!
//! impl ScoreFunction for Local {
//!     fn score<N: Real>(&self, score: N, at: Position) -> N {
//!         score.add_product(-self.slope, at.distance.abs())
//!     }
//!
//!     fn mask(&self, at: Position) -> bool {
//!         at.query / self.block == at.key / self.block
//!     }
//! }
//! ```
//! A function is compiled into kernels by [`score_kernels!`](crate::score_kernels), and for decoding by
//! [`decode_score_kernels!`](crate::decode_score_kernels).

use core::ops::{Add, Mul, Neg, Sub};

use cuda_std::fastmath::{ex2_approx, fma, lg2_approx, rcp_approx, sqrt_approx, tanh_approx};

use crate::dropout::Dropout;

pub use dual::Dual;
pub use scaled::Scaled;

mod dual;
mod scaled;

/// Where a score stands. There is such a query and such a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// The sequence.
    pub batch: u32,
    /// The head of queries.
    pub head: u32,
    /// The query in its sequence.
    pub query: u32,
    /// The key in its sequence.
    pub key: u32,
    /// The key less the one on the query's diagonal (see [`problem::Band`](crate::problem::Band)): 0 on the
    /// diagonal, negative before it. Exact up to 2^24.
    pub distance: f32,
}

/// The step from scores `scale Q K^T` to those of the softmax. Both methods are compiled into the
/// kernels, forward and backward; the same place has to give the same answer each time.
pub trait ScoreFunction: Copy + 'static {
    /// Whether it is [`Identity`], for which kernels leave the steps out.
    #[doc(hidden)]
    const IS_IDENTITY: bool = false;

    /// Whether [`score`](Self::score) subtracts [`slope`](Self::slope) times the distance from the diagonal,
    /// and nothing is masked.
    #[doc(hidden)]
    const HAS_SLOPE: bool = false;

    /// Whether forward passes on Hopper need call neither method.
    #[doc(hidden)]
    const IS_PLAIN: bool = Self::IS_IDENTITY || Self::HAS_SLOPE;

    /// The amount by which scores of this head of queries fall with each key of distance.
    #[doc(hidden)]
    #[inline(always)]
    fn slope(&self, head: u32) -> f32 {
        let _ = head;
        0.0
    }

    /// Drops weights behind the softmax; kernels without it leave the steps out.
    #[doc(hidden)]
    #[inline(always)]
    fn dropout(&self) -> Option<&Dropout> {
        None
    }

    /// A positive factor of what [`score`](Self::score) returns. The softmax multiplies anyway, so a product
    /// is saved where the factor is one of all scores.
    #[inline(always)]
    fn factor(&self) -> f32 {
        1.0
    }

    /// The score that takes the place of `score`, which is `scale q k`, but for the
    /// [`factor`](Self::factor). Generic, so that the backward pass can compute its derivative by the score
    /// ([`Dual`]), and the forward pass joins the scale with what comes first ([`Scaled`]).
    #[inline(always)]
    fn score<N: Real>(&self, score: N, at: Position) -> N {
        let _ = at;
        score
    }

    /// The scores in place of these, of several places: minus infinity where the query does not see the key.
    #[doc(hidden)]
    #[inline(always)]
    fn scores<const N: usize>(&self, scores: [f32; N], at: [Position; N]) -> [f32; N] {
        core::array::from_fn(|i| {
            let modified = self.score(scores[i], at[i]) * self.factor();
            if self.mask(at[i]) { modified } else { f32::NEG_INFINITY }
        })
    }

    /// Whether the query sees the key. (And only if the band of the problem shows it as well.)
    #[inline(always)]
    fn mask(&self, at: Position) -> bool {
        let _ = at;
        true
    }
}

/// Scores as they are; every query sees every key.
#[derive(Clone, Copy, Debug)]
pub struct Identity;

impl ScoreFunction for Identity {
    const IS_IDENTITY: bool = true;
}

/// A number that a score function computes with: an f32, or one with its derivative.
///
/// The functions beyond `+ - *` are those of [`cuda_std::fastmath`], with the errors told there.
pub trait Real:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + Add<f32, Output = Self>
    + Sub<f32, Output = Self>
    + Mul<f32, Output = Self>
{
    /// A number that does not depend on the score.
    fn constant(value: f32) -> Self;
    /// Its value, to compare by.
    fn value(self) -> f32;
    /// `self * factor + addend`, by a multiply-add.
    #[must_use]
    fn mul_add(self, factor: f32, addend: f32) -> Self;
    /// `self + a * b`, by a multiply-add.
    #[must_use]
    fn add_product(self, a: f32, b: f32) -> Self;
    /// `e^self`.
    #[must_use]
    fn exp(self) -> Self;
    /// The natural logarithm.
    #[must_use]
    fn ln(self) -> Self;
    /// `1 / self`.
    #[must_use]
    fn recip(self) -> Self;
    /// The square root.
    #[must_use]
    fn sqrt(self) -> Self;
    /// The hyperbolic tangent, with a relative error of 2^-11.
    #[must_use]
    fn tanh(self) -> Self;
    /// The magnitude; its derivative at 0 is 1.
    #[must_use]
    fn abs(self) -> Self;
}

impl Real for f32 {
    #[inline(always)]
    fn constant(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn value(self) -> f32 {
        self
    }
    #[inline(always)]
    fn mul_add(self, factor: f32, addend: f32) -> Self {
        fma(self, factor, addend)
    }
    #[inline(always)]
    fn add_product(self, a: f32, b: f32) -> Self {
        fma(a, b, self)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        ex2_approx(self * core::f32::consts::LOG2_E)
    }
    #[inline(always)]
    fn ln(self) -> Self {
        lg2_approx(self) * core::f32::consts::LN_2
    }
    #[inline(always)]
    fn recip(self) -> Self {
        rcp_approx(self)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        sqrt_approx(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        tanh_approx(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        f32::from_bits(self.to_bits() & 0x7fff_ffff)
    }
}
