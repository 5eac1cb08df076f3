//! Kernels for Hopper, one file a chapter of `cuda_std`.
//!
//! They exist in the PTX for sm_90a alone; on an older device the tests have nothing to launch.

pub mod cluster;
pub mod grid;
pub mod mbarrier;
pub mod pipeline;
pub mod tma;
pub mod warp;
pub mod wgmma;
