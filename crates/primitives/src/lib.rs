//! Building blocks that every kernel shares, on the levels of CUB and CUTLASS.
//!
//! `cuda_std` has the instructions; this crate has the algorithms made of them: reductions, scans, pipelines,
//! plans of shared memory. It knows no kernel family. A family holds what is its own: tile shapes, schedule,
//! epilogue.
//!
//! | module | what |
//! |---|---|
//! | [`warp`], [`block`], [`grid`] | reductions, scans, broadcasts; how launches overlap |
//! | [`op`] | the operations that they combine by: sum, product, extremes, places of extremes |
//! | [`softmax`], [`moments`] | online softmax; mean and variance |
//! | [`access`], [`element`], [`row`] | vectors of 16 bytes, element types, rows of any alignment |
//! | [`fp8`] | 8-bit floats on any device |
//! | [`activation`], [`math`] | activations, their derivatives, elementary functions, in three precisions |
//! | [`philox`], [`dropout`] | random numbers; which elements are dropped |
//! | [`mod@mma`] | tiles of a product on tensor cores, fed by `cp.async` |
//! | [`mod@shared_plan`], [`named_barrier`], [`pipeline`] | shared-memory plans, named barriers, pipelines |
//! | `cluster`, `tma`, `wgmma` | coordinates in a cluster, tiles that TMA moves, 16-bit operands: on Hopper |
//! | [`mod@unroll`] | loops whose index is a constant |
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Iterators by value over arrays end up in local memory. Indices that unroll to constants do not.
#![allow(clippy::needless_range_loop)]

pub mod access;
pub mod activation;
pub mod block;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod cluster;
pub mod dropout;
pub mod element;
pub mod fp8;
pub mod grid;
pub mod math;
pub mod mma;
pub mod moments;
pub mod named_barrier;
pub mod op;
pub mod philox;
pub mod pipeline;
pub mod row;
pub mod running;
pub mod shared_plan;
pub mod softmax;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod tma;
pub mod unroll;
pub mod warp;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod wgmma;

// For the macros' expansions in other crates.
#[doc(hidden)]
pub use cuda_std;
