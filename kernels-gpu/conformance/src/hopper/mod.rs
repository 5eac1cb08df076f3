//! Kernels for Hopper, one file per chapter of `cuda_std`.
//!
//! They exist only in the PTX for sm_90a. On an older device the tests have nothing to launch.

pub mod cluster;
pub mod grid;
pub mod im2col;
pub mod mbarrier;
pub mod pipeline;
pub mod score;
pub mod tma;
pub mod warp;
pub mod wgmma;
