//! The matrix-product family.
//!
//! | kernel | computes |
//! |---|---|
//! | [`gemm_f32`](mod@gemm_f32), `gemm_f32_small` | `C = alpha A B + beta C` in f32, without tensor cores |
#![cfg_attr(target_arch = "nvptx64", no_std)]

mod block;
pub mod epilogue;
pub mod gemm_f32;
mod load;
mod unroll;
