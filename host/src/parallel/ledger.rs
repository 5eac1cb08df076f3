//! The calls of a group's ranks, compared on the host without a wait.
//!
//! The first rank that makes call `n` writes it down, the others compare theirs when they come to it. So a
//! wrong call is found by the rank that comes later; the kernel that the first one has queued stops by the
//! group's abort word.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::call::{Call, Kind};
use crate::error::{ParallelError, Result};

/// Calls of a rank that are remembered for reports.
const REMEMBERED: usize = 256;

/// Bits of a call's number that kernels report.
const NUMBER_BITS: u32 = 30;

/// Whose calls are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// All ranks'.
    Common = 0,
    /// Those that a rank sends to another.
    Send = 1,
    /// Those that it receives from another.
    Receive = 2,
}

/// A call of a rank as kernels report it: the low bits of its number, and the channel that the number is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reported {
    pub channel: Channel,
    pub number: u32,
}

impl Reported {
    /// Call `number` of a rank.
    pub fn of(rank: u32, call: &Call, number: u64) -> Self {
        let channel = match call.kind {
            Kind::Send { from, .. } if from == rank => Channel::Send,
            Kind::Send { .. } => Channel::Receive,
            _ => Channel::Common,
        };
        Reported { channel, number: Self::low_bits(number) }
    }

    /// The bits of a call's number that are reported.
    pub fn low_bits(number: u64) -> u32 {
        number as u32 & ((1 << NUMBER_BITS) - 1)
    }

    /// As kernels get it.
    pub fn word(self) -> u32 {
        (self.channel as u32) << NUMBER_BITS | self.number
    }

    /// A report in a word that a kernel got.
    pub fn from_word(word: u32) -> Self {
        let channel = match word >> NUMBER_BITS {
            1 => Channel::Send,
            2 => Channel::Receive,
            _ => Channel::Common,
        };
        Reported { channel, number: Self::low_bits(word.into()) }
    }
}

/// Calls of ranks, wherever the ranks are.
pub(super) trait Calls: Send + Sync {
    /// Enters a rank's call. Its number.
    ///
    /// # Errors
    /// [`ParallelError`]: the group has failed, the call differs, or a rank has ended.
    fn enter(&self, rank: u32, call: Call) -> Result<u64, ParallelError>;

    /// The call that a rank reports, by the peer that it waited for, as far as it is remembered.
    fn name_of(&self, rank: u32, reported: Reported, peer: u32) -> String;

    /// The first failure of the group.
    fn failure(&self) -> Option<String>;

    /// Records a failure. The first one counts.
    fn fail(&self, reason: String);

    /// A rank has ended. Whether others already wait for it.
    fn leave(&self, rank: u32) -> bool;
}

/// The calls of a group's ranks.
pub(super) struct Ledger {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Calls of all ranks.
    common: Book,
    /// Calls of pairs: of a sender and a receiver.
    pairs: HashMap<(u32, u32), Book>,
    /// The latest calls of each rank, with their numbers.
    latest: Vec<VecDeque<(u64, Call)>>,
    /// Ranks that have ended, and the number of their calls.
    gone: HashMap<u32, u64>,
    /// The first failure.
    failure: Option<String>,
    /// The part of each rank in a split that is under way.
    split: Vec<Option<(Option<u32>, i64)>>,
    /// Which split the answers are of.
    splits: u64,
    answers: Vec<Option<Answer>>,
}

/// Of a split: the ranks of the new group in order, and a place that they share.
#[derive(Clone)]
pub(super) struct Answer {
    pub members: Vec<u32>,
    pub number: u64,
}

/// Calls that some ranks have made and others will.
struct Book {
    /// The number of the first of `open`.
    first: u64,
    open: VecDeque<Entry>,
    /// The number of each rank's next call.
    next: HashMap<u32, u64>,
}

struct Entry {
    call: Call,
    /// The rank that came first.
    by: u32,
    seen: u32,
}

/// A call that differs: what was called first.
struct Differs {
    sequence: u64,
    other: u32,
    wanted: Call,
}

impl Book {
    fn new() -> Self {
        Book { first: 0, open: VecDeque::new(), next: HashMap::new() }
    }

    /// Enters a rank's next call; all of `ranks` ranks have to make it. The number of the call.
    fn enter(&mut self, rank: u32, call: Call, ranks: u32) -> Result<u64, Differs> {
        let next = self.next.entry(rank).or_default();
        let sequence = *next;
        *next += 1;
        let at = (sequence - self.first) as usize;
        if at == self.open.len() {
            self.open.push_back(Entry { call, by: rank, seen: 0 });
        }
        let entry = &mut self.open[at];
        if entry.call != call {
            return Err(Differs { sequence, other: entry.by, wanted: entry.call });
        }
        entry.seen += 1;
        while self.open.front().is_some_and(|entry| entry.seen == ranks) {
            self.open.pop_front();
            self.first += 1;
        }
        Ok(sequence)
    }
}

impl Ledger {
    pub fn new(ranks: u32) -> Self {
        let ranks = ranks as usize;
        let state = State {
            common: Book::new(),
            pairs: HashMap::new(),
            latest: vec![VecDeque::new(); ranks],
            gone: HashMap::new(),
            failure: None,
            split: vec![None; ranks],
            splits: 0,
            answers: vec![None; ranks],
        };
        Ledger { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ranks(state: &State) -> u32 {
        state.latest.len() as u32
    }

    /// A rank brings its part of a split and waits for the others'.
    pub fn split(
        &self,
        rank: u32,
        color: Option<u32>,
        key: i64,
        limit: Duration,
    ) -> Result<Option<Answer>, ParallelError> {
        let begun = Instant::now();
        let mut state = self.state();
        state.split[rank as usize] = Some((color, key));
        if state.split.iter().all(Option::is_some) {
            state.answer_split();
            self.changed.notify_all();
        }
        let mine = state.split[rank as usize].is_none();
        let number = state.splits;
        while !mine && state.splits == number {
            if let Some(first) = &state.failure {
                return Err(ParallelError::Aborted { rank, first: first.clone() });
            }
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                let missing = state.split.iter().position(Option::is_none).unwrap_or(0) as u32;
                let call = "split".to_owned();
                let sequence = state.common.next.get(&rank).copied().unwrap_or(1) - 1;
                let limit_seconds = limit.as_secs_f64();
                let error =
                    ParallelError::Missing { rank, sequence, call, missing, began: false, limit_seconds };
                state.failure.get_or_insert(error.to_string());
                self.changed.notify_all();
                return Err(error);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(state.answers[rank as usize].take())
    }
}

impl Calls for Ledger {
    fn enter(&self, rank: u32, call: Call) -> Result<u64, ParallelError> {
        let mut state = self.state();
        if let Some(first) = &state.failure {
            return Err(ParallelError::Aborted { rank, first: first.clone() });
        }
        let ranks = Self::ranks(&state);
        let entered = match call.kind {
            Kind::Send { from, to } => {
                state.pairs.entry((from, to)).or_insert_with(Book::new).enter(rank, call, 2)
            }
            _ => state.common.enter(rank, call, ranks),
        };
        let error = match entered {
            Err(Differs { sequence, other, wanted }) => {
                let (got, wanted) = (call.to_string(), wanted.to_string());
                ParallelError::Mismatch { rank, sequence, got, other, wanted }
            }
            Ok(sequence) => match state.absent(call, sequence) {
                Some((gone, calls)) => {
                    ParallelError::Gone { rank, sequence, call: call.to_string(), gone, calls }
                }
                None => {
                    let latest = &mut state.latest[rank as usize];
                    latest.push_back((sequence, call));
                    if latest.len() > REMEMBERED {
                        latest.pop_front();
                    }
                    return Ok(sequence);
                }
            },
        };
        state.failure.get_or_insert(error.to_string());
        self.changed.notify_all();
        Err(error)
    }

    fn name_of(&self, rank: u32, reported: Reported, peer: u32) -> String {
        let state = self.state();
        let is_with_peer = |call: &Call| match call.kind {
            Kind::Send { from, to } => [from, to].contains(&peer),
            _ => true,
        };
        let same = |(number, call): &&(u64, Call)| {
            Reported::of(rank, call, *number) == reported && is_with_peer(call)
        };
        let found = state.latest[rank as usize].iter().rev().find(same);
        found.map_or_else(|| "a call in a graph".to_owned(), |(_, call)| call.to_string())
    }

    fn failure(&self) -> Option<String> {
        self.state().failure.clone()
    }

    fn fail(&self, reason: String) {
        self.state().failure.get_or_insert(reason);
        self.changed.notify_all();
    }

    fn leave(&self, rank: u32) -> bool {
        let mut state = self.state();
        let calls = state.common.next.get(&rank).copied().unwrap_or(0);
        state.gone.insert(rank, calls);
        self.changed.notify_all();
        let waits_in = |book: &Book, calls: u64| book.next.values().any(|&next| next > calls);
        let in_pair = |(pair, book): (&(u32, u32), &Book)| {
            (pair.0 == rank || pair.1 == rank) && waits_in(book, book.next.get(&rank).copied().unwrap_or(0))
        };
        waits_in(&state.common, calls) || state.pairs.iter().any(in_pair)
    }
}

impl State {
    /// A rank that has ended and never makes a call with this number.
    fn absent(&self, call: Call, sequence: u64) -> Option<(u32, u64)> {
        let (book, involved): (_, Box<dyn Fn(u32) -> bool>) = match call.kind {
            Kind::Send { from, to } => {
                (self.pairs.get(&(from, to))?, Box::new(move |rank| rank == from || rank == to))
            }
            _ => (&self.common, Box::new(|_| true)),
        };
        let calls = |rank: u32| book.next.get(&rank).copied().unwrap_or(0);
        let gone = self.gone.keys().copied().find(|&rank| involved(rank) && calls(rank) <= sequence)?;
        Some((gone, calls(gone)))
    }

    /// All ranks have brought their parts.
    fn answer_split(&mut self) {
        self.splits += 1;
        let parts: Vec<_> = self.split.iter_mut().map(Option::take).collect();
        let color_of = |rank: usize| parts[rank].and_then(|part| part.0);
        for rank in 0..parts.len() {
            self.answers[rank] = color_of(rank).map(|color| {
                let mut members: Vec<u32> =
                    (0..parts.len() as u32).filter(|&r| color_of(r as usize) == Some(color)).collect();
                members.sort_by_key(|&r| (parts[r as usize].map(|part| part.1), r));
                Answer { members, number: self.splits }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::call::Reduction;
    use crate::parallel::{Algorithm, Plan};
    use crate::tensor::DType;

    fn sum(count: usize) -> Call {
        Call::new(Kind::AllReduce(Reduction::Sum), DType::F32, count)
    }

    #[test]
    fn calls_are_compared_in_their_order() {
        let ledger = Ledger::new(2);
        assert_eq!(ledger.enter(0, sum(1)).unwrap(), 0);
        assert_eq!(ledger.enter(0, sum(2)).unwrap(), 1);
        assert_eq!(ledger.enter(1, sum(1)).unwrap(), 0);
        let error = ledger.enter(1, sum(3)).unwrap_err();
        assert!(matches!(error, ParallelError::Mismatch { rank: 1, sequence: 1, other: 0, .. }), "{error}");
        assert!(matches!(ledger.enter(0, sum(3)).unwrap_err(), ParallelError::Aborted { rank: 0, .. }));
    }

    /// Ranks with different plans would wait for each other.
    #[test]
    fn plans_are_compared() {
        let by = |blocks| Call { plan: Some(Plan { algorithm: Algorithm::Owners, blocks }), ..sum(1) };
        let ledger = Ledger::new(2);
        ledger.enter(0, by(16)).unwrap();
        let error = ledger.enter(1, by(8)).unwrap_err();
        assert!(matches!(error, ParallelError::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("by Owners in 8 blocks"), "{error}");
        assert_ne!(by(16).number(), by(8).number());
    }

    #[test]
    fn pairs_count_by_themselves() {
        let ledger = Ledger::new(3);
        let send = |from, to, count| Call::new(Kind::Send { from, to }, DType::F32, count);
        assert_eq!(ledger.enter(0, send(0, 1, 5)).unwrap(), 0);
        assert_eq!(ledger.enter(2, send(2, 0, 6)).unwrap(), 0);
        assert_eq!(ledger.enter(0, sum(1)).unwrap(), 0);
        assert_eq!(ledger.enter(0, send(2, 0, 6)).unwrap(), 0);
        assert!(matches!(
            ledger.enter(1, send(0, 1, 6)).unwrap_err(),
            ParallelError::Mismatch { rank: 1, .. }
        ));
    }

    /// Channels count apart, so a number alone names calls of several.
    #[test]
    fn a_report_names_the_call_of_its_channel() {
        let ledger = Ledger::new(3);
        let send = |from, to, count| Call::new(Kind::Send { from, to }, DType::F32, count);
        let made = [sum(1), send(0, 2, 5), send(0, 1, 6), send(1, 0, 7)];
        for call in made {
            assert_eq!(ledger.enter(0, call).unwrap(), 0);
        }
        for (call, peer) in made.into_iter().zip([1, 2, 1, 1]) {
            let reported = Reported::of(0, &call, 0);
            assert_eq!(Reported::from_word(reported.word()), reported);
            assert_eq!(ledger.name_of(0, reported, peer), call.to_string());
        }
        let unknown = Reported { channel: Channel::Common, number: 1 };
        assert_eq!(ledger.name_of(0, unknown, 1), "a call in a graph");
        let last = Reported::of(0, &send(1, 0, 7), u64::MAX);
        assert_eq!(Reported::from_word(last.word()), last);
    }

    #[test]
    fn ranks_that_have_ended_are_known() {
        let ledger = Ledger::new(2);
        ledger.enter(0, sum(1)).unwrap();
        assert!(!ledger.leave(0));
        ledger.enter(1, sum(1)).unwrap();
        assert!(matches!(
            ledger.enter(1, sum(1)).unwrap_err(),
            ParallelError::Gone { gone: 0, calls: 1, .. }
        ));
        let ledger = Ledger::new(2);
        ledger.enter(0, sum(1)).unwrap();
        assert!(ledger.leave(1));
    }
}
