//! Ironwarp's kernel macros under the name of Rust-CUDA's package; see the facade `cuda_std`.
#![no_std]

pub use ironwarp_std_macros::*;
