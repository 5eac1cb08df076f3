//! Losses of pairs of numbers, with their gradients.
//!
//! A block takes a piece of the elements: their losses and gradients go to memory where they are wanted, the
//! sum of the losses to one number of the block. Which elements are a piece depends on their number alone, so
//! the sum of all blocks' repeats bit for bit.

use crate::THREADS;
use crate::piece::{Piece, WIDTH};
use cuda_std::{kernel, shared, shared_array, thread};
use half::{bf16, f16};
use primitives::activation::Precision;
use primitives::block;
use primitives::element::{InF32, map, zip};
use primitives::grid::begin;
use primitives::op::{Sum, tree};

/// A loss of `x` and a target `t`, by PyTorch's names; `d = x - t`, and `p` is the launch's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LossFunction {
    /// `d^2`.
    Mse,
    /// `|d|`.
    L1,
    /// `d^2 / 2` up to `|d| = p`, beyond it `p (|d| - p / 2)`.
    Huber,
    /// `-p t ln(sigmoid(x)) - (1 - t) ln(sigmoid(-x))`.
    BceWithLogits,
    /// `t (ln t - x)`; where `t` is 0, `-t x`.
    KlDiv,
    /// `e^t (t - x)`; 0 where `e^t` is.
    KlDivOfLogs,
}

/// The elements of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct LossJob {
    /// Elements.
    pub n: u64,
    /// The loss.
    pub function: LossFunction,
    /// Its parameter.
    pub parameter: f32,
    /// Factor of the sum, of losses and of gradients.
    pub factor: f32,
    /// 1 when all tensors begin at 16-byte boundaries, else 0.
    pub is_aligned: u32,
}

/// Times that it does.
const ROUNDS: u64 = 4;
/// Blocks of a multiprocessor.
const RESIDENT: u32 = 4;

/// Blocks for `n` elements.
pub const fn blocks(n: u64) -> u64 {
    n.div_ceil(ROUNDS * THREADS as u64 * WIDTH as u64)
}

/// `ln(1 + e^-|x|)`: also where it is small, to full relative accuracy.
#[inline(always)]
fn softplus_below_0<P: Precision<Value = f32>>(x: f32) -> f32 {
    let power = P::exp(-x.abs());
    let sum = 1.0 + power;
    // A factor brings back the digits that the sum's rounding took away.
    if sum == 1.0 { power } else { P::ln(sum) * (power / (sum - 1.0)) }
}

/// The function of each pair. Long ones have their arrays in local memory unless they are a `map`'s.
#[inline(always)]
fn each<const N: usize>(x: [f32; N], t: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    map(zip(x, t, |x, t| (x, t)), |(x, t)| f(x, t))
}

/// The loss of each pair.
#[inline(always)]
fn losses<P: Precision<Value = f32>, const N: usize>(
    function: LossFunction,
    p: f32,
    x: [f32; N],
    t: [f32; N],
) -> [f32; N] {
    match function {
        LossFunction::Mse => each(x, t, |x, t| (x - t) * (x - t)),
        LossFunction::L1 => each(x, t, |x, t| (x - t).abs()),
        LossFunction::Huber => each(x, t, |x, t| {
            let d = (x - t).abs();
            if d <= p { 0.5 * d * d } else { p * (d - 0.5 * p) }
        }),
        LossFunction::BceWithLogits => each(x, t, |x, t| {
            let common = softplus_below_0::<P>(x);
            p * t * (P::max(-x, 0.0) + common) + (1.0 - t) * (P::max(x, 0.0) + common)
        }),
        LossFunction::KlDiv => each(x, t, |x, t| if t == 0.0 { -t * x } else { t * (P::ln(t) - x) }),
        LossFunction::KlDivOfLogs => each(x, t, |x, t| {
            let share = P::exp(t);
            if share == 0.0 { 0.0 } else { share * (t - x) }
        }),
    }
}

/// The derivative of each loss by `x`.
#[inline(always)]
fn slopes<P: Precision<Value = f32>, const N: usize>(
    function: LossFunction,
    p: f32,
    x: [f32; N],
    t: [f32; N],
) -> [f32; N] {
    match function {
        LossFunction::Mse => each(x, t, |x, t| 2.0 * (x - t)),
        // A NaN stays one.
        LossFunction::L1 => each(x, t, |x, t| {
            let d = x - t;
            if d > 0.0 {
                1.0
            } else if d < 0.0 {
                -1.0
            } else {
                d
            }
        }),
        LossFunction::Huber => each(x, t, |x, t| {
            let d = x - t;
            if d > p {
                p
            } else if d < -p {
                -p
            } else {
                d
            }
        }),
        LossFunction::BceWithLogits => each(x, t, |x, t| (1.0 - t) * P::sigmoid(x) - p * t * P::sigmoid(-x)),
        LossFunction::KlDiv => map(t, |t| -t),
        LossFunction::KlDivOfLogs => map(t, |t| -P::exp(t)),
    }
}

/// Where a launch's results go, and what multiplies the gradients; null where there is none.
#[derive(Clone, Copy)]
struct Operands<T> {
    upstream: *const f32,
    dy: *const T,
    losses: *mut T,
    gradient: *mut T,
    sums: *mut f32,
}

/// # Safety
/// As the entry points. `slots` is shared memory for a number a warp.
#[inline(always)]
unsafe fn run<T: InF32, const N: usize>(
    job: &LossJob,
    x: *const T,
    t: *const T,
    to: Operands<T>,
    slots: *mut f32,
) {
    let (block, thread) = begin(|| (u64::from(thread::block_idx_x()), u64::from(thread::thread_idx_x())));
    // SAFETY: the caller's promise; all threads come to the reduction.
    unsafe {
        let factor = if to.upstream.is_null() { job.factor } else { job.factor * *to.upstream };
        let (mut sum, mut round) = (0.0, 0);
        while round < ROUNDS {
            let unit = (block * ROUNDS + round) * u64::from(THREADS) + thread;
            round += 1;
            let at = unit * N as u64;
            if at >= job.n {
                continue;
            }
            let (piece, at) = (Piece::<N>::new(job.n - at, job.is_aligned != 0), at as usize);
            let (x, t) = (piece.load(x.add(at)), piece.load(t.add(at)));
            if !to.losses.is_null() || !to.sums.is_null() {
                let values = losses::<T::Precision, N>(job.function, job.parameter, x, t);
                sum += tree(piece.keep(values), |a, b| a + b);
                if !to.losses.is_null() {
                    piece.store(to.losses.add(at), map(values, |value| value * job.factor));
                }
            }
            if !to.gradient.is_null() {
                let mut values = slopes::<T::Precision, N>(job.function, job.parameter, x, t);
                if !to.dy.is_null() {
                    values = zip(values, piece.load(to.dy.add(at)), |slope, dy| slope * dy);
                }
                piece.store(to.gradient.add(at), map(values, |value| value * factor));
            }
        }
        if !to.sums.is_null() {
            let sum: f32 = block::reduce(Sum, sum, slots);
            if thread == 0 {
                *to.sums.add(block as usize) = sum * job.factor;
            }
        }
    }
}

/// An entry point for each element type.
macro_rules! entries {
    ($($name:ident: $ty:ident;)*) => { $(
        #[doc = concat!("A loss of pairs of ", stringify!($ty), ", and its gradient.")]
        ///
        /// The gradient is multiplied by the job's factor, by `upstream`, one number, and by `dy`.
        ///
        /// # Safety
        /// `x`, `t`, `dy`, `losses` and `gradient` hold the job's elements, aligned as it says; `sums` a
        /// number for each block. Of `upstream`, `dy`, `losses`, `gradient` and `sums` each may be null. What
        /// is written overlaps nothing. Blocks of [`THREADS`] threads, [`blocks`] of them.
        #[kernel(launch_bounds(THREADS, RESIDENT))]
        pub unsafe fn $name(
            job: LossJob,
            x: *const $ty,
            t: *const $ty,
            upstream: *const f32,
            dy: *const $ty,
            losses: *mut $ty,
            gradient: *mut $ty,
            sums: *mut f32,
        ) {
            let slots = shared::generic(shared_array![f32; block::slots(THREADS)]);
            let to = Operands { upstream, dy, losses, gradient, sums };
            // SAFETY: the caller's contract is the same.
            unsafe { run::<$ty, WIDTH>(&job, x, t, to, slots) }
        }
    )* };
}

entries! {
    pair_loss_f32: f32;
    pair_loss_f16: f16;
    pair_loss_bf16: bf16;
}
