//! The flight record: the last operations of a rank, written as a file when the job fails.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::failure::Failure;

/// Operations that are kept.
const KEPT: usize = 2_000;
/// The longest name, or text of shapes, in bytes.
const LONGEST: usize = 256;

/// A ring of the last operations of a rank.
#[derive(Debug)]
pub struct Recorder {
    ring: Mutex<Ring>,
    room: usize,
}

#[derive(Debug, Default)]
struct Ring {
    /// The number of the next operation, from 1.
    next: u64,
    entries: VecDeque<Entry>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The operation's number, from 1. Ranks that do the same count the same.
    pub sequence: u64,
    /// The operation.
    pub name: String,
    /// Its operands, as text.
    pub shapes: String,
    /// How far it has come.
    pub state: State,
    /// When it began, in microseconds since 1970.
    pub began_us: u64,
    /// When it ended, in microseconds since 1970.
    pub ended_us: Option<u64>,
}

/// How far an operation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is under way.
    Began,
    /// It has ended well.
    Done,
    /// It has failed.
    Failed,
}

/// An operation under way. It has failed if it is dropped before [`done`](Self::done).
#[derive(Debug)]
#[must_use = "an operation that is dropped has failed"]
pub struct Operation {
    recorder: Arc<Recorder>,
    sequence: u64,
}

/// A file of a rank's last operations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The rank that wrote it.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The job's generation.
    pub generation: u32,
    /// Why the job failed.
    pub failure: Option<Failure>,
    /// The last operations, oldest first.
    pub operations: Vec<Entry>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new(KEPT)
    }
}

impl Recorder {
    /// A ring with room for so many operations.
    pub fn new(room: usize) -> Self {
        Self { ring: Mutex::new(Ring { next: 1, ..Ring::default() }), room: room.max(1) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that an operation begins.
    pub fn begin(self: &Arc<Self>, name: &str, shapes: &str) -> Operation {
        let mut ring = self.ring();
        let sequence = ring.next;
        ring.next += 1;
        if ring.entries.len() == self.room {
            ring.entries.pop_front();
        }
        ring.entries.push_back(Entry {
            sequence,
            name: bounded(name),
            shapes: bounded(shapes),
            state: State::Began,
            began_us: now_us(),
            ended_us: None,
        });
        Operation { recorder: Arc::clone(self), sequence }
    }

    fn end(&self, sequence: u64, state: State) {
        let mut ring = self.ring();
        // Sequence numbers in the ring follow each other.
        let Some(first) = ring.entries.front().map(|entry| entry.sequence) else { return };
        let at = sequence.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = at.and_then(|at| ring.entries.get_mut(at)) {
            entry.state = state;
            entry.ended_us = Some(now_us());
        }
    }

    /// The last operations, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.ring().entries.iter().cloned().collect()
    }

    /// The last operation in a few words: `#17 all_reduce f32[1024], under way`.
    pub fn last(&self) -> String {
        let ring = self.ring();
        let Some(entry) = ring.entries.back() else { return String::new() };
        let state = match entry.state {
            State::Began => "under way",
            State::Done => "done",
            State::Failed => "failed",
        };
        let space = if entry.shapes.is_empty() { "" } else { " " };
        format!("#{} {}{space}{}, {state}", entry.sequence, entry.name, entry.shapes)
    }
}

impl Operation {
    /// The operation's number.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Notes that it ended well.
    pub fn done(self) {
        self.recorder.end(self.sequence, State::Done);
        std::mem::forget(self);
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.recorder.end(self.sequence, State::Failed);
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The text, or its beginning.
pub(crate) fn bounded(text: &str) -> String {
    let end = (0..=text.len().min(LONGEST)).rev().find(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or(0)].to_owned()
}

impl Record {
    /// The name of a rank's file. Each start of a job has its own.
    fn file_name(rank: u32, generation: u32) -> String {
        format!("flight-g{generation}-r{rank}.json")
    }

    /// Writes the file as a whole or not at all.
    ///
    /// # Errors
    /// [`Error::Record`].
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Error> {
        let path = folder.join(Self::file_name(self.rank, self.generation));
        let failed = |source| Error::Record { action: "write", path: path.clone(), source };
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        let beside = path.with_extension("json.part");
        let written = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            let mut file = fs::File::create(&beside)?;
            file.write_all(&text)?;
            fs::rename(&beside, &path)
        };
        written().map_err(failed)?;
        Ok(path)
    }
}

/// The records of a generation in a folder, in the order of their ranks. Files that do not parse are told
/// beside them.
pub fn read_records(folder: &Path, generation: u32, size: u32) -> (Vec<Record>, Vec<Error>) {
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    for rank in 0..size {
        let path = folder.join(Record::file_name(rank, generation));
        let record = fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?));
        match record {
            Ok(record) => records.push(record),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => errors.push(Error::Record { action: "read", path, source }),
        }
    }
    (records, errors)
}

/// The first operation in which ranks differ, in a sentence: another name, other shapes, or one rank without
/// it while others are behind it. Where a rank's last operation is no longer recorded by another, that alone
/// is said: they may differ before.
pub fn first_difference(records: &[Record]) -> Option<String> {
    // Only operations that every ring still holds can be compared.
    let begin =
        records.iter().filter_map(|record| record.operations.first()).map(|entry| entry.sequence).max()?;
    let end =
        records.iter().filter_map(|record| record.operations.last()).map(|entry| entry.sequence).max()?;
    let last = |record: &Record| record.operations.last().map_or(0, |entry| entry.sequence);
    // Where all rings hold all, whoever is behind is the difference.
    let is_behind = |record: &&Record| begin > 1 && last(record) < begin;
    if let Some(behind) = records.iter().filter(is_behind).min_by_key(|&it| last(it)) {
        let (rank, last) = (behind.rank, last(behind));
        return Some(match last {
            0 => format!(
                "rank {rank} has recorded no operation, and another rank keeps none before #{begin}: where they first differ \
                 is not known"
            ),
            _ => format!(
                "rank {rank} has stopped at operation #{last}, and another rank keeps none before #{begin}: where they first \
                 differ is not known"
            ),
        });
    }
    (begin..=end).find_map(|sequence| difference_at(records, sequence))
}

fn difference_at(records: &[Record], sequence: u64) -> Option<String> {
    let find = |record: &Record| {
        let entry = record.operations.iter().find(|entry| entry.sequence == sequence)?;
        Some(format!("{} {}", entry.name, entry.shapes).trim_end().to_owned())
    };
    let mut groups: Vec<(Option<String>, Vec<u32>)> = Vec::new();
    for record in records {
        let what = find(record);
        match groups.iter_mut().find(|(known, _)| *known == what) {
            Some((_, ranks)) => ranks.push(record.rank),
            None => groups.push((what, vec![record.rank])),
        }
    }
    if groups.len() < 2 {
        return None;
    }
    let said = groups.iter().map(|(what, ranks)| {
        let ranks: Vec<_> = ranks.iter().map(ToString::to_string).collect();
        format!("rank {}: {}", ranks.join(", "), what.as_deref().unwrap_or("did not come to it"))
    });
    Some(format!(
        "operation #{sequence} is the first in which ranks differ ({})",
        said.collect::<Vec<_>>().join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(rank: u32, operations: &[&str]) -> Record {
        let recorder = Arc::new(Recorder::new(3));
        operations.iter().for_each(|name| recorder.begin(name, "f32[8]").done());
        Record { rank, size: 2, generation: 4, failure: None, operations: recorder.entries() }
    }

    #[test]
    fn the_ring_keeps_the_last_ones() {
        let recorder = Arc::new(Recorder::new(2));
        assert_eq!(recorder.last(), "");
        let first = recorder.begin("first", "");
        recorder.begin("second", "f32[4]").done();
        drop(recorder.begin("third", ""));
        // It has left the ring.
        first.done();
        let entries = recorder.entries();
        let seen: Vec<_> = entries.iter().map(|e| (e.sequence, &*e.name, e.state)).collect();
        assert_eq!(seen, [(2, "second", State::Done), (3, "third", State::Failed)]);
        assert!(entries[0].ended_us >= Some(entries[0].began_us));
        let fourth = recorder.begin("fourth", &"é".repeat(1000));
        assert!(recorder.last().starts_with("#4 fourth éé") && recorder.last().ends_with(", under way"));
        assert!(recorder.last().len() < 300 && fourth.sequence() == 4);
    }

    #[test]
    fn a_record_is_written_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        record(1, &["x"]).write(&inner).unwrap();
        fs::write(inner.join("flight-g4-r0.json"), "{").unwrap();
        let (records, errors) = read_records(&inner, 4, 2);
        assert_eq!((records.len(), records[0].rank, &*records[0].operations[0].name), (1, 1, "x"));
        assert!(errors.len() == 1 && errors[0].to_string().contains("flight-g4-r0.json"), "{errors:?}");
        assert!(read_records(&inner, 5, 2).0.is_empty());
        let file = inner.join("flight-g4-r0.json");
        assert!(record(0, &[]).write(&file).unwrap_err().to_string().contains("cannot write"));
    }

    #[test]
    fn the_first_difference_is_found() {
        let same = [record(0, &["a", "b"]), record(1, &["a", "b"])];
        assert_eq!(first_difference(&same), None);
        let other = [record(0, &["a", "b", "c"]), record(1, &["a", "x", "c"])];
        assert_eq!(
            first_difference(&other).unwrap(),
            "operation #2 is the first in which ranks differ (rank 0: b f32[8]; rank 1: x f32[8])"
        );
        let behind = [record(0, &["a", "b", "c", "d"]), record(1, &["a", "b"])];
        assert_eq!(
            first_difference(&behind).unwrap(),
            "operation #3 is the first in which ranks differ (rank 0: c f32[8]; rank 1: did not come to it)"
        );
        // Three are kept: what rank 1 did last is known of rank 1 alone.
        let lost = [record(0, &["a", "b", "c", "d", "e", "f"]), record(1, &["a", "x"])];
        let said = first_difference(&lost).unwrap();
        assert!(said.contains("rank 1 has stopped at operation #2") && said.contains("before #4"), "{said}");
        let none = first_difference(&[record(0, &["a", "b", "c", "d"]), record(1, &[])]).unwrap();
        assert!(none.contains("rank 1 has recorded no operation"), "{none}");
        let first = first_difference(&[record(0, &["a"]), record(1, &[])]).unwrap();
        assert!(
            first.starts_with("operation #1 is the first") && first.contains("rank 1: did not"),
            "{first}"
        );
    }
}
