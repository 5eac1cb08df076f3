//! The rules of the optimisers, element by element, in f32, and an entry point for each type of moments.

use crate::THREADS;
use crate::step::Step;
use crate::table::{Chunk, Entry};
use crate::update::{Model, Rule, State, update};
use cuda_std::{GpuFloat, fastmath, kernel};
use half::bf16;

/// Blocks of a multiprocessor, at least: their 1024 threads have 48 to 64 bytes of loads under way each.
const RESIDENT: u32 = 4;

/// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019):
/// `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct AdamW {
    /// 1 less the decay rate of each moment.
    pub rates: [f32; 2],
    /// Added to the root of the second moment.
    pub eps: f32,
}

impl Rule for AdamW {
    const MOMENTS: usize = 2;

    #[inline(always)]
    fn update(&self, step: &Step, decay: f32, x: f32, gradient: f32, [m, v]: [f32; 2]) -> (f32, [f32; 2]) {
        let m = fastmath::fma(self.rates[0], gradient - m, m);
        // Not by the difference of g^2 and v: it would be infinite, and v NaN, where g^2 is.
        let v = fastmath::fma(self.rates[1] * gradient, gradient, v - self.rates[1] * v);
        let root = fastmath::fma(GpuFloat::sqrt(v), step.root_correction, self.eps);
        let x = x - step.learning_rate * decay * x;
        (x - step.step_size * (m / root), [m, v])
    }
}

/// Stochastic gradient descent with momentum: `torch.optim.SGD`. Weight decay is added to the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Sgd {
    /// Factor of the momentum.
    pub momentum: f32,
    /// 1 for Nesterov's momentum, else 0.
    pub nesterov: u32,
}

impl Rule for Sgd {
    const MOMENTS: usize = 1;

    #[inline(always)]
    fn update(&self, step: &Step, decay: f32, x: f32, gradient: f32, [m, _]: [f32; 2]) -> (f32, [f32; 2]) {
        let gradient = fastmath::fma(decay, x, gradient);
        let m = fastmath::fma(self.momentum, m, gradient);
        let direction = if self.nesterov != 0 { fastmath::fma(self.momentum, m, gradient) } else { m };
        (fastmath::fma(-step.learning_rate, direction, x), [m, 0.0])
    }
}

/// [`Sgd`] without momentum, which keeps nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Descent {
    /// Gives it a size: a kernel has no parameter without one.
    pub reserved: u32,
}

impl Rule for Descent {
    const MOMENTS: usize = 0;

    #[inline(always)]
    fn update(&self, step: &Step, decay: f32, x: f32, gradient: f32, moments: [f32; 2]) -> (f32, [f32; 2]) {
        let gradient = fastmath::fma(decay, x, gradient);
        (fastmath::fma(-step.learning_rate, gradient, x), moments)
    }
}

/// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2): steps by the sign
/// of an interpolated momentum. The sign of 0 is 0, that of NaN is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Lion {
    /// 1 less beta 1, of the direction, and beta 2, of the momentum.
    pub rates: [f32; 2],
}

impl Rule for Lion {
    const MOMENTS: usize = 1;

    #[inline(always)]
    fn update(&self, step: &Step, decay: f32, x: f32, gradient: f32, [m, _]: [f32; 2]) -> (f32, [f32; 2]) {
        let direction = fastmath::fma(self.rates[0], gradient - m, m);
        let sign = if direction == 0.0 { 0.0 } else { GpuFloat::signum(direction) };
        let x = x - step.learning_rate * decay * x;
        let m = fastmath::fma(self.rates[1], gradient - m, m);
        (fastmath::fma(-step.learning_rate, sign, x), [m, 0.0])
    }
}

/// The momentum of Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024), as
/// `torch.optim.Muon` averages it. What is updated is not a weight: it becomes the direction of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Direction {
    /// Decay rate of the average.
    pub momentum: f32,
    /// 1 for Nesterov's momentum, else 0.
    pub nesterov: u32,
}

impl Rule for Direction {
    const MOMENTS: usize = 1;

    #[inline(always)]
    fn update(&self, _: &Step, _: f32, _: f32, gradient: f32, [m, _]: [f32; 2]) -> (f32, [f32; 2]) {
        let m = fastmath::fma(1.0 - self.momentum, gradient - m, m);
        let ahead = fastmath::fma(self.momentum, m - gradient, gradient);
        (if self.nesterov != 0 { ahead } else { m }, [m, 0.0])
    }
}

/// An entry point for each rule and type of moments.
macro_rules! entries {
    ($($name:ident: $rule:ident, $moment:ident;)*) => { $(
        #[doc = concat!("A step of [`", stringify!($rule), "`] with moments of ", stringify!($moment), ".")]
        ///
        /// # Safety
        /// The table's tensors are as its entries say, parameters writable; the state has what [`State`]
        /// says; `step` was begun. Blocks of [`THREADS`] threads, one for each chunk.
        #[kernel(launch_bounds(THREADS, RESIDENT))]
        pub unsafe fn $name(
            rule: $rule,
            model: Model,
            tensors: *const Entry,
            chunks: *const Chunk,
            step: *const Step,
            first: *mut $moment,
            second: *mut $moment,
            master: *mut f32,
        ) {
            // SAFETY: the caller's promise.
            unsafe { update(&rule, &model, tensors, chunks, step, State { moments: [first, second], master }) }
        }
    )* };
}

entries! {
    adamw_f32: AdamW, f32;
    adamw_bf16: AdamW, bf16;
    sgd: Descent, f32;
    sgd_momentum_f32: Sgd, f32;
    sgd_momentum_bf16: Sgd, bf16;
    lion_f32: Lion, f32;
    lion_bf16: Lion, bf16;
    direction_f32: Direction, f32;
    direction_bf16: Direction, bf16;
}
