//! Ironwarp's host library: devices, streams, typed device memory, launches checked by the compiler, and ops.
//!
//! ```no_run
//! use ironwarp::{Device, DeviceBuffer};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let device = Device::open(0)?;
//! let stream = device.stream()?;
//! let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
//! assert_eq!(x.to_vec(&stream)?, [1.0, 2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! The same program runs on an NVIDIA GPU and, with no GPU or with `IRONWARP_DRIVER=soft`, on the software
//! driver, which executes the same kernels on the CPU under a checker.
//!
//! | for | see |
//! |---|---|
//! | devices, streams, events | [`Device`], [`Stream`], [`Event`] |
//! | memory | [`DeviceBuffer`], [`PinnedBuffer`] |
//! | your own kernels | `cuda_std::kernel`; [`launch()`], [`LaunchConfig`], [`KernelHandle`], [`Module`] |
//! | tensors with PyTorch's methods | [`Tensor`], [`mod@tensor`] |
//! | every operation: products, attention, convolutions, optimisers, .. | [`ops`] |
//! | work that is recorded once and replayed | [`graph`] |
//! | several devices, collectives, data-parallel training | [`parallel`] |
//! | links between devices, CPUs near them | [`topology`] |
//! | tensor maps | [`tma`] |
//! | errors | [`Error`], [`TensorError`], [`ParallelError`] |
//!
//! | environment variable | meaning |
//! |---|---|
//! | `IRONWARP_DRIVER` | `nvidia` or `soft`; default: NVIDIA if its library loads and reports a device |
//! | `IRONWARP_PTX_DIR` | folder of PTX, searched first; not for what [`Module::load_family`] loads |
//! | `IRONWARP_ALLOCATOR` | `caching` (default), or `passthrough`: a driver allocation for each buffer, for tools that watch those |
//! | `IRONWARP_ALLOCATOR_DEBUG` | `1`: red zones around buffers and NaN bytes in them; see `Device::check_memory` |
//! | `IRONWARP_GEMM` | prefer configurations whose name contains this ([`ops::gemm::select`]) |
//! | `IRONWARP_TUNER_RECORDS` | file of [`ops::tuning::Tuner::from_env`] |
//! | `IRONWARP_TUNING` | `measure` (default) or `recorded`: whether it measures what has no record |
//! | `IRONWARP_LAUNCH_BLOCKING` | `1`: wait after each launch, so that an error names the launch that caused it |
//!
//! The book's page "Environment variables" has the others.

mod arch;
#[cfg(doctest)]
mod book;
mod config;
mod device;
mod environment;
mod error;
mod extensions;
pub mod graph;
#[cfg(feature = "cust")]
mod interop;
mod launch;
mod memory;
mod methods;
mod module;
pub mod ops;
pub mod parallel;
mod ptx;
mod raw;
mod replace;
mod stream;
pub mod sys;
pub mod tensor;
pub mod tma {
    //! Tensor maps for kernels that copy with the tensor memory accelerator.
    pub use crate::memory::tensor_map::{
        DataType, Interleave, L2Promotion, MapElement, OobFill, Swizzle, TensorMap, TensorMapMut, Tiling,
    };
}

pub use crate::tensor::{DType, Dim, Layout, Scalar, Shape, Tensor, TensorError, TensorMut};
pub use arch::Arch;
/// Reports on a device's memory.
pub use arena::{BlockSnapshot, BlockState, HeapSnapshot, Holder, SegmentSnapshot, Snapshot, Stats};
pub use config::LaunchConfig;
pub use device::{Device, DeviceProperties, MemoryInfo};
pub use driver::topology;
pub use error::{
    DriverError, Error, LaunchSite, Limit, OutOfMemory, Overrun, ParallelError, Result, Suspects,
};
#[cfg(feature = "cust")]
pub use interop::CustLoan;
#[doc(hidden)]
pub use launch::NoArgument;
pub use launch::{
    Arg, Function, FunctionAttributes, KernelHandle, LaunchArgs, Parameters, PreparedLaunch, launch,
};
pub use memory::{DeviceBuffer, DevicePtr, DeviceView, DeviceViewMut, PinnedBuffer, with_oom_retry};
pub use methods::Operand;
pub use module::Module;
pub use ptx::PtxSource;
pub use stream::{Event, On, Scope, Stream};
/// Crates whose types are in this library's signatures. `#[derive(Pod, Zeroable)]` of [`bytemuck`] on a type
/// of yours finds it by `#[bytemuck(crate = "ironwarp::bytemuck")]`.
pub use {bytemuck, half};
/// Element types that Rust does not have.
pub use {
    half::{bf16, f16},
    num::{E4M3, E5M2},
};

/// The program in the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
