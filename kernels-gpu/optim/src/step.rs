//! The numbers of a step, computed on the device: a captured step counts on when it is replayed.

use cuda_std::{GpuFloat, kernel};
use primitives::grid::begin;

/// The counts that an optimiser keeps from step to step, and what the blocks of a step read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Step {
    /// Steps done, the present one included.
    pub steps: u64,
    /// Steps skipped, because the gradients' norm was not finite.
    pub skipped: u64,
    /// The powers of the two betas, to the number of steps.
    pub powers: [f64; 2],
    /// The learning rate.
    pub learning_rate: f32,
    /// The learning rate, over the first moment's bias correction.
    pub step_size: f32,
    /// One over the root of the second moment's bias correction.
    pub root_correction: f32,
    /// The factor of all gradients.
    pub gradient_factor: f32,
    /// Whether this step is skipped: 0 or 1.
    pub is_skipped: u32,
    /// Fills it up to whole words of 8 bytes.
    pub reserved: u32,
}

/// The place of each result of a norm: see [`crate::norm`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Norm {
    /// The norm of the gradients, loss scale taken out.
    pub norm: f32,
    /// The factor of all gradients: clips them, and takes the loss scale out.
    pub factor: f32,
    /// 1 when the step is to be skipped, else 0.
    pub skip: f32,
}

/// Begins a step, by one thread. Betas of 0 leave the learning rate as it is. With `takes_factor` 0 gradients
/// are not multiplied by the norm's factor.
///
/// # Safety
/// `learning_rate` and `step` are readable, `step` is writable too; `norm` is readable or null. One block.
#[kernel(launch_bounds(32))]
pub unsafe fn begin_step(
    betas: [f64; 2],
    takes_factor: u32,
    learning_rate: *const f64,
    norm: *const Norm,
    step: *mut Step,
) {
    let is_first = begin(|| cuda_std::thread::thread_idx_x() == 0);
    if !is_first {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let (mut next, rate) = (*step, *learning_rate);
        let norm = if norm.is_null() { Norm { norm: 0.0, factor: 1.0, skip: 0.0 } } else { *norm };
        next.is_skipped = u32::from(norm.skip != 0.0);
        if next.is_skipped != 0 {
            next.skipped += 1;
        } else {
            next.steps += 1;
            next.powers = [next.powers[0] * betas[0], next.powers[1] * betas[1]];
            next.learning_rate = rate as f32;
            next.step_size = (rate / (1.0 - next.powers[0])) as f32;
            next.root_correction = (1.0 / GpuFloat::sqrt(1.0 - next.powers[1])) as f32;
            next.gradient_factor = if takes_factor != 0 { norm.factor } else { 1.0 };
        }
        *step = next;
    }
}
