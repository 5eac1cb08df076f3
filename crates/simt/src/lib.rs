//! Runs GPU kernels on the CPU, thread by thread, under a race and memory checker.
//!
//! A kernel is a function that is called once per simulated thread. Threads of a block are coroutines on one
//! OS thread; blocks spread over OS threads. A thread runs until it has to wait (barrier, warp collective,
//! grid sync). A seed decides which thread runs next, so every schedule can be replayed.
//!
//! ```
//! use ironwarp_simt::{LaunchConfig, Options};
//! let config = LaunchConfig::linear(2, 64);
//! let stats = ironwarp_simt::run(&config, &Options::default(), || {
//!     let everyone = ironwarp_simt::barrier::reduce(ironwarp_simt::barrier::BarrierReduce::Popc, true);
//!     assert_eq!(everyone, 64);
//! })
//! .unwrap();
//! assert_eq!(stats.threads, 128);
//! ```
//!
//! With [`Options::check`] every access to shared memory and to tracked global memory is checked: bounds,
//! alignment, initialisation, lifetime and data races. An error comes back as a [`Fault`] with the source
//! lines of both accesses. Accesses are seen when they go through [`memory`], or when the kernel's package is
//! compiled with load/store callbacks (`tools/rustc-checked`).
//!
//! A fault ends the launch at once. [`run`] then unwinds the simulated threads that have not ended.
//! [`launch`] leaks the values on their stacks, as its safety contract states.

pub mod async_copy;
pub mod barrier;
pub mod bulk;
mod check;
pub mod cluster;
mod config;
mod exec;
mod fault;
pub mod grid;
mod io;
pub mod mbarrier;
pub mod memory;
pub mod reduction;
mod region;
pub mod registry;
pub mod remote;
pub mod shared;
mod site;
pub mod tensor_map;
pub mod thread;
pub mod tma;
pub mod warp;
pub mod wgmma;

pub use config::{
    LaunchConfig, LaunchStats, MAX_COOPERATIVE_THREADS, MAX_STACK_BYTES, MAX_THREADS_PER_BLOCK, Options,
    VARIABLES,
};
pub use exec::{launch, run, when_all_spin};
pub use fault::{Access, AccessKind, Fault, FaultKind, OtherAccess, Place};
pub use inventory;
pub use io::{clock, note, print, trap};
pub use region::DeviceMemory;
pub use registry::{KernelEntry, LaunchBounds, ParamLayout};
pub use shared::StaticKey;
pub use site::Site;
