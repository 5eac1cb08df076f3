//! The factor of a loss: small gradients of 16 bits would be zeros without it. It grows while gradients are
//! finite, and shrinks when they are not, as that of `torch.amp.GradScaler`.

use crate::step::Norm;
use cuda_std::{kernel, thread};
use primitives::grid::begin;

/// How a scale changes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Change {
    /// The factor after `interval` norms in a row that were finite.
    pub growth: f32,
    /// The factor after a norm that is not finite.
    pub backoff: f32,
    /// Finite norms before it grows.
    pub interval: u32,
}

/// Updates a scale by the norm of the gradients that it was in: by one thread. A scale that would be infinite
/// stays, and none gets below the smallest normal number.
///
/// # Safety
/// `norm` is readable; `scale` and `finite`, the finite norms in a row, are writable too. One block.
#[kernel(launch_bounds(32))]
pub unsafe fn update_loss_scale(change: Change, norm: *const Norm, scale: *mut f32, finite: *mut u32) {
    let is_first = begin(|| thread::thread_idx_x() == 0);
    if !is_first {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        if !(*norm).norm.is_finite() {
            let less = *scale * change.backoff;
            *scale = if less > f32::MIN_POSITIVE { less } else { f32::MIN_POSITIVE };
            *finite = 0;
        } else if (*finite).saturating_add(1) < change.interval {
            *finite += 1;
        } else {
            let more = *scale * change.growth;
            *scale = if more.is_finite() { more } else { *scale };
            *finite = 0;
        }
    }
}
