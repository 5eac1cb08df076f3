//! Kernels in the style of Rust-CUDA's users. They show that such code compiles and runs unchanged.
//!
//! Nothing here is tuned, and no host operation uses it. The old-fashioned style is intended. The crate does
//! not declare `no_std`: the builder adds it.
#![allow(clippy::missing_safety_doc, missing_docs, unexpected_cfgs)]

extern crate alloc;

mod atomics;
mod counters;
mod crates_io;
mod float_math;
mod floats;
mod gemm_naive;
mod gemm_tiled;
mod lanes;
mod libdevice;
mod positions;
mod printing;
mod programs;
mod scalars;
mod system;
mod tiles;
mod vecadd;
mod warps;

pub use atomics::{histogram, sum_blocks, sum_floats};
pub use counters::*;
pub use crates_io::{rotate, sha256_each};
pub use float_math::{gelu, norms};
pub use floats::*;
pub use gemm_naive::gemm_naive;
pub use gemm_tiled::gemm_tiled;
pub use lanes::*;
pub use libdevice::*;
pub use positions::*;
pub use printing::{print_lines, print_long, refuse_zeros};
pub use programs::*;
pub use scalars::{count_positive, reverse_array, reverse_dynamic};
pub use system::*;
pub use tiles::*;
pub use vecadd::vecadd;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_80"))]
pub use warps::warp_collectives;
pub use warps::warp_sums;
