//! The calls of ranks in processes of their own, compared without a wait: each rank writes its calls down
//! where the others look. So a wrong call is found by the rank that comes later, or by both. The latest
//! [`DEPTH`] calls of a channel are kept: of a rank that is further ahead, kernels compare the numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use collective::MAX_RANKS;

use super::words::{BOOK, CALL, CALLS, CHANNELS, DEPTH, Mark, Words};
use crate::error::ParallelError;
use crate::parallel::call::{Call, Kind};
use crate::parallel::ledger::{Calls, Channel, Reported};

/// The calls of a rank among those of the others.
pub struct Book {
    pub words: Arc<Words>,
    rank: u32,
    ranks: u32,
    /// Meetings on the host so far.
    meetings: AtomicU64,
}

/// A call that another rank has written down.
struct Entry {
    number: u32,
    text: String,
}

/// The channel of a call, and the ranks that make it with their channels.
fn channels(call: &Call, ranks: u32) -> Vec<(u32, usize)> {
    match call.kind {
        Kind::Send { from, to } => {
            vec![(from, 1 + to as usize), (to, 1 + MAX_RANKS + from as usize)]
        }
        _ => (0..ranks).map(|rank| (rank, 0)).collect(),
    }
}

/// Where the number of calls of a channel is.
fn count_of(rank: u32, channel: usize) -> usize {
    CALLS + rank as usize * BOOK + channel
}

/// Where call `number` of a channel is.
fn place_of(rank: u32, channel: usize, number: u64) -> usize {
    CALLS + rank as usize * BOOK + CHANNELS + (channel * DEPTH + number as usize % DEPTH) * CALL
}

impl Book {
    pub fn new(words: Arc<Words>, rank: u32, ranks: u32) -> Self {
        Book { words, rank, ranks, meetings: AtomicU64::new(0) }
    }

    /// The parts of all ranks; see [`Words::gather`].
    pub fn gather(&self, own: &[u8], limit: Duration) -> Result<Vec<Vec<u8>>, ParallelError> {
        let number = self.meetings.fetch_add(1, Ordering::Relaxed) + 1;
        self.words.gather(self.rank, self.ranks, number, own, limit).inspect_err(|error| {
            self.words.fail(&error.to_string());
            self.words.abort();
        })
    }

    fn count(&self, rank: u32, channel: usize) -> u64 {
        self.words.word(count_of(rank, channel)).load(Ordering::SeqCst)
    }

    /// Writes the rank's next call of a channel down; its number.
    fn write(&self, channel: usize, call: &Call) -> u64 {
        let number = self.count(self.rank, channel);
        let at = place_of(self.rank, channel, number);
        self.words.word(at).store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.words.word(at + 1).store(call.number().into(), Ordering::Relaxed);
        self.words.write_text(at + 2, CALL - 2, call.to_string().as_bytes());
        self.words.word(at).store(number + 1, Ordering::SeqCst);
        self.words.word(count_of(self.rank, channel)).store(number + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        number
    }

    /// Call `number` of a rank, if it has made it, and it is still there.
    fn read(&self, rank: u32, channel: usize, number: u64) -> Option<Entry> {
        let at = place_of(rank, channel, number);
        let is_there = || self.words.word(at).load(Ordering::SeqCst) == number + 1;
        if !is_there() {
            return None;
        }
        let of_call = self.words.word(at + 1).load(Ordering::Relaxed) as u32;
        let text = self.words.read_text(at + 2, CALL - 2);
        fence(Ordering::SeqCst);
        is_there().then_some(Entry { number: of_call, text })
    }

    /// An error in the rank's call `sequence`, as far as the others' calls say.
    fn compare(&self, call: &Call, sequence: u64) -> Result<(), ParallelError> {
        let rank = self.rank;
        for (other, channel) in channels(call, self.ranks).into_iter().filter(|(other, _)| *other != rank) {
            match self.read(other, channel, sequence) {
                Some(entry) if entry.number != call.number() => {
                    let (got, wanted) = (call.to_string(), entry.text);
                    return Err(ParallelError::Mismatch { rank, sequence, got, other, wanted });
                }
                None if self.words.has(other, Mark::Gone) && self.count(other, channel) <= sequence => {
                    let calls = self.count(other, channel);
                    return Err(ParallelError::Gone {
                        rank,
                        sequence,
                        call: call.to_string(),
                        gone: other,
                        calls,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Calls for Book {
    fn enter(&self, rank: u32, call: Call) -> Result<u64, ParallelError> {
        if let Some(first) = self.words.failure() {
            return Err(ParallelError::Aborted { rank, first });
        }
        let all = channels(&call, self.ranks);
        let own = all.iter().find(|(other, _)| *other == rank).map_or(0, |(_, channel)| *channel);
        let sequence = self.write(own, &call);
        self.compare(&call, sequence).inspect_err(|error| self.words.fail(&error.to_string()))?;
        Ok(sequence)
    }

    fn name_of(&self, rank: u32, reported: Reported, peer: u32) -> String {
        let channel = match reported.channel {
            Channel::Common => 0,
            Channel::Send => 1 + peer as usize,
            Channel::Receive => 1 + MAX_RANKS + peer as usize,
        };
        let count = self.count(rank, channel);
        let number = (count.saturating_sub(DEPTH as u64)..count)
            .rev()
            .find(|number| Reported::low_bits(*number) == reported.number);
        let entry = number.and_then(|number| self.read(rank, channel, number));
        entry.map_or_else(|| "a call in a graph".to_owned(), |entry| entry.text)
    }

    fn failure(&self) -> Option<String> {
        self.words.failure()
    }

    fn fail(&self, reason: String) {
        self.words.fail(&reason);
    }

    fn leave(&self, rank: u32) -> bool {
        self.words.set(rank, Mark::Gone);
        fence(Ordering::SeqCst);
        let others = || (0..self.ranks).filter(|other| *other != rank);
        let waits =
            |other: u32, theirs: usize, mine: usize| self.count(other, theirs) > self.count(rank, mine);
        others().any(|other| {
            let (here, there) = (rank as usize, other as usize);
            waits(other, 0, 0)
                || waits(other, 1 + here, 1 + MAX_RANKS + there)
                || waits(other, 1 + MAX_RANKS + here, 1 + there)
        })
    }
}
