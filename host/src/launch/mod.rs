//! Launching kernels: the configuration, arguments checked by the compiler, limits checked before the launch.
//!
//! ```ignore
//! // fn saxpy(n: u32, a: f32, x: &[f32], y: *mut f32), marked #[kernel] in the crate `basic`
//! unsafe { ironwarp::launch::<basic::saxpy>(&stream, LaunchConfig::linear(n, 256), (n as u32, 2.0, &x, &mut y))? };
//! ```

mod args;
mod config;
mod function;
mod kernel;
mod name;
mod recent;

pub use args::{Arg, LaunchArgs, Parameters};
pub use config::{LaunchConfig, LaunchSite};
pub use function::{Function, FunctionAttributes};
pub use kernel::{KernelHandle, launch};
pub use recent::Suspects;

pub(crate) use function::FunctionInner;
pub(crate) use kernel::FunctionCache;
pub(crate) use name::keep;
pub(crate) use recent::{LaunchLog, Recent};
