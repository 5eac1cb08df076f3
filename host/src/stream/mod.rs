//! Streams, the queues of a device, and events, marks in them.
//!
//! Work of one stream is done in order; streams run beside each other. Buffers keep their own uses in order
//! when they move from stream to stream, so a program that uses ironwarp's buffers needs no events. The
//! library records an event where a stream has to wait for another, and none where the other has no new work
//! since the last wait.
//!
//! ```
//! # use ironwarp::{Device, DeviceBuffer, ops::saxpy::saxpy};
//! # fn main() -> ironwarp::Result<()> {
//! # let device = Device::open(0)?;
//! let stream = device.stream()?;
//! let x = DeviceBuffer::from_slice(&stream, &[1.0f32; 1000])?;
//! let (mut a, mut b) = (DeviceBuffer::zeroed(&stream, 1000)?, DeviceBuffer::zeroed(&stream, 1000)?);
//! // Two kernels beside each other, on two streams of the device's pool; `stream` waits for both.
//! stream.scope(|scope| {
//!     saxpy(&scope.fork()?, 2.0, &x, &mut a)?;
//!     saxpy(&scope.fork()?, 3.0, &x, &mut b)
//! })?;
//! saxpy(&stream, 1.0, &a, &mut b)?;
//! assert_eq!(b.to_vec(&stream)?, [5.0; 1000]);
//! # Ok(())
//! # }
//! ```

mod capture;
mod current;
mod event;
mod scope;

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::sys::CUstream;

use crate::device::{Device, Queue, Recent};
use crate::error::{Error, LaunchSite, Result};
use crate::extensions::Extensions;
use crate::raw::{self, RawResult};

pub use current::On;
pub use event::Event;
pub use scope::Scope;

pub(crate) use capture::{Capture, Kept};
pub(crate) use current::Entered;

/// A queue of device work, done in order. Cheap to clone; clones are the same queue.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<StreamInner>,
}

struct StreamInner {
    id: u64,
    queue: Queue,
    /// Whether the queue goes back to the device's pool.
    pooled: bool,
    launches: Arc<Recent>,
    progress: Progress,
    /// Values that other layers keep with the stream. They are dropped while the queue is alive.
    extensions: Extensions,
    device: Device,
}

/// A stream's counts of its own work and of the work of other streams, so that it skips needless waits.
#[derive(Default)]
struct Progress {
    /// Pieces of work queued. The count is raised after a piece is queued, so a thread that knows of the
    /// piece sees the new count.
    issued: AtomicU64,
    /// How many of these are known to be done.
    done: AtomicU64,
    /// Whether there may be work that `issued` does not count.
    unseen: AtomicBool,
    /// For each other stream, how much of its work this one already waits for.
    behind: Mutex<Vec<(u64, u64)>>,
}

/// The number of other streams in `behind`, at most.
const REMEMBERED: usize = 16;

impl Progress {
    fn is_behind(&self, other: &StreamInner, issued: u64) -> bool {
        let behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        behind.iter().any(|&(id, seen)| id == other.id && seen >= issued)
    }

    fn now_behind(&self, other: &StreamInner, issued: u64) {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        behind.retain(|&(id, _)| id != other.id);
        if behind.len() >= REMEMBERED {
            behind.remove(0);
        }
        behind.push((other.id, issued));
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        self.device.launches().close(&self.launches);
        self.extensions.clear();
        if self.pooled && self.device.idle_queues().put(self.queue) {
            return;
        }
        // A drop cannot return an error; the context frees the stream at its end.
        // SAFETY: this is the last handle, and the context is current.
        let _ = self.device.clean_up(|| unsafe { self.queue.destroy() });
    }
}

impl Device {
    /// A new stream.
    ///
    /// # Errors
    /// The driver's error.
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with_priority(0)
    }

    /// A new stream. Its kernels go before those of streams of a lower level, when both wait for room on the
    /// device. Level 0 is the normal one; see [`Device::priority_levels`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a level that does not exist, or the driver's error.
    pub fn stream_with_priority(&self, level: u32) -> Result<Stream> {
        Ok(Stream::over(self, Queue::create(self, level)?, false))
    }

    /// A stream of the device's pool: cheaper than a new one. It goes back to the pool when its last clone is
    /// dropped.
    ///
    /// # Errors
    /// The driver's error.
    pub fn pooled_stream(&self) -> Result<Stream> {
        self.pooled_stream_with_priority(0)
    }

    /// As [`Device::pooled_stream`], with a priority as in [`Device::stream_with_priority`].
    ///
    /// # Errors
    /// As [`Device::stream_with_priority`].
    pub fn pooled_stream_with_priority(&self, level: u32) -> Result<Stream> {
        let queue = match self.idle_queues().take(self, level)? {
            Some(idle) => idle,
            None => Queue::create(self, level)?,
        };
        Ok(Stream::over(self, queue, true))
    }
}

impl Stream {
    fn over(device: &Device, queue: Queue, pooled: bool) -> Stream {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        let inner = StreamInner {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            queue,
            pooled,
            launches: device.launches().open(),
            progress: Progress::default(),
            extensions: Extensions::default(),
            device: device.clone(),
        };
        Stream { inner: Arc::new(inner) }
    }

    /// A new handle of a stream, whose other handles may be gone.
    fn again(inner: Arc<StreamInner>) -> Stream {
        Stream { inner }
    }

    /// The device that the stream belongs to.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Its priority level; 0 is the normal one.
    pub fn priority(&self) -> u32 {
        self.queue().level
    }

    /// Waits until everything queued so far is done.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] while the stream is being captured, or the driver's error, also of work
    /// queued earlier: it names the launch that caused it, or the launches that may have.
    pub fn synchronize(&self) -> Result<()> {
        self.must_not_be_waited_for("Stream::synchronize, or reading results back,")?;
        let seen = self.seen();
        // SAFETY: the handle is alive.
        self.ask(|stream| unsafe { raw::stream_synchronize(stream) })?;
        self.caught_up(seen);
        Ok(())
    }

    /// Whether everything queued so far is done.
    ///
    /// # Errors
    /// [`Error::NotCapturable`] while the stream is being captured, or the driver's error, also of work
    /// queued earlier.
    pub fn is_idle(&self) -> Result<bool> {
        self.must_not_be_waited_for("Stream::is_idle")?;
        let seen = self.seen();
        // SAFETY: the handle is alive.
        let idle = self.ask(|stream| unsafe { raw::stream_query(stream) })?;
        if idle {
            self.caught_up(seen);
        }
        Ok(idle)
    }

    /// Marks the work queued so far with `event`.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`], or the driver's error.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.same_device("the event", event.device())?;
        // SAFETY: both handles are alive, of one device.
        self.ask(|stream| unsafe { raw::event_record(event.raw(), stream) })?;
        event.now_recorded(self.capture()?.is_some());
        Ok(())
    }

    /// Lets later work of this stream begin only when `event` has been reached. The event may be another
    /// device's.
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: both handles are alive.
        let waited = self.call(|stream| Ok(unsafe { raw::stream_wait_event(stream, event.raw(), 0) }))?;
        if let Err(error) = waited {
            event.blame(&error)?;
            return self.ask(|_| Err(error));
        }
        self.keep_while_captured()
    }

    /// Lets later work of this stream begin only when everything queued on `other` so far is done. Does
    /// nothing if that order already holds.
    ///
    /// # Errors
    /// The driver's error.
    pub fn wait_for(&self, other: &Stream) -> Result<()> {
        if self == other {
            return Ok(());
        }
        if self.device().captures().any() || other.device().captures().any() {
            // During a capture every wait is queued: waits inside the capture and outside of it do not count
            // for each other.
            // SAFETY: both streams are alive.
            other.ask(|_| unsafe { other.queue().order_before(self.handle()) })?;
            self.queued();
            return self.keep_while_captured();
        }
        let issued = other.inner.progress.issued.load(Ordering::SeqCst);
        if self.is_behind(other, issued) {
            return Ok(());
        }
        // SAFETY: both streams are alive.
        other.ask(|_| unsafe { other.queue().order_before(self.handle()) })?;
        self.queued();
        self.inner.progress.now_behind(&other.inner, issued);
        Ok(())
    }

    /// As `wait_for`, for buffers: never makes this stream part of a capture.
    pub(crate) fn come_after(&self, other: &Stream) -> Result<()> {
        if self.comes_after(other) {
            return Ok(());
        }
        other.device().captures().between_beginnings(|| {
            if other.capture()?.is_none() {
                return self.wait_for(other);
            }
            Err(Error::NotCapturable {
                operation: "the use of a buffer on two streams, one captured and one not,",
                reason: "work outside a capture cannot wait for a stream that is being captured",
                hint: "use the buffer on the captured stream, or on one forked from it with `Stream::scope`",
            })
        })
    }

    /// Whether everything queued on this stream from now on comes after everything queued on `other` so far.
    pub(crate) fn comes_after(&self, other: &Stream) -> bool {
        self == other || self.is_behind(other, other.inner.progress.issued.load(Ordering::SeqCst))
    }

    /// Whether it comes after the first `issued` pieces of work of `other`, and `other` has no unseen work.
    fn is_behind(&self, other: &Stream, issued: u64) -> bool {
        let theirs = &other.inner.progress;
        let done = theirs.done.load(Ordering::Acquire) >= issued;
        (done || self.inner.progress.is_behind(&other.inner, issued))
            && !theirs.unseen.load(Ordering::Relaxed)
    }

    /// As `wait_for`, for clean-up: if the driver refuses the order, the host waits for `other`. False when
    /// that fails too. `other` is of the same device.
    pub(crate) fn settle_behind(&self, other: &Stream) -> bool {
        if self.comes_after(other) {
            return true;
        }
        // SAFETY: both streams are alive.
        let ordered = self.device().clean_up(|| unsafe { other.queue().order_before(self.handle()) });
        self.queued();
        ordered.is_ok() || other.drain()
    }

    /// For clean-up: whether everything is known to be done. A captured stream cannot be queried.
    pub(crate) fn is_done(&self) -> bool {
        let captures = self.device().captures();
        // SAFETY: the handle is alive.
        let query = || self.device().clean_up(|| unsafe { raw::stream_query(self.handle()) });
        captures.between_beginnings(|| !captures.any() && matches!(query(), Ok(true)))
    }

    /// Waits, for clean-up, until nothing of the stream runs any more. A dead context runs nothing.
    pub(crate) fn drain(&self) -> bool {
        // SAFETY: the handle is alive.
        is_settled(self.device().clean_up(|| unsafe { raw::stream_synchronize(self.handle()) }))
    }

    /// The driver's handle, for calls that ironwarp does not make. It lives as long as a clone of this
    /// stream.
    ///
    /// From then on every wait for this stream inserts an event, and errors count the unseen work among the
    /// suspects.
    pub fn raw(&self) -> CUstream {
        self.inner.progress.unseen.store(true, Ordering::Relaxed);
        self.device().launches().expect_unseen_work();
        self.handle()
    }

    /// The driver's handle, for calls that go through `call`.
    pub(crate) fn handle(&self) -> CUstream {
        self.queue().stream
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.inner.queue
    }

    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// Makes driver calls that queue work on the stream.
    pub(crate) fn call<T>(&self, calls: impl FnOnce(CUstream) -> RawResult<T>) -> Result<T> {
        let result = self.ask(calls);
        self.queued();
        result
    }

    /// Makes driver calls that queue no work for others to wait for.
    pub(crate) fn ask<T>(&self, calls: impl FnOnce(CUstream) -> RawResult<T>) -> Result<T> {
        self.inner.device.call(|| calls(self.handle()))
    }

    /// Remembers a launch that was queued or captured, for later error messages.
    pub(crate) fn note_launch(&self, site: LaunchSite) -> Result<()> {
        match self.capture()? {
            None => self.device().launches().add(&self.inner.launches, site),
            Some(capture) => capture.note_launch(site),
        }
        Ok(())
    }

    /// The value of type `T` that another layer keeps with the stream.
    pub(crate) fn extension<T: Any + Send + Sync>(&self, make: impl Fn() -> T) -> &T {
        self.inner.extensions.get(make)
    }

    /// A piece of work was queued. Sequentially consistent, since uses of buffers rely on it
    /// (`memory/uses.rs`).
    pub(crate) fn queued(&self) {
        self.inner.progress.issued.fetch_add(1, Ordering::SeqCst);
    }

    /// Before a wait: the numbers of pieces of work and of launches queued so far.
    fn seen(&self) -> (u64, u64) {
        (self.inner.progress.issued.load(Ordering::Acquire), self.inner.launches.launched())
    }

    /// A wait that began at `seen` is over.
    fn caught_up(&self, (issued, launched): (u64, u64)) {
        self.inner.progress.done.fetch_max(issued, Ordering::AcqRel);
        self.inner.launches.done(launched);
    }

    pub(crate) fn same_device(&self, what: &'static str, device: &Device) -> Result<()> {
        if *device == self.inner.device {
            return Ok(());
        }
        Err(Error::DeviceMismatch { what, expected: self.inner.device.ordinal(), got: device.ordinal() })
    }
}

impl PartialEq for Stream {
    fn eq(&self, other: &Stream) -> bool {
        self.inner.id == other.inner.id
    }
}

impl Eq for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({} on device {})", self.inner.id, self.inner.device.ordinal())
    }
}

/// Whether nothing runs any more after a wait with this result.
pub(crate) fn is_settled(wait: RawResult) -> bool {
    wait.map_or_else(|error| error.is_sticky(), |()| true)
}
