//! The launches of ranks that are processes: users' buffers pass through the stages behind the ranks'
//! signals, as much at a time as a stage holds. A buffer that the rank alone uses is used where it is.

use collective::UNIT;
use collective::reduce::share;
use collective::stage::{Copies, Stage};
use collective::team::{Team, state_bytes};
use collective::transfer::Moves;

use super::launches::{Order, passed_on, piece_of};
use super::{Plan, Shared};
use crate::error::Result;
use crate::parallel::call::{Kind, Reduction};
use crate::parallel::operand::Operand;
use crate::stream::Stream;

/// Bytes of a rank's stage: there is one for what it gives, and one for what it gets.
pub const STAGE: u64 = 8 << 20;

/// Bytes of a launch: `length` bytes of each part, from byte `skip` of each on.
#[derive(Clone, Copy)]
struct Chunk {
    skip: u64,
    length: u64,
    /// Bytes of a part.
    each: u64,
    /// Parts.
    parts: u64,
}

/// Bytes, as whole units.
const fn units(bytes: u64) -> u64 {
    bytes.next_multiple_of(UNIT)
}

impl Chunk {
    /// The chunks of buffers with `parts` parts of `each` bytes; at least one.
    fn all(each: u64, parts: u64) -> impl Iterator<Item = Chunk> {
        let room = STAGE / parts / UNIT * UNIT;
        let count = each.div_ceil(room).max(1);
        (0..count).map(move |number| {
            let skip = number * room;
            Chunk { skip, length: room.min(each - skip), each, parts }
        })
    }

    /// One part alone, in pieces of so many bytes: each is moved by one rank.
    fn in_pieces(self, bytes: u64) -> Copies {
        let Chunk { skip, length, .. } = self;
        Copies { is_staged: 1, skip, length: bytes, stride: bytes, step: bytes, bytes: length }
    }

    /// All parts.
    fn in_parts(self) -> Copies {
        let Chunk { skip, length, each, parts } = self;
        Copies { is_staged: 1, skip, length, stride: each, step: units(length), bytes: length * parts }
    }

    /// No copy: the rank alone uses its buffer.
    fn direct(self) -> Copies {
        Copies { skip: self.skip, ..Copies::default() }
    }

    /// No copy: the rank gives nothing, or gets nothing there.
    fn nothing(self) -> Copies {
        Copies { is_staged: 1, ..Copies::default() }
    }
}

/// Whether every part of a buffer begins at a unit.
fn is_aligned(operand: Option<Operand<'_>>, each: u64, parts: u64) -> bool {
    operand.is_some_and(|operand| {
        operand.address().is_multiple_of(UNIT) && (parts == 1 || each.is_multiple_of(UNIT))
    })
}

impl Shared {
    /// Queues a rank's part of a collective, as [`Shared::launch`] does.
    #[track_caller]
    pub(super) fn launch_staged(
        &self,
        team: Team,
        stream: &Stream,
        plan: Plan,
        order: &Order<'_>,
    ) -> Result<()> {
        let first = state_bytes(team.ranks as usize) as u64;
        let team = Team { staged: [first, first + STAGE], ..team };
        let (bytes, ranks) = (order.call.bytes() as u64, u64::from(team.ranks));
        let (each, parts) = match order.call.kind {
            Kind::ReduceScatter(_) | Kind::AllGather => (bytes, ranks),
            Kind::AllToAll => (bytes / ranks, ranks),
            _ => (bytes, 1),
        };
        Chunk::all(each, parts).try_for_each(|chunk| match order.call.kind {
            Kind::AllReduce(by) | Kind::ReduceScatter(by) => {
                self.reduce_staged(team, stream, plan, order, by, chunk)
            }
            kind => {
                let (moves, stage) = moves(team, kind, order, chunk);
                self.transfer(team, stream, plan, order, moves, stage)
            }
        })
    }

    #[track_caller]
    fn reduce_staged(
        &self,
        team: Team,
        stream: &Stream,
        plan: Plan,
        order: &Order<'_>,
        reduction: Reduction,
        chunk: Chunk,
    ) -> Result<()> {
        let (rank, ranks) = (u64::from(team.rank), u64::from(team.ranks));
        let size = order.call.dtype.size() as u64;
        let goes_to_all = matches!(order.call.kind, Kind::AllReduce(_));
        let (place, stage) = if goes_to_all {
            let count = chunk.length / size;
            let (start, length) = share(count, size, rank, ranks);
            let (_, longest) = share(count, size, 0, ranks);
            let copies = chunk.in_pieces(units(longest * size));
            ((start, length, start), Stage { given: copies, got: copies })
        } else {
            let got = match is_aligned(order.output, chunk.each, 1) {
                true => chunk.direct(),
                false => chunk.in_pieces(units(chunk.length)),
            };
            let start = rank * units(chunk.length) / size;
            ((start, chunk.length / size, 0), Stage { given: chunk.in_parts(), got })
        };
        self.reduce(team, stream, plan, order, reduction, place, stage)
    }
}

/// The moves of a rank for a chunk, and what is copied.
fn moves(team: Team, kind: Kind, order: &Order<'_>, chunk: Chunk) -> (Moves, Stage) {
    let (rank, ranks) = (team.rank, team.ranks);
    let (length, step) = (chunk.length, units(chunk.length));
    let all = (1 << ranks) - 1;
    let one = Moves { count: 1, source: rank, bytes: length, ..Moves::default() };
    let nothing = Stage { given: chunk.nothing(), got: chunk.nothing() };
    match kind {
        Kind::AllGather => {
            let given = match is_aligned(order.input, chunk.each, 1) {
                true => chunk.direct(),
                false => chunk.in_pieces(step),
            };
            let moves = Moves { targets: all, to: u64::from(rank) * step, ..one };
            (moves, Stage { given, got: chunk.in_parts() })
        }
        Kind::Broadcast { root } => {
            let copies = chunk.in_pieces(piece_of(length, ranks));
            if rank == root {
                return (Moves::default(), Stage { given: copies, ..nothing });
            }
            let is_direct = ranks == 2 && is_aligned(order.output, chunk.each, 1);
            let got = if is_direct { chunk.direct() } else { copies };
            (passed_on(team, root, length), Stage { got, ..nothing })
        }
        Kind::AllToAll => {
            let is_direct = is_aligned(order.input, chunk.each, u64::from(ranks));
            let (given, from_step) =
                if is_direct { (chunk.direct(), chunk.each) } else { (chunk.in_parts(), step) };
            let moves = Moves {
                count: ranks,
                first: rank,
                targets: 1,
                target_step: 1,
                from_step,
                to: u64::from(rank) * step,
                ..one
            };
            (moves, Stage { given, got: chunk.in_parts() })
        }
        Kind::Send { from, to } if rank == from => {
            let given = match is_aligned(order.input, chunk.each, 1) {
                true => chunk.direct(),
                false => chunk.in_pieces(step),
            };
            (Moves { targets: 1 << to, ..one }, Stage { given, ..nothing })
        }
        Kind::Send { .. } => (Moves::default(), Stage { got: chunk.in_pieces(step), ..nothing }),
        _ => (Moves::default(), nothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_bytes_once_and_fit() {
        for parts in 1..=8 {
            for each in [0, 1, 15, 16, 17, STAGE / parts, STAGE / parts + 1, 3 * STAGE + 5] {
                let mut next = 0;
                for chunk in Chunk::all(each, parts) {
                    assert!(chunk.skip == next && units(chunk.length) * parts <= STAGE);
                    assert!(chunk.skip.is_multiple_of(UNIT));
                    next += chunk.length;
                }
                assert_eq!(next, each);
            }
        }
    }
}
