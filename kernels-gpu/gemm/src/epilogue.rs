//! The meaning of an epilogue, the same for all kernels of the family:
//!
//! ```text
//! v = alpha * scale_a * scale_b * sum + beta * C + bias[column]     source C is not read when beta is 0, nor for SwiGLU
//! pre = v, rounded to its type                                           where it is wanted
//! v = activation(v), then v + residual[row, column]
//!     or, in a backward pass, v * activation'(residual[row, column])     of the pre of the forward pass
//! amax = max |v| over the result, NaN if there is one
//! sums[column] = the sum of v over the rows                              where they are wanted: the gradient of a bias
//! C = scale_c * v, rounded to C's type                                   scale_c where a kernel takes one
//! ```
//! All in f32. Results beyond the range of f16 become infinity, those beyond an 8-bit type's its largest
//! number.

use cuda_std::KernelArgs;
pub use primitives::activation::{Activation, Fast, Precision, Visitor};

use crate::element::{Layout, Type, bytes};

/// The inputs of an epilogue: one argument of every kernel. Adding an input begins here.
///
/// Kernels read it where it lies, through a reference: a copy would be moved as whole words, in which
/// pointers are no longer known to be global ones.
#[derive(Debug, Clone, Copy, KernelArgs)]
#[repr(C)]
pub struct EpilogueParams {
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of source C; 0: it is not read.
    pub beta: f32,
    /// An [`Activation`].
    pub activation: u32,
    /// [`Type`] of the bias.
    pub bias_type: u32,
    /// Added to each row: a number for each column of the product; null: none. Groups have a bias each, one
    /// behind the other.
    pub bias: *const u8,
    /// Added after the activation, shaped as C; null: none. With `is_gradient` the place where the
    /// activation's derivative is taken.
    pub residual: *const u8,
    /// How the residual lies.
    pub residual_layout: Layout,
    /// A further factor of A, on the device; null: 1. Groups have one each.
    pub scale_a: *const f32,
    /// One of B.
    pub scale_b: *const f32,
    /// One of what is stored, the same for all groups.
    pub scale_c: *const f32,
    /// Raised to the bits of the largest magnitude of the result before `scale_c`; null: nothing.
    pub amax: *mut u32,
    /// The activation is not applied: the product is multiplied by its derivative at the residual.
    pub is_gradient: bool,
    /// Where the value before the activation goes, `[m, n]`; null: nowhere.
    pub pre: *mut u8,
    /// How that lies.
    pub pre_layout: Layout,
    /// Where the sums of columns over each [`SUMMED_ROWS`] rows go, a row of `n` numbers for each so many
    /// rows of C; null: nowhere. Only kernels of [`crate::sm90`] that store no transpose know it.
    pub sums: *mut f32,
}

/// Rows of C whose columns are summed up by a warp: those of its accumulators.
pub const SUMMED_ROWS: u32 = 16;

/// The bias and the scales of one group of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupInputs {
    pub bias: *const u8,
    pub scale_a: *const f32,
    pub scale_b: *const f32,
}

impl GroupInputs {
    /// Those of the first group, which is all where there are no groups.
    #[inline(always)]
    pub const fn first(params: &EpilogueParams) -> Self {
        let EpilogueParams { bias, scale_a, scale_b, .. } = *params;
        Self { bias, scale_a, scale_b }
    }

    /// Those of a group, of a product of `n` columns.
    #[inline(always)]
    pub fn of(params: &EpilogueParams, group: u32, n: u32) -> Self {
        let Self { bias, scale_a, scale_b } = Self::first(params);
        let of_group = |scale: *const f32| {
            if scale.is_null() { scale } else { scale.wrapping_add(group as usize) }
        };
        let bytes = u64::from(n) * u64::from(bytes(params.bias_type));
        let bias = if bias.is_null() { bias } else { bias.wrapping_add((u64::from(group) * bytes) as usize) };
        Self { bias, scale_a: of_group(scale_a), scale_b: of_group(scale_b) }
    }
}

impl EpilogueParams {
    /// The product itself.
    pub const NONE: Self = Self {
        alpha: 1.0,
        beta: 0.0,
        activation: Activation::None as u32,
        bias_type: Type::F32 as u32,
        bias: core::ptr::null(),
        residual: core::ptr::null(),
        residual_layout: Layout::NONE,
        scale_a: core::ptr::null(),
        scale_b: core::ptr::null(),
        scale_c: core::ptr::null(),
        amax: core::ptr::null_mut(),
        is_gradient: false,
        pre: core::ptr::null_mut(),
        pre_layout: Layout::NONE,
        sums: core::ptr::null_mut(),
    };
}
