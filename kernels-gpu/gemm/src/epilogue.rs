//! The meaning of an epilogue, the same for all kernels of the family:
//!
//! ```text
//! v = alpha * scale_a * scale_b * sum + beta * C + bias[column]     C is not read when beta is 0, nor for SwiGLU
//! v = activation(v)
//! v = v + residual[row, column]
//! amax = max |v| over the result, NaN if there is one
//! C = scale_c * v, rounded to C's type                               scale_c where a kernel takes one
//! ```
//! All in f32. Results beyond the range of f16 become infinity, those beyond an 8-bit type's its largest number.

pub use primitives::activation::{Activation, Fast, Precision, Visitor};
