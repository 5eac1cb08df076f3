//! Keeps uses of one allocation in order across streams.
//!
//! Work on one stream is in order by itself. When a buffer moves to another stream, the new stream is made to wait for
//! what may still be going on with it: readers for the last writer, a writer for everybody. So a buffer's contents are
//! never read too early, and its memory is never given back while some stream still works on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::stream::Stream;

/// No single stream: several have used the allocation since its last write.
const SEVERAL: u64 = 0;

#[derive(Debug)]
pub(crate) struct UseOrder {
    /// The one stream that everything so far is ordered on, or `SEVERAL`. Lets the usual case pass without a lock.
    sole: AtomicU64,
    users: Mutex<Users>,
}

#[derive(Debug)]
struct Users {
    /// The stream that wrote last (or allocated).
    writer: Stream,
    /// Other streams that have read since, each already behind the writer.
    readers: Vec<Stream>,
}

impl UseOrder {
    pub(crate) fn new(stream: &Stream) -> Self {
        let users = Users { writer: stream.clone(), readers: Vec::new() };
        UseOrder { sole: AtomicU64::new(stream.id()), users: Mutex::new(users) }
    }

    /// Call before `stream` gets work that reads the allocation.
    pub(crate) fn before_read(&self, stream: &Stream) -> Result<()> {
        if self.sole.load(Ordering::Acquire) == stream.id() {
            return Ok(());
        }
        let mut users = self.users();
        if users.writer != *stream && !users.readers.contains(stream) {
            stream.wait_for(&users.writer)?;
            // Readers that the writer's stream has been put behind since, at the end of a scope say, need not be remembered.
            let Users { writer, readers } = &mut *users;
            readers.retain(|reader| !writer.comes_after(reader));
            readers.push(stream.clone());
            self.sole.store(SEVERAL, Ordering::Release);
        }
        Ok(())
    }

    /// Call before `stream` gets work that writes the allocation. The caller has exclusive access to it.
    pub(crate) fn before_write(&self, stream: &Stream) -> Result<()> {
        if self.sole.load(Ordering::Acquire) == stream.id() {
            return Ok(());
        }
        let mut users = self.users();
        stream.wait_for(&users.writer)?;
        for reader in &users.readers {
            stream.wait_for(reader)?;
        }
        users.readers.clear();
        users.writer = stream.clone();
        self.sole.store(stream.id(), Ordering::Release);
        Ok(())
    }

    /// Waits until no stream uses the allocation any more.
    pub(crate) fn wait(&self) -> Result<()> {
        let users = self.users();
        users.readers.iter().try_for_each(Stream::synchronize)?;
        users.writer.synchronize()
    }

    /// For clean-up: a stream on which everything that uses the allocation comes before what is queued next. `None` when that
    /// order could not be had, neither with events nor by waiting here.
    pub(crate) fn last_stream(&self) -> Option<Stream> {
        let users = self.users();
        let settled = users.readers.iter().all(|reader| users.writer.settle_behind(reader));
        settled.then(|| users.writer.clone())
    }

    /// Is all work on the allocation so far in the order of the stream with that number?
    pub(crate) fn is_sole(&self, stream: u64) -> bool {
        self.sole.load(Ordering::Acquire) == stream
    }

    /// The stream that wrote last (or allocated).
    pub(crate) fn writer(&self) -> Stream {
        self.users().writer.clone()
    }

    /// Every stream whose work on the allocation may still go on.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        let users = self.users();
        users.readers.iter().chain([&users.writer]).cloned().collect()
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
