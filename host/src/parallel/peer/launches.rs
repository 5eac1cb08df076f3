//! The launches of each collective.

use collective::low_latency::{MAX_BYTES, Small, all_reduce_low_latency};
use collective::number::{Format, Operator};
use collective::reduce::{Part, reduce_parts, share};
use collective::small_gather::{Shares, gather_low_latency};
use collective::stage::Stage;
use collective::team::{Signals, Team};
use collective::transfer::{Moves, transfer};
use collective::{THREADS, UNIT};

use super::shared::Shared;
use super::{Algorithm, Plan};
use crate::error::Result;
use crate::launch::{LaunchConfig, launch};
use crate::memory::Within;
use crate::parallel::call::{Call, Kind, Reduction};
use crate::parallel::ledger::Reported;
use crate::parallel::operand::Operand;
use crate::stream::Stream;
use crate::tensor::DType;

/// A call of a rank with its buffers. Without an input, the output is the input.
pub(in crate::parallel) struct Order<'a> {
    pub call: Call,
    pub sequence: u64,
    pub input: Option<Operand<'a>>,
    pub output: Option<Operand<'a>>,
}

/// The number of a rank other than the root among those that get something.
pub(super) fn number_of(rank: u32, root: u32) -> u64 {
    u64::from(if rank < root { rank } else { rank - 1 })
}

/// The piece of a broadcast of so many bytes that a rank other than the root takes from the root and passes
/// on to all others.
pub(super) fn passed_on(team: Team, root: u32, bytes: u64) -> Moves {
    let Team { rank, ranks, .. } = team;
    let piece = piece_of(bytes, ranks);
    let from = (number_of(rank, root) * piece).min(bytes);
    let targets = ((1 << ranks) - 1) & !(1 << root);
    let bytes = piece.min(bytes - from);
    Moves { count: 1, source: root, targets, bytes, from, to: from, ..Moves::default() }
}

/// Bytes of every piece but the last of a broadcast of so many bytes: one for each rank but the root.
pub(super) fn piece_of(bytes: u64, ranks: u32) -> u64 {
    bytes.div_ceil(u64::from(ranks - 1)).next_multiple_of(UNIT)
}

/// How a kernel is launched, the rank's flags, the input and the output.
type Arguments<'a> = (LaunchConfig, Within<'a, Signals>, Option<Within<'a, u8>>, Option<Within<'a, u8>>);

/// The element type, as kernels that combine know it.
pub(in crate::parallel) fn format(dtype: DType) -> Option<Format> {
    Some(match dtype {
        DType::F64 => Format::F64,
        DType::F32 => Format::F32,
        DType::F16 => Format::F16,
        DType::BF16 => Format::Bf16,
        DType::F8E4M3 => Format::E4m3,
        DType::F8E5M2 => Format::E5m2,
        DType::I64 => Format::I64,
        DType::I32 => Format::I32,
        DType::U8 => Format::U8,
        DType::Bool => return None,
    })
}

pub(super) fn operator(reduction: Reduction) -> Operator {
    match reduction {
        Reduction::Sum => Operator::Sum,
        Reduction::Mean => Operator::Mean,
        Reduction::Max => Operator::Max,
        Reduction::Min => Operator::Min,
    }
}

impl Shared {
    /// Queues a rank's part of a collective. Operands have been checked; all ranks have the same plan.
    #[track_caller]
    pub fn launch(&self, rank: u32, stream: &Stream, plan: Plan, order: &Order<'_>) -> Result<()> {
        let call = order.call;
        let team = self.team_of(rank, order);
        match (plan.algorithm, call.kind) {
            (Algorithm::Local, _) => Ok(()),
            (Algorithm::LowLatency, Kind::AllReduce(reduction) | Kind::ReduceScatter(reduction)) => {
                let count = call.count as u64;
                let stride = if matches!(call.kind, Kind::ReduceScatter(_)) { count } else { 0 };
                let format = format(call.dtype).unwrap_or(Format::U8);
                let small = Small { count, stride, format, operator: operator(reduction) };
                let (config, signals, input, output) = self.arguments(rank, plan, order);
                // SAFETY: the ledger and the call's number see to it that all ranks launch the same; the
                // slots have room by the plan; the buffers hold the elements.
                unsafe {
                    launch::<all_reduce_low_latency>(stream, config, (team, small, signals, input, output))
                }
            }
            (Algorithm::LowLatency, _) => self.gather_small(team, stream, plan, order),
            (Algorithm::Staged, _) => self.launch_staged(team, stream, plan, order),
            (_, Kind::AllReduce(reduction)) => {
                let (count, size) = (call.count as u64, call.dtype.size() as u64);
                let (start, length) = share(count, size, rank.into(), self.ranks().into());
                let place = (start, length, start);
                self.reduce(team, stream, plan, order, reduction, place, Stage::default())
            }
            (_, Kind::ReduceScatter(reduction)) => {
                let count = call.count as u64;
                let place = (u64::from(rank) * count, count, 0);
                self.reduce(team, stream, plan, order, reduction, place, Stage::default())
            }
            (_, kind) => {
                let moves = self.moves(team, kind, call.bytes() as u64);
                self.transfer(team, stream, plan, order, moves, Stage::default())
            }
        }
    }

    /// Queues a small all-gather or broadcast, as much at a time as a slot holds.
    #[track_caller]
    fn gather_small(&self, team: Team, stream: &Stream, plan: Plan, order: &Order<'_>) -> Result<()> {
        let bytes = order.call.bytes() as u64;
        let (step, sources) = match order.call.kind {
            Kind::Broadcast { root } => (0, 1 << root),
            _ => (bytes, (1 << self.ranks()) - 1),
        };
        let (config, signals, input, output) = self.arguments(team.rank, plan, order);
        (0..bytes).step_by(MAX_BYTES).try_for_each(|skip| {
            let shares = Shares { bytes: (bytes - skip).min(MAX_BYTES as u64), step, sources };
            let [input, output] =
                [input, output].map(|buffer| buffer.map(|it| it.at::<u8>(it.address().raw() + skip)));
            // SAFETY: the ledger and the call's number see to it that all ranks launch the same; the buffers
            // hold the elements; a launch has no more than a slot has room for.
            unsafe { launch::<gather_low_latency>(stream, config, (team, shares, signals, input, output)) }
        })
    }

    /// The team of an order's launch.
    pub fn team_of(&self, rank: u32, order: &Order<'_>) -> Team {
        let sequence = Reported::of(rank, &order.call, order.sequence).word();
        let team = Team { call: order.call.number(), sequence, ..self.team(rank) };
        match order.call.kind {
            Kind::Send { from, to } => Team { members: 1 << from | 1 << to, is_pairwise: 1, ..team },
            _ => team,
        }
    }

    /// The parts of a launch that all kernels have.
    pub fn arguments<'a>(&'a self, rank: u32, plan: Plan, order: &Order<'a>) -> Arguments<'a> {
        let signals = self.state(rank).view().within().cast();
        let (input, output) = (order.input.map(|x| x.within), order.output.map(|x| x.within));
        let config = LaunchConfig::new([plan.blocks, 1, 1], [THREADS, 1, 1]).overlapping_previous();
        // The executor runs all blocks at once for a cooperative grid alone. A device has room for all of
        // them; a cooperative launch would wait until it has nothing else to do.
        let config = if self.device(rank).is_software() { config.cooperative() } else { config };
        (config, signals, input, output)
    }

    /// Queues the sum of a part, of buffers or of what the stage has of them.
    #[track_caller]
    pub(super) fn reduce(
        &self,
        team: Team,
        stream: &Stream,
        plan: Plan,
        order: &Order<'_>,
        reduction: Reduction,
        (start, length, target): (u64, u64, u64),
        stage: Stage,
    ) -> Result<()> {
        let part = Part {
            start,
            length,
            target,
            format: format(order.call.dtype).unwrap_or(Format::U8),
            operator: operator(reduction),
            goes_to_all: matches!(order.call.kind, Kind::AllReduce(_)).into(),
        };
        let (config, signals, input, output) = self.arguments(team.rank, plan, order);
        // SAFETY: the ledger and the call's number see to it that all ranks launch the same; parts of
        // different ranks do not overlap; the buffers hold the elements of the call, and the stages behind
        // all ranks' signals hold any chunk.
        unsafe { launch::<reduce_parts>(stream, config, (team, part, stage, signals, input, output)) }
    }

    /// Queues a rank's moves, and the copies of the stage.
    #[track_caller]
    pub(super) fn transfer(
        &self,
        team: Team,
        stream: &Stream,
        plan: Plan,
        order: &Order<'_>,
        moves: Moves,
        stage: Stage,
    ) -> Result<()> {
        let (config, signals, input, output) = self.arguments(team.rank, plan, order);
        // SAFETY: as for `reduce`.
        unsafe { launch::<transfer>(stream, config, (team, moves, stage, signals, input, output)) }
    }

    /// The moves of a rank for a call of so many bytes.
    fn moves(&self, team: Team, kind: Kind, bytes: u64) -> Moves {
        let (rank, ranks) = (team.rank, team.ranks);
        let all = (1 << ranks) - 1;
        let one = Moves { count: 1, source: rank, bytes, ..Moves::default() };
        match kind {
            Kind::AllGather => Moves { targets: all, to: u64::from(rank) * bytes, ..one },
            Kind::Broadcast { root } if rank != root => passed_on(team, root, bytes),
            Kind::AllToAll => {
                let each = bytes / u64::from(ranks);
                Moves {
                    count: ranks,
                    first: rank,
                    targets: 1,
                    target_step: 1,
                    bytes: each,
                    from_step: each,
                    to: u64::from(rank) * each,
                    ..one
                }
            }
            Kind::Send { from, to } if rank == from => Moves { targets: 1 << to, ..one },
            _ => Moves::default(),
        }
    }
}
