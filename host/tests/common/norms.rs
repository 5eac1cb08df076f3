//! Norms without anything fused to them, and their gradients.

use ironwarp::Tensor;
use ironwarp::ops::gemm::Activation;
use ironwarp::ops::row::{Norm, NormBackward, NormKind};

/// Added before the roots of norms.
pub const EPS: f64 = 1e-5;

/// The norm without weight and bias.
pub fn plain(kind: NormKind) -> Norm<'static> {
    Norm { kind, weight: None, bias: None, eps: EPS, activation: Activation::None }
}

/// Its gradients by its input, and by the weight and the bias that it might have.
pub fn backward<'a>(kind: NormKind, x: &'a Tensor, dy: &'a Tensor, moments: &'a Tensor) -> NormBackward<'a> {
    NormBackward { of_shared: [true; 2], ..plain(kind).backward(x, dy, moments) }
}
