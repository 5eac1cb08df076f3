//! The matrix-product family.
//!
//! | kernel | computes |
//! |---|---|
//! | [`gemm_f32`](mod@gemm_f32), `gemm_f32_small` | `C = alpha A B + beta C` in f32, without tensor cores |
//! | [`any`]: `gemm_any` | every element type, stride and [`epilogue`], without tensor cores |
//! | [`mod@grouped`]: `gemm_grouped_any` | the same for [`groups`] of rows, each with a matrix B of its own |
//! | [`skinny`]: `gemm_skinny_f16_nt`, `_nn`, `_bf16_nt`, `_nn`, on Hopper `_e4m3_nt`, `_e5m2_nt` | up to 16 rows, as fast as the other factor comes from memory |
//! | [`mma`]: `gemm_mma_f16`, `_bf16`, `_tf32`, and `_small` of each | f16, bf16, f32 as tf32, every stride and epilogue, on the tensor cores of sm_80 and later |
//! | [`repack`]: `gemm_repack_b8`, `_b16`, `_b32` | operands that no fast kernel can address, copied to aligned rows |
//! | [`sm90`] | the same with an epilogue, on the tensor cores of Hopper, 16-bit and 8-bit types and tf32; `gemm_sum_parts` adds parts of k |
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod any;
mod block;
pub mod epilogue;
pub mod gemm_f32;
pub mod grouped;
pub mod groups;
mod load;
pub mod mma;
pub mod repack;
pub mod skinny;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod sm90;
mod unroll;
