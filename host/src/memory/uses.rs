//! The uses of one allocation, in order across streams.
//!
//! Work on one stream is in order by itself. When an allocation moves to another stream, that stream waits: a
//! reader waits for the writers, a writer for all users. So no stream reads contents too early, and no memory
//! is given out again while some stream still works on it.
//!
//! A use has three steps:
//!
//! 1. *Begin*: the stream is made to wait for earlier users that matter to it.
//! 2. The caller queues the work.
//! 3. *Commit*: the use is entered into the list of users. Without a commit the list is as before.
//!
//! # Why no use is lost
//!
//! Two threads may be between begin and commit at once: two readers, two parts of one buffer, or a graph
//! beside anything. They do not wait for each other, since nothing says which is first. But later uses must
//! wait for both.
//!
//! A use stands in the list once its commit returns, so only work that is queued is listed. Commits are
//! numbered. An entry stands for everything that is queued on its stream when another stream waits for it. It
//! leaves the list only when a writer that waited for it commits: begin returns the number of the last commit
//! so far, and the writer's commit removes the entries last used at that number or before. Uses committed in
//! between stay.
//!
//! # Why the usual case takes no lock
//!
//! While one stream has all the uses, `sole` is its number. Its uses wait for nothing and need no new entry:
//! the entry is there already. The first other stream stores `SEVERAL` in `sole` at its begin, and looks
//! afterwards how much the listed streams have queued. A use on the sole stream counts its work as queued
//! first, and looks at `sole` afterwards, at its commit. All four accesses are sequentially consistent, so at
//! least one side sees the other: either the other stream waits for that work, or the use is entered after
//! all, under a number that the other stream's commit does not remove.
//!
//! The list is made when a second stream or a graph needs it. Graphs hold the list alone and cannot reach
//! `sole`, so an allocation that a graph uses keeps `SEVERAL` there: all of its uses take the lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::Result;
use crate::stream::Stream;

/// No single stream.
const SEVERAL: u64 = 0;
/// With more entries than this, the driver is asked which streams are done.
const MANY: usize = 8;

/// Puts the first stream behind the second.
pub(super) type Order = fn(&Stream, &Stream) -> Result<()>;

/// The users of an allocation.
#[derive(Debug)]
pub(crate) struct Uses {
    /// The stream that allocated.
    home: Stream,
    /// The number of the one stream in the list, or `SEVERAL`.
    sole: AtomicU64,
    users: OnceLock<Arc<Users>>,
}

impl Uses {
    pub(super) fn new(home: &Stream) -> Self {
        Uses { home: home.clone(), sole: AtomicU64::new(home.id()), users: OnceLock::new() }
    }

    /// These uses for the clean-up, when their allocation goes.
    pub(super) fn take(&mut self) -> Self {
        let sole = AtomicU64::new(*self.sole.get_mut());
        Uses { home: self.home.clone(), sole, users: std::mem::take(&mut self.users) }
    }

    /// The list, for a graph that uses the allocation.
    pub(super) fn share(&self) -> Arc<Users> {
        let users = self.users();
        users.list().is_shared = true;
        self.sole.store(SEVERAL, Ordering::SeqCst);
        users.clone()
    }

    /// Makes `stream` wait for the earlier users that a read, or a write, must come after. Queue the work,
    /// then commit with the number that this returns.
    pub(super) fn begin(&self, stream: &Stream, writes: bool) -> Result<u64> {
        if self.sole.load(Ordering::SeqCst) == stream.id() {
            return Ok(0);
        }
        let list = self.users().list();
        self.sole.store(SEVERAL, Ordering::SeqCst);
        list.begin(stream, writes, Stream::come_after)
    }

    /// Enters a use whose work is queued. `begun` is what its `begin` returned, or 0: then no entry is
    /// removed.
    pub(super) fn commit(&self, stream: &Stream, writes: bool, begun: u64) {
        if self.sole.load(Ordering::SeqCst) == stream.id() {
            return;
        }
        let mut list = self.users().list();
        list.enter(stream, writes, begun);
        if !list.is_shared {
            self.sole.store(list.sole().unwrap_or(SEVERAL), Ordering::SeqCst);
        }
    }

    /// The stream that allocated.
    pub(super) fn home(&self) -> &Stream {
        &self.home
    }

    /// Whether all work on the allocation so far is in the order of the stream that allocated.
    pub(super) fn is_at_home(&self) -> bool {
        let home = self.home.id();
        self.sole.load(Ordering::SeqCst) == home
            || self.users.get().is_some_and(|users| users.list().sole() == Some(home))
    }

    /// Waits until no stream uses the allocation any more.
    pub(super) fn wait(&self) -> Result<()> {
        self.users().list().streams().try_for_each(Stream::synchronize)
    }

    /// For clean-up: a stream on which everything that uses the allocation comes before what is queued next.
    /// `None` when neither events nor a wait on the host could make that order.
    pub(super) fn last_stream(&self) -> Option<Stream> {
        let list = self.users().list();
        let last = list.writer().unwrap_or(&self.home);
        list.streams().all(|user| last.settle_behind(user)).then(|| last.clone())
    }

    /// The stream that wrote last; without a write, the stream that allocated.
    pub(super) fn writer(&self) -> Stream {
        self.users().list().writer().unwrap_or(&self.home).clone()
    }

    /// Every stream whose work on the allocation may still go on.
    pub(super) fn streams(&self) -> Vec<Stream> {
        self.users().list().streams().cloned().collect()
    }

    fn users(&self) -> &Arc<Users> {
        self.users.get_or_init(|| Arc::new(Users::new(&self.home)))
    }
}

/// The list of the users of an allocation. Graphs that use it share the list.
#[derive(Debug)]
pub(crate) struct Users(Mutex<List>);

impl Users {
    fn new(home: &Stream) -> Self {
        let mut list = List::default();
        // The stream that allocated is the first writer.
        list.commit(home, true, 0);
        Users(Mutex::new(list))
    }

    /// As [`Uses::begin`], for a list that is shared.
    pub(crate) fn begin(&self, stream: &Stream, writes: bool) -> Result<u64> {
        self.list().begin(stream, writes, Stream::come_after)
    }

    /// As [`Uses::commit`], for a list that is shared.
    pub(crate) fn commit(&self, stream: &Stream, writes: bool, begun: u64) {
        self.list().enter(stream, writes, begun);
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The streams with uses that later uses may have to wait for. No stream is in it twice.
#[derive(Debug, Default)]
pub(super) struct List {
    entries: Vec<Entry>,
    /// Commits so far.
    commits: u64,
    /// Whether graphs may hold it.
    is_shared: bool,
}

#[derive(Debug)]
struct Entry {
    stream: Stream,
    /// Number of its last commit of a write; 0: it has none.
    wrote: u64,
    /// Number of its last commit.
    used: u64,
    /// The stream waits for all writes up to this number.
    behind: u64,
}

impl List {
    /// See [`Uses::begin`].
    pub(super) fn begin(&self, stream: &Stream, writes: bool, order: Order) -> Result<u64> {
        let own = self.entries.iter().find(|entry| entry.stream == *stream);
        let behind = own.map_or(0, |entry| entry.behind);
        let matters = |entry: &&Entry| entry.stream != *stream && (writes || entry.wrote > behind);
        self.entries.iter().filter(matters).try_for_each(|entry| order(stream, &entry.stream))?;
        Ok(self.commits)
    }

    /// See [`Uses::commit`]. Returns whether this is a reader that was not in the list.
    pub(super) fn commit(&mut self, stream: &Stream, writes: bool, begun: u64) -> bool {
        self.commits += 1;
        let (now, before) = (self.commits, self.entries.len());
        if writes {
            self.entries.retain(|entry| entry.used > begun && entry.stream != *stream);
            self.entries.push(Entry { stream: stream.clone(), wrote: now, used: now, behind: begun });
        } else if let Some(own) = self.entries.iter_mut().find(|entry| entry.stream == *stream) {
            (own.used, own.behind) = (now, own.behind.max(begun));
        } else {
            self.entries.push(Entry { stream: stream.clone(), wrote: 0, used: now, behind: begun });
        }
        if let [only] = &mut self.entries[..] {
            // From now on its writes are not entered. So a use that began before this commit must wait for
            // this stream again.
            only.wrote = now;
        }
        !writes && self.entries.len() > before
    }

    /// As [`List::commit`]; forgets users that no later use waits for.
    fn enter(&mut self, stream: &Stream, writes: bool, begun: u64) {
        if self.commit(stream, writes, begun) {
            self.forget();
        }
    }

    /// Forgets readers that a writer's stream waits for, as at the end of a scope. When there are many
    /// entries, also forgets readers that are done.
    fn forget(&mut self) {
        let many = self.entries.len() > MANY;
        let writers: Vec<Stream> =
            self.entries.iter().filter(|entry| entry.wrote > 0).map(|entry| entry.stream.clone()).collect();
        self.entries.retain(|entry| {
            let is_over = || {
                writers.iter().any(|writer| writer.comes_after(&entry.stream))
                    || (many && entry.stream.is_done())
            };
            entry.wrote > 0 || !is_over()
        });
    }

    /// All streams in it.
    pub(super) fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.entries.iter().map(|entry| &entry.stream)
    }

    /// The stream that wrote last.
    fn writer(&self) -> Option<&Stream> {
        self.entries.iter().max_by_key(|entry| entry.wrote).map(|entry| &entry.stream)
    }

    /// The number of the one stream in it.
    fn sole(&self) -> Option<u64> {
        if let [only] = &self.entries[..] { Some(only.stream.id()) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use super::super::ONE_TEST_AT_A_TIME;
    use super::Uses;
    use crate::stream::Stream;
    use crate::{Device, Result};

    /// Begins, queues and commits.
    fn used(uses: &Uses, stream: &Stream, writes: bool) -> Result<()> {
        let begun = uses.begin(stream, writes)?;
        stream.queued();
        uses.commit(stream, writes, begun);
        Ok(())
    }

    fn streams(device: &Device) -> Result<[Stream; 3]> {
        Ok([device.stream()?, device.stream()?, device.stream()?])
    }

    #[test]
    fn a_use_that_is_not_committed_leaves_no_trace() -> Result<()> {
        let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::open(0)?;
        let [home, other, _] = streams(&device)?;
        let uses = Uses::new(&home);
        used(&uses, &home, true)?;
        let _ = uses.begin(&other, true)?;
        assert!(other.comes_after(&home));
        assert_eq!(uses.streams(), [home]);
        Ok(())
    }

    #[test]
    fn uses_between_begin_and_commit_of_another_are_kept() -> Result<()> {
        let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::open(0)?;
        for home_is_first in [false, true] {
            let [home, one, two] = streams(&device)?;
            // A stream that has all the uses takes the path without a lock.
            let first = if home_is_first { &home } else { &one };
            let uses = Uses::new(&home);
            let first_began = uses.begin(first, true)?;
            let second_began = uses.begin(&two, true)?;
            first.queued();
            uses.commit(first, true, first_began);
            two.queued();
            uses.commit(&two, true, second_began);
            assert!(!two.comes_after(first));
            let third = device.stream()?;
            used(&uses, &third, true)?;
            assert!(third.comes_after(first) && third.comes_after(&two), "home first: {home_is_first}");
            assert_eq!(uses.streams(), [third]);
        }
        Ok(())
    }

    #[test]
    fn a_reader_comes_after_writes_that_were_not_there_when_it_began() -> Result<()> {
        let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::open(0)?;
        let [home, reader, writer] = streams(&device)?;
        let uses = Uses::new(&home);
        let began = uses.begin(&reader, false)?;
        // The writer becomes the sole stream meanwhile, and writes once more without a lock.
        used(&uses, &writer, false)?;
        used(&uses, &writer, true)?;
        used(&uses, &writer, true)?;
        reader.queued();
        uses.commit(&reader, false, began);
        assert!(!reader.comes_after(&writer));
        used(&uses, &reader, false)?;
        assert!(reader.comes_after(&writer));
        // A reader that is behind the last write waits for no other work of the writer's stream.
        writer.queued();
        used(&uses, &reader, false)?;
        assert!(!reader.comes_after(&writer));
        Ok(())
    }

    /// Weights are read like this, by one stream for each request: the streams go back to the pool.
    #[test]
    fn readers_that_are_done_are_forgotten() -> Result<()> {
        let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::open(0)?;
        let uses = Uses::new(&device.stream()?);
        for _ in 0..100 {
            used(&uses, &device.pooled_stream()?, false)?;
        }
        assert!(uses.streams().len() < 20, "{} streams", uses.streams().len());
        Ok(())
    }
}
