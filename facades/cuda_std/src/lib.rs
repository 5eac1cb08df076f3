//! Ironwarp's device library under the name of Rust-CUDA's package, so that programs and packages that depend
//! on that one take this one by `[patch.crates-io]`.
#![no_std]

pub use ironwarp_std::*;
