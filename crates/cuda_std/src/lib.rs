//! Device library for GPU kernels in Rust: one chapter of the PTX ISA a module.
//!
//! The public half follows the names and meanings of Rust-CUDA's `cuda_std`, so kernels written for it compile
//! unchanged. Every chapter has two arms behind one seam, chosen by the target:
//!
//! * `src/ptx/`: PTX instructions, when compiling for `nvptx64-nvidia-cuda`;
//! * `src/sim/`: calls into the SIMT executor, when compiling for the host. There a function of this library may be
//!   called only from inside a simulated thread; anywhere else it panics with a sentence that says so.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, core_float_math, link_llvm_intrinsics, stdarch_nvptx))]
#![allow(internal_features)]
extern crate alloc;
// `cuda_std::...` paths that the macros write work inside this crate too.
extern crate self as cuda_std;

#[cfg(target_arch = "nvptx64")]
#[path = "ptx/mod.rs"]
pub(crate) mod arch;
#[cfg(not(target_arch = "nvptx64"))]
#[path = "sim/mod.rs"]
pub(crate) mod arch;

// Rust-CUDA's chapters.
pub mod atomic;
pub mod cfg;
pub mod float;
pub mod io;
pub mod mem;
pub mod misc;
pub mod prelude;
pub mod ptr;
pub mod shared;
pub mod thread;
pub mod warp;

// Chapters that Rust-CUDA lacks.
pub mod async_copy;
pub mod barrier;
pub mod convert;
pub mod fastmath;
pub mod grid;
pub mod matrix;
pub mod mma;
pub mod vector;

pub mod kernel;
#[cfg(target_arch = "nvptx64")]
mod rt;

pub use cuda_std_macros::*;
pub use float::GpuFloat;
pub use half;
pub use half::{bf16, f16};

/// What the macros' expansions refer to on the host.
#[doc(hidden)]
#[cfg(not(target_arch = "nvptx64"))]
pub mod __private {
    pub use crate::kernel::arguments::{read_slice, read_slice_mut, read_value};
    pub use simt::inventory;
    pub use simt::shared::{StaticKey, alloc_static};
}
