//! The processes of one job find each other, wait for each other, and learn that one of them is gone.
//!
//! ```no_run
//! use ironwarp_rendezvous::{Client, Options, World};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let world = World::from_env()?; // `ironwarp launch`, torchrun, Slurm, MPI, Kubernetes, or a job of one
//!     let client = Client::join(&world, &Options::default())?;
//!     let names = client.gather("host names", b"node-7")?; // one for each rank, on every rank
//!     assert_eq!(names.len(), world.size as usize);
//!     client.barrier("begin")?;
//!     Ok(())
//! }
//! ```
//!
//! | module | |
//! |---|---|
//! | [`World`] | who this process is, from the variables of its launcher |
//! | [`Store`] | a small server: keys and values, and who is alive |
//! | [`Client`] | a rank's connection to the store |
//! | [`Recorder`] | a ring of the last operations of a rank, written as a file when the job fails |
//!
//! A job fails as a whole. When a rank is killed, stopped, too slow, leaves early or calls another operation
//! than the others, each other rank gets a [`Failure`] that names it, within the timeout and two seconds.
#![forbid(unsafe_code)]

mod client;
mod error;
mod failure;
mod flight;
mod hub;
mod message;
mod store;
mod token;
mod wire;
pub mod world;

pub use client::{Client, Options};
pub use error::Error;
pub use failure::{Cause, Failure, RankReport};
pub use flight::{Entry, Operation, Recorder, State, first_difference, read_records};
pub use message::{MAX_KEY, MAX_RANKS, MAX_VALUE, Refusal};
pub use store::{Store, StoreOptions};
pub use token::Token;
pub use world::{Address, Launcher, World, WorldError};

use std::time::Duration;

/// How long a rank may be silent, and an operation may take, unless a program says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// How long ranks wait for each other at the beginning, unless a program says otherwise.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(300);
