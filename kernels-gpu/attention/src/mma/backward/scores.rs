//! From scores to weights, and from these to dS: in registers.

use cuda_std::fastmath::{ex2_approx, fma};
use primitives::unroll;

use crate::softmax::{Scores, steps};

/// Makes weights of scores: `2^(c s - L)`. `logarithms` gives those of a step of eight columns.
#[inline(always)]
pub(super) fn weigh<S: Scores>(scores: &mut S, factor: f32, logarithms: impl Fn(usize) -> [f32; 4]) {
    let x = scores.as_mut();
    unroll!(STEP in 0..16, {
        if STEP < steps::<S>() {
            let logarithms = logarithms(STEP);
            unroll!(I in 0..4, {
                x[4 * STEP + I] = ex2_approx(fma(x[4 * STEP + I], factor, -logarithms[I]));
            });
        }
    });
}

/// Makes dS of dP: `P (dP - D)`. `deltas` gives D of a step of eight columns.
#[inline(always)]
pub(super) fn subtract<S: Scores>(weighted: &mut S, weights: &S, deltas: impl Fn(usize) -> [f32; 4]) {
    let (x, p) = (weighted.as_mut(), weights.as_ref());
    unroll!(STEP in 0..16, {
        if STEP < steps::<S>() {
            let deltas = deltas(STEP);
            unroll!(I in 0..4, {
                x[4 * STEP + I] = p[4 * STEP + I] * (x[4 * STEP + I] - deltas[I]);
            });
        }
    });
}

/// A number for each of the thread's two rows, as a step has them.
#[inline(always)]
pub(super) const fn of_rows([first, second]: [f32; 2]) -> [f32; 4] {
    [first, first, second, second]
}

/// A number for each of the thread's two columns.
#[inline(always)]
pub(super) const fn of_columns([first, second]: [f32; 2]) -> [f32; 4] {
    [first, second, first, second]
}
