//! Which kernel a collective is done by, and with how many blocks: a function of what all ranks know alone.

use std::fmt;

use collective::low_latency::{DATA, MAX_BYTES};
use collective::{MAX_BLOCKS, THREADS, UNIT};

use crate::parallel::call::{Call, Kind};

/// How a collective moves its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// No data move between ranks: there is one rank, or no data.
    Local,
    /// Each rank stores its elements, with flags among them, into a slot of every peer, and adds or copies
    /// the elements that it gets. One way over the link, with twice the bytes, to every peer.
    LowLatency,
    /// Each rank owns a part: it reads the part from all ranks, and writes the sum to all that get it.
    Owners,
    /// Each rank stores or loads the bytes where they go.
    Copies,
    /// As [`Algorithm::Owners`] or [`Algorithm::Copies`], between processes: buffers pass through memory of
    /// each rank that the others reach, piece by piece.
    Staged,
    /// NCCL does it, by a way of its own choice.
    Nccl,
}

/// The memory of its peers that kernels of a rank reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::parallel) enum Reach {
    /// All of their memory: ranks are threads.
    Buffers,
    /// The memory that they have allocated for that: ranks are processes. Beside it there is NCCL, or not.
    Stages { has_nccl: bool },
}

/// How a collective is done, and why not otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// How it is done.
    pub plan: Plan,
    /// Why ranks do not reach each other's memory, where they do not.
    pub reason: Option<String>,
    /// Why processes that reach each other's memory have no NCCL for large calls, where they asked for no
    /// back end.
    pub no_nccl: Option<String>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.plan)?;
        self.reason.iter().try_for_each(|reason| write!(f, "; peer memory is not used: {reason}"))?;
        self.no_nccl.iter().try_for_each(|reason| write!(f, "; NCCL is not used: {reason}"))
    }
}

/// How a collective is done. The same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// How data move.
    pub algorithm: Algorithm,
    /// Blocks of the kernel on each device; 0 where NCCL chooses them.
    pub blocks: u32,
}

/// Blocks of collectives that run beside other kernels, and store to peers. Enough accesses under way for
/// most of the link of two H100s, few enough to leave room.
const LARGE: u32 = 16;
/// Blocks of sums for all ranks, up to the size of buckets, and of larger ones. Of more, the loads are in the
/// way of the stores (`benches/NOTES.md`).
const SUMS: u32 = 19;
const LARGE_SUMS: u32 = 20;
/// Blocks of large collectives that load, with stores behind them or nothing to hide behind: the link needs
/// more loads under way.
const LOADING: u32 = 32;
/// Blocks of sums that their owner keeps.
const KEPT_SUMS: u32 = 40;
/// Blocks of large all-gathers, which store, and of copies on the device.
const VERY_LARGE: u32 = 64;
/// Bytes from which a collective is large.
const MUCH: usize = 32 << 20;
/// Blocks of small sums, a line for each thread.
const SMALL: u32 = 32;

/// Most bytes that travel with their flags, by the number of ranks: all peers get all of it. Broadcasts
/// between two ranks may take two launches: on two H100s 6.8 us for 512 KiB, where one that meets takes 11.1.
const fn low_latency_bytes(kind: Kind, ranks: u32) -> usize {
    match ranks {
        0..=2 if matches!(kind, Kind::Broadcast { .. }) => 2 * MAX_BYTES,
        0..=2 => MAX_BYTES,
        3..=4 => 128 << 10,
        _ => 48 << 10,
    }
}

/// Whether there is a kernel by which the call travels with its flags.
fn has_flags(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::AllReduce(_)
            | Kind::AllReduceNorm { .. }
            | Kind::ReduceScatter(_)
            | Kind::AllGather
            | Kind::Broadcast { .. }
    )
}

/// The way of a call that does not, where kernels reach all buffers.
fn large(kind: Kind) -> Algorithm {
    match kind {
        Kind::AllReduce(_)
        | Kind::AllReduceNorm { .. }
        | Kind::AllReduceScaled { .. }
        | Kind::ReduceScatter(_) => Algorithm::Owners,
        _ => Algorithm::Copies,
    }
}

/// Bytes from which NCCL is faster than stages, by what two H200s have shown (`benches/NOTES.md`): not yet
/// for all-gathers and reduce-scatters whose larger side has 64 MiB, but for other calls of that length.
const fn nccl_bytes(kind: Kind, ranks: u32) -> usize {
    match kind {
        Kind::AllGather | Kind::ReduceScatter(_) => (128 << 20) / ranks as usize,
        _ => 64 << 20,
    }
}

impl Plan {
    /// The plan for a call among so many ranks, on devices with room for so many blocks.
    pub(in crate::parallel) fn of(call: &Call, ranks: u32, room: u32, reach: Reach) -> Self {
        let bytes = call.bytes();
        if ranks == 1 || (bytes == 0 && call.kind != Kind::Barrier) {
            return Plan { algorithm: Algorithm::Local, blocks: 0 };
        }
        let algorithm = match call.kind {
            kind if has_flags(kind) && bytes <= low_latency_bytes(kind, ranks) => Algorithm::LowLatency,
            kind if reach != Reach::Buffers => {
                let is_large = kind != Kind::Barrier && bytes >= nccl_bytes(kind, ranks);
                let has_nccl = reach == Reach::Stages { has_nccl: true };
                if has_nccl && is_large { Algorithm::Nccl } else { Algorithm::Staged }
            }
            kind => large(kind),
        };
        Plan { algorithm, blocks: blocks_of(algorithm, call, ranks, room) }
    }

    /// The plan for a call through NCCL.
    pub(in crate::parallel) fn by_nccl(call: &Call, ranks: u32) -> Self {
        let is_local = ranks == 1 || (call.bytes() == 0 && call.kind != Kind::Barrier);
        Plan { algorithm: if is_local { Algorithm::Local } else { Algorithm::Nccl }, blocks: 0 }
    }

    /// Every plan for an all-reduce of so many bytes, with the number of blocks that [`Plan::of`] would take.
    pub(in crate::parallel) fn candidates(call: &Call, ranks: u32, room: u32, reach: Reach) -> Vec<Self> {
        if Plan::of(call, ranks, room, reach).algorithm == Algorithm::Local {
            return vec![Plan { algorithm: Algorithm::Local, blocks: 0 }];
        }
        let mut all = Vec::new();
        if has_flags(call.kind) && call.bytes() <= low_latency_bytes(call.kind, ranks).max(MAX_BYTES) {
            all.push(Algorithm::LowLatency);
        }
        all.push(if reach == Reach::Buffers { large(call.kind) } else { Algorithm::Staged });
        if reach == (Reach::Stages { has_nccl: true }) {
            all.push(Algorithm::Nccl);
        }
        all.into_iter()
            .map(|algorithm| Plan { algorithm, blocks: blocks_of(algorithm, call, ranks, room) })
            .collect()
    }
}

fn blocks_of(algorithm: Algorithm, call: &Call, ranks: u32, room: u32) -> u32 {
    let bytes = call.bytes();
    // Accesses of threads, for the bytes that a rank moves by itself.
    let (accesses, most) = match algorithm {
        Algorithm::Local | Algorithm::Nccl => return 0,
        Algorithm::LowLatency => (bytes.min(MAX_BYTES).div_ceil(DATA), SMALL),
        // Copies on the device need more accesses under way than the link.
        Algorithm::Staged => (bytes.div_ceil(UNIT as usize), VERY_LARGE),
        _ => {
            let moved = match call.kind {
                Kind::AllReduce(_) | Kind::AllReduceScaled { .. } => bytes / ranks as usize,
                Kind::Broadcast { .. } => bytes / (ranks as usize - 1),
                _ => bytes,
            };
            let most = match call.kind {
                Kind::AllReduce(_) if moved >= MUCH => LARGE_SUMS,
                Kind::AllReduce(_) => SUMS,
                Kind::ReduceScatter(_) => KEPT_SUMS,
                Kind::AllReduceScaled { .. } => LOADING,
                Kind::AllGather if moved >= MUCH => VERY_LARGE,
                _ if moved >= MUCH => LOADING,
                _ => LARGE,
            };
            (moved.div_ceil(UNIT as usize), most)
        }
    };
    let wanted = u32::try_from(accesses.div_ceil(THREADS as usize)).unwrap_or(u32::MAX);
    wanted.clamp(1, most.min(room).min(MAX_BLOCKS as u32))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.algorithm {
            Algorithm::Local => return f.write_str("nothing moves between ranks"),
            Algorithm::LowLatency => "data with flags to every rank, which adds up or copies",
            Algorithm::Owners => {
                "each rank reads its part from all, adds up, and writes it to all that get it"
            }
            Algorithm::Copies => "stores and loads over peer memory",
            Algorithm::Staged => "through memory of each rank that the others reach, piece by piece",
            Algorithm::Nccl => return f.write_str("NCCL, by a way of its own choice"),
        };
        write!(f, "{how}; {} blocks of {THREADS} threads", self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::Reduction;
    use crate::tensor::DType;

    #[test]
    fn plans_fit_the_kernels() {
        for ranks in 1..=8 {
            for count in [0, 1, 2, 3, 511, 1 << 15, 1 << 16, (1 << 16) + 1, 1 << 28] {
                for kind in [
                    Kind::AllReduce(Reduction::Sum),
                    Kind::ReduceScatter(Reduction::Max),
                    Kind::AllGather,
                    Kind::Broadcast { root: 0 },
                    Kind::Barrier,
                ] {
                    let call = Call::new(kind, DType::F32, count);
                    let every = |reach| {
                        let candidates = Plan::candidates(&call, ranks, 132, reach);
                        let plan = Plan::of(&call, ranks, 132, reach);
                        assert!(
                            candidates.iter().any(|known| known.algorithm == plan.algorithm),
                            "{plan} of {candidates:?}"
                        );
                        candidates.into_iter().chain([plan])
                    };
                    let reaches =
                        [Reach::Buffers, Reach::Stages { has_nccl: true }, Reach::Stages { has_nccl: false }];
                    for plan in reaches.into_iter().flat_map(every) {
                        let none = matches!(plan.algorithm, Algorithm::Local | Algorithm::Nccl);
                        assert!(none == (plan.blocks == 0) && plan.blocks <= MAX_BLOCKS as u32);
                        let is_small = call.bytes() <= low_latency_bytes(kind, ranks).max(MAX_BYTES);
                        assert!(plan.algorithm != Algorithm::LowLatency || is_small);
                    }
                }
            }
        }
    }

    #[test]
    fn large_sums_and_all_gathers_have_more_blocks() {
        let blocks =
            |kind, bytes| Plan::of(&Call::new(kind, DType::U8, bytes), 2, 132, Reach::Buffers).blocks;
        assert_eq!([MUCH - 1, MUCH].map(|bytes| blocks(Kind::AllGather, bytes)), [LARGE, VERY_LARGE]);
        // Each of two owners moves half.
        let sums = [2 * MUCH - 2, 2 * MUCH].map(|bytes| blocks(Kind::AllReduce(Reduction::Sum), bytes));
        assert_eq!(sums, [SUMS, LARGE_SUMS]);
    }
}
