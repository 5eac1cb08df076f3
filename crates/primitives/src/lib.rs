//! Building blocks that every kernel shares, on the levels of CUB and CUTLASS.
//!
//! `cuda_std` has the instructions; this crate has the algorithms made of them: reductions, scans, pipelines, plans of
//! shared memory. It knows no kernel family. A family holds what is its own: tile shapes, schedule, epilogue.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod unroll;
