//! The matrix-product family.
//!
//! | kernel | computes |
//! |---|---|
//! | [`gemm_f32`](mod@gemm_f32), `gemm_f32_small` | f32 without tensor cores, by rows or by columns, with an [`epilogue`] |
//! | [`any`]: `gemm_any` | every element type, stride and [`epilogue`], without tensor cores |
//! | [`mod@grouped`]: `gemm_grouped_any` | the same for [`groups`] of rows, each with a matrix B of its own |
//! | [`skinny`]: `gemm_skinny_{f16,bf16}_{nt,nn}`, on Hopper `_{e4m3,e5m2}_nt` | up to 32 rows |
//! | [`skinny::direct`]: `gemm_skinny_direct_b16`, `_b32` | few rows of any strides, without tensor cores |
//! | [`skinny::direct`]: `gemm_skinny_direct_row` | one row of f32, columns of B contiguous |
//! | [`mma`]: `gemm_mma_f16`, `_bf16`, `_tf32`, and `_small` of each | f16, bf16, f32 as tf32, every stride and epilogue, on the tensor cores of sm_80 and later |
//! | [`repack`]: `gemm_repack_b8`, `_b16`, `_b32` | operands that no fast kernel can address, copied to aligned rows |
//! | [`sm90`] | 16 bits, 8 bits and tf32 with an epilogue, on the tensor cores of Hopper |
//! | [`sm90`]: `gemm_sum_parts`, `gemm_sum_parts_plain` | sums of the parts of k |
//! | [`sm90::training`] | on Hopper, 16-bit types: of a training step, around an activation |
//!
//! Without its feature `kernels` the package is what kernels elsewhere are built on: Hopper's main loop and
//! the epilogues.
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Said here for those packages, whose build does not say it for this one.
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch, stdarch_nvptx))]

#[cfg(feature = "kernels")]
pub mod any;
#[cfg(feature = "kernels")]
mod block;
pub mod element;
pub mod epilogue;
#[cfg(feature = "kernels")]
pub mod gemm_f32;
#[cfg(feature = "kernels")]
pub mod grouped;
#[cfg(feature = "kernels")]
pub mod groups;
#[cfg(feature = "kernels")]
mod load;
#[cfg(feature = "kernels")]
pub mod mma;
#[cfg(feature = "kernels")]
pub mod repack;
#[cfg(feature = "kernels")]
pub mod skinny;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod sm90;
