//! Biases that fall by a slope on both sides of the diagonal (ALiBi).

use cuda_std::fastmath::fma;
use cuda_std::warp::{FULL_MASK, warp_vote_any};

use super::fragments::{Fragment, steps};
use crate::problem::Band;
use crate::score::Real;

/// The scale of scores counts as this at least, where sums of products are measured in it.
pub(super) const LEAST_SCALE: f32 = 1.0 / (1u64 << 62) as f32;

/// The biases of a thread's scores. Their places differ from the first one's by distances that are known when
/// the kernel is compiled, so where a thread's scores lie on one side of the diagonal a bias is one
/// multiply-add.
#[derive(Clone, Copy)]
pub(super) struct Line {
    /// The amount that is added with each key of distance.
    slope: f32,
    /// The distance of the first score.
    distance: f32,
    /// Whether scores of the warp lie on both sides of the diagonal, and some of both are seen.
    is_bent: bool,
}

impl Line {
    /// Of scores whose first one has this `distance`, and all of which are seen to the left of the diagonal
    /// alone if the band says so. They fall by `slope`.
    ///
    /// # Safety
    /// The whole warp calls it.
    #[inline(always)]
    pub unsafe fn new<F: Fragment>(slope: f32, distance: i32, band: Band) -> Self {
        let (least, most) = (distance - 8, distance + 8 * steps::<F>() as i32 - 7);
        let is_bent = least < 0 && most > 0 && band.right > 0;
        // SAFETY: the caller's contract.
        let is_bent = unsafe { warp_vote_any(FULL_MASK, is_bent) };
        // On the left distances are negative.
        let slope = if is_bent || least >= 0 { -slope } else { slope };
        Self { slope, distance: distance as f32, is_bent }
    }

    /// Whether [`at`](Self::at) has to be asked with `BENT`.
    #[inline(always)]
    pub const fn is_bent(self) -> bool {
        self.is_bent
    }

    /// The bias of a score, by what its row and column are behind the first one's.
    #[inline(always)]
    pub fn at<const BENT: bool>(self, row: i32, column: i32) -> f32 {
        let behind = (column - row) as f32;
        if BENT {
            self.slope * Real::abs(self.distance + behind)
        } else {
            fma(self.slope, behind, self.slope * self.distance)
        }
    }
}
