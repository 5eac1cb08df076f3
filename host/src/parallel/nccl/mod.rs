//! Collectives through NCCL: ranks in any processes, on any machines.
//!
//! Its communicators do not block, so whoever waits for the library can give up. Its kernels wait for ever: a
//! thread for each communicator watches marks that kernels of ours make around each call, also in graphs, and
//! aborts the communicator when a call does not end. An abort stops what is queued, but returns when no graph
//! has calls of the communicator any more, so a thread of its own waits for it.

mod id;
mod issue;
mod member;
mod shared;
mod watch;

pub use id::UniqueId;
pub(super) use member::{Link, Member, Place};
pub(super) use shared::Seat;
