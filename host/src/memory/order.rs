//! Keeps uses of one allocation in order across streams.
//!
//! Work on one stream is in order by itself. When a buffer moves to another stream, the new stream is made to wait for
//! what may still be going on with it: readers for the last writer, a writer for everybody. So a buffer's contents are
//! never read too early, and its memory is never given back while some stream still works on it.
//!
//! A graph that was captured over an allocation shares its order: each replay is a use of it, and the memory stays until the
//! last such graph is gone, even when the buffer is dropped before.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::Result;
use crate::graph::Capture;
use crate::stream::Stream;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No single stream: several have used the allocation since its last write, or a graph may.
const SEVERAL: u64 = 0;

#[derive(Debug)]
pub(crate) struct UseOrder {
    /// The stream that allocated.
    home: Stream,
    /// The one stream that everything so far is ordered on, or `SEVERAL`. Lets the usual case pass without a lock.
    sole: AtomicU64,
    users: Mutex<Owned>,
}

#[derive(Debug)]
enum Owned {
    /// `None`: nobody but the stream that allocated has used it.
    Alone(Option<Users>),
    WithGraphs(Arc<SharedOrder>),
}

#[derive(Debug)]
struct Users {
    /// The stream that wrote last (or allocated).
    writer: Stream,
    /// Other streams that have read since, each already behind the writer.
    readers: Vec<Stream>,
}

impl Users {
    /// The users, for whom these were kept until now.
    fn take(&mut self) -> Users {
        Users { writer: self.writer.clone(), readers: std::mem::take(&mut self.readers) }
    }

    /// Afterwards several streams use the allocation, if `stream` was not its writer.
    fn before_read(&mut self, stream: &Stream) -> Result<()> {
        if self.writer == *stream || self.readers.contains(stream) {
            return Ok(());
        }
        stream.come_after(&self.writer)?;
        // Readers that the writer's stream has been put behind since, at the end of a scope say, need not be remembered.
        let Users { writer, readers } = self;
        readers.retain(|reader| !writer.comes_after(reader));
        readers.push(stream.clone());
        Ok(())
    }

    fn before_write(&mut self, stream: &Stream) -> Result<()> {
        stream.come_after(&self.writer)?;
        for reader in &self.readers {
            stream.come_after(reader)?;
        }
        self.readers.clear();
        self.writer = stream.clone();
        Ok(())
    }
}

impl UseOrder {
    pub(crate) fn new(stream: &Stream) -> Self {
        UseOrder {
            home: stream.clone(),
            sole: AtomicU64::new(stream.id()),
            users: Mutex::new(Owned::Alone(None)),
        }
    }

    /// The stream that allocated.
    pub(crate) fn home(&self) -> &Stream {
        &self.home
    }

    /// Of memory that `capture` keeps for its graph, allocated for `stream`, which is captured.
    pub(crate) fn private(stream: &Stream, capture: &Arc<Capture>) -> Self {
        let users = Users { writer: stream.clone(), readers: Vec::new() };
        let shared = SharedOrder::new(stream.clone(), users, Arc::downgrade(capture));
        let users = Mutex::new(Owned::WithGraphs(shared));
        UseOrder { home: stream.clone(), sole: AtomicU64::new(SEVERAL), users }
    }

    fn of(home: Stream, users: Users) -> Self {
        let sole = if users.readers.is_empty() { users.writer.id() } else { SEVERAL };
        UseOrder { home, sole: AtomicU64::new(sole), users: Mutex::new(Owned::Alone(Some(users))) }
    }

    /// Call before `stream` gets work that reads the allocation.
    pub(crate) fn before_read(&self, stream: &Stream) -> Result<()> {
        if self.sole.load(Ordering::Acquire) == stream.id() {
            return Ok(());
        }
        self.with_users(|users| {
            users.before_read(stream)?;
            if !users.readers.is_empty() {
                self.sole.store(SEVERAL, Ordering::Release);
            }
            Ok(())
        })
    }

    /// Call before `stream` gets work that writes the allocation. The caller has exclusive access to it.
    pub(crate) fn before_write(&self, stream: &Stream) -> Result<()> {
        if self.sole.load(Ordering::Acquire) == stream.id() {
            return Ok(());
        }
        let mut owned = self.owned();
        match &mut *owned {
            Owned::Alone(users) => {
                self.spelt_out(users).before_write(stream)?;
                self.sole.store(stream.id(), Ordering::Release);
                Ok(())
            }
            // A graph may use it at any time, so there is no sole stream.
            Owned::WithGraphs(shared) => shared.before_write(stream),
        }
    }

    /// Waits until no stream uses the allocation any more.
    pub(crate) fn wait(&self) -> Result<()> {
        self.with_users(|users| {
            users.readers.iter().try_for_each(Stream::synchronize)?;
            users.writer.synchronize()
        })
    }

    /// For clean-up: a stream on which everything that uses the allocation comes before what is queued next. `None` when that
    /// order could not be had, neither with events nor by waiting here.
    pub(crate) fn last_stream(&self) -> Option<Stream> {
        self.with_users(|users| {
            let settled = users.readers.iter().all(|reader| users.writer.settle_behind(reader));
            settled.then(|| users.writer.clone())
        })
    }

    /// Is all work on the allocation so far in the order of the stream that allocated?
    pub(crate) fn is_at_home(&self) -> bool {
        self.sole.load(Ordering::Acquire) == self.home.id()
    }

    /// The stream that wrote last (or allocated).
    pub(crate) fn writer(&self) -> Stream {
        self.with_users(|users| users.writer.clone())
    }

    /// Every stream whose work on the allocation may still go on.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        self.with_users(|users| users.readers.iter().chain([&users.writer]).cloned().collect())
    }

    /// May a graph use the allocation?
    pub(crate) fn is_shared(&self) -> bool {
        self.sole.load(Ordering::Acquire) == SEVERAL && matches!(*self.owned(), Owned::WithGraphs(_))
    }

    /// The order, for a graph that uses the allocation.
    pub(crate) fn share(&self) -> Arc<SharedOrder> {
        let mut owned = self.owned();
        match &mut *owned {
            Owned::WithGraphs(shared) => shared.clone(),
            Owned::Alone(users) => {
                let shared = SharedOrder::new(self.home.clone(), self.spelt_out(users).take(), Weak::new());
                *owned = Owned::WithGraphs(shared.clone());
                self.sole.store(SEVERAL, Ordering::Release);
                shared
            }
        }
    }

    /// Gives the memory back by `free`, whose owner is dropping it: at the end of captures, or when the last graph that uses it is
    /// gone. What a capture has allocated for itself alone is free for the next allocation in that capture.
    pub(crate) fn let_go(&self, free: impl FnOnce(UseOrder) + Send + 'static) {
        let order = match &mut *self.owned() {
            Owned::Alone(users) => UseOrder::of(self.home.clone(), self.spelt_out(users).take()),
            Owned::WithGraphs(shared) => {
                if !shared.leave_capture() {
                    *lock(&shared.free) = Some(Box::new(free));
                    return;
                }
                return free(UseOrder::of(self.home.clone(), shared.users().take()));
            }
        };
        order.free_outside_captures(free);
    }

    fn free_outside_captures(self, free: impl FnOnce(UseOrder) + Send + 'static) {
        let device = self.writer().device().clone();
        device.captures().outside(move || free(self));
    }

    fn with_users<R>(&self, work: impl FnOnce(&mut Users) -> R) -> R {
        match &mut *self.owned() {
            Owned::Alone(users) => work(self.spelt_out(users)),
            Owned::WithGraphs(shared) => work(&mut shared.users()),
        }
    }

    fn spelt_out<'u>(&self, users: &'u mut Option<Users>) -> &'u mut Users {
        users.get_or_insert_with(|| Users { writer: self.home.clone(), readers: Vec::new() })
    }

    fn owned(&self) -> MutexGuard<'_, Owned> {
        lock(&self.users)
    }
}

type Free = Box<dyn FnOnce(UseOrder) + Send>;

/// The order of an allocation that graphs use too.
pub(crate) struct SharedOrder {
    /// The stream that allocated.
    home: Stream,
    users: Mutex<Users>,
    /// Gives the memory back: there once its owner is gone.
    free: Mutex<Option<Free>>,
    /// The capture whose own memory it is.
    capture: Weak<Capture>,
}

impl SharedOrder {
    fn new(home: Stream, users: Users, capture: Weak<Capture>) -> Arc<Self> {
        Arc::new(SharedOrder { home, users: Mutex::new(users), free: Mutex::default(), capture })
    }

    /// Takes memory of a capture's own out of its graph, when only the stream that it was allocated for has used it.
    fn leave_capture(self: &Arc<Self>) -> bool {
        self.capture.upgrade().is_some_and(|capture| capture.forget(self, &self.users().writer))
    }

    /// As [`UseOrder::before_read`].
    pub(crate) fn before_read(&self, stream: &Stream) -> Result<()> {
        self.users().before_read(stream)
    }

    /// As [`UseOrder::before_write`].
    pub(crate) fn before_write(&self, stream: &Stream) -> Result<()> {
        self.users().before_write(stream)
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        lock(&self.users)
    }
}

impl Drop for SharedOrder {
    fn drop(&mut self) {
        if let Some(free) = self.free.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let users = self.users().take();
            UseOrder::of(self.home.clone(), users).free_outside_captures(free);
        }
    }
}

impl fmt::Debug for SharedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedOrder").field("users", &self.users).finish_non_exhaustive()
    }
}
