//! Several devices: groups of ranks, and collectives among them.
//!
//! A [`Group`] has a rank for each device; each rank has a [`Communicator`], which a thread of its own
//! drives. Collectives are queued on a stream, like kernels, and can be captured into graphs.
//!
//! ```
//! use ironwarp::parallel::{Group, Reduction};
//! use ironwarp::{Device, DeviceBuffer};
//!
//! # fn main() -> ironwarp::Result<()> {
//! let devices: Vec<Device> = (0..Device::count()?).map(Device::open).collect::<Result<_, _>>()?;
//! let sums = Group::open(&devices)?.run(|mut rank| {
//!     let stream = rank.device().stream()?;
//!     let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32, rank.rank() as f32])?;
//!     rank.all_reduce(&stream, Reduction::Sum, &mut x)?;
//!     rank.synchronize(&stream)?;
//!     x.to_vec(&stream)
//! })?;
//! assert!(sums.iter().all(|sum| sum[0] == sums.len() as f32));
//! # Ok(())
//! # }
//! ```
//!
//! # Rules
//! Of groups over peer memory; [`Backend::Nccl`] says what differs through NCCL.
//!
//! * All ranks make the same calls in the same order. A call that differs is an error that names rank, call,
//!   what was got and wanted; the group has then failed.
//! * Nothing waits on the host. A rank that does not come in time is found on the device; the error comes
//!   with the next call, or from [`Communicator::synchronize`] or [`Communicator::check`].
//! * Results are the same bits on every rank and in every run: elements are added up in the order of ranks,
//!   in f32 where they are smaller.
//!
//! # Training
//! [`shard`] cuts the batch, [`GradientBuckets`] reduces gradients beside the backward pass, [`Metrics`] has
//! the numbers of the whole batch, [`Communicator::check_replicas`] compares the replicas, and [`checkpoint`]
//! saves them.
//!
//! # Which kernel
//! [`Communicator::explain`] says which [`Plan`] a collective has. Small ones travel with their flags to
//! every rank ([`Algorithm::LowLatency`]); of large sums each rank owns a part, which it reads from all ranks
//! and writes to all ([`Algorithm::Owners`]). Ranks that are processes ([`Communicator::join`]) reach memory
//! that each has allocated for that, and what is large passes through it ([`Algorithm::Staged`]), or goes
//! through NCCL.

mod call;
mod check;
pub mod checkpoint;
mod communicator;
mod fused;
mod group;
mod ledger;
mod metrics;
mod nccl;
mod operand;
mod overlap;
mod peer;
mod process;
mod replicas;
mod runner;

pub use call::Reduction;
pub use communicator::Communicator;
pub use group::{Backend, Group, GroupOptions};
pub use metrics::{MetricValues, Metrics, SyncedMetrics};
pub use nccl::UniqueId;
pub use operand::{Input, Output};
pub use overlap::{BucketSpan, Overlap};
pub use peer::{Algorithm, Explanation, Plan};
pub use runner::{BucketConfig, GradientBuckets, map, shard};
