//! Operations: safe functions on buffers and tensors. Each checks shapes, devices and lengths, chooses its
//! kernels, and allocates its workspace. Functions on [`Tensor`](crate::Tensor)s take any strides, unless
//! they say otherwise. The book's page "All operations" lists them, with their gradients.

pub mod activation;
pub mod attention;
pub mod conv;
pub mod convert;
pub mod cosine;
mod counter;
mod dispatch;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
pub mod fill;
pub mod gemm;
pub mod hash;
pub mod index;
pub mod loss;
pub mod optim;
pub mod peer;
pub mod pool;
pub mod quantize;
pub mod reduce;
pub mod rotary;
pub mod row;
pub mod saxpy;
pub mod transpose;
pub mod tuning;
