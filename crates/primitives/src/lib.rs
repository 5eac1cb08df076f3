//! Building blocks that every kernel shares, on the levels of CUB and CUTLASS.
//!
//! `cuda_std` has the instructions; this crate has the algorithms made of them: reductions, scans, pipelines, plans of
//! shared memory. It knows no kernel family. A family holds what is its own: tile shapes, schedule, epilogue.
#![cfg_attr(target_arch = "nvptx64", no_std)]

#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod cluster;
pub mod named_barrier;
pub mod pipeline;
pub mod shared_plan;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod tma;
pub mod unroll;

// What the macros name, in crates that use them.
#[doc(hidden)]
pub use cuda_std;
