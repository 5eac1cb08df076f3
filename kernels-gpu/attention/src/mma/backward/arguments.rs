//! The arguments of both kernels.

use crate::mma::forward::InputStrides;
use crate::problem::{AttentionParams, Packing, Strides};

/// The arguments that both kernels have.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The problem.
    pub params: &'a AttentionParams,
    /// Where rows of Q, K and V lie.
    pub strides: &'a InputStrides,
    /// Q.
    pub queries: *const u16,
    /// K.
    pub keys: *const u16,
    /// V.
    pub values: *const u16,
    /// dO.
    pub gradient: *const u16,
    /// Where its rows lie.
    pub gradient_strides: Strides,
    /// L in base 2, f32 in padded rows, as [`prepare`](crate::backward::prepare) writes it; plus infinity
    /// where a row is not to count.
    pub logarithms: *const f32,
    /// D, in the same rows.
    pub deltas: *const f32,
    /// Where packed sequences begin.
    pub packing: Packing,
}

impl Arguments<'_> {
    /// Q and dO.
    #[inline(always)]
    pub(super) const fn queries(&self) -> [(*const u16, Strides); 2] {
        [(self.queries, self.strides.queries), (self.gradient, self.gradient_strides)]
    }

    /// K and V.
    #[inline(always)]
    pub(super) const fn keys(&self) -> [(*const u16, Strides); 2] {
        [(self.keys, self.strides.keys), (self.values, self.strides.values)]
    }
}
