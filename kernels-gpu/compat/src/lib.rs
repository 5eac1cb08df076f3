//! Kernels in the style of Rust-CUDA's users. They show that such code compiles and runs unchanged.
//!
//! Nothing here is tuned, and no host operation uses it. The old-fashioned style is intended. The crate does
//! not declare `no_std`: the builder adds it.
#![allow(clippy::missing_safety_doc, missing_docs)]

extern crate alloc;

mod atomics;
mod crates_io;
mod float_math;
mod gemm_naive;
mod gemm_tiled;
mod printing;
mod scalars;
mod vecadd;
mod warps;

pub use atomics::{histogram, sum_blocks, sum_floats};
pub use crates_io::{rotate, sha256_each};
pub use float_math::{gelu, norms};
pub use gemm_naive::gemm_naive;
pub use gemm_tiled::gemm_tiled;
pub use printing::{print_lines, print_long, refuse_zeros};
pub use scalars::{count_positive, reverse_array, reverse_dynamic};
pub use vecadd::vecadd;
pub use warps::{warp_collectives, warp_sums};
