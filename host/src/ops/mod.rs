//! Ops: safe functions over device buffers, one a kernel. They check shapes, devices and lengths, choose the
//! launch, and allocate their own workspaces. Those on [`Tensor`](crate::Tensor)s take any layout.

pub mod activation;
pub mod attention;
pub mod conv;
pub mod convert;
pub mod cosine;
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
pub mod pool;
pub mod reduce;
pub mod rotary;
pub mod row;
pub mod saxpy;
pub mod transpose;
