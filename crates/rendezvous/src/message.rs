//! The messages between ranks and the store.

use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The longest key in bytes.
pub const MAX_KEY: usize = 512;
/// The longest value of a key, and the longest sum of the blobs of a gather, in bytes.
pub const MAX_VALUE: usize = 4 << 20;

/// The most ranks of a job.
pub const MAX_RANKS: u32 = 1 << 20;

/// Who joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub rank: u32,
    pub size: u32,
    pub generation: u32,
}

/// A rank to the store. `id` comes back with the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The answer to a challenge: the first message.
    Hello {
        hello: Hello,
        proof: [u8; 32],
    },
    Set {
        id: u64,
        key: String,
        value: Vec<u8>,
    },
    /// Waits for the key, so many milliseconds at most.
    Get {
        id: u64,
        key: String,
        wait: u64,
    },
    Add {
        id: u64,
        key: String,
        delta: i64,
    },
    /// Waits until all ranks are in their `sequence`th meeting, so many milliseconds at most.
    Meet {
        id: u64,
        sequence: u64,
        meeting: Meeting,
        blob: Vec<u8>,
        wait: u64,
    },
    /// A sign of life, with the operation that the rank is in or was last in.
    Ping {
        operation: String,
    },
    Abort {
        reason: String,
    },
    Leave,
}

/// An operation of all ranks: its kind and its name. All ranks must say the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    pub kind: Kind,
    pub name: String,
}

/// An operation of all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Join,
    Barrier,
    Gather,
}

impl std::fmt::Display for Meeting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Join => return out.write_str("join"),
            Kind::Barrier => "barrier",
            Kind::Gather => "gather",
        };
        write!(out, "{kind} {:?}", self.name)
    }
}

/// The store to a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The first message of a connection.
    Challenge {
        nonce: [u8; 32],
    },
    Welcome,
    Refused(Refusal),
    Pong,
    Done {
        id: u64,
    },
    Value {
        id: u64,
        value: Vec<u8>,
    },
    Number {
        id: u64,
        number: i64,
    },
    Gathered {
        id: u64,
        blobs: Vec<Vec<u8>>,
    },
    Denied {
        id: u64,
        why: Denial,
    },
    /// The job is over.
    Failed(Failure),
}

/// Why one operation was not done. The job goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Denial {
    /// The key did not come.
    Timeout,
    /// The store has no room.
    Full { bytes: u64, limit: u64 },
    /// The key holds something else.
    NoNumber { bytes: u64 },
    /// The rank waits for so many keys already.
    Waits { limit: u64 },
}

/// Why a store does not let somebody in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The proof is wrong.
    #[error(
        "the tokens differ. Give all processes of a job the same IRONWARP_TOKEN, and no two jobs the same address"
    )]
    Token,
    /// The sizes differ.
    #[error("this process counts {got} ranks, the store {wanted}. Start all processes with the same size")]
    Size {
        /// The joiner's.
        got: u32,
        /// The store's.
        wanted: u32,
    },
    /// There is no such rank.
    #[error("rank {rank} of {size}: ranks go from 0 to {}", .size.saturating_sub(1))]
    Rank {
        /// The joiner's.
        rank: u32,
        /// The number of ranks.
        size: u32,
    },
    /// A process of another start of the job.
    #[error(
        "this process is of generation {got} of the job, the store of {wanted}. It was started too early or too late: end it"
    )]
    Generation {
        /// The joiner's.
        got: u32,
        /// The store's.
        wanted: u32,
    },
    /// There is such a rank already.
    #[error("rank {rank} has joined already. Give every process a rank of its own")]
    Taken {
        /// The joiner's.
        rank: u32,
    },
    /// There was such a rank.
    #[error(
        "rank {rank} has joined and left. A rank that starts again does so with all others, in a new generation"
    )]
    Gone {
        /// The joiner's.
        rank: u32,
    },
    /// The job is over.
    #[error("it is too late, the job has failed: {0}")]
    Over(Failure),
    /// Too many strangers knock.
    #[error("the store has as many connections as it takes. Something else keeps connecting to its port")]
    Busy,
}
