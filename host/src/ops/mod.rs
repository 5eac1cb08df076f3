//! Ops: safe functions over device buffers, one a kernel. They check shapes, devices and lengths, choose the launch, and
//! allocate their own workspaces.

pub mod cosine;
pub mod gemm;
pub mod reduce;
pub mod saxpy;
pub mod transpose;
