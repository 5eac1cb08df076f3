//! The launches of ranks that are processes: users' buffers pass through the stages behind the ranks'
//! signals, as much at a time as a stage holds. A buffer, or a part of one, that the rank alone uses is used
//! where it is.

use collective::UNIT;
use collective::reduce::share;
use collective::stage::{Copies, NO_PART, Stage};
use collective::team::{Team, state_bytes};
use collective::transfer::Moves;

use super::launches::{Order, number_of, passed_on, piece_of};
use super::{Plan, Shared};
use crate::error::Result;
use crate::parallel::call::{Kind, Reduction};
use crate::parallel::operand::Operand;
use crate::stream::Stream;

/// Bytes of a rank's stage: there is one for what it gives, and one for what it gets.
pub const STAGE: u64 = 16 << 20;

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
        let copied = Copies { is_staged: 1, own: skip, except: NO_PART, ..Copies::default() };
        Copies { skip, length: bytes, stride: bytes, step: bytes, bytes: length, ..copied }
    }

    /// All parts.
    fn in_parts(self) -> Copies {
        let Chunk { skip, length, each, parts } = self;
        let copied = Copies { is_staged: 1, own: skip, except: NO_PART, ..Copies::default() };
        Copies { skip, length, stride: each, step: units(length), bytes: length * parts, ..copied }
    }

    /// No copy: the rank alone uses its buffer.
    fn direct(self) -> Copies {
        Copies { own: self.skip, ..Copies::default() }
    }

    /// No copy: the rank gives nothing, or gets nothing there.
    fn nothing(self) -> Copies {
        Copies { is_staged: 1, ..Copies::default() }
    }
}

/// The copies of all parts but one, which the rank alone uses: it uses that one where it is.
fn but(copies: Copies, part: u64) -> Copies {
    let own = copies.skip.wrapping_add(part.wrapping_mul(copies.stride.wrapping_sub(copies.step)));
    Copies { is_staged: 0, own, except: part, ..copies }
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
            let of = |operand| if is_aligned(operand, chunk.each, 1) { but(copies, rank) } else { copies };
            let (given, got) = (of(order.input.or(order.output)), of(order.output));
            ((start, length, start), Stage { given, got })
        } else {
            let got = match is_aligned(order.output, chunk.each, 1) {
                true => chunk.direct(),
                false => chunk.in_pieces(units(chunk.length)),
            };
            let start = rank * units(chunk.length) / size;
            let given = of_parts(order.input, chunk, rank);
            ((start, chunk.length / size, 0), Stage { given, got })
        };
        self.reduce(team, stream, plan, order, reduction, place, stage)
    }
}

/// The copies of all parts of a buffer, of which the rank alone uses its own.
fn of_parts(operand: Option<Operand<'_>>, chunk: Chunk, rank: u64) -> Copies {
    let copies = chunk.in_parts();
    if is_aligned(operand, chunk.each, chunk.parts) { but(copies, rank) } else { copies }
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
            (moves, Stage { given, got: of_parts(order.output, chunk, rank.into()) })
        }
        Kind::Broadcast { root } => {
            let copies = chunk.in_pieces(piece_of(length, ranks));
            if rank == root {
                return (Moves::default(), Stage { given: copies, ..nothing });
            }
            let is_aligned = is_aligned(order.output, chunk.each, 1);
            let got = if is_aligned { but(copies, number_of(rank, root)) } else { copies };
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
            (moves, Stage { given, got: of_parts(order.output, chunk, rank.into()) })
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

    /// The rank finds its own part in its buffer, where its peers find it in the stage.
    #[test]
    fn own_parts_are_where_they_are() {
        for (each, parts) in [(STAGE, 1), (48, 3), (STAGE, 8)] {
            for chunk in Chunk::all(each, parts) {
                for copies in [chunk.in_pieces(32), chunk.in_parts()] {
                    for part in 0..copies.bytes.div_ceil(copies.length) {
                        let it = but(copies, part);
                        let in_stage = it.own.wrapping_add(part * copies.step);
                        assert_eq!(in_stage, copies.skip + part * copies.stride, "{it:?}");
                        assert_eq!((it.is_staged, it.except), (0, part));
                    }
                }
            }
        }
    }

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
