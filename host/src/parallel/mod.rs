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
//! These hold over peer memory; [`Backend::Nccl`] says what differs through NCCL.
//!
//! * All ranks make the same calls in the same order. A call that differs is an error that names the rank,
//!   the call, got and wanted. The group has then failed.
//! * The host does not wait. The device notices a rank that is late; the error comes with the next call, or
//!   from [`Communicator::synchronize`] or [`Communicator::check`].
//! * Results have the same bits on every rank and in every run: elements are added in the order of ranks,
//!   those of fewer than 32 bits in f32.
//!
//! # Training
//! [`shard`] divides the batch. [`GradientBuckets`] sums gradients during the backward pass. [`Metrics`]
//! combines the numbers of all shards. [`Communicator::check_replicas`] compares the replicas, and
//! [`checkpoint`] saves them.
//!
//! # Which kernel
//! [`Communicator::explain`] returns the [`Plan`] of an all-reduce. Small data travel with flags to every
//! rank ([`Algorithm::LowLatency`]). Of a large sum each rank owns a part, which it reads from all ranks and
//! writes to all ([`Algorithm::Owners`]). Processes ([`Communicator::join`]) reach memory that each of them
//! allocates when it joins. Large data pass through it ([`Algorithm::Staged`]), or go through NCCL.

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
mod thread;

pub use call::Reduction;
pub use communicator::Communicator;
pub use group::{Backend, Group, GroupOptions};
pub use metrics::{MetricValues, Metrics, SyncedMetrics};
pub use nccl::UniqueId;
pub use operand::{Input, Output};
pub use overlap::{BucketSpan, Overlap};
pub use peer::{Algorithm, Explanation, Plan};
pub use runner::{BucketConfig, GradientBuckets, map, shard};
