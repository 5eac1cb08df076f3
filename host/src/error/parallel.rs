//! Errors of groups of devices, and of what they save.

use std::fmt;

/// The ranks of a group do not act together. The group is then of no more use: every later call on it returns
/// an error. `Debug` prints the same sentence as `Display`.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ParallelError {
    /// A rank calls something else than another rank.
    #[error(
        "rank {rank}, call {sequence}: {got}, where rank {other} called {wanted}\nhint: all ranks of a group make the same calls in the \
         same order, with the same counts, types and operators"
    )]
    Mismatch {
        /// The rank that called.
        rank: u32,
        /// The number of the call, from 0.
        sequence: u64,
        /// Its call.
        got: String,
        /// The rank that came first.
        other: u32,
        /// The call of that one.
        wanted: String,
    },

    /// A rank did not take part in time.
    #[error(
        "rank {rank}, call {sequence} ({call}): rank {missing} {} within {limit_seconds} s\nhint: look what rank {missing} does; \
         `GroupOptions::timeout` sets the limit",
        if *.began { "did not finish" } else { "did not come" }
    )]
    Missing {
        /// The rank that waited.
        rank: u32,
        /// The number of the call, from 0.
        sequence: u64,
        /// Its call.
        call: String,
        /// The rank that it waited for.
        missing: u32,
        /// Whether that one began.
        began: bool,
        /// The limit.
        limit_seconds: f64,
    },

    /// Graphs of two ranks were replayed in different orders.
    #[error(
        "rank {rank}, call {sequence} ({call}): rank {other} did something else\nhint: all ranks replay the same graphs in the same order"
    )]
    OtherCall {
        /// The rank that noticed.
        rank: u32,
        /// The number of the call, from 0; in a graph, when it was captured.
        sequence: u64,
        /// Its call.
        call: String,
        /// The other rank.
        other: u32,
    },

    /// A rank has ended, and others still call it.
    #[error(
        "rank {rank}, call {sequence} ({call}): rank {gone} has dropped its communicator after {calls} calls\nhint: all ranks make the same \
         calls; did rank {gone} return early?"
    )]
    Gone {
        /// The rank that called.
        rank: u32,
        /// The number of the call, from 0.
        sequence: u64,
        /// Its call.
        call: String,
        /// The rank that has ended.
        gone: u32,
        /// Its calls.
        calls: u64,
    },

    /// Another rank has failed.
    #[error("rank {rank}: the group has failed: {first}")]
    Aborted {
        /// The rank that learns of it.
        rank: u32,
        /// The first failure.
        first: String,
    },

    /// Tensors that have to be the same on all ranks are not.
    #[error(
        "rank {rank}: the tensor {tensor:?} of {} has other bits than that of the other ranks\nhint: was it replicated, and \
         does every rank take the same steps with gradients that are the same bits?", Ranks(.ranks)
    )]
    ReplicasDiffer {
        /// The rank that says so. All do.
        rank: u32,
        /// The first tensor that differs.
        tensor: String,
        /// The ranks that are not with the most.
        ranks: Vec<u32>,
    },

    /// A call through NCCL did not end in time. NCCL does not say which rank is missing.
    #[error(
        "rank {rank}, call {sequence} ({call}): NCCL did not finish within {limit_seconds} s\nhint: does every rank make the same calls, \
         with the same counts and types? `GroupOptions::timeout` sets the limit"
    )]
    TimedOut {
        /// The rank that waited.
        rank: u32,
        /// The number of the call, from 0; in a graph, when it was captured.
        sequence: u64,
        /// Its call.
        call: String,
        /// The limit.
        limit_seconds: f64,
    },

    /// NCCL has failed.
    #[error(
        "rank {rank}, {call}: NCCL says: {words} (code {code}){}{last}\nhint: NCCL_DEBUG=WARN has it say more; has another rank ended?",
        if last.is_empty() { "" } else { ": " }
    )]
    Nccl {
        /// The rank.
        rank: u32,
        /// The call.
        call: String,
        /// NCCL's code.
        code: i32,
        /// The code in NCCL's words.
        words: String,
        /// The last error in NCCL's words.
        last: String,
    },

    /// There is no NCCL.
    #[error("{0}")]
    NoNccl(driver::nccl::NcclError),

    /// Ranks that are processes cannot reach each other's memory, and nothing else is asked for or there.
    #[error(
        "rank {rank}: no peer memory: {reason}\nhint: the ranks are to be processes of one machine, outside of containers or in \
         the same one, each with a device of its own; without `GroupOptions::backend` NCCL does it, where all ranks have it"
    )]
    NoPeerMemory {
        /// The rank.
        rank: u32,
        /// Why.
        reason: String,
    },

    /// The ranks of a new group could not exchange something.
    #[error(
        "rank {rank} could not exchange {what}: {words}\nhint: have all ranks joined, with the same names and numbers?"
    )]
    Exchange {
        /// The rank.
        rank: u32,
        /// The name of the exchange.
        what: String,
        /// The error of the program's exchange.
        words: String,
    },

    /// A device cannot reach another's memory.
    #[error(
        "device {from} cannot reach the memory of device {to}\nhint: the devices are not connected, or the system forbids it; \
         `Backend::Nccl` needs no such access"
    )]
    NoPeerAccess {
        /// The device.
        from: u32,
        /// The other device.
        to: u32,
    },
}

/// Ranks in a sentence.
struct Ranks<'a>(&'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        write!(f, "{} {}", if numbers.len() == 1 { "rank" } else { "ranks" }, numbers.join(", "))
    }
}

impl fmt::Debug for ParallelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ParallelError> for super::Error {
    fn from(error: ParallelError) -> Self {
        super::Error::Parallel(Box::new(error))
    }
}

impl From<ironwarp_checkpoint::Error> for super::Error {
    fn from(error: ironwarp_checkpoint::Error) -> Self {
        super::Error::Checkpoint(Box::new(error))
    }
}
