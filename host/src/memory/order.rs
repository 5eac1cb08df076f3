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

use super::users::{Borrowed, Users};
use crate::error::Result;
use crate::graph::Capture;
use crate::stream::Stream;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No single stream: several have used the allocation since its last write, or a graph may.
const SEVERAL: u64 = 0;

fn sole(users: &Users) -> u64 {
    users.sole().map_or(SEVERAL, Stream::id)
}

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

impl UseOrder {
    pub(crate) fn new(stream: &Stream) -> Self {
        UseOrder {
            home: stream.remembered(),
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
        let home = stream.remembered();
        let shared = SharedOrder::new(home.clone(), Users::of(stream), Arc::downgrade(capture));
        let users = Mutex::new(Owned::WithGraphs(shared));
        UseOrder { home, sole: AtomicU64::new(SEVERAL), users }
    }

    fn of(home: Stream, users: Users) -> Self {
        let sole = AtomicU64::new(sole(&users));
        UseOrder { home, sole, users: Mutex::new(Owned::Alone(Some(users))) }
    }

    /// Call before `stream` gets work that reads the allocation.
    pub(crate) fn before_read(&self, stream: &Stream, borrowed: Borrowed) -> Result<()> {
        self.before_use(
            stream,
            |users| users.before_read(stream, borrowed, Stream::come_after),
            |shared| shared.before_read(stream),
        )
    }

    /// Call before `stream` gets work that writes the allocation.
    pub(crate) fn before_write(&self, stream: &Stream, borrowed: Borrowed) -> Result<()> {
        self.before_use(
            stream,
            |users| users.before_write(stream, borrowed, Stream::come_after),
            |shared| shared.before_write(stream),
        )
    }

    fn before_use(
        &self,
        stream: &Stream,
        alone: impl FnOnce(&mut Users) -> Result<()>,
        with_graphs: impl FnOnce(&SharedOrder) -> Result<()>,
    ) -> Result<()> {
        // Who is the sole user stays one of the users as long as somebody has a handle to it, as `stream` is.
        if self.sole.load(Ordering::Acquire) == stream.id() {
            return Ok(());
        }
        match &mut *self.owned() {
            Owned::Alone(users) => {
                let users = self.spelt_out(users);
                alone(users)?;
                self.sole.store(sole(users), Ordering::Release);
                Ok(())
            }
            // A graph may use it at any time, so there is no sole stream.
            Owned::WithGraphs(shared) => with_graphs(shared),
        }
    }

    /// Waits until no stream uses the allocation any more.
    pub(crate) fn wait(&self) -> Result<()> {
        self.with_users(|users| users.all().try_for_each(Stream::synchronize))
    }

    /// For clean-up: a stream on which everything that uses the allocation comes before what is queued next. `None` when that
    /// order could not be had, neither with events nor by waiting here.
    pub(crate) fn last_stream(&self) -> Option<Stream> {
        self.with_users(|users| {
            let last = users.writer().unwrap_or(&self.home);
            users.all().all(|user| last.settle_behind(user)).then(|| last.clone())
        })
    }

    /// Is all work on the allocation so far in the order of the stream that allocated?
    pub(crate) fn is_at_home(&self) -> bool {
        self.sole.load(Ordering::Acquire) == self.home.id()
    }

    /// The stream that wrote last (or allocated).
    pub(crate) fn writer(&self) -> Stream {
        self.with_users(|users| users.writer().unwrap_or(&self.home).clone())
    }

    /// Every stream whose work on the allocation may still go on.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        self.with_users(|users| users.all().cloned().collect())
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
                let users = std::mem::take(self.spelt_out(users));
                let shared = SharedOrder::new(self.home.clone(), users, Weak::new());
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
            Owned::Alone(users) => UseOrder::of(self.home.clone(), std::mem::take(self.spelt_out(users))),
            Owned::WithGraphs(shared) => {
                if !shared.leave_capture() {
                    *lock(&shared.free) = Some(Box::new(free));
                    return;
                }
                return free(UseOrder::of(self.home.clone(), std::mem::take(&mut *shared.users())));
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
        users.get_or_insert_with(|| Users::of(&self.home))
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
        self.capture.upgrade().is_some_and(|capture| capture.forget(self, &self.home))
    }

    /// As [`UseOrder::before_read`]. A graph does not borrow what it uses, so a use, of the graph or of others, says nothing about the
    /// work of those before it: it may not be queued yet, as with parts.
    pub(crate) fn before_read(&self, stream: &Stream) -> Result<()> {
        self.users().before_read(stream, Borrowed::Part, Stream::come_after)
    }

    /// As [`UseOrder::before_write`], and the same.
    pub(crate) fn before_write(&self, stream: &Stream) -> Result<()> {
        self.users().before_write(stream, Borrowed::Part, Stream::come_after)
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        lock(&self.users)
    }
}

impl Drop for SharedOrder {
    fn drop(&mut self) {
        if let Some(free) = self.free.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let users = std::mem::take(&mut *self.users());
            UseOrder::of(self.home.clone(), users).free_outside_captures(free);
        }
    }
}

impl fmt::Debug for SharedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedOrder").field("users", &self.users).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use super::super::ONE_TEST_AT_A_TIME;
    use super::super::users::{Borrowed, Users};
    use super::UseOrder;
    use crate::stream::Stream;
    use crate::{Device, Result};

    /// As when one thread replays a graph while another uses its buffers: nothing says in which order.
    #[test]
    fn what_a_graph_uses_is_not_forgotten_while_it_is_being_queued() -> Result<()> {
        let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::open(0)?;
        let (home, graph, other) = (device.stream()?, device.stream()?, device.stream()?);
        let order = UseOrder::new(&home).share();

        // Read before the graph that writes it is queued, and again after that.
        order.before_write(&graph)?;
        order.before_read(&other)?;
        graph.queued();
        assert!(!other.comes_after(&graph));
        order.before_read(&other)?;
        assert!(other.comes_after(&graph));

        // Written before the graph that reads it is queued, and again after that.
        order.before_read(&graph)?;
        order.before_write(&other)?;
        graph.queued();
        order.before_write(&home)?;
        assert!(home.comes_after(&graph) && home.comes_after(&other));

        // Written by others, who queue it when the graph that reads it has told so.
        order.before_write(&other)?;
        order.before_read(&graph)?;
        other.queued();
        order.before_read(&graph)?;
        assert!(graph.comes_after(&other));
        Ok(())
    }

    /// As weights are, by a stream for each request: the streams go back to the pool.
    #[test]
    fn readers_that_are_gone_and_done_are_forgotten() -> Result<()> {
        let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::open(0)?;
        let order = UseOrder::new(&device.stream()?);
        for _ in 0..100 {
            let reader = device.pooled_stream()?;
            order.before_read(&reader, Borrowed::Whole)?;
            reader.queued();
        }
        assert!(order.streams().len() < 20, "{} streams", order.streams().len());
        Ok(())
    }

    /// As when a thread queues its work, and gives its stream away, while another thread comes behind it.
    #[test]
    fn a_stream_that_goes_meanwhile_is_not_forgotten() -> Result<()> {
        thread_local! {
            static GOES: std::cell::RefCell<Option<Stream>> = const { std::cell::RefCell::new(None) };
        }
        let _alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::open(0)?;
        let (stream, goes) = (device.stream()?, device.stream()?);
        let id = goes.id();
        let mut users = Users::default();
        users.before_write(&goes, Borrowed::Part, Stream::come_after)?;
        GOES.set(Some(goes));
        let meanwhile = |stream: &Stream, earlier: &Stream| {
            stream.come_after(earlier)?;
            if let Some(goes) = GOES.take() {
                goes.queued();
            }
            Ok(())
        };
        users.before_write(&stream, Borrowed::Part, meanwhile)?;
        assert!(users.all().any(|user| user.id() == id));
        // Behind all of its work there is nothing to remember.
        users.before_write(&stream, Borrowed::Part, Stream::come_after)?;
        assert!(users.all().all(|user| *user == stream));
        Ok(())
    }
}
