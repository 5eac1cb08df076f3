//! Why a rank cannot go on, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::Failure;
use crate::message::{MAX_KEY, MAX_RANKS, MAX_VALUE, Refusal};
use crate::wire::WireError;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The job has failed; so will every later operation of this client.
    #[error("the job has failed: {0}")]
    Failed(Failure),
    /// The store does not let this process in.
    #[error("the store at {address} refuses rank {rank}: {refusal}")]
    Refused {
        /// The store.
        address: String,
        /// This process.
        rank: u32,
        /// Why.
        refusal: Refusal,
    },
    /// No store answers.
    #[error(
        "no store at {address} for {:.1} s ({last}). Check that rank 0 or the launcher runs there, the address, and the network's rules",
        .after.as_secs_f64()
    )]
    Unreachable {
        /// The address.
        address: String,
        /// How long it was tried.
        after: Duration,
        /// Why the last trial failed.
        last: String,
    },
    /// Something else listens there.
    #[error("what listens at {address} is no store: {source}. Choose another port, or end what has this one")]
    NoStore {
        /// The address.
        address: String,
        /// Its first bytes.
        source: WireError,
    },
    /// The store's address is another program's.
    #[error(
        "cannot serve the store at {address}: the port is in use. Choose another port, or end the job that has it"
    )]
    PortInUse {
        /// The address.
        address: String,
    },
    /// The store's address cannot be had.
    #[error("cannot serve the store at {address}: {source}. It must be an address of this machine")]
    Bind {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The key did not come.
    #[error("no rank has set {key:?} for {:.1} s", .waited.as_secs_f64())]
    Timeout {
        /// The key.
        key: String,
        /// How long this rank waited.
        waited: Duration,
    },
    /// The key is too long.
    #[error("a key of {0} bytes; at most {MAX_KEY} fit")]
    LongKey(usize),
    /// The value, or the values of a gather together, are too long.
    #[error("{0} bytes at once; at most {MAX_VALUE} fit. Large data goes through a file or a collective")]
    LongValue(usize),
    /// The store has no room.
    #[error(
        "the store holds {bytes} of {limit} bytes and has no room. Write to the same keys again, or to fewer"
    )]
    Full {
        /// The bytes that it holds.
        bytes: u64,
        /// The bytes that it can hold.
        limit: u64,
    },
    /// `get` in too many threads at once.
    #[error("this rank waits for {limit} keys already. Wait for fewer at a time")]
    Waits {
        /// As many as there may be.
        limit: u64,
    },
    /// `add` on a key that `set` has written.
    #[error("{key:?} holds {bytes} bytes, no number of `add`. Use another key")]
    NoNumber {
        /// The key.
        key: String,
        /// The bytes that it holds.
        bytes: u64,
    },
    /// Nobody, or too many.
    #[error("a job of {0} ranks; wanted 1 to {MAX_RANKS}")]
    Size(u32),
    /// The options cannot be used.
    #[error("{what} of {got:?}; wanted {wanted}")]
    Option {
        /// The option.
        what: &'static str,
        /// Its value.
        got: Duration,
        /// The values that it could have.
        wanted: &'static str,
    },
    /// A flight record cannot be written or read.
    #[error("cannot {action} the flight record {}: {source}", .path.display())]
    Record {
        /// Write or read.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The action.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    /// The job's failure, where that is it.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failed(failure) | Self::Refused { refusal: Refusal::Over(failure), .. } => Some(failure),
            _ => None,
        }
    }

    /// Adapter for `map_err`.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
