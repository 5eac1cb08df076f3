//! Compiles GPU kernel packages written in Rust to PTX, with rustc's own `nvptx64-nvidia-cuda` back end.
//!
//! Source-compatible with the builder of Rust-CUDA: a build script that says
//! `CudaBuilder::new("kernels").copy_to(path).build()` works unchanged. What happens:
//!
//! 1. [`DeviceToolchain::find`] looks for a rustc that can do it (the host's stable toolchain cannot).
//! 2. cargo compiles what the package depends on, with the language's `core` and `alloc`, and says how to
//!    compile the package, which is then done beside other packages.
//! 3. [`ptx::finish`] adds what rustc cannot say: launch bounds, the PTX version that inline assembly needs,
//!    and a first line that tells the host what the module holds.
//! 4. [`ptxas`], where NVIDIA's assembler is at hand, reports registers, spills and shared memory.
//!
//! Nothing is done when no source has changed.

mod arch;
mod builder;
mod call;
mod compile;
mod cores;
mod dependencies;
mod error;
mod manifest;
pub mod ptx;
pub mod ptxas;
mod stamp;
mod toolchain;

pub use arch::{Arch, NvvmArch, ParseArchError};
pub use builder::{Built, CudaBuilder, DebugInfo, Prepared};
pub use compile::TARGET;
pub use error::{BuildError, BuildError as CudaBuilderError, ToolchainError, shown};
pub use manifest::Manifest;
pub use toolchain::{
    DEVICE_RUSTC, DeviceToolchain, INSTALL_APT, INSTALL_RUSTUP, MIN_RUSTC, Version, on_path,
};
