//! Ironwarp's builder under the name of Rust-CUDA's package; see the facade `cuda_std`.

pub use ironwarp_builder::*;
