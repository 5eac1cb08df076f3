//! Device library for GPU kernels in Rust: one chapter of the PTX ISA a module.
//!
//! The public half follows the names and meanings of Rust-CUDA's `cuda_std`, so kernels written for it
//! compile unchanged. Every instruction has two arms, chosen by the target:
//!
//! * PTX, when compiling for `nvptx64-nvidia-cuda`;
//! * a call into the SIMT executor, when compiling for the host. There a function of this library may be
//!   called only from inside a simulated thread; anywhere else it panics with a sentence that says so.
//!
//! A function holds both arms (`arms!`); a family of functions is a table with one row an instruction.
//!
//! # Kernels written for Rust-CUDA
//!
//! They compile unchanged, on the device and on the host. What is different:
//!
//! * `feature(register_attr)` in a crate's first lines must go: current compilers refuse it. `no_std` may
//!   stay or go.
//! * Positions are glam's [`UVec2`](glam::UVec2) and [`UVec3`](glam::UVec3), as in Rust-CUDA's
//!   repository today. Those of its release 0.2 are vek's, which the feature `vek` brings as `cuda_std::vek`.
//! * `#[kernel]` makes a type of the function's name too, on the host. A package that re-exports a kernel
//!   beside a module of the same name says `kernel-types = false` under `[package.metadata.ironwarp]`, and
//!   launches by name.
//! * Outside of a kernel function, the name of an `#[address_space(shared)] static mut` dereferences to the
//!   variable: `NAME[i] = v` works, `NAME = v` must be `*NAME = v`.
//! * Shuffles upwards stop at their section, as the hardware does it; increments and decrements take their
//!   bound.
//! * A kernel that formats floats needs 8 KB of stack a thread, more than the driver gives: raise
//!   `CU_LIMIT_STACK_SIZE` before such a launch.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(
    target_arch = "nvptx64",
    feature(asm_experimental_arch, core_float_math, link_llvm_intrinsics, stdarch_nvptx)
)]
#![cfg_attr(ironwarp_shared_object, feature(core_intrinsics, gpu_intrinsics, gpu_launch_sized_workgroup_mem))]
#![allow(internal_features)]
extern crate alloc;
// `cuda_std::...` paths that the macros write work inside this crate too.
extern crate self as cuda_std;

/// The two forms of an instruction, as an expression: PTX on the device, the executor on the host.
macro_rules! arms {
    (ptx: { $($ptx:tt)* } sim: { $($sim:tt)* }) => {{
        #[cfg(target_arch = "nvptx64")]
        {
            $($ptx)*
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            $($sim)*
        }
    }};
}

// Rust-CUDA's chapters.
pub mod atomic;
pub mod cfg;
pub mod float;
mod float_ext;
pub mod intrinsics;
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

// Chapters of sm_90 and later, and of sm_90a alone. They do not exist when the code is compiled for another
// architecture.
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
pub mod cluster;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
pub mod fence;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
pub mod mbarrier;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod registers;
#[cfg(any(not(target_arch = "nvptx64"), target_feature = "compute_90"))]
pub mod tma;
#[cfg(any(not(target_arch = "nvptx64"), ironwarp_sm = "90a"))]
pub mod wgmma;

pub mod kernel;
#[cfg(target_arch = "nvptx64")]
mod rt;

/// For types that hosts and kernels share: `#[derive(Pod, Zeroable)]` finds this crate by
/// `#[bytemuck(crate = "cuda_std::bytemuck")]`.
pub use bytemuck;
pub use cuda_std_macros::*;
pub use float::GpuFloat;
pub use float_ext::FloatExt;
pub use glam;
pub use half;
pub use half::{bf16, f16};
/// Index arithmetic: swizzles, descriptors of `wgmma` operands, orders of tiles.
pub use layout;
pub use num::{E4M3, E5M2};
#[cfg(feature = "vek")]
pub use vek;

/// Names that the macros' expansions use on the host.
#[doc(hidden)]
#[cfg(not(target_arch = "nvptx64"))]
pub mod __private {
    pub use crate::kernel::arguments::{read_slice, read_slice_mut, read_value};
    pub use simt::inventory;
    pub use simt::shared::{StaticKey, alloc_static};
}
