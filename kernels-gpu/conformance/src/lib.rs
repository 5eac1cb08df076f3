//! Small correct kernels, at least one for every function of the device library.
//!
//! They exist for tests: each runs on both drivers against an oracle in plain Rust
//! (`host/tests/conformance`). Each file tests the chapter of `cuda_std` with the same name. Each kernel
//! calls its chapter's functions in the simplest way and writes their results, so a failing test names the
//! function.
//!
//! Conventions: a block is a multiple of 32 threads. A kernel that computes several results for `n` inputs
//! writes them as rows of `n` into one output, in the order of its documentation.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub mod arguments;
pub mod async_copy;
pub mod atomics;
pub mod barrier;
pub mod convert;
pub mod decode_score;
pub mod fastmath;
pub mod grid;
/// The Hopper chapters. The kernels exist only in the PTX for sm_90a. For any other device the tests have
/// nothing to launch.
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod hopper;
pub mod matrix;
pub mod mma;
mod rows;
pub mod shared;
pub mod thread;
pub mod vector;
pub mod warp;
