//! Matrix products: `C = epilogue(alpha A B + beta C)` for f32, f16, bf16 and 8-bit floats, all transposes,
//! strides and sizes, batches, and fused epilogues.
//!
//! ```no_run
//! use half::bf16;
//! use ironwarp::DeviceBuffer;
//! use ironwarp::ops::gemm::{Activation, Matmul, Matrix, MatrixMut};
//! # fn main() -> ironwarp::Result<()> {
//! # let device = ironwarp::Device::open(0)?;
//! # let stream = device.stream()?;
//! let (tokens, inputs, outputs) = (512, 1024, 4096);
//! let x = DeviceBuffer::<bf16>::zeroed(&stream, tokens * inputs)?;
//! let weight = DeviceBuffer::<bf16>::zeroed(&stream, outputs * inputs)?;
//! let bias = DeviceBuffer::<bf16>::zeroed(&stream, outputs)?;
//! let mut y = DeviceBuffer::<bf16>::zeroed(&stream, tokens * outputs)?;
//! // y = gelu_tanh(x weight^T + bias)
//! let product = Matmul::new(
//!     Matrix::new(&x, tokens, inputs),
//!     Matrix::new(&weight, outputs, inputs).transposed(),
//!     MatrixMut::new(&mut y, tokens, outputs),
//! );
//! product.bias(&bias).activation(Activation::GeluTanh).run(&stream)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How a product is computed
//!
//! ```text
//! Matmul --- problem() ---> Problem --- select() ---> Config ---> copies of operands, if need be ---> kernel
//!                               \                        ^
//!                                `--- Tuner: measures ---'
//! ```
//! A [`Problem`] is all that kernels differ by, in plain numbers; a [`Config`] is a kernel and its shape.
//! Each family of kernels lists its candidates, the configurations that can do a problem, or says why it has
//! none. [`Matmul::explain`] returns all of them:
//!
//! | family | takes |
//! |---|---|
//! | [`gemm::sm90`] | 16-bit and 8-bit floats and tf32 on Hopper's tensor cores |
//! | [`gemm::gemm_f32`](mod@gemm::gemm_f32) | f32 in whole precision, however it lies |
//! | [`gemm::skinny`](mod@gemm::skinny) | up to 32 rows in f16, bf16, tf32 or (on Hopper) 8 bits, aligned |
//! | [`gemm::skinny::direct`](mod@gemm::skinny::direct) | up to 64 rows in f16, bf16 or f32, however they lie |
//! | [`gemm::mma`](mod@gemm::mma) | f16, bf16, f32 as tf32, on the tensor cores of every device |
//! | [`gemm::any`](mod@gemm::any) | everything, slowly |
//!
//! [`activated`] and [`activated_backward`] are products of a training step: the first keeps the values
//! before its activation, the second computes their gradient and that of the bias in its epilogue.
//!
//! Some operands have rows that do not begin at 16-byte boundaries, or that run the wrong way for a kernel.
//! Where it pays, they are copied to scratch memory first ([`Repack`]). [`Packed`] is such a copy for an
//! operand of many products.
//!
//! [`GroupedMatmul`] multiplies groups of rows by a matrix each, [`BlockScaled`] 8-bit matrices with a factor
//! for each block.
//!
//! # Same bits
//!
//! Sums are f32. The configuration alone determines their order, and no kernel adds by atomics: the same
//! configuration gives the same bits in every run. [`Matmul::run`] always chooses the same configuration for
//! the same problem and device. A [`Tuner`](super::tuning::Tuner) measures, so it may choose another one
//! tomorrow unless its records are kept.

mod any;
mod backend;
mod bands;
mod block_scaled;
#[cfg(test)]
mod calibration;
mod check;
mod config;
mod direct;
mod epilogue;
mod f32;
mod grouped;
mod matmul;
mod matrix;
mod mma;
mod problem;
mod repack;
mod select;
mod skinny;
mod sm90;
mod split_k;
mod training;
mod tune;

pub use block_scaled::BlockScaled;
pub use config::{Band, Candidate, Choice, Config, Kernel, Rejection, Repack, Terms};
pub use f32::{Gemm, gemm_f32};
pub use gemm::epilogue::Activation;
pub use grouped::GroupedMatmul;
pub use matmul::Matmul;
pub use matrix::{Matrix, MatrixMut};
pub use problem::{EpilogueDesc, Operand, Order, Precision, Problem};
pub use repack::Packed;
pub use select::{candidates, select};
pub use training::{Activated, ActivatedGradients, activated, activated_backward};

use any::device_type;

/// The operation that errors name.
const OPERATION: &str = "gemm";
