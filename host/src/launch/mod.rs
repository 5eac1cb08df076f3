//! Launching kernels: the configuration, arguments checked by the compiler, limits checked before the launch.
//!
//! ```
//! use ironwarp::{Device, DeviceBuffer, LaunchConfig, launch};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let stream = Device::open(0)?.stream()?;
//! let x = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0])?;
//! let mut y = DeviceBuffer::from_slice(&stream, &[10.0f32, 20.0, 30.0])?;
//! let config = LaunchConfig::linear(x.len(), basic::saxpy::THREADS);
//! // SAFETY: `y` is as long as `x`, and the grid has a block for each tile.
//! unsafe { launch::<basic::saxpy::saxpy>(&stream, config, (2.0, &x, &mut y))? };
//! assert_eq!(y.to_vec(&stream)?, [12.0, 24.0, 36.0]);
//! # Ok(())
//! # }
//! ```

mod arg_struct;
mod args;
mod function;
mod kernel;
mod name;
mod prepared;
mod tuples;

pub use crate::config::LaunchConfig;
pub(crate) use args::Table;
pub use args::{Arg, Parameters};
pub use function::{Function, FunctionAttributes};
pub(crate) use kernel::resident_clusters;
pub use kernel::{KernelHandle, launch};
pub use prepared::PreparedLaunch;
pub use tuples::{LaunchArgs, NoArgument};

pub(crate) use name::keep;
