//! Naive oracles in f64: the expected results of the kernels.
//!
//! Oracles are plain loops, parallel over rows with rayon. They share no code with the kernels. Inputs have
//! any type that converts to f64 exactly (f32, f16, bf16). If a kernel's rounding errors scale with the
//! summed terms and not with the result, the oracle also returns the sum of the magnitudes ([`Accumulated`]).

pub mod activation;
pub mod attention;
mod basic;
pub mod channels;
pub mod collective;
pub mod conv;
pub mod cosine;
pub mod cross_entropy;
#[cfg(test)]
mod differences;
pub mod elementwise;
mod gemm;
pub mod index;
pub mod loss;
pub mod matmul;
pub mod optim;
pub mod quantize;
pub mod random;
pub mod reduction;
pub mod rotary;
pub mod row;

pub use basic::{hash, max, saxpy, sum, transpose};
pub use gemm::{Gemm, gemm};

/// An element type that converts to f64 without loss.
pub trait Exact: Copy + Sync + Into<f64> {}
impl<T: Copy + Sync + Into<f64>> Exact for T {}

/// The elements as f64. An oracle of many steps takes them so: a generic function is compiled where it is
/// called, without the optimisation that this crate has.
fn exact<T: Exact>(data: &[T]) -> Vec<f64> {
    data.iter().map(|&x| x.into()).collect()
}

/// Results that are sums, each with the sum of the absolute values of its terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Accumulated {
    /// The sums.
    pub value: Vec<f64>,
    /// The scale of their rounding errors.
    pub magnitude: Vec<f64>,
}
